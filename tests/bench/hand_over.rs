//! How long nobody writes when a leader ends: from the signal to the first write to a Node by the next leader, with all
//! defaults, 1,000 nodes and two warm standbys. The API server's audit log has the times, and tells who holds the Lease.

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
/// Each signal, how often, and the limit in seconds.
const HITS: [(&str, usize, f64); 2] = [("TERM", 5, 2.0), ("KILL", 5, LEASE_DURATION + 2.0)];
/// The time between two changes of machines while nobody leads, so that there is something to write at any moment.
const PACE: Duration = Duration::from_millis(200);
/// A standby is warm when vCenter was asked nothing for this long, all waits being pending.
const QUIET: Duration = Duration::from_secs(2);
/// How long that is waited for: a leader that polls may never be quiet.
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
    /// Machines that have got another address.
    changed: usize,
    /// Whether a standby is logged in at vCenter, too.
    is_warm: bool,
    /// How far the API server's audit log was read.
    place: u64,
    /// Which replica calls itself so, of those that have held the Lease.
    holders: BTreeMap<String, usize>,
}

/// See the file's header.
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
    /// With all nodes initialised.
    async fn new(bench: &Bench, subject: Subject, nodes: usize) -> Self {
        let cluster = Cluster::new(ApiServer::audited().await, bench.vcenter(), nodes).await;
        cluster.register_initialised(nodes, &bench.ours, &subject).await;
        cluster.vcenter.reset_counts().await;
        let mut replicas = Vec::new();
        for number in 1..=REPLICAS {
            let user = format!("replica-{number}");
            let kubeconfig = cluster.server.kubeconfig_of_administrator(&user);
            let running = cluster.start(&subject, &kubeconfig).await;
            replicas.push(Replica { user, kubeconfig, running });
        }
        cluster.until_initialised(nodes).await;
        let (changed, is_warm, place) = (0, false, 0);
        let mut world = Self { subject, cluster, replicas, nodes, changed, is_warm, place, holders: BTreeMap::new() };
        until_quiet(&*world.cluster.vcenter, QUIET, WARM_LIMIT).await;
        world.is_warm = world.cluster.vcenter.counts().await.soap_logins >= REPLICAS as u32;
        println!("  {}: standbys are logged in at vCenter: {}", world.subject.name, world.is_warm);
        world
    }

    /// Sends the signal to the leader, and gives the seconds from then to the answer to another one's first write, if
    /// there was one in time. Who was hit is started again.
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

    /// While machines change, until another replica than this one has written to a Node.
    async fn first_write_of_another(&mut self, hit: usize, told: Timestamp) -> Option<Timestamp> {
        let mut last: Option<Instant> = None;
        let mut written: BTreeMap<usize, Timestamp> = BTreeMap::new();
        // The log has the times, so that looking seldom loses nothing, and leaves the API server to the daemons.
        let first = eventually("another one writes to a Node", 2 * LIMIT, async || {
            if last.is_none_or(|last| last.elapsed() >= PACE) {
                self.change().await;
                last = Some(Instant::now());
            }
            // Reading the log takes time that the daemons could use: not before somebody else holds the Lease.
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

    /// What was asked about the Lease from some seconds before this moment on: why a hand-over took so long.
    fn tell_lease(&self, told: Timestamp) {
        // There are Leases for other things beside it.
        let is_lease = |event: &&AuditEvent| event.object_ref.resource == "leases" && event.object_ref.name == LEASE;
        for event in self.cluster.server.audit().iter().filter(is_lease) {
            let [received, answered] = [event.received, event.answered].map(|at| at.duration_since(told).as_secs_f64());
            if received > -5.0 && self.replicas.iter().any(|replica| replica.user == event.user.username) {
                let (user, verb, code) = (&event.user.username, &event.verb, event.response_status.code);
                println!("  {received:.3} s to {answered:.3} s: {user} {verb} {code}");
            }
        }
    }

    /// The next machine gets another address.
    async fn change(&mut self) {
        self.changed += 1;
        self.cluster.vcenter.set_ip(&name(self.changed % self.nodes + 1), &address(99, self.changed)).await;
    }

    /// The replica that holds the Lease.
    async fn leader(&mut self) -> usize {
        eventually("a replica holds the Lease", LIMIT, async || {
            let holder = self.holder().await.ok_or("nobody holds it".to_owned())?;
            self.read_log();
            self.holders.get(&holder).copied().ok_or(format!("{holder} holds it"))
        })
        .await
    }

    /// Who the Lease names.
    async fn holder(&self) -> Option<String> {
        let leases = Api::<Lease>::namespaced(self.cluster.client.clone(), "kube-system");
        let lease = leases.get_opt(LEASE).await.unwrap()?;
        lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// What is new in the audit log. Who writes the Lease in its own name is known from then on.
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
