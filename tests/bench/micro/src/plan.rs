//! The plan of the node controller for a node of real size: a joining node, and a node without changes.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use ccm::cloud::node::TAINT_UNINITIALIZED;
use ccm::cloud::{FoundBy, InstanceMetadata, Presence};
use ccm::controllers::node::Policy;
use ccm::controllers::node::observe::{AllowedWrites, OwnNode};
use ccm::controllers::node::plan::{NodeAction, plan};
use criterion::Criterion;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerImage, Node, NodeAddress, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Measures the plan of the node controller.
pub fn measure(criterion: &mut Criterion) {
    let policy = Policy::default();
    let joins = joining();
    let is_initialized =
        |actions: &[NodeAction]| actions.iter().any(|action| matches!(action, NodeAction::Initialize { .. }));
    criterion.bench_function("plan/joining", |bencher| {
        bencher.iter(|| {
            let made = plan(black_box(Some(&joins)), &policy);
            assert!(is_initialized(&made.actions), "{made:?}");
            made
        });
    });
    let settled = settled();
    criterion.bench_function("plan/settled", |bencher| {
        bencher.iter(|| {
            let made = plan(black_box(Some(&settled)), &policy);
            assert!(made.actions.is_empty(), "{made:?}");
            made
        });
    });
}

fn joining() -> OwnNode {
    let taint = Taint { key: TAINT_UNINITIALIZED.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let mut node = bare();
    node.spec = Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() });
    observed(node)
}

/// Returns the joining node after its plan was applied.
fn settled() -> OwnNode {
    let metadata = instance();
    let mut node = bare();
    node.spec = Some(NodeSpec { provider_id: Some(metadata.provider_id.clone()), ..NodeSpec::default() });
    let labels = node.metadata.labels.get_or_insert_default();
    for (key, value) in [
        ("node.kubernetes.io/instance-type", &metadata.instance_type),
        ("beta.kubernetes.io/instance-type", &metadata.instance_type),
        ("topology.kubernetes.io/zone", &metadata.zone),
        ("failure-domain.beta.kubernetes.io/zone", &metadata.zone),
        ("topology.kubernetes.io/region", &metadata.region),
        ("failure-domain.beta.kubernetes.io/region", &metadata.region),
    ] {
        labels.insert(key.to_owned(), value.clone());
    }
    if let Some(status) = &mut node.status {
        status.addresses = Some(metadata.node_addresses.clone());
    }
    observed(node)
}

fn observed(node: Node) -> OwnNode {
    let instance = Box::new(Presence::Exists(instance()));
    OwnNode {
        node: Arc::new(node),
        instance,
        observed_at: Timestamp::UNIX_EPOCH,
        waiting_time: Duration::ZERO,
        turn: AllowedWrites::default(),
    }
}

fn instance() -> InstanceMetadata {
    let address = |type_: &str, address: &str| NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
    InstanceMetadata {
        provider_id: "vsphere://4213c3b6-1f0e-6a7d-92c4-0123456789ab".to_owned(),
        instance_type: "vsphere-vm.cpu-8.mem-16gb.os-ubuntu".to_owned(),
        node_addresses: vec![
            address("Hostname", "node-1"),
            address("InternalIP", "10.10.0.7"),
            address("ExternalIP", "10.10.0.7"),
        ],
        zone: "zone-a".to_owned(),
        region: "region-1".to_owned(),
        found_by: FoundBy::SystemUuid,
        ..InstanceMetadata::default()
    }
}

fn bare() -> Node {
    let labels = ["arch", "os", "hostname", "pool", "team", "tier"];
    let labels: BTreeMap<_, _> = labels.iter().map(|key| (format!("example.org/{key}"), "value".to_owned())).collect();
    let image = |number: usize| ContainerImage {
        names: Some(vec![format!("registry.example.org/team/image-{number}@sha256:{number:064x}")]),
        size_bytes: Some(100_000_000),
    };
    Node {
        metadata: ObjectMeta { name: Some("node-1".to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        status: Some(NodeStatus { images: Some((0..50).map(image).collect()), ..NodeStatus::default() }),
        spec: None,
    }
}
