//! `explain vm ID|NAME`: which Node a watched VM backs and why, or why none.

use super::node::{entries, found_by_text, has_its_vm, lag_text, vm_section};
use super::outside_text::full_message;
use super::{Explanation, not_known};
use crate::app::inquiries::Inquiries;
use crate::app::inquiries::completeness::vms_gap;
use crate::app::reports::explain::{Section, SubjectState};
use crate::cloud::{Presence, Reason, Unknown, node};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::Provider;
use crate::providers::vsphere::nodes::lookup::instance_cache::CachedInstance;
use crate::providers::vsphere::nodes::lookup::resolution::SearchAnswer;
use crate::providers::vsphere::nodes::reports::VmReport;
use crate::providers::vsphere::reason;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;

/// Maximum number of VMs with one name in an explanation, and of Nodes of one VM.
const MAX_SHOWN: usize = 8;

/// Explains the watched VMs with this id, name or inventory path.
///
/// # Errors
/// Ids and names of the VMs that the process watches: those that back Nodes or match one.
pub(super) fn explain(process: &Inquiries, name: &str) -> Result<Explanation, Vec<String>> {
    let Some(provider) = process.vsphere.provider() else {
        return Ok(not_known(subject(name), "the process stops"));
    };
    let mut vms = watched_vms(&provider, name);
    if vms.is_empty() {
        return match vms_gap(process) {
            Some(gap) => Ok(not_known(subject(name), &gap)),
            None => Err(provider.vm_names()),
        };
    }
    vms.truncate(MAX_SHOWN);
    let entries = entries(process);
    let relations: Vec<Vec<NodeRelation>> = vms.iter().map(|vm| relations(vm, &entries)).collect();
    Ok(explanation(name, &vms, &relations))
}

/// Returns the watched VMs with this id, name or inventory path.
pub(super) fn watched_vms(provider: &Provider, name: &str) -> Vec<VmReport> {
    let last_name = name.rsplit('/').next().unwrap_or(name);
    let mut vms = provider.vm_reports(|key, vm| *key.id == *name || vm.name == name || vm.name == last_name);
    // A name from the end of a path counts only for the VM at this path.
    vms.retain(|vm| *vm.key.id == *name || vm.name == name || vm.path.as_deref() == Some(name));
    vms
}

fn subject(name: &str) -> String {
    format!("VM {name}")
}

/// A Node that a VM backs, or that the VM matches.
#[derive(Clone, Debug, PartialEq)]
struct NodeRelation {
    node: String,
    /// Whether the VM backs the Node.
    is_backed: bool,
    /// How the VM was found, or the reason why the VM does not back the Node.
    why: String,
    /// The reason why the Node gets no data of the VM that backs it.
    obstacle: Option<Reason>,
}

impl NodeRelation {
    fn backed(node: &str, why: String) -> Self {
        Self { node: node.to_owned(), is_backed: true, why, obstacle: None }
    }

    fn refused(node: &str, why: String) -> Self {
        Self { node: node.to_owned(), is_backed: false, why, obstacle: None }
    }
}

fn relations(vm: &VmReport, entries: &[(Arc<Node>, Arc<CachedInstance>)]) -> Vec<NodeRelation> {
    let mut relations: Vec<NodeRelation> =
        entries.iter().filter_map(|(node, entry)| relation(vm, node, entry)).collect();
    relations.sort_by(|one, other| (!one.is_backed, &one.node).cmp(&(!other.is_backed, &other.node)));
    relations.truncate(MAX_SHOWN);
    relations
}

