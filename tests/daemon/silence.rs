//! Connections to the API server that stay open and transfer nothing, as behind a load balancer that dropped them. The
//! tests check the Lease, and Nodes that join.

use std::path::PathBuf;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use support::connect_proxy::{ConnectProxy, Tunnel};
use support::{ApiServer, Daemon, Vcenter, eventually, unique};

use crate::cluster::{ANSWERS, Cluster, LIMIT};

/// One attempt to renew takes at most half of the deadline. After an attempt over a dead connection there is time for
/// another one, even on a busy machine.
const TIMES: [&str; 3] =
    ["--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=20s", "--leader-elect-retry-period=1s"];

struct World {
    cluster: Cluster,
    proxy: ConnectProxy,
    daemon: Daemon,
    _vcenter: Vcenter,
}

impl World {
    /// Starts a daemon, which reaches the API server only through the proxy, and waits until it leads and has
    /// initialized node 0.
    async fn start() -> Self {
        let server = ApiServer::shared().await;
        let cluster = Cluster::new().await;
        let proxy = ConnectProxy::start(server.url().rsplit(':').next().unwrap().parse().unwrap()).await;
        let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
        let kubeconfig = format!("--kubeconfig={}", through(&proxy, server).display());
        let lease = format!("--leader-elect-resource-name={}", cluster.pool());
        let flags = [&[&*kubeconfig, "--leader-elect=true", &*lease], &TIMES[..]].concat();
        let mut daemon = cluster.start(&Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]), &flags);
        daemon.wait_for_line(ANSWERS, LIMIT).await;
        cluster.register(0..1).await;
        cluster.wait_until_initialized(0..1, &daemon).await;
        Self { cluster, proxy, daemon, _vcenter: vcenter }
    }

    fn terms(&self) -> usize {
        self.daemon.output().count("became leader")
    }

    async fn renewed(&self) -> Option<Timestamp> {
        let leases = Api::<Lease>::namespaced(self.cluster.client.clone(), "kube-system");
        let spec = leases.get(self.cluster.pool()).await.unwrap().spec.unwrap();
        spec.renew_time.map(|at| at.0)
    }
}

/// Returns the kubeconfig of this API server, with this proxy.
fn through(proxy: &ConnectProxy, server: &ApiServer) -> PathBuf {
    let existing = server.kubeconfig();
    let mut kubeconfig: serde_json::Value = serde_json::from_slice(&std::fs::read(&existing).unwrap()).unwrap();
    kubeconfig["clusters"][0]["cluster"]["proxy-url"] = format!("http://127.0.0.1:{}", proxy.port()).into();
    let path = existing.with_file_name(format!("{}.kubeconfig", unique("forgetful")));
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

#[tokio::test]
async fn a_leader_whose_connections_are_forgotten_keeps_its_lease_and_hears_of_a_new_node() {
    let mut world = World::start().await;
    let holder = world.cluster.holder(world.cluster.pool()).await;
    let before = world.renewed().await;

    world.proxy.forget();
    world.cluster.register(1..2).await;
    eventually("the Lease is renewed over a new connection", LIMIT, async || match world.renewed().await {
        after if after > before => Ok(()),
        after => Err(format!("{after:?}\n{}", world.daemon.output().tail(20))),
    })
    .await;
    world.cluster.wait_until_initialized(1..2, &world.daemon).await;
    assert_eq!(world.cluster.holder(world.cluster.pool()).await, holder);
    assert_eq!(world.terms(), 1, "{}", world.daemon.output().tail(40));
    assert_eq!(world.daemon.stop(LIMIT).await.code(), Some(0));
    assert_eq!(world.cluster.holder(world.cluster.pool()).await, "", "it is given up at the end");
}

#[tokio::test]
async fn a_leader_that_hears_nothing_over_new_connections_either_stands_by_and_leads_again_later() {
    let mut world = World::start().await;
    world.proxy.set(Tunnel::Hang);
    world.proxy.forget();
    world.daemon.wait_for_line("the Lease could not be renewed in time; this process is now a standby", LIMIT).await;
    assert_eq!((world.terms(), world.daemon.ended()), (1, None));

    world.proxy.set(Tunnel::Open);
    world.cluster.register(1..2).await;
    eventually("it leads again", LIMIT, async || match world.terms() {
        2 => Ok(()),
        terms => Err(format!("{terms} terms\n{}", world.daemon.output().tail(20))),
    })
    .await;
    world.cluster.wait_until_initialized(1..2, &world.daemon).await;
    assert_eq!(world.daemon.stop(LIMIT).await.code(), Some(0));
}
