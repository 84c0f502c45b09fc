//! Random changes of machines and Nodes, as operators, kubelets and other controllers make them.

use std::time::Duration;

use fastrand::Rng;
use http::Method;
use k8s_openapi::api::core::v1::NodeAddress;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cloud::Machine;
use super::server::Fate;
use super::world::World;
use crate::cloud::node::TAINT_UNINITIALIZED;
use crate::cloud::{FoundBy, InstanceMetadata, PowerState, Unknown};
use crate::controllers::node::reason;
use crate::controllers::node_lifecycle::deletion_pause::{ANNOTATION_CAUSE, ANNOTATION_UNTIL};
use crate::controllers::node_lifecycle::plan::{ANNOTATION_ALLOW_DELETION, TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};

/// The part of the world that a change concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    Node,
    Machine,
    /// A Node and its machine.
    Both,
    Pause,
    Requests,
    Nothing,
}

/// The changes of a seed.
pub struct Script {
    random: Rng,
    /// Whether requests fail.
    fails: bool,
    /// Number of changes so far.
    step: u32,
}

impl Script {
    pub fn new(seed: u64, fails: bool) -> Self {
        Self { random: Rng::with_seed(seed), fails, step: 0 }
    }

    /// Returns a random time up to `longest`.
    pub fn pause(&mut self, longest: Duration) -> Duration {
        Duration::from_millis(self.random.u64(1..=u64::try_from(longest.as_millis()).unwrap()))
    }

