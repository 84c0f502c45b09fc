//! Changes of machines and Nodes, as operators and kubelets make them.

use std::time::Instant;

use ccm::controllers::service::node_set::LABEL_EXCLUDE;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use support::nodes::{UNINITIALIZED_TAINT, set_ready};
use support::{KubeletNode, Machine as VirtualMachine};

use super::script::Action;
use super::world::World;
use super::{is_lasting, nsx, services};
use crate::cluster::{ip, uuid};
use crate::invariants::machine::Power;
use crate::invariants::rules::{VM, has_taint};

/// Maximum number of concurrent requests.
const AT_ONCE: usize = 20;
/// Hosts of each vCenter.
const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];

impl World {
    /// Executes the action. Returns false if it did not apply. Nodes are not written without an API server.
    pub async fn act(&mut self, action: Action) -> bool {
        self.count += 1;
        match action {
            Action::Register(number) => self.is_served && self.register(number).await,
            Action::DeleteNode(number) => self.is_served && self.delete_node(number).await,
            Action::Ready(number, status) => self.is_served && self.ready(number, status).await,
            Action::CreateService(..) | Action::ChangeService(..) => {
                self.is_served && self.act_on_service(action).await
            }
            Action::Create(number) if !self.judged.machines[number].is_there => {
                self.names[number] = self.cluster.name(number);
                let machine = VirtualMachine::new(&self.names[number], &uuid(number)).ip(&ip(number));
                self.fake(number).create_vm(machine);
                self.appeared(number);
                true
            }
            Action::Create(_) => false,
            _ if !self.judged.machines[number_of(action)].is_there => false,
            Action::Destroy(number) => {
                self.destroy(number);
                true
            }
            Action::Lose(number) => {
                self.destroy(number);
                self.is_served && self.ready(number, "Unknown").await
            }
            Action::Rename(number, is_renamed) => {
                let name = self.cluster.name(number);
                let next = if is_renamed { format!("{name}-renamed") } else { name };
                self.fake(number).change_vm(&self.names[number], |vm| vm.text("name", &next));
                self.names[number] = next;
                true
            }
            Action::Power(number, power) => {
                self.power(number, power);
                true
            }
            Action::Address(number, last) => {
                let address = format!("10.2.{number}.{last}");
                self.fake(number).change_vm(&self.names[number], |vm| vm.ip(&address));
                self.judged.machines[number].address = Some(address);
                true
            }
        }
    }

    fn destroy(&mut self, number: usize) {
        let machine = &mut self.judged.machines[number];
        (machine.is_there, machine.power) = (false, None);
        machine.note();
        self.fake(number).destroy_vm(&self.names[number]);
    }

    /// Records that a new machine runs.
    pub fn appeared(&mut self, number: usize) {
        let machine = &mut self.judged.machines[number];
        (machine.is_there, machine.power, machine.address) = (true, Some(Power::On), Some(ip(number)));
        machine.note();
    }

    fn power(&mut self, number: usize, power: Power) {
        let machine = &mut self.judged.machines[number];
        machine.power = Some(power).filter(|power| *power != Power::On);
        machine.note();
        let state = match power {
            Power::On => "poweredOn",
            Power::Off => "poweredOff",
            Power::Suspended => "suspended",
        };
        self.fake(number).change_vm(&self.names[number], |vm| vm.power(state));
        self.judged.machines[number].power = Some(power);
        self.judged.machines[number].note();
    }

    /// Returns a node. Some nodes have a pod network, and some are members of the load balancers.
    fn kubelet(&self, number: usize) -> KubeletNode {
        let kubelet = self.cluster.kubelet(number);
        let kubelet = if services::is_member(number) { kubelet } else { kubelet.label(LABEL_EXCLUDE, "true") };
        match nsx::network(number) {
            Some(network) => kubelet.pod_cidr(&network),
            None => kubelet,
        }
    }

    async fn register(&mut self, number: usize) -> bool {
        self.joined.insert(number);
        self.judged.register(self.kubelet(number)).await
    }

