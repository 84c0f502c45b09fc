//! Pure: the explanation of a Node from what the process knows of it.

use super::advice::{Advice, AdviceInputs, RivalNode};
use crate::app::inquiries::explain::Explanation;
use crate::app::inquiries::explain::outside_text::{clipped, full_message};
use crate::app::reports::explain::{Section, SubjectState};
use crate::app::reports::text::{count, duration};
use crate::base::quoting::{listed, quoted};
use crate::cloud::node::addresses::INTERNAL_IP;
use crate::cloud::node::{self, TAINT_UNINITIALIZED};
use crate::cloud::{FoundBy, InstanceMetadata, Presence, Reason, Unknown};
use crate::controllers::BlockedObject;
use crate::controllers::node::NodePreview;
use crate::controllers::node::plan::{Metadata, NextStep, NodeAction, NodeBlocked};
use crate::controllers::node::reason;
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::nodes::absence::location::Location;
use crate::providers::vsphere::nodes::lookup::instance_cache::LookupInputs;
use crate::providers::vsphere::nodes::lookup::resolution::{SearchAnswer, SearchKey};
use crate::providers::vsphere::nodes::metadata::addresses::decisions::{AddressDecision, AddressOutcome};
use crate::providers::vsphere::nodes::metadata::addresses::{AddressBasis, AddressPick};
use crate::providers::vsphere::nodes::metadata::zones::{CheckedObject, MissingTags, ZoneProblem};
use crate::providers::vsphere::nodes::reports::{
    FoundZone, InventoryLag, NodeVmReport, ObjectName, VmReport, ZoneReport,
};
use crate::providers::vsphere::vcenter::snapshot::PowerState;
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What the process knows of a Node.
pub struct NodeInquiry {
    /// The cached Node.
    pub node: Arc<Node>,
    /// The look-up; `None` while the process stops.
    pub report: Option<NodeVmReport>,
    /// The state in the term of the node controller, or the plan of a new leader; `None` without either.
    pub preview: Option<NodePreview>,
    /// The next attempt; `None` without a term.
    pub next: Option<NextAttempt>,
    /// Age of the last decision about the VM.
    pub decided_seconds_ago: Option<u64>,
    /// Time until the next poll of the tags in the VM's vCenter.
    pub tag_poll_in_seconds: Option<u64>,
    /// Other Nodes that have the VM of this Node, or a VM that matches this Node.
    pub rivals: Vec<RivalNode>,
    /// For each address that VMs of other Nodes report, too, some of these Nodes.
    pub sharers: BTreeMap<IpAddr, Vec<String>>,
    /// The addresses of the API server.
    pub api_server: Vec<IpAddr>,
    /// Whether the command runs without a process: the plan is that of a new leader, and no reconcile is known.
    pub is_detached: bool,
}

/// The next attempt of the node controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextAttempt {
    /// A reconcile runs.
    Running,
    /// The Node waits for a worker.
    Ready,
    /// The Node waits for a time.
    Later {
        /// Time until the attempt.
        seconds: u64,
        /// Number of consecutive failures.
        failures: u32,
    },
    /// With the next event or the next periodic resync.
    WithEvent,
}

impl NodeInquiry {
    /// Returns the explanation.
    pub fn explanation(&self) -> Explanation {
        let (state, summary) = self.state();
        let advice = self.reason().map(|reason| self.advice_inputs().advice(reason));
        let sections = vec![
            self.block_section(advice.as_ref()),
            self.vm_section(),
            self.lookup_section(),
            self.address_section(),
            self.zone_section(),
            self.write_section(),
            self.next_section(advice.as_ref()),
        ];
        Explanation { subject: format!("Node {}", node::name(&self.node)), summary, state, sections }
    }

