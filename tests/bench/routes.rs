//! Routes of the pod network on NSX: the time and the calls to write them, and the calls afterwards. The fake NSX has
//! its rate limits enabled, and each call takes 10 ms.
//!
//! The nodes are initialized before, so that only the routes are measured. A window without changes is seven minutes;
//! for trials `STEADY_SECONDS` makes it shorter.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use support::fake_nsx::{Model, Recorded};
use support::measure::steady_state::settled;
use support::report::{Limit, Measure};
use support::{ApiServer, FakeNsx, eventually};
use tokio::time::{sleep_until, timeout};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::machines::{address, name};
use crate::steady::window;
use crate::subject::{Running, Subject};

const CHAPTER: &str = "routes";
const NODES: usize = 500;
/// Additional latency of a call.
const CALL: Duration = Duration::from_millis(10);
/// The default of `--nsx-requests-per-second`.
const RATE: f64 = 80.0;
const ROUTER: &str = "/infra/tier-1s/t1";
const LIST: &str = "LIST static-routes";
/// Number of concurrent writes of nodes.
const AT_ONCE: usize = 32;
/// After this time without a call all work is complete.
const QUIET: Duration = Duration::from_secs(5);
/// Time without a call before an address changes.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval at which this program lists all routes although no Node changes.
const FULL_PASS: Duration = Duration::from_secs(300);
/// Number of nodes that change their address, one after the other.
const CHANGES: usize = 5;
/// Additional flags of the daemon.
const FLAGS: [&str; 2] = ["--cluster-name=bench", "--cluster-cidr=10.128.0.0/12"];

struct World {
    subject: Subject,
    cluster: Cluster,
    nsx: FakeNsx,
    config: PathBuf,
    nodes: usize,
}

/// Measures routes for this daemon only. A peer has no limit for its calls.
pub async fn measure(bench: &mut Bench) {
    let subject = bench.ours.clone();
    bench.attempt(CHAPTER, &subject, async |bench| measure_one(bench, &subject).await).await;
}

async fn measure_one(bench: &mut Bench, subject: &Subject) {
    let nodes = bench.sizes(&[NODES])[0];
    let world = World::new(bench, subject.clone(), nodes).await;
    let first = world.measure_creation(bench).await;
    let second = world.measure_take_over(bench, first).await;
    let running = world.measure_restart(bench, second).await;
    world.measure_changes(bench).await;
    world.measure_quiet(bench).await;
    drop(running);
}

/// Returns the pod network of the node with this number.
fn network(number: usize) -> String {
    format!("10.{}.{}.0/24", 128 + number / 250, number % 250)
}

/// Returns a limit that permits at most this count. A limit is always an exclusive bound.
fn at_most(count: f64) -> Option<Limit> {
    Some(Limit::Below(count + 0.01))
}

impl World {
    /// Creates a world in which all nodes are initialized and have pod networks. NSX has no route.
    async fn new(bench: &Bench, subject: Subject, nodes: usize) -> Self {
        let cluster = Cluster::new(ApiServer::start().await, bench.vcenter(), nodes).await;
        let mut before = cluster.start(&subject, &cluster.server.kubeconfig()).await;
        cluster.register(nodes).await;
        cluster.until_initialized(nodes).await;
        before.daemon.stop(LIMIT).await;
        let api = Api::<Node>::all(cluster.client.clone());
        stream::iter((1..=nodes).map(Ok))
            .try_for_each_concurrent(AT_ONCE, async |number| {
                let networks = json!({"spec": {"podCIDR": network(number), "podCIDRs": [network(number)]}});
                api.patch(&name(number), &PatchParams::default(), &Patch::Merge(networks)).await.map(drop)
            })
            .await
            .unwrap();
        let nsx = FakeNsx::start(Model::small()).await;
        nsx.delay_calls(CALL);
        let folder = cluster.server.folder();
        let (config, ca_file) = (folder.join("routes.conf"), folder.join("nsx-ca.pem"));
        std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
        let text = std::fs::read_to_string(&cluster.config).unwrap();
        let sections = format!(
            "[NSXT]\nhost = \"{}\"\nuser = \"{}\"\npassword = \"{}\"\nca-file = \"{}\"\n[Route]\nrouter-path = \"{ROUTER}\"\n",
            nsx.address(),
            nsx.user(),
            nsx.password(),
            ca_file.display()
        );
        std::fs::write(&config, format!("{text}{sections}")).unwrap();
        Self { subject, cluster, nsx, config, nodes }
    }

    fn start(&self) -> Running {
        self.subject.start_with(&self.config, &self.cluster.server.kubeconfig(), &FLAGS)
    }

    fn report(&self, bench: &mut Bench, what: &str, unit: &'static str, samples: Vec<f64>, limit: Option<Limit>) {
        let (subject, name) = (self.subject.name, format!("{} nodes: {what}", self.nodes));
        bench.report(Measure { chapter: CHAPTER, subject, name, unit, samples, limit });
    }

