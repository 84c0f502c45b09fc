//! Execution of the actions on the simulator and the daemon.

use std::time::Duration;

use kube::Api;
use support::{Daemon, Nic, Object, Rule, Vcenter, Vm, eventually};

use super::RECOVERY;
use super::action::{Action, NodeIp, Trouble};
use super::pauses::ReplicaProcesses;
use crate::cluster::{ANSWERS, Cluster, ip, uuid};
use crate::invariants::daemons::Ending;
use crate::invariants::machine::{Machine, Power};
use crate::invariants::rules::Rules;
use crate::invariants::story::Story;
use crate::invariants::versions::Versions;
use crate::invariants::world::Judged;

/// Number of actions between two progress lines.
const REPORTED: usize = 250;
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// The simulator, the daemons and the Nodes of a race.
pub struct World<'a> {
    /// Nodes of this test at the API server.
    pub cluster: &'a Cluster,
    /// The simulator.
    pub vcenter: Vcenter,
    /// State of the machines and Nodes.
    pub judged: Judged,
    /// Nodes with a lower number are nodes of the control plane.
    pub control_plane: usize,
    /// The actions and the processes so far.
    pub story: Story,
    /// The process ids of the replicas.
    pub processes: ReplicaProcesses,
    start: Box<dyn Fn() -> Daemon + 'a>,
    replicas: Vec<Daemon>,
    ending: Ending,
    /// See [`Action::loses_updates`].
    has_lost_updates: bool,
}

impl<'a> World<'a> {
    /// Creates a world without machines and nodes. `start` starts a replica. There are no replicas yet.
    pub fn new(
        cluster: &'a Cluster,
        vcenter: Vcenter,
        versions: Versions,
        rules: Rules,
        start: impl Fn() -> Daemon + 'a,
    ) -> Self {
        Self {
            cluster,
            vcenter,
            judged: Judged::new(Api::all(cluster.client.clone()), versions, rules),
            control_plane: 0,
            story: Story::new(),
            processes: ReplicaProcesses::default(),
            start: Box::new(start),
            replicas: Vec::new(),
            ending: Ending::default(),
            has_lost_updates: false,
        }
    }

    /// Starts this many replicas, and registers a node for each machine.
    pub async fn populate(&mut self, replicas: usize, nodes: usize) {
        self.replicas = (0..replicas).map(|_| self.start()).collect();
        for number in 0..nodes {
            self.appeared(number);
            self.act(Action::Register(number)).await;
        }
    }

    /// Executes the action, and then checks all new versions.
    pub async fn act(&mut self, action: Action) {
        self.story.count += 1;
        let is_done = self.perform(&action).await;
        self.show_processes();
        self.story.note(&action, is_done);
        self.judged.check();
        let count = self.story.count;
        if count.is_multiple_of(REPORTED) {
            println!("{:.0?}: {count} actions; the daemon: {:?}", self.story.elapsed(), self.judged.rules.seen);
        }
    }

    /// Starts a replica.
    fn start(&mut self) -> Daemon {
        let replica = (self.start)();
        self.judged.proofs.started(replica.output());
        self.story.started("a replica", &replica);
        replica
    }

    /// Tells the process ids of the replicas that run by now.
    fn show_processes(&self) {
        self.processes.set(self.replicas.iter().filter_map(Daemon::pid).collect());
    }

    /// Stops all replicas. Checks that they ended without an error, and that every deletion was valid.
    pub async fn stop(&mut self) {
        for replica in self.replicas.drain(..).collect::<Vec<_>>() {
            self.ending.add(replica).await;
        }
        self.ending.finish().await;
        self.judged.proofs.close();
        self.judged.check();
    }

