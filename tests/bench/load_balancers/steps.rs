//! The changes of the Services and their nodes, step by step, with the cost of each.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use support::eventually;
use support::fake_nsx::FakeNsx;
use tokio::time::sleep_until;

use super::services::{self, Watched};
use super::world::{Moment, Process, World};
use super::{CHAPTER, seconds_of};
use crate::Bench;
use crate::cluster::LIMIT;
use crate::machines::name;
use crate::steady::window;

/// Calls for each created Service, without inventories, and additional calls in total. Two of the calls read the
/// realized state of written objects, and each attempt to create reads the usage of the load balancer service.
const CREATION: f64 = 9.0;
const ONCE: f64 = 20.0;
/// Calls for each deleted Service, without inventories. Three of them read the realized state of deleted objects.
const DELETION: f64 = 12.0;
/// Limit in percent of one core while nothing changes.
const CPU: f64 = 0.3;
/// Limits in seconds until a pending write, and until all pools are correct.
const WRITE: f64 = 5.0;
const POOLS: f64 = 5.0;
/// Maximum number of pools in one request, and maximum size of the request.
const BATCH: usize = 50;
const BATCH_BYTES: usize = 512 << 10;
/// Number of nodes that leave, and the period in which they leave.
const LEAVING: usize = 20;
const LEAVING_WITHIN: Duration = Duration::from_secs(10);
/// Factor for several nodes, relative to the calls for one node.
const OF_SEVERAL: f64 = 6.0;
/// Pause between the last change and a window, for the remaining work.
const SETTLE: Duration = Duration::from_secs(30);
/// First node port of the Services with a change.
const NODE_PORT: usize = 30_001;
/// Maximum number of attempts to change a Service that the ending process has not observed yet.
const TRIES: usize = 5;

impl World {
    /// Measures the creation of all Services at once.
    pub async fn measure_creation(&self, bench: &mut Bench) {
        let count = self.size.services;
        let mut watched = Watched::start(&self.cluster.client).await;
        self.nsx.reset_counts();
        let began = Moment::now();
        let (created, ()) = tokio::join!(
            async {
                self.create(1..=count).await;
                began.until(Instant::now())
            },
            self.until_served(&mut watched, count)
        );
        println!("  {count} Services were created within {created:.1} s");
        let times = watched.times();
        let seconds = began.until(times.last().copied().unwrap());
        let calls = self.calls();
        self.print_calls("all Services at once");
        let most = CREATION * count as f64 + self.size.pages_within(seconds) + ONCE;
        self.report(bench, "all Services at once: NSX calls", "calls", calls, Some(most + 0.01));
        let limit = seconds_of(calls, 5.0);
        self.report(bench, "all Services at once: to the last address", "s", seconds, Some(limit));
        let refused = self.nsx.counts().answered(429);
        self.report(bench, "all Services at once: calls refused for their rate", "calls", refused.into(), None);
        let share = |index: usize| (index + 1) as f64 * 100.0 / count as f64;
        let points = times.iter().enumerate().map(|(index, at)| [began.until(*at), share(index)]).collect();
        let axes = ["time since the first Service (s)", "Services with an address (%)"];
        bench.curve(CHAPTER, self.subject.name, &format!("{}, 10 ms a call", self.size.name()), axes, points);
        self.until_quiet().await;
        self.print_calls("all Services at once, afterwards");
    }

    /// Measures a window without changes.
    pub async fn measure_quiet(&self, bench: &mut Bench, process: &Process) {
        self.until_quiet().await;
        sleep_until(tokio::time::Instant::now() + SETTLE).await;
        let window = window();
        let place = self.place();
        self.nsx.reset_counts();
        let (began, before) = (Instant::now(), process.running.usage());
        sleep_until(tokio::time::Instant::now() + window).await;
        let (took, after) = (began.elapsed().as_secs_f64(), process.running.usage());
        let counts = self.nsx.counts();
        let writes = self.api_writes(place, &[process.user()]);
        println!("  nothing changes for {window:?}: {:?}", counts.operations);
        writes.iter().for_each(|event| println!("  {} {}", event.verb, event.uri));
        let what = |what: &str| format!("{} s without a change: {what}", window.as_secs());
        self.report(bench, &what("NSX calls"), "calls", counts.total().into(), Some(0.5));
        self.report(bench, &what("API writes but the Lease's"), "writes", writes.len() as f64, Some(0.5));
        let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
        self.report(bench, &what("CPU"), "% of a core", cpu / took * 100.0, Some(CPU));
    }

