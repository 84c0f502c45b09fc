//! The world of a campaign: three replicas, each with its own clock and its own proxy to the API server, two vCenters
//! with the machines, the observed state, and the repeated checks of the invariants.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ccm::kubernetes::login_ledger::record::Record;
use ccm::kubernetes::login_ledger::{LeaseStore, LedgerStore as _, record_name};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use support::process::Usage;
use support::supervisor::Output;
use support::{ApiProxy, ApiServer, AuditEvent, Clock, Daemon, FakeVcenter, LoginAttempt, LoginOutcome, unique};
use tokio::time::timeout;

use super::fault::{REPLICAS, VCENTERS};
use super::invariants::{self, Apart, MOST, Run};
use super::nsx::Watch;
use super::site::Site;
use super::{FLAGS, GRACE, MACHINES, PERIOD, services};
use crate::cluster::Cluster;
use crate::invariants::audit::{breaches, is_leaders_write, leaders_writes};
use crate::invariants::daemons::{flags, has_led_as};
use crate::invariants::machine::Machine;
use crate::invariants::rules::{Rules, number};
use crate::invariants::versions::Versions;
use crate::invariants::world::Judged;
use crate::services::Services;

/// Interval between two checks of output, memory, audit log and logins. These checks take longer than the checks of
/// Nodes.
const LOOK: Duration = Duration::from_secs(2);
/// Limit for a process to stop.
const STOP: Duration = Duration::from_secs(30);
/// Log texts of a daemon whose configuration is invalid at its start.
const MISTAKES: [&str; 2] = ["invalid configuration:", " configuration errors:"];
/// Log text of a daemon that has read its configuration.
const STARTED: &str = " has started";
/// Limit for the request for the leader.
const ASK: Duration = Duration::from_secs(3);
/// Number of events and of lines of each process that a failed run prints.
const TOLD: usize = 80;
const LINES: usize = 60;

/// One of the three replicas.
pub struct Replica {
    /// The proxy between the replica and the API server.
    pub proxy: ApiProxy,
    /// Wall clock of the replica.
    pub clock: Clock,
    /// The process; `None` while it is killed.
    pub daemon: Option<Daemon>,
    /// Start time of the process.
    started: Instant,
    user: String,
    kubeconfig: PathBuf,
    /// Whether the replica has to start once the configuration is valid again.
    is_due: bool,
}

/// Maxima and totals for the output at the end.
#[derive(Debug, Default)]
pub struct Peaks {
    /// Maximum `VmRSS` of a replica, in kB.
    pub memory: u64,
    /// Maximum number of failed logins of the account in one window.
    pub logins: usize,
    /// Number of accepted writes of replicas to Nodes.
    pub writes: usize,
}

/// All parts of a campaign. Prints the last events if it is dropped by a failure.
pub struct World {
    /// API server with etcd and an audit log.
    pub server: ApiServer,
    /// Whether the API server runs.
    pub is_served: bool,
    /// Nodes of this test at the API server.
    pub cluster: Cluster,
    /// The vCenters, NSX and the configuration files.
    pub site: Site,
    /// The replicas by number.
    pub replicas: Vec<Replica>,
    /// Expected and observed state of machines and Nodes.
    pub judged: Judged,
    /// Observed state of NSX.
    pub watch: Watch,
    /// The Services of type LoadBalancer.
    pub balanced: Services,
    /// Names of machines in the inventory, by number.
    pub names: Vec<String>,
    /// Numbers of the Nodes that a kubelet registered.
    pub joined: BTreeSet<usize>,
    /// Maxima and totals.
    pub peaks: Peaks,
    /// Number of actions so far. It makes each write of the test different.
    pub count: usize,
    /// Replica that a fault of the leader has hit, by number of the fault.
    pub hit: HashMap<usize, usize>,
    /// Times in which replicas may not have counted logins together.
    pub apart: Vec<Apart>,
    began: Instant,
    looked: Instant,
    /// Accepted writes to Nodes and Leases.
    pub audit: Vec<AuditEvent>,
    audit_length: u64,
    /// Outputs of the last processes that have ended, with the numbers of their replicas.
    ended: Vec<(usize, Output)>,
    /// Times of all processes that have ended, with the numbers of their replicas.
    ended_runs: Vec<(usize, Run)>,
    told: Vec<String>,
}

