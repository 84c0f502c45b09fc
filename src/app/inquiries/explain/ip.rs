//! `explain ip ADDRESS`: which watched VMs report an address, which Node has it, and why the others do not.

use super::node::{address_text, entries, vm_title};
use super::{Explanation, not_known};
use crate::app::inquiries::Inquiries;
use crate::app::inquiries::completeness::vms_gap;
use crate::app::reports::explain::{Section, SubjectState};
use crate::base::addresses::parse_ip;
use crate::base::quoting::listed;
use crate::cloud::node::addresses;
use crate::cloud::{Presence, node};
use crate::providers::vsphere::nodes::reports::reports_address;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Maximum number of VMs, and of Nodes, in an explanation.
const MAX_SHOWN: usize = 16;

/// Explains this address.
///
/// # Errors
/// The addresses of the cached Nodes, if no VM reports the address and no Node has it.
pub(super) fn explain(process: &Inquiries, name: &str) -> Result<Explanation, Vec<String>> {
    let holders = holders(process);
    let known = || holders.keys().map(ToString::to_string).collect();
    let Some(ip) = parse_ip(name) else { return Err(known()) };
    let Some(provider) = process.vsphere.provider() else { return Ok(not_known(subject(ip), "the process stops")) };
    let api_server = provider.api_server_addresses();
    let mut vms = provider.vm_reports(|_, vm| reports_address(vm, ip));
    let held_by = holders.get(&ip).cloned().unwrap_or_default();
    let is_endpoint = api_server.iter().any(|endpoint| endpoint.to_canonical() == ip);
    let gap = vms_gap(process);
    if vms.is_empty() && held_by.is_empty() && !is_endpoint {
        return match gap {
            Some(gap) => Ok(not_known(subject(ip), &gap)),
            None => Err(known()),
        };
    }
    let number = vms.len();
    vms.truncate(MAX_SHOWN);
    let backed: BTreeMap<_, _> = entries(process)
        .into_iter()
        .filter_map(|(node, entry)| match &entry.presence {
            Presence::Exists(vm) => Some(((vm.vcenter, vm.location.vm.clone()), node)),
            _ => None,
        })
        .collect();
    let mut reporters = Vec::new();
    for vm in vms {
        let node = backed.get(&(vm.key.vcenter, vm.key.id.clone()));
        let decision = node.and_then(|node| {
            let decisions = provider.node_report(node).addresses;
            let decision = decisions.into_iter().find(|decision| parse_ip(&decision.text) == Some(ip))?;
            Some(address_text(&decision, api_server, &BTreeMap::new()))
        });
        let node = node.map(|node| node::name(node).to_owned());
        reporters.push(Reporter { vm: vm_title(&vm), node, decision });
    }
    let explanation = explanation(ip, number, &reporters, &held_by, is_endpoint);
    Ok(match gap {
        Some(gap) => doubted(explanation, &gap),
        None => explanation,
    })
}

fn subject(ip: IpAddr) -> String {
    format!("IP {ip}")
}

/// Returns the explanation with the reason why further VMs or Nodes may have the address. Several Nodes with it stay a
/// finding.
fn doubted(explanation: Explanation, gap: &str) -> Explanation {
    match explanation.state {
        SubjectState::Held => explanation,
        SubjectState::Settled | SubjectState::Unknown | SubjectState::Gone => {
            let summary = format!("not known: {}, and {gap}", explanation.summary);
            Explanation { state: SubjectState::Unknown, summary, ..explanation }
        }
    }
}

/// A watched VM that reports the address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reporter {
    vm: String,
    /// The Node that the VM backs.
    node: Option<String>,
    /// Label and text of the decision about the address for this Node.
    decision: Option<(String, String)>,
}

/// A Node that has the address in its status.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    node: String,
    types: Vec<String>,
}

/// Returns the Nodes that have each address in their status.
fn holders(process: &Inquiries) -> BTreeMap<IpAddr, Vec<Holder>> {
    let mut holders: BTreeMap<IpAddr, Vec<Holder>> = BTreeMap::new();
    for node in process.nodes.list() {
        let name = node::name(&node);
        for address in addresses::of(&node) {
            if address.type_ == addresses::HOSTNAME {
                continue;
            }
            let Some(ip) = parse_ip(&address.address) else { continue };
            let of_ip = holders.entry(ip).or_default();
            match of_ip.iter_mut().find(|holder| holder.node == name) {
                Some(holder) => holder.types.push(address.type_.clone()),
                None => of_ip.push(Holder { node: name.to_owned(), types: vec![address.type_.clone()] }),
            }
        }
    }
    holders
}

