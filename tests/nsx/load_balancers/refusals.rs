//! Reactions to unexpected answers.

use std::time::Duration;

use ccm::cloud::Error;
use ccm::providers::vsphere::config::{Class, IpPool, LoadBalancerConfig as Config, Profile};
use serde_json::{Value, json};
use support::fake_nsx::go::{GoBalancer, TCP_PROFILE};
use support::fake_nsx::{Behaviour, Model, Trouble};

use super::world::*;
use crate::routes::world::node;
use crate::world::advance;

/// Pause before a retry that needs a change by an operator.
const LATER: Duration = Duration::from_secs(300);

/// After an `Invalid` answer the daemon would wait for a change of the Service.
#[tokio::test]
async fn an_answer_that_is_not_known_is_tried_again_after_five_minutes() {
    for (operation, has_wish) in [
        ("DELETE lb-virtual-servers", false),
        ("GET lb-virtual-servers", false),
        ("GET realized-entities", false),
        ("LIST ip-subnets", true),
    ] {
        let world = World::start(Some(UID)).await;
        let mut one = one();
        one.spec.as_mut().unwrap().load_balancer_ip = has_wish.then(|| "192.0.2.50".to_owned());
        world.fake.next(operation, Trouble::error(400, Some(500_042)));
        let failed = match world.ensure(&one).await {
            Ok(status) => world.ensure(&moved(&with_status(one, status), &[("TCP", 81, 30080)])).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(failed, Error::Refused { .. }), "{operation}: {failed:?}");
        assert_eq!((word(&failed).as_str(), failed.retry_after()), ("NSXRefused", Some(LATER)));
    }
}

/// Removes the tag of the Service.
fn strip(world: &World, path: &str) {
    world.fake.change_by_hand("operator", path, |object| {
        object["tags"].as_array_mut().unwrap().retain(|tag| tag["scope"] != "service");
    });
}

#[tokio::test]
async fn an_object_whose_tags_were_removed_is_replaced_where_no_address_depends_on_it() {
    for collection in ["lb-pools", "lb-monitor-profiles"] {
        let mut world = World::start(Some(UID)).await;
        let one = world.ensured(&one()).await;
        let path = world.path_of(collection);
        strip(&world, &path);
        world.restart();
        world.sent();
        let status = world.ensure(&one).await.unwrap_or_else(|error| panic!("{collection}: {error}"));
        assert_eq!(Some(status), one.status.clone().and_then(|status| status.load_balancer));
        let sent = world.sent();
        assert!(sent.len() < 25, "{collection}: {sent:?}");
        assert_eq!(world.objects(collection).len(), 2, "nothing shows whose the first one is");
        until("it is held", 1, || world.held()).await;
        assert!(world.fake.delete_by_hand("operator", &path));
        super::orphans::reading(&world).await;
        until("it is not held any more", 0, || world.held()).await;
        let sent = world.sent();
        world.ensure(&one).await.unwrap();
        assert_eq!(world.sent(), [""; 0], "{sent:?}");
    }
}

/// With two families, the second load balancer has the virtual server.
#[tokio::test]
async fn a_virtual_server_whose_tags_were_removed_is_named() {
    for (policy, families, expected) in
        [("SingleStack", &["IPv4"][..], [1, 1, 1, 1, 1]), ("PreferDualStack", &["IPv4", "IPv6"], [1, 2, 2, 2, 2])]
    {
        let mut world = World::dual(Some(UID)).await;
        let one = world.ensured(&of_families(one(), policy, families)).await;
        let servers = world.objects("lb-virtual-servers");
        let server = servers.iter().max_by_key(|server| server["tags"].to_string().contains("ipfamily")).unwrap();
        let path = server["path"].as_str().unwrap();
        strip(&world, path);
        world.restart();
        world.sent();
        let error = world.ensure(&one).await.unwrap_err();
        assert_eq!((word(&error).as_str(), error.retry_after()), ("NSXRefused", Some(LATER)), "{policy}");
        assert!(error.to_string().contains(path) && error.to_string().contains("\"service\""), "{error}");
        let sent = world.sent();
        assert!(sent.len() < 25, "{sent:?}");
        assert_eq!(world.counted(), expected, "{policy}");
    }
}

