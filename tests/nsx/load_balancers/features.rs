//! Settings of a Service that the Go program ignores.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Service};
use serde_json::{Value, json};
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{Behaviour, Model, Trouble};

use super::world::*;
use crate::world::advance;
use ccm::cloud::{Error, Handling, LoadBalancer as _};

fn both() -> Service {
    service("ns/s", &[("TCP", 80, 30080), ("UDP", 80, 30081)])
}

#[tokio::test]
async fn source_ranges_are_a_group_that_follows_and_goes() {
    for uid in [Some(UID), None] {
        let mut world = World::start(uid).await;
        let open = world.ensured(&both()).await;
        assert_eq!(world.objects("groups").len(), 0);
        let ranges = |ranges: &[&str]| with(&open, json!({"loadBalancerSourceRanges": ranges}));
        for networks in [&["10.1.0.0/16"][..], &["10.2.0.0/16", "10.3.0.0/16"]] {
            world.ensure(&ranges(networks)).await.unwrap();
            let group = world.objects("groups").remove(0);
            assert_eq!(group["expression"][0]["ip_addresses"], json!(networks), "{uid:?}");
            for server in world.objects("lb-virtual-servers") {
                let control = &server["access_list_control"];
                let expected = json!({"action": "ALLOW", "enabled": true, "group_path": group["path"]});
                assert_eq!(*control, expected, "{uid:?}");
            }
            world.restart();
            let seen = world.fake.history().len();
            world.ensure(&ranges(networks)).await.unwrap();
            assert!(world.history(seen).is_empty(), "{uid:?}: the next process writes nothing");
        }
        world.ensure(&open).await.unwrap();
        assert_eq!(world.objects("groups").len(), 0, "{uid:?}");
        assert!(world.objects("lb-virtual-servers").iter().all(|one| one.get("access_list_control").is_none()));

        let closed = ranges(&["10.1.0.0/16"]);
        world.ensure(&closed).await.unwrap();
        world.restart();
        world.delete(&closed).await.unwrap();
        assert_eq!(world.objects("groups").len(), 0, "{uid:?}");
        assert_eq!(world.counted()[1..], [0; 4], "{uid:?}");
    }
}

#[tokio::test]
async fn clients_keep_their_nodes_where_the_service_says_so() {
    let mut world = World::start(Some(UID)).await;
    let one = world.ensured(&both()).await;
    let affinity = |seconds: i64| {
        let config = json!({"clientIP": {"timeoutSeconds": seconds}});
        with(&one, json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config}))
    };
    for seconds in [600, 700] {
        world.ensure(&affinity(seconds)).await.unwrap();
        let profile = world.objects("lb-persistence-profiles").remove(0);
        assert_eq!(profile["timeout"], json!(seconds));
        let servers = world.objects("lb-virtual-servers");
        assert!(servers.iter().all(|server| server["lb_persistence_profile_path"] == profile["path"]));
        world.restart();
    }
    world.delete(&affinity(700)).await.unwrap();
    assert_eq!((world.objects("lb-persistence-profiles").len(), world.counted()), (0, [0; 5]));
}

