//! Tests of objects: the fields that a write adds, and the reasons for its rejection (S2 to S9, S14).

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use support::fake_nsx::{Behaviour, Capacity, Conflict, Model};

use super::{Manager, TCP, UDP, answer, assert_refused, route, virtual_server};

/// The example of a virtual server in `nsx.md` 3.18.
#[tokio::test]
async fn a_new_object_has_what_the_manager_fills_in() {
    let manager = Manager::small().await;
    manager.create_load_balancer().await;
    let tag = |scope: &str, tag: &str| json!({"scope": scope, "tag": tag});
    let tags = json!([tag("cluster", "c"), tag("port", "TCP/80"), tag("service", "ns/s")]);
    let mut sent = virtual_server("192.0.2.6", "80", TCP);
    sent["tags"] = tags.clone();
    sent["display_name"] = json!("cluster:c:ns/s");
    sent["default_pool_member_ports"] = json!(["30080"]);
    let put = manager.create("/infra/lb-virtual-servers/v1", sent).await;
    let (status, object) = manager.get("/infra/lb-virtual-servers/v1").await;
    assert_eq!((status, &object), (200, &put));
    for (field, expected) in [
        ("resource_type", json!("LBVirtualServer")),
        ("id", json!("v1")),
        ("display_name", json!("cluster:c:ns/s")),
        ("path", json!("/infra/lb-virtual-servers/v1")),
        ("relative_path", json!("v1")),
        ("parent_path", json!("/infra")),
        ("marked_for_delete", json!(false)),
        ("overridden", json!(false)),
        ("ip_address", json!("192.0.2.6")),
        ("ports", json!(["80"])),
        ("default_pool_member_ports", json!(["30080"])),
        ("enabled", json!(true)),
        ("application_profile_path", json!(TCP)),
        ("pool_path", json!("/infra/lb-pools/a")),
        ("lb_service_path", json!("/infra/lb-services/a")),
        ("access_log_enabled", json!(false)),
        ("log_significant_event_only", json!(false)),
        ("tags", tags),
        ("_create_user", json!("admin")),
        ("_last_modified_user", json!("admin")),
        ("_system_owned", json!(false)),
        ("_protection", json!("NOT_PROTECTED")),
        ("_revision", json!(0)),
    ] {
        assert_eq!(object[field], expected, "{field}");
    }
    assert!(object["unique_id"].is_string() && object["_create_time"].is_u64(), "{object}");
    let (_, pool) = manager.get("/infra/lb-pools/a").await;
    assert_eq!((&pool["display_name"], &pool["algorithm"]), (&json!("a"), &json!("ROUND_ROBIN")));
    assert_eq!(pool["members"][0]["admin_state"], "ENABLED");
    let (_, profile) = manager.get(TCP).await;
    assert_eq!((&profile["_system_owned"], &profile["idle_timeout"]), (&json!(true), &json!(1800)));
    assert_eq!(profile["display_name"], "default-tcp-lb-app-profile");
}

#[tokio::test]
async fn a_put_needs_the_revision_and_replaces() {
    for (conflict, stale, without) in [
        (Conflict::PreconditionFailed, (412, Some(206)), (412, Some(206))),
        (Conflict::ConcurrentChange, (409, None), (409, None)),
        (Conflict::BadRequest(500_087), (400, Some(500_087)), (400, Some(500_127))),
    ] {
        let manager = Manager::behaving(Behaviour { conflict, ..Behaviour::USUAL }).await;
        let path = "/infra/lb-pools/x";
        let mut pool = manager.create(path, json!({"description": "first", "algorithm": "IP_HASH"})).await;
        assert_refused(&manager.put(path, &json!({})).await, without.0, without.1, path);
        pool.as_object_mut().unwrap().remove("description");
        let second = manager.create(path, pool.clone()).await;
        assert_eq!((&second["_revision"], &second["algorithm"]), (&json!(1), &json!("IP_HASH")));
        assert_eq!(second.get("description"), None, "left out is back at its default");
        assert_refused(&manager.put(path, &pool).await, stale.0, stale.1, path);
        let gone = json!({"_revision": 3});
        assert_refused(&manager.put("/infra/lb-pools/y", &gone).await, 404, 500_090, "/infra/lb-pools/y");
    }
}

