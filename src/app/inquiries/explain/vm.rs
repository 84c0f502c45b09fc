//! `explain vm ID|NAME`: which Node a watched VM backs and why, or why none.

use super::Explanation;
use super::node::{entries, found_by_text, vm_section};
use super::outside_text::clipped;
use crate::app::inquiries::Inquiries;
use crate::app::reports::explain::{Section, SubjectState};
use crate::cloud::{Presence, node};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::nodes::lookup::instance_cache::CachedInstance;
use crate::providers::vsphere::nodes::lookup::resolution::SearchAnswer;
use crate::providers::vsphere::nodes::reports::VmReport;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;

/// Maximum number of VMs with one name in an explanation, and of Nodes of one VM.
const MAX_SHOWN: usize = 8;

/// Explains the watched VMs with this id, name or inventory path.
///
/// # Errors
/// Ids and names of the VMs that the process watches: those that back Nodes or match one.
pub(super) fn explain(process: &Inquiries, name: &str) -> Result<Explanation, Vec<String>> {
    let Some(provider) = process.vsphere.provider() else { return Err(Vec::new()) };
    let last_name = name.rsplit('/').next().unwrap_or(name);
    let mut vms = provider.vm_reports(|key, vm| *key.id == *name || vm.name == name || vm.name == last_name);
    // A name from the end of a path counts only for the VM at this path.
    vms.retain(|vm| *vm.key.id == *name || vm.name == name || vm.path.as_deref() == Some(name));
    if vms.is_empty() {
        return Err(provider.vm_names());
    }
    vms.truncate(MAX_SHOWN);
    let entries = entries(process);
    let relations: Vec<Vec<NodeRelation>> = vms.iter().map(|vm| relations(vm, &entries)).collect();
    Ok(explanation(name, &vms, &relations))
}

/// A Node that a VM backs, or that the VM matches.
#[derive(Clone, Debug, PartialEq)]
struct NodeRelation {
    node: String,
    /// Whether the VM backs the Node.
    is_backed: bool,
    /// How the VM was found, or the reason why the VM does not back the Node.
    why: String,
}

fn relations(vm: &VmReport, entries: &[(Arc<Node>, Arc<CachedInstance>)]) -> Vec<NodeRelation> {
    let mut relations: Vec<NodeRelation> =
        entries.iter().filter_map(|(node, entry)| relation(vm, node, entry)).collect();
    relations.sort_by(|one, other| (!one.is_backed, &one.node).cmp(&(!other.is_backed, &other.node)));
    relations.truncate(MAX_SHOWN);
    relations
}

fn relation(vm: &VmReport, node: &Node, entry: &CachedInstance) -> Option<NodeRelation> {
    let name = node::name(node).to_owned();
    match &entry.presence {
        Presence::Exists(bound) if bound.vcenter == vm.key.vcenter && bound.location.vm == vm.key.id => {
            let system_uuid = node::system_uuid(node).parse::<BiosUuid>().ok();
            let why = match &bound.metadata {
                Presence::Exists(metadata) => found_by_text(metadata.found_by, system_uuid.as_ref(), vm.uuid.as_ref()),
                Presence::Unknown(unknown) => format!("{}: {}", unknown.reason, clipped(&unknown.message)),
                Presence::Absent(proof) => clipped(&proof.to_string()),
            };
            Some(NodeRelation { node: name, is_backed: true, why })
        }
        Presence::Unknown(unknown) if has_match(vm, entry) => {
            let why = format!("{}: {}", unknown.reason, clipped(&unknown.message));
            Some(NodeRelation { node: name, is_backed: false, why })
        }
        Presence::Exists(bound) if has_match(vm, entry) => {
            let why = format!("the VM {} was taken", bound.location.vm);
            Some(NodeRelation { node: name, is_backed: false, why })
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
    let mut backed: Vec<&str> = Vec::new();
    for (vm, relations) in vms.iter().zip(relations) {
        sections.push(vm_section("VM", vm));
        let mut section = Section::new("Nodes");
        for relation in relations {
            let NodeRelation { node, is_backed, why } = relation;
            match is_backed {
                true => section.add("backs", format!("{node}, found by {why}")),
                false => section.add_finding("not", format!("{node}: {why}")),
            }
        }
        if relations.is_empty() {
            section.add_finding("", "no Node matches it at the moment");
        }
        sections.push(section);
        backed.extend(relations.iter().filter(|relation| relation.is_backed).map(|relation| relation.node.as_str()));
    }
    let (state, summary) = match backed.as_slice() {
        [] => {
            let first = relations.iter().flatten().next();
            let why = first.map(|relation| format!(": {}", relation.why)).unwrap_or_default();
            (SubjectState::Held, format!("backs no Node{why}"))
        }
        [only] => (SubjectState::Settled, format!("backs Node {only}")),
        several => (SubjectState::Held, format!("backs several Nodes: {}", several.join(", "))),
    };
    Explanation { subject: format!("VM {name}"), summary, state, sections }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::vsphere::vcenter::VmKey;

    fn vm(id: &str) -> VmReport {
        VmReport {
            key: VmKey { vcenter: 7.into(), id: id.into() },
            server: "vc.example.com:443".to_owned(),
            name: "worker-7".to_owned(),
            path: None,
            uuid: None,
            power_state: None,
            connection_state: None,
            is_template: false,
            tools: String::new(),
            host_name: String::new(),
            host: None,
        }
    }

    fn node(name: &str, is_backed: bool, why: &str) -> NodeRelation {
        NodeRelation { node: name.to_owned(), is_backed, why: why.to_owned() }
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
        ] {
            let number = relations.len();
            let explanation = explanation("worker-7", &[vm("vm-1")], &[relations]);
            assert_eq!((explanation.state, explanation.summary.as_str()), (state, summary));
            assert_eq!(explanation.sections[1].facts.len(), number.max(1), "{:?}", explanation.sections[1]);
        }
        let twins = explanation("worker-7", &[vm("vm-1"), vm("vm-2")], &[vec![node("a", true, "x")], vec![]]);
        assert_eq!((twins.state, twins.sections.len()), (SubjectState::Settled, 4), "two VMs have the name");
    }
}