/// Another client deleted the load balancer service by force. The last pass still has it.
#[tokio::test]
async fn a_load_balancer_service_that_another_client_deleted_is_made_again_at_once() {
    for (missing_with_500012, exists_with_500127) in [(false, false), (true, false), (true, true)] {
        let case = format!("{missing_with_500012}, {exists_with_500127}");
        let behaviour = Behaviour { missing_with_500012, exists_with_500127, ..Behaviour::USUAL };
        let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        world.ensured(&one()).await;
        assert!(world.fake.force_delete_by_hand("operator", &world.path_of("lb-services")), "{case}");
        world.sent();
        let other = service("ns/other", &[("TCP", 80, 30081)]);
        world.ensure(&other).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(world.counted(), [1, 2, 2, 2, 2], "{case}");
        let sent = world.sent();
        assert!(!sent.contains(&"LIST lb-services".to_owned()), "{case}: no reading is needed: {sent:?}");
    }
}

/// NSX rejects the path of an existing object as invalid. This is no evidence that the load balancer service was
/// deleted.
#[tokio::test]
async fn an_invalid_path_of_an_object_that_exists_is_a_refusal() {
    let world = World::start(Some(UID)).await;
    world.ensured(&one()).await;
    let message = format!("The path=[{}] is invalid", world.path_of("lb-services"));
    let body = json!({"httpStatus": "BAD_REQUEST", "error_code": 500_012, "error_message": message}).to_string();
    world.fake.every("PUT lb-virtual-servers", Trouble::answer(400, "application/json", &body));
    world.sent();
    let error = world.try_ensure(&service("ns/other", &[("TCP", 80, 30081)])).await.unwrap_err();
    assert_eq!(word(&error), "NSXObjectMissing", "{error}");
    assert!(error.to_string().contains(&message), "{error}");
    let sent = world.sent();
    assert!(!sent.contains(&"PUT lb-services".to_owned()), "{sent:?}");
}

/// The last pass lacks one virtual server of the Service. A new virtual server would get the same id.
#[tokio::test]
async fn a_refused_change_leads_to_a_reading_that_shows_the_cause() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&one()).await;
    let mut other = world.objects("lb-virtual-servers").remove(0);
    other["ports"] = json!(["81"]);
    for tag in other["tags"].as_array_mut().unwrap() {
        if tag["scope"] == "port" {
            tag["tag"] = json!("TCP/81");
        }
    }
    let path = "/infra/lb-virtual-servers/2c1b5e0c-6f0f-4e0e-9a38-3a7d1f1e9b11";
    other.as_object_mut().unwrap().retain(|name, _| !name.starts_with('_') && !name.ends_with("path") && name != "id");
    for name in ["pool_path", "lb_service_path", "application_profile_path"] {
        other[name] = world.objects("lb-virtual-servers")[0][name].clone();
    }
    world.fake.put_by_hand("operator", path, other);
    let two = moved(&one, &[("TCP", 80, 30080), ("TCP", 81, 30081)]);
    let announced = world.announcement("ns/s");
    let error = world.try_ensure(&two).await.unwrap_err();
    assert_eq!(word(&error), "NSXRefused", "{error}");
    advance(Duration::from_secs(10)).await;
    announced.await;
    world.ensure(&two).await.unwrap();
    assert_eq!(world.counted(), [1, 2, 2, 2, 1]);
    let servers = world.objects("lb-virtual-servers");
    let found = servers.iter().find(|server| server["path"] == path).unwrap();
    assert_eq!(found["default_pool_member_ports"], json!(["30081"]));
}

/// A temporary failure of a proxy does not show that NSX rejects requests for several pools.
#[tokio::test]
async fn a_page_of_a_proxy_does_not_turn_writes_of_several_pools_off() {
    for status in [403, 404] {
        let world = World::start(Some(UID)).await;
        let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)])).await;
        world.cluster.remove("n2");
        for operation in ["PATCH infra", "PUT lb-pools"] {
            world.fake.every(operation, Trouble::answer(status, "text/html", "<html><body>not here</body></html>"));
        }
        assert_eq!(word(world.update(&[&one]).await[0].as_ref().unwrap_err()), "NSXUnavailable");
        world.fake.clear();
        world.sent();
        assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
        assert_eq!(world.sent(), ["LIST lb-pools", "PATCH infra"], "{status}");
    }
}

