//! Number of writes: two for a join, one for an adoption, and none for an unchanged node.

use super::harness::{Form, Start, addresses, instance, is_tainted, labels, lines, waiting};
use super::{A2, A2H, A2K, A3, ZONES, metadata, zoned};
use ccm::cloud::InstanceMetadata;
use ccm::cloud::node::ANNOTATION_VM;
use doubles::memory::Memory;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use support::unique;

const TYPES: [(&str, &str); 2] = [
    ("beta.kubernetes.io/instance-type", "vsphere-vm.cpu-2.mem-4gb.os-linux"),
    ("node.kubernetes.io/instance-type", "vsphere-vm.cpu-2.mem-4gb.os-linux"),
];
const REPORTED: &str = "vsphere-ccm.dev/reported";
const DUAL: &[&str] = &["InternalIP 10.0.0.1", "InternalIP fc01::1", "Hostname h"];

/// Returns nodes of the Go program, with the cloud's metadata of their machines.
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

/// Returns the node without the fields that every write changes.
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
        let annotations = expected.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_VM.to_owned(), "vm-1".to_owned());
        // The differences are stored in the same write.
        let reported = writes[0].metadata.annotations.as_ref().and_then(|all| all.get(REPORTED));
        assert_eq!(reported.is_some(), case.starts_with("another"), "{case}");
        annotations.extend(reported.map(|reported| (REPORTED.to_owned(), reported.clone())));
        assert_eq!(content(writes[0].clone()), expected, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_of_a_ready_node_follows_its_machine_once_and_not_again_soon() {
    let cloud = Memory::default();
    let name = unique("n");
    let at = |place: &str, address: &str| {
        let list = format!("InternalIP {address}");
        let record = format!("vm-1 {place}");
        cloud.put(instance(&name, InstanceMetadata { record, ..metadata(&format!("memory://{name}"), &[&list]) }));
    };
    let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
    let is_recorded_at = |place: &'static str| {
        move |node: &Node| ccm::cloud::node::annotation(node, ANNOTATION_VM) == Some(&format!("vm-1 {place}"))
    };
    at("a", "10.0.0.1");
    let first = Start::on(&cloud).run().await;
    first.register(&waiting(&name)).await;
    first.patch_status(&name, ready("True")).await;
    first.wait("initialised", &name, |node| !is_tainted(node) && is_recorded_at("a")(node)).await;
    at("b", "10.0.0.1");
    first.wait("it followed", &name, is_recorded_at("b")).await;
    // Moved again, and later changed in another field, which is written immediately.
    at("c", "10.0.0.1");
    at("c", "10.0.0.2");
    let has_changed = |node: &Node| Form::of(node).addresses.iter().any(|line| line.ends_with("10.0.0.2"));
    let node = first.wait("the address", &name, has_changed).await;
    assert!(is_recorded_at("b")(&node), "it rests: {:?}", node.metadata.annotations);
    // The next leader compares all fields again.
    let next = Start::on(&cloud).beside(&first).run().await;
    drop(first);
    next.wait("it followed", &name, is_recorded_at("c")).await;
    at("d", "10.0.0.2");
    next.patch_status(&name, ready("Unknown")).await;
    next.wait("it followed at once", &name, is_recorded_at("d")).await;
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
