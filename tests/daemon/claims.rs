//! Nodes of a malicious kubelet that claim the machine of another Node, on a real API server.

use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use support::nodes::NodeView;
use support::{KubeletNode, Vcenter, eventually};

use crate::cluster::{Cluster, LIMIT, swapped, uuid};

/// Returns a Node that registers as initialized, with the provider ID of the machine with this number.
fn born(cluster: &Cluster, name: &str, number: usize, system_uuid: &str) -> Node {
    let mut node = cluster.marked(KubeletNode::new(name, system_uuid)).build();
    let spec = node.spec.get_or_insert_default();
    (spec.provider_id, spec.taints) = (Some(format!("vsphere://{}", uuid(number))), None);
    node
}

#[tokio::test]
async fn a_node_that_is_born_with_the_machine_of_another_gets_nothing_and_locks_nobody_out() {
    let cluster = Cluster::new().await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    let events = Api::<Event>::all(cluster.client.clone());
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let mut daemon = cluster.start_for(&vcenter, &[]).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    let before = cluster.nodes().await.remove(&cluster.name(0)).unwrap();

    // One Node has a matching systemUUID. The other claims a machine that has no Node.
    let (mallory, other) = (format!("{}-mallory", cluster.pool()), format!("{}-other", cluster.pool()));
    for node in [born(&cluster, &mallory, 0, &swapped(&uuid(0))), born(&cluster, &other, 1, &uuid(77))] {
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    for (name, reason) in [(&mallory, "VMBacksAnotherNode"), (&other, "ProviderIDMismatch")] {
        eventually(&format!("{name} is held: {reason}"), LIMIT, async || {
            let of_node = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
            let told = events.list(&of_node).await.unwrap().items;
            let is_logged =
                daemon.output().lines().iter().any(|line| line.contains(reason) && line.contains(name.as_str()));
            if told.len() == 1 && is_logged { Ok(()) } else { Err(format!("{told:?}\n{}", daemon.output().tail(30))) }
        })
        .await;
    }
    let check = async || {
        let all = cluster.nodes().await;
        for name in [&mallory, &other] {
            let (view, annotations) = (NodeView::of(&all[name]), all[name].metadata.annotations.clone());
            let zone = view.label("topology.kubernetes.io/zone");
            assert!(view.addresses.is_empty() && zone.is_empty() && annotations.is_none(), "{view:?} {annotations:?}");
        }
    };
    check().await;
    assert_eq!(cluster.nodes().await[&cluster.name(0)].metadata.resource_version, before.metadata.resource_version);

    // The machine without Node joins after all. The other Node joins again, under another daemon process.
    daemon.stop(LIMIT).await;
    nodes.delete(&cluster.name(0), &DeleteParams::default()).await.unwrap();
    cluster.register(0..2).await;
    let daemon = cluster.start_for(&vcenter, &[]).await;
    cluster.wait_until_initialized(0..2, &daemon).await;
    check().await;
}
