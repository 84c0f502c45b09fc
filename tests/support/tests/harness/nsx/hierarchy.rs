//! Tests of PATCH of `/infra` with children: all of them are written, or none (S17).

use serde_json::{Value, json};
use support::fake_nsx::{Behaviour, Capacity, HierarchicalPatch, Model, Side, Trouble};

use super::{Answer, DENIED, Manager, TCP, assert_refused, virtual_server};

const CHECKED: &str = "/infra?enforce_revision_check=true";

fn child(pool: &Value) -> Value {
    json!({"resource_type": "ChildLBPool", "LBPool": pool})
}

fn infra(pools: &[Value]) -> Value {
    json!({"resource_type": "Infra", "children": pools.iter().map(child).collect::<Vec<_>>()})
}

/// Makes a manager with the load balancer `a` and the pools `b` and `c`. Returns it and the three pools with one more
/// member each.
async fn manager(behaviour: Behaviour) -> (Manager, Vec<Value>) {
    let manager = Manager::behaving(behaviour).await;
    manager.create_load_balancer().await;
    for id in ["b", "c"] {
        manager.create(&format!("/infra/lb-pools/{id}"), json!({"description": id})).await;
    }
    let mut pools = manager.fake.objects_below("/infra/lb-pools");
    for pool in &mut pools {
        pool["members"] = json!([{"ip_address": "10.0.0.1"}, {"ip_address": "10.0.0.2"}]);
    }
    (manager, pools)
}

fn members(manager: &Manager, id: &str) -> usize {
    let pool = manager.fake.object(&format!("/infra/lb-pools/{id}"));
    pool.and_then(|pool| pool["members"].as_array().map(Vec::len)).unwrap_or(0)
}

/// Checks that nothing was written since this number of versions.
#[track_caller]
fn assert_unchanged(manager: &Manager, versions: usize, answer: &Answer) {
    assert_eq!(manager.fake.history_from(versions), [], "{answer:?}");
}

#[tokio::test]
async fn all_children_are_written_by_one_request() {
    for query in ["/infra", CHECKED, "/infra?enforce_revision_check=false"] {
        let (manager, pools) = manager(Behaviour::USUAL).await;
        let versions = manager.fake.history().len();
        manager.fake.reset_counts();
        assert_eq!(manager.patch(query, &infra(&pools)).await, (200, Value::String(String::new())));
        assert_eq!(["a", "b", "c"].map(|id| members(&manager, id)), [2; 3], "{query}");
        let requests = manager.fake.requests();
        let operations: Vec<_> = requests.iter().map(|one| (one.operation.as_str(), one.status)).collect();
        assert_eq!(operations, [("PATCH infra", Some(200))]);
        let written = manager.fake.history_from(versions);
        let paths: Vec<_> = written.iter().map(|version| version.path.as_str()).collect();
        assert_eq!(paths, ["/infra/lb-pools/a", "/infra/lb-pools/b", "/infra/lb-pools/c"]);
        assert!(written.iter().all(|version| version.user == "admin" && version.request == Some(requests[0].number)));
        assert!(written.iter().all(|version| version.object.as_ref().unwrap()["_revision"] == 1), "{written:?}");
    }
}

#[tokio::test]
async fn a_body_replaces_or_merges_as_that_of_a_patch() {
    for patch_merges in [false, true] {
        let (manager, _) = manager(Behaviour { patch_merges, answers_no_content: true, ..Behaviour::USUAL }).await;
        assert_eq!(manager.patch("/infra", &infra(&[json!({"id": "b", "algorithm": "IP_HASH"})])).await.0, 204);
        let stored = manager.fake.object("/infra/lb-pools/b").unwrap();
        assert_eq!((&stored["algorithm"], stored.get("description").is_some()), (&json!("IP_HASH"), patch_merges));
    }
}

