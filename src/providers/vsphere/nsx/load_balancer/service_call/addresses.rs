//! Reserves the address of a load balancer, and reports addresses that another client has edited or released.

use std::net::IpAddr;

use tracing::info;

use super::steps::{EnsureProgress, has_no_address};
use super::{CallObservation, FamilyTarget, ServiceCall};
use crate::base::error_chain::chain;
use crate::cloud::Error;
use crate::providers::vsphere::nsx::load_balancer::address_unavailable;
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::ownership::ClassifiedResources;
use crate::providers::vsphere::nsx::load_balancer::plan::{self, Action, AllocationRequest};
use crate::providers::vsphere::nsx::load_balancer::resource::{LoadBalancerSpec, Resource};
use crate::providers::vsphere::reason;

impl ServiceCall<'_> {
    /// Reads the address of the next allocation that may belong to the Service. Returns false if no read is needed.
    pub(super) async fn read_next(&mut self, observation: &CallObservation) -> Result<bool, Error> {
        let (allocations, is_open) = self.open_allocations(observation);
        self.read_one(allocations, is_open && self.lacks_address(observation)).await
    }

    /// Returns the unresolved allocations whose addresses a sync reads before its plan, and whether the Service may have
    /// one of these addresses.
    pub(super) fn open_allocations<'o>(&self, observation: &'o CallObservation) -> (&'o [Resource], bool) {
        let ClassifiedResources { owned: ours, unresolved, .. } = &observation.classified;
        // An unresolved allocation may have the address of the Service. A second allocation would be surplus.
        let has_server = |one: &Resource| ours.servers().any(|server| server.tags.secondary == one.tags.secondary);
        // The address of a virtual server shows which allocation is ours, unless another client may have edited that
        // address.
        let is_open = unresolved.iter().any(|one| !has_server(one) || plan::is_doubtful(&self.ingress, ours));
        let is_read = is_open || ours.has(ObjectKind::Allocation);
        (if is_read { unresolved.as_slice() } else { &[] }, is_open)
    }

    /// Performs a step. Claims the address of [`AllocationRequest::Rather`] or [`Action::Reserve`] before the
    /// reservation, and sets an Event for a restored address.
    pub(super) async fn make(
        &self,
        target: &FamilyTarget<'_>,
        step: &Action<'_>,
        progress: &mut EnsureProgress,
    ) -> Result<(), Error> {
        match step {
            Action::Allocate(AllocationRequest::Rather(address)) => self.allocate_rather(target, *address).await,
            Action::Reserve(server) => self.reserve(target, step, server, progress).await,
            Action::Update { resource, desired } => {
                self.perform(target, step).await?;
                if let Some(address) = desired.address.filter(|_| resource.address != desired.address) {
                    self.remark_set_back(resource, address);
                }
                Ok(())
            }
            _ => self.perform(target, step).await,
        }
    }

    /// Claims the requested address, and checks that it can be reserved, if the Service requests one and the load
    /// balancer has none.
    pub(super) async fn claim_requested_address(&self, target: &FamilyTarget<'_>) -> Result<(), Error> {
        let address = target.desired.features.address.filter(|_| has_no_address(target));
        let Some((address, spec)) = address.zip(target.spec.as_ref()) else { return Ok(()) };
        if let Some(namespace) = self.cache().reserved_for(&self.key, address) {
            let reason = format!(
                "a Service of the namespace {namespace} released it less than 10 minutes ago, and until then only Services of \
                 that namespace get it by spec.loadBalancerIP"
            );
            return Err(unavailable(&spec.address_pool, address, &reason));
        }
        self.claim_address(target, spec, address).await
    }

    async fn claim_address(
        &self,
        target: &FamilyTarget<'_>,
        spec: &LoadBalancerSpec,
        address: IpAddr,
    ) -> Result<(), Error> {
        // The claim comes first: after another claim ends, the check finds the reservation of that Service.
        let is_new = self.cache().claim_address(&self.key, address).map_err(|other| {
            let reason = format!("the Service {other} requests it, too; give one of them another spec.loadBalancerIP");
            unavailable(&spec.address_pool, address, &reason)
        })?;
        let checked = self.check_is_free(target, spec, address).await;
        // The call goes on without the address, which another Service may then request.
        if is_new && checked.is_err() {
            self.cache().unclaim_address(&self.key, address);
        }
        checked
    }

    async fn check_is_free(
        &self,
        target: &FamilyTarget<'_>,
        spec: &LoadBalancerSpec,
        address: IpAddr,
    ) -> Result<(), Error> {
        let (request, pool) = (self.request(&target.layout, Some(spec))?, spec.address_pool.as_str());
        // NSX may assign an address twice, and lists do not show the addresses of all allocations.
        if let Some(other) = self.cache().read(|index| index.user_of(&self.key, address)) {
            return Err(unavailable(pool, address, &format!("it is in use by the Service {other}")));
        }
        self.provider.backend.check_address(&request, pool, address).await
    }

    /// Reserves the reported address, which clients use. If that is impossible, reserves another address.
    async fn allocate_rather(&self, target: &FamilyTarget<'_>, address: IpAddr) -> Result<(), Error> {
        let only = Action::Allocate(AllocationRequest::Only(address));
        match self.allocate_only(target, &only, address).await {
            Err(error) if is_denied(&error) => {
                info!(service = self.key, "takes another address than {address}, which it reports: {}", chain(&error));
                self.perform(target, &Action::Allocate(AllocationRequest::Any)).await
            }
            other => other,
        }
    }

    async fn allocate_only(&self, target: &FamilyTarget<'_>, step: &Action<'_>, address: IpAddr) -> Result<(), Error> {
        if let Some(spec) = &target.spec {
            self.claim_address(target, spec, address).await?;
        }
        self.perform(target, step).await
    }

    /// Reserves the address of a virtual server. If the reservation is impossible, the Service is still served.
    async fn reserve(
        &self,
        target: &FamilyTarget<'_>,
        step: &Action<'_>,
        server: &Resource,
        progress: &mut EnsureProgress,
    ) -> Result<(), Error> {
        let address = address_of(server)?;
        let pool = target.spec.as_ref().map(|spec| spec.address_pool.as_str()).unwrap_or_default();
        // The allocation may exist already, in an unlistable IP pool.
        let may_be_there = self.cache().unlistable_ip_pool_error(|id| id == pool).is_some();
        if !may_be_there {
            self.check_twice()?;
        }
        self.settled_paths.lock().insert(server.tags.path.clone());
        if may_be_there {
            return Ok(());
        }
        match self.allocate_only(target, step, address).await {
            Err(error) if is_denied(&error) => {
                progress.unreserved.push(format!(
                    "the address {address} of the load balancer is not reserved in NSX, and cannot be: {}. NSX may give it to \
                     another load balancer",
                    chain(&error)
                ));
                Ok(())
            }
            other => other,
        }
    }

    pub(super) fn remark_addresses(&self, targets: &[FamilyTarget<'_>], unreserved: &[String]) {
        let unreserved = (!unreserved.is_empty()).then(|| unreserved.join("; "));
        self.cache().set_event(&self.key, reason::AddressNotReserved, unreserved);
        let mut edited = Vec::new();
        for target in targets.iter().filter(|target| target.balancer.is_wanted) {
            let Some(address) = target.address() else { continue };
            for server in plan::edited(&target.desired, &target.current()) {
                edited.push(format!("{} has {}, and {address} is reserved", server.tags.path, text_of(server)));
            }
        }
        let message = (!edited.is_empty()).then(|| {
            format!(
                "the address of a virtual server was changed by another client: {}. The Service reports the reserved address. Set \
                 ip_address back in NSX; for load balancers that the Go program made, --nsx-adopt=full does it",
                edited.join("; ")
            )
        });
        self.cache().set_event(&self.key, reason::LoadBalancerAddressEdited, message);
    }

    fn remark_set_back(&self, server: &Resource, address: IpAddr) {
        let message = format!(
            "the address of the virtual server {} was changed to {} by another client, and is set back to {address}",
            server.tags.path,
            text_of(server)
        );
        self.cache().remark_event(&self.key, reason::LoadBalancerAddressSetBack, message);
    }
}

