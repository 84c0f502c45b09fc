//! Tests of realized state: routes, and addresses of IP pools (S11, S12).

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::eventually;
use support::fake_nsx::{Behaviour, Deletion, Model, PendingAnswer, Realization};

use super::{Answer, Manager, assert_refused, route};
use crate::LIMIT;

fn query(path: &str) -> String {
    format!("/infra/realized-state/realized-entities?intent_path={}", path.replace('/', "%2F"))
}

async fn entities(manager: &Manager, path: &str) -> Answer {
    manager.get(&query(path)).await
}

/// Returns the row of an object, once it is realized or has failed.
pub(super) async fn realized(manager: &Manager, path: &str) -> Value {
    eventually(&format!("{path} is realized"), LIMIT, async || {
        let (status, body) = entities(manager, path).await;
        let row = &body["results"][0];
        let is_final = row["state"] == "REALIZED" || row["state"] == "ERROR";
        if is_final { Ok(row.clone()) } else { Err(format!("{status} {body}")) }
    })
    .await
}

/// RT-09.
#[tokio::test]
async fn a_static_route_is_realized_after_a_while() {
    let id = "a4775ec4-8b68-42ea-86fc-d17390e4c373_100.96.1.0_24";
    let path = format!("/infra/tier-1s/test-t1/static-routes/{id}");
    for pending in [PendingAnswer::Empty, PendingAnswer::NotFound, PendingAnswer::Unrealized] {
        let behaviour = Behaviour { pending, ..Behaviour::USUAL };
        let manager = Manager::start(Model::small().tier1("test-t1").behaviour(behaviour)).await;
        manager.fake.set_realization("static-routes", Realization::Never);
        assert_eq!(manager.patch(&path, &route("100.96.1.0/24", "172.50.0.137")).await.0, 200);
        let before = entities(&manager, &path).await;
        match pending {
            PendingAnswer::Empty => assert_eq!(before, (200, json!({"results": [], "result_count": 0}))),
            PendingAnswer::NotFound => assert_refused(&before, 404, 600, &path),
            PendingAnswer::Unrealized => {
                let row = &before.1["results"][0];
                assert_eq!((&row["state"], row.get("extended_attributes")), (&json!("UNREALIZED"), None));
            }
        }
        let status = format!("/infra/realized-state/status?intent_path={path}");
        assert_eq!(manager.get(&status).await.1["publish_status"], "UNREALIZED");
        manager.fake.set_realization("static-routes", Realization::After(Duration::ZERO));
        let row = realized(&manager, &path).await;
        for (field, expected) in [
            ("resource_type", json!("GenericPolicyRealizedResource")),
            ("state", json!("REALIZED")),
            ("alarms", json!([])),
            ("intent_paths", json!([path])),
            ("id", json!(format!("test-t1-{id}"))),
            ("runtime_status", json!("UNINITIALIZED")),
        ] {
            assert_eq!(row[field], expected, "{field}");
        }
        assert_eq!(row["extended_attributes"][0]["key"], "logical-router-id");
        let point = "/infra/realized-state/enforcement-points/default/tier-1-static-routes";
        assert_eq!(row["path"], format!("{point}/test-t1-{id}"));
        assert_eq!(manager.get(&status).await.1["consolidated_status"]["consolidated_status"], "SUCCESS");
    }
}

/// The id of RT-05, on a tier-0 gateway.
#[tokio::test]
async fn a_route_may_be_of_ipv6_and_of_a_tier_0_gateway() {
    let manager = Manager::start(Model::small().tier0("t0")).await;
    let path = "/infra/tier-0s/t0/static-routes/nameHint_21DA:00D3:0000:2F3B::_64";
    let network = "21DA:00D3:0000:2F3B::/64";
    assert_eq!(manager.patch(path, &route(network, "21DA:00D3:0000:2F3B:02AC:00FF:FE28:9C5A")).await.0, 200);
    let (_, stored) = manager.get(path).await;
    assert_eq!((&stored["path"], &stored["network"]), (&json!(path), &json!(network)), "as it was sent");
    let row = realized(&manager, path).await;
    assert!(row["path"].as_str().unwrap().contains("/tier-0-static-routes/t0-nameHint_"), "{row}");
}

