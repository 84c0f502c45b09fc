//! Changes that fail, concurrent changes by other clients, and changes with an unknown result.

mod matrix;

use std::time::Duration;

use ccm::cloud::{Error, LeaderToken, Route, Routes as _};
use ccm::providers::vsphere::nsx::routes::Adoption;
use serde_json::{Value, json};
use std::sync::Arc;
use support::FakeNsx;
use support::fake_nsx::{Behaviour, Conflict, Model, Side, Trouble, client_identity};

use super::world::{NAME, ROUTER, UID_1, World, model, node, of_go, permit, word};

const ID: &str = "62d347a4-1b70-435e-b92a-9a61453843ee_100.96.0.0_24";

fn moved(world: &World, address: &str) {
    world.cluster.put(node("node1", UID_1, &["100.96.0.0/24"], &[("InternalIP", address)]));
}

fn route() -> Route {
    let (target_node, destination_cidr) = ("node1".to_owned(), "100.96.0.0/24".to_owned());
    Route { name: ID.to_owned(), target_node, destination_cidr, ..Route::default() }
}

fn hop(world: &World) -> Value {
    world.object(ID)["next_hops"][0]["ip_address"].clone()
}

/// R-06, L-24.
#[tokio::test]
async fn r_06_a_changed_address_is_rewritten_in_place_with_four_calls() {
    for (name, behaviour) in Behaviour::ALL {
        // A cursor on the last page takes one more page.
        let behaviour = Behaviour { last_cursor: Behaviour::USUAL.last_cursor, ..behaviour };
        let world = World::with(model().behaviour(behaviour), Some("uid")).await;
        world.create().await.unwrap();
        world.fake.change_by_hand("operator", &world.path(ID), |object| {
            object["newer_member"] = json!({"a": [1]});
            object["description"] = json!("of an operator");
            object["next_hops"][0]["admin_distance"] = json!(7);
            object["tags"].as_array_mut().unwrap().push(json!({"scope": "team", "tag": "net"}));
        });
        let before = world.object(ID);
        moved(&world, "172.50.0.99");
        world.sent();
        let seen = world.fake.history().len();
        world.pass().await;
        let expected = ["LIST static-routes", "GET static-routes", "PUT static-routes", "GET realized-status"];
        let mut operations = world.operations();
        // A status without a revision takes one more call, or several until the result is certain.
        operations.retain(|operation| behaviour.shows_intent_version || operation != "GET realized-entities");
        assert_eq!(operations, expected, "{name}");
        let after = world.object(ID);
        for member in ["newer_member", "description", "display_name", "network", "tags", "unique_id"] {
            assert_eq!(after[member], before[member], "{name}: {member}");
        }
        assert_eq!(after["next_hops"], json!([{"ip_address": "172.50.0.99", "admin_distance": 7}]), "{name}");
        let versions = world.fake.history_from(seen);
        assert!(versions.len() == 1 && versions[0].object.is_some(), "{name}: it is never gone");
        world.pass().await;
        assert_eq!(world.operations(), ["LIST static-routes"], "{name}");
    }
}