#[tokio::test]
async fn a_patch_creates_and_updates_without_a_body() {
    for (refuses_stale_patch, patch_merges) in [(false, false), (true, true)] {
        let switches = Behaviour { refuses_stale_patch, patch_merges, ..Behaviour::USUAL };
        let manager = Manager::behaving(switches).await;
        let path = "/infra/tier-1s/t1/static-routes/r";
        let mut body = route("100.96.0.0/24", "172.50.0.13");
        body["description"] = json!("first");
        assert_eq!(manager.patch(path, &body).await, (200, Value::String(String::new())));
        assert_eq!(manager.patch(path, &route("100.96.0.0/24", "172.50.0.14")).await.0, 200);
        let (_, stored) = manager.get(path).await;
        assert_eq!(stored["next_hops"], json!([{"ip_address": "172.50.0.14", "admin_distance": 1}]));
        assert_eq!((&stored["_revision"], stored.get("description").is_some()), (&json!(1), patch_merges));
        manager.fake.set_behaviour(Behaviour { patch_needs_revision: true, ..switches });
        assert_refused(&manager.patch(path, &body).await, 400, 500_127, path);
        body["_revision"] = json!(1);
        assert_eq!(manager.patch(path, &body).await.0, 200);
        body["_revision"] = json!(0);
        let stale = manager.patch(path, &body).await;
        if refuses_stale_patch {
            assert_refused(&stale, 412, 206, path);
        } else {
            assert_eq!(stale.0, 200);
        }
    }
}

