//! One cluster with its vCenters and its daemon, for a fault.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::Value;
use support::nodes::{self, NodeView};
use support::{ApiServer, Daemon, FakeVcenter, KubeletNode, Machine, Model, eventually, replace_file};

use super::evidence;
use crate::cluster::{Cluster, LIMIT, ip, until_passed, uuid};

/// Grace period of these tests: time with Ready=Unknown and a proof of absence before the deletion.
const GRACE: Duration = Duration::from_secs(2);
/// Time limit of each of the two proofs for a deletion, for the second one beyond the grace period. A proof with a call
/// that hangs takes the time limit of that call, which is at least as long.
pub const PROMPT: Duration = Duration::from_secs(10);
/// Flags that shorten periods of minutes.
pub const SHORT: [&str; 4] = [
    "--node-monitor-period=1s",
    "--node-deletion-grace=2s",
    "--node-deletion-limit=5,10%,5s",
    "--node-deletion-mass-hold=5s",
];
/// Answers about the machine of a node that the test awaits after the grace period, before the node counts as not
/// deleted.
const ROUNDS: usize = 2;

/// The nodes of every world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The machine always exists, and has the fault.
    Kept,
    /// The machine is destroyed.
    Doomed,
    /// The machine always exists, without the fault.
    Beside,
    /// The machine is destroyed, and the kubelet reports that the node is ready.
    Live,
}

/// The roles whose nodes become not ready.
pub const NOT_READY: [Role; 3] = [Role::Kept, Role::Doomed, Role::Beside];
const ALL: [Role; 4] = [Role::Kept, Role::Doomed, Role::Beside, Role::Live];

impl Role {
    pub fn number(self) -> usize {
        self as usize
    }
}

/// One cluster with its vCenters and its daemon.
pub struct World {
    pub cluster: Cluster,
    pub fakes: Vec<FakeVcenter>,
    /// Flags of the daemons.
    pub flags: Vec<String>,
    /// Number of the vCenter of each role's machine.
    homes: [usize; 4],
    folder: PathBuf,
    /// Path of the `vsphere.conf`.
    config: PathBuf,
    daemon: Option<Daemon>,
    /// UIDs of the nodes at their registration, by number.
    pub uids: Vec<String>,
    /// Grace period in the flags.
    pub grace: Duration,
}

impl World {
    /// Starts a world on the shared API server. All its nodes are initialized and ready.
    pub async fn start(models: Vec<Model>, homes: [usize; 4]) -> Self {
        Self::start_on(ApiServer::shared().await, models, homes, &SHORT).await
    }

    /// Starts a world on this API server, with these flags.
    pub async fn start_on(server: &ApiServer, models: Vec<Model>, homes: [usize; 4], flags: &[&str]) -> Self {
        let cluster = Cluster::on(server).await;
        let machine = |role: Role| Machine::new(&cluster.name(role.number()), &uuid(role.number()));
        let place = |(at, model): (usize, Model)| {
            let here = ALL.into_iter().filter(|role| homes[role.number()] == at);
            here.fold(model, |model, role| model.vm(machine(role).ip(&ip(role.number()))))
        };
        let fakes = join_all(models.into_iter().enumerate().map(place).map(FakeVcenter::start)).await;
        let (folder, flags) = (server.folder().to_owned(), flags.iter().map(|flag| (*flag).to_owned()).collect());
        let config = folder.join(format!("{}.conf", cluster.pool()));
        let uids = Vec::new();
        let mut world = Self { cluster, fakes, flags, homes, folder, config, daemon: None, uids, grace: GRACE };
        world.configure(&(0..world.fakes.len()).collect::<Vec<_>>());
        world.uids = join_all(ALL.map(async |role| world.register(role).await)).await;
        world.start_daemon();
        join_all(ALL.map(|role| world.until_initialized(role.number()))).await;
        world
    }

    async fn register(&self, role: Role) -> String {
        let node = self.cluster.kubelet(role.number()).ready().register(&self.cluster.client).await;
        node.metadata.uid.unwrap()
    }

    /// Deletes a Node as an administrator does, and registers another one under its name.
    pub async fn recreate(&mut self, number: usize, node: KubeletNode) {
        self.nodes().delete(&self.cluster.name(number), &DeleteParams::default()).await.unwrap();
        self.uids[number] = node.register(&self.cluster.client).await.metadata.uid.unwrap();
    }

    /// Writes a `vsphere.conf` with these vCenters, in one step as `kubectl edit` and the kubelet do.
    pub fn configure(&self, fakes: &[usize]) {
        let section = |at: &usize| self.fakes[*at].ini_section(&format!("vc-{at}"), "dc-1", &self.folder);
        self.write_config(&fakes.iter().map(section).collect::<String>());
    }

