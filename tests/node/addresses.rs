//! Names and addresses: the writes of the kubelet and of the product.

use std::fs;

use kube::api::DeleteParams;
use serde_json::{Value, json};
use support::nodes::PROVIDED_NODE_IP;
use support::{Nic, Vm, sandbox};

use crate::cluster::{LIMIT, TEST_LIMIT, eventually};
use crate::nodes::{addresses, condition};
use crate::two_nodes::{ADDRESS, GUEST, TwoNodes, UUID, VM, give_address};

/// The worker's addresses on a second network.
const SECOND: &str = "198.51.100.11";
const SECOND_V6: &str = "2001:db8::11";
/// An address of the worker that VMware Tools do not report at first.
const UNREPORTED: &str = "198.51.100.99";
/// An address that the worker does not have.
const ELSEWHERE: &str = "203.0.113.9";

const WORKER: &str = "worker-1";

/// Type of the condition for the product's initialization of the Node.
const INITIALIZED: &str = "VSphereInitialized";

#[test]
fn a_node_has_the_addresses_of_its_vm_and_of_its_kubelets_node_ip() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut nodes = TwoNodes::start(sandbox, &UUID.simple().to_string()).await;
        for address in [SECOND, SECOND_V6, UNREPORTED] {
            give_address(address);
        }
        a_vm_is_found_by_its_uuid_and_the_kubelet_keeps_what_is_written(&mut nodes).await;
        the_node_ip_of_the_kubelet_is_followed(&mut nodes).await;
        a_node_ip_that_the_vm_lacks_is_waited_for(&mut nodes).await;
        a_node_ip_that_the_host_lacks_is_not_passed_on(&mut nodes).await;
        a_node_that_joins_under_another_name_takes_over(&mut nodes).await;
    });
}

/// Neither the VM nor its guest has the name of the Node. The Node has the host's name in lower case, and the kubelet
/// reports the UUID without dashes.
async fn a_vm_is_found_by_its_uuid_and_the_kubelet_keeps_what_is_written(nodes: &mut TwoNodes) {
    // The last flag takes precedence. Without a name the kubelet uses the host's name.
    fs::write("/proc/sys/kernel/hostname", "Worker-1").unwrap();
    nodes.start_kubelet(WORKER, &["--hostname-override="]);
    let node = nodes.until_addresses_are(WORKER, &of(ADDRESS, ADDRESS)).await;
    assert_eq!(node["status"]["nodeInfo"]["systemUUID"], UUID.simple().to_string());
    assert_eq!(node["spec"]["providerID"], format!("vsphere://{UUID}"));
    assert!(provided_node_ip(&node).is_null(), "{node}");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], WORKER);
    the_addresses_stay(nodes, WORKER).await;
    // A kubelet does not change existing addresses at its start.
    nodes.start_kubelet(WORKER, &[]);
    the_addresses_stay(nodes, WORKER).await;
    // A Node keeps its addresses when its VM gets more of them.
    set_nics(nodes, &[SECOND, SECOND_V6]).await;
    the_addresses_stay(nodes, WORKER).await;
    println!("found by its UUID: {:?}", addresses(&node));
}

/// The product also applies `--node-ip` to an initialized Node.
async fn the_node_ip_of_the_kubelet_is_followed(nodes: &mut TwoNodes) {
    let both = format!("{ADDRESS},{SECOND_V6}");
    for (node_ip, expected) in [
        (SECOND, of(SECOND, ADDRESS)),
        (ADDRESS, of(ADDRESS, ADDRESS)),
        (&both, [of(ADDRESS, ADDRESS), vec![format!("InternalIP={SECOND_V6}")]].concat()),
        ("", of(ADDRESS, ADDRESS)),
    ] {
        nodes.start_kubelet(WORKER, &[&format!("--node-ip={node_ip}")]);
        let annotation = json!(Some(node_ip).filter(|text| !text.is_empty()));
        let what = format!("has the annotation {annotation}");
        nodes.until(&what, WORKER, |node| *provided_node_ip(node) == annotation).await;
        nodes.until_addresses_are(WORKER, &expected).await;
        the_addresses_stay(nodes, WORKER).await;
        println!("--node-ip={node_ip}: {expected:?}");
    }
}

