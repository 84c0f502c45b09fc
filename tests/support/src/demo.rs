//! The demo's story: start everything, watch the nodes become ready, change an address, stay. With routes they appear on a
//! router of NSX, follow the changed address, and one goes with its node.

mod cluster;
mod router;
mod screen;
mod table;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::time::{MissedTickBehavior, interval};

use crate::components::Component;
use crate::nodes::NodeView;
use crate::supervisor::TemporaryFolder;
use crate::vcenter::{Counts, Vcenter};
use crate::{ApiServer, Daemon};
use cluster::Machine;
use router::Router;
use screen::Screen;
use table::Table;

/// How long a node may take before the demo is a failure, whatever the number of nodes.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the changed address may take.
const CHANGE_PATIENCE: Duration = Duration::from_secs(20);
/// How long the routes of all nodes may take, besides the time that the limit of calls to NSX gives each node.
const ROUTES_PATIENCE: Duration = Duration::from_secs(30);
const ROUTE_PATIENCE: Duration = Duration::from_millis(100);
/// So many routes are shown.
const SHOWN_ROUTES: usize = 4;
/// A table that is redrawn more often only flickers.
const FRAME: Duration = Duration::from_millis(100);

/// What was asked for.
pub struct Plan {
    daemon: PathBuf,
    nodes: usize,
    once: bool,
    routes: bool,
}

impl Plan {
    /// Reads `NODES`, `ONCE` and `ROUTES`.
    ///
    /// # Errors
    ///
    /// A sentence, when `NODES` is not a number that makes sense.
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
        let (once, routes) = (is_on("ONCE"), is_on("ROUTES"));
        if daemon.is_file() {
            Ok(Self { daemon, nodes, once, routes })
        } else {
            Err(format!("{} is missing: start this with `make demo`", daemon.display()))
        }
    }
}