    fn state(&self) -> (SubjectState, String) {
        let Some(preview) = &self.preview else {
            let summary = match self.is_detached {
                true => "the node controller does not run with these flags".to_owned(),
                false => self.state_without_term(),
            };
            return (SubjectState::Unknown, summary);
        };
        let progress = if node::is_uninitialized(&self.node) { "not initialized" } else { "not up to date" };
        if let Some(blocked) = &preview.blocked {
            let age = duration(blocked.blocked_for.as_secs());
            return (SubjectState::Held, format!("{progress} for {age}: {}", blocked.reason));
        }
        if !preview.is_settled && !self.is_detached {
            return (SubjectState::Unknown, "not reconciled yet in this term of leadership".to_owned());
        }
        let Some(plan) = &preview.plan else {
            return (SubjectState::Settled, "belongs to another cloud provider, and is left alone".to_owned());
        };
        if let Some(Presence::Exists(InstanceMetadata { stale: Some(stale), .. })) =
            self.report.as_ref().map(|report| &report.metadata)
        {
            return (SubjectState::Unknown, format!("not known{}: {}", self.inventory_age(), stale.reason));
        }
        if let NextStep::Blocked(planned) = &plan.outcome {
            let progress = if self.is_detached { progress } else { "has changed since the last reconcile" };
            return (SubjectState::Held, format!("{progress}: {}", planned.reason));
        }
        if !plan.actions.is_empty() {
            let text = match self.is_detached {
                true => format!("{progress}: a new leader would write to it"),
                false => "has changed since the last reconcile, and is written next".to_owned(),
            };
            return (SubjectState::Held, text);
        }
        if self.is_never_initialized() {
            return (SubjectState::Held, "has no provider ID and no taint, so it is never initialized".to_owned());
        }
        (SubjectState::Settled, "initialized, up to date".to_owned())
    }

    /// Returns what the Node and its VM show. Only the leader has attempts.
    fn state_without_term(&self) -> String {
        let progress = match node::is_uninitialized(&self.node) {
            true => "not initialized",
            false if node::provider_id(&self.node).is_empty() => "has no provider ID and no taint",
            false => "initialized",
        };
        let reason = match self.report.as_ref().map(|report| &report.metadata) {
            Some(Presence::Unknown(unknown)) => format!(", {}", unknown.reason),
            _ => String::new(),
        };
        format!("{progress}{reason}: only the leader knows its attempts and what is written next")
    }

    /// Returns the age of the data about the VM, as a clause.
    fn inventory_age(&self) -> String {
        let lag = self.report.as_ref().and_then(|report| report.vm.as_ref()?.lag.as_ref());
        match lag.and_then(|lag| lag.age) {
            Some(age) => format!(", the VM was last seen {} ago", duration(age.as_secs())),
            None => String::new(),
        }
    }

    /// Returns the reason that blocks the Node at its last reconcile.
    fn blocked(&self) -> Option<&BlockedObject> {
        self.preview.as_ref()?.blocked.as_ref()
    }

    /// Returns the reason that the plan has now.
    fn planned_block(&self) -> Option<&NodeBlocked> {
        match &self.preview.as_ref()?.plan.as_ref()?.outcome {
            NextStep::Blocked(blocked) => Some(blocked),
            NextStep::Done | NextStep::Superseded => None,
        }
    }

    /// Whether the node controller leaves the Node alone, because it has neither a provider ID nor the taint.
    fn is_never_initialized(&self) -> bool {
        let has_plan = self.preview.as_ref().is_some_and(|preview| preview.plan.is_some());
        has_plan && !node::is_uninitialized(&self.node) && node::provider_id(&self.node).is_empty()
    }

    fn reason(&self) -> Option<Reason> {
        let planned = self.planned_block().map(|blocked| blocked.reason);
        let reported = self.blocked().map(|blocked| blocked.reason);
        reported.or(planned).or_else(|| self.is_never_initialized().then_some(reason::NoProviderID))
    }

