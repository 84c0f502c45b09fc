//! The inventory and the tracker on the simulator: the search for a node's machine, and its effects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ccm::cloud::{CloudProvider as _, InstanceMetadata, InstancesV2, Presence};
use k8s_openapi::api::core::v1::Node;
use support::api_server::install_crypto;
use support::vcenter::{Object, Rule, Scenario, Vcenter, Vm};
use support::{Log, eventually};

use crate::world::{Running, SOON, node, until_told};

const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";
const SWAPPED: &str = "56492e42-22ad-3911-6d72-59cc8f26bc90";
const ZONES: &str = "[Labels]\nregion = k8s-region\nzone = k8s-zone\n";

fn instances(running: &Running) -> Arc<dyn InstancesV2> {
    running.provider.instances_v2().unwrap()
}

/// Waits until the metadata of the node's machine meets `accept`.
async fn found_with(running: &Running, node: &Node, accept: impl Fn(&InstanceMetadata) -> bool) -> InstanceMetadata {
    let instances = instances(running);
    eventually("the node's machine is known", SOON, async || match instances.instance_metadata(node).await {
        Presence::Exists(metadata) if accept(&metadata) => Ok(metadata),
        other => Err(format!("{other:?}")),
    })
    .await
}

async fn found(running: &Running, node: &Node) -> InstanceMetadata {
    found_with(running, node, |_| true).await
}

/// Waits until the node's machine is unknown for this reason, and returns the message.
async fn unknown(running: &Running, node: &Node, reason: &str) -> String {
    let instances = instances(running);
    eventually(reason, SOON, async || match instances.instance_metadata(node).await {
        Presence::Unknown(unknown) if unknown.reason == reason => Ok(unknown.message),
        other => Err(format!("{other:?}")),
    })
    .await
}

fn address(metadata: &InstanceMetadata) -> &str {
    metadata.node_addresses.iter().find(|address| address.type_ == "InternalIP").map_or("", |found| &found.address)
}

async fn one(scenario: Scenario, more: &str) -> (Vcenter, Running) {
    install_crypto();
    let vcenter = Vcenter::start(&scenario).await;
    let running = Running::start(&[&vcenter], more);
    (vcenter, running)
}

/// A region on the datacenter, a zone on the cluster.
fn zoned() -> Scenario {
    Scenario::small()
        .category("k8s-region", "SINGLE")
        .category("k8s-zone", "SINGLE")
        .category("unrelated", "MULTIPLE")
        .tag("k8s-region", "region-1", [Object::datacenter("dc-1")])
        .tag("k8s-zone", "zone-a", [Object::cluster("cluster-1")])
        .tag("k8s-zone", "zone-b", [])
        .tag("unrelated", "gold", [Object::cluster("cluster-1")])
}

#[tokio::test]
async fn zone_and_region_come_from_tags_above_the_machine_and_follow_them() {
    let (vcenter, running) = {
        install_crypto();
        let vcenter = Vcenter::start(&zoned().vm(Vm::new("n", UUID).ip("10.0.0.1"))).await;
        let text = format!("{}{ZONES}", vcenter.ini_section("vc", "dc-1"));
        (vcenter, Running::start_with(&text, Duration::from_secs(1)))
    };
    let node = node("n", UUID);
    running.cluster.put(node.clone());
    let metadata = found_with(&running, &node, |metadata| metadata.pending.is_none()).await;
    assert_eq!((metadata.zone.as_str(), metadata.region.as_str()), ("zone-a", "region-1"));

    vcenter.detach_tag("k8s-zone", "zone-a", &Object::cluster("cluster-1")).await;
    vcenter.attach_tag("k8s-zone", "zone-b", &Object::cluster("cluster-1")).await;
    found_with(&running, &node, |metadata| metadata.zone == "zone-b").await;

    vcenter.kill_rest_sessions().await;
    vcenter.rename_tag("k8s-zone", "zone-b", "zone-c").await;
    found_with(&running, &node, |metadata| metadata.zone == "zone-c").await;
    assert_eq!(vcenter.counts().await.rest_sessions, 1, "one REST session at most");
    running.stop().await;
}

