//! Tests of ids, and of ports in tags.

use super::*;

const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };

fn layout(cluster_uid: Option<&str>) -> ClusterLayout {
    ClusterLayout {
        cluster: "c".to_owned(),
        cluster_uid: cluster_uid.map(str::to_owned),
        configured: BTreeMap::new(),
        secondary: None,
    }
}

/// These ids must not change, because existing objects are found by them.
#[test]
fn ids_depend_on_cluster_name_service_kind_port_and_attempt_alone() {
    let ours = layout(None);
    let copy = ClusterLayout { cluster: "copy".to_owned(), ..ours.clone() };
    let udp = Port { protocol: Protocol::Udp, number: 80 };
    let ids = [
        ours.id(ObjectKind::Pool, "u-1", Some(HTTP), 0),
        ours.id(ObjectKind::Pool, "u-2", Some(HTTP), 0),
        ours.id(ObjectKind::Monitor, "u-1", Some(HTTP), 0),
        ours.id(ObjectKind::VirtualServer, "u-1", Some(HTTP), 0),
        ours.id(ObjectKind::Pool, "u-1", Some(udp), 0),
        ours.id(ObjectKind::Pool, "u-1", Some(HTTP), 1),
        ours.id(ObjectKind::Allocation, "u-1", None, 0),
        ours.id(ObjectKind::Group, "u-1", None, 0),
        ours.id(ObjectKind::PersistenceProfile, "u-1", None, 0),
        copy.id(ObjectKind::Pool, "u-1", Some(HTTP), 0),
        ours.lb_service_id(None, 0),
        ours.lb_service_id(Some("/infra/tier-1s/t"), 0),
        layout(Some("k")).lb_service_id(None, 0),
        copy.lb_service_id(None, 0),
    ];
    let different: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(different.len(), ids.len());
    assert!(ids.iter().all(|id| has_own_form(id)));
    assert!(
        !has_own_form("9f7e6b0e-0c0f-4d0f-8d6c-5b5f5b0f1f11") && !has_own_form("x"),
        "of the Go program, of others"
    );
    let pinned = [&ids[0], &ids[2], &ids[3], &ids[6], &ids[11], &ids[7], &ids[8]];
    assert_eq!(
        pinned,
        [
            "faaaef56-efb1-591a-a58f-e78b2784b491",
            "da2d7254-4b72-50d6-ac8a-0a419f21dc46",
            "0b05531b-a4b3-5cef-807c-53e6ae35d185",
            "d4de6e6c-7b60-5e3d-9a2f-28cb87d4bb7a",
            "aae0f21c-5b70-5595-a137-e7deb6988caf",
            "db9e6e0d-7d9c-58d9-bab8-fe235430d3bd",
            "689a70d7-002c-5131-8996-5f7db5454c4a"
        ]
    );
    assert_eq!(
        layout(Some("k")).id(ObjectKind::Pool, "u-1", Some(HTTP), 0),
        ids[0],
        "the UID may be unknown for a while"
    );
}

/// Monitors of earlier versions are found by their ids. A monitor of another type must have another id.
#[test]
fn monitors_of_one_port_have_an_id_for_each_type() {
    let (ours, dns) = (layout(None), Port { protocol: Protocol::Udp, number: 53 });
    for (port, [first, other]) in
        [(HTTP, [MonitorType::Tcp, MonitorType::Http]), (dns, [MonitorType::Http, MonitorType::Icmp])]
    {
        assert_eq!(MonitorType::of(port.protocol), [first, other]);
        let (one, two) = (ours.monitor_id(first, "u-1", port, 0), ours.monitor_id(other, "u-1", port, 0));
        assert_eq!(one, ours.id(ObjectKind::Monitor, "u-1", Some(port), 0), "as before there were others");
        assert_ne!(one, two);
        for id in [&one, &two] {
            assert!(ours.has_id(None, ObjectKind::Monitor, "u-1", Some(port), id) && has_own_form(id), "{port}");
            assert!(!ours.has_id(None, ObjectKind::Monitor, "u-2", Some(port), id), "{port}");
        }
    }
    assert_eq!(ours.monitor_id(MonitorType::Tcp, "u-1", HTTP, 0), "da2d7254-4b72-50d6-ac8a-0a419f21dc46");
}

#[test]
fn a_port_is_read_as_it_is_written_and_nothing_else_is() {
    for port in [HTTP, Port { protocol: Protocol::Udp, number: 65535 }] {
        assert_eq!(Port::parse(&port.to_string()), Some(port));
    }
    for wrong in ["", "TCP", "TCP/", "tcp/80", "SCTP/80", "TCP/65536", "TCP/80/1"] {
        assert_eq!(Port::parse(wrong), None, "{wrong}");
    }
}
