//! The vSphere provider on a simulator, without a Kubernetes cluster. The test sets the nodes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ccm::clients::http::{self, TlsSettings, TlsTrust};
use ccm::clients::vim::Timeouts;
use ccm::cloud::{ClusterReads, NodeChange};
use ccm::kubernetes::login_ledger::Ledger;
use ccm::providers::vsphere::config::Credentials;
use ccm::providers::vsphere::login::credentials::{Credential, CredentialState, Login, Offers, Origin};
use ccm::providers::vsphere::nodes::metadata::topology::TopologyLabels;
use ccm::providers::vsphere::{Connect, Options, Provider, config};
use doubles::login_store::MemoryStore;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use support::vcenter::Vcenter;
use support::{Log, eventually};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Limit of waits. It is much longer than required.
pub const SOON: Duration = Duration::from_secs(30);

/// The nodes of a simulated cluster.
#[derive(Clone, Default)]
pub struct Cluster {
    nodes: Arc<Mutex<Vec<Arc<Node>>>>,
    changed: Arc<watch::Sender<u64>>,
}

impl Cluster {
    /// Adds a node, or replaces the node with its name.
    pub fn put(&self, node: Node) {
        let mut nodes = self.nodes.lock().unwrap();
        nodes.retain(|known| known.metadata.name != node.metadata.name);
        nodes.push(Arc::new(node));
        drop(nodes);
        self.changed.send_modify(|version| *version += 1);
    }

    /// Sets all nodes at once.
    pub fn put_all(&self, nodes: Vec<Node>) {
        *self.nodes.lock().unwrap() = nodes.into_iter().map(Arc::new).collect();
        self.changed.send_modify(|version| *version += 1);
    }

    /// Removes all nodes.
    pub fn clear(&self) {
        self.put_all(Vec::new());
    }
}

impl ClusterReads for Cluster {
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_> {
        Box::new(self.nodes.lock().unwrap().clone().into_iter())
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes().find(|node| node.metadata.name.as_deref() == Some(name))
    }

    fn has_service(&self, _key: &str) -> bool {
        false
    }

    fn node_changes(&self) -> BoxStream<'static, NodeChange> {
        let mut changes = self.changed.subscribe();
        changes.mark_changed();
        stream::unfold(changes, |mut changes| async move {
            changes.changed().await.ok()?;
            Some((NodeChange::All, changes))
        })
        .boxed()
    }
}

/// Returns a node as a kubelet registers it.
pub fn node(name: &str, uuid: &str) -> Node {
    let info = NodeSystemInfo { system_uuid: uuid.into(), ..NodeSystemInfo::default() };
    Node {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus { node_info: Some(info), ..NodeStatus::default() }),
    }
}

/// Waits until the log has a line with this text.
pub async fn until_told(log: &Log, text: &str) {
    let is_told = async || log.lines(text).first().map(drop).ok_or_else(|| log.lines("").join("\n"));
    eventually(text, SOON, is_told).await;
}

/// Clients that trust the CA files of their entries, and constant credentials from the entries.
pub struct Files;

impl Connect for Files {
    fn http(&self, entry: &config::VcenterConfig) -> Result<http::Client, String> {
        let path = &entry.ca_files[0];
        let trust = TlsTrust::Ca { pem: std::fs::read(path).unwrap(), path: path.display().to_string() };
        let tls = TlsSettings { trust, ..TlsSettings::default() };
        Ok(http::Client::new(http::Settings::new(&entry.server, entry.port, tls, "test")).unwrap())
    }

    fn offers(&self, entry: &config::VcenterConfig) -> Offers {
        let Credentials::Inline { user, password } = &entry.credentials else { panic!("not in the file") };
        let login = Login::Password { user: user.clone(), password: password.clone() };
        let offer = CredentialState::Ready(vec![Arc::new(Credential { login, origin: Origin::Config })]);
        watch::Sender::new(Arc::new(offer)).subscribe()
    }
}

/// A running provider. When this is dropped, it ends without a logout. [`Running::stop`] logs out.
pub struct Running {
    pub provider: Arc<Provider>,
    pub cluster: Cluster,
    stop: CancellationToken,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Running {
    /// Starts the provider with one entry for each simulator and `more` INI text after them.
    pub fn start(vcenters: &[&Vcenter], more: &str) -> Self {
        let sections: Vec<String> =
            vcenters.iter().enumerate().map(|(index, vc)| vc.ini_section(&format!("vc-{index}"), "")).collect();
        Self::start_with(&format!("{}{more}", sections.concat()), Duration::from_secs(60))
    }

    /// Starts the provider with this `vsphere.conf`.
    pub fn start_with(text: &str, tag_poll: Duration) -> Self {
        Self::start_changed(text, |options| options.tag_poll = tag_poll)
    }

    /// Starts the provider with this `vsphere.conf`, and with changed options.
    pub fn start_changed(text: &str, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Self::options();
        change(&mut options);
        Self::start_through(Arc::new(Files), text, options)
    }

    /// Returns the default options of the daemon.
    pub fn options() -> Options {
        Options {
            file: "vsphere.conf".to_owned(),
            tag_poll: Duration::from_secs(60),
            allow_name_match: false,
            trusts_unseen: false,
            topology: TopologyLabels::default(),
            demotes_virtual_ips: true,
            trusts_guest_interfaces: false,
            api_server: Vec::new(),
            family_wait: Duration::from_secs(120),
            timeouts: Timeouts::default(),
        }
    }

    /// Starts the provider with this `vsphere.conf` and this way to connect.
    pub fn start_through(connect: Arc<dyn Connect>, text: &str, options: Options) -> Self {
        Self::start_as(connect, text, options, |provider, _| provider)
    }

    /// As [`Running::start_through`], with the additions of `complete` to the provider.
    pub fn start_as(
        connect: Arc<dyn Connect>,
        text: &str,
        options: Options,
        complete: impl FnOnce(Provider, Arc<dyn ClusterReads>) -> Provider,
    ) -> Self {
        let parsed = config::parse(text, "vsphere.conf").unwrap();
        let cluster = Cluster::default();
        let stop = CancellationToken::new();
        let (provider, tracker) = Provider::new(
            options,
            connect,
            Arc::new(Ledger::new(MemoryStore::default())),
            Arc::new(cluster.clone()),
            &stop,
        );
        let provider = complete(provider, Arc::new(cluster.clone()));
        let tasks = provider.apply(&parsed.config).unwrap();
        let tasks = std::iter::once(tracker).chain(tasks).map(|task| tokio::spawn(task.run)).collect();
        Self { provider: Arc::new(provider), cluster, stop, tasks }
    }

    /// Ends the task that applies snapshots to the answers about nodes.
    pub async fn end_tracker(&mut self) {
        let tracker = self.tasks.remove(0);
        tracker.abort();
        assert!(tracker.await.unwrap_err().is_cancelled());
    }

    /// Stops all tasks and waits for their end.
    pub async fn stop(mut self) {
        self.stop.cancel();
        for task in self.tasks.drain(..) {
            tokio::time::timeout(SOON, task).await.expect("the tasks end").unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
