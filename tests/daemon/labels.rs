//! After a migration or a resize labels follow the machine if a flag is set. Otherwise an Event reports the difference.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use support::nodes::NodeView;
use support::{Vcenter, Vm, eventually};

use crate::cluster::{Cluster, LIMIT, labels, until_passed, uuid};

/// A change arrives within a second. The rest is tolerance for a machine that also compiles.
const SOON: Duration = Duration::from_secs(10);

const GROWN: &str = "vsphere-vm.cpu-8.mem-16gb.os-ubuntu";

fn is_instance_type(key: &str) -> bool {
    key.ends_with("instance-type")
}

#[tokio::test]
async fn zone_and_instance_type_follow_by_event_where_they_are_to() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    // The default periods are far longer than the test.
    let daemon = cluster.start_for(&vcenter, &["--zone-labels=follow", "--instance-type=follow"]).await;
    cluster.register(0..2).await;
    cluster.wait_until_initialized(0..2, &daemon).await;
    let view = async |number: usize| NodeView::of(&cluster.nodes().await[&cluster.name(number)]);
    let other = cluster.nodes().await.remove(&cluster.name(1)).unwrap();

    let before = Instant::now();
    vcenter.change_vm(&uuid(0), &Vm::change().host("host-3")).await;
    eventually("the zone follows the machine", LIMIT, async || {
        let view = view(0).await;
        let has_moved = labels("zone-c").iter().all(|(key, value)| view.label(key) == *value);
        if has_moved { Ok(()) } else { Err(format!("{view:?}\n{}", daemon.output().tail(10))) }
    })
    .await;
    println!("a migration was on the Node after {:?}", before.elapsed());
    assert!(before.elapsed() < SOON, "{:?}", before.elapsed());

    let before = Instant::now();
    vcenter.change_vm(&uuid(0), &Vm::change().size(8, 16_384)).await;
    eventually("the instance type follows the machine", LIMIT, async || {
        let view = view(0).await;
        let keys = labels("zone-c").map(|(key, _)| key).into_iter().filter(|key| is_instance_type(key));
        let has_grown = keys.map(|key| view.label(key)).all(|value| value == GROWN);
        if has_grown { Ok(()) } else { Err(format!("{view:?}\n{}", daemon.output().tail(10))) }
    })
    .await;
    println!("a resize was on the Node after {:?}", before.elapsed());
    assert!(before.elapsed() < SOON, "{:?}", before.elapsed());
    assert_eq!(cluster.nodes().await[&cluster.name(1)], other, "the other node was not written");
}

#[tokio::test]
async fn labels_that_do_not_follow_stay_and_it_is_told_once() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let daemon = cluster.start_for(&vcenter, &["--node-status-update-frequency=1s"]).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    let name = cluster.name(0);
    let before = NodeView::of(&cluster.nodes().await[&name]);
    vcenter.change_vm(&uuid(0), &Vm::change().host("host-2").size(8, 16_384)).await;
    let events = Api::<Event>::all(cluster.client.clone());
    let told = async |reason: &str| {
        let fields = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        let found = events.list(&fields).await.unwrap().items;
        found
            .into_iter()
            .map(|event| (event.count.unwrap_or_default(), event.message.unwrap_or_default()))
            .collect::<Vec<_>>()
    };
    for (reason, value) in [("ZoneLabelsDiffer", "zone-b"), ("InstanceTypeDiffers", GROWN)] {
        eventually(&format!("there is an Event {reason}"), LIMIT, async || match told(reason).await.as_slice() {
            [(1, message)] if message.contains(value) => Ok(()),
            other => Err(format!("{other:?}\n{}", daemon.output().tail(10))),
        })
        .await;
    }
    let version = cluster.nodes().await[&name].resource_version();
    until_passed(Instant::now(), Duration::from_secs(4)).await;
    let after = cluster.nodes().await;
    assert_eq!(NodeView::of(&after[&name]), before);
    assert_eq!(after[&name].resource_version(), version, "nothing was written");
    for reason in ["ZoneLabelsDiffer", "InstanceTypeDiffers"] {
        let told = told(reason).await;
        assert!(matches!(told.as_slice(), [(1, _)]), "{reason}: {told:?}");
    }

    // 3a.4: another process reports new differences only.
    drop(daemon);
    let daemon = cluster.start_for(&vcenter, &["--node-status-update-frequency=1s"]).await;
    vcenter.change_vm(&uuid(0), &Vm::change().host("host-3")).await;
    eventually("the other difference is told", LIMIT, async || {
        let told = told("ZoneLabelsDiffer").await;
        let is_new = told.iter().any(|(_, message)| message.contains("zone-c"));
        if is_new { Ok(()) } else { Err(format!("{told:?}\n{}", daemon.output().tail(10))) }
    })
    .await;
    let types = told("InstanceTypeDiffers").await;
    assert!(matches!(types.as_slice(), [(1, _)]), "{types:?}");
    let annotation = async || cluster.nodes().await[&name].annotations().get("vsphere-ccm.dev/reported").cloned();
    let remembered = annotation().await.unwrap();
    assert!(remembered.contains("zone-c") && remembered.contains(GROWN), "{remembered}");
    vcenter.change_vm(&uuid(0), &Vm::change().host("host-1").size(2, 4096)).await;
    eventually("nothing differs, and nothing is remembered", LIMIT, async || match annotation().await {
        None => Ok(()),
        Some(remembered) => Err(format!("{remembered}\n{}", daemon.output().tail(10))),
    })
    .await;
}

#[tokio::test]
async fn labels_of_places_follow_by_event_and_no_other_label_does() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let flags = ["--topology-labels=esxi-host,cluster,datacenter", "--topology-label-prefix=place.example.com/"];
    let daemon = cluster.start_for(&vcenter, &flags).await;
    cluster.register(0..2).await;
    cluster.wait_until_initialized(0..2, &daemon).await;
    let places = async |number: usize| {
        let view = NodeView::of(&cluster.nodes().await[&cluster.name(number)]);
        ["esxi-host", "cluster", "datacenter"].map(|place| view.label(&format!("place.example.com/{place}")).to_owned())
    };
    assert_eq!(places(0).await, ["host-1", "cluster-1", "dc-1"]);
    assert_eq!(places(1).await, ["host-2", "cluster-1", "dc-1"]);
    let before = Instant::now();
    vcenter.change_vm(&uuid(0), &Vm::change().host("host-3")).await;
    eventually("the host follows the machine", LIMIT, async || match places(0).await {
        there if there == ["host-3", "cluster-1", "dc-1"] => Ok(()),
        other => Err(format!("{other:?}\n{}", daemon.output().tail(10))),
    })
    .await;
    println!("a migration was on the Node after {:?}", before.elapsed());
    assert!(before.elapsed() < SOON, "{:?}", before.elapsed());
    let view = NodeView::of(&cluster.nodes().await[&cluster.name(0)]);
    for (key, value) in labels("zone-a") {
        assert_eq!(view.label(key), value, "{key} stays");
    }
    assert_eq!(places(1).await, ["host-2", "cluster-1", "dc-1"]);
}
