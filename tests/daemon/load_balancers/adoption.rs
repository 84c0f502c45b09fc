//! Load balancers that the Go program created. The daemon writes nothing to complete ones at its start. It completes
//! the creation or deletion of partial ones.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use support::eventually;
use support::fake_nsx::Realization;
use support::fake_nsx::go::{GoPaths, GoStep};

use super::site::{GO, LIMIT, Setup, Site, manager, on_existing, on_gateway, server};
use crate::cluster::ip;

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

/// A partial load balancer.
struct Part {
    name: String,
    address: IpAddr,
    paths: GoPaths,
    has_status: bool,
    is_deleted: bool,
}

impl Part {
    /// Creates the first `count` objects of a load balancer, with or without the address in the Service's status.
    async fn made(site: &Site, count: usize, has_status: bool, address: IpAddr) -> Self {
        let name = format!("made-{count}-{has_status}");
        let service = site.create(&name, &[("TCP", 80)]).await;
        let paths = site.of_go(&service, address, 0..NODES).put_half_made(&site.nsx, GO, count);
        site.leave_by_go(&name, has_status.then_some(address)).await;
        Self { name, address, paths, has_status, is_deleted: false }
    }

    /// Deletes the first `count` objects of a load balancer. The Service is being deleted, or requests a load balancer
    /// again.
    async fn deleted(site: &Site, count: usize, is_deleted: bool, address: IpAddr) -> Self {
        let name = format!("deleted-{count}-{is_deleted}");
        let service = site.create(&name, &[("TCP", 80)]).await;
        let paths = site.of_go(&service, address, 0..NODES).put_half_deleted(&site.nsx, GO, count);
        site.leave_by_go(&name, Some(address)).await;
        Self { name, address, paths, has_status: true, is_deleted }
    }

    fn has(&self, step: GoStep) -> bool {
        self.paths.contains_key(&step)
    }

    /// Whether the address is still reserved for the Service, with evidence for that.
    fn keeps_address(&self) -> bool {
        self.has_status && self.has(GoStep::Allocation)
    }

    /// Returns the paths of objects without evidence that they belong to this cluster.
    fn held(&self) -> Vec<&String> {
        let is_held = |step: &GoStep| match step {
            GoStep::Monitor(_) | GoStep::Pool(_) => !self.has(GoStep::VirtualServer(0)),
            GoStep::Allocation => !self.keeps_address(),
            GoStep::LbService | GoStep::VirtualServer(_) => false,
        };
        self.paths.iter().filter(|(step, _)| is_held(step)).map(|(_, path)| path).collect()
    }
}

async fn parts(site: &Site) -> Vec<Part> {
    let mut addresses = (0..).map(address);
    let mut parts = Vec::new();
    for count in 1..5 {
        for flag in [true, false] {
            parts.push(Part::made(site, count, flag, addresses.next().unwrap()).await);
            parts.push(Part::deleted(site, count, flag, addresses.next().unwrap()).await);
        }
    }
    parts
}