/// On a new Node the kubelet writes the address itself, and the product waits for VMware Tools.
async fn a_node_ip_that_the_vm_lacks_is_waited_for(nodes: &mut TwoNodes) {
    delete(nodes, WORKER).await;
    nodes.start_kubelet(WORKER, &[&format!("--node-ip={UNREPORTED}")]);
    let is_held = |node: &Value| condition(node, INITIALIZED)["status"] == "False";
    let held = nodes.until("says why it waits", WORKER, is_held).await;
    let (reason, held_by) = ("ProvidedNodeIPNotOnVM", condition(&held, INITIALIZED));
    println!("{held_by}");
    let message = nodes.event(WORKER, reason).await;
    assert_eq!((&held_by["reason"], &held_by["message"]), (&json!(reason), &json!(message)));
    assert!(message.contains(UNREPORTED) && message.contains(ADDRESS), "{message}");
    let own = [format!("Hostname={WORKER}"), format!("InternalIP={UNREPORTED}")];
    assert_eq!(addresses(&held), own, "what the kubelet wrote");
    set_nics(nodes, &[SECOND, SECOND_V6, UNREPORTED]).await;
    let node = nodes.until_addresses_are(WORKER, &of(UNREPORTED, UNREPORTED)).await;
    let done = |node: &Value| condition(node, INITIALIZED)["status"] == "True";
    nodes.until("says that it is initialized", WORKER, done).await;
    println!("reported: {:?}", addresses(&node));
}

/// The kubelet rejects the address, and writes neither annotation nor address.
async fn a_node_ip_that_the_host_lacks_is_not_passed_on(nodes: &mut TwoNodes) {
    delete(nodes, WORKER).await;
    nodes.start_kubelet(WORKER, &[&format!("--node-ip={ELSEWHERE}")]);
    let node = nodes.until_addresses_are(WORKER, &of(ADDRESS, ADDRESS)).await;
    let output = nodes.kubelet.as_ref().unwrap().output();
    println!("kubelet: {}", output.find("failed to validate nodeIP").expect("the kubelet says so"));
    assert!(provided_node_ip(&node).is_null(), "{node}");
    nodes.until_ready_is(WORKER, "True").await;
}

/// The worker and its guest get another name. The VM belongs to the new Node immediately.
async fn a_node_that_joins_under_another_name_takes_over(nodes: &mut TwoNodes) {
    nodes.start_kubelet(WORKER, &[]);
    nodes.until_ready_is(WORKER, "True").await;
    nodes.cluster.vcenter.change_vm(VM, &Vm::change().guest_host_name("worker-2")).await;
    nodes.start_kubelet("worker-2", &[]);
    let expected = [format!("ExternalIP={ADDRESS}"), "Hostname=worker-2".to_owned(), format!("InternalIP={ADDRESS}")];
    nodes.until_addresses_are("worker-2", &expected).await;
}

/// Checks that the kubelet writes the Node several times, and that the addresses do not change.
async fn the_addresses_stay(nodes: &TwoNodes, name: &str) {
    let expected = addresses(&nodes.get(name).await);
    let mut beats: Vec<_> = Vec::new();
    eventually(&format!("{name} reports four times"), LIMIT, async || {
        let node = nodes.get(name).await;
        assert_eq!(addresses(&node), expected, "{}", nodes.logs());
        let beat = condition(&node, "Ready")["lastHeartbeatTime"].clone();
        if beats.last() != Some(&beat) {
            beats.push(beat);
        }
        if beats.len() > 4 { Ok(()) } else { Err(format!("{beats:?}")) }
    })
    .await;
}

/// Gives the VM its first network adapter, and a second one with these addresses.
async fn set_nics(nodes: &TwoNodes, second: &[&str]) {
    let change = Vm::change().ip(ADDRESS).nic(Nic::new("Storage", second));
    nodes.cluster.vcenter.change_vm(VM, &change).await;
}

/// Stops the kubelet, and deletes its Node.
async fn delete(nodes: &mut TwoNodes, name: &str) {
    drop(nodes.kubelet.take());
    nodes.nodes.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Returns the worker's addresses in the format of the product.
fn of(internal: &str, external: &str) -> Vec<String> {
    vec![format!("InternalIP={internal}"), format!("ExternalIP={external}"), format!("Hostname={GUEST}")]
}

/// Returns the annotation with the kubelet's `--node-ip`.
fn provided_node_ip(node: &Value) -> &Value {
    &node["metadata"]["annotations"][PROVIDED_NODE_IP]
}
