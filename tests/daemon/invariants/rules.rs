//! The rules for every version of a Node. Every version that the test did not write is a write of the daemon.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus, Taint};
use k8s_openapi::jiff::Timestamp;
use support::nodes::{UNINITIALIZED_TAINT, ready_of};

use super::limits::{Limits, PERMIT};
use super::machine::Machine;
use super::observations::Seen;
use super::proofs::{Logged, Proof};
use super::versions::Version;
use crate::cluster::labels;

/// The taint of a node whose machine is switched off.
pub const SHUTDOWN_TAINT: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Annotation with the record of the machine.
pub const VM: &str = "vsphere-ccm.dev/vm";
/// Annotation with the labels that differ from vCenter, so that the daemon reports each difference once.
const REPORTED: &str = "vsphere-ccm.dev/reported";
/// Types of the conditions that the daemon writes.
const CONDITIONS: [&str; 2] = ["VSphereInitialized", "NetworkUnavailable"];
/// Maximum time between a read of the daemon and the write that results from it. A proof of absence takes no longer.
pub const LOOK: Duration = Duration::from_secs(30);
/// The label of a node of the control plane.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The versions so far, and the expectations for the next ones.
pub struct Rules {
    /// Time that a node must be Ready=Unknown before its deletion.
    grace: Duration,
    /// Whether labels follow the machine. Otherwise they keep their values from the initialization.
    follows: bool,
    /// Limits for the deletions of one daemon, if there are any.
    limits: Option<Limits>,
    nodes: HashMap<String, Known>,
    /// Versions that the test wrote, by UID and resourceVersion, with the start of each write.
    written: HashMap<(String, String), Instant>,
    /// UIDs of the Nodes that the test deleted.
    deleted: HashSet<String>,
    /// Times at which the test deleted Nodes of the control plane.
    without: Vec<Instant>,
    /// Deletions by daemons whose proofs are not checked yet.
    pending: Vec<Deletion>,
    /// Counts of the observed actions.
    pub seen: Seen,
}

struct Known {
    node: Node,
    /// Last period of Ready=Unknown.
    silence: Option<Silence>,
}

/// A period of Ready=Unknown.
struct Silence {
    /// Transition time of the condition. A daemon without a watch can see from it that the kubelet has reported in the
    /// meantime.
    transition: Option<Timestamp>,
    /// Earliest time at which a daemon can have observed the period.
    since: Instant,
}

/// A Node that a daemon deleted.
struct Deletion {
    number: usize,
    uid: String,
    /// Time at which the test observed the deletion.
    at: Instant,
    /// See [`Version::missed_since`].
    missed_since: Option<Instant>,
    silent_since: Instant,
    /// For a node of the control plane: number of the other ones.
    others: Option<usize>,
    /// The Node before and after, for failure messages.
    text: String,
}