#[tokio::test]
async fn a_realization_takes_its_time_and_may_fail() {
    let manager = Manager::small().await;
    let path = "/infra/tier-1s/t1/static-routes/r";
    let begun = Instant::now();
    manager.patch(path, &route("10.0.0.0/8", "10.1.0.1")).await;
    assert_eq!(realized(&manager, path).await["state"], "REALIZED");
    assert!(begun.elapsed() >= Duration::from_millis(200), "{:?}", begun.elapsed());
    manager.fake.set_realization(path, Realization::Error(Duration::ZERO, 4711, "no such next hop".to_owned()));
    let row = realized(&manager, path).await;
    assert_eq!((&row["state"], &row["alarms"][0]["message"]), (&json!("ERROR"), &json!("no such next hop")));
    assert_eq!(row["alarms"][0]["error_details"]["error_code"], 4711);
    assert_refused(&manager.get("/infra/realized-state/realized-entities").await, 400, 255, "intent_path");
    let unknown = "/infra/tier-1s/t1/static-routes/x";
    assert_refused(&entities(&manager, unknown).await, 404, 600, unknown);
}

#[tokio::test]
async fn a_rewritten_object_has_the_state_of_its_old_revision_for_a_while() {
    for behaviour in
        [Behaviour::USUAL, Behaviour { shows_intent_version: false, ..Behaviour::USUAL }, Behaviour::OPPOSITE]
    {
        let manager = Manager::start(Model::small().behaviour(behaviour)).await;
        let path = "/infra/tier-1s/t1/static-routes/r";
        let status = format!("/infra/realized-state/status?intent_path={path}");
        manager.fake.set_realization("static-routes", Realization::After(Duration::ZERO));
        manager.patch(path, &route("10.0.0.0/8", "10.1.0.1")).await;
        let version = |number: &str| behaviour.shows_intent_version.then(|| json!(number));
        assert_eq!(manager.get(&status).await.1.get("intent_version").cloned(), version("0"));
        manager.fake.set_realization("static-routes", Realization::Never);
        let mut object = manager.get(path).await.1;
        object["next_hops"][0]["ip_address"] = json!("10.1.0.2");
        assert_eq!(manager.put(path, &object).await.0, 200);
        let (is_old, answer) = (behaviour.keeps_old_realization, manager.get(&status).await.1);
        assert_eq!(answer["publish_status"], if is_old { "REALIZED" } else { "UNREALIZED" }, "{behaviour:?}");
        assert_eq!(answer.get("intent_version").cloned(), version("0").filter(|_| is_old));
        let rows = entities(&manager, path).await.1;
        assert_eq!(rows["results"][0]["state"] == "REALIZED", is_old, "{behaviour:?}: {rows}");
        manager.fake.set_realization("static-routes", Realization::After(Duration::ZERO));
        let answer = manager.get(&status).await.1;
        assert_eq!(
            (&answer["publish_status"], answer.get("intent_version").cloned()),
            (&json!("REALIZED"), version("1"))
        );
    }
}

/// The example of an allocation in `nsx.md` 3.18.
#[tokio::test]
async fn an_allocation_gets_its_address_with_its_realization() {
    let manager = Manager::small().await;
    let path = "/infra/ip-pools/p1/ip-allocations/a";
    let tags = json!([{"scope": "service", "tag": "ns/s"}]);
    assert_eq!(manager.patch(path, &json!({"tags": tags})).await, (200, Value::String(String::new())));
    let (_, stored) = manager.get(path).await;
    assert_eq!((stored.get("allocation_ip"), &stored["tags"]), (None, &tags), "{stored}");
    let row = realized(&manager, path).await;
    assert_eq!((&row["state"], &row["intent_paths"]), (&json!("REALIZED"), &json!([path])));
    let attribute =
        json!({"data_type": "STRING", "multivalue": false, "key": "allocation_ip", "values": ["192.0.2.5"]});
    assert_eq!(row["extended_attributes"], json!([attribute]));
    let synchronous = "/infra/ip-pools/p1/ip-allocations/s";
    assert_eq!(manager.patch(synchronous, &json!({"sync_realization": true})).await.0, 200);
    let (_, now) = entities(&manager, synchronous).await;
    assert_eq!(now["results"][0]["state"], "REALIZED", "the write waits for it");
    assert_eq!(manager.delete(synchronous).await.0, 200);
    // A PATCH does not change an allocation.
    assert_eq!(manager.patch(path, &json!({"tags": [], "display_name": "b"})).await.0, 200);
    assert_eq!(manager.get(path).await.1, stored);
    let (_, pool) = manager.get("/infra/ip-pools/p1").await;
    assert_eq!(
        (&pool["pool_usage"]["total_ips"], &pool["pool_usage"]["available_ips"]),
        (&json!(100), &json!(98)),
        "one of them is reserved"
    );
    assert_eq!(pool["ip_address_type"], "IPV4");
}

