//! The cost of a daemon while nothing changes, and while 1 % of the machines get another address each minute, with 100
//! and with 1,000 initialized Nodes of real size.
//!
//! There are no kubelets, so that only the subject writes to the Nodes. A window is seven minutes, because both
//! programs have periods of five minutes. For trials `STEADY_SECONDS` makes it shorter.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use support::process::Usage;
use support::report::{Limit, Measure};
use support::{ApiServer, AuditEvent, Counts};
use tokio::time::{Instant, sleep_until};

use crate::Bench;
use crate::cluster::Cluster;
use crate::machines::{Kind, address, name, until_quiet};
use crate::subject::{Running, Subject};

const SIZES: [usize; 2] = [100, 1_000];
/// Duration of a window. It is longer than the longest period of the programs, five minutes.
const WINDOW: Duration = Duration::from_secs(420);
/// Pause from the last node to the first window, for the work after an initialization.
const SETTLE: Duration = Duration::from_secs(30);
/// Time without a call to vCenter before that pause, and the limit of the wait for it.
const QUIET: Duration = Duration::from_secs(2);
const QUIET_LIMIT: Duration = Duration::from_secs(120);
/// One of this many machines changes each minute.
const CHANGING: usize = 100;
/// Limit for calls to vCenter in a minute.
const CALLS: f64 = 20.0;
/// Limit in percent of one core.
const CPU: f64 = 0.3;
const LEASE: &str = "cloud-controller-manager";

/// Kind of a window.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Nothing,
    Changes,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing changes",
            Self::Changes => "1 % a minute change",
        }
    }
}

struct World {
    subject: Subject,
    nodes: usize,
    cluster: Cluster,
    user: String,
    running: Running,
}

/// All counts up to a moment. The counts of vCenter start at the start of the window.
struct Totals {
    at: Instant,
    asked: Counts,
    usage: Usage,
    /// Position in the API server's audit log.
    place: u64,
}

/// Measures the sizes concurrently. The results are sums for one process each, so they do not influence each other.
pub async fn measure(bench: &mut Bench) {
    let window = window();
    for subject in bench.subjects() {
        bench.attempt("steady", &subject, async |bench| measure_one(bench, &subject, window).await).await;
    }
}

async fn measure_one(bench: &mut Bench, subject: &Subject, window: Duration) {
    let kind = bench.vcenter();
    let sizes = bench.sizes(&SIZES);
    let worlds = sizes.into_iter().map(|nodes| World::new(&bench.ours, subject.clone(), kind, nodes));
    let worlds = join_all(worlds).await;
    sleep_until(Instant::now() + SETTLE).await;
    for part in [Part::Nothing, Part::Changes] {
        for measure in join_all(worlds.iter().map(|world| world.look(part, window))).await.into_iter().flatten() {
            bench.report(measure);
        }
    }
}

/// Returns the duration of a window.
pub fn window() -> Duration {
    let Some(text) = std::env::var("STEADY_SECONDS").ok().filter(|text| !text.is_empty()) else { return WINDOW };
    match text.parse() {
        Ok(seconds @ 1..) => Duration::from_secs(seconds),
        _ => panic!("STEADY_SECONDS is {text:?}; a number of seconds is expected"),
    }
}

impl World {
    /// Creates a world in which all nodes are initialized. If the subject is this daemon, the measured process has
    /// initialized them.
    async fn new(ours: &Subject, subject: Subject, kind: Kind, nodes: usize) -> Self {
        let cluster = Cluster::new(ApiServer::audited().await, kind, nodes).await;
        cluster.register_initialized(nodes, ours, &subject).await;
        let user = "measured".to_owned();
        let mut running = cluster.start(&subject, &cluster.server.kubeconfig_of_administrator(&user)).await;
        running.until_leading(&cluster.client).await;
        cluster.until_initialized(nodes).await;
        // A peer reads all machines after its start.
        until_quiet(&*cluster.vcenter, QUIET, QUIET_LIMIT).await;
        Self { subject, nodes, cluster, user, running }
    }