/// Tests the differences between managers, one switch at a time.
#[tokio::test]
async fn a_route_is_created_rewritten_and_deleted_at_every_kind_of_manager() {
    for (switch, behaviour) in Behaviour::each() {
        let world = World::with(model().behaviour(behaviour), Some("uid")).await;
        world.list().await;
        tokio::time::pause();
        world.pass().await;
        moved(&world, "172.50.0.99");
        world.pass().await;
        assert_eq!((hop(&world), world.object(ID)["_revision"].clone()), (json!("172.50.0.99"), json!(1)), "{switch}");
        assert!(world.plan().await.is_empty(), "{switch}");
        world.cluster.remove("node1");
        world.pass().await;
        assert!(world.list().await.is_empty() && world.fake.object(&world.path(ID)).is_none(), "{switch}");
        let refused = world.sent().into_iter().filter(|one| one.status.is_none_or(|status| status >= 400));
        // The read before the creation.
        assert_eq!(refused.map(|one| one.operation).collect::<Vec<_>>(), ["GET static-routes"], "{switch}");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn without_the_lead_nothing_is_written() {
    let world = World::start(Some("uid")).await;
    let ended = LeaderToken::new(|| false, || Box::pin(std::future::ready(())));
    let created = world.routes.create_route(&ended, NAME, UID_1, &route()).await;
    assert!(matches!(created, Err(Error::NotLeader)), "{created:?}");
    world.create().await.unwrap();
    let deleted = world.routes.delete_route(&ended, NAME, &route()).await;
    assert!(matches!(deleted, Err(Error::NotLeader)), "{deleted:?}");
    moved(&world, "172.50.0.99");
    let rewritten = world.routes.create_route(&ended, NAME, UID_1, &route()).await;
    assert!(matches!(rewritten, Err(Error::NotLeader)), "{rewritten:?}");
    assert_eq!(hop(&world), "172.50.0.13");
}

#[tokio::test]
async fn a_changed_address_is_a_creation_and_no_deletion_for_the_controller() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    moved(&world, "172.50.0.99");
    let plan = world.plan().await;
    let changes: Vec<_> = plan.values().map(|one| (one.deletions.len(), one.creations.len())).collect();
    assert_eq!(changes, [(0, 1)]);
    // Without an address of the family the route keeps its current address.
    moved(&world, "fe80::1");
    assert!(world.plan().await.is_empty());
}

#[tokio::test]
async fn what_somebody_else_wrote_meanwhile_is_read_and_kept() {
    for conflict in [Conflict::PreconditionFailed, Conflict::ConcurrentChange, Conflict::BadRequest(500_087)] {
        let world = World::with(model().behaviour(Behaviour { conflict, ..Behaviour::USUAL }), Some("uid")).await;
        world.create().await.unwrap();
        moved(&world, "172.50.0.99");
        world.sent();
        let hold = world.fake.hold(1, Side::Request);
        let changed_meanwhile = async {
            hold.wait().await;
            let describe = |object: &mut Value| object["description"] = json!("meanwhile");
            world.fake.change_by_hand("operator", &world.path(ID), describe);
            hold.release();
        };
        let (written, ()) = tokio::join!(world.create(), changed_meanwhile);
        written.unwrap();
        let again = ["GET static-routes", "PUT static-routes"];
        assert_eq!(world.operations(), [&again[..], &again, &["GET realized-status"]].concat(), "{conflict:?}");
        assert_eq!((hop(&world), world.object(ID)["description"].clone()), (json!("172.50.0.99"), json!("meanwhile")));
    }
}

#[tokio::test]
async fn a_route_that_becomes_foreign_meanwhile_is_not_changed() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    moved(&world, "172.50.0.99");
    let hold = world.fake.hold(1, Side::Request);
    let taken_meanwhile = async {
        hold.wait().await;
        world.fake.change_by_hand("other", &world.path(ID), |object| object["tags"][2]["tag"] = json!("other-uid"));
        hold.release();
    };
    let (written, ()) = tokio::join!(world.create(), taken_meanwhile);
    assert_eq!(word(&written.unwrap_err()), "RouteNotOurs");
    assert_eq!(hop(&world), "172.50.0.13");
    assert_eq!(word(&world.delete(&route()).await.unwrap_err()), "RouteNotOurs");
    assert_eq!(world.objects().len(), 1);
}

#[tokio::test]
async fn five_conflicts_in_a_row_are_reported() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    moved(&world, "172.50.0.99");
    world.sent();
    world.fake.every("PUT static-routes", Trouble::conflict());
    let error = world.create().await.unwrap_err();
    assert_eq!(word(&error), "NSXRefused");
    // L-30: the error shows status, code and message.
    assert!(error.to_string().contains("412") && error.to_string().contains("code 206"), "{error}");
    assert_eq!(world.operations(), ["GET static-routes", "PUT static-routes"].repeat(5));
}