impl Rules {
    /// Creates the rules without any version.
    pub fn new(grace: Duration, follows: bool) -> Self {
        Self {
            grace,
            follows,
            limits: None,
            nodes: HashMap::new(),
            written: HashMap::new(),
            deleted: HashSet::new(),
            without: Vec::new(),
            pending: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Adds limits for each daemon.
    pub fn limited(self, limits: Limits) -> Self {
        Self { limits: Some(limits), ..self }
    }

    /// Forbids deletions from `since` on for this time.
    pub fn hold(&mut self, since: Instant, length: Duration) {
        self.limits.as_mut().unwrap().hold(since, length);
    }

    /// Records a write of the test that started at `began`.
    pub fn wrote(&mut self, node: &Node, began: Instant) {
        self.written.insert((uid(node), version(node)), began);
    }

    /// Records that the test will delete this Node.
    pub fn will_delete(&mut self, node: &Node) {
        self.deleted.insert(uid(node));
    }

    /// Returns the number of unchecked deletions.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Applies the rules to the next version of a node with this machine.
    pub fn take(&mut self, version: Version, machine: &Machine) -> Result<(), String> {
        let Version { at, node, is_deletion, missed_since } = version;
        let uid = uid(&node);
        if is_deletion {
            return self.take_deletion(&node, at, missed_since);
        }
        let written = self.written.remove(&(uid.clone(), self::version(&node)));
        let is_ours = written.is_some();
        let known = self.nodes.remove(&uid);
        match &known {
            // The version merges several writes, so the authors are unknown.
            _ if missed_since.is_some() => {}
            None if !is_ours => return Err(format!("somebody else made a Node:\n{}", text(&node))),
            Some(known) if !is_ours => {
                self.count(&known.node, &node);
                self.check_write(&known.node, &node, at, machine).map_err(|what| told(&what, &known.node, &node))?;
            }
            _ => {}
        }
        let has_all = !is_initialized_without_address(&node);
        let shown = text_if(!has_all, &node);
        self.nodes.insert(uid, Known::next(known, node, written.or(missed_since).unwrap_or(at)));
        hold(has_all, &format!("an initialized node has no address:\n{shown}"))
    }

    fn take_deletion(&mut self, node: &Node, at: Instant, missed_since: Option<Instant>) -> Result<(), String> {
        let uid = uid(node);
        let known = self.nodes.remove(&uid).ok_or("a Node is deleted that never was")?;
        let is_control_plane = is_control_plane(node);
        if self.deleted.remove(&uid) {
            self.without.extend(is_control_plane.then_some(at));
            return Ok(());
        }
        self.seen.deleted += 1;
        self.seen.control_plane += usize::from(is_control_plane);
        let silent_since = known.silence.as_ref().map(|silence| silence.since);
        // The content of missed versions is unknown.
        if missed_since.is_none() {
            let checked = hold(is_silent(&known.node), "a node was deleted whose kubelet reports")
                .and_then(|()| hold(!has_taint(&known.node, UNINITIALIZED_TAINT), "an uninitialized node was deleted"));
            checked.map_err(|what| told(&what, &known.node, node))?;
        }
        let others = is_control_plane.then(|| self.control_plane(at));
        self.pending.push(Deletion {
            number: number(node),
            uid,
            at,
            missed_since,
            silent_since: silent_since.or(missed_since).unwrap_or(at),
            others,
            text: told("", &known.node, node),
        });
        Ok(())
    }

    /// Counts the nodes of the control plane, including those that the test deleted shortly before, because a daemon
    /// may have counted them.
    fn control_plane(&mut self, at: Instant) -> usize {
        self.without.retain(|deleted| at.saturating_duration_since(*deleted) < PERMIT);
        self.nodes.values().filter(|known| is_control_plane(&known.node)).count() + self.without.len()
    }

    /// Checks the deletions whose proofs are logged by now. `logged` gets a UID and the earliest and latest time at
    /// which the test may have observed the deletion.
    pub fn conclude(
        &mut self,
        machines: &[Machine],
        logged: impl Fn(&str, Instant, Instant) -> Logged,
    ) -> Result<(), String> {
        for deletion in std::mem::take(&mut self.pending) {
            let Deletion { at, missed_since, .. } = deletion;
            let machine = &machines[deletion.number];
            let judged = match logged(&deletion.uid, missed_since.unwrap_or(at), at) {
                Logged::Awaited => {
                    self.pending.push(deletion);
                    continue;
                }
                Logged::Proof(proof) => {
                    self.seen.proofs += 1;
                    self.judge(&deletion, proof, machine)
                }
                Logged::Lost => {
                    self.seen.lost_proofs += 1;
                    self.judge_without_proof(&deletion, machine)
                }
                Logged::Never => Err("no daemon logged the proof that led to a deletion".to_owned()),
            };
            judged.map_err(|what| format!("{what}: node {}{}", deletion.number, deletion.text))?;
        }
        Ok(())
    }

    fn judge(&mut self, deletion: &Deletion, proof: Proof, machine: &Machine) -> Result<(), String> {
        if deletion.missed_since.is_none() {
            self.check_grace(deletion, proof.began)?;
        }
        check_existence(machine, proof.began, deletion.at)?;
        match &mut self.limits {
            Some(limits) => limits.take(proof, deletion.others),
            None => Ok(()),
        }
    }

    /// Checks a deletion of a daemon that was killed before it could log the proof. The last read may have been at any
    /// time of a period.
    fn judge_without_proof(&self, deletion: &Deletion, machine: &Machine) -> Result<(), String> {
        let Deletion { at, missed_since, silent_since, .. } = *deletion;
        match missed_since {
            Some(since) => check_existence(machine, since - LOOK, at),
            None => {
                self.check_grace(deletion, at)?;
                check_existence(machine, silent_since.max(at - LOOK), at)
            }
        }
    }

    fn check_grace(&self, deletion: &Deletion, at: Instant) -> Result<(), String> {
        let silent_for = at.saturating_duration_since(deletion.silent_since);
        hold(silent_for >= self.grace, "a node was deleted within the grace period")
    }

    fn count(&mut self, old: &Node, new: &Node) {
        let changes = |key| has_taint(old, key) != has_taint(new, key);
        self.seen.writes += 1;
        self.seen.initialized += usize::from(changes(UNINITIALIZED_TAINT));
        self.seen.shutdowns += usize::from(changes(SHUTDOWN_TAINT));
        self.seen.readdressed += usize::from(!has_taint(old, UNINITIALIZED_TAINT) && addresses(old) != addresses(new));
    }

    fn check_write(&self, old: &Node, new: &Node, at: Instant, machine: &Machine) -> Result<(), String> {
        hold(others(old) == others(new), "what is not the daemon's was changed")?;
        let (before, after) = (provider_id(old), provider_id(new));
        hold(before.is_empty() || before == after, "the provider ID was changed")?;
        let was_initialized = !has_taint(old, UNINITIALIZED_TAINT);
        let is_initialized = !has_taint(new, UNINITIALIZED_TAINT);
        hold(is_initialized || !was_initialized, "an initialized node was made uninitialized")?;
        hold(!is_initialized || was_initialized || !after.is_empty(), "initialized without a provider ID")?;
        hold(!is_initialized || was_initialized || has_ip(new), "initialized without an address")?;
        for address in addresses(old).iter().filter(|_| was_initialized) {
            let still = addresses(new).iter().any(|now| now.type_ == address.type_);
            hold(still, &format!("an initialized node lost its {}", address.type_))?;
        }
        for (key, _) in labels("") {
            let (before, after) = (label(old, key), label(new, key));
            hold(before.is_none() || after.is_some(), &format!("the label {key} was removed"))?;
        }
        if was_initialized && !self.follows {
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
}

/// Checks that the machine was absent at some time between `since` and `at`.
fn check_existence(machine: &Machine, since: Instant, at: Instant) -> Result<(), String> {
    hold(machine.was_gone(since, at), "a node was deleted whose machine existed all the time")
}

impl Known {
    /// Adds the next version. `since` is the earliest time at which a daemon can have seen it.
    fn next(known: Option<Self>, node: Node, since: Instant) -> Self {
        let before = known.and_then(|known| known.silence);
        if !is_silent(&node) {
            return Self { node, silence: before };
        }
        let transition = ready_of(&node).and_then(|ready| Some(ready.last_transition_time.as_ref()?.0));
        // The transition time has a resolution of one second, so a shorter report of the kubelet is invisible.
        let same = before.filter(|silence| silence.transition == transition);
        Self { node, silence: Some(same.unwrap_or(Silence { transition, since })) }
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

/// Returns the parts of a Node that the daemon does not write.
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
    remove(&mut metadata.annotations, &[VM, REPORTED]);
    let NodeSpec { provider_id, taints, .. } = node.spec.get_or_insert_default();
    *provider_id = None;
    let ours = [UNINITIALIZED_TAINT, SHUTDOWN_TAINT];
    taints.get_or_insert_default().retain(|taint| !ours.contains(&taint.key.as_str()));
    let NodeStatus { addresses, conditions, .. } = node.status.get_or_insert_default();
    *addresses = None;
    conditions.get_or_insert_default().retain(|condition| !CONDITIONS.contains(&condition.type_.as_str()));
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

/// Whether the node is initialized without an address. Pods would be scheduled to it and be unreachable.
fn is_initialized_without_address(node: &Node) -> bool {
    !has_taint(node, UNINITIALIZED_TAINT) && !has_ip(node)
}

fn text_if(is_wanted: bool, node: &Node) -> String {
    if is_wanted { text(node) } else { String::new() }
}

fn has_ip(node: &Node) -> bool {
    addresses(node).iter().any(|address| matches!(address.type_.as_str(), "InternalIP" | "ExternalIP"))
}

/// Returns the taints, in their order.
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

/// Whether the node has the label of the control plane.
pub fn is_control_plane(node: &Node) -> bool {
    label(node, CONTROL_PLANE).is_some()
}

/// Returns the number at the end of the node's name.
pub fn number(node: &Node) -> usize {
    node.metadata.name.as_deref().unwrap().rsplit('-').next().unwrap().parse().unwrap()
}

/// Returns the status of the condition Ready.
pub fn ready(node: &Node) -> &str {
    ready_of(node).map_or("", |condition| condition.status.as_str())
}

fn is_ready(node: &Node) -> bool {
    ready(node) == "True"
}

/// Whether no kubelet reports: Ready=Unknown, or no such condition.
fn is_silent(node: &Node) -> bool {
    matches!(ready(node), "" | "Unknown")
}
