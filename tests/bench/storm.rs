//! The join storm: many uninitialized nodes at once, observed by a watch on the API server.
//!
//! Each number of nodes has one API server and one vCenter, for all subjects and the floor. There are two ways. Either
//! the nodes are registered before the subject starts, and the time begins at the start of its process. Or they are
//! registered while it leads, and the time begins at the first registration. Between two cases all nodes and the Lease
//! are deleted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use support::measure::initialization::Initialized;
use support::measure::kubelet;
use support::measure::steady_state::settled;
use support::measure::writes::Writes;
use support::process::Usage;
use support::report::{Limit, Measure, OURS};
use support::{ApiServer, Counts};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::floor;
use crate::machines::Kind;
use crate::subject::{Running, Subject};

/// Additional latencies of calls to vCenter, in milliseconds. The promise is about the first one, so it is measured
/// right after the floor.
pub const DELAYS: [u64; 3] = [10, 0, 30];
/// Promise about the time: with this many nodes and this delay, at most this multiple of the floor and some seconds.
const PROMISED: (usize, u64) = (1_000, 10);
const FLOORS: f64 = 2.0;
const SECONDS: f64 = 3.0;
/// Promise about calls to vCenter: for each node, and in addition.
const CALLS_PER_NODE: usize = 2;
const CALLS: usize = 40;
/// Promise about memory in MiB for this many nodes: resident memory at the end, and its peak.
const MEMORY: (usize, f64, f64) = (5_000, 70.0, 75.0);
/// Limit of the initialization: this time, and an additional time for each node. After that the case ends with the
/// initialized nodes.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_PER_NODE: Duration = Duration::from_millis(60);
/// Factor of the limit for a peer, because a ratio is a better result than a timeout.
const PEER_TIMES: u32 = 5;
/// The storm is over after this time without a call to vCenter and without an Event. The second value limits the wait
/// for that.
const QUIET: Duration = Duration::from_millis(2_500);
const QUIET_LIMIT: Duration = Duration::from_secs(60);
/// Operations with fewer calls are reported together.
const FEW: u32 = 10;

/// Order of the registration and the start of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Nodes,
    Daemon,
}

impl Way {
    /// Returns the text for the names of measures.
    pub fn text(self) -> &'static str {
        match self {
            Self::Nodes => "nodes registered before the start",
            Self::Daemon => "nodes registered while it runs",
        }
    }
}

/// Results of a storm.
struct Storm {
    /// Times of the initializations, sorted.
    times: Vec<Duration>,
    at_once: Usage,
    afterwards: Usage,
    /// CPU seconds by program.
    cpu: Vec<(&'static str, f64)>,
    asked: Counts,
    writes: BTreeMap<String, u64>,
}

/// Measures with this many nodes. A peer is measured only with the simulator.
pub async fn measure(bench: &mut Bench, chapter: &'static str, nodes: usize, kind: Kind) {
    let cluster = Cluster::new(ApiServer::start().await, kind, nodes).await;
    let subjects: Vec<_> =
        bench.subjects().into_iter().filter(|subject| kind == Kind::Simulator || subject.name == OURS).collect();
    for way in [Way::Nodes, Way::Daemon] {
        let floor = floor::measure(bench, &cluster, chapter, way, nodes).await;
        for delay in DELAYS {
            cluster.vcenter.delay_calls(Duration::from_millis(delay)).await;
            for subject in &subjects {
                let case = Case { chapter, subject, way, delay, nodes };
                let work = async |bench: &mut Bench| case.report(bench, &case.run(&cluster).await, floor);
                bench.attempt(chapter, subject, work).await;
                cluster.clear().await;
            }
        }
    }
}

/// Waits until there are no calls to vCenter except long waits, and no new Events.
async fn until_quiet(cluster: &Cluster) {
    let events = Api::<Event>::all(cluster.client.clone());
    let is_quiet = settled(QUIET, QUIET_LIMIT, async || {
        let list = events.list_metadata(&ListParams::default().limit(1)).await.unwrap();
        let count = list.items.len() as u64 + u64::try_from(list.metadata.remaining_item_count.unwrap_or(0)).unwrap();
        count + u64::from(cluster.vcenter.counts().await.total)
    });
    if !is_quiet.await {
        println!("  there are still calls or Events after {QUIET_LIMIT:?}");
    }
}

/// Returns the CPU seconds so far by program, always in the same order. A daemon that has not started has zero.
fn cpu(cluster: &Cluster, running: Option<&Running>) -> Vec<(&'static str, f64)> {
    let daemon = running.map(Running::usage_or_nothing).unwrap_or_default();
    let programs = cluster.server.usage().into_iter().map(|(name, usage)| (name, usage.cpu));
    let programs = programs.chain([("vCenter", cluster.vcenter.usage().unwrap().cpu), ("daemon", daemon.cpu)]);
    programs.map(|(name, cpu)| (name, cpu.as_secs_f64())).collect()
}

struct Case<'a> {
    chapter: &'static str,
    subject: &'a Subject,
    way: Way,
    delay: u64,
    nodes: usize,
}

