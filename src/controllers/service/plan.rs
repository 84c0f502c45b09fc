//! Pure: observation of a Service → what to do about its load balancer, and the patches of the Service.
//!
//! Mirrors `syncService`, `syncLoadBalancerIfNeeded`, `addFinalizer`, `removeFinalizer` and `patchStatus` of
//! `controllers/service/controller.go`, and `LoadBalancerStatusEqual` of `service/helpers/helper.go`. Every patch
//! carries UID and resourceVersion.

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use serde_json::{Map, Value, json};

use super::inputs::Inputs;
use super::reason;
use crate::cloud::service::{self, FINALIZER, cache_filter};
use crate::cloud::{Handling, Reason};
use crate::controllers::FIELD_MANAGER;

/// The `ipMode` of an address whose traffic reaches the Nodes unchanged; the API server's default.
const VIP: &str = "VIP";

/// All inputs of a decision about a Service.
#[derive(Clone, Copy, Debug)]
pub struct ServiceObservation<'a> {
    /// The Service.
    pub service: &'a Service,
    /// Whether and how the provider handles the Service.
    pub handling: &'a Handling,
    /// The current inputs of its load balancer.
    pub inputs: &'a Inputs,
    /// The term's record of the Service.
    pub record: &'a ServiceRecord,
}

/// State of a Service within a leadership term. The state is empty before the first sync, so that sync calls the cloud.
#[derive(Clone, Debug, Default)]
pub struct ServiceRecord {
    /// The inputs of the last ensure.
    pub ensured: Option<Inputs>,
    /// The cloud's rejection of the Service, if any.
    pub rejection: Option<Rejection>,
}

/// The cloud rejected a Service as invalid. The cloud is not called again with these inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The rejected inputs.
    pub inputs: Inputs,
    /// The reason for metrics and Events.
    pub reason: Reason,
    /// The error, for users.
    pub message: String,
}

/// What to do about the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServicePlan {
    /// Nothing: there is no load balancer to create or delete, or it is up to date.
    LeaveAlone,
    /// Nothing until the Service changes.
    Hold {
        /// The reason for metrics and Events.
        reason: Reason,
        /// The error, for users.
        message: String,
    },
    /// Create or update the load balancer, then write its addresses.
    Ensure {
        /// Set the finalizer first.
        adds_finalizer: bool,
    },
    /// Delete the load balancer if the Service, read live, still [needs cleanup](service::needs_cleanup); then remove
    /// the finalizer and the addresses.
    Delete,
}

/// Decides what to do. Changed Nodes cause no ensure: one call updates them for all Services.
pub fn plan(observed: &ServiceObservation<'_>) -> ServicePlan {
    let ServiceObservation { service, handling, inputs, record } = *observed;
    if service::needs_cleanup(service) {
        return ServicePlan::Delete;
    }
    // The API server rejects a new finalizer on an object that is being deleted.
    if !service::wants_load_balancer(service) || service.metadata.deletion_timestamp.is_some() {
        return ServicePlan::LeaveAlone;
    }
    if let (Some(why), true) = (cache_filter::too_large(service), *handling != Handling::Declined) {
        return ServicePlan::Hold {
            reason: reason::LoadBalancerNotPossible,
            message: format!("the Service is too large: {why}"),
        };
    }
    match handling {
        Handling::Declined => return ServicePlan::LeaveAlone,
        Handling::Invalid { reason, message } => {
            return ServicePlan::Hold { reason: *reason, message: message.clone() };
        }
        Handling::Handled => {}
    }
    if let Some(Rejection { reason, message, .. }) =
        record.rejection.as_ref().filter(|rejection| rejection.inputs == *inputs)
    {
        return ServicePlan::Hold { reason: *reason, message: message.clone() };
    }
    let adds_finalizer = !service::has_finalizer(service);
    match record.ensured.as_ref() == Some(inputs) && !adds_finalizer {
        true => ServicePlan::LeaveAlone,
        false => ServicePlan::Ensure { adds_finalizer },
    }
}

