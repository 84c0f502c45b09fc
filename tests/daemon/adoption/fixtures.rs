//! Nodes as the Go program leaves them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeAddress, Taint};
use support::nodes::UNINITIALIZED_TAINT;
use support::{Daemon, KubeletNode, Nic, Vm, VmChange, eventually};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, LIMIT, ip, labels, swapped, uuid};

/// A node of the Go program. Cases set the fields that differ from its usual result.
pub struct Fixture {
    /// Description of the case.
    pub case: &'static str,
    /// Number of the node and of its machine.
    pub number: usize,
    /// `spec.providerID`.
    pub provider_id: String,
    /// `systemUUID` as the kubelet reports it.
    pub system_uuid: String,
    /// Addresses in the order on the Node.
    pub addresses: Vec<(&'static str, String)>,
    /// Labels in addition to those of the kubelet.
    pub labels: BTreeMap<String, String>,
    /// All taints.
    pub taints: Vec<Taint>,
    /// The kubelet's `--node-ip`.
    pub provided_ip: Option<String>,
    /// Change of the machine since the initialization; `None` if the machine was destroyed.
    pub vm: Option<VmChange>,
    /// Whether the kubelet reports that the node is ready.
    pub is_ready: bool,
}

impl Fixture {
    /// Returns a usual node. As in `NodeManager.DiscoverNode`, the host name comes first, then the address as both
    /// types.
    pub fn new(case: &'static str, number: usize, cluster: &Cluster) -> Self {
        Self {
            case,
            number,
            provider_id: format!("vsphere://{}", uuid(number)),
            system_uuid: swapped(&uuid(number)),
            addresses: vec![("Hostname", cluster.name(number)), ("InternalIP", ip(number)), ("ExternalIP", ip(number))],
            labels: BTreeMap::new(),
            taints: Vec::new(),
            provided_ip: None,
            vm: Some(Vm::change()),
            is_ready: true,
        }
    }