impl Case<'_> {
    /// Measures from the registration, or the start of the process, to the end of the process.
    async fn run(&self, cluster: &Cluster) -> Storm {
        let Self { subject, way, nodes, .. } = *self;
        let running = match way {
            Way::Nodes => {
                cluster.register(nodes).await;
                None
            }
            Way::Daemon => {
                let mut running = cluster.start(subject, &cluster.server.kubeconfig()).await;
                running.until_leading(&cluster.client).await;
                until_quiet(cluster).await;
                Some(running)
            }
        };
        let mut initialized = Initialized::from_now(&cluster.client).await.unwrap();
        let writes = Writes::of(&cluster.client).await.unwrap();
        cluster.vcenter.reset_counts().await;
        let before = cpu(cluster, running.as_ref());

        let begun = Instant::now();
        let mut registering = None;
        let (mut running, writes) = match running {
            None => (subject.start(&cluster.config, &cluster.server.kubeconfig()), writes),
            Some(running) => {
                let client = cluster.client.clone();
                let registration = async move { kubelet::register(&client, nodes).await.unwrap() };
                registering = Some(tokio::spawn(registration));
                (running, writes.with_kubelets(nodes))
            }
        };
        let patience = self.patience();
        let end = tokio::select! {
            end = tokio::time::timeout(patience, initialized.follow(nodes)) => end.unwrap_or(Err("it takes too long".to_owned())),
            status = running.daemon.wait(patience + LIMIT) => Err(format!("it ended with {status}")),
        };
        let times = initialized.times(begun);
        if let Some(registering) = registering {
            // Otherwise a node of this case could be registered after its end.
            registering.abort();
            let _ = registering.await;
        }
        if let Err(reason) = end {
            let lines = running.daemon.output().tail(5);
            println!(
                "  {} of {nodes} nodes are initialized ({reason}); the last lines of {}:\n{lines}",
                times.len(),
                subject.name
            );
        }
        let at_once = running.usage_or_nothing();
        // A subject that has not initialized all nodes will not be quiet soon.
        if times.len() == nodes {
            until_quiet(cluster).await;
        }
        let after = cpu(cluster, Some(&running));
        let cpu = after.into_iter().zip(before).map(|((name, after), (_, before))| (name, after - before)).collect();
        let writes = Writes::of(&cluster.client).await.unwrap().since(&writes);
        let (afterwards, asked) = (running.usage_or_nothing(), cluster.vcenter.counts().await);
        running.daemon.stop(LIMIT).await;
        Storm { times, at_once, afterwards, cpu, asked, writes }
    }

    fn report(&self, bench: &mut Bench, storm: &Storm, floor: Duration) {
        let done = storm.times.len();
        self.tell(bench, "nodes initialized", "nodes", done as f64, Some(Limit::Above(self.nodes as f64 - 1.0)));
        for (what, index) in marks(self.nodes) {
            match storm.times.get(index) {
                Some(time) => self.report_time(bench, what, time.as_secs_f64(), floor.as_secs_f64()),
                None => {
                    let why = format!("{done} of {} nodes were initialized within {:?}", self.nodes, self.patience());
                    bench.unmeasured(self.row(what, "s", Vec::new(), None), &why);
                }
            }
        }
        self.report_calls(bench, &storm.asked);
        for (write, count) in &storm.writes {
            self.tell(bench, &format!("API {write}"), "writes", *count as f64, None);
        }
        let mib = |kilobytes: u64| kilobytes as f64 / 1024.0;
        let (many, resident, peak) = MEMORY;
        let below = |limit: f64| Some(Limit::Below(limit)).filter(|_| self.nodes == many);
        for (what, kilobytes, limit) in [
            ("resident when all were initialized", storm.at_once.resident, None),
            ("resident afterwards", storm.afterwards.resident, below(resident)),
            ("resident afterwards, of it heap and stacks", storm.afterwards.anonymous, None),
            ("peak", storm.afterwards.peak, below(peak)),
        ] {
            self.tell(bench, what, "MiB", mib(kilobytes), limit);
        }
        for (program, seconds) in &storm.cpu {
            self.tell(bench, &format!("CPU of {program}"), "s", *seconds, None);
        }
        let share = |index: usize| (index + 1) as f64 * 100.0 / self.nodes as f64;
        let points = storm.times.iter().enumerate().map(|(index, time)| [time.as_secs_f64(), share(index)]).collect();
        bench.curve(self.chapter, self.subject.name, &self.name(), AXES, points);
    }

    fn report_time(&self, bench: &mut Bench, what: &'static str, time: f64, floor: f64) {
        let is_last = what == LAST;
        let is_promised = is_last && (self.nodes, self.delay) == PROMISED;
        let limit = Some(Limit::Below(FLOORS * floor + SECONDS)).filter(|_| is_promised);
        self.tell(bench, what, "s", time, limit);
        if is_last {
            self.tell(bench, "last ÷ floor", "floors", time / floor, None);
        }
    }

    fn report_calls(&self, bench: &mut Bench, asked: &Counts) {
        let limit = Limit::Below((CALLS_PER_NODE * self.nodes + CALLS + 1) as f64);
        // The simulator sends all objects again, in pages, after every change of a ListView. Real servers do not do
        // that.
        self.tell(bench, "vCenter calls", "calls", f64::from(asked.total - asked.truncated), Some(limit));
        if asked.truncated > 0 {
            self.tell(bench, "vCenter calls for further pages", "calls", f64::from(asked.truncated), None);
        }
        let (many, few): (Vec<_>, Vec<_>) = asked.operations.iter().partition(|(_, count)| **count >= FEW);
        for (operation, count) in many {
            self.tell(bench, &format!("vCenter {operation}"), "calls", f64::from(*count), None);
        }
        let few = few.into_iter().map(|(_, count)| count).sum::<u32>();
        self.tell(bench, &format!("vCenter operations of less than {FEW} calls"), "calls", f64::from(few), None);
        self.tell(bench, "bytes to vCenter", "kB", asked.bytes_received as f64 / 1e3, None);
        self.tell(bench, "bytes from vCenter", "kB", asked.bytes_sent as f64 / 1e3, None);
    }

    fn tell(&self, bench: &mut Bench, what: &str, unit: &'static str, sample: f64, limit: Option<Limit>) {
        bench.report(self.row(what, unit, vec![sample], limit));
    }

    /// Returns a measure. Limits apply to this daemon only.
    fn row(&self, what: &str, unit: &'static str, samples: Vec<f64>, limit: Option<Limit>) -> Measure {
        let (subject, limit) = (self.subject.name, limit.filter(|_| self.subject.name == OURS));
        Measure { chapter: self.chapter, subject, name: format!("{}: {what}", self.name()), unit, samples, limit }
    }

    fn name(&self) -> String {
        case_name(self.way, self.delay)
    }

    fn patience(&self) -> Duration {
        let times = if self.subject.name == OURS { 1 } else { PEER_TIMES };
        patience(self.nodes) * times
    }
}

/// Returns the prefix of the names of a case's measures, which is also the name of its curve.
pub fn case_name(way: Way, delay: u64) -> String {
    format!("{}, {delay} ms a call", way.text())
}

/// Returns the time limit for the initialization of this many nodes.
pub fn patience(nodes: usize) -> Duration {
    PATIENCE + PATIENCE_PER_NODE * u32::try_from(nodes).unwrap()
}

/// Axes of the curves.
pub const AXES: [&str; 2] = ["time (s)", "nodes initialized (%)"];

const LAST: &str = "last initialized";

/// Returns the reported times for this many nodes, with the index into the sorted times.
pub fn marks(nodes: usize) -> [(&'static str, usize); 4] {
    let at = |percent: usize| (nodes * percent).div_ceil(100).max(1) - 1;
    [("first initialized", 0), ("median initialized", at(50)), ("99 % initialized", at(99)), (LAST, at(100))]
}