/// Returns the address of a virtual server that is to be reserved.
fn address_of(server: &Resource) -> Result<IpAddr, Error> {
    let lacks_one = || format!("reserve the address of {}: the virtual server has no address", server.tags.path);
    server.address.ok_or_else(|| Error::other(lacks_one()))
}

fn text_of(server: &Resource) -> String {
    server.address.map_or_else(|| "no address".to_owned(), |address| address.to_string())
}

/// Whether the error means that this address is not available, so that a quick retry is useless.
fn is_denied(error: &Error) -> bool {
    let denials =
        [reason::AddressUnavailable, reason::NSXRefused, reason::NSXNoPermission, reason::LoadBalancerConfigWrong];
    denials.contains(&error.reason())
}

fn unavailable(pool: &str, address: IpAddr, reason: &str) -> Error {
    address_unavailable(format!("reserve the address {address} of the pool {pool}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_server_without_an_address_is_named() {
        let mut server = Resource::new(ObjectKind::VirtualServer, None);
        server.tags.path = "/infra/lb-virtual-servers/v".into();
        let error = address_of(&server).unwrap_err().to_string();
        assert_eq!(error, "reserve the address of /infra/lb-virtual-servers/v: the virtual server has no address");
        server.address = "192.0.2.5".parse().ok();
        assert_eq!(address_of(&server).ok(), server.address);
    }
}
