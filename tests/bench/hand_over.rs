//! How long nobody writes when a leader ends: from the signal to the first write to a Node by the next leader, with all
//! defaults, 1,000 nodes and two warm standbys. The API server's audit log has the times.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use support::report::Measure;
use support::{ApiServer, AuditEvent, Daemon, eventually};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};

const NODES: usize = 1_000;
const REPLICAS: usize = 3;
/// The default of `--leader-elect-lease-duration`.
const LEASE_DURATION: f64 = 15.0;
/// Each signal, how often, and the limit in seconds.
const HITS: [(&str, usize, f64); 2] = [("TERM", 5, 2.0), ("KILL", 5, LEASE_DURATION + 2.0)];
/// The time between two changes of machines while nobody leads, so that there is something to write at any moment.
const PACE: Duration = Duration::from_millis(200);

struct Replica {
    user: String,
    kubeconfig: std::path::PathBuf,
    daemon: Daemon,
}

struct World {
    cluster: Cluster,
    replicas: Vec<Replica>,
    /// Machines that have got another address.
    changed: usize,
}

/// See the file's header.
pub async fn measure(bench: &mut Bench) {
    let cluster = Cluster::start(ApiServer::audited().await, NODES).await;
    cluster.register(NODES).await;
    let mut replicas = Vec::new();
    for number in 1..=REPLICAS {
        let user = format!("replica-{number}");
        let kubeconfig = cluster.server.kubeconfig_of_administrator(&user);
        let (daemon, _) = cluster.start_daemon(&bench.daemon, &kubeconfig).await;
        replicas.push(Replica { user, kubeconfig, daemon });
    }
    cluster.until_initialised(NODES).await;
    let mut world = World { cluster, replicas, changed: 0 };
    for (signal, times, limit) in HITS {
        let mut samples = Vec::new();
        for _ in 0..times {
            samples.push(world.hit(signal).await);
            let hit = world.replicas.iter_mut().position(|replica| replica.daemon.ended().is_some()).unwrap();
            let (daemon, _) = world.cluster.start_daemon(&bench.daemon, &world.replicas[hit].kubeconfig).await;
            world.replicas[hit].daemon = daemon;
        }
        let name = format!("SIG{signal} to the next leader's first write");
        bench.report(Measure { chapter: "hand-over", name, unit: "s", samples, limit: Some(limit) });
    }
}

impl World {
    /// Sends the signal to the leader, and gives the seconds from then to the answer to another one's first write.
    async fn hit(&mut self, signal: &str) -> f64 {
        let leader = self.leader().await;
        let told = Timestamp::now();
        self.replicas[leader].daemon.signal(signal).await;
        let mut last = None;
        let first = eventually("another one writes", LIMIT, async || {
            let now = tokio::time::Instant::now();
            if last.is_none_or(|last| now.duration_since(last) >= PACE) {
                self.change();
                last = Some(now);
            }
            // Reading the whole log takes time that the daemons could use: not before somebody leads.
            match self.leader_now().await {
                Some(next) if next != leader => {
                    let log = self.cluster.server.audit();
                    first_write(&log, &self.replicas[next].user, told).ok_or("it has not written".to_owned())
                }
                next => Err(format!("replica {next:?} leads")),
            }
        })
        .await;
        self.replicas[leader].daemon.wait(LIMIT).await;
        let took = first.duration_since(told).as_secs_f64();
        if took > LEASE_DURATION {
            self.tell_lease(told);
        }
        took
    }

    /// What was asked about the Lease from some seconds before this moment on: why a hand-over took so long.
    fn tell_lease(&self, told: Timestamp) {
        for event in self.cluster.server.audit().iter().filter(|event| event.object_ref.resource == "leases") {
            let [received, answered] = [event.received, event.answered].map(|at| at.duration_since(told).as_secs_f64());
            if received > -5.0 && self.replicas.iter().any(|replica| replica.user == event.user.username) {
                let (user, verb, code) = (&event.user.username, &event.verb, event.response_status.code);
                println!("  {received:.3} s to {answered:.3} s: {user} {verb} {code}");
            }
        }
    }

    /// The next machine gets another address.
    fn change(&mut self) {
        self.changed += 1;
        let address = format!("10.99.{}.{}", self.changed / 250, self.changed % 250 + 1);
        let name = format!("n-{}", self.changed % NODES + 1);
        self.cluster.fake.change_vm(&name, |machine| machine.ip(&address));
    }

    async fn leader(&self) -> usize {
        eventually("a replica leads", LIMIT, async || self.leader_now().await.ok_or("nobody")).await
    }

    /// The replica that holds the Lease, if one that runs does.
    async fn leader_now(&self) -> Option<usize> {
        let leases = Api::<Lease>::namespaced(self.cluster.client.clone(), "kube-system");
        let lease = leases.get_opt("cloud-controller-manager").await.unwrap()?;
        let holder = lease.spec?.holder_identity.filter(|holder| !holder.is_empty())?;
        let leads = |line: &String| line.contains("became leader") && line.contains(&holder);
        self.replicas.iter().position(|replica| replica.daemon.output().lines().iter().any(leads))
    }
}

/// When this user's first accepted write to a Node was answered that came after that moment.
fn first_write(log: &[AuditEvent], user: &str, after: Timestamp) -> Option<Timestamp> {
    let is_it = |event: &&AuditEvent| {
        event.object_ref.resource == "nodes" && event.is_write() && event.is_accepted() && event.user.username == user
    };
    log.iter().filter(is_it).filter(|event| event.received > after).map(|event| event.answered).min()
}
