//! Tests of the flags for nodes: their defaults, their settings, and the messages about invalid values.

use super::*;
use crate::app::settings::ProviderSettings;
use crate::app::settings::tests::{settled, settled_in};
use crate::providers::vsphere::Options;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn defaults_follow_nothing_and_delete_with_care() {
    let settings = settled(&[]).unwrap();
    assert_eq!(settings.nodes.policy, node::Policy::default());
    assert_eq!(
        settings.node_lifecycle,
        node_lifecycle::LifecycleSettings {
            period: Duration::from_secs(5),
            deletion: DeletionMode::Enforce,
            grace: Duration::from_secs(30),
            limit: Limit { nodes: 5, percent: 10, window: Duration::from_secs(600) },
            mass_hold: Duration::from_secs(900),
            out_of_service_after: None,
        }
    );
    let ProviderSettings::Vsphere(vsphere) = settings.provider;
    let Options { topology, demotes_virtual_ips, trusts_unseen, trusts_guest_interfaces, .. } = vsphere.options;
    assert_eq!((topology, demotes_virtual_ips, trusts_unseen), (TopologyLabels::default(), true, false));
    assert!(!trusts_guest_interfaces);
}

#[test]
fn flags_reach_the_settings() {
    let settings = settled(&[
        "--node-labels=example.com/pool=blue,rack=7",
        "--node-labels=rack=8",
        "--node-labels-on=all",
        "--zone-labels=follow",
        "--instance-type=follow",
        "--adopt-untainted-nodes",
        "--node-monitor-period=1s",
        "--node-deletion=dry-run",
        "--node-deletion-grace=0",
        "--node-deletion-limit=0, 100%, 90s",
        "--node-deletion-mass-hold=1h",
        "--node-deletion-unseen=enforce",
        "--out-of-service-after=1m30s",
        "--topology-labels=esxi-host,cluster",
        "--topology-labels= datastore ,cluster,",
        "--topology-label-prefix=vsphere.example.com/",
        "--demote-virtual-ips=false",
        "--trust-guest-interfaces",
    ])
    .unwrap();
    assert_eq!(
        settings.nodes.policy,
        node::Policy {
            node_labels: labels(&[("example.com/pool", "blue"), ("rack", "8")]),
            topology_labels: ["esxi-host", "cluster", "datastore"]
                .map(|place| format!("vsphere.example.com/{place}"))
                .into(),
            node_labels_on: NodeLabelsOn::All,
            zone_labels: LabelMode::Follow,
            instance_type: LabelMode::Follow,
            adopts_untainted_nodes: true,
            ..node::Policy::default()
        }
    );
    assert_eq!(
        settings.node_lifecycle,
        node_lifecycle::LifecycleSettings {
            period: Duration::from_secs(1),
            deletion: DeletionMode::DryRun,
            grace: Duration::ZERO,
            limit: Limit { nodes: 0, percent: 100, window: Duration::from_secs(90) },
            mass_hold: Duration::from_secs(3600),
            out_of_service_after: Some(Duration::from_secs(90)),
        }
    );
    let topology = TopologyLabels {
        objects: [TopologyPlace::EsxiHost, TopologyPlace::Cluster, TopologyPlace::Datastore].into(),
        prefix: "vsphere.example.com/".to_owned(),
    };
    let ProviderSettings::Vsphere(vsphere) = settings.provider;
    assert_eq!(vsphere.options.topology, topology);
    assert_eq!((vsphere.options.demotes_virtual_ips, vsphere.options.trusts_unseen), (false, true));
    assert!(vsphere.options.trusts_guest_interfaces);
}

#[test]
fn every_place_is_found_by_its_word_and_named_where_a_word_is_wrong() {
    let messages = settled(&["--topology-labels=host"]).unwrap_err().to_string();
    for place in TopologyPlace::ALL {
        let settings = settled(&[&format!("--topology-labels={}", place.word())]).unwrap();
        let ProviderSettings::Vsphere(vsphere) = settings.provider;
        assert_eq!(vsphere.options.topology.objects, [place].into());
        assert!(messages.contains(place.word()), "{place:?}: {messages}");
    }
}

/// The controller ignores these labels when it starts. The Go program ignores them at each node.
#[test]
fn labels_of_kubernetes_itself_are_no_mistake() {
    let settings = settled(&["--node-labels=node-role.kubernetes.io/worker="]).unwrap();
    assert_eq!(settings.nodes.policy.node_labels, labels(&[("node-role.kubernetes.io/worker", "")]));
}

#[test]
fn the_go_programs_variable_stops_deletion_whatever_the_flag_says() {
    for (flag, variable, expected) in [
        ("--node-deletion=enforce", None, DeletionMode::Enforce),
        ("--node-deletion=off", None, DeletionMode::Off { reason: "--node-deletion=off" }),
        ("--node-deletion=enforce", Some("false"), DeletionMode::Off { reason: "SKIP_NODE_DELETION is set" }),
        ("--node-deletion=dry-run", Some(""), DeletionMode::Off { reason: "SKIP_NODE_DELETION is set" }),
    ] {
        let variables: Vec<_> = variable.iter().map(|value| ("SKIP_NODE_DELETION", *value)).collect();
        let settings = settled_in(&variables, &[flag]).unwrap();
        assert_eq!(settings.node_lifecycle.deletion, expected, "{flag} {variable:?}");
    }
}

#[test]
fn out_of_service_is_off_unless_a_time_is_given() {
    for (value, expected) in [("", None), ("0", None), ("0s", None), ("1s", Some(Duration::from_secs(1)))] {
        let settings = settled(&[&format!("--out-of-service-after={value}")]).unwrap();
        assert_eq!(settings.node_lifecycle.out_of_service_after, expected, "{value:?}");
    }
}