/// An expired session does not show that NSX rejects requests for several pools, with any error text of NSX.
#[tokio::test]
async fn a_session_that_is_over_does_not_turn_writes_of_several_pools_off() {
    for refusal in [Trouble::expired(), Trouble::rejected(), Trouble::error(403, Some(98))] {
        let world = World::start(Some(UID)).await;
        let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)])).await;
        world.cluster.remove("n2");
        world.fake.every("PATCH infra", refusal);
        world.sent();
        assert_eq!(word(world.update(&[&one]).await[0].as_ref().unwrap_err()), "NSXUnavailable");
        assert!(!world.sent().contains(&"PUT lb-pools".to_owned()));
        world.fake.clear();
        assert!(world.update(&[&one]).await.iter().all(Result::is_ok));
        assert!(world.sent().contains(&"PATCH infra".to_owned()));
    }
}

/// NSX always stores something different from the written object.
#[tokio::test]
async fn a_change_without_effect_is_named() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&one()).await;
    world.fake.every("PUT lb-monitor-profiles", Trouble::Rewrite(|body| body.replace("30090", "30080")));
    let error = world.ensure(&moved(&one, &[("TCP", 80, 30090)])).await.unwrap_err();
    assert_eq!(word(&error), "NSXRefused");
    let path = world.path_of("lb-monitor-profiles");
    assert!(error.to_string().contains(&format!("change {path}")), "{error}");
}

/// Returns the tags of an object at the time of the first deletion of a virtual server.
fn tags_at_the_first_deletion(world: &World, collection: &str) -> Value {
    let history = world.fake.history();
    let is_of = |path: &str, collection: &str| path.contains(&format!("/{collection}/"));
    let end = history.iter().position(|one| one.object.is_none() && is_of(&one.path, "lb-virtual-servers")).unwrap();
    let last = history[..end].iter().rev().find(|one| is_of(&one.path, collection)).unwrap();
    last.object.as_ref().unwrap()["tags"].clone()
}

fn has_tag(tags: &Value, scope: &str, value: &str) -> bool {
    tags.as_array().unwrap().contains(&json!({"scope": scope, "tag": value}))
}

/// An earlier process had the UID of the cluster, and wrote one of the two tags.
#[tokio::test]
async fn pools_and_monitors_of_the_go_program_have_both_marks_before_the_first_deletion() {
    for (scope, value) in [("cluster-uid", UID), ("service-uid", "uid-of-ns/s")] {
        for (uid, marks) in [
            (Some(UID), &[("cluster-uid", UID), ("service-uid", "uid-of-ns/s")][..]),
            (None, &[("service-uid", "uid-of-ns/s")]),
        ] {
            let world = World::start(uid).await;
            let paths = GoBalancer::new(NAME, "ns/s", "192.0.2.77".parse().unwrap()).put(&world.fake, "go");
            for path in paths.values().filter(|path| path.contains("/lb-pools/") || path.contains("/lb-monitor")) {
                world.fake.change_by_hand("go", path, |object| {
                    object["tags"].as_array_mut().unwrap().push(json!({"scope": scope, "tag": value}));
                });
            }
            let one = reporting(one(), "192.0.2.77");
            // In a process without the cluster's UID, a UID tag is no evidence.
            if uid.is_none() && scope == "cluster-uid" {
                continue;
            }
            world.delete(&one).await.unwrap();
            for collection in ["lb-pools", "lb-monitor-profiles"] {
                let tags = tags_at_the_first_deletion(&world, collection);
                for (scope, value) in marks {
                    assert!(has_tag(&tags, scope, value), "{collection} {uid:?}: {tags}");
                }
            }
        }
    }
}

