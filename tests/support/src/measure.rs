//! What a large cluster costs the daemon: time until every node is initialised, calls, memory and CPU time.
//!
//! The cluster is a real kube-apiserver with Nodes of real size, without kubelets. vCenter is [`FakeVcenter`], part of
//! this process, with some time added to each call.

pub mod kubelet;
mod writes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, ListParams, Object, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::api_server::free_port;
use crate::fake_vcenter::FakeCounts;
use crate::nodes::UNINITIALIZED_TAINT;
use crate::process::Usage;
use crate::supervisor::TemporaryFolder;
use crate::{ApiServer, Daemon, FakeVcenter, Model};
use writes::Writes;

/// What each call of vCenter takes longer.
const DELAY: Duration = Duration::from_millis(10);
/// How long initialising may take before the measurement is a failure: this, and so much for each node.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_PER_NODE: Duration = Duration::from_millis(60);
/// vCenter's calls have settled when there was none for this long.
const QUIET: Duration = Duration::from_secs(5);
/// How long that may take.
const QUIET_LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at what is counted.
const PERIOD: Duration = Duration::from_millis(100);
/// A watch that the server has not ended by then.
const WATCH_SECONDS: u32 = 290;

/// What was asked for.
pub struct Plan {
    daemon: PathBuf,
    nodes: usize,
}

impl Plan {
    /// Reads `NODES`.
    ///
    /// # Errors
    ///
    /// A sentence, when `NODES` is not a number that makes sense, or the daemon's binary is missing.
    pub fn from_environment(daemon: PathBuf) -> Result<Self, String> {
        let nodes = match std::env::var("NODES").ok().filter(|value| !value.is_empty()) {
            None => 5_000,
            Some(text) => match text.parse() {
                Ok(nodes) if (1..=20_000).contains(&nodes) => nodes,
                _ => return Err(format!("NODES is {text:?}; a number from 1 to 20000 is expected")),
            },
        };
        if daemon.is_file() {
            Ok(Self { daemon, nodes })
        } else {
            Err(format!("{} is missing: start this with `make measure`", daemon.display()))
        }
    }
}

/// Measures, and prints what was measured.
///
/// # Errors
///
/// A sentence, when not all nodes were initialised, with the daemon's last lines.
pub async fn run(plan: Plan) -> Result<(), String> {
    let Plan { daemon: binary, nodes: count } = plan;
    let folder = TemporaryFolder::create();
    let server = ApiServer::start().await;
    let client = server.client().await;
    let vcenter = FakeVcenter::start(model(count)).await;
    vcenter.delay_calls(DELAY);

    let begun = Instant::now();
    let size = kubelet::register(&client, count).await?;
    line("nodes", &format!("{count} created in {}, one is {size} bytes of JSON", seconds(begun.elapsed())));
    let config = folder.path().join("vsphere.conf");
    let text =
        format!("{}\n[Labels]\nregion = k8s-region\nzone = k8s-zone\n", vcenter.ini_section("vc", "", folder.path()));
    std::fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
    let api: Api<Seen> = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
    let list = api.list(&ListParams::default().limit(1)).await.map_err(|error| format!("Nodes: {error}"))?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let writes = Writes::of(&client).await?;
    let servers = server.usage();
    let own = Usage::of_this_process().unwrap_or_default();

    let begun = Instant::now();
    let mut daemon = Daemon::start(&binary, flags(&config, &server.kubeconfig()));
    let limit = PATIENCE + PATIENCE_PER_NODE * u32::try_from(count).unwrap_or(u32::MAX);
    let mut watch = Watch { api, version, begun, initialised: BTreeMap::new() };
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(limit, watch.follow(count)) => outcome.unwrap_or(Err(String::new())),
        status = end_of(&mut daemon) => Err(format!("the daemon ended with {status}")),
    };
    if let Err(reason) = outcome {
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        return Err(format!(
            "{} of {count} nodes were initialised within {}{reason}; the daemon's last lines:\n{}",
            watch.initialised.len(),
            seconds(begun.elapsed()),
            daemon.output().tail(25)
        ));
    }
    let at_once = usage(&daemon)?;
    let settled = settle(&vcenter).await.map(|counts| (counts, begun.elapsed()));

    times(watch.initialised.into_values().collect());
    calls(&vcenter.counts(), settled.as_ref().map(|(_, time)| time.saturating_sub(QUIET)));
    line("API writes", &Writes::of(&client).await?.since(&writes));
    memory("when all were initialised", &at_once);
    let now = usage(&daemon)?;
    memory(&format!("{} after the start", seconds(begun.elapsed())), &now);
    line("CPU, daemon", &seconds(now.cpu));
    for ((name, now), (_, before)) in server.usage().iter().zip(&servers) {
        line(&format!("CPU, {name}"), &seconds(now.cpu.saturating_sub(before.cpu)));
    }
    let now = Usage::of_this_process().unwrap_or_default();
    line("CPU, the fake", &format!("{}, with the watch that measures", seconds(now.cpu.saturating_sub(own.cpu))));
    Ok(())
}

