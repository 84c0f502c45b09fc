//! The time from a change in vCenter until the Node shows it: an address, the host, the power of a machine whose node
//! is not ready. Measured on the simulator, with 100 and with 1,000 nodes.
//!
//! At each change the simulator collects all machines of a filter again, which takes longer with more machines. That
//! time is measured with each change: a bare client of the same vCenter waits on the same filter and does no other
//! work. The default is 200 changes of each kind. `LATENCY_CHANGES` reduces that for trials.

mod bare;
mod nodes;

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Api;
use support::report::{Limit, Measure};
use support::{ApiServer, eventually};
use tokio::time::{Instant, timeout_at};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::machines::{HOSTS, Kind, address, name, until_quiet};
use crate::subject::{Running, Subject};
use bare::Bare;
use nodes::Nodes;

const SIZES: [usize; 2] = [100, 1_000];
const CHANGES: usize = 200;
/// Limit in seconds for 99 of 100 changes.
const P99: f64 = 1.0;
/// With this many nodes the total time counts. With more nodes the time of vCenter itself is subtracted.
const SMALL: usize = 100;
/// After this time without a call to vCenter the work after the initialization is complete. It is longer than the
/// simulator takes for a page. The second value limits the wait for that.
const QUIET: Duration = Duration::from_secs(10);
const QUIET_LIMIT: Duration = Duration::from_secs(180);
/// Pause between two changes, for the work after the first one.
const PAUSE: Duration = Duration::from_millis(300);
/// Maximum wait for a Node before the next change. A subject may check only every few minutes.
const PACE: Duration = Duration::from_secs(1);
/// Maximum duration of the changes of one kind.
const BUDGET: Duration = Duration::from_secs(420);
/// Limit of the final wait for the Nodes. It is longer than the Go program's period of five minutes.
const LAST: Duration = Duration::from_secs(330);
/// Label with the host.
const HOST_LABEL: &str = "topology.vsphere-ccm.dev/esxi-host";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Ip,
    Host,
    Power,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Self::Ip => "an address",
            Self::Host => "the host",
            Self::Power => "power off, not ready",
        }
    }
}

/// A change that was made.
struct Made {
    at: Instant,
    /// Text that the Node has to show.
    wanted: String,
    /// Time at which the bare client received the change.
    told: Option<Instant>,
    /// Time at which the Node showed the change.
    shown: Option<Instant>,
}

struct World {
    subject: Subject,
    size: usize,
    // Dropped before the servers, so that the watchers do not see the end of the servers.
    bare: Bare,
    nodes: Nodes,
    _running: Running,
    cluster: Cluster,
}

/// Measures the latencies for each subject.
pub async fn measure(bench: &mut Bench) {
    let changes = changes();
    for subject in bench.subjects() {
        for size in bench.sizes(&SIZES) {
            bench.attempt("latency", &subject, async |bench| measure_one(bench, &subject, size, changes).await).await;
        }
    }
}

async fn measure_one(bench: &mut Bench, subject: &Subject, size: usize, changes: usize) {
    let mut world = World::new(&bench.ours, subject.clone(), size).await;
    for kind in [Change::Ip, Change::Host, Change::Power] {
        // Only this daemon has labels for the place of a machine.
        if kind == Change::Host && !world.is_ours() {
            let nothing = world.row(kind, "to the Node", "s", Vec::new(), None);
            bench.unmeasured(nothing, "it is given no label that tells the host");
            continue;
        }
        let made = world.run(kind, changes).await;
        world.report(bench, kind, &made);
    }
}

fn changes() -> usize {
    let Some(text) = std::env::var("LATENCY_CHANGES").ok().filter(|text| !text.is_empty()) else { return CHANGES };
    match text.parse() {
        Ok(changes @ 1..) => changes,
        _ => panic!("LATENCY_CHANGES is {text:?}; a number of changes is expected"),
    }
}

impl World {
    /// Creates a world in which all nodes are initialized and watched.
    async fn new(ours: &Subject, subject: Subject, size: usize) -> Self {
        let cluster = Cluster::new(ApiServer::start().await, Kind::Simulator, size).await;
        cluster.register_initialized(size, ours, &subject).await;
        let flags: &[&str] = if subject.name == "ours" { &["--topology-labels=esxi-host"] } else { &[] };
        let mut running = subject.start_with(&cluster.config, &cluster.server.kubeconfig(), flags);
        running.until_leading(&cluster.client).await;
        cluster.until_initialized(size).await;
        // After each change of a view the simulator sends all objects again, in pages.
        until_quiet(&*cluster.vcenter, QUIET, QUIET_LIMIT).await;
        let nodes = Nodes::follow(&cluster.client).await;
        let bare = Bare::follow(cluster.vcenter.simulator().unwrap()).await;
        Self { subject, size, bare, nodes, _running: running, cluster }
    }

    fn is_ours(&self) -> bool {
        self.subject.name == "ours"
    }

    /// Makes changes one by one, each of the next machine, and records when they are observed.
    async fn run(&mut self, kind: Change, count: usize) -> Vec<Made> {
        let begun = Instant::now();
        let mut all: Vec<Made> = Vec::new();
        // Index of the last change of each machine.
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for index in 0..count {
            if begun.elapsed() > BUDGET {
                break;
            }
            let number = index % self.size + 1;
            if let Some(before) = last.get(&number).copied() {
                // An overwritten change would never be shown.
                self.watch(&mut all, &last, Instant::now() + LAST, |all| all[before].shown.is_some()).await;
                if all[before].shown.is_none() {
                    break;
                }
            }
            self.prepare(kind, number).await;
            // The pause varies, so that no timer of the subject runs in step with it.
            let pause = PAUSE + Duration::from_millis(index as u64 * 37 % 100);
            self.watch(&mut all, &last, Instant::now() + pause, |_| false).await;
            let wanted = self.wanted(kind, index);
            all.push(Made { at: Instant::now(), wanted, told: None, shown: None });
            last.insert(number, index);
            self.make(kind, number, &all[index].wanted).await;
            let end = Instant::now() + LIMIT;
            self.watch(&mut all, &last, end, |all| {
                let made = &all[index];
                made.told.is_some() && (made.shown.is_some() || made.at.elapsed() > PACE)
            })
            .await;
            assert!(all[index].told.is_some(), "the bare client was not told of a change within {LIMIT:?}");
        }
        self.watch(&mut all, &last, Instant::now() + LAST, |all| all.iter().all(|made| made.shown.is_some())).await;
        all
    }

