//! What is explained of the load balancers of a Service: the announced step is the one that the next sync makes, and an
//! answer changes nothing and takes little time.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ccm::providers::vsphere::nsx::load_balancer::explanation::{CallPurpose, LoadBalancerFacts};
use ccm::providers::vsphere::nsx::load_balancer::ownership::{ObjectOwner, OwnershipProof};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use support::fake_nsx::Model;
use support::fake_nsx::go::GoBalancer;

use super::world::*;
use crate::routes::world::node;

/// Number of Services, and of Nodes, with which an answer is timed.
const MANY: u16 = 1000;
/// Generous limit of an answer, on a busy machine and without optimization.
const LIMIT: Duration = Duration::from_secs(2);

fn explained(world: &World, service: &Service) -> LoadBalancerFacts {
    world.balancers.explain(service, CallPurpose::Sync(&world.nodes()))
}

fn step(facts: &LoadBalancerFacts) -> Option<String> {
    facts.state.as_ref().unwrap().next.as_ref().unwrap().step.clone()
}

#[tokio::test]
async fn the_announced_step_is_the_first_one_of_the_next_sync_in_each_situation() {
    for uid in [Some(UID), None] {
        let world = World::dual(uid).await;
        let one = service("ns/s", &[("TCP", 80, 30080)]);
        // No port comes back, because NSX keeps a deleted virtual server for some time.
        let last = moved(&one, &[("TCP", 81, 30090)]);
        let two = [("TCP", 81, 30090), ("UDP", 53, 30053)];
        let features = json!({"sessionAffinity": "ClientIP", "loadBalancerSourceRanges": ["198.51.100.0/24"]});
        let restricted = with(&moved(&one, &two), features);
        let situations = [
            ("a new Service", one.clone()),
            ("another node port", moved(&one, &[("TCP", 80, 30090)])),
            ("another port", last.clone()),
            ("one more port", moved(&one, &two)),
            ("source ranges and affinity", restricted.clone()),
            ("other source ranges", with(&restricted, json!({"loadBalancerSourceRanges": ["203.0.113.0/24"]}))),
            ("no features", moved(&one, &two)),
            ("a second family", of_families(last.clone(), "PreferDualStack", &["IPv4", "IPv6"])),
            ("one family again", last.clone()),
        ];
        let mut status = None;
        for (title, situation) in situations {
            let wanted = match status.take() {
                Some(status) => with_status(situation, status),
                None => situation,
            };
            let before = world.backend.compared();
            let ensured = world.ensured(&wanted).await;
            assert!(world.backend.compared() > before, "{title}: no step is compared");
            assert_eq!(step(&explained(&world, &ensured)), None, "{title}: nothing is left to do");
            status = Some(status_of(&ensured));
        }
        world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
        let last = with_status(last, status.unwrap());
        let facts = explained(&world, &last);
        assert!(step(&facts).unwrap().starts_with("change /infra/lb-pools/"));
        assert_eq!(facts.state.unwrap().next.unwrap().changes, ["lacks the members 10.0.0.3"]);
        let before = world.backend.compared();
        world.ensure(&last).await.unwrap();
        world.delete(&last).await.unwrap();
        assert!(world.backend.compared() >= before + 2, "the sync and the calls of the deletion");
    }
}

#[tokio::test]
async fn before_the_first_list_nothing_is_known_and_an_answer_sends_nothing() {
    let mut world = World::start(Some(UID)).await;
    let facts = explained(&world, &one());
    assert!(facts.state.is_none() && facts.list.last.is_none() && world.balancers.has_objects("ns/s").is_none());
    assert_eq!(facts.request.ports, ["TCP/80 to node port 30080"]);
    assert_eq!((world.sent(), facts.last_step), (Vec::new(), None), "an answer asks NSX for nothing");

    let balancer = GoBalancer::new(NAME, "ns/s", "192.0.2.77".parse().unwrap());
    balancer.put(&world.fake, "go");
    let one = world.ensured(&reporting(one(), "192.0.2.77")).await;
    world.sent();
    let facts = explained(&world, &one);
    let owners: Vec<_> = facts.state.unwrap().objects.into_iter().map(|object| (object.kind, object.owner)).collect();
    let ours = ObjectOwner::ThisCluster;
    let expected = [
        ("virtual server", ours(OwnershipProof::Address)),
        ("pool", ours(OwnershipProof::Reference)),
        ("monitor", ours(OwnershipProof::Reference)),
        // The virtual server has the address already, so that no sync reads the address of the allocation.
        ("allocation", ObjectOwner::Unresolved),
    ];
    assert_eq!(owners, expected);
    assert_eq!((world.sent(), world.held()), (Vec::new(), 0), "an answer reports nothing");
    world.restart();
    assert!(explained(&world, &one).state.is_none(), "the next process has not listed NSX");
}

#[tokio::test]
async fn an_answer_takes_little_time_beside_many_services_and_nodes() {
    let model = Model::small().ip_pool("p2", "pool2", "10.9.0.0/16", &[("10.9.0.0", "10.9.255.255")]);
    let world = World::with(model, Some(UID), config()).await;
    for number in 0..MANY {
        let [high, low] = number.to_be_bytes();
        let name = format!("node-{number}");
        world.cluster.put(node(
            &name,
            &format!("uid-of-{number}"),
            &[],
            &[("InternalIP", &format!("10.1.{high}.{low}"))],
        ));
        let address: IpAddr = [10, 9, high, low].into();
        let mut balancer = GoBalancer::new(NAME, &format!("ns/s-{number}"), address);
        "p2".clone_into(&mut balancer.ip_pool);
        balancer.put(&world.fake, "go");
    }
    let middle = reporting(service("ns/s-500", &[("TCP", 80, 30080)]), "10.9.1.244");
    assert!(world.get(&middle).await.unwrap().is_some());
    let mut times: Vec<Duration> = (0..11)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(explained(&world, &middle).state.unwrap().objects.len(), 4);
            began.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[5] < LIMIT, "{times:?}");
}