    /// Measures the end of the leader with a waiting standby.
    pub async fn measure_take_over(&self, bench: &mut Bench, mut first: Process) -> Process {
        let second = self.start(1, &[]).await;
        self.until_quiet().await;
        let (seen, place) = (self.nsx.versions(), self.place());
        self.nsx.reset_counts();
        first.running.daemon.stop(LIMIT).await;
        self.report_nothing_written(bench, "a take-over", (seen, place), &[&first, &second]).await;
        second
    }

    /// Measures a restart of the only process.
    pub async fn measure_restart(&self, bench: &mut Bench, mut before: Process) -> Process {
        before.running.daemon.stop(LIMIT).await;
        self.until_quiet().await;
        let (seen, place) = (self.nsx.versions(), self.place());
        self.nsx.reset_counts();
        let process = self.start(2, &[]).await;
        self.report_nothing_written(bench, "a restart", (seen, place), &[&before, &process]).await;
        process
    }

    async fn report_nothing_written(
        &self,
        bench: &mut Bench,
        what: &str,
        (seen, place): (usize, u64),
        processes: &[&Process],
    ) {
        self.until_called().await;
        self.until_quiet().await;
        self.print_calls(what);
        let users: Vec<&str> = processes.iter().map(|process| process.user()).collect();
        let (nsx, services) = (self.nsx_writes(seen), self.service_writes(place, &users));
        nsx.iter().for_each(|version| println!("  written to NSX: {} by {}", version.path, version.user));
        services.iter().for_each(|event| println!("  written to a Service: {} {}", event.verb, event.uri));
        self.report(bench, &format!("{what}: writes to NSX"), "writes", nsx.len() as f64, Some(0.5));
        self.report(bench, &format!("{what}: writes to Services"), "writes", services.len() as f64, Some(0.5));
        let reads = self.calls() - nsx.len() as f64;
        let most = Some(self.size.pages() as f64 + 0.01);
        self.report(bench, &format!("{what}: reads of NSX"), "calls", reads, most);
    }

    /// Measures the end of the leader during a change of a Service. The next leader writes that change.
    pub async fn measure_waiting_write(&self, bench: &mut Bench, first: Process) -> Process {
        let mut leader = first;
        for attempt in 0..TRIES {
            let number = if leader.number == 2 { 3 } else { 2 };
            let next = self.start(number, &[]).await;
            self.until_quiet().await;
            let seen = self.nsx.versions();
            let told = Moment::now();
            leader.running.daemon.signal("TERM").await;
            let service = attempt % self.size.services + 1;
            services::change_node_port(&self.cluster.client, service, NODE_PORT + attempt).await;
            let wrote = eventually("the change of a Service is in NSX", LIMIT, async || {
                self.nsx_writes(seen).into_iter().next().ok_or("it is not")
            })
            .await;
            leader.running.daemon.wait(LIMIT).await;
            self.until_quiet().await;
            leader = next;
            if wrote.user == leader.user() {
                let seconds = told.until(wrote.at);
                self.report(bench, "SIGTERM to the first NSX write that waited", "s", seconds, Some(WRITE));
                return leader;
            }
            println!("  the process that ended has written the change, attempt {}", attempt + 1);
        }
        panic!("in {TRIES} attempts the process that ended has written the change itself");
    }