/// An administrator may delete objects that a virtual server refers to. After that NSX rejects changes of the virtual
/// server.
#[tokio::test]
async fn a_group_or_profile_that_is_gone_keeps_no_port_from_following() {
    for (collection, is_restarted) in
        [("groups", false), ("groups", true), ("lb-persistence-profiles", false), ("lb-persistence-profiles", true)]
    {
        let case = format!("{collection}, {is_restarted}");
        let mut world = World::start(Some(UID)).await;
        let fields = || json!({"loadBalancerSourceRanges": ["10.1.0.0/16"], "sessionAffinity": "ClientIP"});
        let one = world.ensured(&with(&both(), fields())).await;
        let gone = world.path_of(collection);
        assert!(world.fake.force_delete_by_hand("operator", &gone), "{case}");
        if is_restarted {
            world.restart();
        }
        // One port gets another node port, and one port is new.
        let other = service("ns/s", &[("TCP", 80, 30090), ("UDP", 80, 30081), ("TCP", 81, 30082)]);
        let other = with_status(with(&other, fields()), status_of(&one));
        world.ensure(&other).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        let path = world.objects(collection).remove(0)["path"].clone();
        let servers = world.objects("lb-virtual-servers");
        assert_eq!(servers.len(), 3, "{case}");
        for server in servers {
            let refers_to = match collection {
                "groups" => &server["access_list_control"]["group_path"],
                _ => &server["lb_persistence_profile_path"],
            };
            assert_eq!(*refers_to, path, "{case}");
        }
        assert_eq!((world.objects(collection).len(), world.held()), (1, 0), "{case}");
        world.delete(&other).await.unwrap();
        assert_eq!((world.objects(collection).len(), world.counted()), (0, [0; 5]), "{case}");
    }
}

/// Returns type and port of each monitor.
fn monitors(world: &World) -> Vec<(String, Value)> {
    let monitors = world.objects("lb-monitor-profiles").into_iter();
    let of = |one: Value| (one["resource_type"].as_str().unwrap().to_owned(), one["monitor_port"].clone());
    let mut monitors: Vec<_> = monitors.map(of).collect();
    monitors.sort_by_key(|(resource_type, _)| resource_type.clone());
    monitors
}

/// Whether each new version of each pool has a monitor.
fn have_always_a_monitor(world: &World, seen: usize) -> bool {
    let history = world.history(seen);
    let mut pools = history.iter().filter(|one| one.path.starts_with("/infra/lb-pools/"));
    pools.all(|one| one.object.as_ref().is_some_and(|pool| pool["active_monitor_paths"].as_array().is_some()))
}

/// The id of the former monitor cannot be used again while NSX still keeps the deleted one.
#[tokio::test]
async fn local_traffic_is_checked_at_the_health_check_port() {
    for deletion in [Behaviour::USUAL.deletion, Behaviour::THIRD.deletion] {
        let model = Model::small().behaviour(Behaviour { deletion, ..Behaviour::USUAL });
        let mut world = World::with(model, Some(UID), config()).await;
        let one = world.ensured(&both()).await;
        let local = with(&one, json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}));
        let http = ("LBHttpMonitorProfile".to_owned(), json!(32000));
        let seen = world.fake.history().len();
        for _ in 0..3 {
            world.ensure(&local).await.unwrap();
            assert_eq!(monitors(&world), [http.clone(), http.clone()]);
            for monitor in world.objects("lb-monitor-profiles") {
                let asked = (&monitor["request_url"], &monitor["request_version"]);
                assert_eq!(asked, (&json!("/healthz"), &json!("HTTP_VERSION_1_0")));
            }
            world.restart();
            let settled = world.fake.history().len();
            world.ensure(&local).await.unwrap();
            assert!(world.history(settled).is_empty(), "the next process writes nothing");
            world.ensure(&one).await.unwrap();
            assert_eq!(monitors(&world), [("LBTcpMonitorProfile".to_owned(), json!(30080))]);
        }
        let servers = world.objects("lb-virtual-servers");
        let of_tcp = servers.iter().find(|one| one["default_pool_member_ports"] == json!(["30080"])).unwrap();
        let written = world.history(seen).into_iter().filter(|one| of_tcp["pool_path"] == one.path);
        let monitors_of = |pool: &Value| pool["active_monitor_paths"].as_array().map_or(0, Vec::len);
        let counts: Vec<usize> = written.map(|version| version.object.as_ref().map_or(0, monitors_of)).collect();
        assert_eq!(counts, [1; 6], "it has one all the time");
        assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());
        world.delete(&one).await.unwrap();
        assert_eq!(world.counted(), [0; 5]);
    }
}

