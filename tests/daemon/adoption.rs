//! Adoption of Nodes that the Go program initialized: one write adds one annotation, and a second annotation if the
//! labels differ. Nothing else changes. A Node that was never initialized is adopted only if the flag asks for it.

pub mod fixtures;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use support::nodes::NodeView;
use support::{Daemon, KubeletNode, Nic, Vcenter, Vm, eventually};

use crate::admin::Admin;
use crate::cluster::{Cluster, LIMIT, ip, labels, swapped, until_passed, uuid};
use fixtures::{Fixture, fixtures, wait_for_a_full_pass};

const RECORD: &str = "vsphere-ccm.dev/vm";
const REPORTED: &str = "vsphere-ccm.dev/reported";

/// The machine exists but reports no addresses.
const SILENT: &str = "VMware Tools does not report, and addresses are known";

/// Time of several passes over all nodes.
const QUIET: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_node_of_the_go_program_with_zones_gets_one_annotation_and_nothing_else() {
    let cluster = Cluster::new().await;
    let fixtures = with_more(&cluster, fixtures(&cluster, true), |number| labels(ZONES[number % 3]).to_vec());
    adopt(&cluster, &fixtures, |section| Cluster::zoned(&[section])).await;
}

#[tokio::test]
async fn a_node_of_the_go_program_without_zones_gets_one_annotation_and_nothing_else() {
    let cluster = Cluster::new().await;
    let instance_type = |_| labels("").into_iter().filter(|(key, _)| key.ends_with("instance-type")).collect();
    let fixtures = with_more(&cluster, fixtures(&cluster, false), instance_type);
    adopt(&cluster, &fixtures, |section| section).await;
}

#[tokio::test]
async fn a_dual_stack_node_of_the_go_program_gets_one_annotation_and_nothing_else() {
    let cluster = Cluster::new().await;
    let fixture = |case, number| {
        let v6 = format!("fd00:1::{number}");
        let usual = Fixture::new(case, number, &cluster).labelled(labels(ZONES[number % 3]));
        let mut addresses = usual.addresses.clone();
        addresses.extend([("InternalIP", v6.clone()), ("ExternalIP", v6.clone())]);
        let nic = Nic::new("VM Network", &[&ip(number), &v6, "fe80::1"]);
        Fixture { addresses, vm: Some(Vm::change().nic(nic)), ..usual }
    };
    let fixtures = [
        fixture("UUID in the guest's byte order", 0),
        Fixture { system_uuid: uuid(1), ..fixture("UUID in vCenter's byte order", 1) },
        Fixture { provider_id: uuid(2), ..fixture("provider ID that is a bare UUID", 2) },
        Fixture { is_ready: false, ..fixture("not ready, its machine runs", 3) },
    ];
    adopt(&cluster, &fixtures, |section| Cluster::zoned(&[section + "ip-family = ipv4,ipv6\n"])).await;
}

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// Adds cases that the other tests of Nodes of the Go program do not have.
fn with_more(
    cluster: &Cluster,
    mut fixtures: Vec<Fixture>,
    of_cloud: impl Fn(usize) -> Vec<(&'static str, &'static str)>,
) -> Vec<Fixture> {
    let first = fixtures.len();
    let usual = |case, number| Fixture::new(case, number, cluster).labelled(of_cloud(number));
    fixtures.push(Fixture { provider_id: uuid(first), ..usual("provider ID that is a bare UUID", first) });
    fixtures.push(Fixture {
        provider_id: swapped(&uuid(first + 1)),
        ..usual("bare UUID in the guest's byte order", first + 1)
    });
    fixtures.push(Fixture { is_ready: false, ..usual("not ready, its machine runs", first + 2) });
    fixtures
}