#[tokio::test]
async fn w37_a_machine_that_appears_later_is_found_without_an_event() {
    let (vcenter, running) = one(Scenario::small(), "").await;
    let node = node("late", UUID);
    running.cluster.put(node.clone());
    let message = unknown(&running, &node, "VMNotFound").await;
    assert!(message.contains(UUID) && message.contains(SWAPPED) && message.contains("127.0.0.1"), "{message}");
    vcenter.create_vm(&Vm::new("late", UUID).ip("10.0.0.9")).await;
    assert_eq!(address(&found(&running, &node).await), "10.0.0.9");
    running.stop().await;
}

#[tokio::test]
async fn a_machine_that_is_wanted_again_while_it_is_being_let_go_is_watched() {
    let (vcenter, running) = one(Scenario::small().vm(Vm::new("n", UUID).ip("10.0.0.1")), "").await;
    let node = node("n", UUID);
    running.cluster.put(node.clone());
    found(&running, &node).await;
    vcenter.add_rule(&Rule::delay("ModifyListView", Duration::from_secs(1))).await;
    let before = vcenter.counts().await.of("ModifyListView");
    let arrived = async |calls: u32| {
        eventually("the view is changed", SOON, async || match vcenter.counts().await.of("ModifyListView") {
            count if count >= before + calls => Ok(()),
            count => Err(count - before),
        })
        .await;
    };
    running.cluster.clear();
    arrived(1).await;
    running.cluster.put(node.clone());
    found(&running, &node).await;
    // The machine is removed from the view while it is requested again, so it must be added again.
    arrived(2).await;
    vcenter.clear_rules().await;
    vcenter.set_ip("n", "10.0.0.2").await;
    found_with(&running, &node, |metadata| address(metadata) == "10.0.0.2").await;
    running.stop().await;
}

#[tokio::test]
async fn a_match_that_is_never_reported_is_told() {
    let (vcenter, running) = one(Scenario::small().vm(Vm::new("n", UUID).ip("10.0.0.1")), "").await;
    vcenter.add_rule(&Rule::hang("ModifyListView")).await;
    let node = node("n", UUID);
    running.cluster.put(node.clone());
    let message = unknown(&running, &node, "VMNotReadable").await;
    assert!(message.contains("vm-") && message.contains("System.Read"), "{message}");
}