/// A vCenter with this many machines, on tagged hosts.
#[must_use]
pub fn model(machines: usize) -> Model {
    let hosts = [("HostSystem", "host-1"), ("HostSystem", "host-2"), ("HostSystem", "host-3")];
    Model::small().vms(machines).tag("k8s-zone", "zone-a", &hosts).tag(
        "k8s-region",
        "region-1",
        &[("Datacenter", "dc-1")],
    )
}

fn flags(config: &Path, kubeconfig: &Path) -> Vec<String> {
    vec![
        "--cloud-provider=vsphere".to_owned(),
        format!("--cloud-config={}", config.display()),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", free_port()),
    ]
}

/// A Node, without what is not looked at: reading that costs time which the daemon could use.
type Seen = Object<SeenSpec, SeenStatus>;

#[derive(Clone, Debug, Deserialize, Serialize)]
struct SeenSpec {
    #[serde(default)]
    taints: Vec<SeenTaint>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct SeenTaint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SeenStatus {}

/// Follows the Nodes from a version on.
struct Watch {
    api: Api<Seen>,
    version: String,
    begun: Instant,
    /// When each node was seen without the taint, counted from the start of the daemon.
    initialised: BTreeMap<String, Duration>,
}

impl Watch {
    async fn follow(&mut self, count: usize) -> Result<(), String> {
        let parameters = WatchParams::default().timeout(WATCH_SECONDS);
        while self.initialised.len() < count {
            let events = self.api.watch(&parameters, &self.version).await.map_err(|error| error.to_string())?;
            let mut events = events.boxed();
            while let Some(event) = events.next().await {
                match event.map_err(|error| error.to_string())? {
                    WatchEvent::Added(node) | WatchEvent::Modified(node) => self.see(&node),
                    WatchEvent::Bookmark(bookmark) => self.version = bookmark.metadata.resource_version,
                    WatchEvent::Deleted(node) => return Err(format!("node {} was deleted", node.name_any())),
                    WatchEvent::Error(status) => return Err(format!("the watch was refused: {}", status.message)),
                }
                if self.initialised.len() == count {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn see(&mut self, node: &Seen) {
        self.version = node.resource_version().unwrap_or_default();
        if !node.spec.taints.iter().any(|taint| taint.key == UNINITIALIZED_TAINT) {
            self.initialised.entry(node.name_any()).or_insert_with(|| self.begun.elapsed());
        }
    }
}

async fn end_of(daemon: &mut Daemon) -> std::process::ExitStatus {
    loop {
        if let Some(status) = daemon.ended() {
            return status;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn usage(daemon: &Daemon) -> Result<Usage, String> {
    let pid = daemon.pid().ok_or("the daemon has no process id")?;
    Usage::of(pid).ok_or_else(|| format!("/proc tells nothing of process {pid}; this needs Linux"))
}

/// The counts when no call has come for a while; nothing if they never stop.
async fn settle(vcenter: &FakeVcenter) -> Option<FakeCounts> {
    let begun = Instant::now();
    let (mut last, mut since) = (vcenter.counts(), Instant::now());
    while since.elapsed() < QUIET {
        if begun.elapsed() > QUIET_LIMIT {
            return None;
        }
        tokio::time::sleep(PERIOD).await;
        let counts = vcenter.counts();
        if counts.operations != last.operations {
            (last, since) = (counts, Instant::now());
        }
    }
    Some(last)
}

fn times(mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |index: usize| seconds(times.get(index).copied().unwrap_or_default());
    let last = times.len().saturating_sub(1);
    line("initialised", &format!("first {}, median {}, last {}", at(0), at(last / 2), at(last)));
}

fn calls(counts: &FakeCounts, settled: Option<Duration>) {
    let total: u32 = counts.operations.values().sum();
    let settled =
        settled.map_or("not settled".to_owned(), |time| format!("the last one {} after the start", seconds(time)));
    line("vCenter", &format!("{total} calls, {settled}"));
    let mut operations: Vec<_> = counts.operations.iter().collect();
    operations.sort_by(|left, right| right.1.cmp(left.1).then(left.0.cmp(right.0)));
    for (operation, count) in operations {
        line("", &format!("{count:>6} {operation}"));
    }
    line("", &format!("{} bytes to it, {} bytes from it", counts.bytes_received, counts.bytes_sent));
    line(
        "",
        &format!(
            "the fake itself worked {}; its calls were delayed by {} all together",
            seconds(counts.busy),
            seconds(counts.delayed)
        ),
    );
}

fn memory(when: &str, usage: &Usage) {
    let megabytes = |kilobytes: u64| format!("{:.1} MB", kilobytes as f64 * 1024.0 / 1e6);
    line(
        "memory",
        &format!(
            "{when}: VmRSS {} (heap and stacks {}), VmHWM {}",
            megabytes(usage.resident),
            megabytes(usage.anonymous),
            megabytes(usage.peak)
        ),
    );
}

fn line(name: &str, about: &str) {
    println!("{name:<20}{about}");
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