    /// Adds these labels.
    pub fn labelled(mut self, labels: impl IntoIterator<Item = (&'static str, &'static str)>) -> Self {
        self.labels.extend(labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        self
    }

    /// Returns the Node object.
    pub fn build(&self, cluster: &Cluster) -> Node {
        let kubelet = cluster.marked(KubeletNode::new(&cluster.name(self.number), &self.system_uuid));
        let kubelet = if self.is_ready { kubelet.ready() } else { kubelet };
        let kubelet = match &self.provided_ip {
            Some(ip) => kubelet.provided_ip(ip),
            None => kubelet,
        };
        let mut node = kubelet.labels(&self.labels).build();
        let spec = node.spec.get_or_insert_default();
        spec.provider_id = Some(self.provider_id.clone());
        spec.taints.get_or_insert_default().retain(|taint| taint.key != UNINITIALIZED_TAINT);
        spec.taints.get_or_insert_default().extend(self.taints.clone());
        let address =
            |(kind, address): &(&str, String)| NodeAddress { type_: (*kind).to_owned(), address: address.clone() };
        node.status.get_or_insert_default().addresses = Some(self.addresses.iter().map(address).collect());
        node
    }
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() }
}

/// Returns the zone labels of the machine with this number, from its tags.
fn zone_labels(number: usize) -> [(&'static str, &'static str); 6] {
    labels(["zone-a", "zone-b", "zone-c"][number % 3])
}

fn instance_type_labels() -> impl Iterator<Item = (&'static str, &'static str)> {
    labels("").into_iter().filter(|(key, _)| key.ends_with("instance-type"))
}

/// Returns nodes of every kind, initialized with or without zones.
pub fn fixtures(cluster: &Cluster, zones: bool) -> Vec<Fixture> {
    let usual = |case, number| {
        let fixture = Fixture::new(case, number, cluster);
        if zones { fixture.labelled(zone_labels(number)) } else { fixture.labelled(instance_type_labels()) }
    };
    let both = |internal: &str, external: &str, name: String| {
        vec![("Hostname", name), ("InternalIP", internal.to_owned()), ("ExternalIP", external.to_owned())]
    };
    vec![
        usual("UUID in the guest's byte order", 0),
        Fixture { system_uuid: uuid(1), ..usual("UUID in vCenter's byte order", 1) },
        Fixture { system_uuid: swapped(&uuid(2)).to_uppercase(), ..usual("systemUUID in upper case", 2) },
        Fixture {
            provider_id: format!("vsphere://{}", uuid(3).to_uppercase()),
            ..usual("provider ID in upper case, given by the kubelet", 3)
        },
        Fixture {
            addresses: both(&ip(4), &ip(4), "guest.example.com".to_owned()),
            vm: Some(Vm::change().guest_host_name("guest.example.com")),
            ..usual("the guest calls itself by another name", 4)
        },
        Fixture {
            provided_ip: Some("10.8.0.2".to_owned()),
            // The filter by annotation puts the address from `--node-ip` first.
            addresses: vec![
                ("InternalIP", "10.8.0.2".to_owned()),
                ("ExternalIP", "10.8.0.2".to_owned()),
                ("Hostname", cluster.name(5)),
            ],
            vm: Some(Vm::change().ip("10.8.0.2")),
            ..usual("--node-ip", 5)
        },
        Fixture {
            addresses: both("10.8.0.12", "10.8.0.12", cluster.name(6)),
            vm: Some(Vm::change().nic(Nic::new("VM Network", &["10.8.0.11", "10.8.0.12", "fe80::1"]))),
            ..usual("VMware Tools lists another address first by now", 6)
        },
        Fixture {
            taints: vec![
                taint("node-role.kubernetes.io/control-plane", "NoSchedule"),
                taint("node.kubernetes.io/unreachable", "NoExecute"),
                taint("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"),
            ],
            vm: Some(Vm::change().powered_off()),
            is_ready: false,
            ..usual("switched off, with the taints of others", 7)
        },
        Fixture {
            vm: Some(Vm::change().host("host-1").size(8, 16_384)),
            ..usual("moved to another zone, and grown", 8)
        },
        usual("labels of others", 9).labelled([("pool", "blue"), ("example.com/zone", "z")]),
        usual("zones, whether they are still configured or not", 10).labelled(zone_labels(10)),
        Fixture {
            vm: Some(Vm::change().without_nics()),
            ..usual("VMware Tools does not report, and addresses are known", 11)
        },
        Fixture {
            provider_id: format!("vsphere://{}", swapped(&uuid(12))),
            ..usual("provider ID in the guest's byte order, given by the kubelet", 12)
        },
        Fixture { vm: None, ..usual("the machine is gone", 13) },
        Fixture {
            addresses: vec![("ExternalIP", ip(14)), ("InternalIP", ip(14)), ("Hostname", cluster.name(14))],
            ..usual("the order of the in-tree provider, which the Go program does not touch", 14)
        },
    ]
}

/// Waits until the daemon has reconciled every node with its machine found, and then once more within a period.
pub async fn wait_for_a_full_pass(cluster: &Cluster, admin: &Admin, daemon: &mut Daemon, nodes: usize) {
    let token = token(cluster).await;
    let mut base = None;
    eventually("every node was looked at twice", LIMIT, async || {
        let pending = "vsphere_ccm_nodes_held{initialized=\"true\",reason=\"LookupPending\"}";
        let pending = admin.sum(pending, &token, daemon).await;
        let syncs = admin.sum("vsphere_ccm_node_syncs_total", &token, daemon).await;
        if pending > 0.0 || daemon.output().find("vCenter answers").is_none() {
            return Err(format!("{pending} nodes are being looked for\n{}", daemon.output().tail(10)));
        }
        let base = *base.get_or_insert(syncs);
        if syncs >= base + 2.0 * nodes as f64 { Ok(()) } else { Err(format!("{syncs} looks, from {base}")) }
    })
    .await;
}
