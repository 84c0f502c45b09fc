//! Tests of changes by an administrator and by other programs, without a request.

use std::net::IpAddr;

use serde_json::json;
use support::fake_nsx::{Behaviour, Deletion};

use super::{Manager, assert_refused};

const POOL: &str = "/infra/lb-pools/a";
const SERVER: &str = "/infra/lb-virtual-servers/a";
const ALLOCATIONS: &str = "/infra/ip-pools/p1/ip-allocations";

#[tokio::test]
async fn an_administrator_removes_a_member_and_disables_a_virtual_server() {
    let manager = Manager::small().await;
    manager.create_load_balancer().await;
    let versions = manager.fake.history().len();
    assert!(manager.fake.remove_member_by_hand("operator", POOL, [10, 0, 0, 1].into()));
    assert!(!manager.fake.remove_member_by_hand("operator", POOL, [10, 0, 0, 1].into()), "it is gone already");
    assert!(manager.fake.enable_by_hand("operator", SERVER, false));
    assert!(!manager.fake.enable_by_hand("operator", SERVER, false), "it is disabled already");
    assert!(!manager.fake.enable_by_hand("operator", "/infra/lb-virtual-servers/x", false));
    let written = manager.fake.history_from(versions);
    let fields = |index: usize, field: &str| written[index].object.as_ref().unwrap()[field].clone();
    assert_eq!((written.len(), fields(0, "members"), fields(1, "enabled")), (2, json!([]), json!(false)));
    assert!(written.iter().all(|version| version.user == "operator" && version.request.is_none()));
    assert_eq!((fields(0, "_revision"), fields(1, "_revision")), (json!(1), json!(1)));
}

#[tokio::test]
async fn an_administrator_deletes_with_force_what_is_in_use() {
    for deletion in [Deletion::AtOnce, Behaviour::THIRD.deletion] {
        let manager = Manager::behaving(Behaviour { deletion, ..Behaviour::USUAL }).await;
        manager.create_load_balancer().await;
        assert!(manager.fake.force_delete_by_hand("operator", POOL));
        assert!(!manager.fake.force_delete_by_hand("operator", POOL), "it is gone already");
        assert_refused(&manager.get(POOL).await, 404, 600, POOL);
        let server = manager.fake.object(SERVER).unwrap();
        assert_eq!(server["pool_path"], POOL, "the reference stays");
        let written = manager.fake.history().pop().unwrap();
        assert_eq!((written.user.as_str(), written.path.as_str()), ("operator", POOL));
        assert_eq!(written.object.is_some(), deletion != Deletion::AtOnce, "a marked object is still there");
        // The virtual server can be written again only with an existing pool.
        assert_refused(&manager.put(SERVER, &server).await, 404, 600, POOL);
        assert!(manager.fake.delete_by_hand("operator", SERVER));
    }
}

#[tokio::test]
async fn an_allocation_has_the_address_that_the_test_names() {
    let manager = Manager::small().await;
    let path = |id: &str| format!("{ALLOCATIONS}/{id}");
    let address: IpAddr = [192, 0, 2, 7].into();
    manager.fake.put_allocation_by_hand("other", &path("a"), json!({}), address);
    assert_eq!(manager.fake.allocated_address(&path("a")), Some(address));
    assert_eq!(manager.fake.object(&path("a")).unwrap().get("allocation_ip"), None);
    let row = super::realization::realized(&manager, &path("a")).await;
    assert_eq!(row["extended_attributes"][0]["values"], json!(["192.0.2.7"]));
    // Other allocations do not get the address, but a new allocation by hand may have it at once.
    for id in ["b", "c", "d"] {
        manager.create(&path(id), json!({})).await;
        assert_ne!(manager.fake.allocated_address(&path(id)), Some(address));
    }
    manager.fake.delete_by_hand("other", &path("a"));
    assert_eq!(manager.fake.allocated_address(&path("a")), None);
    manager.fake.put_allocation_by_hand("other", &path("e"), json!({}), address);
    assert_eq!(manager.fake.allocated_address(&path("e")), Some(address));
}

#[tokio::test]
#[should_panic(expected = "the address is in use")]
async fn two_allocations_do_not_have_one_address() {
    let manager = Manager::small().await;
    manager.create(&format!("{ALLOCATIONS}/a"), json!({})).await;
    manager.fake.put_allocation_by_hand("other", &format!("{ALLOCATIONS}/b"), json!({}), [192, 0, 2, 5].into());
}

#[tokio::test]
#[should_panic(expected = "the address is not in the pool")]
async fn an_allocation_has_no_address_outside_of_its_pool() {
    let manager = Manager::small().await;
    manager.fake.put_allocation_by_hand("other", &format!("{ALLOCATIONS}/b"), json!({}), [192, 0, 2, 4].into());
}