#[tokio::test]
async fn one_old_or_missing_revision_refuses_all_children_where_revisions_are_checked() {
    let (manager, mut pools) = manager(Behaviour::USUAL).await;
    manager.fake.change_by_hand("operator", "/infra/lb-pools/b", |pool| pool["description"] = json!("changed"));
    let versions = manager.fake.history().len();
    let stale = manager.patch(CHECKED, &infra(&pools)).await;
    assert_refused(&stale, 412, 206, "/infra/lb-pools/b");
    pools[1].as_object_mut().unwrap().remove("_revision");
    let missing = manager.patch(CHECKED, &infra(&pools)).await;
    assert_refused(&missing, 412, 206, "/infra/lb-pools/b");
    assert_unchanged(&manager, versions, &missing);
    manager.fake.set_behaviour(Behaviour { conflict: Behaviour::OPPOSITE.conflict, ..Behaviour::USUAL });
    assert_refused(&manager.patch(CHECKED, &infra(&pools)).await, 400, 500_127, "/infra/lb-pools/b");
    pools[1]["_revision"] = json!(1);
    assert_eq!(manager.patch(CHECKED, &infra(&pools)).await.0, 200);
    // A deleted object is not created again if its revision is sent, unless revisions are ignored.
    let gone = json!({"id": "d", "_revision": 3});
    assert_refused(
        &manager.patch(CHECKED, &infra(std::slice::from_ref(&gone))).await,
        404,
        500_090,
        "/infra/lb-pools/d",
    );
    assert_eq!(manager.patch(CHECKED, &infra(&[json!({"id": "e"})])).await.0, 200, "a new object has none");
    pools[2]["_revision"] = json!(99);
    assert_eq!(manager.patch("/infra", &infra(&[pools[2].clone(), gone])).await.0, 200, "revisions are ignored");
    assert!(manager.fake.object("/infra/lb-pools/d").is_some());
}

#[tokio::test]
async fn a_child_that_is_gone_may_be_created_again() {
    let (manager, pools) = manager(Behaviour { creates_absent_children: true, ..Behaviour::USUAL }).await;
    assert!(manager.fake.delete_by_hand("operator", "/infra/lb-pools/b"));
    assert_eq!(manager.patch(CHECKED, &infra(&pools)).await.0, 200);
    assert_eq!(["a", "b", "c"].map(|id| members(&manager, id)), [2; 3]);
    assert_eq!(manager.fake.object("/infra/lb-pools/b").unwrap()["_revision"], 0);
    let stale = manager.patch(CHECKED, &infra(&pools)).await;
    assert_refused(&stale, 412, 206, "/infra/lb-pools/a");
}

#[tokio::test]
async fn each_rule_of_a_put_refuses_all_children() {
    let (manager, pools) = manager(Behaviour::USUAL).await;
    let versions = manager.fake.history().len();
    let second = |change: &dyn Fn(&mut Value)| {
        let mut pools = pools.clone();
        change(&mut pools[1]);
        infra(&pools)
    };
    let monitor = "/infra/lb-monitor-profiles/x";
    let field = |name: &str, value: Value| second(&|pool| pool[name] = value.clone());
    let wrapped = |name: &str, value: Value| {
        let mut body = infra(&pools);
        body["children"][1][name] = value;
        body
    };
    for (body, status, code, names) in [
        (field("colour", json!("red")), 400, 220, "colour"),
        (field("min_active_members", json!("1")), 400, 255, "min_active_members"),
        (field("resource_type", json!("LBService")), 400, 255, "LBService"),
        (field("active_monitor_paths", json!([monitor])), 404, 600, monitor),
        (field("member_group", json!({"group_path": "/infra/domains/default/groups/x"})), 404, 600, "groups/x"),
        (field("id", json!("a")), 400, 255, "/infra/lb-pools/a"),
        (field("id", Value::Null), 400, 255, "children[1].LBPool.id"),
        (field("id", json!("a/b")), 400, 255, "children[1].LBPool.id"),
        (field("marked_for_delete", json!(true)), 400, 255, "children[1].LBPool.marked_for_delete"),
        (wrapped("resource_type", json!("ChildLBService")), 400, 255, "ChildLBService"),
        (wrapped("resource_type", Value::Null), 400, 255, "children[1].resource_type"),
        (wrapped("LBPool", json!("b")), 400, 255, "children[1].LBPool"),
        (wrapped("marked_for_delete", json!(true)), 400, 220, "children[1].marked_for_delete"),
        (json!({"children": []}), 400, 255, "resource_type"),
        (json!({"resource_type": "Infra", "children": {}}), 400, 255, "children"),
        (json!({"resource_type": "Infra", "children": ["b"]}), 400, 255, "children[0]"),
        (json!({"resource_type": "Infra", "children": [], "colour": "red"}), 400, 220, "colour"),
    ] {
        let answer = manager.patch(CHECKED, &body).await;
        assert_refused(&answer, status, code, names);
        assert_unchanged(&manager, versions, &answer);
    }
    for (query, names) in [("?force=true", "force"), ("?enforce_revision_check=yes", "enforce_revision_check")] {
        assert_refused(&manager.patch(&format!("/infra{query}"), &infra(&pools)).await, 400, 255, names);
    }
    assert_refused(&manager.get("/infra").await, 405, None, "method");
    assert_refused(&manager.put("/infra", &infra(&pools)).await, 405, None, "method");
    assert_eq!(manager.delete("/infra/lb-pools/b").await.0, 200);
    assert_refused(&manager.patch(CHECKED, &infra(&pools)).await, 400, 500_045, "/infra/lb-pools/b");
}

