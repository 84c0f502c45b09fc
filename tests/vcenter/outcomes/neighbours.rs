//! Two vCenters: the nodes of one when the other does not answer, or is removed from the configuration.

use std::time::{Duration, Instant};

use ccm::cloud::Presence;
use ccm::providers::vsphere::config;
use k8s_openapi::api::core::v1::Node;
use support::{FakeVcenter, Machine, Model, Trouble, eventually};

use super::{OTHER, SOON, Scene, address, one, sections, with_provider_id, with_record};
use crate::world::node;

/// Applies a `vsphere.conf` with these vCenters and this text.
fn apply(scene: &Scene, fakes: &[FakeVcenter], more: &str) {
    let text = sections(fakes, "", &scene.folder) + more;
    let parsed = config::parse(&text, "vsphere.conf").unwrap();
    for task in scene.running.provider.apply(&parsed.config).unwrap() {
        tokio::spawn(task.run);
    }
}

#[tokio::test]
async fn w52_nodes_of_a_vcenter_that_is_not_configured_any_more_are_unknown_until_it_is_back() {
    let scene = Scene::start(vec![one(), Model::small().vm(Machine::new("o", OTHER).ip("10.0.0.2"))]).await;
    let stays = scene.initialized("n").await;
    let metadata = scene.found(&node("o", OTHER)).await;
    let leaves = with_record(with_provider_id(node("o", OTHER), &metadata.provider_id), &metadata.record);
    scene.running.cluster.put(leaves.clone());
    for round in 1..=3 {
        apply(&scene, &scene.fakes[..1], "");
        let message = scene.unknown(&leaves, "VCenterNotConfigured").await;
        assert!(message.contains(&scene.fakes[1].port().to_string()) && message.contains("vsphere.conf"), "{message}");
        assert!(matches!(scene.instances().instance_exists(&leaves).await, Presence::Unknown(_)));
        eventually("its session is ended", SOON, async || match scene.fakes[1].counts() {
            counts if counts.soap_sessions == 0 => Ok(()),
            counts => Err(format!("{counts:?}")),
        })
        .await;
        let ip = format!("10.0.1.{round}");
        scene.fake().change_vm("n", |vm| vm.ip(&ip));
        scene.found_with(&stays, |metadata| address(metadata) == ip).await;
        apply(&scene, &scene.fakes, "");
        scene.found_with(&leaves, |metadata| address(metadata) == "10.0.0.2").await;
        scene.told(&leaves, "exists").await;
        assert_eq!(scene.fakes[1].counts().soap_logins, 1 + round);
    }
    let counts = scene.fake().counts();
    assert_eq!((counts.soap_logins, counts.of("CreateFilter")), (1, 1), "the other one noticed nothing: {counts:?}");
    scene.running.stop().await;
}

#[tokio::test]
async fn a_machine_that_is_gone_when_its_vcenter_is_configured_again_is_told_as_gone() {
    let scene = Scene::start(vec![one(), Model::small().vm(Machine::new("o", OTHER).ip("10.0.0.2"))]).await;
    let metadata = scene.found(&node("o", OTHER)).await;
    let leaves = with_record(with_provider_id(node("o", OTHER), &metadata.provider_id), &metadata.record);
    scene.running.cluster.put(leaves.clone());
    apply(&scene, &scene.fakes[..1], "");
    scene.unknown(&leaves, "VCenterNotConfigured").await;
    scene.fakes[1].destroy_vm("o");
    apply(&scene, &scene.fakes, "");
    let message = scene.unknown(&leaves, "VMNotFound").await;
    assert!(!message.contains("no longer names"), "{message}");
    scene.told(&leaves, "absent").await;
    scene.running.stop().await;
}