#[tokio::test]
async fn udp_is_checked_by_icmp_where_the_service_says_so() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&both()).await;
    assert_eq!(monitors(&world).len(), 1);
    let asked = annotated(one.clone(), "loadbalancer.vsphere-ccm.dev/udp-health-check", "icmp");
    world.ensure(&asked).await.unwrap();
    let [icmp, tcp] = &monitors(&world)[..] else { panic!("{:?}", monitors(&world)) };
    assert_eq!((icmp.0.as_str(), tcp.0.as_str()), ("LBIcmpMonitorProfile", "LBTcpMonitorProfile"));
    let seen = world.fake.history().len();
    world.ensure(&asked).await.unwrap();
    assert!(world.history(seen).is_empty());
    // The health check of a Service with `externalTrafficPolicy: Local` checks more.
    let local = with(&asked, json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}));
    let seen = world.fake.history().len();
    world.ensure(&local).await.unwrap();
    assert!(have_always_a_monitor(&world, seen));
    let http = || ("LBHttpMonitorProfile".to_owned(), json!(32000));
    assert_eq!(monitors(&world), [http(), http()]);
    world.ensure(&asked).await.unwrap();
    assert!(have_always_a_monitor(&world, seen));
    world.ensure(&one).await.unwrap();
    assert_eq!(monitors(&world), [("LBTcpMonitorProfile".to_owned(), json!(30080))]);
    world.ensure(&asked).await.unwrap();
    world.delete(&asked).await.unwrap();
    assert_eq!(world.counted(), [0; 5]);
}

/// Some versions of NSX reject a second expression, and some reject the type of a group.
#[tokio::test]
async fn a_group_has_one_expression_of_the_family_of_its_load_balancer() {
    let switches = Behaviour { refuses_several_expressions: true, ..Behaviour::USUAL };
    for lacks_group_type in [false, true] {
        let world =
            World::with(dual_model().behaviour(Behaviour { lacks_group_type, ..switches }), Some(UID), dual_config());
        let world = world.await;
        world.put_dual("n1", 1);
        world.put_dual("n2", 2);
        let both = of_families(both(), "PreferDualStack", &["IPv4", "IPv6"]);
        let ranges = |ranges: &[&str]| with(&both, json!({"loadBalancerSourceRanges": ranges}));
        for (asked, expected) in [
            (ranges(&["10.1.0.0/16", "2001:db8:1::/64"]), [&["10.1.0.0/16"][..], &["2001:db8:1::/64"]]),
            // Ranges of one family block the other family.
            (
                ranges(&["10.1.0.0/16", "10.2.0.0/16"]),
                [&["10.1.0.0/16", "10.2.0.0/16"], &["10.1.0.0/16", "10.2.0.0/16"]],
            ),
            (ranges(&["2001:db8:1::/64"]), [&["2001:db8:1::/64"], &["2001:db8:1::/64"]]),
        ] {
            world.ensure(&asked).await.unwrap_or_else(|error| panic!("{lacks_group_type}: {error}"));
            let groups = world.objects("groups");
            assert_eq!(groups.len(), 2, "one for each family");
            for server in world.objects("lb-virtual-servers") {
                let is_v4 = server["ip_address"].as_str().unwrap().contains('.');
                let path = &server["access_list_control"]["group_path"];
                let group = groups.iter().find(|group| group["path"] == *path).unwrap();
                let expression = group["expression"].as_array().unwrap();
                assert_eq!(expression.len(), 1, "{group}");
                assert_eq!(expression[0]["ip_addresses"], json!(expected[usize::from(!is_v4)]), "{asked:?}");
                assert_eq!(group.get("group_type").is_none(), lacks_group_type);
            }
        }
    }
}

