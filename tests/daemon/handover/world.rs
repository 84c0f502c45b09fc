//! Three replicas with a user each, a vCenter, nodes that join, and hits on the leader.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use support::nodes::NodeView;
use support::{ApiServer, Daemon, FakeVcenter, eventually, unique};

use crate::cluster::{ANSWERS, Cluster, ip};
use crate::invariants::daemons::{leader_but, thaw};

/// Limit of each step, on a machine that also compiles.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Kubernetes kills a pod after 30 s.
pub const GRACE: Duration = Duration::from_secs(30);
pub const REPLICAS: usize = 3;
/// The lease duration is short, so that several terms fit into a minute. The renew deadline is much shorter, so that a
/// busy machine does not cause two leaders: a write may be in flight for the difference of the two. The rate limit is
/// low, so that writes are in flight at every hit.
const FLAGS: [&str; 6] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
    "--kube-api-qps=15",
    "--kube-api-burst=1",
];
/// Parts of each wave of nodes, in sixths: joined before the hit, and joined once the next leader works. The rest joins
/// after the hit replica has come back.
const BEFORE: usize = 2;
const AFTER: usize = 4;
const PARTS: usize = 6;
/// Label with the number of the wave.
const WAVE: &str = "test.example/wave";

/// Ways to hit the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// SIGTERM: the leader releases the Lease.
    Terminate,
    /// SIGKILL: the Lease expires.
    Kill,
    /// SIGSTOP until another replica leads and has written. The frozen replica resumes with the state of a leader.
    Freeze,
}

struct Replica {
    user: String,
    kubeconfig: String,
    daemon: Daemon,
}

/// The replicas, the vCenter and the nodes of the test.
pub struct World {
    cluster: Cluster,
    fake: FakeVcenter,
    config: String,
    lease_flag: String,
    replicas: Vec<Replica>,
    users: Vec<String>,
    /// Number of nodes that have joined.
    joined: usize,
    /// Number of replicas that could not log out.
    killed: usize,
}

impl World {
    /// Starts the replicas, and waits until all of them lead or stand by and have read a vCenter with this many
    /// machines.
    pub async fn start(server: &ApiServer, machines: usize) -> Self {
        let cluster = Cluster::on(server).await;
        let fake = FakeVcenter::start(cluster.model(0..machines)).await;
        let config = Cluster::zoned(&[fake.ini_section("vc-1", "dc-1", server.folder())]);
        let users: Vec<String> = (1..=REPLICAS).map(|number| unique(&format!("replica-{number}"))).collect();
        cluster.grant(&users).await;
        let lease_flag = format!("--leader-elect-resource-name={}", cluster.pool());
        let mut world = Self { cluster, fake, config, lease_flag, replicas: Vec::new(), users, joined: 0, killed: 0 };
        for user in world.users.clone() {
            let kubeconfig = format!("--kubeconfig={}", server.kubeconfig_of(&user).display());
            let daemon = world.start_daemon(&kubeconfig);
            world.replicas.push(Replica { user, kubeconfig, daemon });
        }
        for replica in &mut world.replicas {
            replica.daemon.wait_for_line(ANSWERS, LIMIT).await;
        }
        world
    }

    /// The name of the Lease.
    pub fn lease(&self) -> &str {
        self.cluster.pool()
    }

    /// Returns the users of the replicas.
    pub fn users(&self) -> &[String] {
        &self.users
    }

    fn start_daemon(&self, kubeconfig: &str) -> Daemon {
        self.cluster.start(&self.config, &[&FLAGS[..], &[&self.lease_flag, kubeconfig]].concat())
    }

    /// Hits the leader during a join, and waits until another leader has finished it. Nodes with numbers below `until`
    /// join all the time, and the last of them join at the end.
    pub async fn hit(&mut self, hit: Hit, until: usize) {
        let first = self.joined;
        let part = |sixths: usize| first + (until - first) * sixths / PARTS;
        let wave = Wave { cluster: &self.cluster, number: first };
        let leader = self.leader_but(None).await;
        wave.join(first..part(BEFORE)).await;
        wave.until_begun(&self.replicas[leader].daemon).await;
        // On a busy machine another replica may lead by now.
        let leader = self.leader_but(None).await;
        let waiting = wave.waiting().await.len();
        let told = Instant::now();
        self.replicas[leader].daemon.signal(hit.signal()).await;
        let next = self.leader_but(Some(leader));
        let ((), next) = tokio::join!(wave.join(part(BEFORE)..part(AFTER)), next);
        let (taken_over, left) = (told.elapsed(), wave.waiting().await.len());
        wave.until_initialized(&self.replicas[next].daemon).await;
        println!(
            "{hit:?}: replica {} was hit with {waiting} of {} nodes waiting; replica {} led {taken_over:.1?} later, with {left} \
             of {} waiting, and {:.1?} after the hit there were none",
            leader,
            part(BEFORE) - first,
            next,
            part(AFTER) - first,
            told.elapsed()
        );
        wave.join(part(AFTER)..until).await;
        self.joined = until;
        self.killed += usize::from(hit == Hit::Kill);
        self.bring_back(hit, leader, first..part(AFTER)).await;
    }

