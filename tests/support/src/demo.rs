//! Runs the demo. It starts everything, watches the nodes become ready, and changes an address. Then it creates,
//! changes and deletes a Service of type `LoadBalancer` on NSX, while a node is removed. With routes it shows them on
//! an NSX router, how they follow the changed address, and how the route of the removed node disappears.

mod cluster;
mod load_balancer;
mod node;
mod nsx;
mod screen;
mod table;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::time::{MissedTickBehavior, interval};

use crate::components::{Component, kubernetes_release};
use crate::nodes::NodeView;
use crate::sandbox::Sandbox;
use crate::supervisor::TemporaryFolder;
use crate::vcenter::{Counts, Vcenter};
use crate::{ApiServer, Daemon};
use cluster::Machine;
use node::RealNode;
use nsx::Nsx;
use screen::Screen;
use table::Table;

/// Longest initialization of all nodes. After it the demo fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time until the changed address is visible.
const CHANGE_PATIENCE: Duration = Duration::from_secs(20);
/// Longest time for the routes of all nodes, in addition to the time that the rate limit of NSX calls gives each node.
const ROUTES_PATIENCE: Duration = Duration::from_secs(30);
const ROUTE_PATIENCE: Duration = Duration::from_millis(100);
const SHOWN_ROUTES: usize = 4;
/// Pause between two redraws of the table. Shorter pauses make it flicker.
const FRAME: Duration = Duration::from_millis(100);

/// Options of the demo.
pub struct Plan {
    /// Path of the daemon's binary.
    pub daemon: PathBuf,
    /// Number of simulated nodes.
    pub nodes: usize,
    /// Whether the demo exits after its last step.
    pub once: bool,
    /// Whether nodes have routes.
    pub routes: bool,
    /// Whether there is a real node, for which [`run`] needs a sandbox.
    pub node: bool,
}

impl Plan {
    /// Reads `NODES`, `ONCE`, `ROUTES` and `NODE`.
    ///
    /// # Errors
    ///
    /// A sentence, if `NODES` is not a valid number.
    pub fn from_environment(daemon: PathBuf) -> Result<Self, String> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let nodes = match variable("NODES") {
            None => 9,
            Some(text) => match text.parse() {
                Ok(nodes) if (4..=2000).contains(&nodes) => nodes,
                _ => return Err(format!("NODES is {text:?}; a number from 4 to 2000 is expected")),
            },
        };
        let is_on = |name: &str| variable(name).is_some_and(|value| value != "0");
        let (once, routes, node) = (is_on("ONCE"), is_on("ROUTES"), is_on("NODE"));
        if daemon.is_file() {
            Ok(Self { daemon, nodes, once, routes, node })
        } else {
            Err(format!("{} is missing: start this with `make demo`", daemon.display()))
        }
    }
}