async fn are_completed(knows_uid: bool) {
    let mut site = Site::alone(knows_uid, 0..NODES).await;
    // The load balancer service stays as long as the cluster has a virtual server of the Go program.
    let other = site.create("whole", &[("TCP", 80)]).await;
    site.of_go(&other, [192, 0, 2, 100].into(), 0..NODES).put(&site.nsx, GO);
    site.leave_by_go("whole", Some([192, 0, 2, 100].into())).await;
    site.select("whole").await;
    let parts = parts(&site).await;
    for part in &parts {
        site.select(&part.name).await;
        if part.is_deleted {
            site.services.delete(&part.name, &DeleteParams::default()).await.unwrap();
        }
    }
    let held: BTreeMap<&String, Value> =
        parts.iter().flat_map(Part::held).map(|path| (path, site.nsx.object(path).unwrap())).collect();

    let mut process = site.start(&[]);
    process.wait_until_ensured(1 + parts.iter().filter(|part| !part.is_deleted).count()).await;
    for part in &parts {
        if part.is_deleted {
            site.wait_until_gone(&part.name, &process).await;
            let left: Vec<Value> = site.objects_of(&part.name);
            assert_eq!(left.len(), part.held().len(), "{} {knows_uid}: {left:#?}", part.name);
            continue;
        }
        let address = site.wait_for_address(&part.name, &process).await;
        if part.keeps_address() {
            assert_eq!(address, part.address, "{} {knows_uid}", part.name);
        }
        let objects = site.objects_of(&part.name);
        let server = objects.iter().find(|object| object["resource_type"] == "LBVirtualServer").unwrap();
        assert_eq!(server["ip_address"], json!(address), "{} {knows_uid}", part.name);
        let pool = site.nsx.object(server["pool_path"].as_str().unwrap()).unwrap();
        let members = pool["members"].as_array().unwrap().iter().map(|member| member["ip_address"].clone());
        assert_eq!(members.collect::<Vec<_>>(), (0..NODES).map(|number| json!(ip(number))).collect::<Vec<_>>());
        assert!(pool["active_monitor_paths"][0].is_string(), "{} {knows_uid}: {pool}", part.name);
    }
    for (path, before) in held {
        assert_eq!(site.nsx.object(path), Some(before), "{path} {knows_uid}");
    }
    process.wait_until_held(parts.iter().flat_map(Part::held).count()).await;
    // Lines about objects of unclear owner are excluded, also those of deleted Services.
    let apart = parts.iter().filter(|part| !part.held().is_empty()).map(|part| part.name.clone()).collect();
    let is_of_held = |line: &String| parts.iter().flat_map(Part::held).any(|path| line.ends_with(path.as_str()));
    let wrong: Vec<String> = site.handed_back(&apart).await.into_iter().filter(|line| !is_of_held(line)).collect();
    assert_eq!(wrong, Vec::<String>::new(), "{knows_uid}");
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_made_and_half_deleted_load_balancers_of_the_go_program_are_completed() {
    join_all([true, false].map(are_completed)).await;
}

/// The allocation in use stays. The other one is deleted if it belongs to this cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_allocations_the_one_in_use_stays() {
    let mut site = Site::alone(true, 0..NODES).await;
    // The allocations are old, so their addresses must be assigned. Otherwise the daemon would skip them.
    site.nsx.set_realization("ip-allocations", Realization::After(Duration::ZERO));
    let namespaces = kube::Api::<k8s_openapi::api::core::v1::Namespace>::all(site.cluster.client.clone());
    let uid = namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap();
    let mut second = BTreeMap::new();
    for (index, name) in ["ours", "foreign", "held"].into_iter().enumerate() {
        let service = site.create(name, &[("TCP", 80)]).await;
        let balancer = site.of_go(&service, address(index), 0..NODES);
        balancer.put(&site.nsx, GO);
        let other = balancer.put_allocation(&site.nsx, GO, address(10 + index));
        let tag = match name {
            "ours" => Some(uid.as_str()),
            "foreign" => Some("of-another"),
            _ => None,
        };
        if let Some(tag) = tag {
            let tag = json!({"scope": "cluster-uid", "tag": tag});
            site.nsx.change_by_hand(GO, &other, |object| object["tags"].as_array_mut().unwrap().push(tag));
        }
        site.leave_by_go(name, Some(address(index))).await;
        site.select(name).await;
        second.insert(name, other);
    }
    let (services, seen) = (versions(&site).await, site.nsx.history().len());
    let mut process = site.start(&[]);
    process.wait_until_ensured(3).await;
    let written: Vec<_> = site.nsx.written_from(seen);
    assert!(written.iter().all(|version| version.path == second["ours"]), "{written:#?}");
    assert_eq!(site.nsx.object(&second["ours"]), None);
    // No other allocation of this cluster accompanies the one without UID, so that the daemon does not read its
    // address.
    process.wait_until_held(0).await;
    assert_eq!(versions(&site).await, services);
    process.stop().await;
}