impl World {
    /// Starts all replicas, and waits until they have read both vCenters. There are no nodes yet.
    pub async fn start(follows: bool) -> Self {
        let server = ApiServer::audited().await;
        let cluster = Cluster::on(&server).await;
        let users: Vec<String> = (1..=REPLICAS).map(|number| unique(&format!("replica-{number}"))).collect();
        let site = Site::start(&cluster, &users).await;
        let watch = Watch::new(&cluster, &site).await;
        let versions = Versions::through_restarts(cluster.client.clone(), &cluster.labels()).await;
        cluster.grant(&users).await;
        cluster.grant_nsx(&users).await;
        let accounts = site.accounts[..REPLICAS].to_vec();
        let balanced = Services::new(&cluster, accounts, services::lasting().collect()).await;
        let mut replicas = Vec::new();
        for user in users {
            let proxy = ApiProxy::start(&server);
            let kubeconfig = proxy.kubeconfig(&server.kubeconfig_of(&user)).await;
            let clock = Clock::new(server.folder());
            let started = Instant::now();
            replicas.push(Replica { proxy, clock, daemon: None, started, user, kubeconfig, is_due: false });
        }
        let mut judged = Judged::new(Api::all(cluster.client.clone()), versions, Rules::new(GRACE, follows));
        judged.machines.resize_with(MACHINES, Machine::default);
        let names = (0..MACHINES).map(|number| cluster.name(number)).collect();
        let now = Instant::now();
        let mut world = Self {
            server,
            is_served: true,
            cluster,
            site,
            replicas,
            judged,
            watch,
            balanced,
            names,
            joined: BTreeSet::new(),
            peaks: Peaks::default(),
            count: 0,
            hit: HashMap::new(),
            apart: Vec::new(),
            began: now,
            looked: now,
            audit: Vec::new(),
            audit_length: 0,
            ended: Vec::new(),
            ended_runs: Vec::new(),
            told: Vec::new(),
        };
        (0..MACHINES).for_each(|number| world.appeared(number));
        for number in 0..REPLICAS {
            world.start_replica(number, follows);
        }
        world
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Logs an event of the campaign.
    pub fn tell(&mut self, what: String) {
        self.told.push(format!("{:>7.2} s  {what}", self.began.elapsed().as_secs_f32()));
    }

    /// Returns the flags of every daemon.
    pub fn flags(&self, follows: bool) -> Vec<String> {
        let mut flags = flags(&FLAGS, PERIOD, GRACE, follows);
        flags.push(format!("--cluster-name={}", self.cluster.pool()));
        flags
    }

    /// Starts this replica, if it does not run. A replica ends at once if its configuration is invalid. Therefore it
    /// starts only after the configuration is valid again.
    pub fn start_replica(&mut self, number: usize, follows: bool) {
        let mut flags = self.flags(follows);
        let Self { replicas, cluster, site, judged, .. } = self;
        let replica = &mut replicas[number];
        replica.is_due = site.is_broken;
        if replica.daemon.is_some() || site.is_broken {
            return;
        }
        flags.push("--leader-elect=true".to_owned());
        flags.push(format!("--leader-elect-resource-name={}", cluster.pool()));
        flags.push(format!("--kubeconfig={}", replica.kubeconfig.display()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        replica.started = Instant::now();
        let daemon = cluster.start_file(&replica.clock.environment(), site.config(number), &flags);
        judged.proofs.started(daemon.output());
        replica.daemon = Some(daemon);
    }

    /// Starts the replicas that ended because their configuration was invalid, as a kubelet does.
    pub fn start_those_due(&mut self, follows: bool) {
        for number in 0..REPLICAS {
            let Some(mut daemon) = self.replicas[number].daemon.take() else { continue };
            if is_refused(&mut daemon) {
                self.ended(number, &daemon);
                self.replicas[number].is_due = true;
            } else {
                self.replicas[number].daemon = Some(daemon);
            }
        }
        for number in 0..REPLICAS {
            if self.replicas[number].is_due {
                self.start_replica(number, follows);
            }
        }
    }

    /// Kills this replica, if it runs.
    pub async fn kill_replica(&mut self, number: usize) {
        self.replicas[number].is_due = false;
        if let Some(mut daemon) = self.replicas[number].daemon.take() {
            self.assert_runs(number, &mut daemon);
            daemon.kill().await;
            self.judged.proofs.killed();
            self.ended(number, &daemon);
        }
    }

    /// Stops this replica with SIGTERM, and waits until it has ended.
    pub async fn stop_replica(&mut self, number: usize) {
        self.replicas[number].is_due = false;
        if let Some(mut daemon) = self.replicas[number].daemon.take() {
            if is_refused(&mut daemon) {
                self.ended(number, &daemon);
                return;
            }
            self.assert_runs(number, &mut daemon);
            daemon.signal("CONT").await;
            let status = daemon.stop(STOP).await;
            assert_eq!(status.code(), Some(0), "replica {number}: {}", daemon.output().tail(LINES));
            self.ended(number, &daemon);
        }
    }

    /// Checks the output of an ended process for the last time, and keeps it for a while.
    fn ended(&mut self, number: usize, daemon: &Daemon) {
        assert_no_panic(number, daemon.output());
        self.ended_runs.push((number, (self.replicas[number].started, Some(Instant::now()))));
        self.ended.push((number, daemon.output().clone()));
        self.ended.drain(..self.ended.len().saturating_sub(REPLICAS));
    }

    fn assert_runs(&self, number: usize, daemon: &mut Daemon) {
        if let Some(status) = daemon.ended().filter(|_| !is_refused(daemon)) {
            panic!("replica {number} has ended by itself with {status}:\n{}", daemon.output().tail(LINES));
        }
    }

    /// Returns the holder of the Lease, or any replica if the holder cannot be read.
    pub async fn leader(&self) -> usize {
        let leases = Api::<Lease>::namespaced(self.cluster.client.clone(), "kube-system");
        let lease = match self.is_served {
            true => timeout(ASK, leases.get(self.cluster.pool())).await.ok().and_then(Result::ok),
            false => None,
        };
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
        let is_it = |replica: &Replica| replica.daemon.as_ref().is_some_and(|daemon| has_led_as(daemon, &holder));
        self.replicas.iter().position(is_it).unwrap_or(self.count % REPLICAS)
    }

    /// Returns the nodes by number.
    pub async fn all_nodes(&self) -> BTreeMap<usize, Node> {
        self.cluster.nodes().await.into_values().map(|node| (number(&node), node)).collect()
    }

    /// Deletes the replicas' record of logins, as an operator does after a check of the password.
    pub async fn let_accounts_go(&self) {
        let leases = Api::<Lease>::namespaced(self.cluster.client.clone(), "kube-system");
        for fake in &self.site.fakes {
            match leases.delete(&record_of(fake), &DeleteParams::default()).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => panic!("a record could not be deleted: {error}"),
            }
        }
    }

    /// Reads the replicas' records of the account's logins at each vCenter.
    pub async fn records(&self) -> Vec<Record> {
        let store = LeaseStore::new(self.cluster.client.clone(), "kube-system");
        let mut records = Vec::new();
        for fake in &self.site.fakes {
            let stored = store.read(&record_of(fake)).await.unwrap().stored;
            records.push(stored.map(|stored| Record::from_text(&stored.text)).unwrap_or_default());
        }
        records
    }

    /// Returns the logins at each vCenter.
    pub fn logins(&self) -> Vec<Vec<LoginAttempt>> {
        self.site.fakes.iter().map(FakeVcenter::login_attempts).collect()
    }

    /// Returns the failed logins, one a line, for the output of a failed run.
    fn lines_of(&self, logins: &[LoginAttempt]) -> Vec<String> {
        let failed = logins.iter().filter(|login| login.outcome != LoginOutcome::Accepted);
        let line = |login: &LoginAttempt| {
            let at = login.at.saturating_duration_since(self.began).as_secs_f32();
            let LoginAttempt { is_rest, is_right, outcome, .. } = login;
            format!("{at:>7.2} s  {outcome:?}, REST: {is_rest}, the password was right: {is_right}")
        };
        failed.map(line).collect()
    }

    /// Checks all events since the last call against the invariants.
    ///
    ///
    /// If an invariant is violated.
    pub fn check(&mut self) {
        self.judged.check();
        if self.looked.elapsed() >= LOOK {
            self.check_the_rest();
        }
    }

    /// Checks output, memory, audit log and logins now.
    pub fn check_the_rest(&mut self) {
        self.looked = Instant::now();
        for number in 0..REPLICAS {
            let Some(mut daemon) = self.replicas[number].daemon.take() else { continue };
            self.assert_runs(number, &mut daemon);
            assert_no_panic(number, daemon.output());
            let resident = daemon.pid().and_then(Usage::of).map_or(0, |usage| usage.resident);
            self.peaks.memory = self.peaks.memory.max(resident);
            assert!(!invariants::is_too_large(resident), "replica {number} takes {resident} kB");
            self.replicas[number].daemon = Some(daemon);
        }
        let logins = self.logins();
        let together = invariants::worst_window_together(&logins, &self.apart);
        self.peaks.logins = together;
        assert!(together <= MOST, "more logins than the account has: {logins:#?}, apart: {:?}", self.apart);
        let running = self.replicas.iter().enumerate().filter(|(_, replica)| replica.daemon.is_some());
        let running = running.map(|(number, replica)| (number, (replica.started, None)));
        let numbered: Vec<(usize, Run)> = self.ended_runs.iter().copied().chain(running).collect();
        let runs: Vec<Run> = numbered.iter().map(|(_, run)| *run).collect();
        let excess = invariants::too_many_apart(&logins, &self.apart, &runs);
        assert_eq!(
            excess, None,
            "processes lost more logins apart than they may: {logins:#?}, apart: {:?}, processes: {runs:?}",
            self.apart
        );
        let (new, length) = self.server.audit_through_kills(self.audit_length);
        self.audit_length = length;
        let users: Vec<String> = self.replicas.iter().map(|replica| replica.user.clone()).collect();
        let is_kept = |event: &AuditEvent| {
            let is_lease = event.object_ref.resource == "leases" && event.is_write();
            is_lease || is_leaders_write(event)
        };
        self.audit.extend(new.into_iter().filter(is_kept));
        self.peaks.writes = leaders_writes(&self.audit, &users).count();
        let found = breaches(&self.audit, self.cluster.pool(), &users);
        assert_eq!(found, [], "somebody wrote who did not lead");
        self.check_nsx(&numbered);
    }

    /// Stops all replicas, and checks every deletion.
    pub async fn stop(&mut self) {
        for number in 0..REPLICAS {
            self.stop_replica(number).await;
        }
        self.judged.proofs.close();
        self.watch.close();
        self.check();
        self.check_the_rest();
    }

    /// Returns the vCenter of this machine.
    pub fn fake(&self, number: usize) -> &FakeVcenter {
        &self.site.fakes[vcenter_of(number)]
    }
}

/// Returns the number of the vCenter that has this machine.
pub fn vcenter_of(number: usize) -> usize {
    number * VCENTERS / MACHINES
}

/// Returns the name of the Lease with the logins of the account at this vCenter.
fn record_of(fake: &FakeVcenter) -> String {
    record_name("", &format!("{}:{}", fake.host(), fake.port()), &fake.user())
}

/// Whether a daemon has ended because its configuration was invalid at the start. A running daemon logs the same
/// mistakes and continues.
fn is_refused(daemon: &mut Daemon) -> bool {
    let has_ended = daemon.ended().is_some_and(|status| status.code() == Some(1));
    let output = daemon.output();
    has_ended && MISTAKES.iter().any(|text| output.find(text).is_some()) && output.find(STARTED).is_none()
}

fn assert_no_panic(number: usize, output: &Output) {
    let panic = invariants::panic_in(&output.lines()).cloned();
    assert_eq!(panic, None, "replica {number} panicked:\n{}", output.tail(LINES));
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("what happened last:\n{}", self.told[self.told.len().saturating_sub(TOLD)..].join("\n"));
            for (number, logins) in self.logins().iter().enumerate() {
                println!("--- logins at vCenter {number}\n{}", self.lines_of(logins).join("\n"));
            }
            for (number, output) in &self.ended {
                println!("--- replica {number}, which has ended\n{}", output.tail(LINES));
            }
            for (number, replica) in self.replicas.iter().enumerate() {
                let lines = replica.daemon.as_ref().map_or(String::new(), |daemon| daemon.output().tail(LINES));
                println!("--- replica {number}\n{lines}");
            }
        }
    }
}
