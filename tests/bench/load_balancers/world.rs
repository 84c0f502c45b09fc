//! A cluster with initialized nodes, a fake NSX, and the processes that are measured one after the other.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::fake_nsx::{Behaviour, Capacity, Model, ObjectVersion};
use support::measure::steady_state::settled;
use support::process::Usage;
use support::report::{Limit, Measure, OURS};
use support::{ApiServer, AuditEvent, FakeNsx, eventually};

use super::Size;
use super::services::{self, Watched};
use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::subject::{Running, Subject};

/// Additional latency of a call to NSX.
const CALL: Duration = Duration::from_millis(10);
/// After this time without a call all work is complete. It is longer than the pause between two inventories.
pub const QUIET: Duration = Duration::from_secs(12);
/// Time for which a process's memory must not change by a MiB.
const SETTLED: Duration = Duration::from_secs(10);
/// Limit of waits for a peer, which has no limits in the results.
const PEER_LIMIT: Duration = Duration::from_secs(7_200);
const CLUSTER_NAME: &str = "--cluster-name=bench";
const LEASE: &str = "cloud-controller-manager";
/// Collections with the objects of load balancers.
const COLLECTIONS: [&str; 5] = [
    "/infra/lb-services",
    "/infra/lb-virtual-servers",
    "/infra/lb-pools",
    "/infra/lb-monitor-profiles",
    "/infra/ip-pools/p1/ip-allocations",
];
/// Names of the processes in NSX and in the API server.
const USERS: [&str; 5] = ["replica-0", "replica-1", "replica-2", "replica-3", "replica-4"];
const PASSWORD: &str = "Correct-Horse-7";

/// A cluster with an NSX.
pub struct World {
    pub chapter: &'static str,
    pub subject: Subject,
    pub cluster: Cluster,
    pub nsx: FakeNsx,
    pub size: Size,
}

/// One process, with its name in NSX and in the API server.
pub struct Process {
    pub running: Running,
    pub number: usize,
}

impl Process {
    pub fn user(&self) -> &'static str {
        USERS[self.number]
    }
}

/// The start of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Instant);

impl Moment {
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// Returns the seconds from this moment until `at`.
    pub fn until(self, at: Instant) -> f64 {
        at.saturating_duration_since(self.0).as_secs_f64()
    }
}

impl World {
    /// Creates a world in which all nodes are initialized. There are no Services, and NSX has no load balancer.
    pub async fn new(bench: &Bench, chapter: &'static str, subject: Subject, size: Size) -> Self {
        let cluster = Cluster::new(ApiServer::audited().await, bench.vcenter(), size.nodes).await;
        let mut before = cluster.start(&bench.ours, &cluster.server.kubeconfig()).await;
        cluster.register(size.nodes).await;
        cluster.until_initialized(size.nodes).await;
        before.daemon.stop(LIMIT).await;
        cluster.clear_lease().await;
        let addresses = [("172.20.0.1", "172.20.15.254")];
        let model = Model::empty().tier1("t1").ip_pool("p1", "pool1", "172.20.0.0/16", &addresses);
        let model = USERS.iter().fold(model, |model, user| model.user(user, PASSWORD));
        let capacity = if size.fits() { Behaviour::USUAL.capacity } else { Capacity::Unlimited };
        let nsx = FakeNsx::start(model.behaviour(Behaviour { capacity, ..Behaviour::USUAL })).await;
        nsx.delay_calls(CALL);
        Self { chapter, subject, cluster, nsx, size }
    }

