//! `explain node NAME`: why a Node is as it is, and what is written next.

mod advice;
mod sections;

pub(super) use sections::{address_text, found_by_text, vm_section, vm_title};

use super::Explanation;
use crate::app::inquiries::Inquiries;
use crate::cloud::{Presence, node};
use crate::providers::vsphere::nodes::lookup::instance_cache::CachedInstance;
use crate::providers::vsphere::vcenter::VmKey;
use crate::runtime::queue::KeyState;
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
    let Some(node) = process.nodes.get(name) else { return Err(process.nodes.keys()) };
    let now = Instant::now();
    let report = process.vsphere.provider().map(|provider| provider.node_report(&node));
    let term = process.terms.node.as_ref();
    let preview = term.and_then(|term| term.get()).zip(report.as_ref());
    let preview = preview.map(|(term, report)| term.preview(&node, report.metadata.clone()));
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
    let mut keys: Vec<VmKey> = Vec::new();
    if let Some(report) = &report {
        keys.extend(report.vm.iter().chain(&report.matches).map(|vm| vm.key.clone()));
    }
    let shared = entry.map(|entry| entry.shared_addresses.clone()).unwrap_or_default();
    let mut rivals = Vec::new();
    let mut sharers: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
    if !keys.is_empty() {
        for (other, entry) in entries(process) {
            let Presence::Exists(vm) = &entry.presence else { continue };
            let other = node::name(&other).to_owned();
            if other == name {
                continue;
            }
            let is_same = |key: &VmKey| key.vcenter == vm.vcenter && key.id == vm.location.vm;
            if keys.iter().any(is_same) && rivals.len() < MAX_OTHERS {
                rivals.push(other.clone());
            }
            for ip in shared.iter().filter(|ip| vm.addresses.contains(&ip.to_canonical())) {
                let names = sharers.entry(ip.to_canonical()).or_default();
                if names.len() < MAX_OTHERS {
                    names.push(other.clone());
                }
            }
        }
    }
    let decided_seconds_ago = decided.map(|inputs| now.saturating_duration_since(inputs.at).as_secs());
    let tag_poll_in_seconds = next_poll.map(|next| next.saturating_duration_since(now).as_secs());
    let api_server = process.vsphere.provider().map(|provider| provider.api_server_addresses().to_vec());
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
    };
    Ok(inquiry.explanation())
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