#[tokio::test]
async fn unknown_fields_and_wrong_types_are_refused_and_read_only_fields_ignored() {
    let manager = Manager::small().await;
    manager.create_load_balancer().await;
    let long = "x".repeat(257);
    let pool = |field: &str, value: Value| ("/infra/lb-pools/b", json!({field: value}));
    let hops = |hops: Value| ("/infra/tier-1s/t1/static-routes/b", json!({"network": "10.0.0.0/8", "next_hops": hops}));
    let subnet = |start: &str, end: &str| {
        let ranges = json!([{"start": start, "end": end}]);
        let resource_type = "IpAddressPoolStaticSubnet";
        let body = json!({"resource_type": resource_type, "cidr": "192.0.3.0/24", "allocation_ranges": ranges});
        ("/infra/ip-pools/p1/ip-subnets/b", body)
    };
    let server = |field: &str, value: Value| {
        let mut body = virtual_server("192.0.2.9", "80", TCP);
        body[field] = value;
        ("/infra/lb-virtual-servers/b", body)
    };
    for ((path, body), code, names) in [
        (pool("colour", json!("red")), 220, "colour"),
        (pool("members", json!([{"ip_address": "10.0.0.1", "colour": "red"}])), 220, "members[0].colour"),
        (pool("display_name", json!(7)), 255, "display_name"),
        (pool("members", json!([{"ip_address": "node-1"}])), 255, "members[0].ip_address"),
        (pool("members", json!([{"weight": 1}])), 255, "members[0].ip_address"),
        (pool("members", json!([{"ip_address": "10.0.0.1", "port": 80}])), 255, "members[0].port"),
        (pool("min_active_members", json!("1")), 255, "min_active_members"),
        (pool("algorithm", json!("RANDOM")), 255, "algorithm"),
        (pool("tags", json!([{"scope": "a", "tag": long}])), 255, "tags[0].tag"),
        (pool("id", json!("c")), 255, "id"),
        (pool("_revision", json!("0")), 255, "_revision"),
        (pool("resource_type", json!("LBService")), 255, "LBService"),
        (pool("snat_translation", json!({"type": "Automap"})), 255, "snat_translation.type"),
        (server("enabled", json!("true")), 255, "enabled"),
        (server("ports", json!([80])), 255, "ports[0]"),
        (server("ports", json!(["0"])), 255, "ports[0]"),
        (server("ports", json!([])), 255, "ports"),
        (server("default_pool_member_ports", json!(["0"])), 255, "default_pool_member_ports[0]"),
        (hops(json!([])), 255, "next_hops"),
        (hops(json!([{"ip_address": "fe80::1"}])), 23_527, "family"),
        (hops(json!([{"ip_address": "10.0.0.1", "admin_distance": 256}])), 255, "admin_distance"),
        (subnet("192.0.3.9", "192.0.3.1"), 23_527, "192.0.3.9"),
        (subnet("2001:db8::1", "2001:db8::2"), 23_527, "2001:db8::1"),
        (subnet("192.0.3.1", "last"), 255, "allocation_ranges[0].end"),
        (("/infra/ip-pools/p1/ip-subnets/b", json!({"cidr": "192.0.3.0/24"})), 255, "resource_type"),
        (("/infra/lb-monitor-profiles/b", json!({"monitor_port": 80})), 255, "resource_type"),
        (("/infra/lb-monitor-profiles/b", json!({"resource_type": "LBFastTcpProfile"})), 255, "LBFastTcpProfile"),
        (("/infra/lb-app-profiles/b", json!({})), 255, "resource_type"),
        (("/infra/lb-persistence-profiles/b", json!({"timeout": 10})), 255, "resource_type"),
    ] {
        assert_refused(&manager.put(path, &body).await, 400, code, names);
        assert_eq!(manager.get(path).await.0, 404, "nothing was written: {body}");
    }
    let (path, body) = subnet("192.0.3.1", "192.0.3.9");
    manager.create(path, body).await;
    assert_eq!(manager.get("/infra/ip-pools/p1").await.1["pool_usage"]["total_ips"], 109);
    let (path, body) = pool("_create_time", json!("ignored"));
    let stored = manager.create(path, body).await;
    assert!(stored["_create_time"].is_u64(), "{stored}");
    let text = manager.request(Method::PUT, "/infra/lb-pools/c").body("{}");
    assert_refused(&answer(text).await, 415, None, "Content-Type");
    let half = manager.request(Method::PUT, "/infra/lb-pools/c").header("content-type", "application/json").body("{");
    assert_refused(&answer(half).await, 400, 220, "Json");
    let (status, page) = manager.get("/infra/lb-colours").await;
    assert!(status == 404 && page.is_string(), "{page}");
    assert_refused(&manager.put("/infra/sites/x", &json!({})).await, 405, None, "method");
}

#[tokio::test]
async fn subnets_are_carved_from_a_block_until_it_is_exhausted() {
    let manager = Manager::start(Model::small().block_pool("b", "block", "198.51.100.0/28", 8)).await;
    let of_block = |size: i64| json!({"resource_type": "IpAddressPoolBlockSubnet", "ip_block_path": "/infra/ip-blocks/b", "size": size});
    let subnet = |id: &str| format!("/infra/ip-pools/b/ip-subnets/{id}");
    manager.create(&subnet("s2"), of_block(4)).await;
    let (_, stored) = manager.get(&subnet("s2")).await;
    assert!(stored.get("allocation_ranges").is_none() && stored.get("cidr").is_none(), "{stored}");
    assert_refused(&manager.put(&subnet("s3"), &of_block(8)).await, 400, 520_012, "/infra/ip-blocks/b");
    manager.create(&subnet("s3"), of_block(4)).await;
    assert_refused(&manager.put(&subnet("s4"), &of_block(1)).await, 400, 520_012, "/infra/ip-blocks/b");
    assert_eq!(
        manager.put(&subnet("s4"), &json!({"resource_type": "IpAddressPoolBlockSubnet", "size": 4})).await.0,
        400
    );
    // The gateway of each subnet has the first address.
    assert_eq!(manager.get("/infra/ip-pools/b").await.1["pool_usage"]["total_ips"], 7 + 3 + 3);
    assert_refused(&manager.delete("/infra/ip-blocks/b").await, 400, 500_030, &subnet("s1"));
    assert_eq!(manager.delete(&subnet("s3")).await.0, 200);
    manager.create(&subnet("s5"), of_block(4)).await;
}