    /// Writes the configuration of the process with this number, and returns its path.
    fn config(&self, number: usize) -> PathBuf {
        let folder = self.cluster.server.folder();
        let (config, ca_file) = (folder.join(format!("{}.conf", USERS[number])), folder.join("nsx-ca.pem"));
        std::fs::write(&ca_file, self.nsx.ca_pem()).unwrap();
        let text = std::fs::read_to_string(&self.cluster.config).unwrap();
        let (host, user, ca_file) = (self.nsx.address(), USERS[number], ca_file.display());
        let profiles = "/infra/lb-app-profiles/default";
        // A distributed load balancer has no size limit.
        let size = if self.size.fits() { "XLARGE" } else { "DLB" };
        let sections = format!(
            "[NSXT]\nhost = \"{host}\"\nuser = \"{user}\"\npassword = \"{PASSWORD}\"\nca-file = \"{ca_file}\"\n\
             [LoadBalancer]\nip-pool-id = \"p1\"\nsize = \"{size}\"\ntier1-gateway-path = \"/infra/tier-1s/t1\"\n\
             tcp-app-profile-path = \"{profiles}-tcp-lb-app-profile\"\n\
             udp-app-profile-path = \"{profiles}-udp-lb-app-profile\"\n"
        );
        std::fs::write(&config, format!("{text}{sections}")).unwrap();
        config
    }

    /// Starts a process, and waits until it is healthy.
    pub async fn start(&self, number: usize, more: &[&str]) -> Process {
        self.start_as(&self.subject, number, more).await
    }

    /// As [`World::start`], with another program.
    pub async fn start_as(&self, subject: &Subject, number: usize, more: &[&str]) -> Process {
        let kubeconfig = self.cluster.server.kubeconfig_of_administrator(USERS[number]);
        let flags = [&[CLUSTER_NAME], more].concat();
        let mut running = subject.start_with(&self.config(number), &kubeconfig, &flags);
        running.until_healthy().await;
        Process { running, number }
    }

    /// Starts a process, and waits until it leads.
    pub async fn start_leading(&self, number: usize, more: &[&str]) -> Process {
        let mut process = self.start(number, more).await;
        process.running.until_leading(&self.cluster.client).await;
        process
    }

    /// Returns the limit of a measured wait.
    pub fn patience(&self) -> Duration {
        if self.subject.name == OURS { 3 * LIMIT } else { PEER_LIMIT }
    }

    pub fn report(&self, bench: &mut Bench, what: &str, unit: &'static str, sample: f64, limit: Option<f64>) {
        self.report_all(bench, what, unit, vec![sample], limit);
    }

    fn report_all(&self, bench: &mut Bench, what: &str, unit: &'static str, samples: Vec<f64>, limit: Option<f64>) {
        let (subject, name) = (self.subject.name, format!("{}: {what}", self.size.name()));
        let limit = limit.map(Limit::Below);
        bench.report(Measure { chapter: self.chapter, subject, name, unit, samples, limit });
    }

    /// Returns the number of calls to NSX so far, without logins.
    pub fn calls(&self) -> f64 {
        let counts = self.nsx.counts();
        let is_login = |operation: &str| operation.starts_with("session ");
        let calls = counts.operations.iter().filter(|(operation, _)| !is_login(operation));
        calls.map(|(_, count)| f64::from(*count)).sum()
    }

    pub fn print_calls(&self, what: &str) {
        let counts = self.nsx.counts();
        println!("  {what}: {:?}; answers: {:?}", counts.operations, counts.statuses);
    }

    /// Waits until there was no call to NSX for [`QUIET`].
    pub async fn until_quiet(&self) {
        let limit = self.patience();
        let is_quiet = settled(QUIET, limit, async || u64::from(self.nsx.counts().total())).await;
        assert!(is_quiet, "NSX was not without calls for {QUIET:?} within {limit:?}: {:?}", self.nsx.counts());
    }

    /// Waits for the first call other than logins.
    pub async fn until_called(&self) {
        eventually("NSX is called", LIMIT, async || if self.calls() > 0.0 { Ok(()) } else { Err("not yet") }).await;
    }

    /// Returns the process's use of memory once it is stable.
    pub async fn memory(&self, process: &Process) -> Usage {
        let is_settled = settled(SETTLED, LIMIT, async || process.running.usage().anonymous / 1024).await;
        assert!(is_settled, "its memory still changes after {LIMIT:?}");
        let usage = process.running.usage();
        let mebibytes = [usage.resident, usage.anonymous, usage.peak].map(|kilobytes| kilobytes as f64 / 1024.0);
        println!(
            "  memory (MiB): resident {:.2}, of it heap and stacks {:.2}, peak {:.2}",
            mebibytes[0], mebibytes[1], mebibytes[2]
        );
        usage
    }