fn relation(vm: &VmReport, node: &Node, entry: &CachedInstance) -> Option<NodeRelation> {
    let name = node::name(node);
    let reason_text = |unknown: &Unknown| format!("{}: {}", unknown.reason, full_message(&unknown.message));
    match &entry.presence {
        Presence::Exists(bound) if bound.vcenter == vm.key.vcenter && bound.location.vm == vm.key.id => {
            let system_uuid = node::system_uuid(node).parse::<BiosUuid>().ok();
            Some(match &bound.metadata {
                Presence::Exists(metadata) => {
                    let how = found_by_text(metadata.found_by, system_uuid.as_ref(), vm.uuid.as_ref());
                    NodeRelation::backed(name, format!("found by {how}"))
                }
                Presence::Unknown(unknown) if !has_its_vm(bound) => NodeRelation::refused(name, reason_text(unknown)),
                Presence::Unknown(unknown) => {
                    NodeRelation { obstacle: Some(unknown.reason), ..NodeRelation::backed(name, reason_text(unknown)) }
                }
                Presence::Absent(proof) => NodeRelation::backed(name, full_message(&proof.to_string())),
            })
        }
        Presence::Unknown(unknown) if has_match(vm, entry) => Some(NodeRelation::refused(name, reason_text(unknown))),
        Presence::Exists(bound) if has_match(vm, entry) => {
            Some(NodeRelation::refused(name, format!("the VM {} was taken", bound.location.vm)))
        }
        Presence::Exists(_) | Presence::Unknown(_) | Presence::Absent(_) => None,
    }
}

/// Whether the last decision about the Node had this VM as a match.
fn has_match(vm: &VmReport, entry: &CachedInstance) -> bool {
    let mut answers = entry.inputs.iter().flat_map(|inputs| &inputs.answers);
    answers.any(|(server, answer)| {
        let is_own = *server == vm.server;
        is_own && matches!(answer, SearchAnswer::Matches { ids, .. } if ids.contains(&vm.key.id))
    })
}

/// Returns the explanation of VMs, each with its Nodes.
fn explanation(name: &str, vms: &[VmReport], relations: &[Vec<NodeRelation>]) -> Explanation {
    let mut sections = Vec::new();
    for (vm, relations) in vms.iter().zip(relations) {
        sections.push(vm_section("VM", vm));
        let mut section = Section::new("Nodes");
        for NodeRelation { node, is_backed, why, obstacle } in relations {
            match (is_backed, obstacle) {
                (true, None) => section.add("backs", format!("{node}, {why}")),
                (true, Some(_)) => section.add_finding("backs", format!("{node}, which gets no data of it: {why}")),
                (false, _) => section.add_finding("not", format!("{node}: {why}")),
            }
        }
        if relations.is_empty() {
            section.add_finding("", "no Node matches it at the moment");
        }
        sections.push(section);
    }
    let (state, summary) = standing(relations);
    // The age of the data is that of the oldest ones.
    let lag = vms.iter().filter_map(|vm| vm.lag.as_ref()).max_by_key(|lag| lag.age);
    let (state, summary) = match lag {
        Some(lag) => (SubjectState::Unknown, format!("not known: {summary}, as of {}", lag_text(lag))),
        None => (state, summary),
    };
    Explanation { subject: subject(name), summary, state, sections }
}