#[tokio::test]
async fn a_cold_standby_says_nothing_of_the_file_and_asks_by_uuid_when_it_leads() {
    let scene = Scene::start(vec![one(), Model::small().vm(Machine::new("o", OTHER).ip("10.0.0.2"))]).await;
    let known = scene.initialized("n").await;
    let parsed = config::parse(&scene.fake().ini_section("vc-0", "", scene.folder.path()), "vsphere.conf").unwrap();
    let none = config::Config { vcenters: Vec::new(), ..parsed.config };
    assert!(scene.running.provider.apply(&none).unwrap().is_empty());
    let joins = node("o", OTHER);
    scene.running.cluster.put(joins.clone());
    for node in [&known, &joins] {
        let message = scene.unknown(node, "LookupPending").await;
        assert!(message.contains("cold standby"), "{message}");
    }
    eventually("no session is left", SOON, async || {
        let open: Vec<usize> = scene.fakes.iter().map(|fake| fake.counts().soap_sessions).collect();
        if open == [0, 0] { Ok(()) } else { Err(format!("{open:?}")) }
    })
    .await;
    apply(&scene, &scene.fakes, "");
    for node in [&known, &joins] {
        let instances = scene.instances();
        eventually("the machine is found", SOON, async || match instances.instance_metadata(node).await {
            Presence::Exists(_) => Ok(()),
            Presence::Unknown(unknown) => {
                assert!(!unknown.message.contains("no longer names"), "{unknown}");
                Err(unknown.to_string())
            }
            Presence::Absent(proof) => panic!("{proof:?}"),
        })
        .await;
    }
    for fake in &scene.fakes {
        assert_eq!(fake.counts().of("FindAllByDnsName"), 0, "every node has a UUID");
    }
    scene.running.stop().await;
}

/// Time limit of a read or a search. An operation that waits for a vCenter without an answer takes at least this long.
const SILENCE: Duration = Duration::from_secs(10);

/// Makes every operation on the first vCenter. Returns the durations.
async fn operations(scene: &Scene) -> Vec<(&'static str, Duration)> {
    let mut took = Vec::new();
    let mut begun = Instant::now();
    let mut done = |what| {
        took.push((what, begun.elapsed()));
        begun = Instant::now();
    };
    let known: Node = scene.initialized("n").await;
    done("find by UUID, metadata");
    scene.told(&known, "exists").await;
    done("exists");
    scene.fake().change_vm("n", |vm| vm.ip("10.0.0.9"));
    scene.found_with(&known, |metadata| address(metadata) == "10.0.0.9").await;
    done("address");
    let instances = scene.instances();
    for (state, is_off) in [("poweredOff", true), ("poweredOn", false)] {
        scene.fake().change_vm("n", |vm| vm.power(state));
        eventually(state, SOON, async || match instances.instance_shutdown(&known).await {
            Presence::Exists(shut_down) if shut_down == is_off => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }
    done("power");
    apply(scene, &scene.fakes, "[Nodes]\nexclude-external-network-subnet-cidr = 10.0.0.0/8\n");
    let is_internal = |metadata: &ccm::cloud::InstanceMetadata| {
        metadata.node_addresses.iter().all(|address| address.type_ != "ExternalIP")
    };
    scene.found_with(&known, is_internal).await;
    done("changed rules");
    took
}

#[tokio::test]
async fn a_silent_vcenter_delays_nothing_of_another_and_holds_only_names_and_absence() {
    let alone = Scene::start(vec![one()]).await;
    let expected = operations(&alone).await;
    alone.running.stop().await;
    for is_hanging in [false, true] {
        let scene = Scene::start(vec![one(), Model::small()]).await;
        match is_hanging {
            true => scene.fakes[1].every("*", Trouble::Hang),
            false => scene.fakes[1].stop_listening().await,
        }
        for ((what, alone), (_, beside)) in expected.iter().zip(operations(&scene).await) {
            println!("{what}: {alone:?} alone, {beside:?} beside one that is silent (hanging: {is_hanging})");
            // The measurements were made in sequence, so the host may be busier now.
            let limit = (*alone * 3 + Duration::from_secs(8)).min(SILENCE);
            assert!(beside < limit, "{what}: {beside:?} instead of {alone:?}");
        }
        let known = scene.initialized("n").await;
        let by_name = node("m", "");
        scene.fake().create_vm(Machine::new("m", OTHER).text("guest.hostName", "m"));
        scene.running.cluster.put(by_name.clone());
        let message = scene.unknown(&by_name, "VCenterUnavailable").await;
        assert!(message.contains(&scene.fakes[1].port().to_string()), "{message}");
        scene.fake().destroy_vm("n");
        scene.told(&known, "VCenterUnavailable").await;
        scene.running.stop().await;
    }
}