#[tokio::test]
async fn a_write_without_an_answer_is_read_again_and_not_repeated() {
    let world = World::start(Some("uid")).await;
    world.fake.next("PATCH static-routes", Trouble::Lose);
    world.create().await.unwrap();
    let read = "GET static-routes";
    assert_eq!(world.operations(), [read, "PATCH static-routes", read, "GET realized-entities"]);
    assert_eq!(world.object(ID)["_revision"], 0);
    for (trouble, address) in [(Trouble::Lose, "172.50.0.99"), (Trouble::Cut(10), "172.50.0.98")] {
        moved(&world, address);
        world.fake.next("PUT static-routes", trouble);
        world.create().await.unwrap();
        assert_eq!(world.operations(), [read, "PUT static-routes", read, "GET realized-status"]);
        assert_eq!(hop(&world), address);
    }
    assert_eq!(world.object(ID)["_revision"], 2);
    world.fake.next("DELETE static-routes", Trouble::Lose);
    world.delete(&route()).await.unwrap();
    assert_eq!(world.operations(), [read, "DELETE static-routes", read]);
}

#[tokio::test]
async fn a_write_that_was_not_made_is_made_after_a_read() {
    let world = World::start(Some("uid")).await;
    world.fake.next("PATCH static-routes", Trouble::Drop);
    world.create().await.unwrap();
    let (read, write) = ("GET static-routes", "PATCH static-routes");
    assert_eq!(world.operations(), [read, write, read, write, "GET realized-entities"]);
}

/// R-09.
#[tokio::test]
async fn r_09_a_route_that_is_gone_is_deleted() {
    let world = World::start(Some("uid")).await;
    world.delete(&route()).await.unwrap();
    assert_eq!(world.operations(), ["GET static-routes"]);
    world.create().await.unwrap();
    let hold = world.fake.hold(1, Side::Request);
    let deleted_meanwhile = async {
        hold.wait().await;
        assert!(world.fake.delete_by_hand("operator", &world.path(ID)));
        hold.release();
    };
    let listed = route();
    let (deleted, ()) = tokio::join!(world.delete(&listed), deleted_meanwhile);
    deleted.unwrap();
}

/// The Node has a second route to the same network, for example from before it was registered again.
#[tokio::test]
async fn an_outdated_second_route_of_a_node_is_deleted() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    let mut second = world.object(ID);
    second["next_hops"][0]["ip_address"] = json!("172.50.0.12");
    let second_path = world.path("earlier-uid_100.96.0.0_24");
    world.fake.put_by_hand("admin", &second_path, second);
    world.pass().await;
    assert_eq!((world.objects().len(), hop(&world)), (1, json!("172.50.0.13")));
    assert!(world.plan().await.is_empty());
}

#[tokio::test]
async fn a_route_that_was_changed_since_the_listing_is_not_deleted() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    let of_other_node = Route { target_node: "node2".to_owned(), ..route() };
    assert_eq!(word(&world.delete(&of_other_node).await.unwrap_err()), "NSXRefused");
    assert_eq!(world.objects().len(), 1);
}

#[tokio::test]
async fn a_route_that_is_marked_for_deletion_is_deleted_and_cannot_be_written() {
    let deletion = Behaviour::THIRD.deletion;
    let world = World::with(model().behaviour(Behaviour { deletion, ..Behaviour::USUAL }), Some("uid")).await;
    world.create().await.unwrap();
    world.delete(&route()).await.unwrap();
    world.delete(&route()).await.unwrap();
    assert!(world.list().await.is_empty());
    let error = world.create().await.unwrap_err();
    assert_eq!(word(&error), "NSXRefused");
    assert!(error.to_string().contains("500045"), "{error}");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(301)).await;
    tokio::time::resume();
    world.create().await.unwrap();
    // On managers whose reads show the mark.
    let marked: fn(&str) -> String = |body| body.replace("\"marked_for_delete\":false", "\"marked_for_delete\":true");
    for operation in ["LIST static-routes", "GET static-routes"] {
        world.fake.every(operation, Trouble::Rewrite(marked));
    }
    world.sent();
    assert!(world.list().await.is_empty());
    world.delete(&route()).await.unwrap();
    let error = world.create().await.unwrap_err();
    assert!(word(&error) == "NSXRefused" && error.to_string().contains("marked for deletion"), "{error}");
    assert_eq!(world.operations(), ["LIST static-routes", "GET static-routes", "GET static-routes"]);
}

