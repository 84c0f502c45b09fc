//! How much is written: joining takes two writes, adoption one, and a quiet node none.

use super::harness::{Form, Start, addresses, instance, is_tainted, labels, lines, waiting};
use super::{A2, A2H, A2K, A3, ZONES, metadata, zoned};
use ccm::cloud::InstanceMetadata;
use ccm::cloud::node::ANNOTATION_VM;
use ccm::providers::memory::Memory;
use k8s_openapi::api::core::v1::Node;
use support::unique;

const TYPES: [(&str, &str); 2] = [
    ("beta.kubernetes.io/instance-type", "vsphere-vm.cpu-2.mem-4gb.os-linux"),
    ("node.kubernetes.io/instance-type", "vsphere-vm.cpu-2.mem-4gb.os-linux"),
];
const DUAL: &[&str] = &["InternalIP 10.0.0.1", "InternalIP fc01::1", "Hostname h"];

/// Nodes as the Go program leaves them, with what the cloud says about their machines.
fn left_by_the_go_program() -> Vec<(&'static str, Form, InstanceMetadata)> {
    let machine = |list: &[&str]| InstanceMetadata {
        instance_type: TYPES[0].1.into(),
        record: "vm-1".into(),
        node_addresses: addresses(list),
        ..InstanceMetadata::default()
    };
    let zones: Vec<_> = ZONES.into_iter().chain(TYPES).collect();
    let with = |list: &[&str], pairs: &[(&str, &str)]| Form {
        addresses: lines(list),
        labels: labels(pairs),
        taints: vec!["X".into()],
        ..Form::default()
    };
    let moved = InstanceMetadata { zone: "other".into(), region: "other".into(), ..machine(A3) };
    let grown = InstanceMetadata { instance_type: "vsphere-vm.cpu-64.mem-4gb.os-linux".into(), ..machine(A3) };
    let provided = Form { provided_node_ip: "10.0.0.1".into(), ..with(&[A2[0], A2H[2]], &TYPES) };
    vec![
        ("IPv4", with(A3, &TYPES), machine(A3)),
        ("the order the kubelet registered with", with(A2H, &TYPES), machine(A3)),
        ("zones", with(A2K, &zones), zoned(machine(A2))),
        ("dual stack", with(DUAL, &TYPES), machine(&DUAL[..2])),
        ("dual stack with zones", with(DUAL, &zones), zoned(machine(DUAL))),
        ("another zone now", with(A3, &zones), moved),
        ("another type now", with(A3, &TYPES), grown),
        ("the kubelet's --node-ip", provided, machine(&[A2[0], "InternalIP 10.0.0.2"])),
    ]
}

/// The node without what differs after any write.
fn content(mut node: Node) -> Node {
    node.metadata.resource_version = None;
    node.metadata.managed_fields = None;
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_the_go_program_left_gets_one_annotation_and_nothing_else() {
    let cloud = Memory::default();
    let run = Start::on(&cloud).restless().run().await;
    let mut created = Vec::new();
    for (case, form, metadata) in left_by_the_go_program() {
        let name = unique("n");
        let provider_id = format!("memory://{name}");
        cloud.put(instance(&name, InstanceMetadata { provider_id: provider_id.clone(), ..metadata }));
        created.push((case, run.register(&Form { name, provider_id, ..form }).await));
    }
    for (_, node) in &created {
        let is_recorded = |node: &Node| ccm::cloud::node::annotation(node, ANNOTATION_VM).is_some();
        run.wait("recorded", ccm::cloud::node::name(node), is_recorded).await;
    }
    run.wait_for_looks("Settled", 10 * created.len() as u64).await;
    for (case, node) in created {
        let name = ccm::cloud::node::name(&node).to_owned();
        let writes = run.writes(&name).await;
        assert_eq!(writes.len(), 1, "{case}");
        let mut expected = content(node);
        expected.metadata.annotations.get_or_insert_default().insert(ANNOTATION_VM.to_owned(), "vm-1".to_owned());
        assert_eq!(content(writes[0].clone()), expected, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn joining_takes_two_writes_and_nothing_is_written_afterwards() {
    let cloud = Memory::default();
    let run = Start::on(&cloud).restless().run().await;
    let mut names = Vec::new();
    for list in [A3, &DUAL[..2]] {
        let name = unique("n");
        let full = InstanceMetadata {
            record: "vm-1".into(),
            instance_type: TYPES[0].1.into(),
            ..zoned(metadata(&format!("memory://{name}"), list))
        };
        cloud.put(instance(&name, full));
        run.register(&waiting(&name)).await;
        run.wait("initialised", &name, |node| !is_tainted(node)).await;
        names.push(name);
    }
    run.wait_for_looks("Settled", 20).await;
    for name in names {
        let writes = run.writes(&name).await;
        let [first, second] = writes.as_slice() else { panic!("{} writes", writes.len()) };
        let (first, second) = (Form::of(first), Form::of(second));
        assert!(!first.addresses.is_empty() && first.provider_id.is_empty() && !first.taints.is_empty(), "{first:?}");
        assert!(!second.provider_id.is_empty() && second.taints.is_empty() && second.labels.len() == 6, "{second:?}");
        assert!(super::harness::condition(&writes[1]).is_none(), "nothing is said on nodes that are fine");
    }
}
