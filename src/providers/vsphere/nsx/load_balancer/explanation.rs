//! What is known of the load balancers of one Service, for commands. Reads the cache, and plans as a sync does. Changes
//! nothing, and sends nothing to NSX.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};

use super::NsxLoadBalancers;
use super::cleanup::named;
use super::layout::ObjectKind;
use super::ownership::ObjectOwner;
use super::resource::Resource;
use super::resource_cache::{LastStep, ListStatus};
use super::service_call::{PlannedStep, ServiceCall};
use super::service_request::{self, Features};
use crate::base::error_chain::chain;
use crate::cloud::Reason;

/// The call whose first step is explained.
#[derive(Clone, Copy, Debug)]
pub enum CallPurpose<'a> {
    /// Ensures the load balancers with these Nodes.
    Sync(&'a [Arc<Node>]),
    /// Deletes the load balancers.
    Deletion,
}

/// What is known of the load balancers of one Service.
#[derive(Clone, Debug, Default)]
pub struct LoadBalancerFacts {
    /// What the Service asks for.
    pub request: RequestFacts,
    /// The state of the lists of NSX's objects.
    pub list: ListStatus,
    /// Whether the UID of this cluster is known. If not, objects of another cluster of the same name may be ambiguous.
    pub knows_cluster_uid: bool,
    /// The objects and the plan; `None` before the first list of a term of leadership.
    pub state: Option<ObjectState>,
    /// The last planned step of a call in this term.
    pub last_step: Option<LastStep>,
    /// Remarks about the load balancers, as in Events.
    pub remarks: Vec<(Reason, String)>,
    /// Whether a call for the Service waits for a list.
    pub waits_for_list: bool,
    /// Whether a call for the Service runs.
    pub is_in_flight: bool,
}

/// What a Service asks for.
#[derive(Clone, Debug, Default)]
pub struct RequestFacts {
    /// The class.
    pub class: String,
    /// The ports with their node ports, such as `TCP/80 to node port 30080`.
    pub ports: Vec<String>,
    /// The address families, in the order of the Service.
    pub families: Vec<&'static str>,
    /// The features of the load balancer of the first family; `None` if they are refused.
    pub features: Option<Features>,
    /// The networks that may use the load balancer; empty if every client may.
    pub source_ranges: Vec<String>,
    /// The requested address.
    pub address: Option<IpAddr>,
    /// Whether `spec.loadBalancerIP` has no effect.
    pub ignores_address: bool,
    /// The parts of the request that are refused, with reason and message.
    pub refusals: Vec<(Reason, String)>,
}

/// The objects in NSX that name a Service, and what a call would do with them.
#[derive(Clone, Debug)]
pub struct ObjectState {
    /// The path of the load balancer service in use, if there is one.
    ///
    /// # Errors
    /// The message that the configured load balancer service is unusable.
    pub lb_service: Result<Option<String>, String>,
    /// The objects, each after the objects that refer to it.
    pub objects: Vec<ObjectFacts>,
    /// The first step of the next call.
    ///
    /// # Errors
    /// Reason and message of the refusal with which the call would end before its plan.
    pub next: Result<PlannedStep, (Reason, String)>,
}

/// One object in NSX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// The kind, such as `virtual server`.
    pub kind: &'static str,
    /// The path.
    pub path: String,
    /// The port, from its tag.
    pub port: Option<String>,
    /// The address of a virtual server or an allocation, if known.
    pub address: Option<IpAddr>,
    /// Number of members of a pool.
    pub members: Option<usize>,
    /// The owner.
    pub owner: ObjectOwner,
}

impl From<(Resource, ObjectOwner)> for ObjectFacts {
    fn from((resource, owner): (Resource, ObjectOwner)) -> Self {
        Self {
            kind: resource.kind.name(),
            path: resource.tags.path.to_string(),
            port: resource.tags.port.map(|port| port.to_string()),
            address: resource.address,
            members: (resource.kind == ObjectKind::Pool).then_some(resource.spec.members.len()),
            owner,
        }
    }
}

impl NsxLoadBalancers {
    /// Returns what is known of the load balancers of a Service, and the first step of the next call for it.
    pub fn explain(&self, service: &Service, purpose: CallPurpose<'_>) -> LoadBalancerFacts {
        let uid = self.uid.known();
        let knows_cluster_uid = uid.is_some();
        let call = ServiceCall::new(self, service, self.layout(uid));
        let list = self.resources.list_status();
        let (waits_for_list, is_in_flight) = self.resources.is_waiting(&call.key);
        LoadBalancerFacts {
            request: self.request(service),
            state: list.last.map(|_| object_state(&call, purpose)),
            list,
            knows_cluster_uid,
            last_step: self.resources.last_step(&call.key),
            remarks: self.resources.messages(&call.key),
            waits_for_list,
            is_in_flight,
        }
    }

    /// As [`Self::explain`], for the deletion of what is left of a Service (`namespace/name`) that does not exist.
    pub fn explain_remainder(&self, key: &str) -> LoadBalancerFacts {
        self.explain(&named(key), CallPurpose::Deletion)
    }

    /// Whether objects in NSX name this Service (`namespace/name`); `None` before the first list of a term.
    pub fn has_objects(&self, key: &str) -> Option<bool> {
        self.resources.list_status().last.map(|_| !self.resources.of_service(key).is_empty())
    }

    fn request(&self, service: &Service) -> RequestFacts {
        let ports = service_request::ports_of(service).unwrap_or_default();
        let families = service_request::families_of(service);
        let features: Vec<Features> = families
            .iter()
            .filter_map(|family| service_request::features_of(service, self.rules, *family).ok())
            .collect();
        let networks = features.iter().filter_map(|features| features.source_ranges.as_ref());
        let mut source_ranges: Vec<String> =
            networks.flat_map(|ranges| ranges.networks()).map(ToString::to_string).collect();
        source_ranges.sort();
        source_ranges.dedup();
        RequestFacts {
            class: service_request::class_of(service).to_owned(),
            ports: ports.into_iter().map(|(port, node_port)| format!("{port} to node port {node_port}")).collect(),
            families: families.into_iter().map(|family| family.as_str()).collect(),
            source_ranges,
            address: features.iter().find_map(|features| features.address),
            features: features.into_iter().next(),
            ignores_address: self.rules.ignores_address,
            refusals: service_request::refusals(service, &self.config, self.rules),
        }
    }
}

fn object_state(call: &ServiceCall<'_>, purpose: CallPurpose<'_>) -> ObjectState {
    let next = match purpose {
        CallPurpose::Sync(nodes) => {
            let members = |family| call.provider.node_addresses.preview(nodes, family);
            call.preview_of_sync(&members)
        }
        CallPurpose::Deletion => call.preview_of_deletion(),
    };
    let next = next.map_err(|error| (error.reason(), chain(&error)));
    ObjectState {
        lb_service: call.lb_service().map(|found| found.map(|lb_service| lb_service.tags.path.to_string())),
        objects: call.owners().into_iter().map(ObjectFacts::from).collect(),
        next,
    }
}