    fn advice_inputs(&self) -> AdviceInputs<'_> {
        let report = self.report.as_ref();
        let vm = report.and_then(|report| report.vm.as_ref().or(only(&report.matches)));
        let inputs = self.lookup_inputs();
        let first_server = inputs.and_then(|inputs| inputs.answers.first()).map(|(server, _)| server.as_str());
        AdviceInputs {
            node: node::name(&self.node),
            vm,
            uuid: inputs.and_then(|inputs| inputs.uuid.as_ref()),
            zone: report.and_then(|report| report.zone.as_ref()),
            rivals: &self.rivals,
            server: vm.map(|vm| vm.server.as_str()).or(first_server),
        }
    }

    fn lookup_inputs(&self) -> Option<&LookupInputs> {
        self.report.as_ref()?.entry.as_ref()?.inputs.as_deref()
    }

    fn block_section(&self, advice: Option<&Advice>) -> Section {
        let mut section = Section::new("Reason for the block");
        let planned = self.planned_block();
        let reason = match (self.blocked(), planned, &self.preview) {
            (Some(blocked), planned, preview) => {
                section.add_finding("reason", format!("{}: {}", blocked.reason, full_message(&blocked.message)));
                match planned {
                    Some(planned) if planned.reason != blocked.reason => {
                        section.add("now", format!("{}: {}", planned.reason, full_message(&planned.message)));
                    }
                    None if preview.as_ref().is_some_and(|preview| preview.plan.is_some()) => {
                        section.add("now", "the reason is gone, and the Node waits for its next reconcile");
                    }
                    _ => {}
                }
                blocked.reason
            }
            (None, Some(planned), _) => {
                section.add_finding("reason", format!("{}: {}", planned.reason, full_message(&planned.message)));
                planned.reason
            }
            (None, None, _) if self.is_never_initialized() => {
                let text = "its kubelet does not run with --cloud-provider=external, or the taint was removed by hand";
                section.add_finding("reason", format!("{}: {text}", reason::NoProviderID));
                reason::NoProviderID
            }
            (None, None, _) => return section,
        };
        if let Some(Advice { actor, fix, .. }) = advice {
            section.add("who acts", *actor);
            section.add_some("fix", Some(fix.as_str()).filter(|fix| !fix.is_empty()));
        }
        section.add("page", format!("docs/reasons.md#{}", reason.as_str().to_lowercase()));
        section
    }

    fn vm_section(&self) -> Section {
        let Some(report) = &self.report else { return Section::new("VM") };
        if let Some(vm) = &report.vm {
            return vm_section("VM", vm);
        }
        let mut section = Section::new("VM");
        match &report.metadata {
            Presence::Exists(_) => {}
            Presence::Absent(proof) => section.add_finding("none", full_message(&proof.to_string())),
            // The message is in the first section already.
            Presence::Unknown(unknown) if self.reason() == Some(unknown.reason) => {
                section.add("none", format!("{}, as above", unknown.reason));
            }
            Presence::Unknown(unknown) => section.add("none", unknown_text(unknown)),
        }
        for vm in &report.matches {
            section.add("match", vm_title(vm));
            section.add("", guest_name(vm));
            section.add_some("", vm.path.as_deref().map(clipped));
        }
        let observation = report.entry.as_ref().and_then(|entry| entry.last_observation.as_ref());
        section.add_some("last seen", observation.map(|observation| location_text(&observation.location)));
        section
    }

    fn lookup_section(&self) -> Section {
        let mut section = Section::new("Look-up");
        let Some(report) = &self.report else { return section };
        if let (Some(vm), Presence::Exists(metadata)) = (&report.vm, &report.metadata) {
            let system_uuid = node::system_uuid(&self.node).parse::<BiosUuid>().ok();
            section.add("found by", found_by_text(metadata.found_by, system_uuid.as_ref(), vm.uuid.as_ref()));
        }
        let provider_id = node::provider_id(&self.node);
        section.add_some("provider ID", Some(clipped(provider_id)).filter(|id| !id.is_empty()));
        let system_uuid = node::system_uuid(&self.node);
        section.add_some("systemUUID", Some(clipped(system_uuid)).filter(|uuid| !uuid.is_empty()));
        let Some(inputs) = self.lookup_inputs() else { return section };
        let by_uuid = inputs.uuid.as_ref().map(|uuid| format!("by UUID {uuid}"));
        let by_name = inputs.asked_by_name.then(|| "by guest host name".to_owned());
        let keys: Vec<String> = by_uuid.into_iter().chain(by_name).collect();
        let age = self.decided_seconds_ago.map(|age| format!(", decided {} ago", duration(age))).unwrap_or_default();
        section.add("searched", format!("{}{age}", keys.join(" and ")));
        for (server, answer) in &inputs.answers {
            section.add("answer", format!("{server}: {}", answer_text(answer)));
        }
        section
    }

    fn address_section(&self) -> Section {
        let mut section = Section::new("Addresses");
        let Some(report) = &self.report else { return section };
        for decision in &report.addresses {
            let (label, text) = address_text(decision, &self.api_server, &self.sharers);
            section.add(&label, text);
        }
        section
    }

    fn zone_section(&self) -> Section {
        let mut section = Section::new("Zone");
        let Some(zone) = self.report.as_ref().and_then(|report| report.zone.as_ref()) else { return section };
        let ZoneReport { categories: Some(categories), found, .. } = zone else {
            section.add("", "zones are off: vsphere.conf has no tag categories");
            return section;
        };
        match found {
            Ok(None) => {}
            Ok(Some(FoundZone { zone, zone_object, region, region_object })) => {
                let of = |category: &str, object: &ObjectName| {
                    format!("tag of category {} on {}", quoted(category), object_text(object))
                };
                section.add("zone", format!("{zone}, {}", of(&categories.zone, zone_object)));
                section.add("region", format!("{region}, {}", of(&categories.region, region_object)));
            }
            Err(ZoneProblem::NoTags { chains }) => {
                for MissingTags { objects, categories } in chains {
                    let categories: Vec<String> = categories.iter().map(|category| quoted(category)).collect();
                    let objects: Vec<String> = objects.iter().map(checked_text).collect();
                    let text = format!("no tag of category {} on {}", categories.join(" and "), objects.join(", "));
                    section.add_finding("none", full_message(&text));
                }
            }
            Err(problem) => {
                section.add_finding("none", format!("{}: {}", problem.reason(), full_message(&problem.to_string())));
            }
        }
        section
    }

    fn write_section(&self) -> Section {
        let mut section = Section::new("Written next");
        let Some(preview) = &self.preview else { return section };
        let Some(plan) = &preview.plan else {
            section.add("", "nothing: another cloud provider has to initialize the Node");
            return section;
        };
        if plan.outcome == NextStep::Superseded {
            section.add("", "not known yet: the cache does not have the last write of this process");
            return section;
        }
        for action in &plan.actions {
            add_action(&mut section, action);
        }
        if preview.defers_record {
            section.add("later", "the new location of the VM, at most one Node a second");
        }
        if preview.defers_labels {
            section.add("later", "missing labels of --node-labels, at most ten Nodes a second");
        }
        if section.facts.is_empty() {
            section.add("", "nothing");
        }
        for difference in plan.differences.iter().flatten() {
            section.add("kept", format!("{}: {}", difference.reason, full_message(&difference.describe())));
        }
        section
    }

    fn next_section(&self, advice: Option<&Advice>) -> Section {
        let mut section = Section::new("Next attempt");
        if self.is_detached {
            section.add_some("waits for", advice.map(|advice| advice.awaits));
            section.add("reconcile", "not known: only the leader knows when it reconciles the Node again");
            return section;
        }
        if self.blocked().is_some() {
            section.add_some("waits for", advice.map(|advice| advice.awaits));
        }
        let Some(next) = self.next else { return section };
        let text = match next {
            NextAttempt::Running => "runs now".to_owned(),
            NextAttempt::Ready => "waits for a worker".to_owned(),
            NextAttempt::Later { seconds, failures: 0 } => format!("in {}", duration(seconds)),
            NextAttempt::Later { seconds, failures } => {
                let failures = usize::try_from(failures).unwrap_or(usize::MAX);
                format!("in {}, after {}", duration(seconds), count(failures, "failure"))
            }
            NextAttempt::WithEvent => "with the next change, or with the next periodic resync".to_owned(),
        };
        section.add("reconcile", text);
        section.add_some("poll of tags", self.tag_poll_in_seconds.map(|left| format!("in {}", duration(left))));
        section
    }
}