/// Runs the demo.
///
/// # Errors
///
/// A sentence, with the daemon's last lines where they matter.
pub async fn run(plan: Plan) -> Result<(), String> {
    let interactive = !plan.once && std::io::stdout().is_terminal();
    let mut stage = tokio::select! {
        stage = Stage::set(&plan, interactive) => stage,
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

/// Everything that runs. Fields are dropped in this order: the daemon while it can still log out.
struct Stage {
    daemon: Daemon,
    vcenter: Vcenter,
    events: BoxStream<'static, watcher::Result<Event<Node>>>,
    apiserver: ApiServer,
    screen: Screen,
    table: Table,
    machines: Vec<Machine>,
    router: Option<Arc<Router>>,
    client: Client,
    _folder: TemporaryFolder,
}

impl Stage {
    async fn set(plan: &Plan, interactive: bool) -> Self {
        let folder = TemporaryFolder::create();
        let started = Instant::now();
        let apiserver = ApiServer::start().await;
        step("etcd, kube-apiserver", started, &format!("Kubernetes 1.34 at {}", apiserver.url()));

        let machines = cluster::machines(plan.nodes);
        let started = Instant::now();
        let vcenter = Vcenter::start(&cluster::scenario(&machines)).await;
        let about = format!("{} VMs, 1 region, 3 zones, at {}", machines.len(), vcenter.url());
        step("vCenter simulator", started, &about);

        let started = Instant::now();
        let router = if plan.routes { Some(Arc::new(Router::start().await)) } else { None };
        if let Some(router) = &router {
            step("NSX", started, &format!("router {} at {}", router::PATH, router.address()));
        }

        let client = apiserver.client().await;
        let started = Instant::now();
        cluster::register(&client, &machines, plan.routes).await;
        step("nodes", started, &format!("{} registered, as kubelets with --cloud-provider=external do", plan.nodes));

        let config = folder.path().join("vsphere.conf");
        let sections = router.as_ref().map(|router| router.sections(folder.path())).unwrap_or_default();
        std::fs::write(&config, format!("{}{sections}", cluster::vsphere_conf(&vcenter))).unwrap();
        let events = watch(client.clone());
        let started = Instant::now();
        let mut flags = flags(&config, &apiserver.kubeconfig());
        if router.is_some() {
            flags.extend([format!("--cluster-cidr={}", router::CLUSTER_CIDR), "--cluster-name=demo".to_owned()]);
        }
        let daemon = Daemon::start(&plan.daemon, flags);
        step("daemon", started, &format!("{} with {}", name_of(&plan.daemon), config.display()));
        println!();
        let table = Table::new(&machines, started);
        let screen = Screen::new(interactive);
        Self { daemon, vcenter, events, apiserver, screen, table, machines, router, client, _folder: folder }
    }

    async fn play(&mut self, once: bool) -> Result<(), String> {
        self.follow(PATIENCE, "not all nodes were initialised", Table::is_complete).await?;
        let counts = self.vcenter.counts().await;
        let took = self.table.last_ready().unwrap_or_default();
        self.note("");
        self.note(&format!(
            "{} nodes initialised within {} of the daemon's start, with {} vCenter calls over {} SOAP and {} REST session(s):",
            self.machines.len(),
            seconds(took),
            counts.total,
            counts.soap_sessions,
            counts.rest_sessions
        ));
        self.note(&format!("  {}", busiest(&counts)));
        if let Some(router) = self.router.clone() {
            self.wait_for_routes(&router).await?;
        }
        self.change_an_address().await?;
        if let Some(router) = self.router.clone() {
            self.delete_a_node(&router).await?;
        }
        if once {
            return Ok(());
        }
        self.note("");
        self.note("Look around with:");
        self.note(&format!(
            "  {} --kubeconfig {} get nodes -o wide",
            Component::Kubectl.path().display(),
            self.apiserver.kubeconfig().display()
        ));
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
        self.follow(CHANGE_PATIENCE, "the changed address did not reach the Node", |table| {
            table.has_address(&node, &address)
        })
        .await?;
        self.note(&format!("Node {} shows it {} later.", machine.node, seconds(changed.elapsed())));
        if let Some(machine) = self.machines.last_mut() {
            machine.address.clone_from(&address);
        }
        if let Some(router) = self.router.clone() {
            self.follow_routes(&router, CHANGE_PATIENCE).await?;
            let network = machine.pod_network();
            self.note(&format!("Route {network} leads to it {} after the change.", seconds(changed.elapsed())));
        }
        Ok(())
    }

    async fn wait_for_routes(&mut self, router: &Arc<Router>) -> Result<(), String> {
        let nodes = u32::try_from(self.machines.len()).unwrap_or(u32::MAX);
        self.follow_routes(router, ROUTES_PATIENCE + ROUTE_PATIENCE * nodes).await?;
        let (took, counts) = (self.table.elapsed(), router.counts());
        self.note("");
        self.note(&format!(
            "{nodes} routes on {} within {} of the daemon's start, with {} NSX calls over {} session(s):",
            router::PATH,
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

    async fn delete_a_node(&mut self, router: &Arc<Router>) -> Result<(), String> {
        let Some(machine) = self.machines.pop() else { return Ok(()) };
        self.note("");
        self.note(&format!("VM {} is deleted in vCenter, and Node {} with it", machine.vm, machine.node));
        let deleted = Instant::now();
        self.vcenter.destroy_vm(&machine.uuid).await;
        let nodes = Api::<Node>::all(self.client.clone());
        let refused = nodes.delete(&machine.node, &DeleteParams::default()).await.err();
        if let Some(error) = refused {
            return Err(format!("Node {} cannot be deleted: {error}", machine.node));
        }
        self.follow_routes(router, CHANGE_PATIENCE).await?;
        self.note(&format!("Route {} is gone {} later.", machine.pod_network(), seconds(deleted.elapsed())));
        Ok(())
    }

    /// Waits until the router has the routes of all machines and no others.
    async fn follow_routes(&mut self, router: &Arc<Router>, patience: Duration) -> Result<(), String> {
        let machines = self.machines.clone();
        self.follow(patience, "the router has not the routes of all nodes", |_| router.leads_to(&machines)).await
    }

    /// Shows what happens until the condition holds.
    async fn follow(&mut self, patience: Duration, trouble: &str, done: impl Fn(&Table) -> bool) -> Result<(), String> {
        let deadline = Instant::now().checked_add(patience);
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !done(&self.table) {
            tokio::select! {
                event = self.events.next() => self.observe(event),
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
        // No HTTP: this machine may run several demos.
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

/// For people: milliseconds below a second.
fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// The operations by number, most first.
fn busiest(counts: &Counts) -> String {
    let mut operations: Vec<(&String, &u32)> = counts.operations.iter().collect();
    operations.sort_by(|left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
    let shown = operations.iter().take(6).map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ");
    let rest: u32 = operations.iter().skip(6).map(|(_, count)| **count).sum();
    if rest == 0 { shown } else { format!("{shown}, others {rest}") }
}