    /// Measures the departure of a node, and then of several at once. Returns the number of remaining nodes.
    pub async fn measure_leaving(&self, bench: &mut Bench) -> usize {
        let left = self.size.nodes - 1;
        let most = self.size.pool_pages() as f64 + self.batches() as f64;
        self.measure_departure(bench, "a node leaves", (left, 1), Some(most), Some(POOLS)).await;
        // Two nodes stay.
        let several = LEAVING.min(left - 2);
        let what = format!("{several} nodes leave within {} s", LEAVING_WITHIN.as_secs());
        let left = left - several;
        self.measure_departure(bench, &what, (left, several), Some(OF_SEVERAL * most), Some(POOLS)).await;
        left
    }

    /// Measures the departure of one more node with a process that writes pools one by one.
    pub async fn measure_without_batches(&self, bench: &mut Bench, mut before: Process, left: usize) -> Process {
        before.running.daemon.stop(LIMIT).await;
        self.nsx.reset_counts();
        let process = self.start_leading(4, &["--nsx-batch-updates=false"]).await;
        self.until_called().await;
        self.until_quiet().await;
        let limit = seconds_of(self.size.services as f64, 5.0);
        self.measure_departure(bench, "a node leaves, without batches", (left - 1, 1), None, Some(limit)).await;
        process
    }

    async fn measure_departure(
        &self,
        bench: &mut Bench,
        what: &str,
        (left, count): (usize, usize),
        calls: Option<f64>,
        seconds: Option<f64>,
    ) {
        self.until_quiet().await;
        let nodes = Api::<Node>::all(self.cluster.client.clone());
        let seen = self.nsx.versions();
        self.nsx.reset_counts();
        let began = tokio::time::Instant::now();
        let mut last = Moment::now();
        for departed in 0..count {
            sleep_until(began + LEAVING_WITHIN * departed as u32 / count as u32).await;
            last = Moment::now();
            let number = left + count - departed;
            nodes.delete(&name(number), &DeleteParams::default()).await.unwrap();
        }
        self.until_called().await;
        let at = self.until_pools_have(left, seen).await;
        self.print_calls(what);
        let most = calls.map(|calls| calls + 0.01);
        self.report(bench, &format!("{what}: NSX calls"), "calls", self.calls(), most);
        self.report(bench, &format!("{what}: all pools right"), "s", last.until(at), seconds);
    }

    /// Returns the minimum number of requests for all pools.
    fn batches(&self) -> usize {
        let bytes = |pool: &serde_json::Value| serde_json::to_vec(pool).map_or(0, |text| text.len());
        let largest = self.nsx.objects_below("/infra/lb-pools").iter().map(bytes).max().unwrap_or(1);
        self.size.services.div_ceil(BATCH.min((BATCH_BYTES / largest).max(1)))
    }

    /// Measures the deletion of all Services at once.
    pub async fn measure_deletion(&self, bench: &mut Bench) {
        let count = self.size.services;
        self.until_quiet().await;
        let mut watched = Watched::start(&self.cluster.client).await;
        assert_eq!(watched.addresses().len(), count);
        self.nsx.reset_counts();
        let began = Moment::now();
        let (asked, ()) = tokio::join!(
            async {
                services::delete(&self.cluster.client, 1..=count).await;
                began.until(Instant::now())
            },
            watched.until_gone(self.patience())
        );
        println!("  {count} Services were deleted within {asked:.1} s");
        let (seconds, calls) = (began.until(Instant::now()), self.calls());
        self.print_calls("all Services deleted");
        print_inventories(&self.nsx);
        let most = DELETION * count as f64 + self.size.pages_within(seconds);
        self.report(bench, "all Services deleted: NSX calls", "calls", calls, Some(most + 0.01));
        let limit = seconds_of(calls, 30.0);
        self.report(bench, "all Services deleted: to the last one", "s", seconds, Some(limit));
        self.report(bench, "all Services deleted: objects left", "objects", self.left() as f64, Some(0.5));
    }
}

/// Prints the start times of inventories.
fn print_inventories(nsx: &FakeNsx) {
    let requests = nsx.requests();
    let Some(first) = requests.first() else { return };
    let begun = requests.iter().filter(|request| request.operation == "LIST lb-services");
    let begun: Vec<String> = begun.map(|request| format!("{:.1}", (request.at - first.at).as_secs_f64())).collect();
    println!("  inventories began after {} s", begun.join(", "));
}
