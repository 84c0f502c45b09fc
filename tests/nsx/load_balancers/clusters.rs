//! Two clusters with the same name on one manager. Neither writes objects of the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use ccm::providers::vsphere::config::LoadBalancerConfig as Config;
use k8s_openapi::api::core::v1::Service;
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{FakeNsx, Model};

use super::world::*;
use crate::routes::world::node;

const OTHER_UID: &str = "5e1f9a3c-1d2e-4a6b-8c7d-9e0f1a2b3c4d";
/// The default name of a cluster.
const DEFAULT: &str = "kubernetes";

fn on_gateway(tier1: &str) -> Config {
    Config { tier1: Some(format!("/infra/tier-1s/{tier1}")), ..config() }
}

/// Gives the Service the UID of another cluster's Service with the same name.
fn of_other(mut service: Service) -> Service {
    service.metadata.uid = Some("uid-of-the-other".to_owned());
    service
}

struct Pair {
    one: World,
    other: World,
}

impl Pair {
    async fn start(gateways: [&str; 2], uids: [Option<&'static str>; 2]) -> Self {
        let model = Model::small().tier1("t2");
        let fake = Arc::new(FakeNsx::start(model).await);
        let [first, second] = gateways.map(on_gateway);
        let one = World::on(Arc::clone(&fake), DEFAULT, uids[0], first);
        let other = World::on(fake, DEFAULT, uids[1], second);
        Self { one, other }
    }

    /// Returns the paths of all load balancer objects.
    fn paths(&self) -> BTreeSet<String> {
        let collections = ["lb-services", "lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"];
        let objects = collections.into_iter().flat_map(|collection| self.one.objects(collection));
        objects.map(|object| object["path"].as_str().unwrap().to_owned()).collect()
    }
}

/// The second cluster creates, changes and deletes a load balancer while the first one has a load balancer with the
/// same name.
async fn lives_beside(pair: &mut Pair, what: &str) {
    let one = pair.one.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    let foreign = pair.paths();
    let shared: BTreeSet<String> = foreign.iter().filter(|path| path.contains("/lb-services/")).cloned().collect();
    let seen = pair.one.fake.history().len();
    pair.other.restart();

    let other = pair.other.ensured(&of_other(service("ns/s", &[("TCP", 80, 30080)]))).await;
    assert_ne!(one.status, other.status, "{what}: each has its own address");
    let moved = moved(&other, &[("TCP", 81, 30090), ("UDP", 80, 30081)]);
    pair.other.ensure(&moved).await.unwrap();
    pair.other.cluster.put(node("n9", "uid-9", &[], &[("InternalIP", "10.0.0.9")]));
    assert!(pair.other.update(&[&moved]).await.iter().all(Result::is_ok), "{what}");
    pair.other.restart();
    pair.other.ensure(&moved).await.unwrap();
    pair.other.delete(&moved).await.unwrap();
    for version in pair.one.history(seen) {
        let is_foreign = foreign.contains(&version.path) && !shared.contains(&version.path);
        assert!(!is_foreign, "{what}: {} was written", version.path);
    }
    let left: BTreeSet<String> = pair.paths().into_iter().filter(|path| !path.contains("/lb-services/")).collect();
    let foreign: BTreeSet<String> = foreign.difference(&shared).cloned().collect();
    assert_eq!(left, foreign, "{what}: nothing of the second cluster is left, and nothing of the first one is gone");
    assert!(shared.iter().all(|path| pair.one.fake.object(path).is_some()), "{what}: the first one's is still used");

    // The first cluster still finds all its objects.
    pair.one.restart();
    let seen = pair.one.fake.history().len();
    pair.one.ensure(&one).await.unwrap();
    assert!(pair.one.history(seen).is_empty(), "{what}");
    pair.one.delete(&one).await.unwrap();
    assert!(pair.paths().iter().all(|path| path.contains("/lb-services/")), "{what}: {:?}", pair.paths());
}

#[tokio::test]
async fn two_clusters_of_one_name_do_not_touch_each_other() {
    for uids in [[Some(UID), Some(OTHER_UID)], [Some(UID), None], [None, Some(OTHER_UID)], [None, None]] {
        for gateways in [["t1", "t2"], ["t1", "t1"]] {
            let mut pair = Pair::start(gateways, uids).await;
            lives_beside(&mut pair, &format!("{uids:?} on {gateways:?}")).await;
        }
    }
}

/// The Go program's objects for another cluster with the same nodes do not belong to this cluster.
#[tokio::test]
async fn what_the_go_program_made_for_another_cluster_is_not_taken() {
    for uid in [Some(UID), None] {
        let fake = Arc::new(FakeNsx::start(Model::small().tier1("t2")).await);
        let world = World::on(fake, DEFAULT, uid, on_gateway("t1"));
        let mut balancer = GoBalancer::new(DEFAULT, "ns/s", "192.0.2.77".parse().unwrap());
        balancer.tier1_path = "/infra/tier-1s/t2".to_owned();
        let paths = balancer.put(&world.fake, "go");
        let before: Vec<_> = paths.values().map(|path| world.fake.object(path)).collect();
        let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
        assert_ne!(addresses(one.status.as_ref().unwrap().load_balancer.as_ref().unwrap()), [balancer.address]);
        world.cluster.remove("n2");
        assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
        world.delete(&one).await.unwrap();
        let after: Vec<_> = paths.values().map(|path| world.fake.object(path)).collect();
        assert_eq!(before, after, "{uid:?}");
        assert_eq!(world.held(), 4, "{uid:?}");
    }
}

/// The clean-up of each cluster deletes exactly the objects of its own deleted Services.
async fn cleans_up_beside(uids: [Option<&'static str>; 2], gateways: [&str; 2]) {
    let what = format!("{uids:?} on {gateways:?}");
    let mut pair = Pair::start(gateways, uids).await;
    let put = |world: &World, service: &Service| {
        let key = format!("ns/{}", service.metadata.name.as_deref().unwrap());
        world.cluster.services.lock().unwrap().insert(key, service.clone());
    };
    let mut of_one = Vec::new();
    for (name, port) in [("ns/s", 30080), ("ns/t", 30081)] {
        let one = pair.one.ensured(&service(name, &[("TCP", 80, port)])).await;
        put(&pair.one, &one);
        of_one.push(one);
    }
    let foreign = pair.paths();
    let seen = pair.one.fake.history().len();
    pair.other.restart();
    for (name, port) in [("ns/s", 30080), ("ns/u", 30082)] {
        let mut other = service(name, &[("TCP", 80, port)]);
        other.metadata.uid = Some(format!("other-uid-of-{name}"));
        put(&pair.other, &pair.other.ensured(&other).await);
    }
    let all = pair.paths();
    let is_of_gone = |path: &String| {
        let object = pair.one.fake.object(path).unwrap_or_default();
        !foreign.contains(path) && object.to_string().contains("\"ns/s\"")
    };
    let of_gone: BTreeSet<String> = all.iter().filter(|path| is_of_gone(path)).cloned().collect();
    assert_eq!(of_gone.len(), 4, "{what}: {of_gone:?}");

    // The Service is deleted in the second cluster, and exists in the first one.
    pair.other.cluster.services.lock().unwrap().remove("ns/s");
    pair.one.restart();
    pair.one.ensure(&of_one[0]).await.unwrap();
    let expected: BTreeSet<String> = match uids[1] {
        Some(_) => all.difference(&of_gone).cloned().collect(),
        None => all.clone(),
    };
    for _ in 0..3 {
        crate::world::advance(std::time::Duration::from_secs(601)).await;
        super::orphans::reading(&pair.one).await;
        super::orphans::reading(&pair.other).await;
    }
    support::eventually(&what, crate::world::SOON, async || match pair.paths() {
        paths if paths == expected => Ok(()),
        paths => Err(format!("{:?}", paths.symmetric_difference(&expected).collect::<Vec<_>>())),
    })
    .await;
    for version in pair.one.history(seen) {
        assert!(!foreign.contains(&version.path), "{what}: {} was written", version.path);
    }
    let seen = pair.one.fake.history().len();
    for one in &of_one {
        pair.one.ensure(one).await.unwrap();
    }
    assert!(pair.one.history(seen).is_empty(), "{what}");
}

#[tokio::test]
async fn the_clean_up_of_one_cluster_leaves_the_other_alone() {
    for uids in [[Some(UID), Some(OTHER_UID)], [Some(UID), None], [None, Some(OTHER_UID)], [None, None]] {
        for gateways in [["t1", "t2"], ["t1", "t1"]] {
            cleans_up_beside(uids, gateways).await;
        }
    }
}