/// A write of a pool or monitor also adds the tag of the Service.
#[tokio::test]
async fn written_pools_and_monitors_of_the_go_program_are_marked_with_the_service() {
    let world = World::start(Some(UID)).await;
    GoBalancer::new(NAME, "ns/s", "192.0.2.77".parse().unwrap()).put(&world.fake, "go");
    let one = world.ensured(&one()).await;
    world.cluster.remove("n2");
    world.ensure(&moved(&one, &[("TCP", 80, 30090)])).await.unwrap();
    for collection in ["lb-pools", "lb-monitor-profiles"] {
        let tags = world.objects(collection)[0]["tags"].clone();
        assert!(has_tag(&tags, "service-uid", "uid-of-ns/s") && has_tag(&tags, "cluster-uid", UID), "{tags}");
    }
}

#[tokio::test]
async fn what_the_configuration_names_and_nsx_does_not_have_is_said_before_anything_is_created() {
    let of_class = |pool: &str, tcp: &str| {
        let (pool, tcp) = (Some(IpPool::Id(pool.to_owned())), Some(Profile::Path(tcp.to_owned())));
        Config { common: Class { pool, tcp, ..config().common }, ..config() }
    };
    let gateway = Config { tier1: Some("/infra/tier-1s/none".to_owned()), ..config() };
    for (config, expected) in [
        (of_class("none", TCP_PROFILE), "the IP pool none"),
        (of_class("p1", "/infra/lb-app-profiles/none"), "the application profile /infra/lb-app-profiles/none"),
        (gateway, "the tier-1 gateway /infra/tier-1s/none"),
    ] {
        let world = World::with(Model::small(), Some(UID), config).await;
        let error = world.ensure(&one()).await.unwrap_err();
        assert_eq!((word(&error).as_str(), error.retry_after()), ("LoadBalancerConfigWrong", Some(LATER)), "{error}");
        assert!(error.to_string().starts_with(expected), "{error}");
        world.sent();
        let error = world.ensure(&service("ns/other", &[("TCP", 80, 30080)])).await.unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!((world.sent(), world.counted()), (Vec::new(), [0; 5]), "known for a while, and nothing is created");

        // An administrator creates the subnet.
        let subnet = json!({
            "resource_type": "IpAddressPoolStaticSubnet", "cidr": "198.51.100.0/24",
            "allocation_ranges": [{"start": "198.51.100.5", "end": "198.51.100.9"}],
        });
        let profile = json!({"resource_type": "LBFastTcpProfile", "display_name": "none"});
        match expected.split(' ').nth(1) {
            Some("IP") => {
                world.fake.put_by_hand("admin", "/infra/ip-pools/none", json!({"display_name": "none"}));
                world.fake.put_by_hand("admin", "/infra/ip-pools/none/ip-subnets/s1", subnet);
            }
            Some("application") => world.fake.put_by_hand("admin", "/infra/lb-app-profiles/none", profile),
            _ => {
                world.fake.put_by_hand("admin", "/infra/tier-1s/none", json!({"display_name": "none"}));
                let edges =
                    json!({"edge_cluster_path": "/infra/sites/default/enforcement-points/default/edge-clusters/e"});
                world.fake.put_by_hand("admin", "/infra/tier-1s/none/locale-services/default", edges);
            }
        }
        advance(LATER).await;
        world.ensured(&one()).await;
        assert_eq!(world.counted(), [1; 5], "{expected}");
    }
}

/// The Go program uses the last match that it reads.
#[tokio::test]
async fn a_name_in_the_configuration_has_to_be_that_of_one_object() {
    let named = |pool: &str, tcp: &str| {
        let (pool, tcp) = (Some(IpPool::Name(pool.to_owned())), Some(Profile::Name(tcp.to_owned())));
        Config { common: Class { pool, tcp, ..config().common }, ..config() }
    };
    let profile = "default-tcp-lb-app-profile";
    let twin = json!({"resource_type": "LBFastTcpProfile", "display_name": "twice"});
    let model = Model::small()
        .ip_pool("p2", "twice", "198.51.100.0/24", &[("198.51.100.5", "198.51.100.9")])
        .ip_pool("p3", "twice", "203.0.113.0/24", &[("203.0.113.5", "203.0.113.9")])
        .object("/infra/lb-app-profiles/a", twin.clone())
        .object("/infra/lb-app-profiles/b", twin);
    for (config, expected) in [
        (named("none", profile), "the IP pool named \"none\" of the cloud config is not found in NSX"),
        (
            named("twice", profile),
            "the IP pool named \"twice\" of the cloud config is not unique in NSX: 2 have the name",
        ),
        (named("pool1", "none"), "the TCP application profile named \"none\" of the cloud config is not found in NSX"),
        (
            named("pool1", "twice"),
            "the TCP application profile named \"twice\" of the cloud config is not unique in NSX: 2 have the name",
        ),
    ] {
        let world = World::with(model.clone(), Some(UID), config).await;
        let error = world.ensure(&one()).await.unwrap_err();
        assert_eq!((word(&error).as_str(), error.retry_after()), ("LoadBalancerConfigWrong", Some(LATER)), "{error}");
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(world.counted(), [0; 5], "nothing is created");
    }
}