#[tokio::test]
async fn references_must_exist() {
    let manager = Manager::small().await;
    manager.create_load_balancer().await;
    let server = |field: &str, to: &str| {
        let mut body = virtual_server("192.0.2.9", "80", TCP);
        body[field] = json!(to);
        ("/infra/lb-virtual-servers/b", body, to.to_owned())
    };
    let route = route("10.0.0.0/8", "10.1.0.1");
    for (path, body, names) in [
        server("lb_service_path", "/infra/lb-services/x"),
        server("pool_path", "/infra/lb-pools/x"),
        server("pool_path", "/infra/lb-services/a"),
        server("application_profile_path", "/infra/lb-app-profiles/x"),
        server("lb_persistence_profile_path", "/infra/lb-persistence-profiles/x"),
        ("/infra/lb-pools/b", json!({"active_monitor_paths": ["/infra/lb-monitor-profiles/x"]}), "-profiles/x".into()),
        ("/infra/lb-services/b", json!({"connectivity_path": "/infra/tier-1s/x"}), "/infra/tier-1s/x".into()),
        ("/infra/tier-1s/x/static-routes/b", route, "/infra/tier-1s/x".into()),
        ("/infra/ip-pools/x/ip-allocations/b", json!({}), "/infra/ip-pools/x".into()),
    ] {
        assert_refused(&manager.put(path, &body).await, 404, 600, &names);
        assert_refused(&manager.patch(path, &body).await, 404, 600, &names);
    }
    assert_refused(&manager.delete("/infra/lb-pools/x").await, 404, 600, "/infra/lb-pools/x");
    assert_refused(&manager.get("/infra/ip-pools/x/ip-allocations").await, 404, 600, "/infra/ip-pools/x ");
    let route = "/infra/tier-1s/x/static-routes/b";
    assert_refused(&manager.get(route).await, 404, 600, "/infra/tier-1s/x ");
    assert_refused(&manager.delete(route).await, 404, 600, "/infra/tier-1s/x ");
}

#[tokio::test]
async fn what_is_referenced_is_not_deleted_unless_forced() {
    let manager = Manager::small().await;
    manager.create_load_balancer().await;
    manager.create("/infra/lb-app-profiles/a", json!({"resource_type": "LBFastTcpProfile"})).await;
    let mut server = virtual_server("192.0.2.7", "80", "/infra/lb-app-profiles/a");
    server["access_list_control"] = json!({"action": "ALLOW", "group_path": "/infra/domains/default/groups/g"});
    let addresses = json!([{"resource_type": "IPAddressExpression", "ip_addresses": ["10.0.0.0/8"]}]);
    manager.create("/infra/domains/default/groups/g", json!({"expression": addresses})).await;
    manager.create("/infra/lb-virtual-servers/b", server).await;
    manager.create("/infra/ip-pools/p1/ip-allocations/a", json!({})).await;
    for (path, by) in [
        ("/infra/lb-services/a", "/infra/lb-virtual-servers/a"),
        ("/infra/lb-pools/a", "/infra/lb-virtual-servers/a"),
        ("/infra/lb-monitor-profiles/a", "/infra/lb-pools/a"),
        ("/infra/tier-1s/t1", "/infra/lb-services/a"),
        ("/infra/lb-app-profiles/a", "/infra/lb-virtual-servers/b"),
        ("/infra/domains/default/groups/g", "/infra/lb-virtual-servers/b"),
        ("/infra/ip-pools/p1", "/infra/ip-pools/p1/ip-allocations/a"),
        ("/infra/ip-pools/p1/ip-subnets/s1", "/infra/ip-pools/p1/ip-allocations/a"),
    ] {
        assert_refused(&manager.delete(path).await, 400, 500_030, by);
    }
    assert_refused(&manager.delete("/infra/tier-1s/t1?force=true").await, 400, 500_030, "/infra/lb-services/a");
    assert_eq!(manager.delete("/infra/lb-pools/a?force=true").await.0, 200);
    for path in ["lb-virtual-servers/a", "lb-virtual-servers/b", "lb-services/a", "lb-monitor-profiles/a"] {
        assert_eq!(manager.delete(&format!("/infra/{path}")).await.0, 200, "{path} is free");
    }
}