/// Returns the section about a VM.
pub(in crate::app::inquiries::explain) fn vm_section(title: &str, vm: &VmReport) -> Section {
    let mut section = Section::new(title);
    section.add("name", vm_title(vm));
    section.add_some("path", vm.path.as_deref().map(clipped));
    section.add_some("UUID", vm.uuid.as_ref().map(ToString::to_string));
    section.add_some("host", vm.host.as_ref().map(object_text));
    let tools = if vm.tools.is_empty() { "not reported".to_owned() } else { clipped(&vm.tools) };
    section.add("guest", format!("VMware Tools {tools}, {}", guest_name(vm)));
    if let Some(lag) = &vm.lag {
        section.add_finding("as of", lag_text(lag));
    }
    section
}

/// Returns the age of the data about a VM, and the reason why they are not current.
pub(in crate::app::inquiries::explain) fn lag_text(lag: &InventoryLag) -> String {
    let InventoryLag { age, failure } = lag;
    match age {
        Some(age) => format!("{} ago: {}", duration(age.as_secs()), full_message(failure)),
        None => full_message(failure),
    }
}

fn guest_name(vm: &VmReport) -> String {
    match vm.host_name.as_str() {
        "" => "no host name".to_owned(),
        name => format!("host name {}", quoted(name)),
    }
}

