//! Compares the first step of each call with the step that was announced before the call: `explain` and `plan` agree
//! with what the program then does. The worlds of all tests of load balancers make this comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use ccm::clients::nsx::Object;
use ccm::clients::nsx::realization::{Reservation, RevisionStatus};
use ccm::cloud::{Error, LeaderToken};
use ccm::providers::vsphere::nsx::load_balancer::NsxLoadBalancers;
use ccm::providers::vsphere::nsx::load_balancer::backend::{
    Backend, ConfiguredObject, Each, IpFamily, NsxBackend, PoolUpdate, Record, Request, Scope, ScopeNames, Suitability,
    Usage,
};
use ccm::providers::vsphere::nsx::load_balancer::explanation::CallPurpose;
use ccm::providers::vsphere::nsx::load_balancer::layout::{ClusterLayout, ObjectKind};
use ccm::providers::vsphere::nsx::load_balancer::plan::Action;
use ccm::providers::vsphere::nsx::load_balancer::preview::StepPurpose;
use ccm::providers::vsphere::nsx::load_balancer::resource::Resource;
use k8s_openapi::api::core::v1::{Node, Service};
use parking_lot::Mutex;

/// A call that has made no step yet.
struct OpenCall {
    service: Service,
    /// The Nodes of a sync; `None` for a deletion.
    nodes: Option<Vec<Arc<Node>>>,
}

/// A backend that compares the first step of each call.
pub struct AnnouncedBackend {
    backend: NsxBackend,
    balancers: OnceLock<Weak<NsxLoadBalancers>>,
    /// The calls without a step, by Service.
    open: Mutex<BTreeMap<String, OpenCall>>,
    /// Number of comparisons.
    compared: Mutex<usize>,
}

impl AnnouncedBackend {
    pub fn new(backend: NsxBackend) -> Self {
        Self { backend, balancers: OnceLock::new(), open: Mutex::default(), compared: Mutex::default() }
    }

    /// Sets the load balancers that use this backend.
    pub fn watch(&self, balancers: &Arc<NsxLoadBalancers>) {
        assert!(self.balancers.set(Arc::downgrade(balancers)).is_ok(), "it is set once");
    }

    /// Begins a call. `nodes` are the Nodes of a sync; `None` begins a deletion.
    pub fn begin(&self, service: &Service, nodes: Option<&[Arc<Node>]>) {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let key = format!("{}/{}", part(&service.metadata.namespace), part(&service.metadata.name));
        self.open.lock().insert(key, OpenCall { service: service.clone(), nodes: nodes.map(<[_]>::to_vec) });
    }

    /// Returns the number of comparisons.
    pub fn compared(&self) -> usize {
        *self.compared.lock()
    }

    /// Compares the first step of the call for this Service.
    fn compare(&self, key: &str, performed: &str) {
        let Some(OpenCall { service, nodes }) = self.open.lock().remove(key) else { return };
        let balancers = self.balancers.get().and_then(Weak::upgrade).expect("the load balancers exist");
        let purpose = nodes.as_deref().map_or(CallPurpose::Deletion, CallPurpose::Sync);
        let state = balancers.explain(&service, purpose).state.expect("NSX was listed");
        let members = nodes.as_deref().map(|nodes| balancers.target_members(nodes));
        let purpose = members.as_ref().map_or(StepPurpose::Deletion, StepPurpose::Sync);
        let of_plan = balancers.first_step(&service, purpose).expect("NSX was listed");
        assert_eq!(of_plan, state.next, "`plan` and `explain` announce the same step");
        let announced = state.next.unwrap_or_else(|why| panic!("{key}: {why:?} is announced, then {performed}"));
        let announced = announced.step.unwrap_or_default();
        // Before it makes a step, a call may read whether the lists missed a virtual server, or a check may refuse the
        // step. The call has planned it all the same.
        let planned = balancers.last_step(key).map(|last| last.steps).unwrap_or_default();
        let is_planned =
            if announced.is_empty() { planned.is_empty() } else { planned.values().any(|one| *one == announced) };
        assert!(announced == performed || is_planned, "{key}: {announced:?} is announced, then {performed:?}");
        *self.compared.lock() += 1;
    }
}

#[async_trait]
impl Backend for AnnouncedBackend {
    async fn read(&self, scope: &Scope, each: Each<'_>) -> Result<ScopeNames, Error> {
        self.backend.read(scope, each).await
    }

    async fn read_references(&self, each: Each<'_>) -> Result<(), Error> {
        self.backend.read_references(each).await
    }

    async fn read_allocations(&self, pool: &str, each: Each<'_>) -> Result<(), Error> {
        self.backend.read_allocations(pool, each).await
    }

    async fn address_pools(&self) -> Result<BTreeSet<Box<str>>, Error> {
        self.backend.address_pools().await
    }

    async fn read_object(&self, kind: ObjectKind, path: &str) -> Result<Option<Object>, Error> {
        self.backend.read_object(kind, path).await
    }

    async fn suitability(&self, object: &ConfiguredObject) -> Result<Suitability, Error> {
        self.backend.suitability(object).await
    }

    async fn perform(&self, request: &Request<'_>, step: &Action<'_>, record: Record<'_>) -> Result<(), Error> {
        // Steps for orphans and for the load balancer service have no Service.
        if !request.owner.uid.is_empty() {
            self.compare(request.owner.service, &step.to_string());
        }
        self.backend.perform(request, step, record).await
    }

    async fn reservation(&self, allocation: &Resource) -> Result<Reservation, Error> {
        self.compare(&allocation.tags.service, &Action::ReadAddress(allocation).to_string());
        self.backend.reservation(allocation).await
    }

    async fn realization(&self, path: &str, revision: Option<i64>) -> Result<RevisionStatus, Error> {
        self.backend.realization(path, revision).await
    }

    async fn is_in_effect(&self, path: &str) -> Result<bool, Error> {
        self.backend.is_in_effect(path).await
    }

    async fn usage(&self, lb_service: &str) -> Result<Option<Usage>, Error> {
        self.backend.usage(lb_service).await
    }

    async fn has_family(&self, pool: &str, family: IpFamily) -> Result<bool, Error> {
        self.backend.has_family(pool, family).await
    }

    async fn check_address(&self, request: &Request<'_>, pool: &str, address: IpAddr) -> Result<(), Error> {
        self.backend.check_address(request, pool, address).await
    }

    async fn update_pools(
        &self,
        permit: &LeaderToken,
        layout: &ClusterLayout,
        updates: BTreeMap<Box<str>, PoolUpdate>,
        record: Record<'_>,
    ) -> BTreeMap<Box<str>, Error> {
        self.backend.update_pools(permit, layout, updates, record).await
    }
}