#[tokio::test]
async fn a_gateway_that_has_a_route_is_not_deleted() {
    let manager = Manager::small().await;
    for gateway in ["/infra/tier-1s/t2", "/infra/tier-0s/t2"] {
        let path = format!("{gateway}/static-routes/r");
        manager.create(gateway, json!({})).await;
        manager.create(&path, route("10.0.0.0/24", "192.0.2.1")).await;
        for query in ["", "?force=true"] {
            assert_refused(&manager.delete(&format!("{gateway}{query}")).await, 400, 500_030, &path);
        }
        assert_eq!(manager.delete(&path).await.0, 200, "{path}");
        assert_eq!(manager.delete(gateway).await.0, 200, "{gateway} is free");
    }
}

#[tokio::test]
async fn gateways_and_listeners_are_taken_once() {
    let manager = Manager::small().await;
    manager.create_load_balancer().await;
    let second = json!({"connectivity_path": "/infra/tier-1s/t1"});
    assert_refused(&manager.put("/infra/lb-services/b", &second).await, 400, 23_527, "/infra/lb-services/a");
    manager.create("/infra/lb-services/b", json!({})).await;
    let same = virtual_server("192.0.2.5", "80", TCP);
    assert_refused(&manager.put("/infra/lb-virtual-servers/b", &same).await, 400, 23_527, "lb-virtual-servers/a");
    let range = virtual_server("192.0.2.5", "70-90", TCP);
    assert_refused(&manager.put("/infra/lb-virtual-servers/b", &range).await, 400, 23_527, "lb-virtual-servers/a");
    manager.create("/infra/lb-virtual-servers/b", virtual_server("192.0.2.5", "80", UDP)).await;
    manager.create("/infra/lb-virtual-servers/c", virtual_server("192.0.2.5", "81", TCP)).await;
    let alone = json!({"ip_address": "192.0.2.6", "ports": ["80"], "application_profile_path": TCP});
    let alone = manager.create("/infra/lb-virtual-servers/d", alone).await;
    assert_eq!(alone["enabled"], true, "also without a service");
}

#[tokio::test]
async fn a_missing_reference_and_an_id_in_use_are_refused_in_two_ways() {
    let body = json!({"active_monitor_paths": ["/infra/lb-monitor-profiles/x"]});
    for (missing_with_500012, refused) in [(false, (404, 600)), (true, (400, 500_012))] {
        let manager = Manager::behaving(Behaviour { missing_with_500012, ..Behaviour::USUAL }).await;
        let answer = manager.put("/infra/lb-pools/a", &body).await;
        assert_refused(&answer, refused.0, refused.1, "/infra/lb-monitor-profiles/x");
        assert_refused(&manager.get("/infra/lb-pools/a").await, 404, 600, "/infra/lb-pools/a");
    }
    for (exists_with_500127, refused) in [(false, (412, 206)), (true, (400, 500_127))] {
        let manager = Manager::behaving(Behaviour { exists_with_500127, ..Behaviour::USUAL }).await;
        manager.create("/infra/lb-pools/a", json!({})).await;
        let again = manager.put("/infra/lb-pools/a", &json!({})).await;
        assert_refused(&again, refused.0, refused.1, "/infra/lb-pools/a");
        let stale = manager.put("/infra/lb-pools/a", &json!({"_revision": 9})).await;
        assert_refused(&stale, 412, 206, "/infra/lb-pools/a");
    }
}

fn of_addresses(addresses: &[&str]) -> Value {
    json!({"resource_type": "IPAddressExpression", "ip_addresses": addresses})
}

