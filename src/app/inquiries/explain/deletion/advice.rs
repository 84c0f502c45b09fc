//! The reason why a Node is not deleted: the message, who acts, and the remedy.

use crate::app::inquiries::answer_time::AnswerTime;
use crate::app::inquiries::explain::actors::{self, CLUSTER, NOBODY, VSPHERE};
use crate::app::inquiries::explain::outside_text::full_message;
use crate::app::reports::explain::Section;
use crate::cloud::Reason;
use crate::controllers::node_lifecycle::candidacy::Candidacy;
use crate::controllers::node_lifecycle::deletion_policy::HoldReason;
use crate::controllers::node_lifecycle::plan::ANNOTATION_ALLOW_DELETION;
use crate::controllers::node_lifecycle::{DeletionMode, NodeDeletionFacts};
use crate::providers::vsphere::reason;

/// The beginning of a command in the container of the process.
const IN_THE_POD: &str = "kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager";

/// The reason why a Node is not deleted.
pub(super) struct HoldAdvice {
    /// The reason as in Events and metrics.
    pub(super) word: Reason,
    /// The message, as in the Event.
    pub(super) message: String,
    /// The party that acts.
    actor: String,
    /// The remedies, with commands.
    remedies: Vec<String>,
}

impl HoldAdvice {
    /// Returns the section about the reason.
    pub(super) fn section(&self) -> Section {
        let mut section = Section::new("Reason for the hold");
        section.add_finding("reason", self.word.as_str());
        section.add("message", self.message.as_str());
        section.add("who acts", self.actor.as_str());
        for remedy in &self.remedies {
            section.add("remedy", remedy.as_str());
        }
        section.add("page", format!("docs/reasons.md#{}", self.word.as_str().to_lowercase()));
        section
    }
}

/// Returns the reason why the Node is not deleted; `None` if nothing holds it, or if it is not a candidate.
pub(super) fn of(name: &str, node: &NodeDeletionFacts, time: &AnswerTime) -> Option<HoldAdvice> {
    match node.candidacy.as_ref()? {
        Candidacy::VmExists => None,
        Candidacy::Held { reason, message, is_quiet } => Some(without_proof(name, node, *reason, message, *is_quiet)),
        Candidacy::Unreported(unknown) => {
            let hold = without_proof(name, node, unknown.reason, &unknown.message, unknown.is_transient);
            let off = match node.mode {
                DeletionMode::Off { reason: because } => format!("; deletion is off as well: {because}"),
                DeletionMode::Enforce | DeletionMode::DryRun => String::new(),
            };
            Some(HoldAdvice { message: format!("{}{off}", hold.message), ..hold })
        }
        Candidacy::VmAbsent(_) => match &node.checks.as_ref()?.hold {
            Some((_, hold)) => Some(by_policy(name, hold, time)),
            None => node.failed_attempt().map(|reported| failed(name, reported.reason)),
        },
    }
}

/// The condition of every command that deletes a Node, or allows its deletion against a rule.
const IF_GONE: &str = "only if the VM is gone for certain";

/// Returns the reason for a Node whose VM is not confirmed deleted.
fn without_proof(name: &str, node: &NodeDeletionFacts, word: Reason, message: &str, is_transient: bool) -> HoldAdvice {
    let delete = format!("{IF_GONE}: kubectl delete node {name}");
    let (actor, remedies) = if word == reason::Uninitialized {
        let describe = format!("kubectl describe node {name} shows the condition VSphereInitialized");
        ("no one: cloud-node-controller initializes the Node first".to_owned(), vec![describe, delete])
    } else if word == reason::NeverSeen {
        let uuid = node.facts.provider_id.rsplit('/').next().unwrap_or_default();
        // The kubelet may have written the provider ID, and a shell must not interpret it.
        let is_uuid = uuid.chars().all(|char| char.is_ascii_hexdigit() || char == '-');
        let find = format!("govc find / -type m -config.uuid {}", if is_uuid { uuid } else { "UUID" });
        (format!("{VSPHERE} searches for the VM"), vec![find, delete])
    } else if is_transient {
        ("no one: the answer is on its way".to_owned(), Vec::new())
    } else {
        let actor = match actors::of_node(word) {
            NOBODY => NOBODY.to_owned(),
            actor => format!("{actor} fixes the cause in the message; then the proof is made again"),
        };
        (actor, vec![delete])
    };
    HoldAdvice { word, message: full_message(message), actor, remedies }
}

/// Returns the reason of the deletion policy.
pub(super) fn by_policy(name: &str, hold: &HoldReason, time: &AnswerTime) -> HoldAdvice {
    let until = hold.until().map(|until| time.wall_clock(until).to_string());
    let at = until.as_ref().map(|until| format!(" at {until}")).unwrap_or_default();
    let allow =
        format!("to delete it at once, {IF_GONE}: kubectl annotate node {name} {ANNOTATION_ALLOW_DELETION}=true");
    let delete = format!("{IF_GONE}: kubectl delete node {name}");
    let no_one = |what: &str| format!("no one: {what}{at}");
    let (actor, remedies) = match hold {
        HoldReason::Grace { .. } => (no_one("the Node is checked again"), vec![allow]),
        HoldReason::Counting { .. } => (no_one("the other nodes are being checked"), vec![allow]),
        HoldReason::ControlPlane { .. } => {
            let recover = format!("recover etcd and remove the member, then, {delete}");
            (CLUSTER.to_owned(), vec![recover])
        }
        HoldReason::Mass { .. } => {
            let end = until.as_ref().map(|until| format!(" before {until}")).unwrap_or_default();
            let off = format!("if the VMs were not deleted on purpose: set CCM_NODE_DELETION=off{end}");
            (no_one("the pause ends"), vec![off, allow])
        }
        HoldReason::Limit { until: Some(_), .. } => (no_one("the next deletion is possible"), vec![allow]),
        HoldReason::Limit { until: None, .. } => {
            let raise = "raise --node-deletion-limit".to_owned();
            (CLUSTER.to_owned(), vec![raise, allow])
        }
        HoldReason::Refused { .. } => {
            let fields = format!("involvedObject.name={name},reason=DeletingNodeFailed");
            let events = format!("kubectl get events -n default --field-selector {fields} shows the answer");
            (format!("{CLUSTER}; the next attempt is{at}"), vec![events])
        }
        HoldReason::Paused(_) => {
            let resume = format!("{IN_THE_POD} deletions resume");
            ("an operator, or no one: the pause ends by itself".to_owned(), vec![resume])
        }
        HoldReason::DryRun => {
            let enforce = format!("set --node-deletion=enforce, or, {delete}");
            (CLUSTER.to_owned(), vec![enforce])
        }
        HoldReason::Off { .. } => {
            let enforce = format!("set --node-deletion=enforce and no SKIP_NODE_DELETION, or, {delete}");
            (CLUSTER.to_owned(), vec![enforce])
        }
    };
    HoldAdvice { word: hold.reason(), message: full_message(&hold.message(until.as_deref())), actor, remedies }
}

/// Returns the reason of a failed attempt to delete a Node about which every rule has passed.
fn failed(name: &str, word: Reason) -> HoldAdvice {
    HoldAdvice {
        word,
        message: "every rule has passed; the last check ended with this reason".to_owned(),
        actor: "no one: the check is repeated".to_owned(),
        remedies: vec![format!("kubectl describe node {name} shows the Event with the cause")],
    }
}