#[tokio::test]
async fn the_annotation_decides_whether_nodes_see_clients() {
    let world = World::start(Some(UID)).await;
    let one = world.ensured(&both()).await;
    let snat = |world: &World| world.objects("lb-pools").remove(0)["snat_translation"]["type"].clone();
    assert_eq!(snat(&world), json!("LBSnatAutoMap"));
    let annotation = "loadbalancer.vsphere-ccm.dev/snat";
    world.ensure(&annotated(one.clone(), annotation, "disabled")).await.unwrap();
    assert_eq!(snat(&world), json!("LBSnatDisabled"));
    world.ensure(&one).await.unwrap();
    assert_eq!(snat(&world), json!("LBSnatAutoMap"));
}

#[tokio::test]
async fn a_wished_address_is_had_or_said_to_be_unavailable() {
    for accepts_any_wish in [false, true] {
        let model = Model::small().behaviour(Behaviour { accepts_any_wish, ..Behaviour::USUAL });
        let world = World::with(model, Some(UID), config()).await;
        let wish =
            |key: &str, address: &str| with(&service(key, &[("TCP", 80, 30080)]), json!({"loadBalancerIP": address}));
        let one = world.ensured(&wish("ns/a", "192.0.2.50")).await;
        assert_eq!(world.objects("lb-virtual-servers")[0]["ip_address"], json!("192.0.2.50"));
        assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());
        for (address, why) in [("192.0.2.50", "in use"), ("198.51.100.1", "outside")] {
            let error = world.ensure(&wish("ns/b", address)).await.unwrap_err();
            assert_eq!(word(&error), "AddressUnavailable", "{error}");
            assert!(error.to_string().contains(address) && error.to_string().contains(why), "{error}");
            assert_eq!(world.counted(), [1; 5], "{why}: nothing is created for the second Service");
        }
        // The address of an existing load balancer does not change.
        let other = with_status(wish("ns/a", "192.0.2.51"), status_of(&one));
        assert_eq!(word(&world.ensure(&other).await.unwrap_err()), "LoadBalancerNotPossible");
        assert_eq!(world.objects("lb-virtual-servers")[0]["ip_address"], json!("192.0.2.50"));
    }
}

#[tokio::test]
async fn what_is_not_possible_is_refused_without_a_request() {
    let world = World::start(Some(UID)).await;
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    for (wrong, part) in [
        (with(&one, json!({"loadBalancerSourceRanges": ["x"]})), "source range \"x\""),
        (annotated(one.clone(), "loadbalancer.vsphere-ccm.dev/snat", "x"), "expected automap or disabled"),
        (annotated(one.clone(), "loadbalancer.vsphere-ccm.dev/udp-health-check", "x"), "expected icmp or none"),
        (with(&one, json!({"ipFamilyPolicy": "RequireDualStack"})), "RequireDualStack"),
        (service("ns/s", &[("SCTP", 80, 30080)]), "SCTP/80"),
    ] {
        let Handling::Invalid { reason, message } = world.balancers.handles(&wrong) else { panic!("{part}") };
        assert!(reason.as_str() == "LoadBalancerNotPossible" && message.contains(part), "{message}");
        assert_eq!(word(&world.ensure(&wrong).await.unwrap_err()), "LoadBalancerNotPossible");
    }
    assert_eq!(world.sent(), Vec::<String>::new());
    assert_eq!(world.balancers.handles(&with(&one, json!({"loadBalancerClass": "x/y"}))), Handling::Declined);
}

