//! `explain node NAME`: why a Node is as it is, and what is written next.

mod advice;
mod sections;

pub(super) use sections::{address_text, found_by_text, lag_text, vm_section, vm_title};

use super::{Explanation, not_known};
use crate::app::inquiries::completeness::nodes_gap;
use crate::app::inquiries::{DetachedSettings, Inquiries};
use crate::cloud::{Presence, Reason, node};
use crate::providers::vsphere::Provider;
use crate::providers::vsphere::nodes::lookup::contest::is_called_rather;
use crate::providers::vsphere::nodes::lookup::facts::facts_of;
use crate::providers::vsphere::nodes::lookup::instance_cache::{BoundVm, CachedInstance};
use crate::providers::vsphere::nodes::reports::{NodeVmReport, VmReport};
use crate::providers::vsphere::reason;
use crate::runtime::queue::KeyState;
use advice::{AdviceInputs, RivalNode};
use k8s_openapi::api::core::v1::Node;
use sections::{NextAttempt, NodeInquiry};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum number of other Nodes that a fact names.
const MAX_OTHERS: usize = 5;

/// Explains the Node with this name.
///
/// # Errors
/// The Nodes that the process has cached.
pub(super) fn explain(process: &Inquiries, name: &str) -> Result<Explanation, Vec<String>> {
    let Some(node) = process.nodes.get(name) else {
        return match nodes_gap(process) {
            Some(gap) => Ok(not_known(format!("Node {name}"), &gap)),
            None => Err(process.nodes.keys()),
        };
    };
    let now = Instant::now();
    let report = process.vsphere.provider().map(|provider| provider.node_report(&node));
    let term = process.terms.node.as_ref();
    let answer = report.as_ref().map(|report| report.metadata.clone());
    let preview = match &process.detached {
        None => term.and_then(|term| term.get()).zip(answer).map(|(term, answer)| term.preview(&node, answer)),
        Some(DetachedSettings { plan, .. }) => process
            .vsphere
            .provider()
            .zip(answer)
            .and_then(|(provider, answer)| plan.node_preview(&node, answer, &provider)),
    };
    let next = term.and_then(|term| term.key_state(name)).map(|state| match state {
        KeyState::Idle => NextAttempt::WithEvent,
        KeyState::Running => NextAttempt::Running,
        KeyState::Ready => NextAttempt::Ready,
        KeyState::Delayed { until, failures } => {
            NextAttempt::Later { seconds: until.saturating_duration_since(now).as_secs(), failures }
        }
    });
    let entry = report.as_ref().and_then(|report| report.entry.as_ref());
    let decided = entry.and_then(|entry| entry.inputs.as_ref());
    let server = report.as_ref().and_then(|report| report.vm.as_ref()).map(|vm| vm.server.clone());
    let vcenters = process.vsphere.vcenter_reports();
    let own = vcenters.iter().find(|vcenter| server.as_ref() == Some(&vcenter.server));
    let next_poll = own.and_then(|vcenter| vcenter.tag_reads.next);
    let decided_seconds_ago = decided.map(|inputs| now.saturating_duration_since(inputs.at).as_secs());
    let tag_poll_in_seconds = next_poll.map(|next| next.saturating_duration_since(now).as_secs());
    let api_server = process.vsphere.provider().map(|provider| provider.api_server_addresses().to_vec());
    let (rivals, sharers) = match &report {
        Some(report) => rivals_and_sharers(&node, report, &entries(process)),
        None => (Vec::new(), BTreeMap::new()),
    };
    let inquiry = NodeInquiry {
        node,
        report,
        preview,
        next,
        decided_seconds_ago,
        tag_poll_in_seconds,
        rivals,
        sharers,
        api_server: api_server.unwrap_or_default(),
        is_detached: process.detached.is_some(),
    };
    Ok(inquiry.explanation())
}

/// Returns the command that gives the VM of this Node zone and region, if this reason says that it has none; otherwise an
/// empty text.
pub(in crate::app::inquiries) fn zone_command(node: &Node, provider: &Provider, reason: Reason) -> String {
    if ![reason::NoZoneTags, reason::InvalidTagName].contains(&reason) {
        return String::new();
    }
    let zone = provider.node_report(node).zone;
    let inputs =
        AdviceInputs { node: node::name(node), vm: None, uuid: None, zone: zone.as_ref(), rivals: &[], server: None };
    inputs.advice(reason).fix
}

/// For each address, some of the Nodes whose VM reports it.
type Sharers = BTreeMap<IpAddr, Vec<String>>;

/// Returns the other Nodes that have the VM of this Node or a VM that matches it, and the other Nodes whose VMs report
/// addresses of its VM.
fn rivals_and_sharers(
    node: &Node,
    report: &NodeVmReport,
    entries: &[(Arc<Node>, Arc<CachedInstance>)],
) -> (Vec<RivalNode>, Sharers) {
    let own: Vec<&VmReport> = report.vm.iter().chain(&report.matches).collect();
    let shared = report.entry.as_ref().map(|entry| entry.shared_addresses.clone()).unwrap_or_default();
    let mut rivals = Vec::new();
    let mut sharers = Sharers::new();
    if own.is_empty() {
        return (rivals, sharers);
    }
    for (other, entry) in entries {
        let Presence::Exists(bound) = &entry.presence else { continue };
        let name = node::name(other);
        if name == node::name(node) {
            continue;
        }
        let same = own.iter().find(|vm| vm.key.vcenter == bound.vcenter && vm.key.id == bound.location.vm);
        if let Some(vm) = same.filter(|_| has_its_vm(bound) && rivals.len() < MAX_OTHERS) {
            let both = facts_of(other).zip(facts_of(node));
            let is_called_by_guest = both.is_some_and(|(other, node)| is_called_rather(&other, &node, &vm.host_name));
            rivals.push(RivalNode { name: name.to_owned(), is_called_by_guest });
        }
        for ip in shared.iter().filter(|ip| bound.addresses.contains(&ip.to_canonical())) {
            let names = sharers.entry(ip.to_canonical()).or_default();
            if names.len() < MAX_OTHERS {
                names.push(name.to_owned());
            }
        }
    }
    (rivals, sharers)
}

/// Whether a Node has its VM, and no other Node has it.
pub(super) fn has_its_vm(bound: &BoundVm) -> bool {
    !matches!(&bound.metadata, Presence::Unknown(unknown) if unknown.reason == reason::VMBacksAnotherNode)
}

/// Returns the cached Nodes with the results of their look-up.
pub(super) fn entries(process: &Inquiries) -> Vec<(Arc<Node>, Arc<CachedInstance>)> {
    let Some(provider) = process.vsphere.provider() else { return Vec::new() };
    let entry = |node: Arc<Node>| {
        let entry = provider.instance(&node)?;
        Some((node, entry))
    };
    process.nodes.list().filter_map(entry).collect()
}