#[tokio::test]
async fn children_share_the_capacity_of_their_service() {
    for capacity in [Capacity::Refused, Capacity::Alarm, Capacity::Unlimited] {
        let (manager, mut pools) = manager(Behaviour { capacity, ..Behaviour::USUAL }).await;
        let mut server = virtual_server("192.0.2.6", "80", TCP);
        server["pool_path"] = json!("/infra/lb-pools/b");
        manager.create("/infra/lb-virtual-servers/b", server).await;
        let many = |count: usize| (0..count).map(|n| json!({"ip_address": format!("10.0.1.{n}")})).collect::<Vec<_>>();
        // Each change alone is within the limit of 300 members of a SMALL service.
        pools[0]["members"] = json!(many(250));
        pools[1]["members"] = json!(many(51));
        let versions = manager.fake.history().len();
        let over = manager.patch(CHECKED, &infra(&pools)).await;
        if capacity == Capacity::Refused {
            assert_refused(&over, 400, 23_501, "/infra/lb-services/a");
            assert_unchanged(&manager, versions, &over);
        } else {
            assert_eq!(over.0, 200, "{capacity:?}");
        }
        if capacity == Capacity::Alarm {
            let row = super::realization::realized(&manager, "/infra/lb-pools/b").await;
            assert_eq!(row["alarms"][0]["error_details"]["error_code"], 23_501);
        }
    }
    // Capacity that one child frees can be used by another one, in any order.
    let (manager, mut pools) = manager(Behaviour::USUAL).await;
    let many: Vec<Value> = (0..250).map(|n| json!({"ip_address": format!("10.0.1.{n}")})).collect();
    let mut server = virtual_server("192.0.2.6", "80", TCP);
    server["pool_path"] = json!("/infra/lb-pools/b");
    manager.create("/infra/lb-virtual-servers/b", server).await;
    for (full, empty) in [(0, 1), (1, 0)] {
        pools[full]["members"] = json!(many);
        pools[empty]["members"] = json!([]);
        assert_eq!(manager.patch("/infra", &infra(&pools)).await.0, 200);
    }
}

#[tokio::test]
async fn permission_is_needed_for_the_call_and_for_each_child() {
    let (manager, pools) = manager(Behaviour::USUAL).await;
    let versions = manager.fake.history().len();
    for what in ["PATCH infra", "infra", "lb-pools", "PATCH lb-pools", "/infra/lb-pools/b"] {
        manager.fake.deny_writes("admin", what);
        let answer = manager.patch(CHECKED, &infra(&pools)).await;
        assert_refused(&answer, 403, 401, DENIED);
        assert_unchanged(&manager, versions, &answer);
        manager.fake.allow("admin", what);
    }
    manager.fake.set_auditor("admin", true);
    assert_refused(&manager.patch(CHECKED, &infra(&pools)).await, 403, 401, DENIED);
    manager.fake.set_auditor("admin", false);
    assert_eq!(manager.patch(CHECKED, &infra(&pools)).await.0, 200);
}