#[tokio::test]
async fn a_group_may_be_limited_to_one_expression_and_lack_its_type() {
    let path = "/infra/domains/default/groups/a";
    let or = json!({"resource_type": "ConjunctionOperator", "conjunction_operator": "OR"});
    let two = json!({"expression": [of_addresses(&["10.0.0.0/8"]), or, of_addresses(&["fd00::/8"])]});
    let typed = json!({"expression": [of_addresses(&["10.0.0.0/8"])], "group_type": ["IPAddress"]});
    let manager = Manager::behaving(Behaviour::USUAL).await;
    for (id, body) in [("two", &two), ("typed", &typed)] {
        manager.create(&format!("/infra/domains/default/groups/{id}"), body.clone()).await;
    }
    let manager =
        Manager::behaving(Behaviour { refuses_several_expressions: true, lacks_group_type: true, ..Behaviour::USUAL });
    let manager = manager.await;
    assert_refused(&manager.put(path, &two).await, 400, 255, "IPAddressExpression");
    assert_refused(&manager.put(path, &typed).await, 400, 220, "group_type");
    manager.create(path, json!({"expression": typed["expression"]})).await;
}

#[tokio::test]
async fn what_the_manager_adds_stays_when_it_is_sent_back() {
    let manager = Manager::behaving(Behaviour::USUAL).await;
    let path = "/infra/domains/default/groups/a";
    let mut group = manager.create(path, json!({"expression": [of_addresses(&["10.0.0.0/8"])]})).await;
    let before = group["expression"][0].clone();
    let id = before["id"].as_str().unwrap();
    assert_eq!((&before["parent_path"], group["_links"].is_array()), (&json!(path), true), "{group}");
    assert_eq!(before["path"], json!(format!("{path}/ip-address-expressions/{id}")));
    group["expression"][0]["ip_addresses"] = json!(["10.1.0.0/16"]);
    let sent_back = manager.create(path, group.clone()).await;
    assert_eq!(sent_back["expression"][0]["id"], before["id"]);
    let anew = manager.create(path, json!({"expression": [of_addresses(&["10.0.0.0/8"])], "_revision": 1})).await;
    assert_ne!(anew["expression"][0]["id"], before["id"], "another expression");
    let pool = manager.create("/infra/lb-pools/a", json!({})).await;
    assert_eq!(pool["snat_translation"], json!({"type": "LBSnatAutoMap", "port_overload": 32}));
    let disabled = json!({"snat_translation": {"type": "LBSnatDisabled"}});
    let disabled = manager.create("/infra/lb-pools/b", disabled).await;
    assert_eq!(disabled["snat_translation"], json!({"type": "LBSnatDisabled"}));
}

#[tokio::test]
async fn the_counters_of_a_service_may_be_old_or_not_there_yet() {
    tokio::time::pause();
    let usage = |manager: &Manager| {
        let request = manager.request(Method::GET, "/infra/lb-services/a/service-usage");
        async move { answer(request).await.1 }
    };
    let flat = Behaviour { usage_in_results: false, ..Behaviour::USUAL };
    let lagging = Behaviour { usage_lag: Duration::from_secs(30), usage_comes_late: true, ..flat };
    let manager = Manager::behaving(lagging).await;
    manager.create_load_balancer().await;
    assert_eq!(usage(&manager).await, json!({}), "a new one");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(usage(&manager).await["current_virtual_server_count"], 1);
    manager.delete("/infra/lb-virtual-servers/a").await;
    assert_eq!(usage(&manager).await["current_virtual_server_count"], 1, "as a moment ago");
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(usage(&manager).await["current_virtual_server_count"], 0);
    manager.fake.set_behaviour(Behaviour { usage_in_results: true, ..lagging });
    assert_eq!(usage(&manager).await["results"][0]["current_virtual_server_count"], 0);
}