/// R-05.
#[tokio::test]
async fn r_05_a_tier_0_router_has_routes() {
    let fake = Arc::new(FakeNsx::start(Model::empty().tier0("t0").tier1("t0")).await);
    let world = World::on(fake, Some("uid"), "/infra/tier-0s/t0", Adoption::AsIs);
    moved(&world, "172.50.0.13");
    world.pass().await;
    assert_eq!(world.object(ID)["path"], format!("/infra/tier-0s/t0/static-routes/{ID}"));
    assert_eq!(world.fake.objects_below("/infra/tier-1s/t0/static-routes"), Vec::<Value>::new());
    moved(&world, "172.50.0.99");
    world.pass().await;
    assert_eq!(hop(&world), "172.50.0.99");
    let listed = world.list().await;
    world.delete(&listed[0]).await.unwrap();
    assert_eq!(world.objects(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_router_that_does_not_exist_is_named() {
    let fake = Arc::new(FakeNsx::start(Model::empty()).await);
    let world = World::on(fake, Some("uid"), ROUTER, Adoption::AsIs);
    moved(&world, "172.50.0.13");
    let listed = world.routes.list_routes(NAME).await.map(drop);
    for failed in [listed, world.create().await, world.delete(&route()).await] {
        let error = failed.unwrap_err();
        assert_eq!(word(&error), "NSXObjectMissing");
        assert!(error.to_string().contains(&format!("{ROUTER} does not exist")), "{error}");
    }
}

/// R-10.
#[tokio::test]
async fn a_name_of_the_cluster_that_is_no_tag_is_refused() {
    let world = World::start(Some("uid")).await;
    let created = world.routes.create_route(&permit(), &"n".repeat(257), UID_1, &route()).await;
    let error = created.unwrap_err();
    assert_eq!(word(&error), "NSXRefused");
    assert!(matches!(error, Error::Invalid { .. }) && error.to_string().contains("400"), "{error}");
    assert_eq!(world.objects(), Vec::<Value>::new());
}

#[tokio::test]
async fn without_permission_the_route_stays_and_no_owner_is_named_of_what_is_not_protected() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    moved(&world, "172.50.0.99");
    world.fake.deny_writes("admin", "static-routes");
    for failed in [world.create().await, world.delete(&route()).await] {
        let error = failed.unwrap_err();
        assert_eq!(word(&error), "NSXNoPermission");
        assert!(!error.to_string().contains("protected"), "{error}");
        let Error::Failed { after, .. } = error else { panic!("{error:?}") };
        assert_eq!(after, Some(Duration::from_secs(300)));
    }
    assert_eq!(hop(&world), "172.50.0.13");
    // Without a list no Node can be processed, so the daemon retries sooner.
    world.fake.deny("admin", "static-routes");
    let error = world.routes.list_routes(NAME).await.unwrap_err();
    assert_eq!((word(&error).as_str(), error.retry_after()), ("NSXNoPermission", None));
}

#[tokio::test]
async fn a_route_of_another_principal_is_reported_and_not_changed() {
    let (certificate, _key) = client_identity("old-ccm");
    let world = World::with(model().principal("old-ccm", &certificate), Some("uid")).await;
    world.fake.put_by_hand("old-ccm", &world.path(ID), of_go("node1", "100.96.0.0/24", "172.50.0.13"));
    assert!(world.plan().await.is_empty(), "it leads there");
    moved(&world, "172.50.0.99");
    let before = world.object(ID);
    for failed in [world.create().await, world.delete(&route()).await] {
        let error = failed.unwrap_err();
        assert_eq!(word(&error), "NSXNoPermission");
        assert!(error.to_string().contains("\"old-ccm\""), "{error}");
    }
    assert_eq!(world.object(ID), before);
    assert!(world.sent().iter().all(|request| request.header("x-allow-overwrite").is_none()));
}

/// R-03, R-04: all pages are read, and an invalid answer is no empty list.
#[tokio::test]
async fn r_04_all_pages_are_read_and_a_wrong_answer_is_no_empty_list() {
    for (name, behaviour) in Behaviour::ALL {
        let mut model = model().behaviour(Behaviour { page_limit: 7, ..behaviour });
        for number in 0..30 {
            let route = of_go("node1", &format!("100.97.{number}.0/24"), "172.50.0.13");
            model = model.object(&format!("{ROUTER}/static-routes/{UID_1}_{number}"), route);
        }
        let world = World::with(model, Some("uid")).await;
        let numbers: std::collections::BTreeSet<_> =
            world.list().await.into_iter().map(|route| route.destination_cidr).collect();
        assert_eq!(numbers.len(), 30, "{name}");
        for answer in [
            Trouble::answer(200, "application/json", "{}"),
            Trouble::answer(200, "application/json", "[]"),
            Trouble::portal(),
            Trouble::error(500, Some(60_508)),
        ] {
            world.fake.next("LIST static-routes", answer);
            let error = world.routes.list_routes(NAME).await.unwrap_err();
            assert_eq!(word(&error), "NSXUnavailable", "{name}");
        }
    }
}

/// R-08: invalid objects of other owners are skipped. An unreadable object of this cluster makes the list fail.
#[tokio::test]
async fn r_08_an_odd_object_is_skipped_unless_it_has_the_name_of_the_cluster() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    let odd: fn(&str) -> String = |body| body.replacen("\"results\":[", "\"results\":[7,{},{\"tags\":[7,{}]},", 1);
    world.fake.next("LIST static-routes", Trouble::Rewrite(odd));
    assert_eq!(world.list().await.len(), 1);
    let broken: fn(&str) -> String = |body| body.replace("100.96.0.0/24\"", "x\"");
    world.fake.next("LIST static-routes", Trouble::Rewrite(broken));
    let error = world.routes.list_routes(NAME).await.unwrap_err();
    assert_eq!(word(&error), "NSXUnavailable");
    assert!(error.to_string().contains(ID), "{error}");
}

#[tokio::test]
async fn an_answer_about_another_object_says_nothing_of_the_route() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    moved(&world, "172.50.0.99");
    for body in ["{}", "{\"id\": \"other\", \"network\": \"10.0.0.0/8\", \"next_hops\": []}"] {
        world.fake.every("GET static-routes", Trouble::answer(200, "application/json", body));
        for failed in [world.create().await, world.delete(&route()).await] {
            assert_eq!(word(&failed.unwrap_err()), "NSXUnavailable", "{body}");
        }
    }
    assert_eq!(hop(&world), "172.50.0.13");
}

