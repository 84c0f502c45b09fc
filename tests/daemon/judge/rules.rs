//! What every version of a Node is held to. Whatever the test did not write, the daemon did.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus, Taint};
use support::nodes::UNINITIALIZED_TAINT;

use super::machine::Machine;
use super::versions::Version;
use crate::cluster::labels;

/// The taint of a node whose machine is switched off.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The record of the machine.
pub const VM: &str = "vsphere-ccm.dev/vm";
/// The condition that is the daemon's.
const CONDITION: &str = "VSphereInitialized";
/// How long ago the daemon may have looked before it wrote: a proof of absence takes no longer.
const LOOK: Duration = Duration::from_secs(30);
/// A kubelet that reports for a shorter time may not be noticed by a daemon that hears of everything.
const NOTICED: Duration = Duration::from_secs(1);

/// The versions so far.
pub struct Rules {
    /// How long a node has to be Ready=Unknown before its deletion.
    grace: Duration,
    /// Whether labels follow the machine; else they are what they were at the initialisation.
    follows: bool,
    /// A kubelet that reports for a shorter time may not be noticed.
    noticed: Duration,
    nodes: HashMap<String, Known>,
    /// Versions that the test wrote: UID and resourceVersion.
    written: HashSet<(String, String)>,
    /// UIDs of the Nodes that the test deleted.
    deleted: HashSet<String>,
    /// How much was seen.
    pub seen: Seen,
}

/// How much was seen: a run in which nothing happens shows nothing.
#[derive(Debug, Default)]
pub struct Seen {
    /// Versions that the daemon wrote.
    pub writes: usize,
    /// Nodes that it initialised.
    pub initialised: usize,
    /// Nodes that it deleted.
    pub deleted: usize,
    /// Writes that changed addresses of an initialised node.
    pub readdressed: usize,
    /// Writes that put a shutdown taint on, or took it off.
    pub shutdowns: usize,
}

struct Known {
    node: Node,
    /// Since when it is Ready=Unknown, but for times too short to be noticed.
    silent_since: Option<Instant>,
    /// Since when its kubelet reports.
    reports_since: Option<Instant>,
}

impl Rules {
    /// Nothing is known yet.
    pub fn new(grace: Duration, follows: bool) -> Self {
        Self {
            grace,
            follows,
            noticed: NOTICED,
            nodes: HashMap::new(),
            written: HashSet::new(),
            deleted: HashSet::new(),
            seen: Seen::default(),
        }
    }

    /// The daemon may be deaf for so long, and not notice that a node was ready meanwhile.
    pub fn deaf_for(self, noticed: Duration) -> Self {
        Self { noticed, ..self }
    }

    /// The test wrote this.
    pub fn wrote(&mut self, node: &Node) {
        self.written.insert((uid(node), version(node)));
    }

    /// The test is about to delete this.
    pub fn will_delete(&mut self, node: &Node) {
        self.deleted.insert(uid(node));
    }

    /// Takes the next version of a node whose machine is `machine`.
    pub fn take(&mut self, version: Version, machine: &Machine) -> Result<(), String> {
        let Version { at, node, is_deletion, missed_since } = version;
        let uid = uid(&node);
        if is_deletion {
            let known = self.nodes.remove(&uid).ok_or("a Node is deleted that never was")?;
            if self.deleted.remove(&uid) {
                return Ok(());
            }
            self.seen.deleted += 1;
            let checked = match missed_since {
                None => self.check_deletion(&known, at, machine),
                Some(since) => check_existence(machine, since - LOOK, at),
            };
            return checked.map_err(|what| told(&what, &known.node, &node));
        }
        let is_ours = self.written.remove(&(uid.clone(), self::version(&node)));
        let known = self.nodes.remove(&uid);
        match &known {
            // Of several writes in one nobody can tell who made which.
            _ if missed_since.is_some() => {}
            None if !is_ours => return Err(format!("somebody else made a Node:\n{}", text(&node))),
            Some(known) if !is_ours => {
                self.count(&known.node, &node);
                self.check_write(&known.node, &node, at, machine).map_err(|what| told(&what, &known.node, &node))?;
            }
            _ => {}
        }
        let has_all = !is_initialised_without_address(&node);
        let written = text_if(!has_all, &node);
        self.nodes.insert(uid, Known::next(known, node, at, self.noticed));
        hold(has_all, &format!("an initialised node has no address:\n{written}"))
    }

    fn count(&mut self, old: &Node, new: &Node) {
        let changes = |key| has_taint(old, key) != has_taint(new, key);
        self.seen.writes += 1;
        self.seen.initialised += usize::from(changes(UNINITIALIZED_TAINT));
        self.seen.shutdowns += usize::from(changes(SHUTDOWN_TAINT));
        self.seen.readdressed += usize::from(!has_taint(old, UNINITIALIZED_TAINT) && addresses(old) != addresses(new));
    }

