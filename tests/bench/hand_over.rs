//! The time without writes when a leader ends: from the signal to the first write of the next leader to a Node, with
//! all default values, 1,000 nodes and two warm standbys. The times and the holders of the Lease come from the API
//! server's audit log.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use support::report::{Limit, Measure};
use support::{ApiServer, AuditEvent, eventually};
use tokio::time::{Instant, timeout};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::machines::{address, name, until_quiet};
use crate::subject::{Running, Subject};

const NODES: usize = 1_000;
const REPLICAS: usize = 3;
/// The default of `--leader-elect-lease-duration`.
const LEASE_DURATION: f64 = 15.0;
/// Each signal, with its number of repetitions and the limit in seconds.
const HITS: [(&str, usize, f64); 2] = [("TERM", 5, 2.0), ("KILL", 5, LEASE_DURATION + 2.0)];
/// Interval between two changes of machines while there is no leader, so that a write is always pending.
const PACE: Duration = Duration::from_millis(200);
/// A standby is warm after this time without a call to vCenter, with all waits pending.
const QUIET: Duration = Duration::from_secs(2);
/// Limit of the wait for warm standbys. A leader that polls may never be quiet.
const WARM_LIMIT: Duration = Duration::from_secs(30);
const CHAPTER: &str = "hand-over";
const LEASE: &str = "cloud-controller-manager";

struct Replica {
    user: String,
    kubeconfig: std::path::PathBuf,
    running: Running,
}

struct World {
    subject: Subject,
    cluster: Cluster,
    replicas: Vec<Replica>,
    nodes: usize,
    /// Number of machines whose address was changed.
    changed: usize,
    /// Whether standbys are logged in at vCenter.
    is_warm: bool,
    /// Read position in the API server's audit log.
    place: u64,
    /// Replica of each identity that has held the Lease.
    holders: BTreeMap<String, usize>,
}

/// Measures the change of the leader for each subject.
pub async fn measure(bench: &mut Bench) {
    for subject in bench.subjects() {
        bench.attempt(CHAPTER, &subject, async |bench| measure_one(bench, &subject).await).await;
    }
}

async fn measure_one(bench: &mut Bench, subject: &Subject) {
    let nodes = bench.sizes(&[NODES])[0];
    let mut world = World::new(bench, subject.clone(), nodes).await;
    for (signal, times, limit) in HITS {
        let name = format!("SIG{signal} to the next leader's first write");
        let (subject, limit) = (subject.name, Some(Limit::Below(limit)));
        let mut measure = Measure { chapter: CHAPTER, subject, name, unit: "s", samples: Vec::new(), limit };
        for _ in 0..times {
            match world.hit(signal).await {
                Some(seconds) => measure.samples.push(seconds),
                None => {
                    let why = format!(
                        "not within {} s: another one's write to a Node, after signal {} of {times}",
                        LIMIT.as_secs(),
                        measure.samples.len() + 1
                    );
                    return bench.unmeasured(measure, &why);
                }
            }
        }
        bench.report(measure);
    }
}

impl World {
    /// Creates a world in which all nodes are initialized.
    async fn new(bench: &Bench, subject: Subject, nodes: usize) -> Self {
        let cluster = Cluster::new(ApiServer::audited().await, bench.vcenter(), nodes).await;
        cluster.register_initialized(nodes, &bench.ours, &subject).await;
        cluster.vcenter.reset_counts().await;
        let mut replicas = Vec::new();
        for number in 1..=REPLICAS {
            let user = format!("replica-{number}");
            let kubeconfig = cluster.server.kubeconfig_of_administrator(&user);
            let running = cluster.start(&subject, &kubeconfig).await;
            replicas.push(Replica { user, kubeconfig, running });
        }
        cluster.until_initialized(nodes).await;
        let (changed, is_warm, place) = (0, false, 0);
        let mut world = Self { subject, cluster, replicas, nodes, changed, is_warm, place, holders: BTreeMap::new() };
        until_quiet(&*world.cluster.vcenter, QUIET, WARM_LIMIT).await;
        world.is_warm = world.cluster.vcenter.counts().await.soap_logins >= REPLICAS as u32;
        println!("  {}: standbys are logged in at vCenter: {}", world.subject.name, world.is_warm);
        world
    }