    /// Records observations until the given time, or until they are sufficient.
    async fn watch(
        &mut self,
        all: &mut [Made],
        last: &BTreeMap<usize, usize>,
        until: Instant,
        is_enough: impl Fn(&[Made]) -> bool,
    ) {
        // The wait is limited, because `is_enough` may depend on the time.
        while !is_enough(all) && Instant::now() < until {
            let look = until.min(Instant::now() + PAUSE);
            let seen = timeout_at(look, async {
                tokio::select! {
                    told = self.bare.next() => (told, None),
                    node = self.nodes.next() => (0, Some(node)),
                }
            });
            let Ok((told, node)) = seen.await else { continue };
            let at = Instant::now();
            let number = node.as_ref().map_or(told, |node| node.number);
            let Some(made) = last.get(&number).map(|index| &mut all[*index]) else { continue };
            match node {
                None => made.told = made.told.or(Some(at)),
                Some(node) if node.shows(&made.wanted) => made.shown = made.shown.or(Some(node.at)),
                Some(_) => {}
            }
        }
    }

    fn wanted(&self, kind: Change, index: usize) -> String {
        match kind {
            Change::Ip => address(97, index + 1),
            // A different host than the current one, also in the second round.
            Change::Host => HOSTS[(index % self.size + 1 + 1 + index / self.size) % HOSTS.len()].to_owned(),
            Change::Power => nodes::SHUT_DOWN.to_owned(),
        }
    }

    async fn make(&self, kind: Change, number: usize, wanted: &str) {
        let (vcenter, name) = (&self.cluster.vcenter, name(number));
        match kind {
            Change::Ip => vcenter.set_ip(&name, wanted).await,
            Change::Host => vcenter.migrate_vm(&name, wanted).await,
            Change::Power => vcenter.set_power(&name, false).await,
        }
    }

    /// Makes the node of a machine that will be switched off not ready. In a second round the machine is switched on
    /// and the node becomes ready before that.
    async fn prepare(&mut self, kind: Change, number: usize) {
        if kind != Change::Power {
            return;
        }
        if self.nodes.is_shut_down(number) {
            self.cluster.vcenter.set_power(&name(number), true).await;
            self.set_ready(number, "True").await;
            eventually("the taint is gone", LIMIT, async || {
                self.nodes.drain();
                if self.nodes.is_shut_down(number) { Err("it is there") } else { Ok(()) }
            })
            .await;
        }
        self.set_ready(number, "Unknown").await;
    }

    async fn set_ready(&self, number: usize, status: &str) {
        let nodes = Api::all(self.cluster.client.clone());
        support::nodes::set_ready(&nodes, &name(number), status, "").await.unwrap();
    }

    fn row(&self, kind: Change, what: &str, unit: &'static str, samples: Vec<f64>, limit: Option<Limit>) -> Measure {
        let name = format!("{}, {} nodes: {what}", kind.name(), self.size);
        Measure { chapter: "latency", subject: self.subject.name, name, unit, samples, limit }
    }

    fn report(&self, bench: &mut Bench, kind: Change, made: &[Made]) {
        let seconds = |from: Instant, to: Instant| {
            to.checked_duration_since(from).map_or_else(|| -(from - to).as_secs_f64(), |time| time.as_secs_f64())
        };
        let to_node: Vec<f64> = made.iter().filter_map(|made| Some(seconds(made.at, made.shown?))).collect();
        let to_bare: Vec<f64> = made.iter().filter_map(|made| Some(seconds(made.at, made.told?))).collect();
        let without: Vec<f64> = made.iter().filter_map(|made| Some(seconds(made.told?, made.shown?))).collect();
        let is_small = self.size <= SMALL;
        let promised = |is_promised: bool| is_promised.then_some(Limit::Below(P99));
        let rows = [
            ("to the Node", to_node, promised(is_small)),
            ("to a bare client", to_bare, None),
            ("to the Node, without what a bare client waits", without, promised(!is_small)),
        ];
        let row = |what: &str, unit, samples, limit| self.row(kind, what, unit, samples, limit);
        for (what, samples, limit) in rows {
            let p99 = percentile(&samples, 0.99);
            let (all, last) = (row(what, "s", samples, None), format!("{what}, p99"));
            match p99 {
                Some(p99) => {
                    bench.report(all);
                    bench.report(row(&last, "s", vec![p99], limit));
                }
                None => {
                    let why = format!("not within {} s: the Node shows any of {} changes", LAST.as_secs(), made.len());
                    bench.unmeasured(all, &why);
                }
            }
        }
        let unseen = made.iter().filter(|made| made.shown.is_none()).count();
        if unseen > 0 || made.is_empty() {
            let what = format!("not shown within {} s", LAST.as_secs());
            bench.report(row(&what, "changes", vec![unseen as f64], Some(Limit::Below(0.5))));
        }
    }
}

/// Returns the smallest sample that is not exceeded by this share of the samples, or `None` without samples.
fn percentile(samples: &[f64], share: f64) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(index.saturating_sub(1)).copied()
}