    /// Waits until the hit replica stands by again. Its pending writes fail, because another leader has written to
    /// those Nodes. A frozen replica has much to write when it resumes: waiting nodes, and new addresses of machines
    /// that it has cached.
    async fn bring_back(&mut self, hit: Hit, replica: usize, known: Range<usize>) {
        let kubeconfig = self.replicas[replica].kubeconfig.clone();
        let daemon = &mut self.replicas[replica].daemon;
        match hit {
            Hit::Freeze => {
                let change = |number: usize, ip: &str| self.fake.change_vm(&self.cluster.name(number), |vm| vm.ip(ip));
                known.clone().for_each(|number| change(number, &format!("10.7.{}.{}", number / 200, number % 200 + 1)));
                thaw(daemon, LIMIT).await;
                assert!(daemon.ended().is_none(), "it goes on: {}", daemon.output().tail(20));
                known.for_each(|number| change(number, &ip(number)));
            }
            Hit::Terminate | Hit::Kill => {
                let status = daemon.wait(GRACE).await;
                assert_eq!(status.code(), Some(hit.status()), "{}", daemon.output().tail(40));
                let daemon = self.start_daemon(&kubeconfig);
                self.replicas[replica].daemon = daemon;
                self.replicas[replica].daemon.wait_for_line(ANSWERS, LIMIT).await;
            }
        }
    }

    /// Waits until the Lease has a holder other than `before`, and returns it.
    async fn leader_but(&self, before: Option<usize>) -> usize {
        let daemons: Vec<&Daemon> = self.replicas.iter().map(|replica| &replica.daemon).collect();
        leader_but(&self.cluster, &daemons, before, LIMIT).await
    }

    /// Waits until all joined nodes are initialized and agree with their machines.
    pub async fn until_all_are_initialized(&self) {
        let leader = self.leader_but(None).await;
        let daemon = &self.replicas[leader].daemon;
        eventually("all nodes are initialized", LIMIT, async || match self.cluster.views().await {
            views if views.len() == self.joined && (0..self.joined).all(|number| self.is_done(number, &views)) => {
                Ok(())
            }
            views => Err(format!("of {}: {views:?}\n{}", self.joined, daemon.output().tail(20))),
        })
        .await;
        self.cluster.wait_until_initialized(0..self.joined, daemon).await;
    }

    /// Whether a node is initialized and has the address of its machine.
    fn is_done(&self, number: usize, views: &BTreeMap<String, NodeView>) -> bool {
        let is_its = |view: &NodeView| view.addresses.contains(&format!("InternalIP={}", ip(number)));
        views.get(&self.cluster.name(number)).is_some_and(|view| !view.uninitialized && is_its(view))
    }

    /// Stops all replicas.
    pub async fn stop(&mut self) {
        for replica in &mut self.replicas {
            let status = replica.daemon.stop(GRACE).await;
            assert_eq!(status.code(), Some(0), "{}: {}", replica.user, replica.daemon.output().tail(40));
        }
        let counts = self.fake.counts();
        assert_eq!(
            counts.soap_sessions, self.killed,
            "one session is left of each replica that was killed: {counts:?}"
        );
    }
}

/// The nodes that join around one hit.
struct Wave<'a> {
    cluster: &'a Cluster,
    /// Number of the first node.
    number: usize,
}

impl Wave<'_> {
    async fn join(&self, numbers: Range<usize>) {
        let node = |number| self.cluster.kubelet(number).label(WAVE, &self.number.to_string());
        join_all(numbers.map(async |number| node(number).register(&self.cluster.client).await)).await;
    }

    async fn views(&self) -> Vec<NodeView> {
        let parameters = ListParams::default().labels(&format!("{},{WAVE}={}", self.cluster.labels(), self.number));
        let nodes = Api::<Node>::all(self.cluster.client.clone()).list(&parameters).await.unwrap();
        nodes.items.iter().map(NodeView::of).collect()
    }

    /// Returns the views of the nodes that are not initialized.
    async fn waiting(&self) -> Vec<NodeView> {
        self.views().await.into_iter().filter(|view| view.uninitialized).collect()
    }

    async fn until_begun(&self, daemon: &Daemon) {
        eventually("the leader has begun", LIMIT, async || match self.views().await {
            views if views.iter().any(|view| !view.addresses.is_empty()) => Ok(()),
            views => Err(format!("{views:?}\n{}", daemon.output().tail(20))),
        })
        .await;
    }

    async fn until_initialized(&self, daemon: &Daemon) {
        eventually("all that joined are initialized", LIMIT, async || match self.waiting().await {
            waiting if waiting.is_empty() => Ok(()),
            waiting => Err(format!("{waiting:?}\n{}", daemon.output().tail(20))),
        })
        .await;
    }
}

impl Hit {
    /// Returns the signal for the hit.
    pub fn signal(self) -> &'static str {
        match self {
            Hit::Terminate => "TERM",
            Hit::Kill => "KILL",
            Hit::Freeze => "STOP",
        }
    }

    /// Returns the exit status after the hit.
    pub fn status(self) -> i32 {
        if self == Hit::Kill { 128 + 9 } else { 0 }
    }
}