/// Returns the only item; `None` if there are several.
fn only<T>(items: &[T]) -> Option<&T> {
    match items {
        [only] => Some(only),
        [] | [_, ..] => None,
    }
}

/// Returns name, id, vCenter and state of a VM.
pub(in crate::app::inquiries::explain) fn vm_title(vm: &VmReport) -> String {
    let power = match vm.power_state {
        Some(PowerState::PoweredOn) => "powered on",
        Some(PowerState::PoweredOff) => "powered off",
        Some(PowerState::Suspended) => "suspended",
        None => "power state unknown",
    };
    let template = if vm.is_template { ", a template" } else { "" };
    let connection = vm.connection_state.as_deref().map(|state| format!(", {}", clipped(state))).unwrap_or_default();
    format!("{} ({}) on {}, {power}{connection}{template}", clipped(&vm.name), vm.key.id, vm.server)
}

/// Returns how a VM was found for a Node with this `systemUUID`.
pub(in crate::app::inquiries::explain) fn found_by_text(
    found_by: FoundBy,
    system_uuid: Option<&BiosUuid>,
    vm_uuid: Option<&BiosUuid>,
) -> String {
    let order = match (system_uuid, vm_uuid) {
        (Some(reported), Some(own)) if reported == own => ", in the byte order of vCenter",
        (Some(reported), Some(own)) if reported.is_same(own) => ", in the byte order of the guest",
        _ => "",
    };
    match found_by {
        FoundBy::ProviderId => "the provider ID of the Node".to_owned(),
        FoundBy::SystemUuid => format!("the systemUUID of the Node{order}, of no other VM"),
        FoundBy::SystemUuidAmongSeveral => {
            format!("the systemUUID of the Node{order}, which other VMs have or may have, too")
        }
        FoundBy::Name => "the name of the Node, which the guest has as host name".to_owned(),
    }
}

/// Returns label and text of the decision about an address.
pub(in crate::app::inquiries::explain) fn address_text(
    decision: &AddressDecision,
    api_server: &[IpAddr],
    sharers: &BTreeMap<IpAddr, Vec<String>>,
) -> (String, String) {
    let AddressDecision { text, network, outcome } = decision;
    let place = if network.is_empty() { String::new() } else { format!(" on {}", quoted(network)) };
    let (label, why) = match outcome {
        AddressOutcome::Chosen(picks) => {
            let mut types_by_rule: Vec<(String, String)> = Vec::new();
            for AddressPick { address, basis } in picks {
                let rule = basis_text(*basis, &address.type_);
                match types_by_rule.iter_mut().find(|(known, _)| *known == rule) {
                    Some((_, types)) => *types = format!("{types} and {}", address.type_),
                    None => types_by_rule.push((rule, address.type_.clone())),
                }
            }
            let parts: Vec<String> = types_by_rule.iter().map(|(rule, types)| format!("{types}, {rule}")).collect();
            ("chosen".to_owned(), parts.join("; "))
        }
        AddressOutcome::Demoted => ("gives way".to_owned(), demotion_text(text, api_server, sharers)),
        AddressOutcome::NotPreferred => {
            ("not taken".to_owned(), "the rules allow it, and another address comes first".to_owned())
        }
        AddressOutcome::Refused(why) => ("refused".to_owned(), full_message(why)),
    };
    (label, format!("{text}{place}: {why}"))
}

fn basis_text(basis: AddressBasis, type_: &str) -> String {
    let side = if type_ == INTERNAL_IP { "internal" } else { "external" };
    match basis {
        AddressBasis::ProvidedNodeIp => "the kubelet's --node-ip".to_owned(),
        AddressBasis::Cidr => format!("in {side}-network-subnet-cidr"),
        AddressBasis::NetworkName => format!("on {side}-vm-network-name"),
        AddressBasis::AnyAllowed => "usable, and no rule names an address".to_owned(),
        AddressBasis::Kept => "kept, because the guest reports none of this family".to_owned(),
    }
}