/// An account may use objects that it may not read.
#[tokio::test]
async fn what_may_not_be_read_is_used() {
    let world = World::start(Some(UID)).await;
    for operation in ["GET ip-pools", "GET lb-app-profiles", "GET tier-1s"] {
        world.fake.deny("admin", operation);
    }
    world.ensured(&one()).await;
    assert_eq!(world.counted(), [1; 5]);
}

/// Another program set a group at a virtual server of the Go program, and the group was deleted. NSX rejects each
/// change of the virtual server.
#[tokio::test]
async fn a_change_that_cannot_have_an_effect_ends_soon() {
    let world = World::start(Some(UID)).await;
    let paths = GoBalancer::new(NAME, "ns/s", "192.0.2.77".parse().unwrap()).put(&world.fake, "go");
    let group = "/infra/domains/default/groups/of-somebody";
    world.fake.put_by_hand("admin", group, json!({"display_name": "of somebody"}));
    let server = paths.values().find(|path| path.contains("/lb-virtual-servers/")).unwrap();
    world.fake.change_by_hand("admin", server, |server| {
        server["access_list_control"] = json!({"action": "ALLOW", "group_path": group, "enabled": true});
    });
    let one = world.ensured(&one()).await;
    assert!(world.fake.force_delete_by_hand("admin", group));
    world.sent();
    let error = world.ensure(&moved(&one, &[("TCP", 80, 30090)])).await.unwrap_err();
    let sent = world.sent();
    assert!(error.to_string().contains(server.as_str()) && sent.len() < 50, "{error}: {sent:?}");
}

/// Members of deleted Nodes leave a pool although NSX rejects its new members.
#[tokio::test]
async fn members_that_go_leave_a_pool_that_nsx_refuses_with_the_new_ones() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&service("ns/s", &[("TCP", 80, 30080)])).await;
    let members = || World::members(&world.objects("lb-pools")[0]);
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<std::collections::BTreeSet<_>>();
    world.cluster.remove("n2");
    world.cluster.put(node("n3", "uid-3", &[], &[("InternalIP", "10.0.0.3")]));
    world.fake.next("PUT lb-pools", Trouble::error(400, Some(23_500)));
    world.sent();
    let results = world.update(&[&one]).await;
    assert!(results[0].as_ref().is_err_and(|error| error.is_refusal()), "{results:?}");
    assert_eq!(members(), named(&["10.0.0.1"]));
    assert_eq!(world.sent(), ["LIST lb-pools", "PUT lb-pools", "PUT lb-pools"]);
    assert!(world.update(&[&one]).await[0].is_ok());
    assert_eq!(members(), named(&["10.0.0.1", "10.0.0.3"]));

    // The daemon never empties a pool in this case, because the existing members may still work.
    world.cluster.remove("n1");
    world.cluster.remove("n3");
    world.cluster.put(node("n4", "uid-4", &[], &[("InternalIP", "10.0.0.4")]));
    world.fake.next("PUT lb-pools", Trouble::error(400, Some(23_500)));
    assert!(world.update(&[&one]).await[0].is_err());
    assert_eq!(members(), named(&["10.0.0.1", "10.0.0.3"]));
}