#[tokio::test]
async fn a_child_of_a_principal_is_protected_from_others() {
    let (certificate, _) = support::fake_nsx::client_identity("ccm");
    let manager = Manager::start(Model::small().principal("ccm", &certificate)).await;
    manager.fake.put_by_hand("ccm", "/infra/lb-pools/p", json!({}));
    let versions = manager.fake.history().len();
    let body = infra(&[json!({"id": "q"}), json!({"id": "p"})]);
    let answer = manager.patch("/infra", &body).await;
    assert_refused(&answer, 403, 289, "/infra/lb-pools/p");
    assert_unchanged(&manager, versions, &answer);
    let overriding = manager.request(reqwest::Method::PATCH, "/infra").header("X-Allow-Overwrite", "true");
    assert_eq!(super::answer(overriding.json(&body)).await.0, 200);
}

#[tokio::test]
async fn the_call_itself_may_be_refused() {
    let (manager, pools) = manager(Behaviour::USUAL).await;
    let versions = manager.fake.history().len();
    for (hierarchical_patch, status) in
        [(HierarchicalPatch::Forbidden, 403), (HierarchicalPatch::NotFound, 404), (HierarchicalPatch::NotAllowed, 405)]
    {
        manager.fake.set_behaviour(Behaviour { hierarchical_patch, ..Behaviour::USUAL });
        // The request is rejected before it counts as a write.
        let hold = manager.fake.hold(1, Side::Request);
        let answer = manager.patch(CHECKED, &infra(&pools)).await;
        assert_eq!((answer.0, hold.is_held()), (status, false), "{answer:?}");
        assert_eq!(answer.1.is_string(), hierarchical_patch == HierarchicalPatch::NotFound, "{answer:?}");
        assert_unchanged(&manager, versions, &answer);
    }
    assert_eq!(manager.put("/infra/lb-pools/b", &pools[1]).await.0, 200, "an object alone is written");
}

#[tokio::test]
async fn holds_count_it_as_one_write_and_troubles_meet_it() {
    let (manager, pools) = manager(Behaviour::USUAL).await;
    for (side, is_done) in [(Side::Request, false), (Side::Answer, true)] {
        let revision = manager.fake.object("/infra/lb-pools/a").unwrap()["_revision"].clone();
        let hold = manager.fake.hold(2, side);
        assert_eq!(manager.patch("/infra", &infra(&pools)).await.0, 200, "three children are one write");
        let versions = manager.fake.history().len();
        let during = async {
            hold.wait().await;
            assert_eq!(manager.fake.history_from(versions).len(), if is_done { 3 } else { 0 });
            hold.release();
        };
        let body = infra(&pools);
        let ((status, _), ()) = tokio::join!(manager.patch("/infra", &body), during);
        assert_eq!(status, 200);
        assert_ne!(manager.fake.object("/infra/lb-pools/a").unwrap()["_revision"], revision);
    }
    let send = || manager.request(reqwest::Method::PATCH, "/infra").json(&infra(&pools)).send();
    for (trouble, is_done) in [(Trouble::Drop, false), (Trouble::Lose, true)] {
        let versions = manager.fake.history().len();
        manager.fake.next("PATCH infra", trouble.clone());
        assert!(send().await.is_err(), "{trouble:?}");
        assert_eq!(manager.fake.history_from(versions).len(), if is_done { 3 } else { 0 }, "{trouble:?}");
    }
    manager.fake.every("PATCH infra", Trouble::throttled());
    assert_eq!(send().await.unwrap().status().as_u16(), 429);
    manager.fake.clear();
    assert_eq!(send().await.unwrap().status().as_u16(), 200);
}