    /// Returns the routes in NSX by network, with their next hops.
    fn routes(&self) -> BTreeMap<String, String> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let objects = self.nsx.objects_below(&format!("{ROUTER}/static-routes"));
        objects.iter().map(|route| (text(&route["network"]), text(&route["next_hops"][0]["ip_address"]))).collect()
    }

    async fn until_quiet(&self, quiet: Duration) {
        let is_quiet = settled(quiet, LIMIT, async || u64::from(self.nsx.counts().total())).await;
        assert!(is_quiet, "NSX was not without calls for {quiet:?} within {LIMIT:?}: {:?}", self.nsx.counts());
    }

    /// Measures the time from the start of a process to the last call about a route, which shows that the last route is
    /// realized.
    async fn measure_creation(&self, bench: &mut Bench) -> Running {
        let began = Instant::now();
        let running = self.start();
        eventually("all routes are in NSX", LIMIT, async || match self.routes().len() {
            count if count == self.nodes => Ok(()),
            count => Err(format!("{count} of {}\n{}", self.nodes, running.daemon.output().tail(10))),
        })
        .await;
        self.until_quiet(QUIET).await;
        let (requests, counts) = (self.nsx.requests(), self.nsx.counts());
        let calls = requests.len() as f64;
        let last = requests.iter().map(|request| request.at).max().unwrap();
        let seconds = last.saturating_duration_since(began).as_secs_f64();
        println!("  {calls} calls: {:?}; answers: {:?}", counts.operations, counts.statuses);
        let limit = Some(Limit::Below(1.3 * calls / RATE + 5.0));
        self.report(bench, "process start to the last route in effect", "s", vec![seconds], limit);
        let of_routes = requests.iter().filter(|request| is_of_a_route(request)).count();
        self.report(bench, "calls a route", "calls", vec![of_routes as f64 / self.nodes as f64], at_most(3.0));
        self.report_pages(bench, &requests);
        self.report(bench, "calls that NSX refused for their rate", "calls", vec![counts.answered(429).into()], None);
        let history = self.nsx.history().into_iter().filter(|version| version.request.is_some());
        let points = history.enumerate().map(|(index, version)| {
            let seconds = version.at.saturating_duration_since(began).as_secs_f64();
            [seconds, (index + 1) as f64 / self.nodes as f64 * 100.0]
        });
        let axes = ["time since the start (s)", "routes written (%)"];
        bench.curve(CHAPTER, self.subject.name, &format!("{} nodes, 10 ms a call", self.nodes), axes, points.collect());
        running
    }

    fn report_pages(&self, bench: &mut Bench, requests: &[Recorded]) {
        let pages: Vec<&Recorded> = requests.iter().filter(|request| request.operation == LIST).collect();
        let listings = pages.iter().filter(|page| !page.path.contains("cursor=")).count();
        let limit = at_most(self.nodes.div_ceil(1_000) as f64);
        self.report(bench, "pages a listing", "calls", vec![pages.len() as f64 / listings as f64], limit);
    }

    /// Measures the end of the leader with a waiting standby.
    async fn measure_take_over(&self, bench: &mut Bench, mut first: Running) -> Running {
        let mut second = self.start();
        second.until_healthy().await;
        let written = self.nsx.history().len();
        self.nsx.reset_counts();
        first.daemon.stop(LIMIT).await;
        self.report_writes(bench, "a take-over: writes to NSX", written).await;
        second
    }

    /// Measures a restart of the only process.
    async fn measure_restart(&self, bench: &mut Bench, mut before: Running) -> Running {
        before.daemon.stop(LIMIT).await;
        let written = self.nsx.history().len();
        self.nsx.reset_counts();
        let running = self.start();
        self.report_writes(bench, "a restart: writes to NSX", written).await;
        running
    }

    async fn report_writes(&self, bench: &mut Bench, what: &str, written: usize) {
        eventually("all routes are listed", LIMIT, async || {
            let counts = self.nsx.counts();
            if counts.of(LIST) > 0 { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;
        self.until_quiet(QUIET).await;
        let writes = self.nsx.history_from(written).len();
        self.report(bench, what, "writes", vec![writes as f64], Some(Limit::Below(0.5)));
    }

    /// Measures a change of a machine's address without other changes.
    async fn measure_changes(&self, bench: &mut Bench) {
        let (mut seconds, mut calls) = (Vec::new(), Vec::new());
        for number in 1..=CHANGES {
            self.until_quiet(PAUSE).await;
            self.nsx.reset_counts();
            let (began, new) = (Instant::now(), address(99, number));
            self.cluster.vcenter.set_ip(&name(number), &new).await;
            let changed = eventually("the route leads to the new address", LIMIT, async || {
                let history = self.nsx.history();
                let leads_there = |object: &serde_json::Value| object["next_hops"][0]["ip_address"] == new.as_str();
                let version = history.iter().rev().find(|version| version.object.as_ref().is_some_and(leads_there));
                version.map(|version| version.at).ok_or("it does not")
            });
            let Ok(at) = timeout(LIMIT, changed).await else { panic!("not within {LIMIT:?}: a route to {new}") };
            seconds.push(at.saturating_duration_since(began).as_secs_f64());
            self.until_quiet(QUIET).await;
            calls.push(f64::from(self.nsx.counts().total()));
            println!("  a changed address: {:?}", self.nsx.counts().operations);
        }
        self.report(bench, "a changed address to its route in NSX", "s", seconds, Some(Limit::Below(2.0)));
        self.report(bench, "calls for a changed address", "calls", calls, at_most(4.0));
    }

    /// Measures a window without changes.
    async fn measure_quiet(&self, bench: &mut Bench) {
        let window = window();
        self.until_quiet(PAUSE).await;
        self.nsx.reset_counts();
        sleep_until(tokio::time::Instant::now() + window).await;
        let counts = self.nsx.counts();
        println!("  nothing changes for {window:?}: {:?}", counts.operations);
        let what = format!("listings in {} s without a change", window.as_secs());
        let passes = (window.as_secs_f64() / FULL_PASS.as_secs_f64()).ceil();
        self.report(bench, &what, "calls", vec![counts.of(LIST).into()], at_most(passes));
        let others = f64::from(counts.total() - counts.of(LIST));
        self.report(bench, "other calls in that time", "calls", vec![others], None);
    }
}

/// Whether the request is neither a list nor a login.
fn is_of_a_route(request: &Recorded) -> bool {
    request.operation != LIST && !request.operation.starts_with("session ")
}
