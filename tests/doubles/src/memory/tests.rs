//! Tests of features that only this provider has; the contract suite has the rest.

use super::*;
use ccm::cloud::{Presence, reason};
use k8s_openapi::api::core::v1::{Node, NodeStatus, NodeSystemInfo};

fn instance(provider_id: &str, uuid: &str) -> Instance {
    Instance {
        node_name: format!("node-of-{provider_id}"),
        system_uuid: uuid.into(),
        metadata: InstanceMetadata { provider_id: provider_id.into(), ..InstanceMetadata::default() },
        ..Instance::default()
    }
}

fn node_with_uuid(uuid: &str) -> Node {
    let info = NodeSystemInfo { system_uuid: uuid.into(), ..NodeSystemInfo::default() };
    Node { status: Some(NodeStatus { node_info: Some(info), ..NodeStatus::default() }), ..Node::default() }
}

#[tokio::test]
async fn two_instances_with_one_uuid_are_unknown_and_named() {
    let cloud = Memory::default();
    cloud.put(instance("memory://1", "AA"));
    cloud.put(instance("memory://2", "aa"));
    let Presence::Unknown(unknown) = cloud.instance_exists(&node_with_uuid("aA")).await else { panic!() };
    assert_eq!(unknown.reason, "SeveralVMsMatch");
    assert!(unknown.message.contains("memory://1, memory://2"), "{unknown}");
}

#[tokio::test]
async fn an_outage_outweighs_a_removal_and_ends() {
    let cloud = Memory::default();
    cloud.put(instance("memory://1", "aa"));
    assert!(cloud.remove("memory://1") && !cloud.remove("memory://1"));
    cloud.set_outage(Some(Unknown::new(reason::CloudUnavailable, "on purpose")));
    let old = |answer: Result<bool, Error>| answer.map_err(|error| error.reason());
    assert_eq!(old(cloud.instance_exists_by_provider_id("memory://1").await), Err(reason::CloudUnavailable));
    cloud.set_outage(None);
    assert_eq!(old(cloud.instance_exists_by_provider_id("memory://1").await), Ok(false));
    assert_eq!(old(cloud.instance_exists_by_provider_id("memory://2").await), Err(reason::InstanceNotFound));
}

#[test]
fn only_the_chosen_contract_is_offered() {
    let older = Memory::new("fake", Contract::Older);
    assert!(older.instances_v2().is_none() && older.instances().is_some() && older.zones().is_some());
    let current = Memory::default();
    assert!(current.instances_v2().is_some() && current.instances().is_none() && current.zones().is_none());
}

// vectors: L-41, L-43, L-44
#[tokio::test]
async fn the_provider_id_of_a_node_without_one_is_its_instances() {
    for (id, present, instances) in
        [("L-41", "fake://12345", "fake://12345"), ("L-43", "", "fake://12345"), ("L-44", "", "")]
    {
        let cloud = Memory::new("fake", Contract::Current);
        cloud.put(instance(instances, "aa"));
        let mut node = node_with_uuid("aa");
        node.spec.get_or_insert_default().provider_id = Some(present.to_owned()).filter(|id| !id.is_empty());
        let metadata = cloud.instance_metadata(&node).await.found().expect(id);
        assert_eq!(metadata.provider_id, instances, "{id}");
    }
}