/// Runs the demo, with a real node if there is a sandbox for it.
///
/// # Errors
///
/// A sentence, with the daemon's last lines if they are relevant.
pub async fn run(plan: Plan, sandbox: Option<Sandbox>) -> Result<(), String> {
    let interactive = !plan.once && std::io::stdout().is_terminal();
    let mut stage = tokio::select! {
        stage = Stage::set(&plan, sandbox, interactive) => stage,
        _ = tokio::signal::ctrl_c() => return Err("interrupted".to_owned()),
    };
    let outcome = tokio::select! {
        outcome = stage.play(plan.once) => outcome,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    stage.screen.end();
    println!("stopping");
    drop(stage);
    outcome
}

/// Everything that runs. Fields are dropped in this order: the daemon first, while it can still log out.
struct Stage {
    daemon: Daemon,
    /// Path of the daemon's binary, which has the commands, too.
    binary: PathBuf,
    vcenter: Vcenter,
    events: BoxStream<'static, watcher::Result<Event<Node>>>,
    services: BoxStream<'static, watcher::Result<Event<Service>>>,
    /// The Service of the second act, while it exists.
    service: Option<Service>,
    apiserver: ApiServer,
    screen: Screen,
    table: Table,
    machines: Vec<Machine>,
    nsx: Arc<Nsx>,
    has_routes: bool,
    client: Client,
    node: Option<RealNode>,
    _folder: TemporaryFolder,
}

impl Stage {
    async fn set(plan: &Plan, sandbox: Option<Sandbox>, interactive: bool) -> Self {
        let folder = TemporaryFolder::create();
        let started = Instant::now();
        let apiserver = if sandbox.is_some() { ApiServer::of_a_node().await } else { ApiServer::start().await };
        let release = kubernetes_release();
        let minor = release.rsplit_once('.').map_or(release.as_str(), |(minor, _)| minor);
        step("etcd, kube-apiserver", started, &format!("Kubernetes {minor} at {}", apiserver.url()));

        let simulated = cluster::machines(plan.nodes);
        let real = sandbox.as_ref().map(|_| Machine::real(plan.nodes));
        let machines: Vec<Machine> = real.iter().chain(&simulated).cloned().collect();
        let started = Instant::now();
        let vcenter = Vcenter::start(&cluster::scenario(&machines)).await;
        let about = format!("{} VMs, 1 region, 3 zones, at {}", machines.len(), vcenter.url());
        step("vCenter simulator", started, &about);

        let started = Instant::now();
        let nsx = Arc::new(Nsx::start().await);
        step("NSX stand-in", started, &format!("gateway {} at {}", nsx::GATEWAY, nsx.address()));

        let client = apiserver.client().await;
        let started = Instant::now();
        cluster::register(&client, &simulated, plan.routes).await;
        step("nodes", started, &format!("{} registered, as kubelets with --cloud-provider=external do", plan.nodes));
        let node = match (sandbox, &real) {
            (Some(sandbox), Some(machine)) => Some(RealNode::start(sandbox, &apiserver, machine, plan.routes).await),
            _ => None,
        };

        let config = folder.path().join("vsphere.conf");
        let sections = nsx.sections(folder.path(), plan.routes);
        std::fs::write(&config, format!("{}{sections}", cluster::vsphere_conf(&vcenter))).unwrap();
        let (events, services) = (watch(client.clone()), load_balancer::watch(client.clone()));
        let started = Instant::now();
        let mut flags = flags(&config, &apiserver.kubeconfig());
        if plan.routes {
            flags.push(format!("--cluster-cidr={}", nsx::CLUSTER_CIDR));
        }
        let daemon = Daemon::start(&plan.daemon, flags);
        step("daemon", started, &format!("{} with {}", name_of(&plan.daemon), config.display()));
        println!();
        let table = Table::new(&machines, started);
        let screen = Screen::new(interactive);
        let (service, has_routes) = (None, plan.routes);
        Self {
            daemon,
            binary: plan.daemon.clone(),
            vcenter,
            events,
            services,
            service,
            apiserver,
            screen,
            table,
            machines,
            nsx,
            has_routes,
            client,
            node,
            _folder: folder,
        }
    }

    async fn play(&mut self, once: bool) -> Result<(), String> {
        self.follow(PATIENCE, "not all nodes were initialized", |stage| stage.table.is_complete()).await?;
        let counts = self.vcenter.counts().await;
        let took = self.table.last_ready().unwrap_or_default();
        self.note("");
        self.note(&format!(
            "{} nodes initialized within {} of the daemon's start, with {} vCenter calls over {} SOAP and {} REST session(s):",
            self.machines.len(),
            seconds(took),
            counts.total,
            counts.soap_sessions,
            counts.rest_sessions
        ));
        self.note(&format!("  {}", busiest(&counts)));
        if self.has_routes {
            self.wait_for_routes().await?;
        }
        self.change_an_address().await?;
        self.play_second_act().await?;
        if once {
            return Ok(());
        }
        self.note("");
        self.note("Look around with:");
        let enter = self.node.as_ref().map(RealNode::enter).unwrap_or_default();
        self.note(&format!(
            "  {enter}{} --kubeconfig {} get nodes -o wide",
            Component::Kubectl.path().display(),
            self.apiserver.kubeconfig().display()
        ));
        self.note("Ask the daemon, as docs/cli.md says:");
        let selection = self.daemon.pid().map(|pid| format!(" --pid={pid}")).unwrap_or_default();
        let node = self.machines.first().map(|machine| machine.node.clone()).unwrap_or_default();
        for command in ["status", "check", "plan", &format!("explain node {node}")] {
            self.note(&format!("  {enter}{} {command}{selection}", self.binary.display()));
        }
        self.note("Ctrl-C ends it all.");
        self.follow(Duration::MAX, "", |_| false).await
    }

    async fn change_an_address(&mut self) -> Result<(), String> {
        let machine = self.machines.last().unwrap().clone();
        let address = machine.other_address();
        self.note("");
        self.note(&format!("VM {} gets another address in vCenter: {} -> {address}", machine.vm, machine.address));
        let changed = Instant::now();
        self.vcenter.change_vm(&machine.uuid, &machine.with_address(&address)).await;
        let node = machine.node.clone();
        self.follow(CHANGE_PATIENCE, "the changed address did not reach the Node", |stage| {
            stage.table.has_address(&node, &address)
        })
        .await?;
        self.note(&format!("Node {} shows it {} later.", machine.node, seconds(changed.elapsed())));
        if let Some(machine) = self.machines.last_mut() {
            machine.address.clone_from(&address);
        }
        if self.has_routes {
            self.follow_routes(CHANGE_PATIENCE).await?;
            let network = machine.pod_network();
            self.note(&format!("Route {network} leads to it {} after the change.", seconds(changed.elapsed())));
        }
        Ok(())
    }

    async fn wait_for_routes(&mut self) -> Result<(), String> {
        let nodes = u32::try_from(self.machines.len()).unwrap_or(u32::MAX);
        self.follow_routes(ROUTES_PATIENCE + ROUTE_PATIENCE * nodes).await?;
        let (took, counts) = (self.table.elapsed(), self.nsx.counts());
        self.note("");
        self.note(&format!(
            "{nodes} routes on {} within {} of the daemon's start, with {} NSX calls over {} session(s):",
            nsx::GATEWAY,
            seconds(took),
            counts.total(),
            counts.sessions
        ));
        for machine in self.machines.iter().take(SHOWN_ROUTES).cloned().collect::<Vec<_>>() {
            self.note(&format!("  {:<18} -> {:<15} {}", machine.pod_network(), machine.address, machine.node));
        }
        if let Some(more) = self.machines.len().checked_sub(SHOWN_ROUTES).filter(|more| *more > 0) {
            self.note(&format!("  and {more} more"));
        }
        Ok(())
    }

    /// Waits until the router has exactly the routes of all machines.
    async fn follow_routes(&mut self, patience: Duration) -> Result<(), String> {
        let (machines, trouble) = (self.machines.clone(), "the router has not the routes of all nodes");
        self.follow(patience, trouble, |stage| stage.nsx.leads_to(&machines)).await
    }

    /// Shows the events until the condition is true.
    async fn follow(&mut self, patience: Duration, trouble: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        let deadline = Instant::now().checked_add(patience);
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !done(self) {
            tokio::select! {
                event = self.events.next() => self.observe(event),
                event = self.services.next() => self.observe_service(event),
                _ = frames.tick() => self.screen.draw(&self.table),
            }
            if let Some(status) = self.daemon.ended() {
                return Err(format!("the daemon ended with {status}; its last lines:\n{}", self.last_lines()));
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                let left = self.table.unfinished().join(", ");
                let left = if left.is_empty() { left } else { format!(" ({left})") };
                return Err(format!(
                    "{trouble} within {patience:?}{left}; the daemon's last lines:\n{}",
                    self.last_lines()
                ));
            }
        }
        self.screen.draw(&self.table);
        Ok(())
    }

    fn observe(&mut self, event: Option<watcher::Result<Event<Node>>>) {
        match event {
            Some(Ok(Event::Apply(node) | Event::InitApply(node))) => {
                let name = node.metadata.name.clone().unwrap_or_default();
                if self.table.update(&name, NodeView::of(&node)) {
                    self.screen.row(&self.table, &name);
                }
            }
            Some(Ok(Event::Delete(node))) => {
                let name = node.metadata.name.unwrap_or_default();
                self.table.remove(&name);
                self.note(&format!("node {name} was deleted"));
            }
            // The watcher recovers by itself.
            Some(Ok(Event::Init | Event::InitDone) | Err(_)) | None => {}
        }
    }

    fn note(&mut self, line: &str) {
        self.screen.note(&self.table, line);
    }

    fn last_lines(&self) -> String {
        self.daemon.output().tail(25)
    }
}

fn watch(client: Client) -> BoxStream<'static, watcher::Result<Event<Node>>> {
    watcher::watcher(Api::<Node>::all(client), watcher::Config::default()).boxed()
}

fn flags(config: &Path, kubeconfig: &Path) -> Vec<String> {
    vec![
        "--cloud-provider=vsphere".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=true".to_owned(),
        "--cluster-name=demo".to_owned(),
        // No HTTP port, because several demos may run on this machine.
        "--secure-port=0".to_owned(),
        "-v=2".to_owned(),
    ]
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn step(name: &str, started: Instant, about: &str) {
    println!("{name:<22}{:>8}   {about}", seconds(started.elapsed()));
}

/// Formats a time for people: in milliseconds below a second.
fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// Returns the operations by number of calls, most frequent first.
fn busiest(counts: &Counts) -> String {
    let mut operations: Vec<(&String, &u32)> = counts.operations.iter().collect();
    operations.sort_by(|left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
    let shown = operations.iter().take(6).map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ");
    let rest: u32 = operations.iter().skip(6).map(|(_, count)| **count).sum();
    if rest == 0 { shown } else { format!("{shown}, others {rest}") }
}