    async fn perform(&mut self, action: &Action) -> bool {
        match action {
            Action::Kill(_) | Action::Restart(_) | Action::Freeze(_) | Action::Thaw => self.daemon(action).await,
            Action::EndSessions | Action::Break(..) | Action::Delay(_) | Action::Down | Action::Up => {
                self.has_lost_updates |= action.loses_updates();
                self.trouble(action).await;
                true
            }
            Action::Create(number) if !self.judged.machines[*number].is_there => {
                self.create(*number).await;
                true
            }
            Action::Twin(number, runs) if !self.judged.machines[*number].has_twin => {
                self.create_twin(*number, *runs).await;
                true
            }
            Action::RemoveTwin(number) if self.judged.machines[*number].has_twin => {
                self.remove_twin(*number).await;
                true
            }
            Action::Lose(number) if self.judged.machines[*number].is_there => {
                self.machine(*number, &Action::Destroy(*number)).await;
                self.node(*number, &Action::Ready(*number, "Unknown")).await
            }
            Action::Lose(_) | Action::Create(_) | Action::Twin(..) | Action::RemoveTwin(_) => false,
            // A machine has at most one zone. With two zones the result is undefined.
            Action::Tag(number, _) if !self.judged.machines[*number].zones.is_empty() => false,
            Action::Untag(number, zone) if !self.judged.machines[*number].zones.contains(zone) => false,
            Action::Destroy(number)
            | Action::Reregister(number)
            | Action::Power(number, _)
            | Action::Address(number, _)
            | Action::TwoAddresses(number, _)
            | Action::NoAddress(number)
            | Action::HostName(number, _)
            | Action::Move(number, _)
            | Action::Resize(number, _)
            | Action::Connection(number, _)
            | Action::Tag(number, _)
            | Action::Untag(number, _) => {
                let is_there = self.judged.machines[*number].is_there;
                if is_there {
                    self.machine(*number, action).await;
                }
                is_there
            }
            Action::Register(number) => self.register(*number).await,
            Action::DeleteNode(number) => self.delete_node(*number).await,
            Action::Recreate(number) => self.delete_node(*number).await && self.register(*number).await,
            Action::Ready(number, _)
            | Action::Taint(number, _)
            | Action::Untaint(number, _)
            | Action::Label(number, ..)
            | Action::Unlabel(number, _)
            | Action::NodeIp(number, _)
            | Action::Cordon(number, _) => self.node(*number, action).await,
        }
    }

    async fn daemon(&mut self, action: &Action) -> bool {
        match action {
            // A login without an answer, because its process was killed, would delay the next login by design.
            Action::Kill(replica) if self.replicas[*replica].output().find(ANSWERS).is_some() => {
                self.replicas[*replica].kill().await;
                self.judged.proofs.killed();
                self.replicas[*replica] = self.start();
            }
            Action::Restart(replica) => {
                let next = self.start();
                let last = std::mem::replace(&mut self.replicas[*replica], next);
                self.ending.add(last).await;
            }
            Action::Freeze(replica) => {
                self.replicas[1 - replica].signal("CONT").await;
                self.replicas[*replica].signal("STOP").await;
            }
            Action::Thaw => {
                self.replicas[0].signal("CONT").await;
                self.replicas[1].signal("CONT").await;
            }
            _ => return false,
        }
        true
    }

    async fn trouble(&self, action: &Action) {
        let vcenter = &self.vcenter;
        match action {
            Action::EndSessions => {
                vcenter.kill_soap_sessions().await;
                vcenter.kill_rest_sessions().await;
            }
            Action::Break(operation, trouble, times) => {
                let rule = match trouble {
                    Trouble::Fault(kind) => Rule::fault(operation, kind),
                    Trouble::Drop => Rule::drop(operation),
                    Trouble::Cut => Rule::cut(operation),
                    Trouble::Unavailable => Rule::status(operation, 503, "<html>no healthy upstream</html>"),
                };
                // A pending rule would apply in addition to this one.
                vcenter.clear_rules_of(operation).await;
                vcenter.add_rule(&rule.times(*times)).await;
            }
            Action::Delay(milliseconds) => vcenter.delay_calls(Duration::from_millis(*milliseconds)).await,
            Action::Down => vcenter.stop_listening().await,
            _ => vcenter.resume_listening().await,
        }
    }

    async fn create(&mut self, number: usize) {
        self.vcenter.create_vm(&self.cluster.vm(number)).await;
        self.appeared(number);
    }

    /// Records a machine of [`World::create`] or of the scenario.
    pub fn appeared(&mut self, number: usize) {
        if self.judged.machines.len() <= number {
            self.judged.machines.resize_with(number + 1, Machine::default);
        }
        let machine = &mut self.judged.machines[number];
        machine.is_there = true;
        machine.power = Some(Power::On);
        machine.address = Some(ip(number));
        machine.zones.clear();
        machine.note();
    }

    async fn create_twin(&mut self, number: usize, runs: bool) {
        let twin = Vm::new(&self.twin(number), &uuid(number)).guest_host_name("clone").ip("10.4.0.1");
        let twin = if runs { twin } else { twin.powered_off() };
        self.judged.machines[number].has_twin = true;
        self.vcenter.create_vm(&twin).await;
        self.judged.machines[number].note();
    }

