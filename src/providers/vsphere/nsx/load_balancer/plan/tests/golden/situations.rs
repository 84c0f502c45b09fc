//! The situations whose plans are golden.

use serde_json::json;

use super::super::*;
use super::Situation;
use super::nsx::{Detail, Nsx, Request};
use crate::providers::vsphere::config::address_rules::IpFamily::{V4, V6};
use crate::providers::vsphere::nsx::load_balancer::layout::PORT;
use crate::providers::vsphere::nsx::load_balancer::service_request::SourceRanges;

/// The title of a situation, and the events that lead to its plan.
type TitledEvents = (&'static str, fn(&mut Nsx));

/// Returns all situations, with the files of their plans.
pub fn all() -> impl Iterator<Item = Situation> {
    let files: [(&'static str, &'static [TitledEvents]); 9] = [
        ("creation", CREATION),
        ("changes", CHANGES),
        ("features", FEATURES),
        ("deletion", DELETION),
        ("adoption", ADOPTION),
        ("families", FAMILIES),
        ("addresses", ADDRESSES),
        ("edits", EDITS),
        ("restarts", RESTARTS),
    ];
    files.into_iter().flat_map(|(file, all)| all.iter().map(move |(title, events)| (file, *title, *events)))
}

/// Returns a Service with one TCP port and two Nodes.
fn one() -> Request {
    Request::new(&[(tcp(80), 30080)], &[1, 2])
}

fn two() -> Request {
    Request::new(&[(tcp(80), 30080), (tcp(443), 30443)], &[1, 2])
}

fn dns() -> Request {
    Request::new(&[(udp(53), 30053), (tcp(53), 30054)], &[1, 2])
}

fn ranges(network: &str) -> Option<SourceRanges> {
    Some(SourceRanges::new(&[network.parse().unwrap()].into(), IpFamily::V4))
}

fn all_features() -> Features {
    Features {
        source_ranges: ranges("10.0.0.0/8"),
        affinity: Some(Duration::from_secs(60)),
        health_check: Some(32000),
        has_icmp_check: false,
        is_snat_disabled: true,
        address: None,
    }
}

fn with_address(last: u8) -> Features {
    Features { address: Some(ip(last)), ..Features::default() }
}

/// Syncs each request in turn.
fn syncs(nsx: &mut Nsx, requests: &[(&str, Request)]) {
    for (title, request) in requests {
        nsx.say(&format!("- {title}"));
        nsx.sync(request);
    }
}

/// Creates the load balancer, and gives it the ids and tags of the Go program.
fn adopted(nsx: &mut Nsx, request: &Request) {
    nsx.given(request);
    nsx.made_by_the_go_program();
}

const CREATION: &[TitledEvents] = &[
    ("a TCP port", |nsx| nsx.sync(&one())),
    ("several ports use one address and one load balancer service", |nsx| nsx.sync(&two())),
    ("a UDP port has no monitor and shares the address with a TCP port", |nsx| nsx.sync(&dns())),
    ("the load balancer service exists", |nsx| {
        nsx.given(&one());
        nsx.given(&one().deleted());
        nsx.ingress.clear();
        nsx.sync(&one());
    }),
    ("a Service without Nodes", |nsx| nsx.sync(&Request::new(&[(tcp(80), 30080)], &[]))),
    ("all features on a TCP port", |nsx| nsx.sync(&one().with(all_features()))),
    ("all features on a UDP port", |nsx| {
        nsx.sync(&Request::new(&[(udp(53), 30053)], &[1]).with(all_features()));
    }),
    ("ICMP checks the Nodes of a UDP port", |nsx| {
        nsx.sync(&dns().with(Features { has_icmp_check: true, ..Features::default() }));
    }),
    ("the cluster UID is unknown", |nsx| {
        nsx.layout.cluster_uid = None;
        nsx.sync(&one());
    }),
];

const CHANGES: &[TitledEvents] = &[
    ("nothing changes", |nsx| {
        nsx.given(&two());
        nsx.sync(&two());
    }),
    ("another node port", |nsx| {
        nsx.given(&one());
        nsx.sync(&Request::new(&[(tcp(80), 30090)], &[1, 2]));
    }),
    ("other Nodes, and then none", |nsx| {
        nsx.given(&one());
        let request = |nodes: &[u8]| Request::new(&[(tcp(80), 30080)], nodes);
        syncs(nsx, &[("other Nodes", request(&[2, 3])), ("no Nodes", request(&[]))]);
    }),
    ("a port is added and removed", |nsx| {
        nsx.given(&one());
        syncs(nsx, &[("added", two()), ("removed", one())]);
    }),
    ("another port", |nsx| {
        nsx.given(&one());
        nsx.sync(&Request::new(&[(tcp(81), 30080)], &[1, 2]));
    }),
    ("another protocol of the same port", |nsx| {
        nsx.given(&one());
        let with_udp = Request::new(&[(udp(80), 30080)], &[1, 2]);
        syncs(nsx, &[("UDP", with_udp), ("TCP", one())]);
    }),
    ("two ports exchange their node ports", |nsx| {
        nsx.given(&two());
        nsx.sync(&Request::new(&[(tcp(80), 30443), (tcp(443), 30080)], &[1, 2]));
    }),
    ("the changes of a port come before the creation of another one", |nsx| {
        nsx.given(&Request::new(&[(tcp(81), 30081)], &[1]));
        nsx.sync(&Request::new(&[(tcp(80), 30080), (tcp(81), 30082)], &[2]));
    }),
];

const FEATURES: &[TitledEvents] = &[
    ("source ranges are added, changed and removed", |nsx| {
        nsx.given(&one());
        let with = |network| one().with(Features { source_ranges: ranges(network), ..Features::default() });
        syncs(nsx, &[("added", with("10.0.0.0/8")), ("changed", with("10.1.0.0/16")), ("removed", one())]);
    }),
    ("session affinity is added, changed and removed", |nsx| {
        nsx.given(&one());
        let with =
            |seconds| one().with(Features { affinity: Some(Duration::from_secs(seconds)), ..Features::default() });
        syncs(nsx, &[("added", with(60)), ("changed", with(70)), ("removed", one())]);
    }),
    ("the health check changes its type and its port", |nsx| {
        nsx.given(&dns());
        let with = |port| dns().with(Features { health_check: Some(port), ..Features::default() });
        syncs(nsx, &[("HTTP", with(32000)), ("other port", with(32001)), ("TCP", dns())]);
    }),
    ("SNAT is disabled and enabled", |nsx| {
        nsx.given(&one());
        let disabled = one().with(Features { is_snat_disabled: true, ..Features::default() });
        syncs(nsx, &[("disabled", disabled), ("enabled", one())]);
    }),
    ("all features are removed and added after a restart", |nsx| {
        nsx.given(&one().with(all_features()));
        nsx.restart();
        syncs(nsx, &[("unchanged", one().with(all_features()))]);
        nsx.restart();
        syncs(nsx, &[("removed", one()), ("added", one().with(all_features()))]);
    }),
    ("a group of an earlier version has the ranges of both families", |nsx| {
        let request = one().with(Features { source_ranges: ranges("10.0.0.0/8"), ..Features::default() });
        nsx.given(&request);
        let addresses = json!(["10.0.0.0/8", "2001:db8::/32"]);
        nsx.set("group", "expression", json!([{"resource_type": "IPAddressExpression", "ip_addresses": addresses}]));
        nsx.sync(&request);
    }),
    ("a monitor of an earlier version has another HTTP version", |nsx| {
        let request = one().with(all_features());
        nsx.given(&request);
        nsx.set("LBHttpMonitorProfile TCP/80", "request_version", "HTTP_VERSION_1_1");
        nsx.sync(&request);
    }),
];

const DELETION: &[TitledEvents] = &[
    ("a TCP port", |nsx| {
        nsx.given(&one());
        nsx.sync(&one().deleted());
        nsx.say_what_is_left();
    }),
    ("TCP and UDP ports", |nsx| {
        nsx.given(&dns());
        nsx.sync(&dns().deleted());
        nsx.say_what_is_left();
    }),
    ("all features", |nsx| {
        nsx.given(&one().with(all_features()));
        nsx.sync(&one().with(all_features()).deleted());
        nsx.say_what_is_left();
    }),
    ("all features after a restart", |nsx| {
        nsx.given(&one().with(all_features()));
        nsx.restart();
        nsx.sync(&one().with(all_features()).deleted());
        nsx.say_what_is_left();
    }),
    ("an interrupted creation may have left a group and a persistence profile", |nsx| {
        nsx.detail = Detail::None;
        nsx.sync_up_to(&one().with(all_features()), 2);
        nsx.detail = Detail::Fields;
        nsx.restart();
        nsx.sync(&one().deleted());
        nsx.say_what_is_left();
    }),
    ("the Service does not exist and the program knows only the cluster UID", |nsx| {
        nsx.given(&one());
        let mut request = one().deleted();
        request.desired.service_uid = None;
        nsx.sync(&request);
        nsx.say_what_is_left();
    }),
    ("an allocation without an address", |nsx| {
        nsx.detail = Detail::None;
        nsx.sync_up_to(&one(), 3);
        nsx.detail = Detail::Fields;
        nsx.sync(&one().deleted());
        nsx.say_what_is_left();
    }),
    ("a virtual server of unclear ownership uses the pool and the address", |nsx| {
        nsx.given(&one());
        nsx.copy("server TCP/80", "unclear");
        nsx.set("unclear", "lb_service_path", "/infra/lb-services/other");
        nsx.sync(&one().deleted());
        nsx.say_what_is_left();
    }),
    ("another cluster uses the address", |nsx| {
        nsx.given(&one());
        nsx.copy("server TCP/80", "foreign");
        nsx.tag("foreign", "cluster", Some("other"));
        nsx.set("foreign", "pool_path", "/infra/lb-pools/other");
        nsx.sync(&one().deleted());
        nsx.say_what_is_left();
    }),
];

const ADOPTION: &[TitledEvents] = &[
    ("nothing changes", |nsx| {
        adopted(nsx, &dns());
        nsx.sync(&dns());
    }),
    ("other Nodes and another node port", |nsx| {
        adopted(nsx, &one());
        nsx.sync(&Request::new(&[(tcp(80), 30090)], &[2, 3]));
    }),
    ("a port is added", |nsx| {
        adopted(nsx, &one());
        nsx.sync(&two());
    }),
    ("a port is removed, and its pool is tagged first", |nsx| {
        adopted(nsx, &two());
        nsx.sync(&one());
    }),
    ("another port", |nsx| {
        adopted(nsx, &one());
        nsx.sync(&Request::new(&[(tcp(81), 30080)], &[1, 2]));
    }),
    ("features are not applied without full adoption", |nsx| {
        adopted(nsx, &one());
        let request = one().with(Features { address: Some(ip(77)), ..all_features() });
        syncs(nsx, &[("tags only", request.clone()), ("full adoption", request.adopting())]);
    }),
    ("a new port has the features", |nsx| {
        adopted(nsx, &one());
        nsx.sync(&two().with(all_features()));
    }),
    ("the Service reports no address, and the Nodes show the owner", |nsx| {
        adopted(nsx, &one());
        nsx.ingress.clear();
        nsx.sync(&one());
    }),
    ("the list has no address of the allocation", |nsx| {
        adopted(nsx, &one());
        nsx.unset("allocation", "allocated_ip");
        nsx.set("allocation", "allocation_ip", ip(1).to_string());
        nsx.sync(&one());
    }),
    ("deletion", |nsx| {
        adopted(nsx, &dns());
        nsx.sync(&dns().deleted());
        nsx.say_what_is_left();
    }),
    ("deletion while the cluster UID is unknown", |nsx| {
        adopted(nsx, &one());
        nsx.layout.cluster_uid = None;
        nsx.sync(&one().deleted());
        nsx.say_what_is_left();
    }),
    ("deletion of a Service that reports no address: the pool keeps the address", |nsx| {
        adopted(nsx, &one());
        nsx.ingress.clear();
        nsx.sync(&one().deleted());
        nsx.say_what_is_left();
    }),
    ("deletion with configured tags that leave no room", |nsx| {
        adopted(nsx, &one());
        nsx.layout.configured = (0..26).map(|number| (format!("team-{number}"), "x".to_owned())).collect();
        nsx.sync(&one().deleted());
        nsx.say_what_is_left();
    }),
];

const FAMILIES: &[TitledEvents] = &[
    ("creation of two families", |nsx| nsx.sync(&one().of(&[V4, V6]))),
    ("creation of two families with features", |nsx| {
        let features = Features { is_snat_disabled: true, health_check: Some(32000), ..Features::default() };
        nsx.sync(&one().of(&[V6, V4]).with(features));
    }),
    ("creation of IPv6 only", |nsx| nsx.sync(&one().of(&[V6]))),
    ("a second family is added, changed and removed", |nsx| {
        nsx.given(&one());
        let both = one().of(&[V4, V6]);
        let changed = Request::new(&[(tcp(80), 30090)], &[2]).of(&[V4, V6]);
        syncs(nsx, &[("added", both), ("changed", changed.clone()), ("removed", changed.of(&[V4]))]);
    }),
    ("the first family is removed", |nsx| {
        nsx.given(&one().of(&[V4, V6]));
        nsx.sync(&one().of(&[V6]));
    }),
    ("a second family beside a load balancer of the Go program", |nsx| {
        adopted(nsx, &one());
        nsx.sync(&one().of(&[V4, V6]));
    }),
    ("deletion of two families", |nsx| {
        nsx.given(
            &one().of(&[V4, V6]).with(Features { affinity: Some(Duration::from_secs(60)), ..Features::default() }),
        );
        nsx.sync(&one().of(&[V4, V6]).deleted());
        nsx.say_what_is_left();
    }),
];

const ADDRESSES: &[TitledEvents] = &[
    ("the requested address", |nsx| nsx.sync(&one().with(with_address(7)))),
    ("the reported address after a loss of all objects", |nsx| {
        nsx.ingress = vec![ip(9)];
        nsx.sync(&one());
    }),
    ("the requested address takes precedence over the reported address", |nsx| {
        nsx.ingress = vec![ip(9)];
        nsx.sync(&one().with(with_address(7)));
    }),
    ("an exhausted IP pool, and a later retry", |nsx| {
        nsx.is_exhausted = true;
        nsx.sync(&one());
        nsx.is_exhausted = false;
        syncs(nsx, &[("a free address", one())]);
    }),
    ("the list has no address of an allocation of this program", |nsx| {
        nsx.given(&one());
        nsx.unset("allocation", "allocated_ip");
        nsx.sync(&one());
    }),
    ("of two allocations, the one in use stays", |nsx| {
        nsx.given(&one());
        nsx.copy("allocation", "surplus");
        nsx.tag("surplus", CLUSTER_UID, Some(CLUSTER));
        nsx.unset("surplus", "allocated_ip");
        nsx.sync(&one());
    }),
    ("a surplus allocation whose address another cluster uses stays", |nsx| {
        nsx.given(&one());
        nsx.copy("allocation", "surplus");
        nsx.tag("surplus", CLUSTER_UID, Some(CLUSTER));
        nsx.set("surplus", "allocated_ip", ip(9).to_string());
        nsx.copy("server TCP/80", "foreign");
        nsx.tag("foreign", "cluster", Some("other"));
        nsx.set("foreign", "ip_address", ip(9).to_string());
        nsx.sync(&one());
    }),
    ("an edited address is set back", |nsx| {
        nsx.given(&two());
        nsx.set("server TCP/80", "ip_address", ip(9).to_string());
        nsx.sync(&two());
    }),
    ("an edited address of the Go program stays without full adoption", |nsx| {
        adopted(nsx, &two());
        nsx.set("server TCP/80", "ip_address", ip(9).to_string());
        nsx.tag("server TCP/80", CLUSTER_UID, Some(CLUSTER));
        syncs(nsx, &[("tags only", two()), ("full adoption", two().adopting())]);
    }),
    ("an edited address stays while another virtual server is in its place", |nsx| {
        nsx.given(&one());
        nsx.copy("server TCP/80", "unclear");
        nsx.set("unclear", "lb_service_path", "/infra/lb-services/other");
        nsx.set("server TCP/80", "ip_address", ip(9).to_string());
        nsx.sync(&one());
    }),
    ("a released address of a virtual server is reserved again", |nsx| {
        nsx.given(&one());
        nsx.remove("allocation");
        nsx.sync(&one());
    }),
    ("a pool keeps the tag of its address until the port is served again", |nsx| {
        nsx.given(&one());
        nsx.tag("pool TCP/80", ADDRESS, Some("192.0.2.1"));
        nsx.remove("server TCP/80");
        nsx.sync(&one());
    }),
];

const EDITS: &[TitledEvents] = &[
    ("another client changes ports and tags of ports", |nsx| {
        type Edit = fn(&mut Nsx);
        let edits: [(&str, Edit); 6] = [
            ("other port", |nsx| nsx.set("server TCP/80", "ports", json!(["8080"]))),
            ("several ports", |nsx| nsx.set("server TCP/80", "ports", json!(["80", "81"]))),
            ("other tag", |nsx| nsx.tag("server TCP/80", PORT, Some("TCP/8080"))),
            ("no tag", |nsx| nsx.tag("server TCP/80", PORT, None)),
            ("no tag of the pool", |nsx| nsx.tag("pool TCP/80", PORT, None)),
            ("other tag of the monitor", |nsx| nsx.tag("LBTcpMonitorProfile TCP/80", PORT, Some("UDP/80"))),
        ];
        nsx.given(&one());
        for (title, edit) in edits {
            edit(nsx);
            syncs(nsx, &[(title, one())]);
        }
    }),
    ("the tag of a virtual server of the Go program is removed", |nsx| {
        adopted(nsx, &two());
        nsx.tag("server TCP/80", PORT, None);
        nsx.sync(&two());
    }),
    ("another client changes members, monitors and the profile", |nsx| {
        nsx.given(&one());
        nsx.set("pool TCP/80", "members", json!([]));
        syncs(nsx, &[("members", one())]);
        nsx.unset("pool TCP/80", "active_monitor_paths");
        syncs(nsx, &[("monitors", one())]);
        nsx.set("server TCP/80", "application_profile_path", "/other");
        syncs(nsx, &[("profile", one())]);
    }),
    ("another client changes the access list", |nsx| {
        let request = one().with(Features { source_ranges: ranges("10.0.0.0/8"), ..Features::default() });
        nsx.given(&request);
        let list =
            |group: &str, is_enabled: bool| json!({"action": "ALLOW", "enabled": is_enabled, "group_path": group});
        let group = nsx.object("group").path().to_owned();
        nsx.set("server TCP/80", "access_list_control", list(&group, false));
        syncs(nsx, &[("disabled", request.clone())]);
        nsx.set("server TCP/80", "access_list_control", list("/infra/domains/default/groups/other", true));
        syncs(nsx, &[("other group", request.clone())]);
        nsx.set("group", "expression", json!([]));
        syncs(nsx, &[("empty group", request)]);
    }),
    ("another client deletes a virtual server, its pool and its monitor", |nsx| {
        nsx.given(&one());
        nsx.remove("server TCP/80");
        syncs(nsx, &[("virtual server", one())]);
        nsx.remove("pool TCP/80");
        syncs(nsx, &[("pool", one())]);
        nsx.remove("LBTcpMonitorProfile TCP/80");
        syncs(nsx, &[("monitor", one())]);
    }),
    ("two virtual servers have exchanged their ports", |nsx| {
        nsx.given(&two());
        nsx.set("server TCP/80", "ports", json!(["443"]));
        nsx.set("server TCP/443", "ports", json!(["80"]));
        nsx.sync(&Request::new(&[(tcp(80), 30080), (tcp(443), 30443)], &[3]));
    }),
    ("a virtual server of unclear ownership is in the place of a port", |nsx| {
        nsx.given(&one());
        nsx.copy("server TCP/80", "unclear");
        nsx.set("unclear", "lb_service_path", "/infra/lb-services/other");
        nsx.set("unclear", "ports", json!(["443"]));
        nsx.sync(&two());
    }),
    ("two virtual servers share a pool", |nsx| {
        nsx.given(&two());
        let pool = nsx.object("pool TCP/80").path().to_owned();
        nsx.set("server TCP/443", "pool_path", pool);
        nsx.sync(&two());
    }),
    ("two virtual servers of the Go program share a pool", |nsx| {
        adopted(nsx, &two());
        let pool = nsx.object("pool TCP/80").path().to_owned();
        nsx.set("server TCP/443", "pool_path", pool);
        nsx.remove("pool TCP/443");
        syncs(nsx, &[("sync", two()), ("deletion", two().deleted())]);
        nsx.say_what_is_left();
    }),
    ("a second virtual server of a port on another address is updated too", |nsx| {
        nsx.given(&one());
        nsx.copy("server TCP/80", "second server");
        nsx.copy("pool TCP/80", "second pool");
        nsx.copy("LBTcpMonitorProfile TCP/80", "second monitor");
        for name in ["second server", "second pool", "second monitor"] {
            nsx.tag(name, CLUSTER_UID, Some(CLUSTER));
        }
        let pool = nsx.object("second pool").path().to_owned();
        let monitor = nsx.object("second monitor").path().to_owned();
        nsx.set("second server", "ip_address", ip(9).to_string());
        nsx.set("second server", "pool_path", pool);
        nsx.set("second pool", "active_monitor_paths", json!([monitor]));
        nsx.sync(&Request::new(&[(tcp(80), 30090)], &[2]));
    }),
];

const RESTARTS: &[TitledEvents] = &[
    ("creation", |nsx| nsx.restart_after_each_step(&dns())),
    ("creation with all features", |nsx| nsx.restart_after_each_step(&one().with(all_features()))),
    ("creation of two families", |nsx| nsx.restart_after_each_step(&one().of(&[V4, V6]))),
    ("another port", |nsx| {
        nsx.given(&one());
        nsx.restart_after_each_step(&Request::new(&[(tcp(81), 30080)], &[1, 2]));
    }),
    ("all features are added", |nsx| {
        nsx.given(&one());
        nsx.restart_after_each_step(&one().with(all_features()));
    }),
    ("all features are removed", |nsx| {
        nsx.given(&one().with(all_features()));
        nsx.restart_after_each_step(&one());
    }),
    ("full adoption", |nsx| {
        adopted(nsx, &one());
        nsx.restart_after_each_step(&one().with(all_features()).adopting());
    }),
    ("removal of the second family", |nsx| {
        nsx.given(&one().of(&[V4, V6]));
        nsx.restart_after_each_step(&one());
    }),
    ("deletion", |nsx| {
        nsx.given(&dns());
        nsx.restart_after_each_step(&dns().deleted());
    }),
    ("deletion of all features", |nsx| {
        nsx.given(&one().with(all_features()));
        nsx.restart_after_each_step(&one().with(all_features()).deleted());
    }),
    ("deletion of two families", |nsx| {
        nsx.given(&one().of(&[V4, V6]));
        nsx.restart_after_each_step(&one().of(&[V4, V6]).deleted());
    }),
    ("deletion of objects of the Go program", |nsx| {
        adopted(nsx, &one());
        nsx.restart_after_each_step(&one().deleted());
    }),
    ("deletion of objects of the Go program of a Service that reports no address", |nsx| {
        adopted(nsx, &one());
        nsx.ingress.clear();
        nsx.restart_after_each_step(&one().deleted());
    }),
];
