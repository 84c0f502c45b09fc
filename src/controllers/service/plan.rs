//! Pure: decides what to do about the load balancer of a Service, and builds the patches of the Service.
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
use crate::controllers::{FIELD_MANAGER, preconditions};

/// The default `ipMode` of the API server: the traffic reaches the Nodes unchanged.
const VIP: &str = "VIP";

/// State of a Service within a leadership term. The state is empty before the first sync, so the first sync calls the
/// cloud.
#[derive(Clone, Debug, Default)]
pub struct ServiceRecord {
    /// The inputs of the last successful ensure; `None` if the cloud may differ from these inputs.
    pub ensured: Option<Inputs>,
    /// The cloud's rejection of the Service, if any.
    pub rejection: Option<Rejection>,
}

/// The cloud's rejection of a Service as invalid. The cloud is not called again with the rejected inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The rejected inputs.
    pub inputs: Inputs,
    /// The reason for metrics and Events.
    pub reason: Reason,
    /// The error message for users.
    pub message: String,
}

/// The action for the load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServicePlan {
    /// No action: the Service needs no load balancer of this program, or the load balancer is up to date.
    LeaveAlone,
    /// No action until the Service changes.
    Hold {
        /// The reason for metrics and Events.
        reason: Reason,
        /// The error message for users.
        message: String,
    },
    /// Create or update the load balancer, then write its addresses.
    Ensure {
        /// Whether to set the finalizer first.
        adds_finalizer: bool,
    },
    /// Delete the load balancer, then remove the finalizer and the addresses. Before that, a live read must confirm
    /// that the Service still [needs cleanup](service::needs_cleanup).
    Delete,
}

/// Decides what to do about a Service with these current inputs of its load balancer. `handling` is the provider's
/// decision. Changed Nodes cause no ensure, because a round of node updates sets them for all Services.
pub fn plan(service: &Service, handling: &Handling, inputs: &Inputs, record: &ServiceRecord) -> ServicePlan {
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

/// Whether the finalizer may be removed after the cloud reported that no objects are left. Programs built on the same
/// library use the same finalizer, so the finalizer stays unless it is proven to be ours.
///
/// `service` must be read live, with `managedFields`. `had_objects` is true if this provider has or had objects of the
/// Service.
pub fn may_release(service: &Service, handling: &Handling, had_objects: bool) -> bool {
    let is_ours = service::wants_load_balancer(service) && *handling != Handling::Declined;
    is_ours || had_objects || finalizer_managers(service).any(|manager| manager == FIELD_MANAGER)
}

fn finalizer_managers(service: &Service) -> impl Iterator<Item = &str> {
    let entry = format!("v:\"{FINALIZER}\"");
    service.metadata.managed_fields.iter().flatten().filter_map(move |fields| {
        let owned = fields.fields_v1.as_ref()?.0.get("f:metadata")?.get("f:finalizers")?;
        owned.get(&entry)?;
        fields.manager.as_deref()
    })
}

/// Builds the patch that adds the finalizer.
pub fn finalizer_patch(service: &Service) -> Value {
    let mut metadata = preconditions(&service.metadata);
    metadata.insert("finalizers".into(), json!([FINALIZER]));
    let others = finalizers(service);
    if !others.is_empty() {
        let order: Vec<&str> = others.into_iter().chain([FINALIZER]).collect();
        metadata.insert("$setElementOrder/finalizers".into(), json!(order));
    }
    json!({"metadata": metadata})
}

/// Builds the patch that writes the addresses of the load balancer. Returns `None` if the addresses are unchanged.
pub fn status_patch(service: &Service, ingress: &[LoadBalancerIngress]) -> Option<Value> {
    let is_same = is_equal(service::ingress(service), ingress);
    (!is_same).then(|| json!({"metadata": preconditions(&service.metadata), "status": status(ingress)}))
}

/// Builds the patch that removes the finalizer and the addresses. Returns `None` if the Service has neither.
pub fn release_patch(service: &Service) -> Option<Value> {
    let (has_finalizer, has_ingress) = (service::has_finalizer(service), !service::ingress(service).is_empty());
    if !has_finalizer && !has_ingress {
        return None;
    }
    let mut metadata = preconditions(&service.metadata);
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

fn finalizers(service: &Service) -> Vec<&str> {
    service.metadata.finalizers.iter().flatten().map(String::as_str).collect()
}

/// Whether both lists are equal, including the order. An address without `ipMode` has the default of the API server.
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
