//! Load balancers that the Go program created. The daemon writes nothing to complete ones at its start.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::future::join_all;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use support::eventually;
use support::fake_nsx::go::{GoPaths, GoStep};

use super::site::{GO, LIMIT, Setup, Site, manager, on_existing, on_gateway, server};

const NODES: usize = 3;
/// Name of the Service that is created last, with a load balancer of this program.
const MARKER: &str = "marker";

fn address(index: usize) -> IpAddr {
    [192, 0, 2, 60 + u8::try_from(index).unwrap()].into()
}

/// A Service with a complete load balancer.
struct Whole {
    name: &'static str,
    ports: &'static [(&'static str, u16)],
    spec: Value,
    annotations: Value,
    /// Whether the Service has settings that the Go program ignores.
    is_as_is: bool,
}

impl Whole {
    fn new(name: &'static str, ports: &'static [(&'static str, u16)]) -> Self {
        Self { name, ports, spec: json!({}), annotations: json!({}), is_as_is: false }
    }

    /// Returns a Service with settings that the Go program ignores.
    fn asking(name: &'static str, ports: &'static [(&'static str, u16)], spec: Value) -> Self {
        Self { spec, is_as_is: true, ..Self::new(name, ports) }
    }
}

fn all() -> Vec<Whole> {
    let snat = json!({"loadbalancer.vsphere-ccm.dev/snat": "disabled"});
    vec![
        Whole::new("tcp", &[("TCP", 80)]),
        Whole::new("udp", &[("UDP", 53)]),
        Whole::new("several", &[("TCP", 80), ("UDP", 80), ("TCP", 443)]),
        Whole::new("tagged", &[("TCP", 80)]),
        Whole::new("edited", &[("TCP", 80)]),
        Whole::new("two-allocations", &[("TCP", 80)]),
        Whole::new("renamed", &[("TCP", 80)]),
        Whole::asking("ranges", &[("TCP", 80)], json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]})),
        Whole::asking("affinity", &[("TCP", 80)], json!({"sessionAffinity": "ClientIP"})),
        Whole::asking("local", &[("UDP", 53)], json!({"externalTrafficPolicy": "Local"})),
        Whole { annotations: snat, ..Whole::asking("snat", &[("TCP", 80)], json!({})) },
        Whole::asking("tcp-local", &[("TCP", 80)], json!({"externalTrafficPolicy": "Local"})),
    ]
}

/// Creates the load balancer as the Go program leaves it.
async fn put(site: &Site, whole: &Whole, address: IpAddr, is_existing: bool) {
    let service = site.create_with(whole.name, whole.ports, whole.spec.clone()).await;
    site.patch(whole.name, json!({"metadata": {"annotations": whole.annotations}})).await;
    let mut balancer = site.of_go(&service, address, 0..NODES);
    balancer.lb_service_path = is_existing.then(|| "/infra/lb-services/existing".to_owned());
    if whole.name == "tagged" {
        balancer.tags.insert("team".to_owned(), "a".to_owned());
    }
    let paths = balancer.put(&site.nsx, GO);
    match whole.name {
        "edited" => edit(site, &paths),
        "renamed" => paths.values().for_each(|path| {
            site.nsx.change_by_hand(GO, path, |object| object["display_name"] = json!("renamed"));
        }),
        "two-allocations" => drop(balancer.put_allocation(&site.nsx, GO, [192, 0, 2, 90].into())),
        _ => {}
    }
    site.leave_by_go(whole.name, Some(address)).await;
    site.select(whole.name).await;
}

/// Edits fields that the Go program ignores.
fn edit(site: &Site, paths: &GoPaths) {
    site.nsx.change_by_hand(GO, &paths[&GoStep::Pool(0)], |pool| {
        pool["algorithm"] = json!("LEAST_CONNECTION");
        pool["min_active_members"] = json!(2);
        pool["members"][0]["weight"] = json!(5);
        pool["members"][1]["admin_state"] = json!("DISABLED");
    });
    site.nsx.change_by_hand(GO, &paths[&GoStep::VirtualServer(0)], |server| {
        server["max_concurrent_connections"] = json!(7);
        server["description"] = json!("by hand");
    });
    assert!(site.nsx.enable_by_hand(GO, &paths[&GoStep::VirtualServer(0)], false));
}

/// Returns the resource versions of the Services.
async fn versions(site: &Site) -> BTreeMap<String, Option<String>> {
    site.selected().await.into_iter().map(|(name, service)| (name, service.resource_version())).collect()
}

async fn is_taken_over_without_a_write(knows_uid: bool, is_existing: bool) {
    let what = format!("{knows_uid} {is_existing}");
    let sections = if is_existing { on_existing() } else { on_gateway("t1") };
    let setup = Setup { sections, ..Setup::alone(knows_uid) };
    let mut site = Site::new(server().await, manager(&["site"]).await, setup, 0..NODES).await;
    let all = all();
    for (index, whole) in all.iter().enumerate() {
        put(&site, whole, address(index), is_existing).await;
    }
    let (services, seen) = (versions(&site).await, site.nsx.history().len());

    let mut process = site.start(&[]);
    process.wait_until_ensured(all.len()).await;
    assert_eq!(site.nsx.written_from(seen), [], "{what}");
    // All work of the start is complete once a load balancer that was requested afterwards is complete and its Event is
    // written.
    site.create(MARKER, &[("TCP", 80)]).await;
    site.select(MARKER).await;
    site.wait_for_address(MARKER, &process).await;
    let ensured = (MARKER.to_owned(), "EnsuredLoadBalancer".to_owned());
    eventually("the last Event is written", LIMIT, async || match site.events().await {
        events if events.contains(&ensured) => Ok(()),
        events => Err(format!("{events:?}")),
    })
    .await;
    let of_marker: BTreeSet<String> =
        site.objects_of(MARKER).iter().map(|object| object["path"].as_str().unwrap().to_owned()).collect();
    let others: Vec<_> =
        site.nsx.written_from(seen).into_iter().filter(|version| !of_marker.contains(&version.path)).collect();
    assert_eq!(others, [], "{what}");
    let mut after = versions(&site).await;
    after.remove(MARKER);
    assert_eq!(after, services, "{what}");
    let as_is = |whole: &&Whole| whole.is_as_is;
    let mut expected: Vec<_> =
        all.iter().filter(as_is).map(|whole| (whole.name.to_owned(), "LoadBalancerAdoptedAsIs".to_owned())).collect();
    expected.sort();
    let events: Vec<_> = site.events().await.into_iter().filter(|(name, _)| name != MARKER).collect();
    assert_eq!(events, expected, "{what}");
    // The daemon does not read the address of a second allocation while a virtual server uses the first one.
    process.wait_until_held(0).await;
    let apart = ["two-allocations".to_owned()].into();
    assert_eq!(site.handed_back(&apart).await, Vec::<String>::new(), "{what}");
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_writes_nothing_about_whole_load_balancers_of_the_go_program() {
    let cases = [(true, false), (true, true), (false, false), (false, true)];
    join_all(cases.map(|(knows_uid, is_existing)| is_taken_over_without_a_write(knows_uid, is_existing))).await;
}
