//! Reads what the account sees of NSX, with the login in use, and what a new leader would do there.

use super::permissions::TOTAL_LIMIT;
use crate::app::inquiries::Inquiries;
use crate::app::inquiries::plan::{DetachedPlanner, Slices};
use crate::app::reports::check::nsx_plan::NsxPlanFacts;
use crate::app::reports::check::nsx_resources::InspectionFacts;
use crate::providers::vsphere::nsx::load_balancer::NsxLoadBalancers;
use crate::providers::vsphere::nsx::load_balancer::explanation::CallPurpose;
use crate::providers::vsphere::nsx::load_balancer::ownership::ObjectOwner;
use tokio::time::timeout;

/// Reads NSX. Makes no login, and no call unless this process uses NSX.
pub(super) async fn read(process: &Inquiries) -> InspectionFacts {
    let Some(report) = process.vsphere.nsx_report() else { return InspectionFacts::NotConfigured };
    if !report.is_in_use {
        return InspectionFacts::Standby;
    }
    let Some(provider) = process.vsphere.provider().filter(|_| report.login.is_logged_in) else {
        return InspectionFacts::NotLoggedIn;
    };
    let cloud_config = process.vsphere.cloud_config();
    let inspection = async {
        // The semaphore is never closed.
        let _turn = process.calls.acquire().await;
        provider.inspect_nsx(&cloud_config.config).await
    };
    match timeout(TOTAL_LIMIT, inspection).await {
        Ok(Some(inspection)) => InspectionFacts::Read(Box::new(inspection)),
        Ok(None) => InspectionFacts::NotLoggedIn,
        Err(_) => InspectionFacts::Late(TOTAL_LIMIT.as_secs()),
    }
}

/// Plans the load balancers and routes as a new leader would; `None` in a daemon, whose controllers know them, and
/// without NSX. Makes no call unless there is a login.
pub(super) async fn plan(process: &Inquiries) -> Option<NsxPlanFacts> {
    let settings = &process.detached.as_ref()?.plan;
    process.vsphere.nsx_report()?;
    let provider = process.vsphere.provider()?;
    let planner = DetachedPlanner { process, settings, selected: None };
    let (load_balancers, routes) = planner.nsx_parts(&provider, &mut Slices::new()).await;
    let balancers = process.vsphere.load_balancers().filter(|balancers| balancers.is_listed());
    Some(NsxPlanFacts {
        load_balancers,
        routes,
        ambiguous_objects: balancers.as_deref().map(|balancers| ambiguous_objects(process, balancers)),
        orphans: balancers.as_deref().map(|balancers| balancers.orphan_previews().len()),
    })
}

/// Returns the number of objects that name this cluster and are not known to be its objects. In a daemon, syncs and the
/// clean-up count them.
fn ambiguous_objects(process: &Inquiries, balancers: &NsxLoadBalancers) -> usize {
    let services = process.services.iter().flat_map(|services| services.keys());
    let services = services.filter_map(|key| process.services.as_ref()?.get(&key));
    let of_services = services.map(|service| balancers.explain(&service, CallPurpose::Deletion));
    let of_remainders = balancers.remainders().into_iter().map(|key| balancers.explain_remainder(&key));
    let states = of_services.chain(of_remainders).filter_map(|facts| facts.state);
    let objects = states.flat_map(|state| state.objects);
    objects.filter(|object| object.owner == ObjectOwner::Ambiguous).count()
}