    pub fn write_config(&self, text: &str) {
        replace_file(&self.config, text);
    }

    /// Starts a daemon. A daemon that was taken before still runs.
    pub fn start_daemon(&mut self) {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        self.daemon = Some(self.cluster.start_on(&self.config, &flags));
    }

    /// Kills the daemon, as a crash does.
    pub async fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().await;
        }
    }

    /// Takes the daemon, for a test that starts a second one.
    pub fn take_daemon(&mut self) -> Daemon {
        self.daemon.take().unwrap()
    }

    /// Makes this daemon the daemon of the world.
    pub fn go_on_with(&mut self, daemon: Daemon) {
        self.daemon = Some(daemon);
    }

    pub fn is_running(&self) -> bool {
        self.daemon.is_some()
    }

    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().unwrap()
    }

    /// Waits until the daemon uses the current file.
    pub async fn until_configured(&mut self) {
        self.daemon().wait_for_line("was read again and is in effect", LIMIT).await;
    }

    fn tail(&self) -> String {
        self.daemon.as_ref().map_or_else(String::new, |daemon| daemon.output().tail(60))
    }

    /// Returns the vCenter of this role's machine.
    pub fn home(&self, role: Role) -> &FakeVcenter {
        &self.fakes[self.homes[role.number()]]
    }

    pub fn name(&self, role: Role) -> String {
        self.cluster.name(role.number())
    }

    /// Destroys the virtual machine in vCenter.
    pub fn destroy(&self, role: Role) {
        self.home(role).destroy_vm(&self.name(role));
    }

    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.cluster.client.clone())
    }

    /// Returns the host in the record of this role's Node.
    pub async fn recorded_host(&self, role: Role) -> String {
        let node = self.nodes().get(&self.name(role)).await.unwrap();
        let record: Value = serde_json::from_str(&node.metadata.annotations.unwrap()["vsphere-ccm.dev/vm"]).unwrap();
        record["host"].as_str().unwrap().to_owned()
    }

    /// Waits until the record of this role's Node has this host.
    pub async fn until_recorded(&self, role: Role, host: &str) {
        eventually(&format!("{host} is recorded"), LIMIT, async || match self.recorded_host(role).await {
            recorded if recorded == host => Ok(()),
            recorded => Err(format!("{recorded}\n{}", self.tail())),
        })
        .await;
    }

    pub async fn until_initialized(&self, number: usize) {
        let name = self.cluster.name(number);
        eventually(&format!("{name} is initialized"), LIMIT, async || {
            let node = self.nodes().get(&name).await.map_err(|error| error.to_string())?;
            let view = NodeView::of(&node);
            let is_recorded = node.metadata.annotations.is_some_and(|all| all.contains_key("vsphere-ccm.dev/vm"));
            let is_done = view.provider_id.is_some() && !view.uninitialized && is_recorded;
            if is_done { Ok(()) } else { Err(format!("{view:?}\n{}", self.tail())) }
        })
        .await;
    }

    /// Writes the condition Ready as the kubelet (`True`, `False`) or the kube-controller-manager (`Unknown`) does.
    pub async fn set_ready(&self, number: usize, status: &str) {
        nodes::set_ready(&self.nodes(), &self.cluster.name(number), status, "").await.unwrap();
    }

    /// Sets Ready=Unknown for all nodes except the one that stays ready.
    pub async fn turn_not_ready(&self) {
        join_all(NOT_READY.map(|role| self.set_ready(role.number(), "Unknown"))).await;
    }

    /// Whether the Node that was registered under this number still exists.
    pub async fn is_there(&self, number: usize) -> bool {
        let node = self.nodes().get_opt(&self.cluster.name(number)).await.unwrap();
        node.is_some_and(|node| node.metadata.uid.as_ref() == self.uids.get(number))
    }

    /// Waits until the Node is deleted. Returns the time since `since`.
    pub async fn until_deleted(&self, number: usize, since: Instant) -> Duration {
        let name = self.cluster.name(number);
        eventually(&format!("{name} is deleted"), LIMIT, async || match self.is_there(number).await {
            false => Ok(()),
            true => Err(format!("{}\n{}", self.story(number).await, self.tail())),
        })
        .await;
        let took = since.elapsed();
        let story = self.until_event(number, "DeletingNode").await;
        assert!(story.contains("vm-") && story.contains(&uuid(number)), "{name} is deleted with the proof: {story}");
        took
    }

    /// Waits until the Node is deleted. Each of the two proofs may take `limit`, [`PROMPT`] or longer. Returns the time
    /// since `since`, the earliest time at which the daemon could observe the destruction.
    pub async fn until_deleted_soon(&self, number: usize, since: Instant, limit: Duration) -> Duration {
        let name = self.cluster.name(number);
        self.until_told(number, evidence::ABSENT).await;
        let proved = since.elapsed();
        assert!(proved <= limit, "{name} is proved absent after {proved:?}: {:#?}", self.answers(number));
        let took = self.until_deleted(number, Instant::now()).await;
        let held = self.grace + limit;
        assert!(took <= held, "{name} is deleted {took:?} after its first proof: {:#?}", self.answers(number));
        proved + took
    }

    /// Waits until the running daemon has logged an answer about this node's machine that contains `text`.
    pub async fn until_told(&self, number: usize, text: &str) {
        let what = format!("the daemon is told {text:?} about {}", self.cluster.name(number));
        eventually(&what, LIMIT, async || match self.answers(number) {
            answers if answers.iter().any(|line| line.contains(text)) => Ok(()),
            answers => Err(format!("{answers:#?}\n{}", self.tail())),
        })
        .await;
    }

    /// Returns the Events about the Node that was registered under this number, the newest last.
    pub async fn events(&self, number: usize) -> Vec<Event> {
        let events = Api::<Event>::namespaced(self.cluster.client.clone(), "default");
        let about = format!("involvedObject.kind=Node,involvedObject.name={}", self.cluster.name(number));
        let mut events = events.list(&ListParams::default().fields(&about)).await.unwrap().items;
        events.retain(|event| event.involved_object.uid.as_ref() == self.uids.get(number));
        events.sort_by_key(|event| event.metadata.resource_version.as_ref().and_then(|text| text.parse::<u64>().ok()));
        events
    }

    /// Waits until an Event about the Node has this reason, also if later Events exist. Returns its message.
    pub async fn until_event(&self, number: usize, reason: &str) -> String {
        eventually(&format!("Event {reason} about {}", self.cluster.name(number)), LIMIT, async || {
            let events = self.events(number).await;
            let found = events.iter().rfind(|event| event.reason.as_deref() == Some(reason));
            match found {
                Some(event) => Ok(event.message.clone().unwrap_or_default()),
                None => Err(format!("{}\n{}", self.story(number).await, self.tail())),
            }
        })
        .await
    }

    /// Returns the Events about a Node, for failure messages.
    pub async fn story(&self, number: usize) -> String {
        let events = self.events(number).await;
        events.iter().fold(String::new(), |mut story, event| {
            let (reason, message) = (event.reason.as_deref(), event.message.as_deref());
            writeln!(story, "{}: {}", reason.unwrap_or_default(), message.unwrap_or_default()).unwrap();
            story
        })
    }

    /// Waits until an Event gives one of these reasons for a Node that stays. Returns the Event's message.
    pub async fn until_held(&self, number: usize, words: &[&str]) -> String {
        let what = format!("{} is held by one of {words:?}", self.cluster.name(number));
        eventually(&what, LIMIT, async || {
            let events = self.events(number).await;
            let is_held = |event: &&Event| event.message.as_ref().is_some_and(|text| text.contains("Node not deleted"));
            let last = events.iter().rfind(is_held);
            match last.filter(|event| event.reason.as_deref().is_some_and(|reason| words.contains(&reason))) {
                Some(event) => Ok(event.message.clone().unwrap_or_default()),
                None => Err(format!("{}\n{}", self.story(number).await, self.tail())),
            }
        })
        .await
    }

    /// Returns the running daemon's answers so far about this node's machine.
    pub fn answers(&self, number: usize) -> Vec<String> {
        evidence::answers(self.daemon.as_ref().unwrap(), &self.cluster.name(number))
    }

    /// Waits for the grace period and for several answers about the machine of each node in `asked`. Checks that these
    /// nodes and the nodes in `ready` stay.
    pub async fn stay(&self, asked: &[usize], ready: &[usize]) {
        until_passed(Instant::now(), self.grace).await;
        let names: Vec<String> = asked.iter().map(|number| self.cluster.name(*number)).collect();
        evidence::until_asked(self.daemon.as_ref().unwrap(), &names, ROUNDS).await;
        for &number in asked.iter().chain(ready) {
            let story = self.story(number).await;
            let name = self.cluster.name(number);
            assert!(self.is_there(number).await, "{name} is deleted:\n{story}\n{}", self.tail());
            assert!(!story.contains("DeletingNode"), "{name} was about to be deleted:\n{story}\n{}", self.tail());
        }
    }
}
