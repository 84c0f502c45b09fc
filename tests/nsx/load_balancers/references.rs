//! Groups and persistence profiles: leftovers of a crash are found, and edits are reverted.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};
use support::fake_nsx::{Behaviour, Deletion, Model, Trouble};

use super::orphans::reading;
use super::world::*;
use crate::world::{SOON, advance};

/// Interval of the complete list, which includes groups and persistence profiles.
pub const AGAIN: Duration = Duration::from_secs(30 * 60);

/// Returns a Service with source ranges and affinity.
fn restricted(key: &str) -> Service {
    let fields = json!({"loadBalancerSourceRanges": ["10.1.0.0/16"], "sessionAffinity": "ClientIP"});
    with(&service(key, &[("TCP", 80, 30080)]), fields)
}

/// Returns the Service without source ranges and affinity.
fn open(service: &Service) -> Service {
    with(service, json!({"loadBalancerSourceRanges": null, "sessionAffinity": null}))
}

/// Returns the groups and the persistence profiles.
fn both(world: &World) -> [Vec<Value>; 2] {
    ["groups", "lb-persistence-profiles"].map(|collection| world.objects(collection))
}

fn path(object: &Value) -> &str {
    object["path"].as_str().unwrap()
}

/// Creates the object as another client does: without the fields of NSX itself.
fn put_again(world: &World, object: &Value) {
    let mut body = object.clone();
    let own =
        |name: &str| name.starts_with('_') || ["path", "relative_path", "parent_path", "unique_id"].contains(&name);
    body.as_object_mut().unwrap().retain(|name, _| !own(name));
    world.fake.put_by_hand("admin", path(object), body);
}

#[tokio::test]
async fn what_was_edited_by_hand_is_put_right_within_half_an_hour() {
    for uid in [Some(UID), None] {
        let world = World::start(uid).await;
        let one = world.ensured(&restricted("ns/s")).await;
        let [groups, profiles] = both(&world);
        assert_eq!((groups.len(), profiles.len()), (1, 1));
        world.fake.change_by_hand("admin", path(&groups[0]), |group| {
            group["expression"][0]["ip_addresses"] = json!(["0.0.0.0/1"]);
        });
        world.fake.change_by_hand("admin", path(&profiles[0]), |profile| profile["timeout"] = json!(5));
        world.sent();
        let announced = world.announcement("ns/s");
        advance(AGAIN).await;
        announced.await;
        // The session has expired, so that the first call is made twice.
        let lists: BTreeSet<String> = world.sent().into_iter().collect();
        assert!(lists.contains("LIST groups") && lists.len() == 7, "{uid:?}: {lists:?}");
        world.ensure(&one).await.unwrap();
        let [groups, profiles] = both(&world);
        assert_eq!(groups[0]["expression"][0]["ip_addresses"], json!(["10.1.0.0/16"]), "{uid:?}");
        assert_eq!(profiles[0]["timeout"], json!(10800), "{uid:?}");
    }
}

/// The process ended after the Service had stopped asking for these objects, and before their deletion.
#[tokio::test]
async fn what_a_crash_left_of_a_service_that_stays_is_deleted() {
    for uid in [Some(UID), None] {
        let mut world = World::start(uid).await;
        let one = world.ensured(&restricted("ns/s")).await;
        let left = both(&world);
        let one = open(&one);
        world.ensure(&one).await.unwrap();
        assert_eq!(both(&world).map(|all| all.len()), [0, 0]);
        left.iter().flatten().for_each(|object| put_again(&world, object));
        world.restart();
        world.ensure(&one).await.unwrap();
        assert_eq!(both(&world).map(|all| all.len()), [1, 1], "{uid:?}: the first reading of a term has none of them");
        let announced = world.announcement("ns/s");
        advance(AGAIN).await;
        announced.await;
        world.ensure(&one).await.unwrap();
        assert_eq!(both(&world).map(|all| all.len()), [0, 0], "{uid:?}");
        assert_eq!(world.counted(), [1; 5]);
    }
}