#[tokio::test]
async fn an_exhausted_pool_gives_an_alarm_and_a_released_address_rests() {
    let ranges = [("2001:db8::5", "2001:db8::5")];
    let manager = Manager::start(Model::small().ip_pool("p6", "pool6", "2001:db8::/64", &ranges)).await;
    let path = |id: &str| format!("/infra/ip-pools/p6/ip-allocations/{id}");
    for id in ["a", "b"] {
        assert_eq!(manager.patch(&path(id), &json!({})).await.0, 200);
    }
    assert_eq!(realized(&manager, &path("a")).await["extended_attributes"][0]["values"][0], "2001:db8::5");
    let failed = realized(&manager, &path("b")).await;
    assert_eq!((&failed["state"], &failed["extended_attributes"]), (&json!("ERROR"), &json!([])));
    assert_eq!(failed["alarms"][0]["error_details"]["error_code"], 8212);
    for id in ["a", "b"] {
        assert_eq!(manager.delete(&path(id)).await.0, 200);
    }
    manager.patch(&path("c"), &json!({})).await;
    assert_eq!(realized(&manager, &path("c")).await["state"], "ERROR", "the address is reserved");
    manager.delete(&path("c")).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(120)).await;
    tokio::time::resume();
    manager.patch(&path("d"), &json!({})).await;
    assert_eq!(realized(&manager, &path("d")).await["extended_attributes"][0]["values"][0], "2001:db8::5");
}

#[tokio::test]
async fn a_wished_address_is_given_or_refused_and_a_pool_needs_a_subnet() {
    for accepts_any_wish in [false, true] {
        let shows_allocated_ip = accepts_any_wish;
        let behaviour = Behaviour { accepts_any_wish, shows_allocated_ip, ..Behaviour::USUAL };
        let model = Model::small().behaviour(behaviour).object("/infra/ip-pools/empty", json!({}));
        let manager = Manager::start(model).await;
        for (id, wish, is_possible) in [("a", "192.0.2.9", true), ("b", "192.0.2.9", false), ("c", "10.0.0.1", false)] {
            let path = format!("/infra/ip-pools/p1/ip-allocations/{id}");
            manager.patch(&path, &json!({"allocation_ip": wish})).await;
            let expected = if is_possible || accepts_any_wish { "REALIZED" } else { "ERROR" };
            assert_eq!(realized(&manager, &path).await["state"], expected, "{id}");
            let (_, stored) = manager.get(&path).await;
            assert_eq!(stored["allocation_ip"], wish);
            assert_eq!(stored.get("allocated_ip").is_some(), shows_allocated_ip, "{stored}");
        }
        let refused = manager.patch("/infra/ip-pools/empty/ip-allocations/a", &json!({})).await;
        assert_refused(&refused, 400, 23_527, "/infra/ip-pools/empty");
    }
}

#[tokio::test]
async fn an_address_of_a_block_is_given_like_any_other_one() {
    let manager = Manager::start(Model::small().block_pool("b", "block", "198.51.100.0/29", 4)).await;
    for (id, wish, expected) in [
        ("a", Some("198.51.100.2"), Some("198.51.100.2")),
        ("b", None, Some("198.51.100.1")),
        ("c", None, Some("198.51.100.3")),
        ("d", None, None),
        ("e", Some("198.51.100.5"), None),
    ] {
        let path = format!("/infra/ip-pools/b/ip-allocations/{id}");
        let body = wish.map_or_else(|| json!({}), |wish| json!({"allocation_ip": wish}));
        assert_eq!(manager.patch(&path, &body).await.0, 200);
        let row = realized(&manager, &path).await;
        assert_eq!(row["extended_attributes"][0]["values"][0].as_str(), expected, "{id}: {row}");
        assert_eq!(row["state"], if expected.is_some() { "REALIZED" } else { "ERROR" }, "{id}");
    }
}