    async fn remove_twin(&mut self, number: usize) {
        self.judged.machines[number].has_twin = false;
        self.judged.machines[number].note();
        self.vcenter.destroy_vm(&self.twin(number)).await;
        self.judged.machines[number].note();
    }

    fn twin(&self, number: usize) -> String {
        format!("clone-of-{}", self.cluster.name(number))
    }

    async fn machine(&mut self, number: usize, action: &Action) {
        let name = self.cluster.name(number);
        let vcenter = &self.vcenter;
        let machine = &mut self.judged.machines[number];
        let change = match action {
            Action::Destroy(_) | Action::Reregister(_) => {
                (machine.is_there, machine.power) = (false, None);
                machine.note();
                vcenter.destroy_vm(&name).await;
                if matches!(action, Action::Reregister(_)) {
                    self.create(number).await;
                }
                return;
            }
            Action::Power(_, power) => {
                machine.power = Some(*power).filter(|power| *power != Power::On);
                machine.note();
                let change = match power {
                    Power::On => Vm::change().powered_on(),
                    Power::Off => Vm::change().powered_off(),
                    Power::Suspended => Vm::change().suspended(),
                };
                vcenter.change_vm(&name, &change).await;
                machine.power = Some(*power);
                machine.note();
                return;
            }
            Action::Tag(_, zone) => {
                vcenter.attach_tag("k8s-zone", ZONES[*zone], &Object::vm(&name)).await;
                machine.zones.push(*zone);
                return;
            }
            Action::Untag(_, zone) => {
                vcenter.detach_tag("k8s-zone", ZONES[*zone], &Object::vm(&name)).await;
                machine.zones.retain(|attached| attached != zone);
                return;
            }
            Action::Address(_, last) => {
                let address = format!("10.2.{number}.{last}");
                machine.address = Some(address.clone());
                Vm::change().ip(&address)
            }
            Action::TwoAddresses(_, last) => {
                let addresses = [format!("10.2.{number}.{last}"), format!("10.3.{number}.{last}")];
                machine.address = Some(addresses[0].clone());
                Vm::change().nic(Nic::new("VM Network", &addresses.each_ref().map(String::as_str)))
            }
            Action::NoAddress(_) => {
                machine.address = None;
                Vm::change().without_nics()
            }
            Action::HostName(_, is_long) => {
                Vm::change().guest_host_name(&if *is_long { format!("{name}.example.com") } else { name.clone() })
            }
            Action::Move(_, host) => Vm::change().host(&format!("host-{host}")),
            Action::Resize(_, cpus) => Vm::change().size(*cpus, 4096),
            Action::Connection(_, connected) => {
                Vm::change().connection_state(if *connected { "connected" } else { "disconnected" })
            }
            other => panic!("{other:?} changes no machine"),
        };
        vcenter.change_vm(&name, &change).await;
    }

    /// Ends all failures, and makes the expected state of every machine and Node unambiguous. Each existing machine
    /// runs with one address, and its Node exists and is ready. Other Nodes are Ready=Unknown, or are deleted here if
    /// the daemon would keep them.
    pub async fn repair(&mut self) {
        self.act(Action::Thaw).await;
        self.act(Action::Up).await;
        self.act(Action::Delay(0)).await;
        self.vcenter.clear_rules().await;
        for number in 0..self.judged.machines.len() {
            self.act(Action::RemoveTwin(number)).await;
            self.act(Action::Connection(number, true)).await;
            self.act(Action::Power(number, Power::On)).await;
            self.act(Action::Address(number, 1)).await;
            if self.judged.machines[number].is_there {
                self.act(Action::Register(number)).await;
            } else if self.is_uninitialized(number).await {
                // The daemon never deletes a node that was not initialized, because its machine may still appear.
                self.act(Action::DeleteNode(number)).await;
            }
            self.act(Action::NodeIp(number, NodeIp::None)).await;
            self.act(Action::Ready(number, if self.judged.machines[number].is_there { "True" } else { "Unknown" }))
                .await;
        }
        if self.has_lost_updates {
            // The daemon reads all objects again.
            self.act(Action::EndSessions).await;
            eventually("a new session waits", RECOVERY, async || match self.vcenter.counts().await {
                counts if counts.soap_sessions > 0 && counts.pending_waits > 0 => Ok(()),
                counts => Err(format!("{counts:?}")),
            })
            .await;
        }
    }
}