#[tokio::test]
async fn a_route_that_a_listing_misses_is_not_made_twice() {
    let world = World::start(Some("uid")).await;
    // Its id has the Node's UID from before the Node was registered again.
    let old = "00000000-0000-0000-0000-000000000001_100.96.0.0_24";
    world.fake.put_by_hand("admin", &world.path(old), of_go("node1", "100.96.0.0/24", "172.50.0.13"));
    assert!(world.plan().await.is_empty(), "it leads to the Node");
    let empty = r#"{"results": [], "result_count": 0}"#;
    world.fake.next("LIST static-routes", Trouble::answer(200, "application/json", empty));
    assert!(world.routes.list_routes(NAME).await.unwrap().is_empty());
    world.create().await.unwrap();
    let ids: Vec<String> = world.objects().iter().map(|object| object["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, [old]);
    // A deleted route is created again with the current id of its Node.
    world.fake.delete_by_hand("admin", &world.path(old));
    world.create().await.unwrap();
    assert!(world.fake.object(&world.path(ID)).is_some());
}

#[tokio::test]
async fn r_08_what_is_no_route_stops_the_listing_only_if_it_may_be_ours() {
    let world = World::start(Some("uid")).await;
    world.create().await.unwrap();
    let list = |tags: &[(&str, &str)]| {
        let tags: Vec<_> = tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect();
        let odd = json!({"id": "odd", "path": world.path("odd"), "tags": tags});
        let body = json!({"results": [odd, 7, world.object(ID)], "result_count": 3}).to_string();
        world.fake.next("LIST static-routes", Trouble::answer(200, "application/json", &body));
    };
    let name = ("vsphere.k8s.io/cluster-name", NAME);
    for foreign in [&[][..], &[("vsphere.k8s.io/cluster-name", "other")], &[name, ("cluster-uid", "other")]] {
        list(foreign);
        assert_eq!(world.routes.list_routes(NAME).await.unwrap().len(), 1, "{foreign:?}");
    }
    for ours in [&[name][..], &[name, ("cluster-uid", "uid")]] {
        list(ours);
        assert_eq!(word(&world.routes.list_routes(NAME).await.unwrap_err()), "NSXUnavailable", "{ours:?}");
    }
}