    async fn delete_node(&mut self, number: usize) -> bool {
        let name = self.cluster.name(number);
        let Some(node) = self.judged.nodes.get_opt(&name).await.unwrap() else { return false };
        self.joined.remove(&number);
        self.judged.delete(&node).await
    }

    async fn ready(&mut self, number: usize, status: &str) -> bool {
        self.judged.set_ready(&self.cluster.name(number), status, &self.count.to_string()).await
    }

    /// Makes the expected state of every Node unambiguous. Each existing machine gets a Node that is ready if the
    /// machine runs. For other machines no kubelet reports. A Node that the daemon would keep is deleted here: the
    /// daemon never initialized it, or the last host of its machine does not exist.
    pub async fn make_clear(&mut self) {
        for number in 0..self.judged.machines.len() {
            if self.judged.machines[number].is_there && self.joined.contains(&number) {
                self.act(Action::Register(number)).await;
            }
        }
        let mut ready = Vec::new();
        for (number, node) in self.all_nodes().await {
            let machine = &self.judged.machines[number];
            let is_kept = has_taint(&node, UNINITIALIZED_TAINT) || self.names_a_host_that_is_gone(number, &node);
            if !machine.is_there && is_kept {
                self.judged.delete(&node).await;
                continue;
            }
            let status = if machine.is_there && machine.power == Some(Power::On) { "True" } else { "Unknown" };
            ready.push((number, status));
        }
        for some in ready.chunks(AT_ONCE) {
            self.count += 1;
            let began = Instant::now();
            let write = async |(number, status): &(usize, &'static str)| {
                set_ready(&self.judged.nodes, &self.cluster.name(*number), status, &self.count.to_string()).await
            };
            for written in join_all(some.iter().map(write)).await {
                self.judged.written(written, began);
            }
        }
    }

    /// Whether the host in the Node's record has another id by now. This happens if a machine is destroyed shortly
    /// before or after its vCenter comes back with other ids for all objects. The host seems to be removed, and the
    /// daemon cannot exclude that the machine still runs there.
    fn names_a_host_that_is_gone(&self, number: usize, node: &Node) -> bool {
        let record = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VM));
        let record: Option<serde_json::Value> = record.and_then(|text| serde_json::from_str(text).ok());
        let host = record.as_ref().and_then(|record| record["host"].as_str());
        host.is_some_and(|host| HOSTS.iter().all(|name| self.fake(number).id("HostSystem", name) != host))
    }

    /// Makes some nodes with existing machines join again, so that they record the current hosts. Returns their
    /// numbers.
    pub async fn join_anew(&mut self, count: usize) -> Vec<usize> {
        let is_there = |number: &usize| self.judged.machines[*number].is_there && !is_lasting(*number);
        let numbers: Vec<usize> = self.joined.iter().copied().filter(is_there).take(count).collect();
        for &number in &numbers {
            self.act(Action::DeleteNode(number)).await;
            self.act(Action::Power(number, Power::On)).await;
            assert!(self.act(Action::Register(number)).await, "node {number} was deleted");
        }
        numbers
    }

    /// Deletes the current Nodes and registers them again, with the same readiness.
    pub async fn begin_anew(&mut self) {
        for (number, node) in self.all_nodes().await {
            assert!(self.judged.delete(&node).await);
            let kubelet = self.kubelet(number);
            let is_ready = self.judged.machines[number].power == Some(Power::On);
            let kubelet = if is_ready { kubelet.ready() } else { kubelet };
            assert!(self.judged.register(kubelet).await);
        }
    }
}

fn number_of(action: Action) -> usize {
    match action {
        Action::Register(number)
        | Action::DeleteNode(number)
        | Action::Ready(number, _)
        | Action::Create(number)
        | Action::Destroy(number)
        | Action::Lose(number)
        | Action::Rename(number, _)
        | Action::Power(number, _)
        | Action::Address(number, _)
        | Action::CreateService(number, ..)
        | Action::ChangeService(number, _) => number,
    }
}
