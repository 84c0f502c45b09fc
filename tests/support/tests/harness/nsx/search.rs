//! Tests of the search (S13).

use std::time::Duration;

use serde_json::{Value, json};
use support::eventually;
use support::fake_nsx::{Behaviour, Model};

use super::{Answer, Manager, assert_refused, route};
use crate::LIMIT;

async fn search(manager: &Manager, query: &str) -> Answer {
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    manager.get(&format!("/search/query?query={escaped}")).await
}

async fn ids(manager: &Manager, query: &str) -> Vec<Value> {
    let (status, found) = search(manager, query).await;
    assert_eq!(status, 200, "{query}: {found}");
    found["results"].as_array().unwrap().iter().map(|row| row["id"].clone()).collect()
}

fn tagged(mut route: Value, tags: &[(&str, &str)]) -> Value {
    route["tags"] = tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect();
    route
}

const CLUSTER: &str = "vsphere.k8s.io/cluster-name";
const NODE: &str = "vsphere.k8s.io/node-name";

/// RT-01, with the query of W-05 as it is sent.
#[tokio::test]
async fn routes_are_found_by_cluster_and_node() {
    let manager = Manager::behaving(Behaviour { index_delay: Duration::ZERO, ..Behaviour::USUAL }).await;
    let ids =
        ["62d347a4-1b70-435e-b92a-9a61453843ee_100.96.0.0_24", "a4775ec4-8b68-42ea-86fc-d17390e4c373_100.96.1.0_24"];
    let rows = [("node1", "100.96.0.0/24", "172.50.0.13"), ("node2", "100.96.1.0/24", "172.50.0.137")];
    for (id, (node, network, hop)) in ids.iter().zip(rows) {
        let body = tagged(route(network, hop), &[(CLUSTER, "kubernetes"), (NODE, node)]);
        assert_eq!(manager.patch(&format!("/infra/tier-1s/t1/static-routes/{id}"), &body).await.0, 200);
    }
    let other = tagged(route("100.97.0.0/24", "172.50.0.1"), &[(CLUSTER, "other")]);
    manager.patch("/infra/tier-1s/t1/static-routes/x", &other).await;
    let wire = "query=resource_type:StaticRoutes%20AND%20tags.scope:vsphere.k8s.io%5C%2Fcluster-name%20AND%20tags.tag:kubernetes";
    let (status, found) = manager.get(&format!("/search/query?{wire}")).await;
    assert_eq!((status, &found["result_count"]), (200, &json!(2)), "{found}");
    for (row, (id, (node, network, hop))) in found["results"].as_array().unwrap().iter().zip(ids.iter().zip(rows)) {
        assert_eq!((&row["id"], &row["network"]), (&json!(id), &json!(network)));
        assert_eq!(row["next_hops"], json!([{"ip_address": hop, "admin_distance": 1}]));
        assert_eq!(row["path"], format!("/infra/tier-1s/t1/static-routes/{id}"));
        let tags = json!([{"scope": CLUSTER, "tag": "kubernetes"}, {"scope": NODE, "tag": node}]);
        assert_eq!((&row["tags"], &row["resource_type"]), (&tags, &json!("StaticRoutes")));
    }
}

#[tokio::test]
async fn terms_ignore_case_and_tags_are_not_tied() {
    for (search_matches_words, words) in [(false, vec![]), (true, vec!["prod-eu"])] {
        let switches = Behaviour { index_delay: Duration::ZERO, search_matches_words, ..Behaviour::USUAL };
        let mut model = Model::small().behaviour(switches);
        for (id, tags) in [
            ("exact", [(CLUSTER, "prod"), ("owner", "me")]),
            ("case", [(CLUSTER, "PROD"), ("owner", "me")]),
            ("swapped", [(CLUSTER, "test"), ("owner", "prod")]),
            ("prod-eu", [(CLUSTER, "prod-eu"), ("owner", "me")]),
        ] {
            let body = tagged(route("10.0.0.0/8", "10.1.0.1"), &tags);
            model = model.object(&format!("/infra/tier-1s/t1/static-routes/{id}"), body);
        }
        let manager = Manager::start(model).await;
        let scope = r"tags.scope:vsphere.k8s.io\/cluster-name";
        let found = |ids: &[&str]| -> Vec<Value> { ids.iter().map(|id| json!(id)).collect() };
        let prod = [vec!["case", "exact"], words, vec!["swapped"]].concat();
        assert_eq!(ids(&manager, &format!("{scope} AND tags.tag:prod")).await, found(&prod));
        assert_eq!(ids(&manager, "id:ex* OR id:cas?").await, found(&["case", "exact"]));
        let both = "resource_type:StaticRoutes AND (id:exact OR id:case) AND NOT tags.tag:\"PROD\"";
        assert_eq!(ids(&manager, both).await, found(&[]));
        for (query, names) in [
            ("tags.scope:vsphere.k8s.io/cluster-name", "/"),
            ("tags.tag:a:b", ":"),
            ("(id:a", "parenthesis"),
            ("id:\"a", "quote"),
            ("id:a id:b", "AND"),
            ("", "term"),
        ] {
            assert_refused(&search(&manager, query).await, 400, 60_500, names);
        }
        assert_refused(&manager.get("/search/query").await, 400, 255, "query");
    }
}

#[tokio::test]
async fn the_index_is_behind_and_pages_have_numbers() {
    let switches = Behaviour { index_delay: Duration::from_secs(3600), ..Behaviour::USUAL };
    let manager = Manager::behaving(switches).await;
    for id in ["a", "b", "c"] {
        manager.create(&format!("/infra/lb-pools/{id}"), json!({})).await;
    }
    assert_eq!(ids(&manager, "resource_type:LBPool").await, Vec::<Value>::new());
    assert_eq!(ids(&manager, "resource_type:Tier1").await, [json!("t1")], "what was there before");
    manager.fake.set_behaviour(Behaviour { index_delay: Duration::from_millis(100), ..switches });
    let found =
        eventually("the index has caught up", LIMIT, async || match ids(&manager, "resource_type:lbpool").await {
            found if found.len() == 3 => Ok(found),
            found => Err(format!("{found:?}")),
        })
        .await;
    assert_eq!(found, [json!("a"), json!("b"), json!("c")]);
    let (_, first) = manager.get("/search/query?query=resource_type:LBPool&page_size=2").await;
    assert_eq!((&first["cursor"], &first["result_count"]), (&json!("2"), &json!(3)));
    let (_, last) = manager.get("/search/query?query=resource_type:LBPool&page_size=2&cursor=2").await;
    assert_eq!((&last["results"][0]["id"], &last["cursor"]), (&json!("c"), &json!("3")), "also on the last page");
    manager.fake.set_behaviour(Behaviour { search_has_last_cursor: false, ..manager.fake.behaviour() });
    let (_, last) = manager.get("/search/query?query=resource_type:LBPool&page_size=2&cursor=2").await;
    assert_eq!(last.get("cursor"), None);
}
