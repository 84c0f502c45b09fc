//! An administrator deletes parts of a load balancer by force, though others refer to them, and then the Service changes.

use serde_json::{Value, json};

use super::world::*;
use crate::routes::world::node;

/// The only object of this collection.
fn only(world: &World, collection: &str) -> Value {
    let objects = world.objects(collection);
    assert_eq!(objects.len(), 1, "{objects:#?}");
    objects[0].clone()
}

#[tokio::test]
async fn parts_that_are_gone_are_created_before_what_refers_to_them_changes() {
    for collection in ["lb-monitor-profiles", "lb-pools"] {
        let mut world = World::start(Some(UID)).await;
        let before = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
        let path = only(&world, collection)["path"].as_str().unwrap().to_owned();
        assert!(world.fake.force_delete_by_hand("operator", &path), "{path}");
        // The next process reads everything, and finds other nodes and another port of the nodes.
        world.restart();
        world.cluster.remove("n2");
        world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
        let status = before.status.clone().and_then(|status| status.load_balancer).unwrap();
        let changed = with_status(service("ns/s", &[("TCP", 80, 30090)]), status.clone());
        let ensured = world.ensure(&changed).await.unwrap_or_else(|error| panic!("{collection}: {error}"));
        assert_eq!(addresses(&ensured), addresses(&status), "{collection}");
        assert_eq!(world.counted(), [1, 1, 1, 1, 1], "{collection}");
        let (pool, server) = (only(&world, "lb-pools"), only(&world, "lb-virtual-servers"));
        let monitor = only(&world, "lb-monitor-profiles");
        assert_eq!(World::members(&pool), ["10.0.0.1".to_owned(), "10.0.0.3".to_owned()].into());
        assert_eq!(pool["active_monitor_paths"], json!([monitor["path"]]));
        assert_eq!(monitor["monitor_port"], json!(30090));
        assert_eq!(server["pool_path"], pool["path"]);
        assert_eq!(server["default_pool_member_ports"], json!(["30090"]));
    }
}