/// Returns the explanation of an address that `number` watched VMs report, of which `reporters` are the first.
fn explanation(
    ip: IpAddr,
    number: usize,
    reporters: &[Reporter],
    holders: &[Holder],
    is_endpoint: bool,
) -> Explanation {
    let mut held = Section::new("Nodes with this address");
    for Holder { node, types } in holders.iter().take(MAX_SHOWN) {
        held.add("has", format!("{node} as {}", types.join(" and ")));
    }
    if holders.len() > MAX_SHOWN {
        held.add("", format!("and {} more", holders.len() - MAX_SHOWN));
    }
    if is_endpoint {
        held.add("API server", "this process reaches the API server at this address");
    }
    let mut reported = Section::new("VMs that report it");
    for Reporter { vm, node, decision } in reporters {
        reported.add("VM", vm.as_str());
        match (node, decision) {
            (Some(node), Some((label, text))) => reported.add("", format!("Node {node}, {label}: {text}")),
            (Some(node), None) => reported.add("", format!("Node {node}: no decision about it")),
            (None, _) => reported.add("", "backs no Node"),
        }
    }
    if number == 0 && !holders.is_empty() {
        reported.add("", "no watched VM reports it");
    }
    if number > reporters.len() {
        reported.add("", format!("and {} more", number - reporters.len()));
    }
    let names: Vec<&str> = holders.iter().map(|holder| holder.node.as_str()).collect();
    let (state, summary) = match names.as_slice() {
        [] if is_endpoint => (SubjectState::Settled, "address of the API server, of no Node".to_owned()),
        [] => (SubjectState::Settled, "no Node has it".to_owned()),
        [only] => (SubjectState::Settled, format!("address of Node {only}")),
        several => (SubjectState::Held, format!("several Nodes have it: {}", listed(several))),
    };
    Explanation { subject: subject(ip), summary, state, sections: vec![held, reported] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::explain::ExplainReport;
    use crate::app::reports::golden::assert_golden;

    fn holder(node: &str) -> Holder {
        Holder { node: node.to_owned(), types: vec!["InternalIP".to_owned(), "ExternalIP".to_owned()] }
    }

    fn reporter(node: Option<&str>, decision: Option<(&str, &str)>) -> Reporter {
        Reporter {
            vm: "vm".to_owned(),
            node: node.map(str::to_owned),
            decision: decision.map(|(label, text)| (label.to_owned(), text.to_owned())),
        }
    }

    #[test]
    fn an_address_has_one_node_or_none_and_several_are_a_finding() {
        let ip: IpAddr = "10.20.0.10".parse().unwrap();
        for (holders, is_endpoint, state, summary) in [
            (vec![holder("a")], false, SubjectState::Settled, "address of Node a"),
            (vec![], false, SubjectState::Settled, "no Node has it"),
            (vec![], true, SubjectState::Settled, "address of the API server, of no Node"),
            (vec![holder("a"), holder("b")], true, SubjectState::Held, "several Nodes have it: a, b"),
        ] {
            let explanation = explanation(ip, 0, &[], &holders, is_endpoint);
            assert_eq!((explanation.state, explanation.summary.as_str()), (state, summary));
        }
    }

    #[test]
    fn each_reporting_vm_has_the_decision_of_its_node() {
        let ip: IpAddr = "10.20.0.10".parse().unwrap();
        let reporters = [
            reporter(Some("a"), Some(("gives way", "10.20.0.10: it may be a virtual IP"))),
            reporter(Some("b"), None),
            reporter(None, None),
        ];
        let unreported = explanation(ip, 0, &[], &[holder("a")], false).sections;
        assert_eq!(unreported[1].facts[0].text, "no watched VM reports it");
        let sections = explanation(ip, 9, &reporters, &[holder("a")], false).sections;
        assert_eq!(sections[0].facts[0].text, "a as InternalIP and ExternalIP");
        let many: Vec<Holder> = (0..20).map(|number| holder(&number.to_string())).collect();
        let of_many = explanation(ip, 0, &[], &many, false).sections;
        assert_eq!(of_many[0].facts.last().map(|fact| fact.text.as_str()), Some("and 4 more"));
        let texts: Vec<&str> = sections[1].facts.iter().map(|fact| fact.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "vm",
                "Node a, gives way: 10.20.0.10: it may be a virtual IP",
                "vm",
                "Node b: no decision about it",
                "vm",
                "backs no Node",
                "and 6 more",
            ]
        );
    }

    #[test]
    fn the_document_is_the_golden_file() {
        let decision = Some(("gives way", "10.20.0.10 on \"VM Network\": it may be a virtual IP"));
        let reporters = [reporter(Some("a"), decision), reporter(None, None)];
        let ip: IpAddr = "10.20.0.10".parse().unwrap();
        let report = explanation(ip, 3, &reporters, &[holder("a"), holder("b")], true).report_of_test();
        assert_golden("explain-ip", ExplainReport::KIND, report.verdict(), &report);
    }

    #[test]
    fn while_a_vcenter_does_not_answer_only_several_nodes_are_certain() {
        let ip: IpAddr = "10.20.0.10".parse().unwrap();
        let of = |holders: &[Holder]| doubted(explanation(ip, 0, &[], holders, false), "vc is down");
        let one = of(&[holder("a")]);
        assert_eq!(
            (one.state, one.summary.as_str()),
            (SubjectState::Unknown, "not known: address of Node a, and vc is down")
        );
        assert_eq!(of(&[holder("a"), holder("b")]).state, SubjectState::Held);
    }
}
