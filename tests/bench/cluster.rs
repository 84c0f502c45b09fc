//! An API server, the fake vCenter with machines `n-1`, `n-2` and so on, and daemons with all defaults.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use support::api_server::free_port;
use support::measure::{kubelet, model};
use support::nodes::NodeView;
use support::{ApiServer, Daemon, FakeVcenter, eventually};

/// How long a step may take that is not what is measured.
pub const LIMIT: Duration = Duration::from_secs(300);

/// See the file's header.
pub struct Cluster {
    pub server: ApiServer,
    pub client: Client,
    pub fake: FakeVcenter,
    config: PathBuf,
}

impl Cluster {
    /// With so many machines, and no nodes.
    pub async fn start(server: ApiServer, machines: usize) -> Self {
        let fake = FakeVcenter::start(model(machines)).await;
        let config = server.folder().join("vsphere.conf");
        let section = fake.ini_section("vc", "", server.folder());
        std::fs::write(&config, format!("{section}\n[Labels]\nregion = k8s-region\nzone = k8s-zone\n")).unwrap();
        Self { client: server.client().await, server, fake, config }
    }

    /// Starts a daemon, and waits until it knows its vCenter. Its port is given, too.
    pub async fn start_daemon(&self, daemon: &Path, kubeconfig: &Path) -> (Daemon, u16) {
        let port = free_port();
        let flags = [
            "--cloud-provider=vsphere".to_owned(),
            format!("--cloud-config={}", self.config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
        ];
        let mut daemon = Daemon::start(daemon, flags);
        daemon.wait_for_line("its inventory is known", LIMIT).await;
        (daemon, port)
    }

    /// Nodes of real size for the machines `n-1` to `n-<count>`.
    pub async fn register(&self, count: usize) {
        kubelet::register(&self.client, count).await.unwrap();
    }

    /// Waits until so many nodes are initialised, and no others are there.
    pub async fn until_initialised(&self, count: usize) {
        let nodes = Api::<Node>::all(self.client.clone());
        eventually("all nodes are initialised", LIMIT, async || {
            let nodes = nodes.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
            match nodes.iter().filter(|node| !NodeView::of(node).uninitialized).count() {
                done if done == count && nodes.len() == count => Ok(()),
                done => Err(format!("{done} of {}", nodes.len())),
            }
        })
        .await;
    }
}