#[tokio::test]
async fn what_the_go_program_ignored_is_said_once_and_not_changed() {
    let mut world = World::start(Some(UID)).await;
    GoBalancer::new(NAME, "ns/s", "192.0.2.77".parse().unwrap()).put(&world.fake, "go");
    let one = service("ns/s", &[("TCP", 80, 30080)]);
    let one = with(&one, json!({"loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP"}));
    let one = annotated(one, "loadbalancer.vsphere-ccm.dev/snat", "disabled");
    let seen = world.fake.history().len();
    let one = world.ensured(&one).await;
    assert!(world.history(seen).is_empty());
    let (reason, message) = world.balancers.remark(&one).unwrap();
    assert_eq!(reason.to_string(), "LoadBalancerAdoptedAsIs");
    for field in ["spec.loadBalancerSourceRanges", "spec.sessionAffinity", "loadbalancer.vsphere-ccm.dev/snat"] {
        assert!(message.contains(field), "{message}");
    }
    world.ensure(&one).await.unwrap();
    assert_eq!(world.balancers.remark(&one), None, "it is said once");

    // The adoption is a separate step.
    world.restart_adopting_fully();
    world.ensure(&one).await.unwrap();
    assert_eq!(world.balancers.remark(&one), None);
    assert_eq!((world.objects("groups").len(), world.objects("lb-persistence-profiles").len()), (1, 1));
    assert_eq!(world.objects("lb-pools")[0]["snat_translation"]["type"], json!("LBSnatDisabled"));
    assert_eq!(world.handed_back(&[&one]), Vec::<String>::new());
    world.delete(&one).await.unwrap();
    assert_eq!((world.objects("groups").len(), world.counted()), (0, [1, 0, 0, 0, 0]));
}

/// Both Services read the pool before either address is reserved.
#[tokio::test]
async fn of_two_services_that_ask_for_one_address_at_once_one_creates_nothing() {
    let world = World::start(Some(UID)).await;
    world.ensured(&service("ns/other", &[("TCP", 80, 30090)])).await;
    let wish = |key: &str| with(&service(key, &[("TCP", 80, 30080)]), json!({"loadBalancerIP": "192.0.2.50"}));
    let (one, two) = (wish("ns/a"), wish("ns/b"));
    let meanwhile = async {
        let error = world.try_ensure(&two).await.unwrap_err();
        assert_eq!(word(&error), "AddressUnavailable", "{error}");
        assert!(error.to_string().contains("ns/a"), "{error}");
        assert_eq!(world.counted(), [1; 5], "nothing is created for the second Service");
    };
    let (created, ()) = world.during("*", world.try_ensure(&one), meanwhile).await;
    assert!(matches!(created, Err(Error::Pending { .. })), "NSX has not put it into effect: {created:?}");
    let one = world.ensured(&one).await;
    assert_eq!(word(&world.ensure(&two).await.unwrap_err()), "AddressUnavailable");
    world.delete(&one).await.unwrap();
    // NSX reserves a released address for a while.
    advance(std::time::Duration::from_secs(300)).await;
    assert_eq!(addresses(&world.ensure(&two).await.unwrap()), ["192.0.2.50".parse::<IpAddr>().unwrap()]);
}

/// The first Service reports an address, and the second one requests the same address while the first one allocates.
/// Returns the addresses of the first Service and the error of the second one.
async fn ensure_at_once(world: &World, reported: &LoadBalancerStatus) -> (Vec<IpAddr>, Error) {
    let one = with_status(service("ns/a", &[("TCP", 80, 30080)]), reported.clone());
    let two = with(&service("ns/b", &[("TCP", 80, 30081)]), json!({"loadBalancerIP": addresses(reported)[0]}));
    let (first, second) = world.during("PATCH ip-allocations", world.ensure(&one), world.try_ensure(&two)).await;
    (addresses(&first.unwrap()), second.unwrap_err())
}

/// An administrator has deleted the load balancer of the first Service, which still reports its address. NSX accepts
/// both requests.
#[tokio::test]
async fn an_address_that_one_service_reports_and_another_one_asks_for_is_given_once() {
    let behaviour = Behaviour { accepts_any_wish: true, ..Behaviour::USUAL };
    let world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
    world.ensured(&service("ns/other", &[("TCP", 80, 30090)])).await;
    let status: LoadBalancerStatus = serde_json::from_value(json!({"ingress": [{"ip": "192.0.2.50"}]})).unwrap();
    let (first, error) = ensure_at_once(&world, &status).await;
    assert_eq!(first, addresses(&status));
    assert_eq!(word(&error), "AddressUnavailable", "{error}");
    assert!(error.to_string().contains("ns/a"), "{error}");
    assert_eq!(world.counted(), [1, 2, 2, 2, 2], "nothing is created for the second Service");
}