    /// Returns one of these names.
    pub fn any<'a>(&mut self, names: &'a [String]) -> &'a str {
        &names[self.random.usize(..names.len())]
    }

    /// Changes something that concerns the Node with this name. The test knows each change by its number.
    pub fn act(&mut self, world: &World, name: &str) -> Changed {
        self.step += 1;
        match self.random.u8(..100) {
            0..8 => self.lose(world, name),
            8..48 => self.change_machine(world, name),
            48..94 => self.change_node(world, name),
            94..97 => self.change_pause(world),
            _ if self.fails => self.fail(world),
            _ => Changed::Nothing,
        }
    }

    fn change_machine(&mut self, world: &World, name: &str) -> Changed {
        let cloud = &world.cloud;
        let before = cloud.version(name);
        let pick = self.random.u8(..20);
        let other = self.machine(name);
        let fault = || Unknown::new(reason::NoAddresses, "the guest reports no address yet");
        match pick {
            0..4 if cloud.machine(name).is_none() => cloud.put(name, other),
            // The machine comes back with another identity.
            4 => cloud.put(name, other),
            5..7 => drop(cloud.destroy(name)),
            7 => cloud.hide(name, true),
            8..10 => cloud.hide(name, false),
            10..14 => {
                let state = [PowerState::On, PowerState::Off, PowerState::Suspended][self.random.usize(..3)];
                let since = Instant::now();
                cloud.update(name, |machine| (machine.power, machine.powered_since) = (state, since));
            }
            14 => {
                let is_unproven = self.random.bool();
                cloud.update(name, |machine| machine.is_power_unproven = is_unproven);
            }
            15 => {
                let pending = self.random.bool().then(fault);
                cloud.update(name, |machine| machine.metadata.pending = pending);
            }
            16 => {
                let stale = self.random.bool().then(fault);
                cloud.update(name, |machine| machine.metadata.stale = stale);
            }
            // The machine moves, and its guest, its size and its tags change.
            _ => {
                cloud.update(name, |machine| {
                    let provider_id = machine.metadata.provider_id.clone();
                    machine.metadata = InstanceMetadata { provider_id, ..other.metadata };
                });
            }
        }
        if cloud.version(name) == before { Changed::Nothing } else { Changed::Machine }
    }

    /// Destroys a machine, so that its kubelet stops reporting.
    pub fn lose(&mut self, world: &World, name: &str) -> Changed {
        let is_destroyed = world.cloud.destroy(name);
        let Some(mut node) = world.server.node(name).filter(|_| is_destroyed) else {
            return if is_destroyed { Changed::Machine } else { Changed::Nothing };
        };
        set_ready(&mut node, "Unknown", self.step);
        world.server.with(|state| state.put(node));
        Changed::Both
    }

    /// Returns a running machine with a new identity.
    pub fn machine(&mut self, name: &str) -> Machine {
        let random = &mut self.random;
        let mut any = |texts: &[&str]| texts[random.usize(..texts.len())].to_owned();
        let host = any(&["esx-1", "esx-2"]);
        let addresses = any(&["10.1.0.1", "10.1.0.2", "10.1.0.1 10.2.0.1", ""]);
        let address = |ip: &str| NodeAddress { type_: "InternalIP".to_owned(), address: ip.to_owned() };
        let metadata = InstanceMetadata {
            provider_id: format!("memory://{name}-{}", self.step),
            instance_type: any(&["small", "large", ""]),
            node_addresses: addresses.split_whitespace().map(address).collect(),
            zone: any(&["zone-a", "zone-b", ""]),
            region: any(&["region-1", "region-2"]),
            topology_labels: [("topology.vsphere-ccm.dev/host".to_owned(), Some(host.clone()))].into(),
            found_by: if any(&["name", "uuid"]) == "name" { FoundBy::Name } else { FoundBy::SystemUuid },
            record: format!("vm-{name}/{host}"),
            is_record_urgent: any(&["urgent", "", ""]) == "urgent",
            ..InstanceMetadata::default()
        };
        Machine { metadata, power: PowerState::On, is_power_unproven: false, powered_since: Instant::now() }
    }

    fn change_node(&mut self, world: &World, name: &str) -> Changed {
        let Some(mut node) = world.server.node(name) else {
            self.register(world, name);
            return Changed::Node;
        };
        let step = self.step;
        let random = &mut self.random;
        let mut any = |texts: &[&'static str]| texts[random.usize(..texts.len())];
        let labels = [
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
            "node.kubernetes.io/instance-type",
            "example.com/pool",
        ];
        let taints = [TAINT_SHUTDOWN, TAINT_OUT_OF_SERVICE, "test.example/maintenance"];
        let ready = any(&["True", "Unknown", "Unknown", "Unknown", "False"]);
        let (taint, label, value) = (any(&taints), any(&labels), any(&["zone-a", "other"]));
        match any(&[
            "ready", "ready", "ready", "ready", "taint", "untaint", "label", "unlabel", "allow", "forbid", "node-ip",
            "delete", "recreate",
        ]) {
            "ready" => set_ready(&mut node, ready, step),
            "taint" => set_taint(&mut node, taint, Some("NoSchedule")),
            "untaint" => set_taint(&mut node, taint, None),
            "label" => node["metadata"]["labels"][label] = json!(value),
            "unlabel" => drop(node["metadata"]["labels"].as_object_mut().map(|labels| labels.remove(label))),
            "allow" => node["metadata"]["annotations"][ANNOTATION_ALLOW_DELETION] = json!("true"),
            "forbid" => node["metadata"]["annotations"][ANNOTATION_ALLOW_DELETION] = json!("false"),
            "node-ip" => {
                let ip = any(&["10.1.0.1", "10.2.0.1", "192.0.2.1"]);
                node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"] = json!(ip);
            }
            other => {
                world.server.with(|state| state.remove(name));
                if other == "recreate" {
                    self.register(world, name);
                }
                return Changed::Node;
            }
        }
        world.server.with(|state| state.put(node));
        Changed::Node
    }

    /// Registers a Node, mostly with the taint that waits for this program.
    pub fn register(&mut self, world: &World, name: &str) {
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": {"test": "1"}},
            "spec": {"taints": []},
            "status": {"conditions": [], "addresses": [{"type": "Hostname", "address": name}]},
        });
        if self.random.u8(..5) > 0 {
            set_taint(&mut node, TAINT_UNINITIALIZED, Some("NoSchedule"));
        }
        set_ready(&mut node, ["True", "False", "Unknown"][self.random.usize(..3)], self.step);
        world.server.with(|state| state.put(node));
    }

    fn change_pause(&mut self, world: &World) -> Changed {
        let is_paused = self.random.bool();
        world.server.with(|state| {
            let until = state.leases.time() + Duration::from_secs(3600);
            let paused = json!({ANNOTATION_UNTIL: until.to_string(), ANNOTATION_CAUSE: "the test"});
            state.leases.annotate(&if is_paused { paused } else { json!({}) });
        });
        Changed::Pause
    }

    /// Makes the next requests fail.
    fn fail(&mut self, world: &World) -> Changed {
        let random = &mut self.random;
        let method = [Method::PATCH, Method::DELETE, Method::GET][random.usize(..3)].clone();
        let fates = [Fate::Refused(403), Fate::DoneAndFails(500), Fate::DoneAndLost, Fate::Lost];
        let fates: Vec<Fate> = (0..random.usize(1..4)).map(|_| fates[random.usize(..fates.len())]).collect();
        world.server.next(&method, &fates);
        Changed::Requests
    }
}

fn set_ready(node: &mut Value, status: &str, step: u32) {
    let since = jiff::Timestamp::from_second(1_800_000_000 + i64::from(step)).unwrap().to_string();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition["type"] != "Ready");
    conditions.push(json!({"type": "Ready", "status": status, "lastTransitionTime": since}));
}

fn set_taint(node: &mut Value, key: &str, effect: Option<&str>) {
    let present = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut taints: Vec<Value> = present.into_iter().filter(|taint| taint["key"] != key).collect();
    taints.extend(effect.map(|effect| json!({"key": key, "effect": effect})));
    node["spec"]["taints"] = json!(taints);
}
