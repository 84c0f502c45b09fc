//! `explain service NAMESPACE/NAME`: what a Service asks for, what NSX has for it, and what happens next.

mod remedies;
mod sections;
mod summary;

use super::Explanation;
use super::outside_text::clipped;
use crate::app::inquiries::{DetachedSettings, Inquiries};
use crate::app::reports::explain::nearest;
use crate::app::reports::text::duration;
use crate::cloud::service;
use crate::controllers::service::explanation::{ServiceFacts, first_decision};
use crate::controllers::service::node_set::is_target;
use crate::controllers::service::plan::ServicePlan;
use crate::providers::vsphere::nsx::load_balancer::explanation::{CallPurpose, LoadBalancerFacts};
use crate::providers::vsphere::nsx::load_balancer::{NsxLoadBalancers, PlannedStep};
use k8s_openapi::api::core::v1::Service;
use std::sync::Arc;
use tokio::time::Instant;

/// What the process knows of one Service.
struct BalancedService {
    /// Namespace and name.
    key: String,
    /// The cached Service.
    service: Option<Arc<Service>>,
    /// Similar names, if the cache does not have the Service.
    similar: Vec<String>,
    term: TermFacts,
    /// What the provider knows; `None` if it has no load balancers.
    balancer: Option<LoadBalancerFacts>,
    /// Host and port of NSX, for commands.
    nsx: Option<String>,
    /// Whether the command runs without a process: the facts of the term are those of a new leader.
    is_detached: bool,
    /// Time of the explanation.
    now: Instant,
}

/// What the service controller knows.
enum TermFacts {
    /// The controller works, and knows this of the Service.
    Current(Box<ServiceFacts>),
    /// The service controller does not run in this process.
    NoController,
    /// This process does not lead.
    Standby,
    /// The provider has no load balancers.
    NotConfigured,
    /// The controller has not begun to work yet.
    NotBegun,
    /// A command without a daemon could not read the Services.
    Unread,
}

/// Explains the Service with this namespace and name.
///
/// # Errors
/// The names of the Services that the process knows.
pub(super) fn explain(process: &Inquiries, key: &str) -> Result<Explanation, Vec<String>> {
    let cached = process.services.as_ref().and_then(|services| services.get(key));
    let balancers = process.vsphere.load_balancers();
    let mut term = match &process.detached {
        Some(settings) => first_facts(process, settings, cached.as_ref(), balancers.as_deref()),
        None => term_facts(process, key, balancers.is_some()),
    };
    let keys = || process.services.as_ref().map(|services| services.keys()).unwrap_or_default();
    let has_record = matches!(&term, TermFacts::Current(facts) if facts.has_record);
    let has_objects = balancers.as_ref().and_then(|balancers| balancers.has_objects(key));
    let is_cache_filled = process.services.as_ref().is_some_and(|services| services.is_ready());
    // Without a list of NSX, a Service that the cache does not have may still have a load balancer.
    if cached.is_none() && !has_record && has_objects == Some(false) && is_cache_filled {
        return Err(keys());
    }
    let balancer = balancers.as_deref().map(|balancers| of_provider(balancers, key, cached.as_deref(), &term));
    if let (TermFacts::Current(facts), Some(balancer), true) = (&mut term, &balancer, process.detached.is_some()) {
        settle(facts, balancer);
    }
    let similar = if cached.is_none() { nearest(key, keys()) } else { Vec::new() };
    let nsx = process.vsphere.nsx_report().map(|report| report.server);
    let known = BalancedService {
        key: key.to_owned(),
        service: cached,
        similar,
        term,
        balancer,
        nsx,
        is_detached: process.detached.is_some(),
        now: Instant::now(),
    };
    Ok(explanation(&known))
}

fn term_facts(process: &Inquiries, key: &str, has_load_balancers: bool) -> TermFacts {
    let Some(terms) = &process.terms.service else { return TermFacts::NoController };
    match terms.get() {
        Some(term) => TermFacts::Current(Box::new(term.explain(key))),
        None if !process.leadership.is_leader() => TermFacts::Standby,
        None if !has_load_balancers => TermFacts::NotConfigured,
        None => TermFacts::NotBegun,
    }
}

/// Returns what a new leader's controller would know of the Service.
fn first_facts(
    process: &Inquiries,
    settings: &DetachedSettings,
    cached: Option<&Arc<Service>>,
    balancers: Option<&NsxLoadBalancers>,
) -> TermFacts {
    if !settings.plan.has_service_controller() {
        return TermFacts::NoController;
    }
    let Some(balancers) = balancers else { return TermFacts::NotConfigured };
    if !process.services.as_ref().is_some_and(|services| services.is_ready()) || !process.nodes.is_ready() {
        return TermFacts::Unread;
    }
    let mut facts = cached.map(|service| first_decision(Arc::clone(service), balancers)).unwrap_or_default();
    facts.nodes.targets = process.nodes.list().filter(|node| is_target(node)).collect();
    TermFacts::Current(Box::new(facts))
}

/// A new leader ensures each load balancer once. If nothing is left to do, that changes nothing.
fn settle(facts: &mut ServiceFacts, balancer: &LoadBalancerFacts) {
    let Some(service) = facts.service.as_deref() else { return };
    let next = balancer.state.as_ref().map(|state| &state.next);
    let Some(Ok(PlannedStep { step: None, addresses, .. })) = next else { return };
    let planned: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let is_ensured = facts.plan == Some(ServicePlan::Ensure { adds_finalizer: false });
    if is_ensured && planned == summary::addresses(service) {
        facts.plan = Some(ServicePlan::LeaveAlone);
    }
}

fn of_provider(
    balancers: &NsxLoadBalancers,
    key: &str,
    cached: Option<&Service>,
    term: &TermFacts,
) -> LoadBalancerFacts {
    let Some(cached) = cached else { return balancers.explain_remainder(key) };
    match term {
        TermFacts::Current(facts)
            if facts.plan != Some(ServicePlan::Delete) && service::wants_load_balancer(cached) =>
        {
            balancers.explain(cached, CallPurpose::Sync(&facts.nodes.targets))
        }
        _ => balancers.explain(cached, CallPurpose::Deletion),
    }
}

fn explanation(known: &BalancedService) -> Explanation {
    let summary::Summary { state, text, reason } = summary::of(known);
    let mut sections = vec![remedies::section(known, reason)];
    sections.extend(sections::all(known));
    Explanation { subject: format!("Service {}", clipped(&known.key)), summary: text, state, sections }
}

impl BalancedService {
    /// Returns the time since `time`.
    fn age(&self, time: Instant) -> String {
        duration(self.now.saturating_duration_since(time).as_secs())
    }
}

#[cfg(test)]
mod tests;
