//! The NSX Manager of the demo: load balancers on a gateway, and a router for the routes of the nodes.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::cluster::Machine;
use crate::fake_nsx::{FakeNsx, Model, NsxCounts};

/// Path of the gateway with the routes and the load balancer service.
pub const GATEWAY: &str = "/infra/tier-1s/t1";
/// Network that contains all pod networks.
pub const CLUSTER_CIDR: &str = "10.240.0.0/12";
/// Collections with load balancer objects.
const COLLECTIONS: [&str; 5] =
    ["lb-services", "lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"];
/// Configuration of the load balancers. Size LARGE takes as many members as the largest demo has nodes.
const LOAD_BALANCERS: &str = "\n[LoadBalancer]\nsize = LARGE\ntier1-gateway-path = /infra/tier-1s/t1\nip-pool-name = pool1\n\
     tcp-app-profile-name = default-tcp-lb-app-profile\nudp-app-profile-name = default-udp-lb-app-profile\n";

/// A fake NSX Manager with one gateway and one IP pool.
pub struct Nsx(FakeNsx);

impl Nsx {
    /// Starts a manager without load balancers and routes.
    pub async fn start() -> Self {
        Self(FakeNsx::start(Model::small()).await)
    }

    /// Returns the address of the NSX Manager.
    pub fn address(&self) -> String {
        self.0.address()
    }

    /// Returns the NSX sections of the daemon's configuration. Writes the CA into `folder`.
    pub fn sections(&self, folder: &Path, has_routes: bool) -> String {
        let route = if has_routes { format!("\n[Route]\nrouter-path = {GATEWAY}\n") } else { String::new() };
        format!("\n{}{LOAD_BALANCERS}{route}", self.0.ini_section(folder))
    }

    /// Returns the next hop of each network.
    pub fn next_hops(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let routes = self.0.objects_below(&format!("{GATEWAY}/static-routes"));
        routes.iter().map(|route| (text(&route["network"]), text(&route["next_hops"][0]["ip_address"]))).collect()
    }

    /// Returns true if it has exactly the routes of these machines.
    pub fn leads_to(&self, machines: &[Machine]) -> bool {
        let wanted = machines.iter().map(|machine| (machine.pod_network(), machine.address.clone()));
        self.next_hops() == wanted.collect()
    }

    /// Returns the load balancer objects by the name of their collection.
    pub fn load_balancer_objects(&self) -> BTreeMap<&'static str, Vec<Value>> {
        let mut found = BTreeMap::<&str, Vec<Value>>::new();
        for object in self.0.objects() {
            let path = object["path"].as_str().unwrap_or_default();
            let collection = path.rsplit('/').nth(1).unwrap_or_default();
            let known = COLLECTIONS.into_iter().find(|known| *known == collection);
            if let Some(collection) = known.filter(|_| object["marked_for_delete"] != true) {
                found.entry(collection).or_default().push(object);
            }
        }
        found
    }

    /// Returns true if one virtual server has exactly this port, and its pool has this many members.
    pub fn serves(&self, port: i32, members: usize) -> bool {
        let objects = self.load_balancer_objects();
        let of = |collection: &str| objects.get(collection).map(Vec::as_slice).unwrap_or_default();
        let (servers, pools) = (of("lb-virtual-servers"), of("lb-pools"));
        let [server] = servers else { return false };
        let [pool] = pools else { return false };
        let count = pool["members"].as_array().map_or(0, Vec::len);
        server["ports"][0].as_str() == Some(&*port.to_string())
            && of("lb-monitor-profiles").len() == 1
            && count == members
    }

    /// Returns the counts of requests so far.
    pub fn counts(&self) -> NsxCounts {
        self.0.counts()
    }

    /// Returns true if no request is in flight.
    pub fn is_idle(&self) -> bool {
        self.0.counts().in_flight == 0
    }

    /// Returns the number of the next request.
    pub fn next_request(&self) -> u64 {
        self.0.requests().last().map_or(0, |request| request.number + 1)
    }

    /// Returns the requests with this number or a later one.
    pub fn calls_from(&self, number: u64) -> Vec<String> {
        self.0.requests_from(number).into_iter().map(|request| request.operation).collect()
    }
}