#[tokio::test]
async fn a_service_takes_what_its_size_permits() {
    for capacity in [Capacity::Refused, Capacity::Alarm, Capacity::Unlimited] {
        let manager = Manager::behaving(Behaviour { capacity, ..Behaviour::USUAL }).await;
        manager.create_load_balancer().await;
        let members: Vec<Value> =
            (0..301).map(|n| json!({"ip_address": format!("10.0.{}.{}", n / 200, n % 200)})).collect();
        let full = json!({"members": members[..300], "_revision": 0});
        manager.create("/infra/lb-pools/a", full).await;
        let (_, usage) = manager.get("/infra/lb-services/a/service-usage").await;
        let usage = &usage["results"][0];
        assert_eq!((&usage["pool_member_capacity"], &usage["severity"]), (&json!(300), &json!("RED")), "{usage}");
        let over = manager.put("/infra/lb-pools/a", &json!({"members": members, "_revision": 1})).await;
        for port in 81..100 {
            let path = format!("/infra/lb-virtual-servers/p{port}");
            let alone = json!({"ip_address": "192.0.2.6", "ports": [port.to_string()], "application_profile_path": TCP,
                "lb_service_path": "/infra/lb-services/a"});
            manager.create(&path, alone).await;
        }
        let more = manager.put("/infra/lb-virtual-servers/more", &virtual_server("192.0.2.7", "80", TCP)).await;
        match capacity {
            Capacity::Refused => {
                assert_refused(&over, 400, 23_501, "/infra/lb-pools/a");
                assert_refused(&more, 400, 23_501, "/infra/lb-virtual-servers/more");
            }
            _ => assert_eq!((over.0, more.0), (200, 200)),
        }
        if capacity == Capacity::Alarm {
            let row = super::realization::realized(&manager, "/infra/lb-virtual-servers/more").await;
            assert_eq!(
                (&row["state"], &row["alarms"][0]["error_details"]["error_code"]),
                (&json!("ERROR"), &json!(23_501))
            );
        }
    }
}

#[tokio::test]
async fn a_deleted_object_may_be_marked_and_purged_later() {
    let deletion = Behaviour::THIRD.deletion;
    let manager = Manager::behaving(Behaviour { deletion, ..Behaviour::USUAL }).await;
    let path = "/infra/lb-pools/x";
    manager.create(path, json!({})).await;
    assert_eq!(manager.delete(path).await.0, 200);
    assert_refused(&manager.get(path).await, 404, 600, path);
    assert_refused(&manager.delete(path).await, 404, 600, path);
    assert_refused(&manager.put(path, &json!({})).await, 400, 500_045, path);
    assert_refused(&manager.patch(path, &json!({})).await, 400, 500_045, path);
    assert_eq!(manager.get("/infra/lb-pools").await.1["results"], json!([]));
    let (_, with) = manager.get("/infra/lb-pools?include_mark_for_delete_objects=true").await;
    assert_eq!(with["results"][0]["marked_for_delete"], true);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(300)).await;
    tokio::time::resume();
    manager.create(path, json!({})).await;
}

#[tokio::test]
async fn objects_of_a_principal_are_protected_from_others() {
    let (certificate, _) = support::fake_nsx::client_identity("ccm");
    let manager = Manager::start(Model::small().principal("ccm", &certificate)).await;
    let path = "/infra/tier-1s/t1/static-routes/r";
    manager.fake.put_by_hand("ccm", path, route("10.0.0.0/8", "10.1.0.1"));
    let (_, stored) = manager.get(path).await;
    assert_eq!((&stored["_protection"], &stored["_create_user"]), (&json!("REQUIRE_OVERRIDE"), &json!("ccm")));
    let other = route("10.0.0.0/8", "10.1.0.2");
    assert_refused(&manager.patch(path, &other).await, 403, 289, "ccm");
    assert_refused(&manager.put(path, &stored).await, 403, 289, "ccm");
    assert_refused(&manager.delete(path).await, 403, 289, "ccm");
    let overriding = manager.request(Method::PATCH, path).header("X-Allow-Overwrite", "true").json(&other);
    assert_eq!(answer(overriding).await.0, 200);
    let (_, stored) = manager.get(path).await;
    assert_eq!(stored["_last_modified_user"], "admin");
}
