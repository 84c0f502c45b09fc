//! Reads objects of NSX again, with the login in use.

use crate::app::inquiries::Inquiries;
use crate::app::reports::explain::fresh::{FieldDifference, FreshObject};
use crate::base::addresses::parse_network_sloppy;
use crate::providers::vsphere::nsx::load_balancer::fresh_read::{ObjectReading, ResourceDifference};
use crate::providers::vsphere::nsx::routes::fresh_read::{FoundRouteState, RouteReading};
use ipnet::IpNet;

/// Reads the objects that the process knows of this Service.
pub(super) async fn of_service(process: &Inquiries, key: &str, objects: &mut Vec<FreshObject>) {
    if process.vsphere.load_balancers().is_none() {
        return;
    }
    let Some(provider) = process.vsphere.provider() else { return };
    let Some(reading) = provider.read_nsx_objects_of(key).await else {
        objects.push(no_login(process));
        return;
    };
    objects.extend(reading.objects.into_iter().map(of_object));
    if reading.left_out > 0 {
        let failure = format!("{} further objects: a command reads at most 40", reading.left_out);
        objects.push(FreshObject::failed("NSX", "", failure));
    }
}

/// Reads the routes that the process knows of the Node with this name.
pub(super) async fn of_routes(process: &Inquiries, name: &str, objects: &mut Vec<FreshObject>) {
    let (Some(node), Some(provider)) = (process.nodes.get(name), process.vsphere.provider()) else { return };
    let networks = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.clone()).unwrap_or_default();
    let networks: Vec<IpNet> = networks.iter().filter_map(|network| parse_network_sloppy(network)).collect();
    // Without usable routes nothing is known that could be read again.
    if !networks.iter().any(|network| provider.known_route(&node, network).is_some()) {
        return;
    }
    match provider.read_known_routes(&node, &networks).await {
        Some(readings) => objects.extend(readings.into_iter().map(of_route)),
        None => objects.push(no_login(process)),
    }
}

/// A standby and a process whose login is paused make no login for a command.
fn no_login(process: &Inquiries) -> FreshObject {
    let report = process.vsphere.nsx_report();
    let failure = match &report {
        Some(report) if !report.is_in_use => "only the leader logs in to NSX",
        _ => "this process is not logged in to NSX",
    };
    FreshObject::failed("NSX", &report.map(|report| report.server).unwrap_or_default(), failure)
}

fn of_object(reading: ObjectReading) -> FreshObject {
    let ObjectReading { kind, path, result } = reading;
    let difference = |one: ResourceDifference| FieldDifference::new(one.property, one.cached, one.read);
    match result {
        Ok(differences) => FreshObject::read(kind, &path, differences.into_iter().map(difference).collect()),
        Err(failure) => FreshObject::failed(kind, &path, failure),
    }
}

fn of_route(reading: RouteReading) -> FreshObject {
    let RouteReading { path, result } = reading;
    let differences = match result {
        Err(failure) => return FreshObject::failed("route", &path, failure),
        Ok(FoundRouteState::AsKnown) => Vec::new(),
        Ok(FoundRouteState::Gone) => vec![FieldDifference::of_existence(true)],
        Ok(FoundRouteState::LeadsElsewhere { wanted, read }) => vec![FieldDifference::new("route", wanted, read)],
    };
    FreshObject::read("route", &path, differences)
}
