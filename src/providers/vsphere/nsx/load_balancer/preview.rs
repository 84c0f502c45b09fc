//! What calls for all Services would do next, for the command `plan`. Reads the cache, and plans as calls do. Changes
//! nothing, and sends nothing to NSX.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Service};

use super::NsxLoadBalancers;
use super::cleanup::named;
use super::members::Member;
use super::orphans::Policy;
use super::service_call::{PlannedStep, ServiceCall};
use crate::base::error_chain::chain;
use crate::cloud::Reason;
use crate::providers::vsphere::config::address_rules::IpFamily;

/// The pool members of one list of Nodes, by family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetMembers {
    ipv4: Vec<Member>,
    ipv6: Vec<Member>,
}

impl TargetMembers {
    fn of(&self, family: IpFamily) -> &[Member] {
        match family {
            IpFamily::V4 => &self.ipv4,
            IpFamily::V6 => &self.ipv6,
        }
    }
}

/// The call whose first step is planned.
#[derive(Clone, Copy, Debug)]
pub enum StepPurpose<'a> {
    /// Ensures the load balancers with these members.
    Sync(&'a TargetMembers),
    /// Deletes the load balancers.
    Deletion,
}

/// The first step of a call.
///
/// # Errors
/// Reason and message of the refusal with which the call would end before its plan.
pub type FirstStep = Result<PlannedStep, (Reason, String)>;

/// A Service with objects of this cluster in NSX that the informer cache does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanPreview {
    /// Namespace and name of the Service.
    pub service: String,
    /// Whether two lists and a live read have confirmed that no Service needs the objects.
    pub is_confirmed: bool,
    /// Whether deletions pause, because many orphans were found at once.
    pub is_paused: bool,
    /// `--nsx-orphans`
    pub policy: Policy,
    /// The first step of the deletion.
    pub step: FirstStep,
}

impl NsxLoadBalancers {
    /// Returns the pool members of these Nodes.
    pub fn target_members(&self, nodes: &[Arc<Node>]) -> TargetMembers {
        let members = |family| self.node_addresses.preview(nodes, family);
        TargetMembers { ipv4: members(IpFamily::V4), ipv6: members(IpFamily::V6) }
    }

    /// Whether the objects in NSX are listed.
    pub fn is_listed(&self) -> bool {
        self.resources.list_status().last.is_some()
    }

    /// Returns the first step of the next call for a Service; `None` before the first list of a term.
    pub fn first_step(&self, service: &Service, purpose: StepPurpose<'_>) -> Option<FirstStep> {
        if !self.is_listed() {
            return None;
        }
        let call = ServiceCall::new(self, service, self.layout(self.uid.known()));
        Some(match purpose {
            StepPurpose::Sync(members) => call
                .preview_of_sync(&|family| members.of(family).to_vec())
                .map_err(|error| (error.reason(), chain(&error))),
            StepPurpose::Deletion => call.preview_of_deletion().map_err(|error| (error.reason(), chain(&error))),
        })
    }

    /// As [`Self::first_step`], for the deletion of what is left of a Service (`namespace/name`) that does not exist.
    pub fn first_step_of_remainder(&self, key: &str) -> Option<FirstStep> {
        self.first_step(&named(key), StepPurpose::Deletion)
    }

    /// Returns the Services (`namespace/name`) that objects name and the informer cache does not have, according to the
    /// last list.
    pub fn remainders(&self) -> Vec<String> {
        let remainders = self.resources.not_here(&|service| self.nodes.has_service(service));
        remainders.into_iter().map(|(service, _)| service.to_string()).collect()
    }

    /// Returns the Services whose load balancers are, or may be, orphaned, according to the last list; ordered by name.
    /// Without the UID of the cluster, nothing is an orphan.
    pub fn orphan_previews(&self) -> Vec<OrphanPreview> {
        let policy = self.cleanup.policy();
        let Some(uid) = self.uid.known().filter(|_| policy != Policy::Off) else { return Vec::new() };
        let (suspects, _) = self.resources.suspects(&uid, &|service| self.nodes.has_service(service));
        let is_paused = self.cleanup.is_paused();
        let preview = |service: Box<str>| {
            let step = self.first_step_of_remainder(&service)?;
            let is_confirmed = self.cleanup.is_confirmed(&service);
            Some(OrphanPreview { service: service.into(), is_confirmed, is_paused, policy, step })
        };
        suspects.into_iter().filter_map(preview).collect()
    }
}
