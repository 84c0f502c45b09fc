//! Searches, reads and the watch.

use std::time::Duration;

use ccm::clients::vim::filter::METADATA_PATH;
use ccm::clients::vim::{Client, FaultKind, FilterSpec, GuestNic, MoRef, ObjectUpdate, UpdateKind, Value};
use support::{Object, Vcenter, eventually};

use super::{UUID, machine, scenario, soap};

const WAIT: Duration = Duration::from_secs(20);

/// Creates a ListView of the machine with its filter. Returns both, with all objects in the first answers.
async fn watch(client: &Client, vm: &MoRef) -> (MoRef, String, Vec<ObjectUpdate>) {
    let view = client.create_list_view(&[]).await.unwrap();
    assert_eq!(client.modify_list_view(&view, std::slice::from_ref(vm), &[]).await.unwrap(), Vec::new());
    let collector = client.create_property_collector().await.unwrap();
    client.create_filter(&collector, &FilterSpec::for_view(&view)).await.unwrap();
    let (mut version, mut objects) = (String::new(), Vec::new());
    loop {
        let set = client.wait_for_updates(&collector, &version, WAIT, 100).await.unwrap().unwrap();
        version = set.version;
        objects.extend(set.filters.into_iter().flat_map(|filter| filter.objects));
        if !set.truncated {
            return (collector, version, objects);
        }
    }
}

fn value<'a>(object: &'a ObjectUpdate, path: &str) -> Option<&'a Value> {
    object.changes.iter().rev().find(|change| change.name == path)?.value.as_ref()
}

fn interfaces(object: &ObjectUpdate) -> Option<&[GuestNic]> {
    match value(object, "guest.net")? {
        Value::Nics(nics) => Some(nics),
        _ => None,
    }
}

#[tokio::test]
async fn machines_are_found_by_uuid_name_and_address() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = soap(&vcenter).await;
    let expected = MoRef::new("VirtualMachine", vcenter.object_id(&Object::vm("node-1")).await);
    assert_eq!(machine(&client, &UUID.to_uppercase()).await, expected);
    assert_eq!(client.find_all_by_dns_name("node-1.example.com").await.unwrap(), vec![expected]);
    assert_eq!(client.find_all_by_ip("10.0.0.12").await.unwrap().len(), 1);
    assert_eq!(client.find_all_by_uuid("4211a1b2-0000-4000-8000-00000000ffff").await.unwrap(), Vec::new());
}

#[tokio::test]
async fn the_watch_brings_the_machine_with_its_ancestors_and_then_its_new_address() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = soap(&vcenter).await;
    let vm = machine(&client, UUID).await;
    let (collector, version, objects) = watch(&client, &vm).await;
    let found = objects.iter().find(|object| object.object == vm).unwrap();
    assert_eq!(found.kind, UpdateKind::Enter);
    assert_eq!(value(found, "config.uuid").and_then(Value::as_str), Some(UUID));
    assert_eq!(value(found, METADATA_PATH).and_then(Value::as_str), Some("eA=="));
    let nics = interfaces(found).unwrap();
    assert_eq!((nics[0].network.as_deref(), nics[0].ip_addresses.len()), (Some("VM Network"), 2));
    let host = value(found, "runtime.host").and_then(Value::as_ref).unwrap();
    let above = objects.iter().find(|object| object.object == *host).unwrap();
    assert_eq!(value(above, "runtime.connectionState").and_then(Value::as_str), Some("connected"));
    let mut names: Vec<_> = objects.iter().filter_map(|object| value(object, "name")?.as_str()).collect();
    names.sort_unstable();
    for ancestor in ["host-2", "cluster-1", "Resources", "nodes", "prod", "dc-1", "Datacenters"] {
        assert!(names.contains(&ancestor), "{ancestor} is missing in {names:?}");
    }
    assert!(!names.contains(&"node-2") && !names.contains(&"host-1"), "only what is needed: {names:?}");

    vcenter.set_ip("node-1", "10.0.0.99").await;
    let changed = eventually("the new address", WAIT, async || {
        let set = client.wait_for_updates(&collector, &version, WAIT, 100).await.unwrap();
        let objects: Vec<_> = set.into_iter().flat_map(|set| set.filters).flat_map(|filter| filter.objects).collect();
        let nics = objects.iter().find_map(|object| interfaces(object).map(<[_]>::to_vec));
        nics.ok_or(format!("{objects:?}"))
    })
    .await;
    assert_eq!(changed[0].ip_addresses, ["10.0.0.99"]);
}

#[tokio::test]
async fn a_destroyed_machine_leaves_and_is_then_proved_missing() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = soap(&vcenter).await;
    let vm = machine(&client, UUID).await;
    let (collector, version, _) = watch(&client, &vm).await;
    vcenter.destroy_vm("node-1").await;
    eventually("the machine leaves", WAIT, async || {
        let set = client.wait_for_updates(&collector, &version, WAIT, 100).await.unwrap();
        let objects: Vec<_> = set.into_iter().flat_map(|set| set.filters).flat_map(|filter| filter.objects).collect();
        let left = objects.iter().any(|object| object.kind == UpdateKind::Leave && object.object == vm);
        if left { Ok(()) } else { Err(format!("{objects:?}")) }
    })
    .await;
    let error = client.retrieve_properties(&FilterSpec::of_object(&vm, &["name"])).await.unwrap_err();
    assert!(error.is_managed_object_not_found(&vm), "{error}");
}

#[tokio::test]
async fn a_pending_wait_ends_when_it_is_cancelled_and_when_nothing_happens() {
    let vcenter = Vcenter::start(&scenario()).await;
    let client = soap(&vcenter).await;
    let vm = machine(&client, UUID).await;
    let (collector, version, _) = watch(&client, &vm).await;
    let nothing = client.wait_for_updates(&collector, &version, Duration::from_secs(1), 100).await.unwrap();
    assert_eq!(nothing, None);
    let (ended, ()) = tokio::join!(client.wait_for_updates(&collector, &version, WAIT, 100), async {
        eventually("the wait is pending", WAIT, async || {
            if vcenter.counts().await.pending_waits == 1 { Ok(()) } else { Err("it is not") }
        })
        .await;
        client.cancel_wait_for_updates(&collector).await.unwrap();
    });
    let error = ended.unwrap_err();
    assert!(error.fault().is_some_and(|fault| fault.kind == FaultKind::RequestCanceled), "{error}");
    client.destroy_property_collector(&collector).await.unwrap();
}
