//! The demo's cluster: three control-plane nodes, and workers in one region and three zones.

use futures::StreamExt;
use kube::Client;

use crate::KubeletNode;
use crate::api_server::NODE_ADDRESS;
use crate::real_node::system_uuid;
use crate::vcenter::{Nic, Object, Scenario, Vcenter, Vm, VmChange};

const ZONES: [&str; 3] = ["a", "b", "c"];

/// A node and its VM.
#[derive(Clone)]
pub struct Machine {
    /// Name of the Node and host name of the guest.
    pub node: String,
    /// Name of the VM.
    pub vm: String,
    /// BIOS UUID, which is the guest's system UUID.
    pub uuid: String,
    /// Address that VMware Tools reports.
    pub address: String,
    is_control_plane: bool,
    index: usize,
}

impl Machine {
    fn new(index: usize) -> Self {
        let is_control_plane = index < 3;
        let node = if is_control_plane { format!("cp-{}", index + 1) } else { format!("worker-{}", index - 2) };
        Self {
            vm: format!("prod-{node}"),
            node,
            uuid: format!("4211c0de-7e57-4000-8000-{index:012x}"),
            address: format!("10.20.{}.{}", index / 200, 11 + index % 200),
            is_control_plane,
            index,
        }
    }

    /// Returns the machine of the real node.
    pub fn real(index: usize) -> Self {
        let (node, address) = ("real-1".to_owned(), NODE_ADDRESS.to_owned());
        Self { vm: format!("prod-{node}"), node, uuid: system_uuid(), address, is_control_plane: false, index }
    }

    /// Returns an address that no machine of the demo has.
    pub fn other_address(&self) -> String {
        format!("10.20.99.{}", 11 + self.index % 200)
    }

    /// Returns the pod network, if the demo has routes.
    pub fn pod_network(&self) -> String {
        format!("10.{}.{}.0/24", 244 + self.index / 256, self.index % 256)
    }

    /// Returns the network cards with this address: one on the node network, and the bridge of a CNI plugin, which must
    /// not become a node address.
    pub fn with_address(&self, address: &str) -> VmChange {
        let bridge = format!("10.244.{}.1", self.index % 256);
        Vm::change().nic(Nic::new("VM Network", &[address])).nic(Nic::guest_only(&[&bridge]))
    }

    fn zone(&self) -> &'static str {
        ZONES[self.index % ZONES.len()]
    }
}

/// Returns three control-plane machines and the workers.
pub fn machines(count: usize) -> Vec<Machine> {
    (0..count).map(Machine::new).collect()
}

/// Returns one datacenter (the region) with three clusters (the zones) of two hosts each.
pub fn scenario(machines: &[Machine]) -> Scenario {
    let mut scenario = Scenario::empty().datacenter("dc-1").tag("k8s-region", "region-1", [Object::datacenter("dc-1")]);
    for zone in ZONES {
        let cluster = format!("cluster-{zone}");
        let hosts = [1, 2].map(|number| format!("esx-{zone}{number}.example"));
        scenario = scenario.cluster("dc-1", &cluster, &[&hosts[0], &hosts[1]]).tag(
            "k8s-zone",
            &format!("zone-{zone}"),
            [Object::cluster(&cluster)],
        );
    }
    for machine in machines {
        let vm = machine
            .with_address(&machine.address)
            .name(&machine.vm)
            .uuid(&machine.uuid)
            .guest_host_name(&machine.node)
            .host(&format!("esx-{}{}.example", machine.zone(), 1 + machine.index / ZONES.len() % 2))
            .folder("prod")
            .size(if machine.is_control_plane { 2 } else { 4 }, if machine.is_control_plane { 4096 } else { 16384 });
        scenario = scenario.vm(vm);
    }
    scenario
}

/// Registers the nodes in parallel, as their kubelets would. `has_networks`: with pod networks.
pub async fn register(client: &Client, machines: &[Machine], has_networks: bool) {
    futures::stream::iter(machines)
        .for_each_concurrent(16, async |machine| {
            let node = KubeletNode::new(&machine.node, &machine.uuid);
            let node = if machine.is_control_plane { node.control_plane() } else { node };
            let node = if has_networks { node.pod_cidrs(&[&machine.pod_network()]) } else { node };
            node.register(client).await;
        })
        .await;
}

/// Returns the daemon's configuration, as an operator would write it.
pub fn vsphere_conf(vcenter: &Vcenter) -> String {
    format!(
        "[Global]\nuser = \"{}\"\npassword = \"{}\"\nport = \"{}\"\nca-file = \"{}\"\n\n\
         [VirtualCenter \"127.0.0.1\"]\ndatacenters = \"dc-1\"\n\n\
         [Labels]\nregion = \"k8s-region\"\nzone = \"k8s-zone\"\n",
        vcenter.user(),
        vcenter.password(),
        vcenter.port(),
        vcenter.ca_file().display()
    )
}