    fn check_write(&self, old: &Node, new: &Node, at: Instant, machine: &Machine) -> Result<(), String> {
        hold(others(old) == others(new), "what is not the daemon's was changed")?;
        let (before, after) = (provider_id(old), provider_id(new));
        hold(before.is_empty() || before == after, "the provider ID was changed")?;
        let was_initialised = !has_taint(old, UNINITIALIZED_TAINT);
        let is_initialised = !has_taint(new, UNINITIALIZED_TAINT);
        hold(is_initialised || !was_initialised, "an initialised node was made uninitialised")?;
        hold(!is_initialised || was_initialised || !after.is_empty(), "initialised without a provider ID")?;
        hold(!is_initialised || was_initialised || has_ip(new), "initialised without an address")?;
        for address in addresses(old).iter().filter(|_| was_initialised) {
            let still = addresses(new).iter().any(|now| now.type_ == address.type_);
            hold(still, &format!("an initialised node lost its {}", address.type_))?;
        }
        for (key, _) in labels("") {
            let (before, after) = (label(old, key), label(new, key));
            hold(before.is_none() || after.is_some(), &format!("the label {key} was removed"))?;
        }
        if was_initialised && !self.follows {
            for (key, _) in labels("").into_iter().filter(|(key, _)| key.contains("beta")) {
                let (before, after) = (label(old, key), label(new, key));
                hold(before.is_none() || before == after, &format!("the label {key} was changed"))?;
            }
        }
        if has_taint(new, SHUTDOWN_TAINT) && !has_taint(old, SHUTDOWN_TAINT) {
            hold(!is_ready(old), "a ready node was marked as shut down")?;
            hold(machine.was_not_running(at - LOOK, at), "the node of a running machine was marked as shut down")?;
        }
        Ok(())
    }

    fn check_deletion(&self, known: &Known, at: Instant, machine: &Machine) -> Result<(), String> {
        hold(is_silent(&known.node), "a node was deleted whose kubelet reports")?;
        hold(!has_taint(&known.node, UNINITIALIZED_TAINT), "an uninitialised node was deleted")?;
        let since = known.silent_since.ok_or("a node was deleted whose kubelet reported all the time")?;
        hold(at - since >= self.grace, "a node was deleted within the grace period")?;
        check_existence(machine, since.max(at - LOOK), at)
    }
}

/// Whether a node may have been deleted at `at` that was looked at since then.
fn check_existence(machine: &Machine, since: Instant, at: Instant) -> Result<(), String> {
    hold(machine.was_gone(since, at), "a node was deleted whose machine existed all the time")
}

impl Known {
    fn next(known: Option<Self>, node: Node, at: Instant, noticed: Duration) -> Self {
        let (silent_since, reports_since) =
            known.map_or((None, None), |known| (known.silent_since, known.reports_since));
        if !is_silent(&node) {
            let reports_since = reports_since.unwrap_or(at);
            return Self { node, silent_since, reports_since: Some(reports_since) };
        }
        let was_noticed = reports_since.is_some_and(|since| at - since >= noticed);
        let silent_since = silent_since.filter(|_| !was_noticed).unwrap_or(at);
        Self { node, silent_since: Some(silent_since), reports_since: None }
    }
}

fn hold(condition: bool, otherwise: &str) -> Result<(), String> {
    if condition { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn told(what: &str, old: &Node, new: &Node) -> String {
    format!("{what}\n--- before\n{}\n--- after\n{}", text(old), text(new))
}

fn text(node: &Node) -> String {
    let mut node = node.clone();
    node.metadata.managed_fields = None;
    serde_json::to_string_pretty(&node).unwrap()
}

fn uid(node: &Node) -> String {
    node.metadata.uid.clone().unwrap()
}

fn version(node: &Node) -> String {
    node.metadata.resource_version.clone().unwrap()
}

/// All of a Node that is not the daemon's.
fn others(node: &Node) -> Node {
    let mut node = node.clone();
    let metadata = &mut node.metadata;
    (metadata.managed_fields, metadata.resource_version, metadata.generation) = (None, None, None);
    let remove = |map: &mut Option<BTreeMap<String, String>>, keys: &[&str]| {
        let mut rest = map.take().unwrap_or_default();
        rest.retain(|key, _| !keys.contains(&key.as_str()));
        *map = Some(rest);
    };
    remove(&mut metadata.labels, &labels("").map(|(key, _)| key));
    remove(&mut metadata.annotations, &[VM]);
    let NodeSpec { provider_id, taints, .. } = node.spec.get_or_insert_default();
    *provider_id = None;
    let ours = [UNINITIALIZED_TAINT, SHUTDOWN_TAINT];
    taints.get_or_insert_default().retain(|taint| !ours.contains(&taint.key.as_str()));
    let NodeStatus { addresses, conditions, .. } = node.status.get_or_insert_default();
    *addresses = None;
    conditions.get_or_insert_default().retain(|condition| condition.type_ != CONDITION);
    node
}

/// The provider ID, or nothing.
pub fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

/// The addresses, in their order.
pub fn addresses(node: &Node) -> &[NodeAddress] {
    node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default()
}

/// Pods land on such a node, and nobody reaches them.
fn is_initialised_without_address(node: &Node) -> bool {
    !has_taint(node, UNINITIALIZED_TAINT) && !has_ip(node)
}

fn text_if(is_wanted: bool, node: &Node) -> String {
    if is_wanted { text(node) } else { String::new() }
}

fn has_ip(node: &Node) -> bool {
    addresses(node).iter().any(|address| matches!(address.type_.as_str(), "InternalIP" | "ExternalIP"))
}

/// The taints, in their order.
pub fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether there is a taint with this key.
pub fn has_taint(node: &Node, key: &str) -> bool {
    taints(node).iter().any(|taint| taint.key == key)
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// What the condition Ready says.
pub fn ready(node: &Node) -> &str {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
    ready.map_or("", |condition| condition.status.as_str())
}

fn is_ready(node: &Node) -> bool {
    ready(node) == "True"
}

/// Whether no kubelet reports: Ready=Unknown, or without the condition.
fn is_silent(node: &Node) -> bool {
    matches!(ready(node), "" | "Unknown")
}