/// A SMALL load balancer service supports 20 virtual servers.
#[tokio::test]
async fn of_two_services_that_need_the_last_capacity_one_gets_all_its_ports() {
    let of_ports = |key: &str, count: u16| {
        let ports: Vec<(&str, u16, u16)> = (1..=count).map(|port| ("TCP", port, 30000 + port)).collect();
        service(key, &ports)
    };
    for (used, count) in [(18, 2), (0, 11)] {
        let world = World::start(Some(UID)).await;
        let (one, two) = (of_ports("ns/one", count), of_ports("ns/two", count));
        world.delete(&one).await.unwrap();
        if used > 0 {
            world.ensured(&of_ports("ns/large", used)).await;
        }
        let (first, second) =
            world.during("PUT lb-virtual-servers", world.try_ensure(&one), world.try_ensure(&two)).await;
        assert!(matches!(first, Ok(_) | Err(Error::Pending { .. })), "{used}: {first:?}");
        let Err(Error::Pending { message, after }) = second else { panic!("{used}: {second:?}") };
        assert!(message.contains("capacity"), "{message}");
        assert!((1000..=2000).contains(&after.as_millis()), "{after:?}");
        world.ensured(&one).await;
        let full = world.ensure(&two).await.unwrap_err();
        assert_eq!(word(&full), "LoadBalancerCapacity", "{full}");
        assert_eq!(world.objects("lb-virtual-servers").len(), usize::from(used + count));
        world.delete(&one).await.unwrap();
        world.ensured(&two).await;
    }
}

/// Nothing is read by the Service that waits.
#[tokio::test]
async fn services_are_created_one_after_another_while_there_is_no_load_balancer_service() {
    let world = World::start(Some(UID)).await;
    let (one, two) = (one(), service("ns/two", &[("TCP", 80, 30081)]));
    world.delete(&one).await.unwrap();
    let waits = async {
        world.sent();
        (world.try_ensure(&two).await, world.sent())
    };
    let (first, (second, sent)) = world.during("PUT lb-services", world.try_ensure(&one), waits).await;
    assert!(matches!(first, Ok(_) | Err(Error::Pending { .. })), "{first:?}");
    let Err(Error::Pending { message, .. }) = second else { panic!("{second:?}") };
    assert!(message.contains("capacity"), "{message}");
    assert_eq!(sent, [""; 0]);
    for service in [one, two] {
        world.ensured(&service).await;
    }
    assert_eq!(world.counted(), [1, 2, 2, 2, 2]);
}

/// NSX refuses what does not fit.
#[tokio::test]
async fn services_do_not_wait_for_each_other_if_the_usage_is_unreadable() {
    for trouble in [Trouble::not_permitted(), Trouble::answer(200, "application/json", "{}")] {
        let world = World::start(Some(UID)).await;
        world.ensured(&one()).await;
        world.fake.every("GET service-usage", trouble);
        let (two, three) = (service("ns/two", &[("TCP", 80, 30081)]), service("ns/three", &[("TCP", 80, 30082)]));
        let meanwhile = async { (world.try_ensure(&three).await, world.objects("lb-virtual-servers").len()) };
        let (first, (second, count)) = world.during("PUT lb-virtual-servers", world.try_ensure(&two), meanwhile).await;
        for created in [first, second] {
            assert!(matches!(created, Ok(_) | Err(Error::Pending { .. })), "{created:?}");
        }
        assert_eq!(count, 2, "the third Service is created during the creation of the second one");
        world.ensured(&two).await;
    }
}

#[tokio::test]
async fn nothing_is_created_while_nsx_does_not_answer_how_much_is_used() {
    let world = World::start(Some(UID)).await;
    world.ensured(&one()).await;
    let (two, three) = (service("ns/two", &[("TCP", 80, 30081)]), service("ns/three", &[("TCP", 80, 30082)]));
    let seen = world.fake.history().len();
    world.fake.every("GET service-usage", Trouble::starting());
    let (second, third) = tokio::join!(world.try_ensure(&two), world.try_ensure(&three));
    for failed in [second.unwrap_err(), third.unwrap_err()] {
        assert_eq!((word(&failed).as_str(), failed.retry_after()), ("NSXUnavailable", None), "{failed}");
    }
    assert!(world.history(seen).is_empty());
    world.fake.clear();
    for service in [two, three] {
        world.ensured(&service).await;
    }
}
