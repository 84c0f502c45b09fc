//! Labels of initialised nodes follow events.

use super::harness::{Form, Start, instance, labels, lines};
use super::{A3, ZONES, metadata, zoned};
use ccm::cloud::InstanceMetadata;
use ccm::cloud::node::{ZONE, label};
use ccm::controllers::node::{LabelMode, NodeLabelsOn, Policy};
use doubles::memory::Memory;
use support::unique;

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_in_another_zone_is_told_of_or_followed() {
    for (mode, expected) in [(LabelMode::Init, "us-west-1a"), (LabelMode::Follow, "us-west-1b")] {
        let cloud = Memory::default();
        let policy = Policy { zone_labels: mode, ..Policy::default() };
        let run = Start::on(&cloud).restless().policy(policy).run().await;
        let name = unique("n");
        let id = format!("memory://{name}");
        cloud.put(instance(&name, zoned(metadata(&id, A3))));
        let form = Form {
            name: name.clone(),
            provider_id: id.clone(),
            addresses: lines(A3),
            labels: labels(&ZONES),
            ..Form::default()
        };
        run.register(&form).await;
        run.wait_for_looks("Settled", 2).await;
        assert!(cloud.update(&id, |machine| machine.metadata.zone = "us-west-1b".into()));
        let line = "vsphere_ccm_node_labels_differing{label=\"topology.kubernetes.io/zone\"} 1";
        if mode == LabelMode::Init {
            run.wait_for_metric("counted", line).await;
            // Reported once, after any number of reconciliations.
            run.wait_for_looks("Settled", 10).await;
            run.wait_for_events(&name, &[("Warning", "ZoneLabelsDiffer", 1)]).await;
            assert_eq!(run.writes(&name).await.len(), 1, "what was told is remembered");
            assert!(cloud.update(&id, |machine| machine.metadata.zone = "us-west-1a".into()));
            run.wait_for_metric("it is over", &line.replace("} 1", "} 0")).await;
        } else {
            run.wait("followed", &name, |node| label(node, ZONE.current) == Some(expected)).await;
        }
        let node = run.get(&name).await;
        assert_eq!([ZONE.current, ZONE.legacy].map(|key| label(&node, key)), [Some(expected); 2], "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_that_say_where_the_machine_is_follow_it_by_event() {
    let key = "topology.vsphere-ccm.dev/esxi-host";
    let at = |host: Option<&str>| [(key.to_owned(), host.map(str::to_owned))].into();
    let cloud = Memory::default();
    let run = Start::on(&cloud).run().await;
    let name = unique("n");
    let id = format!("memory://{name}");
    let machine = InstanceMetadata { topology_labels: at(Some("host-1")), ..metadata(&id, A3) };
    cloud.put(instance(&name, machine));
    let form = Form { name: name.clone(), provider_id: id.clone(), addresses: lines(A3), ..Form::default() };
    run.register(&form).await;
    run.wait("the first host", &name, |node| label(node, key) == Some("host-1")).await;
    assert!(cloud.update(&id, |machine| machine.metadata.topology_labels = at(Some("host-2"))));
    run.wait("the next host", &name, |node| label(node, key) == Some("host-2")).await;
    assert!(cloud.update(&id, |machine| machine.metadata.topology_labels = at(None)));
    run.wait("no host", &name, |node| label(node, key).is_none()).await;
    assert_eq!(run.writes(&name).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_the_flag_are_set_at_initialisation_where_there_are_none() {
    let cloud = Memory::default();
    let node_labels = labels(&[("team", "storage"), ("rack", "of the flag"), ("k8s.io/reserved", "x")]);
    let run = Start::on(&cloud).policy(Policy { node_labels, ..Policy::default() }).run().await;
    let name = unique("n");
    cloud.put(instance(&name, metadata(&format!("memory://{name}"), A3)));
    let form = Form { labels: labels(&[("rack", "7")]), ..super::waiting(&name) };
    run.register(&form).await;
    let node = run.wait("initialised", &name, |node| !super::harness::is_tainted(node)).await;
    assert_eq!(Form::of(&node).labels, labels(&[("team", "storage"), ("rack", "7")]));
}

#[tokio::test(flavor = "multi_thread")]
async fn initialised_nodes_get_labels_of_the_flag_that_they_lack_only_where_all_are_asked_for() {
    for (on, expected) in [
        (NodeLabelsOn::Join, labels(&[("rack", "7")])),
        (NodeLabelsOn::All, labels(&[("rack", "7"), ("team", "storage")])),
    ] {
        let cloud = Memory::default();
        let node_labels = labels(&[("team", "storage"), ("rack", "of the flag")]);
        let policy = Policy { node_labels, node_labels_on: on, ..Policy::default() };
        let run = Start::on(&cloud).restless().policy(policy).run().await;
        let names: Vec<String> = (0..3).map(|_| unique("n")).collect();
        for name in &names {
            let id = format!("memory://{name}");
            cloud.put(instance(name, metadata(&id, A3)));
            let labels = labels(&[("rack", "7")]);
            let form = Form { name: name.clone(), provider_id: id, addresses: lines(A3), labels, ..Form::default() };
            run.register(&form).await;
        }
        for name in &names {
            run.wait("labelled", name, |node| Form::of(node).labels == expected).await;
        }
        run.wait_for_looks("Settled", 10).await;
        for name in &names {
            assert_eq!(Form::of(&run.get(name).await).labels, expected, "{on:?}");
            // One write adds the record, and at most one more changes the labels.
            let writes = run.writes(name).await.len();
            assert!(writes <= 2, "{on:?}: {writes} writes");
        }
    }
}
