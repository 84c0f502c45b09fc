//! Tests of the Go program's load balancers and of the writes that it makes for them.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};
use support::fake_nsx::go::{GoBalancer, GoPaths, GoStep};
use support::fake_nsx::go_rules::{GoClass, GoProgram, GoWrite};
use support::fake_nsx::{Behaviour, FakeNsx, Model};

use super::{Manager, TCP, UDP};

const USER: &str = "go";

fn address() -> IpAddr {
    [192, 0, 2, 5].into()
}

fn balancer() -> GoBalancer {
    GoBalancer::new("c", "ns/s", address())
}

async fn small() -> FakeNsx {
    FakeNsx::start(Model::small()).await
}

fn service(balancer: &GoBalancer) -> Service {
    let ports = balancer.ports.iter().map(
        |port| json!({"name": port.tag(), "protocol": port.protocol, "port": port.port, "nodePort": port.node_port}),
    );
    let spec = json!({"type": "LoadBalancer", "ports": ports.collect::<Vec<_>>()});
    let metadata = json!({"namespace": balancer.namespace, "name": balancer.name});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn node(name: &str, address: &str) -> Node {
    let addresses = json!([{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]);
    serde_json::from_value(json!({"metadata": {"name": name}, "status": {"addresses": addresses}})).unwrap()
}

fn nodes(balancer: &GoBalancer) -> Vec<Node> {
    balancer.nodes.iter().map(|(name, address)| node(name, &address.to_string())).collect()
}

fn tags(tags: &[(&str, &str)]) -> Value {
    tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect()
}

/// Returns the fields of an object that `wanted` has.
fn fields(fake: &FakeNsx, path: &str, wanted: &Value) -> Value {
    let object = fake.object(path).unwrap_or_else(|| panic!("{path} is not there"));
    wanted.as_object().unwrap().keys().map(|name| (name.clone(), object[name].clone())).collect()
}

/// W-06 to W-09 and TAG-07.
#[tokio::test]
async fn a_whole_load_balancer_is_as_the_vectors_say() {
    let fake = small().await;
    let paths = balancer().put(&fake, USER);
    let program = "vsphere-cloud-controller-manager";
    let of_port = tags(&[("cluster", "c"), ("owner", program), ("port", "TCP/80"), ("service", "ns/s")]);
    let of_server = tags(&[
        ("cluster", "c"),
        ("ippoolid", "p1"),
        ("lbclass", "default"),
        ("owner", program),
        ("port", "TCP/80"),
        ("service", "ns/s"),
    ]);
    let member = |name: &str, address: &str| json!({"admin_state": "ENABLED", "display_name": name, "ip_address": address, "weight": 1, "backup_member": false});
    for (step, wanted) in [
        (
            GoStep::Monitor(0),
            json!({"resource_type": "LBTcpMonitorProfile", "display_name": "cluster:c:ns/s:30080",
            "description": "tcp monitor for cluster c, service ns/s, port 30080 created by vsphere-cloud-controller-manager",
            "monitor_port": 30080, "tags": of_port}),
        ),
        (
            GoStep::Pool(0),
            json!({"display_name": "cluster:c:ns/s", "tags": of_port,
            "description": "pool for cluster c, service ns/s created by vsphere-cloud-controller-manager",
            "snat_translation": {"type": "LBSnatAutoMap"}, "active_monitor_paths": [paths[&GoStep::Monitor(0)]],
            "members": [member("c:n1", "10.0.0.1"), member("c:n2", "10.0.0.2")]}),
        ),
        (
            GoStep::Allocation,
            json!({"tags": tags(&[("cluster", "c"), ("owner", program), ("service", "ns/s")]),
            "allocation_ip": null}),
        ),
        (
            GoStep::LbService,
            json!({"display_name": "cluster:c", "size": "SMALL", "enabled": true,
            "description": "virtual server pool for cluster c created by vsphere-cloud-controller-manager",
            "connectivity_path": "/infra/tier-1s/t1", "tags": tags(&[("cluster", "c"), ("owner", program)])}),
        ),
        (
            GoStep::VirtualServer(0),
            json!({"display_name": "cluster:c:ns/s", "tags": of_server, "ports": ["80"],
            "description": "virtual server for cluster c, service ns/s created by vsphere-cloud-controller-manager",
            "default_pool_member_ports": ["30080"], "enabled": true, "ip_address": "192.0.2.5",
            "pool_path": paths[&GoStep::Pool(0)], "lb_service_path": paths[&GoStep::LbService],
            "application_profile_path": TCP}),
        ),
    ] {
        let path = &paths[&step];
        assert_eq!(fields(&fake, path, &wanted), wanted, "{step:?}");
        let id: uuid::Uuid = path.rsplit('/').next().unwrap().parse().unwrap();
        assert_eq!(id.get_version_num(), 4);
    }
    assert_eq!(fake.allocated_address(&paths[&GoStep::Allocation]), Some(address()));
    assert!(fake.history().iter().filter(|version| version.user == USER).count() == 5);
}

/// The manager accepts the objects as requests: nothing in them is rejected.
#[tokio::test]
async fn the_manager_takes_each_object_again() {
    let manager = Manager::small().await;
    let paths = balancer().ports(&[("TCP", 80, 30_080), ("UDP", 53, 30_053)]).put(&manager.fake, USER);
    for path in paths.values().filter(|path| !path.contains("ip-allocations")) {
        let object = manager.fake.object(path).unwrap();
        manager.create(path, object).await;
    }
}

#[tokio::test]
async fn configured_values_are_in_the_objects() {
    let fake = FakeNsx::start(Model::small().tier1("t2").object("/infra/lb-services/mine", json!({}))).await;
    let mut balancer = balancer().ports(&[("TCP", 80, 30_080), ("UDP", 80, 30_081)]);
    balancer.tags = [("cluster", "x"), ("team", "a"), ("owner", "o")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    balancer.is_snat_disabled = true;
    balancer.lb_service_path = Some("/infra/lb-services/mine".to_owned());
    balancer.class = "public".to_owned();
    let paths = balancer.put(&fake, USER);
    assert_eq!(balancer.creation().len(), 7, "one monitor, and one allocation");
    let udp = fake.object(&paths[&GoStep::VirtualServer(1)]).unwrap();
    let tagged = [("cluster", "c"), ("ippoolid", "p1"), ("lbclass", "public"), ("owner", "o"), ("port", "UDP/80")];
    let tagged = [&tagged[..], &[("service", "ns/s"), ("team", "a")]].concat();
    assert_eq!((&udp["tags"], &udp["application_profile_path"]), (&tags(&tagged), &json!(UDP)));
    assert_eq!(udp["lb_service_path"], "/infra/lb-services/mine");
    let pool = fake.object(&paths[&GoStep::Pool(1)]).unwrap();
    assert_eq!((&pool["snat_translation"]["type"], pool.get("active_monitor_paths")), (&json!("LBSnatDisabled"), None));
    assert_eq!(fake.objects_below("/infra/lb-services").len(), 1, "none is created");
    // The next balancer shares the service of the first. A cluster on another gateway has its own.
    let mut second = GoBalancer::new("c", "ns/second", [192, 0, 2, 6].into());
    second.tier1_path = "/infra/tier-1s/t2".to_owned();
    let first = second.put(&fake, USER)[&GoStep::LbService].clone();
    assert_eq!(GoBalancer::new("c", "ns/third", [192, 0, 2, 7].into()).put(&fake, USER)[&GoStep::LbService], first);
    let other = GoBalancer::new("d", "ns/s", [192, 0, 2, 8].into()).put(&fake, USER);
    assert_ne!(other[&GoStep::LbService], first);
}

/// SEQ-01 and SEQ-07, step by step: after each step the Go program continues with the rest.
#[tokio::test]
async fn a_half_made_or_half_deleted_load_balancer_has_the_objects_of_its_steps() {
    use GoStep::{Allocation, LbService, Monitor, Pool, VirtualServer};
    let (balancer, program) = (balancer(), GoProgram::new("c"));
    assert_eq!(balancer.creation(), [Monitor(0), Pool(0), Allocation, LbService, VirtualServer(0)]);
    assert_eq!(balancer.deletion(), [VirtualServer(0), LbService, Pool(0), Monitor(0), Allocation]);
    for count in 0..=5 {
        let fake = small().await;
        let paths = balancer.put_half_made(&fake, USER, count);
        assert_eq!(paths.keys().copied().collect::<Vec<_>>(), sorted(&balancer.creation()[..count]));
        let writes = program.ensure(&fake.objects(), &service(&balancer), &nodes(&balancer)).unwrap();
        assert_eq!(writes.len(), 5 - count, "{writes:?}");
        assert!(writes.iter().all(|write| matches!(write, GoWrite::Create(..))), "{writes:?}");

        let fake = small().await;
        let paths = balancer.put_half_deleted(&fake, USER, count);
        assert_eq!(paths.keys().copied().collect::<Vec<_>>(), sorted(&balancer.deletion()[count..]));
        assert!(paths.values().all(|path| fake.object(path).is_some()));
        let left: Vec<_> = program.cleanup(&fake.objects(), &[]).unwrap();
        // The service is deleted only with the last virtual server.
        let expected = balancer.deletion().into_iter().skip(count).filter(|step| count != 1 || *step != LbService);
        assert_eq!(left, expected.map(|step| GoWrite::Delete(paths[&step].clone())).collect::<Vec<_>>());
    }
}

fn sorted(steps: &[GoStep]) -> Vec<GoStep> {
    let mut steps = steps.to_vec();
    steps.sort();
    steps
}

#[tokio::test]
async fn a_load_balancer_service_in_use_is_not_deleted_with_the_half() {
    let fake = small().await;
    GoBalancer::new("c", "ns/other", [192, 0, 2, 6].into()).put(&fake, USER);
    let paths = balancer().put_half_deleted(&fake, USER, 5);
    assert_eq!(paths.into_keys().collect::<Vec<_>>(), [GoStep::LbService]);
}

/// A change of the objects, and the write that must follow.
type Mutation = (&'static str, fn(&FakeNsx, &GoPaths), fn(&GoPaths) -> Vec<GoWrite>);

fn update(path: &str, field: &'static str) -> Vec<GoWrite> {
    vec![GoWrite::Update(path.to_owned(), vec![field])]
}

fn delete(path: &str) -> Vec<GoWrite> {
    vec![GoWrite::Delete(path.to_owned())]
}

fn change(fake: &FakeNsx, path: &str, change: impl FnOnce(&mut Value)) {
    fake.change_by_hand("operator", path, change);
}

/// Removes the tag with this scope.
fn untag(fake: &FakeNsx, path: &str, scope: &str) {
    change(fake, path, |object| object["tags"].as_array_mut().unwrap().retain(|tag| tag["scope"] != scope));
}

const MUTATIONS: &[Mutation] = &[
    (
        "a member is removed",
        |fake, paths| {
            fake.remove_member_by_hand("operator", &paths[&GoStep::Pool(0)], [10, 0, 0, 1].into());
        },
        |paths| update(&paths[&GoStep::Pool(0)], "members"),
    ),
    (
        "a member is added",
        |fake, paths| {
            change(fake, &paths[&GoStep::Pool(0)], |pool| {
                pool["members"].as_array_mut().unwrap().push(json!({"ip_address": "10.0.0.9"}));
            });
        },
        |paths| update(&paths[&GoStep::Pool(0)], "members"),
    ),
    (
        "a pool has no monitor",
        |fake, paths| change(fake, &paths[&GoStep::Pool(0)], |pool| pool["active_monitor_paths"] = Value::Null),
        |paths| update(&paths[&GoStep::Pool(0)], "active_monitor_paths"),
    ),
    (
        "the monitor has another port",
        |fake, paths| change(fake, &paths[&GoStep::Monitor(0)], |monitor| monitor["monitor_port"] = json!(1)),
        |paths| update(&paths[&GoStep::Monitor(0)], "monitor_port"),
    ),
    (
        "the virtual server has another node port",
        |fake, paths| {
            change(fake, &paths[&GoStep::VirtualServer(0)], |server| {
                server["default_pool_member_ports"] = json!(["1"])
            });
        },
        |paths| update(&paths[&GoStep::VirtualServer(0)], "default_pool_member_ports"),
    ),
    (
        "the virtual server has another profile",
        |fake, paths| {
            change(fake, &paths[&GoStep::VirtualServer(0)], |server| server["application_profile_path"] = json!(UDP));
        },
        |paths| update(&paths[&GoStep::VirtualServer(0)], "application_profile_path"),
    ),
    (
        "the virtual server has no tag of the port",
        |fake, paths| untag(fake, &paths[&GoStep::VirtualServer(0)], "port"),
        |paths| {
            let created = GoWrite::Create("lb-virtual-servers", "TCP/80".to_owned());
            [vec![created], delete(&paths[&GoStep::VirtualServer(0)])].concat()
        },
    ),
    (
        "the virtual server has a port more",
        |fake, paths| {
            change(fake, &paths[&GoStep::VirtualServer(0)], |server| server["ports"] = json!(["80", "81"]));
        },
        |paths| {
            let created = GoWrite::Create("lb-virtual-servers", "TCP/80".to_owned());
            [vec![created], delete(&paths[&GoStep::VirtualServer(0)])].concat()
        },
    ),
    (
        "the virtual server is deleted",
        |fake, paths| {
            fake.delete_by_hand("operator", &paths[&GoStep::VirtualServer(0)]);
        },
        |_| vec![GoWrite::Create("lb-virtual-servers", "TCP/80".to_owned())],
    ),
    (
        "the monitor has no owner",
        |fake, paths| untag(fake, &paths[&GoStep::Monitor(0)], "owner"),
        |paths| {
            let created = GoWrite::Create("lb-monitor-profiles", "TCP/80".to_owned());
            [vec![created], update(&paths[&GoStep::Pool(0)], "active_monitor_paths")].concat()
        },
    ),
    (
        "the pool is of another cluster by its first tag",
        |fake, paths| {
            change(fake, &paths[&GoStep::Pool(0)], |pool| {
                pool["tags"].as_array_mut().unwrap().insert(0, json!({"scope": "cluster", "tag": "d"}));
            });
        },
        |paths| {
            let created = GoWrite::Create("lb-pools", "TCP/80".to_owned());
            [vec![created], update(&paths[&GoStep::VirtualServer(0)], "pool_path")].concat()
        },
    ),
];

/// Returns everything that the program would find wrong after a hand-back.
fn wrong_after(program: &GoProgram, fake: &FakeNsx, service: &Service, nodes: &[Node]) -> Vec<String> {
    let allocated = |path: &str| fake.allocated_address(path);
    program.hand_back(&fake.objects(), allocated, std::slice::from_ref(service), nodes)
}

#[tokio::test]
async fn an_allocation_or_a_status_with_another_address_is_wrong_for_the_go_program() {
    let (balancer, program) = (balancer(), GoProgram::new("c"));
    let (mut service, nodes) = (service(&balancer), nodes(&balancer));
    let fake = small().await;
    balancer.put(&fake, USER);
    let status = |ip: &str| serde_json::from_value(json!({"loadBalancer": {"ingress": [{"ip": ip}]}})).unwrap();
    for (ip, is_right) in [(balancer.address.to_string().as_str(), true), ("192.0.2.250", false)] {
        service.status = Some(status(ip));
        assert_eq!(wrong_after(&program, &fake, &service, &nodes).is_empty(), is_right, "{ip}");
    }
    service.status = None;
    let another = |_: &str| Some([192, 0, 2, 250].into());
    for wrong in [
        program.hand_back(&fake.objects(), another, std::slice::from_ref(&service), &nodes),
        program.hand_back(&fake.objects(), |_| None, std::slice::from_ref(&service), &nodes),
    ] {
        assert!(wrong.len() == 1 && wrong[0].contains("is allocated"), "{wrong:?}");
    }
}

#[tokio::test]
async fn the_go_program_writes_nothing_to_its_own_and_repairs_each_change() {
    let (balancer, program) = (balancer(), GoProgram::new("c"));
    let (service, nodes) = (service(&balancer), nodes(&balancer));
    for (what, mutate, expected) in MUTATIONS {
        let fake = small().await;
        let paths = balancer.put(&fake, USER);
        assert_eq!(wrong_after(&program, &fake, &service, &nodes), [""; 0], "{what}");
        mutate(&fake, &paths);
        let writes = program.ensure(&fake.objects(), &service, &nodes).unwrap();
        assert_eq!(writes, expected(&paths), "{what}");
        assert_ne!(wrong_after(&program, &fake, &service, &nodes), [""; 0], "{what}");
    }
}

#[tokio::test]
async fn what_the_go_program_does_not_compare_it_does_not_write() {
    let (balancer, program) = (balancer().ports(&[("TCP", 80, 30_080), ("UDP", 53, 30_053)]), GoProgram::new("c"));
    let fake = small().await;
    let paths = balancer.put(&fake, USER);
    for path in paths.values() {
        change(&fake, path, |object| {
            object["description"] = json!("changed");
            object["tags"].as_array_mut().unwrap().push(json!({"scope": "cluster-uid", "tag": "u"}));
        });
    }
    fake.enable_by_hand("operator", &paths[&GoStep::VirtualServer(0)], false);
    change(&fake, &paths[&GoStep::Pool(0)], |pool| {
        pool["algorithm"] = json!("IP_HASH");
        pool["snat_translation"] = json!({"type": "LBSnatDisabled"});
        pool["members"].as_array_mut().unwrap().reverse();
        pool["members"][0]["weight"] = json!(7);
        pool["members"][1]["admin_state"] = json!("DISABLED");
    });
    let wrong = wrong_after(&program, &fake, &service(&balancer), &nodes(&balancer));
    assert_eq!(wrong, [""; 0]);
    // An empty list of monitors differs from a missing one (L-26).
    change(&fake, &paths[&GoStep::Pool(1)], |pool| pool["active_monitor_paths"] = json!([]));
    let writes = program.ensure(&fake.objects(), &service(&balancer), &nodes(&balancer));
    assert_eq!(writes, Ok(update(&paths[&GoStep::Pool(1)], "active_monitor_paths")));
}

#[tokio::test]
async fn extra_objects_are_deleted_and_change_what_is_found() {
    let (balancer, program) = (balancer(), GoProgram::new("c"));
    let (service, nodes) = (service(&balancer), nodes(&balancer));
    let fake = small().await;
    let paths = balancer.put(&fake, USER);
    let found = program.found(&fake.objects(), &service).unwrap();
    assert_eq!(found.virtual_servers["TCP/80"], paths[&GoStep::VirtualServer(0)]);
    assert_eq!(
        (&found.pools["TCP/80"], &found.monitors["TCP/80"]),
        (&paths[&GoStep::Pool(0)], &paths[&GoStep::Monitor(0)])
    );
    assert_eq!((&found.allocation, found.address.as_str()), (&paths[&GoStep::Allocation], "192.0.2.5"));
    // The name decides the order of two pools. The extra pool is the last one here.
    let extra = balancer.put_pool(&fake, USER, &balancer.ports[0], None);
    change(&fake, &extra, |pool| pool["display_name"] = json!("z"));
    assert_eq!(program.ensure(&fake.objects(), &service, &nodes), Ok(delete(&extra)));
    assert!(program.found(&fake.objects(), &service).unwrap_err().contains("more than one pool of TCP/80"));
    fake.delete_by_hand(USER, &extra);
    let extra = balancer.put_monitor(&fake, USER, &balancer.ports[0]);
    change(&fake, &extra, |monitor| monitor["display_name"] = json!("z"));
    assert_eq!(program.ensure(&fake.objects(), &service, &nodes), Ok(delete(&extra)));
    fake.delete_by_hand(USER, &extra);
    // The program keeps a second virtual server of the same port, but then there is no longer exactly one load
    // balancer.
    let mut second = balancer.clone();
    second.address = [192, 0, 2, 9].into();
    let extra = second.put_virtual_server(
        &fake,
        USER,
        &balancer.ports[0],
        &paths[&GoStep::Pool(0)],
        &paths[&GoStep::LbService],
    );
    assert_eq!(program.ensure(&fake.objects(), &service, &nodes), Ok(Vec::new()));
    assert!(program.found(&fake.objects(), &service).unwrap_err().contains("virtual server"));
    fake.delete_by_hand(USER, &extra);
    let extra = balancer.put_allocation(&fake, USER, [192, 0, 2, 9].into());
    let error = program.ensure(&fake.objects(), &service, &nodes).unwrap_err();
    assert!(error.starts_with("Multiple IP address allocations"), "{error}");
    fake.delete_by_hand(USER, &extra);
    assert_eq!(wrong_after(&program, &fake, &service, &nodes), [""; 0]);
    fake.delete_by_hand(USER, &paths[&GoStep::Allocation]);
    assert!(program.found(&fake.objects(), &service).unwrap_err().contains("no allocation"));
}

/// SEQ-04 and SEQ-05.
#[tokio::test]
async fn a_changed_service_is_followed() {
    let (balancer, program) = (balancer(), GoProgram::new("c"));
    let fake = small().await;
    let paths = balancer.put(&fake, USER);
    let ensure = |ports: &[(&str, u16, u16)]| {
        let changed = service(&balancer.clone().ports(ports));
        program.ensure(&fake.objects(), &changed, &nodes(&balancer)).unwrap()
    };
    let (monitor, pool, server) =
        (&paths[&GoStep::Monitor(0)], &paths[&GoStep::Pool(0)], &paths[&GoStep::VirtualServer(0)]);
    let in_place = [update(monitor, "monitor_port"), update(server, "default_pool_member_ports")].concat();
    assert_eq!(ensure(&[("TCP", 80, 30_090)]), in_place);
    let create = |collection| GoWrite::Create(collection, "TCP/81".to_owned());
    let created = ["lb-monitor-profiles", "lb-pools", "lb-virtual-servers"].map(create).to_vec();
    let deleted = [delete(server), delete(pool), delete(monitor)].concat();
    assert_eq!(ensure(&[("TCP", 81, 30_080)]), [created, deleted].concat());
    assert!(program.ensure(&fake.objects(), &service(&balancer.clone().ports(&[("SCTP", 80, 30_080)])), &[]).is_err());
    let mut unknown = service(&balancer);
    let annotation = ("loadbalancer.vmware.io/class".to_owned(), " public ".to_owned());
    unknown.metadata.annotations = Some([annotation].into());
    assert_eq!(program.ensure(&fake.objects(), &unknown, &[]), Err("invalid load balancer class public".to_owned()));
    // A configured class changes the profile. Its pool has no allocation of the Service (L-07).
    let mut with_class = program.clone();
    let mut public = GoClass::of_pool("p2");
    public.tcp_profile_path = "/infra/lb-app-profiles/public".to_owned();
    with_class.classes.insert("public".to_owned(), public);
    let writes = with_class.ensure(&fake.objects(), &unknown, &nodes(&balancer));
    assert_eq!(writes, Ok(update(server, "application_profile_path")));
    assert!(with_class.found(&fake.objects(), &unknown).unwrap_err().contains("no allocation"));
}

/// SEQ-08 and SEQ-09.
#[tokio::test]
async fn members_follow_the_nodes_that_the_framework_gives() {
    let (balancer, program) = (balancer(), GoProgram::new("c"));
    let fake = small().await;
    let paths = balancer.put(&fake, USER);
    let service = service(&balancer);
    let update_of = |nodes: &[Node]| {
        let writes = program.update(&fake.objects(), &service, nodes).unwrap();
        assert_eq!(program.ensure(&fake.objects(), &service, nodes).as_ref(), Ok(&writes));
        writes
    };
    let (n1, n2, n3) = (node("n1", "10.0.0.1"), node("n2", "10.0.0.2"), node("n3", "10.0.0.3"));
    let changed = update(&paths[&GoStep::Pool(0)], "members");
    assert_eq!(update_of(&[n2.clone(), n1.clone()]), []);
    assert_eq!(update_of(&[n1.clone(), n3.clone()]), changed);
    assert_eq!(update_of(&[]), changed);
    let with = |change: &dyn Fn(&mut Node)| {
        let mut node = n3.clone();
        change(&mut node);
        node
    };
    for left_out in [
        with(&|node| node.status = None),
        with(&|node| {
            let label = ("node.kubernetes.io/exclude-from-external-load-balancers".to_owned(), String::new());
            node.metadata.labels = Some([label].into());
        }),
        with(&|node| {
            let taint = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
            node.spec = serde_json::from_value(json!({"taints": taint})).unwrap();
        }),
    ] {
        assert_eq!(update_of(&[n1.clone(), n2.clone(), left_out]), []);
    }
    // Two members with one address count as two, so the missing node is not added.
    change(&fake, &paths[&GoStep::Pool(0)], |pool| pool["members"][1] = pool["members"][0].clone());
    assert_eq!(update_of(&[n1, n2]), []);
}

/// SEQ-14 and SEQ-07.
#[tokio::test]
async fn the_cleanup_deletes_the_load_balancers_of_services_that_are_gone() {
    let (balancer, program) = (balancer(), GoProgram::new("c"));
    let fake = small().await;
    let paths = balancer.put(&fake, USER);
    let other = GoBalancer::new("c", "ns/other", [192, 0, 2, 6].into());
    let others = other.put(&fake, USER);
    let foreign = GoBalancer::new("d", "ns/s", [192, 0, 2, 7].into()).put(&fake, USER);
    let of = |paths: &GoPaths, steps: &[GoStep]| -> Vec<GoWrite> {
        steps.iter().map(|step| GoWrite::Delete(paths[step].clone())).collect()
    };
    let without_service: Vec<GoStep> =
        balancer.deletion().into_iter().filter(|step| *step != GoStep::LbService).collect();
    let cleanup = |services: &[Service]| program.cleanup(&fake.objects(), services).unwrap();
    assert_eq!(cleanup(&[service(&balancer), service(&other)]), []);
    assert_eq!(cleanup(&[service(&other)]), of(&paths, &without_service));
    let mut cluster_ip = service(&balancer);
    cluster_ip.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    assert_eq!(cleanup(&[service(&other), cluster_ip]), of(&paths, &without_service), "of another type");
    let all = [of(&others, &without_service), of(&paths, &balancer.deletion())].concat();
    assert_eq!(cleanup(&[]), all, "the service of the cluster goes with the last one");
    assert!(
        foreign
            .values()
            .filter(|path| **path != foreign[&GoStep::LbService])
            .all(|path| { !all.contains(&GoWrite::Delete(path.clone())) })
    );
    // A configured service is never deleted.
    let id = paths[&GoStep::LbService].rsplit('/').next().unwrap().to_owned();
    let unmanaged = GoProgram { lb_service_id: Some(id), ..program.clone() };
    let writes = unmanaged.cleanup(&fake.objects(), &[]).unwrap();
    assert_eq!(writes, [of(&others, &without_service), of(&paths, &without_service)].concat());
    // SEQ-13.
    let elsewhere = GoProgram { tier1_path: Some("/infra/tier-1s/t2".to_owned()), ..unmanaged };
    fake.delete_by_hand(USER, &paths[&GoStep::VirtualServer(0)]);
    let error = elsewhere.ensure(&fake.objects(), &service(&balancer), &nodes(&balancer)).unwrap_err();
    assert!(error.contains("is configured for router"), "{error}");
}

#[tokio::test]
async fn objects_that_break_the_go_program_are_failures() {
    let (balancer, program) = (balancer(), GoProgram::new("c"));
    let fake = small().await;
    let paths = balancer.put(&fake, USER);
    fake.put_by_hand("other", "/infra/lb-pools/foreign", json!({"tags": [{"scope": "a"}]}));
    let wrong = wrong_after(&program, &fake, &service(&balancer), &nodes(&balancer));
    assert!(wrong.len() == 4 && wrong.iter().all(|line| line.contains("panic: a tag of /infra/lb-pools/foreign")));
    fake.delete_by_hand("other", "/infra/lb-pools/foreign");
    change(&fake, &paths[&GoStep::Pool(0)], |pool| {
        for tag in pool["tags"].as_array_mut().unwrap().iter_mut().filter(|tag| tag["scope"] == "service") {
            tag["tag"] = json!("ns");
        }
    });
    let error = program.cleanup(&fake.objects(), &[service(&balancer)]).unwrap_err();
    assert!(error.contains("service=ns"), "{error}");
}

/// Objects that are marked for deletion are in no list.
#[tokio::test]
async fn marked_objects_are_not_found() {
    let balancer = balancer();
    let fake = FakeNsx::start(
        Model::small().behaviour(Behaviour { deletion: Behaviour::OPPOSITE.deletion, ..Behaviour::USUAL }),
    )
    .await;
    let paths = balancer.put(&fake, USER);
    fake.force_delete_by_hand(USER, &paths[&GoStep::VirtualServer(0)]);
    let writes = GoProgram::new("c").ensure(&fake.objects(), &service(&balancer), &nodes(&balancer));
    assert_eq!(writes, Ok(vec![GoWrite::Create("lb-virtual-servers", "TCP/80".to_owned())]));
}