    /// Reports the additional memory with Services, compared with no Services.
    pub fn report_memory(&self, bench: &mut Bench, without: &Usage, with: &[Usage]) {
        let more = |of: fn(&Usage) -> u64| -> Vec<f64> {
            with.iter().map(|usage| (of(usage) as f64 - of(without) as f64) / 1024.0).collect()
        };
        let (resident, peak) = self.size.memory();
        let what = "memory above the same daemon without Services";
        self.report_all(bench, &format!("{what}: resident"), "MiB", more(|usage| usage.resident), Some(resident));
        let heap = more(|usage| usage.anonymous);
        self.report_all(bench, &format!("{what}: of it heap and stacks"), "MiB", heap, None);
        self.report_all(bench, &format!("{what}: peak"), "MiB", more(|usage| usage.peak), Some(peak));
    }

    /// Counts the objects of load balancers that are not marked for deletion.
    pub fn left(&self) -> usize {
        let all = COLLECTIONS.iter().flat_map(|collection| self.nsx.objects_below(collection));
        all.filter(|object| object["marked_for_delete"] != true).count()
    }

    /// Returns the position in the API server's audit log.
    pub fn place(&self) -> u64 {
        self.cluster.server.audit_from(0).1
    }

    /// Returns the writes of these processes after this position, without those to the Lease.
    pub fn api_writes(&self, from: u64, users: &[&str]) -> Vec<AuditEvent> {
        let (events, _) = self.cluster.server.audit_from(from);
        let is_lease = |event: &AuditEvent| event.object_ref.resource == "leases" && event.object_ref.name == LEASE;
        let is_own = |event: &AuditEvent| users.contains(&&*event.user.username);
        events.into_iter().filter(|event| event.is_write() && is_own(event) && !is_lease(event)).collect()
    }

    /// Returns the writes of these processes to Services.
    pub fn service_writes(&self, from: u64, users: &[&str]) -> Vec<AuditEvent> {
        let writes = self.api_writes(from, users);
        writes.into_iter().filter(|event| event.object_ref.resource == "services").collect()
    }

    /// Returns the versions after the first `seen` ones that a process wrote.
    pub fn nsx_writes(&self, seen: usize) -> Vec<ObjectVersion> {
        self.nsx.history_from(seen).into_iter().filter(|version| version.request.is_some()).collect()
    }

    /// Waits until all pools have exactly this many members, and returns the time of the last write.
    pub async fn until_pools_have(&self, members: usize, seen: usize) -> Instant {
        let began = Instant::now();
        loop {
            self.until_quiet().await;
            let pools = self.nsx.objects_below("/infra/lb-pools");
            let sets: BTreeSet<Vec<String>> = pools.iter().map(members_of).collect();
            if pools.len() == self.size.services && sets.len() == 1 && sets.iter().all(|set| set.len() == members) {
                let writes = self.nsx_writes(seen);
                let of_pools = writes.iter().filter(|version| version.path.starts_with("/infra/lb-pools/"));
                return of_pools.map(|version| version.at).max().expect("no pool was written");
            }
            let counts: BTreeSet<usize> = sets.iter().map(Vec::len).collect();
            let limit = self.patience();
            assert!(
                began.elapsed() < limit,
                "not within {limit:?}: all pools have {members} nodes; they have {counts:?}"
            );
        }
    }

    /// Waits until all Services have addresses. Checks that the addresses differ.
    pub async fn until_served(&self, watched: &mut Watched, count: usize) {
        watched.until_served(count, self.patience()).await;
        let addresses: BTreeSet<String> = watched.addresses().into_values().collect();
        assert_eq!(addresses.len(), count, "some Services have the same address");
    }

    pub async fn create(&self, numbers: impl IntoIterator<Item = usize>) {
        services::create(&self.cluster.client, numbers).await;
    }
}

/// Returns the addresses of a pool's members, sorted.
fn members_of(pool: &serde_json::Value) -> Vec<String> {
    let members = pool["members"].as_array().into_iter().flatten();
    let mut addresses: Vec<String> =
        members.filter_map(|member| member["ip_address"].as_str().map(str::to_owned)).collect();
    addresses.sort_unstable();
    addresses
}
