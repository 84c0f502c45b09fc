//! An API server, a vCenter with machines `n-1`, `n-2` and so on, and daemons with all default values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, Client};
use support::measure::initialization::Initialized;
use support::measure::kubelet;
use support::report::OURS;
use support::{ApiServer, VcenterServer};
use tokio::time::timeout;

use crate::machines::{self, Kind};
use crate::subject::{Running, Subject};

/// Limit of a step that is not measured.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Additional time for the initialization of each node, which takes longest while the API server writes its audit log.
const PER_NODE: Duration = Duration::from_millis(60);

/// An API server and a vCenter.
pub struct Cluster {
    pub server: ApiServer,
    pub client: Client,
    pub vcenter: Box<dyn VcenterServer>,
    pub config: PathBuf,
}

impl Cluster {
    /// Starts a cluster with this many machines, and no nodes.
    pub async fn new(server: ApiServer, kind: Kind, machines: usize) -> Self {
        let vcenter = machines::start(kind, machines).await;
        let config = server.folder().join("vsphere.conf");
        let section = vcenter.ini_section("vc", "dc-1", server.folder());
        std::fs::write(&config, format!("{section}\n[Labels]\nregion = k8s-region\nzone = k8s-zone\n")).unwrap();
        Self { client: server.client().await, server, vcenter, config }
    }

    /// Starts a subject with all default values, as this user of the API server, and waits until it is healthy.
    pub async fn start(&self, subject: &Subject, kubeconfig: &Path) -> Running {
        let mut running = subject.start(&self.config, kubeconfig);
        running.until_healthy().await;
        running
    }

    /// Registers nodes of real size for the machines `n-1` to `n-<count>`.
    pub async fn register(&self, count: usize) {
        kubelet::register(&self.client, count).await.unwrap();
    }

    /// Deletes all nodes, and the Lease, which a program may not have released at its end.
    pub async fn clear(&self) {
        kubelet::remove_all(&self.client).await.unwrap();
        self.clear_lease().await;
    }

    /// Deletes the Lease, if there is one.
    pub async fn clear_lease(&self) {
        let leases = Api::<Lease>::namespaced(self.client.clone(), "kube-system");
        match leases.delete("cloud-controller-manager", &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.unwrap()),
        }
    }

    /// Waits until exactly this many nodes are initialized, which must be all nodes. It uses a single watch, to keep
    /// the load on the API server low.
    pub async fn until_initialized(&self, count: usize) {
        let mut initialized = Initialized::from_the_start(&self.client);
        let limit = LIMIT + PER_NODE * u32::try_from(count).unwrap();
        match timeout(limit, initialized.follow(count)).await {
            Ok(end) => end.unwrap(),
            Err(_) => panic!("not within {limit:?}: {count} nodes are initialized; {} were", initialized.count()),
        }
    }

    /// Registers this many nodes and waits until they are initialized. For a peer a separate process of this daemon
    /// initializes them and ends, because a peer may take ten minutes for that, and the initialization is not measured
    /// here.
    pub async fn register_initialized(&self, count: usize, ours: &Subject, subject: &Subject) {
        self.register(count).await;
        if subject.name != OURS {
            let mut first = self.start(ours, &self.server.kubeconfig()).await;
            self.until_initialized(count).await;
            first.daemon.stop(LIMIT).await;
            self.clear_lease().await;
        }
    }
}