/// Returns the state of VMs with these Nodes, and the sentence about them.
fn standing(relations: &[Vec<NodeRelation>]) -> (SubjectState, String) {
    let backed: Vec<&NodeRelation> = relations.iter().flatten().filter(|relation| relation.is_backed).collect();
    match backed.as_slice() {
        [] => {
            let first = relations.iter().flatten().next();
            let why = first.map(|relation| format!(": {}", relation.why)).unwrap_or_default();
            (SubjectState::Held, format!("backs no Node{why}"))
        }
        [NodeRelation { node, obstacle: None, .. }] => (SubjectState::Settled, format!("backs Node {node}")),
        [NodeRelation { node, obstacle: Some(reason), .. }] if *reason == reason::LookupPending => {
            (SubjectState::Unknown, format!("backs Node {node}, whose look-up has not ended: {reason}"))
        }
        [NodeRelation { node, obstacle: Some(reason), .. }] => {
            (SubjectState::Held, format!("backs Node {node}, which gets no data of it: {reason}"))
        }
        several => {
            let names: Vec<&str> = several.iter().map(|relation| relation.node.as_str()).collect();
            (SubjectState::Held, format!("backs several Nodes: {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::explain::ExplainReport;
    use crate::app::reports::golden::assert_golden;
    use crate::app::reports::header::ReportHeader;
    use crate::providers::vsphere::nodes::reports::InventoryLag;
    use std::time::Duration;

    fn node(name: &str, is_backed: bool, why: &str) -> NodeRelation {
        let relation = if is_backed { NodeRelation::backed } else { NodeRelation::refused };
        relation(name, why.to_owned())
    }

    fn without_data(name: &str, reason: Reason) -> NodeRelation {
        NodeRelation { obstacle: Some(reason), ..node(name, true, "why") }
    }

    #[test]
    fn a_vm_backs_one_node_or_says_why_not() {
        for (relations, state, summary) in [
            (vec![node("a", true, "the provider ID")], SubjectState::Settled, "backs Node a"),
            (
                vec![node("a", true, "the provider ID"), node("b", false, "VMBacksAnotherNode: a has it")],
                SubjectState::Settled,
                "backs Node a",
            ),
            (vec![node("b", false, "SeveralVMsMatch: two")], SubjectState::Held, "backs no Node: SeveralVMsMatch: two"),
            (vec![], SubjectState::Held, "backs no Node"),
            (vec![node("a", true, "x"), node("b", true, "y")], SubjectState::Held, "backs several Nodes: a, b"),
            (
                vec![without_data("a", reason::ToolsNotRunning)],
                SubjectState::Held,
                "backs Node a, which gets no data of it: ToolsNotRunning",
            ),
            (
                vec![without_data("a", reason::LookupPending)],
                SubjectState::Unknown,
                "backs Node a, whose look-up has not ended: LookupPending",
            ),
        ] {
            let number = relations.len();
            let explanation = explanation("worker-7", &[VmReport::of_test("vm-1")], &[relations]);
            assert_eq!((explanation.state, explanation.summary.as_str()), (state, summary));
            assert_eq!(explanation.sections[1].facts.len(), number.max(1), "{:?}", explanation.sections[1]);
        }
        let twins = [VmReport::of_test("vm-1"), VmReport::of_test("vm-2")];
        let twins = explanation("worker-7", &twins, &[vec![node("a", true, "x")], vec![]]);
        assert_eq!((twins.state, twins.sections.len()), (SubjectState::Settled, 4), "two VMs have the name");
    }

    /// A standby, which names the command that finds the leader.
    #[test]
    fn the_document_is_the_golden_file() {
        let relations = [vec![node("a", true, "found by the provider ID"), node("b", false, "VMBacksAnotherNode: a")]];
        let explained = explanation("worker-7", &[VmReport::of_test("vm-1")], &relations);
        let report = ExplainReport { header: ReportHeader::of_standby(), ..explained.report_of_test() };
        assert_golden("explain-vm", ExplainReport::KIND, report.verdict(), &report);
    }

    #[test]
    fn of_a_vcenter_that_does_not_answer_nothing_is_known_for_certain() {
        let lag = InventoryLag { age: Some(Duration::from_secs(10_800)), failure: "vc does not answer".to_owned() };
        let vms = [VmReport::of_test("vm-1"), VmReport { lag: Some(lag), ..VmReport::of_test("vm-2") }];
        let explanation = explanation("worker-7", &vms, &[vec![node("a", true, "x")], vec![]]);
        let summary = "not known: backs Node a, as of 3 h ago: vc does not answer";
        assert_eq!((explanation.state, explanation.summary.as_str()), (SubjectState::Unknown, summary));
        let last = explanation.sections[2].facts.last().map(|fact| (fact.label.as_str(), fact.text.as_str()));
        assert_eq!(last, Some(("as of", "3 h ago: vc does not answer")));
    }
}