#[test]
fn each_wrong_flag_is_told_with_its_value_and_what_is_expected() {
    const LIMIT: &str = "expected a number of nodes, a percentage of all and a time, such as 5,10%,10m";
    const PREFIX: &str = "expected a DNS name and a slash such as topology.example.com/";
    let cases: &[(&str, &str, &str)] = &[
        ("--node-labels-on", "init", "expected join or all"),
        ("--node-labels", "pool", "\"pool\" is not key=value; expected key=value"),
        ("--node-labels", "", "\"\" is not key=value; expected key=value"),
        ("--node-labels", "a=b,c=d,e", "\"e\" is not key=value; expected key=value"),
        ("--node-labels", "=b", "\"\" is no name of a label; expected letters, digits"),
        ("--node-labels", "a=b, c=d", "\" c\" is no name of a label; expected letters, digits"),
        ("--node-labels", "pool=blue,green", "\"blue,green\" is no value of a label; expected at most 63"),
        ("--node-labels", "a=b,c=d e", "\"d e\" is no value of a label; expected at most 63"),
        ("--zone-labels", "keep", "expected init, fill or follow"),
        ("--instance-type", "Follow", "expected init or follow"),
        ("--instance-type", "fill", "expected init or follow"),
        ("--adopt-untainted-nodes", "yes", "expected true or false"),
        ("--node-monitor-period", "0", "expected at least 1s"),
        ("--node-monitor-period", "5", "it is not a duration such as 1h2m3s"),
        ("--node-deletion", "on", "expected enforce, dry-run or off"),
        ("--node-deletion-grace", "-1s", "it is negative"),
        ("--node-deletion-mass-hold", "", "it is not a duration such as 1h2m3s"),
        ("--node-deletion-limit", "5", LIMIT),
        ("--node-deletion-limit", "5,10,10m", LIMIT),
        ("--node-deletion-limit", "5,101%,10m", LIMIT),
        ("--node-deletion-limit", "-1,10%,10m", LIMIT),
        ("--node-deletion-limit", "5,10%,10", LIMIT),
        ("--node-deletion-limit", "5,10%,10m,1", LIMIT),
        ("--node-deletion-limit", "5,10%,10ms", "10ms: expected at least 1s"),
        ("--node-deletion-limit", "0,0%,10m", "it allows none; expected a node or 1% at least"),
        ("--node-deletion-unseen", "off", "expected hold or enforce"),
        ("--out-of-service-after", "10ms", "expected at least 1s, or 0 for never"),
        ("--out-of-service-after", "never", "it is not a duration such as 1h2m3s"),
        (
            "--topology-labels",
            "host",
            "expected vcenter, datacenter, cluster, esxi-host, resource-pool, folder or datastore",
        ),
        ("--topology-labels", "Cluster", "expected vcenter, datacenter"),
        ("--topology-labels", "esxi_host", "expected vcenter, datacenter"),
        ("--topology-label-prefix", "", PREFIX),
        ("--topology-label-prefix", "/", PREFIX),
        ("--topology-label-prefix", "example.com", PREFIX),
        ("--topology-label-prefix", "Example.com/", PREFIX),
        ("--topology-label-prefix", "a/b/", PREFIX),
        ("--topology-label-prefix", "topology.kubernetes.io/", PREFIX),
        ("--topology-label-prefix", "k8s.io/", PREFIX),
        ("--demote-virtual-ips", "no", "expected true or false"),
    ];
    for (flag, value, expected) in cases {
        let errors = settled(&[&format!("{flag}={value}")]).unwrap_err();
        let text = errors.to_string();
        assert_eq!(errors.errors.len(), 1, "{flag}={value}: {text}");
        assert!(text.starts_with(&format!("invalid configuration: {flag}={value}: {expected}")), "{text}");
    }
}

#[test]
fn all_mistakes_come_together() {
    let wrong = [
        "--node-labels=a=b c,d=e",
        "--node-labels=f",
        "--zone-labels=x",
        "--node-deletion=x",
        "--node-deletion-limit=x",
        "--topology-labels=cluster,x,y",
        "--topology-label-prefix=x",
        "--node-deletion-unseen=x",
    ];
    let text = settled(&wrong).unwrap_err().to_string();
    assert!(text.starts_with("9 configuration errors:\n  "), "{text}");
    for part in ["\"b c\"", "\"f\"", "--zone-labels=x", "--topology-labels=x:", "--topology-labels=y:", "prefix=x:"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn maps_are_read_as_go_reads_them() {
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("a=b", &[("a", "b")]),
        ("a=", &[("a", "")]),
        ("a=b,c=d", &[("a", "b"), ("c", "d")]),
        ("a=b,c=d\n", &[("a", "b"), ("c", "d")]),
        ("a=b,c", &[("a", "b,c")]),
        ("\"a=b\"", &[("a", "b")]),
        ("\"a=b,c\",d=e", &[("a", "b,c"), ("d", "e")]),
        ("\"a=\"\"b\"\"\",d=e", &[("a", "\"b\""), ("d", "e")]),
        ("a=b=c", &[("a", "b=c")]),
        ("a=b, c=d", &[("a", "b"), (" c", "d")]),
    ];
    for (text, expected) in cases {
        let read = pairs(text).unwrap();
        let read: Vec<_> = read.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(read, *expected, "{text:?}");
    }
    for (text, part) in [("", ""), ("a", "a"), ("a,b", "a"), ("a=b,c=d,e", "e"), ("a=b,c=d,", "")] {
        assert_eq!(pairs(text), Err(part.to_owned()), "{text:?}");
    }
}