/// Whether the finalizer may be removed after the cloud reported that nothing is left. Programs built on the same
/// library share the finalizer: it stays unless it is known to be ours.
///
/// `service` is read live, with `managedFields`; `had_objects` says whether this provider had objects of it.
pub fn may_release(service: &Service, handling: &Handling, had_objects: bool) -> bool {
    let is_ours = service::wants_load_balancer(service) && *handling != Handling::Declined;
    is_ours || had_objects || finalizer_managers(service).any(|manager| manager == FIELD_MANAGER)
}

/// The field managers of the finalizer.
fn finalizer_managers(service: &Service) -> impl Iterator<Item = &str> {
    let entry = format!("v:\"{FINALIZER}\"");
    service.metadata.managed_fields.iter().flatten().filter_map(move |fields| {
        let owned = fields.fields_v1.as_ref()?.0.get("f:metadata")?.get("f:finalizers")?;
        owned.get(&entry)?;
        fields.manager.as_deref()
    })
}

/// The patch that adds the finalizer.
pub fn finalizer_patch(service: &Service) -> Value {
    let mut metadata = preconditions(service);
    metadata.insert("finalizers".into(), json!([FINALIZER]));
    let others = finalizers(service);
    if !others.is_empty() {
        let order: Vec<&str> = others.into_iter().chain([FINALIZER]).collect();
        metadata.insert("$setElementOrder/finalizers".into(), json!(order));
    }
    json!({"metadata": metadata})
}

/// The patch that writes the addresses of the load balancer; `None` if the Service has them.
pub fn status_patch(service: &Service, ingress: &[LoadBalancerIngress]) -> Option<Value> {
    let is_same = is_equal(service::ingress(service), ingress);
    (!is_same).then(|| json!({"metadata": preconditions(service), "status": status(ingress)}))
}

/// The patch that removes both finalizer and addresses; `None` if there is neither.
pub fn release_patch(service: &Service) -> Option<Value> {
    let (has_finalizer, has_ingress) = (service::has_finalizer(service), !service::ingress(service).is_empty());
    if !has_finalizer && !has_ingress {
        return None;
    }
    let mut metadata = preconditions(service);
    let others: Vec<&str> = finalizers(service).into_iter().filter(|finalizer| *finalizer != FINALIZER).collect();
    match (has_finalizer, others.is_empty()) {
        (false, _) => {}
        (true, true) => drop(metadata.insert("finalizers".into(), Value::Null)),
        (true, false) => {
            metadata.insert("$deleteFromPrimitiveList/finalizers".into(), json!([FINALIZER]));
            metadata.insert("$setElementOrder/finalizers".into(), json!(others));
        }
    }
    let mut patch = Map::from_iter([("metadata".to_owned(), Value::Object(metadata))]);
    if has_ingress {
        patch.insert("status".into(), status(&[]));
    }
    Some(Value::Object(patch))
}

fn status(ingress: &[LoadBalancerIngress]) -> Value {
    json!({"loadBalancer": {"ingress": if ingress.is_empty() { Value::Null } else { json!(ingress) }}})
}

fn preconditions(service: &Service) -> Map<String, Value> {
    let metadata = &service.metadata;
    [("uid", &metadata.uid), ("resourceVersion", &metadata.resource_version)]
        .map(|(field, value)| (field.to_owned(), json!(value)))
        .into_iter()
        .collect()
}

fn finalizers(service: &Service) -> Vec<&str> {
    service.metadata.finalizers.iter().flatten().map(String::as_str).collect()
}

/// Whether both are equal: the order matters, and an address without `ipMode` has the API server's default.
fn is_equal(have: &[LoadBalancerIngress], wanted: &[LoadBalancerIngress]) -> bool {
    let defaulted = |ingress: &LoadBalancerIngress| {
        let mut ingress = ingress.clone();
        if ingress.ip.is_some() && ingress.ip_mode.is_none() {
            ingress.ip_mode = Some(VIP.to_owned());
        }
        ingress
    };
    have.iter().map(defaulted).eq(wanted.iter().map(defaulted))
}