/// Starts the daemon on these Nodes, waits until all machines are recorded, and compares whole objects.
async fn adopt(cluster: &Cluster, fixtures: &[Fixture], config: impl Fn(String) -> String) {
    let vcenter = Vcenter::start(&cluster.scenario(0..fixtures.len())).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    for fixture in fixtures {
        match &fixture.vm {
            Some(change) => vcenter.change_vm(&uuid(fixture.number), change).await,
            None => vcenter.destroy_vm(&uuid(fixture.number)).await,
        }
        let mut node = fixture.build(cluster);
        node.annotations_mut().insert("example.com/others".to_owned(), "stays".to_owned());
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    let version = nodes.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    // The watch starts here. Other tests use the same API server, and the API server keeps old versions only for a
    // short time.
    let only = WatchParams::default().labels(&cluster.labels());
    let mut events = nodes.watch(&only, &version).await.unwrap().boxed();
    let before = cluster.nodes().await;
    let flags = ["--node-status-update-frequency=1s", "--node-monitor-period=1s", "--tag-poll-interval=1s"];
    // The daemon records a machine only if VMware Tools reports addresses.
    let is_recorded = |fixture: &Fixture| fixture.vm.is_some() && fixture.case != SILENT;
    let admin = Admin::new();
    let config = config(vcenter.ini_section("vc-1", "dc-1"));
    let mut daemon = cluster.start(&config, &[&flags[..], &[&admin.flag()]].concat());
    eventually("every machine that is there is recorded", LIMIT, async || {
        let nodes = cluster.nodes().await;
        let lacks = |fixture: &&Fixture| {
            is_recorded(fixture) && !nodes[&cluster.name(fixture.number)].annotations().contains_key(RECORD)
        };
        match fixtures.iter().filter(lacks).map(|fixture| fixture.case).collect::<Vec<_>>() {
            lacking if lacking.is_empty() => Ok(()),
            lacking => Err(format!("{lacking:?}\n{}", daemon.output().tail(20))),
        }
    })
    .await;
    wait_for_a_full_pass(cluster, &admin, &mut daemon, fixtures.len()).await;
    until_passed(Instant::now(), QUIET).await;
    let after = cluster.nodes().await;
    let writes = writes_since(&version, &mut events, &after).await;
    for fixture in fixtures {
        let name = cluster.name(fixture.number);
        let case = format!("{}: {name}\n{}", fixture.case, daemon.output().tail(30));
        let writes = writes.get(&name).copied().unwrap_or_default();
        // The daemon can report differences in two steps, because it reads tags after the machine.
        let most = 1 + usize::from(after[&name].annotations().contains_key(REPORTED));
        assert!((1..=most).contains(&writes) || writes == 0 && !is_recorded(fixture), "{writes} writes: {case}");
        assert_eq!(after[&name].annotations().contains_key(RECORD), writes > 0, "{case}");
        assert_eq!(without_record(&after[&name]), without_record(&before[&name]), "{case}");
    }
    println!("{} nodes, {} writes", fixtures.len(), writes.values().sum::<usize>());
}

/// Returns the object without the daemon's annotations and without the fields that the API server changes with every
/// write.
fn without_record(node: &Node) -> Node {
    let mut node = node.clone();
    node.annotations_mut().remove(RECORD);
    node.annotations_mut().remove(REPORTED);
    node.metadata.resource_version = None;
    node.metadata.managed_fields = None;
    node
}

/// Returns the object without the condition `VSphereInitialized` and without the fields that the API server changes
/// with every write.
fn without_condition(node: &Node) -> Node {
    let mut node = without_record(node);
    if let Some(conditions) = node.status.as_mut().and_then(|status| status.conditions.as_mut()) {
        conditions.retain(|condition| condition.type_ != "VSphereInitialized");
    }
    node
}

/// Counts the writes to each node from this version up to the version in `now`.
async fn writes_since(
    version: &str,
    events: &mut BoxStream<'_, kube::Result<WatchEvent<Node>>>,
    now: &BTreeMap<String, Node>,
) -> BTreeMap<String, usize> {
    let number = |version: Option<String>| version.unwrap_or_default().parse::<u64>().unwrap();
    let last = now.values().map(|node| number(node.resource_version())).max().unwrap_or_default();
    let mut writes = BTreeMap::new();
    if last <= version.parse().unwrap() {
        return writes;
    }
    loop {
        let event = tokio::time::timeout(LIMIT, events.try_next()).await.unwrap().unwrap();
        match event {
            Some(WatchEvent::Modified(node)) => {
                *writes.entry(node.name_any()).or_default() += 1;
                if number(node.resource_version()) >= last {
                    return writes;
                }
            }
            other => panic!("nodes are only modified here: {other:?}"),
        }
    }
}

/// Nodes that registered without the taint, one for each condition of adoption.
struct Untainted {
    cluster: Cluster,
    vcenter: Vcenter,
}

impl Untainted {
    const ALONE: usize = 0;
    const TWIN: usize = 1;
    const NAMED: usize = 2;
    const FOREIGN: usize = 3;
    const FOREIGN_TAINTED: usize = 4;
    /// A node with the taint that joins after the others. Once it is initialized, the daemon has processed the others.
    const LAST: usize = 5;

    async fn new() -> Self {
        let cluster = Cluster::new().await;
        let vcenter = Vcenter::start(&cluster.scenario(0..6)).await;
        let twin = Vm::new(&format!("{}-twin", cluster.name(Self::TWIN)), &uuid(Self::TWIN)).ip("10.1.9.9");
        vcenter.create_vm(&twin).await;
        Self { cluster, vcenter }
    }

    async fn register(&self) {
        let Self { cluster, .. } = self;
        let node = |number, system_uuid: &str, provider_id: &str, is_tainted: bool| {
            let mut node = cluster.marked(KubeletNode::new(&cluster.name(number), system_uuid)).ready().build();
            let spec = node.spec.get_or_insert_default();
            spec.provider_id = Some(provider_id.to_owned()).filter(|id| !id.is_empty());
            if !is_tainted {
                spec.taints = None;
            }
            node
        };
        let nodes = Api::<Node>::all(cluster.client.clone());
        for node in [
            node(Self::ALONE, &swapped(&uuid(Self::ALONE)), "", false),
            node(Self::TWIN, &swapped(&uuid(Self::TWIN)), "", false),
            // No machine has this UUID, but one machine has the node's name.
            node(Self::NAMED, &uuid(999), "", false),
            node(Self::FOREIGN, &swapped(&uuid(Self::FOREIGN)), "k3s://foreign", false),
            node(Self::FOREIGN_TAINTED, &swapped(&uuid(Self::FOREIGN_TAINTED)), "k3s://tainted", true),
        ] {
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
    }

    /// Checks that the node has none of the fields that only initialization sets. Addresses and zone follow the machine
    /// as on any node without taint.
    fn check_not_initialized(&self, node: &Node) {
        let view = NodeView::of(node);
        assert_eq!(view.provider_id, None, "{view:?}");
        assert!(!node.annotations().contains_key(RECORD), "{:?}", node.annotations());
        assert_eq!(view.label("node.kubernetes.io/instance-type"), "", "{view:?}");
    }

    /// Checks that Nodes of another provider are not written, except for the condition on a Node with the taint.
    fn check_foreign(&self, before: &BTreeMap<String, Node>, after: &BTreeMap<String, Node>) {
        let name = self.cluster.name(Self::FOREIGN);
        assert_eq!(after[&name], before[&name], "{name}");
        let name = self.cluster.name(Self::FOREIGN_TAINTED);
        assert_eq!(without_condition(&after[&name]), without_condition(&before[&name]), "{name}");
    }

    /// Waits until the daemon has processed all nodes several times.
    async fn settle(&self, daemon: &Daemon) {
        self.cluster.register(Self::LAST..Self::LAST + 1).await;
        self.cluster.wait_until_initialized(Self::LAST..Self::LAST + 1, daemon).await;
        until_passed(Instant::now(), QUIET).await;
    }
}

#[tokio::test]
async fn a_node_without_taint_is_adopted_if_one_machine_has_its_uuid_and_no_other_is() {
    let untainted = Untainted::new().await;
    let Untainted { cluster, vcenter } = &untainted;
    untainted.register().await;
    let before = cluster.nodes().await;
    let flags = ["--adopt-untainted-nodes", "--node-status-update-frequency=1s"];
    let daemon = cluster.start_for(vcenter, &flags).await;
    let name = cluster.name(Untainted::ALONE);
    eventually("the node with a machine of its own is adopted", LIMIT, async || {
        let view = NodeView::of(&cluster.nodes().await[&name]);
        if view.provider_id.is_some() { Ok(()) } else { Err(format!("{view:?}\n{}", daemon.output().tail(20))) }
    })
    .await;
    untainted.settle(&daemon).await;
    let after = cluster.nodes().await;
    let view = NodeView::of(&after[&name]);
    assert_eq!(view.provider_id, Some(format!("vsphere://{}", uuid(Untainted::ALONE))));
    let address = ip(Untainted::ALONE);
    let addresses = [format!("Hostname={name}"), format!("InternalIP={address}"), format!("ExternalIP={address}")];
    assert_eq!(view.addresses, addresses);
    for (key, value) in labels("zone-a") {
        assert_eq!(view.label(key), value, "{key}");
    }
    for number in [Untainted::TWIN, Untainted::NAMED] {
        untainted.check_not_initialized(&after[&cluster.name(number)]);
    }
    untainted.check_foreign(&before, &after);
}

#[tokio::test]
async fn without_the_flag_no_node_without_taint_is_initialized() {
    let untainted = Untainted::new().await;
    let Untainted { cluster, vcenter } = &untainted;
    untainted.register().await;
    let before = cluster.nodes().await;
    let daemon = cluster.start_for(vcenter, &["--node-status-update-frequency=1s"]).await;
    untainted.settle(&daemon).await;
    let after = cluster.nodes().await;
    for number in [Untainted::ALONE, Untainted::TWIN, Untainted::NAMED] {
        untainted.check_not_initialized(&after[&cluster.name(number)]);
    }
    untainted.check_foreign(&before, &after);
}