/// Returns the reason why an address may be virtual.
fn demotion_text(text: &str, api_server: &[IpAddr], sharers: &BTreeMap<IpAddr, Vec<String>>) -> String {
    let ip = text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let is_endpoint = api_server.iter().any(|endpoint| Some(endpoint.to_canonical()) == ip);
    let others = ip.and_then(|ip| sharers.get(&ip)).map(|names| listed(names));
    let why = match (is_endpoint, others) {
        (true, _) => "the API server is reached there".to_owned(),
        (false, Some(others)) => format!("the VMs of {others} report it, too"),
        (false, None) => "VMs of other Nodes report it, too".to_owned(),
    };
    format!("{why}, so it may be a virtual IP (--demote-virtual-ips)")
}

fn object_text(object: &ObjectName) -> String {
    let name = match (&object.path, object.name.as_str()) {
        (Some(path), _) if !path.is_empty() => clipped(path),
        (_, "") => return object.object.to_string(),
        (_, name) => clipped(name),
    };
    format!("{name} ({})", object.object.id())
}

/// Returns the name of an object, with its tags of the categories for zone and region.
fn checked_text(checked: &CheckedObject) -> String {
    let id = checked.object.id();
    let name = if checked.name.is_empty() { id } else { &checked.name };
    let tags: Vec<&str> = checked.tags.iter().map(|tag| tag.name.as_str()).collect();
    if tags.is_empty() { name.to_owned() } else { format!("{name} [{}]", tags.join(", ")) }
}

/// Returns the ids of a VM and of the objects at its last location.
fn location_text(location: &Location) -> String {
    let above = [("host", &location.host), ("folder", &location.folder), ("pool", &location.pool)];
    let known = above.iter().filter_map(|(kind, object)| Some(format!(", {kind} {}", object.as_ref()?.id())));
    format!("{}{} of the vCenter {}", location.vm, known.collect::<String>(), location.vcenter)
}

fn unknown_text(unknown: &Unknown) -> String {
    format!("{}: {}", unknown.reason, full_message(&unknown.message))
}

fn answer_text(answer: &SearchAnswer) -> String {
    let ids = |ids: &[Arc<str>]| listed(&ids.iter().map(|id| id.to_string()).collect::<Vec<_>>());
    match answer {
        SearchAnswer::Pending => "has not answered yet".to_owned(),
        SearchAnswer::Silent(why) => format!("does not answer: {}", full_message(why)),
        SearchAnswer::Denied(why) => format!("the account lacks a permission: {}", full_message(why)),
        SearchAnswer::Gone(id) => format!("no match; the last VM of the Node, {id}, does not exist"),
        SearchAnswer::Changed { id, uuid } => {
            format!("no match; the last VM of the Node, {id}, has the UUID {uuid}")
        }
        SearchAnswer::Elsewhere(found) => format!("no match; {} with the systemUUID of the Node", ids(found)),
        SearchAnswer::Matches { ids: found, .. } if found.is_empty() => "no match".to_owned(),
        SearchAnswer::Matches { query, ids: found } => {
            let key = match query {
                SearchKey::Uuid => "UUID",
                SearchKey::Name => "name",
            };
            format!("matches by {key}: {}", ids(found))
        }
    }
}

fn add_action(section: &mut Section, action: &NodeAction) {
    match action {
        NodeAction::WriteAddresses(addresses) => {
            for address in addresses {
                section.add("address", format!("{} {}", address.type_, clipped(&address.address)));
            }
        }
        NodeAction::Initialize { provider_id, metadata } => {
            section.add_some("provider ID", provider_id.as_deref().map(clipped));
            add_metadata(section, metadata);
            section.add("taint", format!("{TAINT_UNINITIALIZED} is removed, if present"));
        }
        NodeAction::SetMetadata(metadata) => add_metadata(section, metadata),
        NodeAction::SetCondition(condition) => {
            let reason = condition.reason.as_deref().unwrap_or_default();
            section.add("condition", format!("{}={} ({reason})", condition.type_, condition.status));
        }
    }
}

fn add_metadata(section: &mut Section, metadata: &Metadata) {
    for (key, value) in &metadata.labels {
        let text = match value {
            Some(value) => format!("{key}={value}"),
            None => format!("{key} is removed"),
        };
        section.add("label", clipped(&text));
    }
    for (key, value) in &metadata.annotations {
        section.add("annotation", clipped(&format!("{key}={value}")));
    }
    for key in &metadata.removed_annotations {
        section.add("annotation", format!("{key} is removed"));
    }
}

#[cfg(test)]
mod tests;