    async fn look(&self, part: Part, window: Duration) -> Vec<Measure> {
        let place = self.cluster.server.audit_from(0).1;
        self.cluster.vcenter.reset_counts().await;
        let before = self.totals(place).await;
        let end = before.at + window;
        let changes = match part {
            Part::Nothing => 0,
            // At least one change, also in a short window.
            Part::Changes => ((self.nodes as f64 / CHANGING as f64 * window.as_secs_f64() / 60.0) as u32).max(1),
        };
        for change in 0..changes {
            // Each change is in the middle of its share of the window.
            sleep_until(before.at + window * (2 * change + 1) / (2 * changes)).await;
            let number = change as usize + 1;
            self.cluster.vcenter.set_ip(&name(number), &address(98, number)).await;
        }
        sleep_until(end).await;
        let (log, place) = self.cluster.server.audit_from(before.place);
        let after = self.totals(place).await;
        // Read after the window, so that the window does not include the reads.
        let unseen = self.unseen(changes).await;
        println!(
            "  {}, {} nodes, {}: {changes} changes in {window:?}; vCenter was asked {:?}",
            self.subject.name,
            self.nodes,
            part.name(),
            after.asked.operations
        );
        let mut measures = self.measures(part, &before, &after, &log);
        if part == Part::Changes {
            let name = format!("{} nodes, {}: changes that no Node shows at the end", self.nodes, part.name());
            let (subject, samples) = (self.subject.name, vec![unseen as f64]);
            measures.push(Measure { chapter: "steady", subject, name, unit: "changes", samples, limit: None });
        }
        measures
    }

    /// Counts the changed machines whose Nodes have not changed. A subject with rare checks also writes nothing.
    async fn unseen(&self, changes: u32) -> usize {
        let nodes = Api::<Node>::all(self.cluster.client.clone());
        let mut unseen = 0;
        for number in 1..=changes as usize {
            let node = nodes.get(&format!("n-{number}")).await.unwrap();
            let mut addresses = node.status.into_iter().flat_map(|status| status.addresses.unwrap_or_default());
            unseen += usize::from(!addresses.any(|one| one.address == address(98, number)));
        }
        unseen
    }

    async fn totals(&self, place: u64) -> Totals {
        let asked = self.cluster.vcenter.counts().await;
        Totals { at: Instant::now(), asked, usage: self.running.usage(), place }
    }

    fn measures(&self, part: Part, before: &Totals, after: &Totals, log: &[AuditEvent]) -> Vec<Measure> {
        let promised = |is_promised: bool, limit: f64| is_promised.then_some(Limit::Below(limit));
        let is_quiet = part == Part::Nothing;
        let seconds = after.at.duration_since(before.at).as_secs_f64();
        let a_minute = |count: f64| count * 60.0 / seconds;
        let kilobytes = |bytes: u64| a_minute(bytes as f64 / 1e3);
        let mebibytes = |kilobytes: u64| kilobytes as f64 / 1024.0;
        let cpu = after.usage.cpu.saturating_sub(before.usage.cpu).as_secs_f64();
        let [start, end] = [&before.usage, &after.usage].map(|usage| mebibytes(usage.resident));
        let own = || log.iter().filter(|event| event.user.username == self.user);
        let writes: Vec<_> = own().filter(|event| event.is_write()).collect();
        let is_lease = |event: &&&AuditEvent| event.object_ref.resource == "leases" && event.object_ref.name == LEASE;
        let renewals = writes.iter().filter(is_lease).count();
        let others = writes.len() - renewals;
        let reads = own().count() - writes.len();
        // One more call misses the limit. A limit is always an exclusive bound.
        let most_calls = promised(is_quiet, CALLS + 0.01);
        let mut rows = vec![
            ("vCenter calls".to_owned(), "a minute", a_minute(f64::from(after.asked.total)), most_calls),
            ("bytes to vCenter".to_owned(), "kB a minute", kilobytes(after.asked.bytes_received), None),
            ("bytes from vCenter".to_owned(), "kB a minute", kilobytes(after.asked.bytes_sent), None),
            ("CPU time".to_owned(), "s", cpu, None),
            ("CPU".to_owned(), "% of a core", cpu / seconds * 100.0, promised(self.nodes == 1_000, CPU)),
            ("memory at the start".to_owned(), "MiB", start, None),
            ("memory at the end".to_owned(), "MiB", end, None),
            ("growth of memory".to_owned(), "MiB", end - start, None),
            ("writes but the Lease's".to_owned(), "API requests", others as f64, promised(is_quiet, 0.5)),
            ("writes of the Lease".to_owned(), "a minute", a_minute(renewals as f64), None),
            ("reads and watches that ended".to_owned(), "API requests", reads as f64, None),
        ];
        let operations = after.asked.operations.iter();
        rows.extend(
            operations
                .map(|(name, count)| (format!("vCenter calls: {name}"), "a minute", a_minute(f64::from(*count)), None)),
        );
        let row = |(what, unit, sample, limit): (String, &'static str, f64, Option<Limit>)| {
            let name = format!("{} nodes, {}: {what}", self.nodes, part.name());
            Measure { chapter: "steady", subject: self.subject.name, name, unit, samples: vec![sample], limit }
        };
        rows.into_iter().map(row).collect()
    }
}