#[tokio::test]
async fn the_id_of_a_marked_allocation_may_swallow_a_patch_and_rows_may_name_no_intent() {
    for (swallows_marked_allocation, rows_name_intents) in [(false, true), (true, false)] {
        let deletion = Behaviour::THIRD.deletion;
        let behaviour = Behaviour { deletion, swallows_marked_allocation, rows_name_intents, ..Behaviour::USUAL };
        let manager = Manager::start(Model::small().behaviour(behaviour)).await;
        let path = "/infra/ip-pools/p1/ip-allocations/a";
        assert_eq!(manager.patch(path, &json!({})).await.0, 200);
        let row = realized(&manager, path).await;
        assert_eq!(row.get("intent_paths").is_some(), rows_name_intents, "{row}");
        assert_eq!(row["state"], "REALIZED");
        assert_eq!(manager.delete(path).await.0, 200);
        let expected = if swallows_marked_allocation { 200 } else { 400 };
        assert_eq!(manager.patch(path, &json!({})).await.0, expected);
        assert_eq!(manager.get(path).await.0, 404);
    }
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// `marked_for_delete` of the API: reads hide the object, and the network implements it until it is removed.
#[tokio::test]
async fn a_deleted_virtual_server_is_in_effect_for_a_while() {
    for pending in [PendingAnswer::Empty, PendingAnswer::NotFound] {
        let (realized_for, purged_after) = (Duration::from_secs(60), Duration::from_secs(300));
        let deletion = Deletion::Marked { realized_for, purged_after };
        let manager = Manager::behaving(Behaviour { deletion, pending, ..Behaviour::USUAL }).await;
        manager.create_load_balancer().await;
        let server = "/infra/lb-virtual-servers/a";
        realized(&manager, server).await;
        assert_eq!(manager.delete(server).await.0, 200);
        assert_refused(&manager.get(server).await, 404, 600, server);
        assert_eq!(entities(&manager, server).await.1["results"][0]["state"], "REALIZED");
        // Another virtual server at the same address is accepted, but cannot be realized.
        let again = "/infra/lb-virtual-servers/again";
        manager.create(again, super::virtual_server("192.0.2.5", "80", super::TCP)).await;
        let row = realized(&manager, again).await;
        assert_eq!(row["state"], "ERROR");
        assert!(row["alarms"][0]["message"].as_str().unwrap().contains(server), "{row}");
        pass(realized_for).await;
        match pending {
            PendingAnswer::NotFound => assert_refused(&entities(&manager, server).await, 404, 600, server),
            _ => assert_eq!(entities(&manager, server).await.1["results"], json!([])),
        }
        assert_eq!(realized(&manager, again).await["state"], "REALIZED");
        pass(purged_after - realized_for).await;
        assert_refused(&entities(&manager, server).await, 404, 600, server);
    }
}

#[tokio::test]
async fn a_marked_object_may_count_as_a_referrer_and_refuse_a_second_delete() {
    for is_strict in [false, true] {
        let behaviour =
            Behaviour { marked_objects_refer: is_strict, refuses_second_delete: is_strict, ..Behaviour::USUAL };
        let manager = Manager::behaving(behaviour).await;
        manager.create_load_balancer().await;
        let (server, pool) = ("/infra/lb-virtual-servers/a", "/infra/lb-pools/a");
        assert_eq!(manager.delete(server).await.0, 200);
        match is_strict {
            true => {
                assert_refused(&manager.delete(server).await, 400, 500_045, server);
                assert_refused(&manager.delete(pool).await, 400, 500_030, server);
                pass(Duration::from_secs(5)).await;
            }
            false => assert_refused(&manager.delete(server).await, 404, 600, server),
        }
        assert_eq!(manager.delete(pool).await.0, 200);
    }
}

/// KB 322486: S 1, M 10, L 40, XL 80 credits.
#[tokio::test]
async fn a_load_balancer_service_needs_an_edge_cluster_with_room() {
    let manager = Manager::start(Model::small().object("/infra/tier-1s/bare", json!({}))).await;
    let service =
        |gateway: &str, size: &str| json!({"connectivity_path": format!("/infra/tier-1s/{gateway}"), "size": size});
    manager.create("/infra/lb-services/bare", service("bare", "SMALL")).await;
    let row = realized(&manager, "/infra/lb-services/bare").await;
    assert!(row["state"] == "ERROR" && row["alarms"][0]["message"].as_str().unwrap().contains("no edge cluster"));
    for (size, credits, expected) in
        [("SMALL", 1, "REALIZED"), ("MEDIUM", 9, "ERROR"), ("LARGE", 40, "REALIZED"), ("XLARGE", 79, "ERROR")]
    {
        manager.fake.set_edge_credits("/infra/tier-1s/t1", credits);
        let path = format!("/infra/lb-services/{size}");
        manager.create(&path, service("t1", size)).await;
        assert_eq!(realized(&manager, &path).await["state"], expected, "{size}");
        assert_eq!(manager.delete(&path).await.0, 200);
    }
}