/// The process ended after the deletion of the virtual servers, which refer to the group and the persistence profile.
#[tokio::test]
async fn what_an_interrupted_deletion_left_goes_though_the_service_asks_for_it_no_longer() {
    let (realized_for, purged_after) = (Duration::from_secs(60), Duration::from_secs(120));
    let deletion = Deletion::Marked { realized_for, purged_after };
    for behaviour in [Behaviour::USUAL, Behaviour { marked_objects_refer: true, deletion, ..Behaviour::USUAL }] {
        let mut world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let one = world.ensured(&restricted("ns/s")).await;
        world.fake.next("DELETE lb-pools", Trouble::unavailable());
        assert!(world.delete(&one).await.is_err());
        assert_eq!(both(&world).map(|all| all.len()), [1, 1]);
        world.restart();
        world.delete(&open(&one)).await.unwrap();
        assert_eq!(both(&world).map(|all| all.len()), [0, 0], "{behaviour:?}");
    }
}

/// Such an account has created no group and no profile.
#[tokio::test]
async fn an_account_without_access_to_groups_and_profiles_deletes_what_it_may() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    world.fake.next("DELETE lb-pools", Trouble::unavailable());
    assert!(world.delete(&one).await.is_err());
    world.fake.deny("admin", "groups");
    world.fake.deny("admin", "lb-persistence-profiles");
    world.restart();
    world.delete(&one).await.unwrap();
    assert_eq!(world.counted(), [0; 5]);
}

#[tokio::test]
async fn what_a_crash_left_of_a_service_that_is_gone_goes_after_two_readings() {
    let mut world = World::start(Some(UID)).await;
    let gone = world.ensured(&restricted("ns/gone")).await;
    let left = both(&world);
    world.delete(&gone).await.unwrap();
    left.iter().flatten().for_each(|object| put_again(&world, object));
    let stays = service("ns/stays", &[("TCP", 80, 30081)]);
    world.cluster.services.lock().unwrap().insert("ns/stays".to_owned(), stays.clone());
    world.restart();
    world.ensured(&stays).await;
    advance(AGAIN).await;
    support::eventually("they are found", SOON, async || match world.balancers.counts() {
        Some(counts) if counts.named == 6 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    reading(&world).await;
    assert_eq!(both(&world).map(|all| all.len()), [1, 1], "one reading is not enough");
    world.sent();
    advance(Duration::from_secs(601)).await;
    until("they are deleted", [0, 0], || both(&world).map(|all| all.len())).await;
    assert!(world.sent().contains(&"LIST groups".to_owned()), "the second reading has them, too");
    assert_eq!(world.counted(), [1; 5]);
}

/// An account may lack the permission for objects that no Service here needs.
#[tokio::test]
async fn groups_that_may_not_be_listed_keep_nothing_from_its_load_balancer() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&restricted("ns/s")).await;
    world.fake.deny("admin", "LIST groups");
    world.sent();
    advance(AGAIN).await;
    support::eventually("everything is read", SOON, async || {
        let count = world.fake.counts().of("LIST ip-allocations");
        if count > 0 { Ok(()) } else { Err(count) }
    })
    .await;
    let seen = world.fake.history().len();
    world.ensure(&one).await.unwrap();
    assert!(world.history(seen).is_empty(), "a group that could not be listed is not gone");
    world.ensured(&service("ns/other", &[("TCP", 80, 30081)])).await;
    world.delete(&one).await.unwrap();
    assert_eq!(both(&world).map(|all| all.len()), [0, 0]);
}

/// NSX gives an unexpected answer once.
#[tokio::test]
async fn groups_that_could_not_be_listed_are_listed_again_soon() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&restricted("ns/s")).await;
    let [groups, _] = both(&world);
    world.fake.change_by_hand("admin", path(&groups[0]), |group| {
        group["expression"][0]["ip_addresses"] = json!(["0.0.0.0/1"]);
    });
    world.fake.next("LIST groups", Trouble::error(400, Some(500_042)));
    world.sent();
    let announced = world.announcement("ns/s");
    advance(AGAIN).await;
    support::eventually("the list fails", SOON, async || {
        let count = world.fake.counts().of("LIST groups");
        if count > 0 { Ok(()) } else { Err(count) }
    })
    .await;
    advance(Duration::from_secs(300)).await;
    announced.await;
    world.ensure(&one).await.unwrap();
    assert_eq!(both(&world)[0][0]["expression"][0]["ip_addresses"], json!(["10.1.0.0/16"]));
}