    /// Sends the signal to the leader. Returns the seconds until the answer to the first write of another replica, or
    /// `None` after the limit. Starts the ended replica again.
    async fn hit(&mut self, signal: &str) -> Option<f64> {
        let leader = self.leader().await;
        let told = Timestamp::now();
        self.replicas[leader].running.daemon.signal(signal).await;
        let first = self.first_write_of_another(leader, told).await;
        self.replicas[leader].running.daemon.wait(LIMIT).await;
        let logins = self.cluster.vcenter.counts().await.soap_logins;
        self.replicas[leader].running = self.cluster.start(&self.subject, &self.replicas[leader].kubeconfig).await;
        if self.is_warm {
            let logged_in = eventually("the standby logs in", LIMIT, async || {
                let now = self.cluster.vcenter.counts().await.soap_logins;
                if now > logins { Ok(()) } else { Err(format!("{now} logins, {logins} before")) }
            });
            if timeout(WARM_LIMIT, logged_in).await.is_err() {
                println!("  {}: the standby has not logged in at vCenter within {WARM_LIMIT:?}", self.subject.name);
            }
        }
        until_quiet(&*self.cluster.vcenter, QUIET, WARM_LIMIT).await;
        let took = first?.duration_since(told).as_secs_f64();
        if took > LEASE_DURATION {
            self.tell_lease(told);
        }
        Some(took)
    }

    /// Changes machines until another replica than this one has written to a Node.
    async fn first_write_of_another(&mut self, hit: usize, told: Timestamp) -> Option<Timestamp> {
        let mut last: Option<Instant> = None;
        let mut written: BTreeMap<usize, Timestamp> = BTreeMap::new();
        // The times come from the log, so rare checks lose nothing, and leave the API server's capacity to the daemons.
        let first = eventually("another one writes to a Node", 2 * LIMIT, async || {
            if last.is_none_or(|last| last.elapsed() >= PACE) {
                self.change().await;
                last = Some(Instant::now());
            }
            // The log is read only after another replica holds the Lease, because reading takes CPU time that the
            // daemons could use.
            if self.holder().await.is_none_or(|holder| self.holders.get(&holder) == Some(&hit)) {
                return Err("nobody else holds the Lease");
            }
            for event in self.read_log() {
                let is_other = |replica: &Replica| replica.user == event.user.username;
                let Some(replica) = self.replicas.iter().position(is_other).filter(|replica| *replica != hit) else {
                    continue;
                };
                let is_node = event.object_ref.resource == "nodes" && event.is_write() && event.is_accepted();
                if is_node && event.received > told {
                    let first = written.entry(replica).or_insert(event.answered);
                    *first = event.answered.min(*first);
                }
            }
            written.values().min().copied().ok_or("nobody else has written to a Node")
        });
        timeout(LIMIT, first).await.ok()
    }

    /// Prints the requests for the Lease from some seconds before this moment on, to explain a slow change of the
    /// leader.
    fn tell_lease(&self, told: Timestamp) {
        // There are also Leases for other purposes.
        let is_lease = |event: &&AuditEvent| event.object_ref.resource == "leases" && event.object_ref.name == LEASE;
        for event in self.cluster.server.audit().iter().filter(is_lease) {
            let [received, answered] = [event.received, event.answered].map(|at| at.duration_since(told).as_secs_f64());
            if received > -5.0 && self.replicas.iter().any(|replica| replica.user == event.user.username) {
                let (user, verb, code) = (&event.user.username, &event.verb, event.response_status.code);
                println!("  {received:.3} s to {answered:.3} s: {user} {verb} {code}");
            }
        }
    }

    /// Changes the address of the next machine.
    async fn change(&mut self) {
        self.changed += 1;
        self.cluster.vcenter.set_ip(&name(self.changed % self.nodes + 1), &address(99, self.changed)).await;
    }

    /// Waits until a replica holds the Lease, and returns it.
    async fn leader(&mut self) -> usize {
        eventually("a replica holds the Lease", LIMIT, async || {
            let holder = self.holder().await.ok_or("nobody holds it".to_owned())?;
            self.read_log();
            self.holders.get(&holder).copied().ok_or(format!("{holder} holds it"))
        })
        .await
    }

    /// Returns the holder of the Lease.
    async fn holder(&self) -> Option<String> {
        let leases = Api::<Lease>::namespaced(self.cluster.client.clone(), "kube-system");
        let lease = leases.get_opt(LEASE).await.unwrap()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// Returns the new events of the audit log. Records the identity of each replica that writes the Lease.
    fn read_log(&mut self) -> Vec<AuditEvent> {
        let (events, place) = self.cluster.server.audit_from(self.place);
        self.place = place;
        for event in events.iter().filter(|event| event.is_write() && event.is_accepted()) {
            let replica = self.replicas.iter().position(|replica| replica.user == event.user.username);
            let holder = event.request_object["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty());
            if event.object_ref.resource == "leases"
                && event.object_ref.name == LEASE
                && let (Some(replica), Some(holder)) = (replica, holder)
            {
                self.holders.insert(holder.to_owned(), replica);
            }
        }
        events
    }
}