/// A second search and a second request for the view are more work for a busy vCenter. A match is dropped only after a
/// wait of 10 s since the last report of another machine, on a machine of any speed.
#[tokio::test]
async fn a_match_is_waited_for_while_vcenter_reports_another_machine() {
    const LIMIT: Duration = Duration::from_secs(10);
    const OTHER: &str = "422e4956-ad22-1139-6d72-59cc8f26bc91";
    let scenario = Scenario::small().vm(Vm::new("n", UUID).ip("10.0.0.1")).vm(Vm::new("busy", OTHER).ip("10.0.1.0"));
    let (vcenter, running) = one(scenario, "").await;
    let (n, busy) = (node("n", UUID), node("busy", OTHER));
    running.cluster.put(busy.clone());
    found(&running, &busy).await;
    vcenter.add_rule(&Rule::hang("ModifyListView")).await;
    let mut reported = Instant::now();
    running.cluster.put(n.clone());
    let instances = instances(&running);
    eventually("the match is known and not reported", SOON, async || match instances.instance_metadata(&n).await {
        Presence::Unknown(unknown) if unknown.message.starts_with("reading VM vm-") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let begun = Instant::now();
    let mut changes = 0_u8;
    while begun.elapsed() < LIMIT + LIMIT / 4 {
        changes = changes.wrapping_add(1);
        let (changed, ip) = (Instant::now(), format!("10.0.1.{changes}"));
        vcenter.set_ip("busy", &ip).await;
        found_with(&running, &busy, |metadata| address(metadata) == ip).await;
        match instances.instance_metadata(&n).await {
            Presence::Unknown(unknown) if unknown.reason == "VMNotReadable" => {
                assert!(reported.elapsed() >= LIMIT, "given up {:?} after a report", reported.elapsed());
                return;
            }
            Presence::Unknown(unknown) => assert!(unknown.message.starts_with("reading VM vm-"), "{unknown:?}"),
            other => panic!("{other:?}"),
        }
        reported = changed;
    }
}

#[tokio::test]
async fn w42_of_several_machines_with_one_uuid_the_rules_choose_or_name_them_all() {
    let (vcenter, running) = one(
        Scenario::small()
            .vm(Vm::new("template", UUID).template(true).powered_off().guest_host_name("x"))
            .vm(Vm::new("clone", UUID).ip("10.0.0.7").guest_host_name("x"))
            .vm(Vm::new("original", UUID).ip("10.0.0.8").guest_host_name("y")),
        "",
    )
    .await;
    let node = node("n", UUID);
    running.cluster.put(node.clone());
    let message = unknown(&running, &node, "SeveralVMsMatch").await;
    assert!(["template", "clone", "original"].iter().all(|name| message.contains(name)), "{message}");
    vcenter.change_vm("clone", &Vm::change().powered_off()).await;
    assert_eq!(address(&found(&running, &node).await), "10.0.0.8");
    running.stop().await;
}

#[tokio::test]
async fn a_match_by_name_is_taken_only_when_nothing_contradicts_it() {
    let (_vcenter, running) = one(
        Scenario::small().vm(Vm::new("plain", "11111111-2222-3333-4444-555555555555").ip("10.0.0.1")).vm(Vm::new(
            "other",
            "66666666-2222-3333-4444-555555555555",
        )
        .ip("10.0.0.2")),
        "",
    )
    .await;
    let contradicted = node("plain", UUID);
    let bare = node("other", "");
    running.cluster.put(contradicted.clone());
    running.cluster.put(bare.clone());
    assert_eq!(address(&found(&running, &bare).await), "10.0.0.2");
    let message = unknown(&running, &contradicted, "NameMatchRefused").await;
    assert!(message.contains("another BIOS UUID"), "{message}");
    running.stop().await;
}

#[tokio::test]
async fn a_twin_in_a_vcenter_that_was_silent_is_told_of_when_it_is_back() {
    install_crypto();
    let log = Log::keep();
    let one = Vcenter::start(&Scenario::small().vm(Vm::new("n", UUID).ip("10.0.0.1"))).await;
    let two = Vcenter::start(&Scenario::small().vm(Vm::new("copy", UUID).ip("10.0.0.2"))).await;
    two.stop_listening().await;
    let running = Running::start(&[&one, &two], "");
    let node = node("n", UUID);
    running.cluster.put(node.clone());
    assert_eq!(address(&found(&running, &node).await), "10.0.0.1");
    two.resume_listening().await;
    until_told(&log, "has the Node's UUID, too").await;
    assert_eq!(address(&found(&running, &node).await), "10.0.0.1", "the machine that was taken stays");
    running.stop().await;
}

#[tokio::test]
async fn a_datacenter_that_vcenter_does_not_have_is_told_once_with_those_it_has() {
    install_crypto();
    let log = Log::keep();
    let machines =
        [Vm::new("a", UUID).ip("10.0.0.1"), Vm::new("b", "11111111-2222-3333-4444-555555555555").ip("10.0.0.2")];
    let vcenter = Vcenter::start(&machines.into_iter().fold(Scenario::small(), Scenario::vm)).await;
    let running = Running::start_with(&vcenter.ini_section("vc", "dc1"), Duration::from_secs(60));
    for (name, uuid) in [("a", UUID), ("b", "11111111-2222-3333-4444-555555555555")] {
        let node = node(name, uuid);
        running.cluster.put(node.clone());
        let message = unknown(&running, &node, "VMNotFound").await;
        assert!(message.contains("is outside the configured datacenters"), "{message}");
    }
    let expected = "vCenter has no datacenter \"dc1\", or this account may not see it; it has: \"dc-1\" (`datacenters` \
                    in [VirtualCenter \"vc\"] of the cloud config)";
    until_told(&log, expected).await;
    running.stop().await;
    assert_eq!(log.lines("vCenter has no datacenter").len(), 1);
}