/// The first Service reports an address that another one uses, and continues with another address.
#[tokio::test]
async fn a_refused_address_is_not_claimed_for_the_rest_of_the_call() {
    let world = World::start(Some(UID)).await;
    let other = world.ensured(&service("ns/other", &[("TCP", 80, 30090)])).await;
    let status = status_of(&other);
    let (first, error) = ensure_at_once(&world, &status).await;
    assert_ne!(first, addresses(&status));
    assert_eq!(word(&error), "AddressUnavailable", "{error}");
    assert!(error.to_string().contains("in use by the Service ns/other"), "{error}");
}

/// Clients of the first Service may still use its address.
#[tokio::test]
async fn a_released_address_is_given_by_wish_only_in_its_namespace_for_ten_minutes() {
    for shows_allocated_ip in [true, false] {
        let behaviour = Behaviour { shows_allocated_ip, ..Behaviour::USUAL };
        let mut world = World::with(Model::small().behaviour(behaviour), Some(UID), config()).await;
        let first = world.ensured(&service("team-a/one", &[("TCP", 80, 30080)])).await;
        let address = world.objects("lb-virtual-servers")[0]["ip_address"].clone();
        let wish = |key: &str| with(&service(key, &[("TCP", 80, 30080)]), json!({"loadBalancerIP": address}));
        // The restart drops the process's own observation of the reservation.
        world.restart();
        world.delete(&first).await.unwrap();
        // NSX reserves a released address for a while.
        advance(std::time::Duration::from_secs(300)).await;
        let other = world.ensure(&wish("team-b/one")).await.unwrap_err();
        assert_eq!(word(&other), "AddressUnavailable", "{other}");
        assert!(other.to_string().contains("namespace team-a released it"), "{other}");
        let again = world.ensured(&wish("team-a/two")).await;
        world.delete(&again).await.unwrap();
        advance(std::time::Duration::from_secs(500)).await;
        assert_eq!(word(&world.ensure(&wish("team-b/one")).await.unwrap_err()), "AddressUnavailable");
        advance(std::time::Duration::from_secs(100)).await;
        world.ensured(&wish("team-b/one")).await;
    }
}

#[tokio::test]
async fn with_requested_addresses_ignored_a_service_gets_any_address() {
    let mut world = World::start(Some(UID)).await;
    world.restart_ignoring_requested_addresses();
    let one = with(&service("ns/a", &[("TCP", 80, 30080)]), json!({"loadBalancerIP": "192.0.2.50"}));
    let one = world.ensured(&one).await;
    assert_ne!(world.objects("lb-virtual-servers")[0]["ip_address"], json!("192.0.2.50"));
    let other = with(&one, json!({"loadBalancerIP": "no address"}));
    assert_eq!(world.balancers.handles(&other), Handling::Handled);
    assert_eq!(world.handed_back(&[&other]), Vec::<String>::new());
}

#[tokio::test]
async fn an_address_that_a_service_could_not_use_is_free_for_another_one() {
    let world = World::start(Some(UID)).await;
    world.ensured(&service("ns/other", &[("TCP", 80, 30090)])).await;
    let wish = |key: &str| with(&service(key, &[("TCP", 80, 30080)]), json!({"loadBalancerIP": "192.0.2.50"}));
    world.fake.next("PUT lb-monitor-profiles", Trouble::error(400, Some(1)));
    assert_eq!(word(&world.try_ensure(&wish("ns/a")).await.unwrap_err()), "NSXRefused");
    world.ensured(&wish("ns/b")).await;
}
