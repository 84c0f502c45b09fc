//! Runs etcd and kube-apiserver.

mod audit;
mod identity;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::components::Component;
use crate::process::Usage;
use crate::rbac::post;
use crate::supervisor::{Supervised, TemporaryFolder};
pub use audit::AuditEvent;
use identity::Authority;
pub use identity::{NODE_ADDRESS, SERVICE_ADDRESS};

/// Timeout of a start. A start takes 3 to 6 s on a quiet machine, but compilers may run at the same time.
const START_LIMIT: Duration = Duration::from_secs(90);
/// Number of start attempts. Another process may take the port before the server binds it.
const ATTEMPTS: u32 = 5;

/// A Kubernetes API server with RBAC, without kube-controller-manager.
pub struct ApiServer {
    port: u16,
    etcd_port: u16,
    authority: Authority,
    /// Additional flags of kube-apiserver.
    flags: Vec<String>,
    apiserver: Option<Supervised>,
    etcd: Option<Supervised>,
    // Last, so that it is removed after the programs have ended.
    folder: TemporaryFolder,
}

impl ApiServer {
    /// Returns the server of this test binary. Nodes are cluster-wide: use unique names, labels and Leases for each
    /// test.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<ApiServer> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// Starts a separate server, for tests of API server faults, of leadership, or of anything that disturbs other
    /// tests.
    ///
    /// # Panics
    ///
    /// If it is not ready in time. The message has its last state and log lines.
    pub async fn start() -> Self {
        Self::start_with(|_| Vec::new()).await
    }

    /// Starts a separate server with an audit log for [`ApiServer::audit`].
    ///
    /// # Panics
    ///
    /// Like [`ApiServer::start`].
    pub async fn audited() -> Self {
        Self::start_with(|folder| audit::flags(folder).into()).await
    }

    /// Starts a separate server whose Services can have addresses of both families.
    ///
    /// # Panics
    ///
    /// Like [`ApiServer::start`].
    pub async fn dual_stack() -> Self {
        // If a flag occurs twice, the last one counts.
        Self::start_with(|_| vec!["--service-cluster-ip-range=10.96.0.0/16,fd00:96::/112".to_owned()]).await
    }

    /// Starts a separate server that also trusts the client certificates of these authorities.
    ///
    /// # Panics
    ///
    /// Like [`ApiServer::start`].
    pub async fn with_client_authorities(pem: &str) -> Self {
        Self::start_with(|folder| {
            let path = folder.join("clients.pem");
            let own = std::fs::read_to_string(folder.join(identity::CA)).unwrap();
            std::fs::write(&path, own + pem).unwrap();
            vec![format!("--client-ca-file={}", path.display())]
        })
        .await
    }

    /// Starts the API server of a cluster with a kubelet, in a [`crate::sandbox`]: at port 6443 of the node, with the
    /// admission and authorization of kubeadm, and an audit log.
    ///
    /// # Panics
    ///
    /// Like [`ApiServer::start`].
    pub async fn of_a_node() -> Self {
        Self::start_at(Some(6443), |folder, authority| {
            let (certificate, key) = authority.client("kube-apiserver-kubelet-client", Some("system:masters"));
            std::fs::write(folder.join("kubelet-client.pem"), certificate).unwrap();
            std::fs::write(folder.join("kubelet-client.key"), key).unwrap();
            let mut flags = vec![
                "--bind-address=0.0.0.0".to_owned(),
                format!("--advertise-address={NODE_ADDRESS}"),
                // In addition to RBAC: if this list flag occurs twice, both values count.
                "--authorization-mode=Node".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
                "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname".to_owned(),
                format!("--kubelet-client-certificate={}", folder.join("kubelet-client.pem").display()),
                format!("--kubelet-client-key={}", folder.join("kubelet-client.key").display()),
                "--allow-privileged=true".to_owned(),
            ];
            flags.extend(audit::flags(folder));
            flags
        })
        .await
    }

    async fn start_with(flags: impl Fn(&Path) -> Vec<String>) -> Self {
        Self::start_at(None, |folder, _| {
            let mut flags = flags(folder);
            // ServiceAccount would reject pods. TaintNodesByCondition would add taints to new Nodes.
            flags.push("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned());
            flags
        })
        .await
    }

    /// Starts a server at this port, or at a free one.
    async fn start_at(port: Option<u16>, flags: impl Fn(&Path, &Authority) -> Vec<String>) -> Self {
        install_crypto();
        let mut trouble = String::new();
        for _ in 0..ATTEMPTS {
            let folder = TemporaryFolder::create();
            let authority = Authority::write_to(folder.path());
            let flags = flags(folder.path(), &authority);
            let (port, etcd_port) = (port.unwrap_or_else(free_port), free_port());
            let mut server = Self { port, etcd_port, authority, flags, apiserver: None, etcd: None, folder };
            match server.run().await {
                Ok(()) => return server,
                Err(Trouble::Port(text)) => trouble = text,
                Err(Trouble::Other(text)) => panic!("{text}"),
            }
        }
        panic!("no free ports for etcd and kube-apiserver in {ATTEMPTS} attempts; the last one: {trouble}");
    }

    /// Kills both programs, like a crash. Their data stay.
    pub async fn kill(&mut self) {
        for process in [&mut self.apiserver, &mut self.etcd] {
            if let Some(mut process) = process.take() {
                process.kill().await;
            }
        }
    }

    /// Starts both programs again after [`ApiServer::kill`], with the same ports and data.
    ///
    /// # Panics
    ///
    /// If it is not ready in time.
    pub async fn restart(&mut self) {
        self.kill().await;
        if let Err(Trouble::Port(text) | Trouble::Other(text)) = self.run().await {
            panic!("{text}");
        }
    }

    /// Returns the URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Writes a kubeconfig of an administrator (group `system:masters`). Returns its path.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.write_kubeconfig(&self.authority.kubeconfig(&self.url(), "admin", Some("system:masters")))
    }

    /// Returns the certificate and the key of an administrator as PEM.
    #[must_use]
    pub fn administrator_pem(&self) -> String {
        let (certificate, key) = self.authority.client("admin", Some("system:masters"));
        certificate + &key
    }

    /// Writes a kubeconfig of this user as an administrator (group `system:masters`). Returns its path.
    #[must_use]
    pub fn kubeconfig_of_administrator(&self, user: &str) -> PathBuf {
        self.kubeconfig_in_group(user, "system:masters")
    }

    /// Writes a kubeconfig of this user without a group, so that only RBAC grants permissions. Returns its path.
    #[must_use]
    pub fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.write_kubeconfig(&self.authority.kubeconfig(&self.url(), user, None))
    }

    /// Creates a service account. Returns the path of its kubeconfig, and its token.
    ///
    /// # Panics
    ///
    /// If the API server does not create it.
    pub async fn create_service_account(&self, namespace: &str, name: &str) -> (PathBuf, String) {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        post(&self.client().await, &format!("/api/v1/namespaces/{namespace}/serviceaccounts"), &account).await;
        let token = self.token_of_service_account(namespace, name).await;
        (self.kubeconfig_with_token(&token), token)
    }

    /// Writes a kubeconfig of an existing service account, with a token from the API server. Returns its path.
    ///
    /// # Panics
    ///
    /// If the API server issues no token.
    pub async fn kubeconfig_of_service_account(&self, namespace: &str, name: &str) -> PathBuf {
        self.kubeconfig_with_token(&self.token_of_service_account(namespace, name).await)
    }

    async fn token_of_service_account(&self, namespace: &str, name: &str) -> String {
        let (kind, api_version) = ("TokenRequest", "authentication.k8s.io/v1");
        let body = json!({"apiVersion": api_version, "kind": kind, "spec": {"expirationSeconds": 86_400}});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let answer = post(&self.client().await, &path, &body).await;
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    fn kubeconfig_with_token(&self, token: &str) -> PathBuf {
        self.write_kubeconfig(&self.authority.kubeconfig_with_token(&self.url(), token))
    }

    fn write_kubeconfig(&self, text: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{}.kubeconfig", crate::unique("user")));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Writes a kubeconfig of this user in this group. Returns its path.
    #[must_use]
    pub fn kubeconfig_in_group(&self, user: &str, group: &str) -> PathBuf {
        self.write_kubeconfig(&self.authority.kubeconfig(&self.url(), user, Some(group)))
    }

    /// Returns the path of the cluster's CA certificate.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join(identity::CA)
    }

    /// Writes the certificate and the key of the cluster's CA to the places of kubeadm.
    ///
    /// # Panics
    ///
    /// If the files cannot be written.
    pub fn write_authority(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::copy(self.ca_file(), folder.join("ca.crt")).unwrap();
        std::fs::write(folder.join("ca.key"), self.authority.key_pem()).unwrap();
    }

    /// Returns the path of the key that signs service account tokens.
    #[must_use]
    pub fn service_account_key_file(&self) -> PathBuf {
        self.folder.path().join(identity::SERVICE_ACCOUNT_KEY)
    }

    /// Makes a client of an administrator. It belongs to the current runtime, so each test needs its own.
    pub async fn client(&self) -> Client {
        Self::client_from(&self.kubeconfig()).await
    }

    /// Makes a client of this user without a group.
    pub async fn client_of(&self, user: &str) -> Client {
        Self::client_from(&self.kubeconfig_of(user)).await
    }

    /// Makes a client from a kubeconfig file.
    ///
    /// # Panics
    ///
    /// If the file cannot be used.
    pub async fn client_from(kubeconfig: &Path) -> Client {
        install_crypto();
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Returns the resource usage of its running programs so far, by name.
    #[must_use]
    pub fn usage(&self) -> Vec<(&'static str, Usage)> {
        let programs = [("kube-apiserver", &self.apiserver), ("etcd", &self.etcd)];
        let usage = |(name, program): (_, &Option<Supervised>)| Some((name, Usage::of(program.as_ref()?.pid()?)?));
        programs.into_iter().filter_map(usage).collect()
    }

    /// Returns all finished requests so far in the order of their ends, for a server from [`ApiServer::audited`].
    ///
    /// # Panics
    ///
    /// Without an audit log.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditEvent> {
        self.audit_from(0).0
    }

    /// Like [`ApiServer::audit`], from a position in the log. Returns the position for the next call, too.
    ///
    /// # Panics
    ///
    /// Without an audit log.
    #[must_use]
    pub fn audit_from(&self, place: u64) -> (Vec<AuditEvent>, u64) {
        audit::read(self.folder.path(), place)
    }

    /// Like [`ApiServer::audit_from`], for a server that is killed during the test: partial lines are skipped.
    ///
    /// # Panics
    ///
    /// Without an audit log.
    #[must_use]
    pub fn audit_through_kills(&self, from: u64) -> (Vec<AuditEvent>, u64) {
        audit::read_broken(self.folder.path(), from)
    }

    /// Returns a folder that lives as long as this server.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    async fn run(&mut self) -> Result<(), Trouble> {
        self.etcd = Some(self.start_etcd());
        self.apiserver = Some(self.start_apiserver());
        let client = self.client().await;
        let deadline = tokio::time::Instant::now() + START_LIMIT;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            let state = match tokio::time::timeout(Duration::from_secs(5), client.request_text(request)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it did not answer".to_owned(),
            };
            self.check_that_both_run()?;
            if tokio::time::Instant::now() > deadline {
                let lines = self.apiserver.as_ref().unwrap().output.tail(20);
                return Err(Trouble::Other(format!(
                    "kube-apiserver is not ready after {START_LIMIT:?}: {state}; its last lines:\n{lines}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn check_that_both_run(&mut self) -> Result<(), Trouble> {
        for (name, process) in [("etcd", &mut self.etcd), ("kube-apiserver", &mut self.apiserver)] {
            let process = process.as_mut().unwrap();
            if let Some(status) = process.ended() {
                let text = format!("{name} ended with {status}; its last lines:\n{}", process.output.tail(20));
                let port = process.output.find("address already in use").is_some();
                return Err(if port { Trouble::Port(text) } else { Trouble::Other(text) });
            }
        }
        Ok(())
    }

    fn start_etcd(&self) -> Supervised {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let data = self.folder.path().join("etcd");
        let arguments = [
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            // No peers, and any free port.
            "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
            // The data of a test need not survive a crash of the machine.
            "--unsafe-no-fsync".to_owned(),
            // Thousands of nodes that are created and deleted several times exceed the default quota of 2 GB.
            "--quota-backend-bytes=8589934592".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        Supervised::start("etcd", &Component::Etcd.path(), &arguments, self.folder.path())
    }

    fn start_apiserver(&self) -> Supervised {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", file("certificates")),
            format!("--tls-cert-file={}", file(identity::SERVER_CERTIFICATE)),
            format!("--tls-private-key-file={}", file(identity::SERVER_KEY)),
            format!("--client-ca-file={}", file(identity::CA)),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file(identity::SERVICE_ACCOUNT_PUBLIC_KEY)),
            format!("--service-account-signing-key-file={}", file(identity::SERVICE_ACCOUNT_KEY)),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            "--max-requests-inflight=2000".to_owned(),
            "--max-mutating-requests-inflight=1000".to_owned(),
        ];
        arguments.extend_from_slice(&self.flags);
        Supervised::start("kube-apiserver", &Component::KubeApiserver.path(), &arguments, self.folder.path())
    }
}

/// Reason why a start failed.
enum Trouble {
    /// Another process has the port. Another attempt can succeed.
    Port(String),
    Other(String),
}

/// Range of the ports that [`free_port`] returns. It is below the ephemeral range, so that the system assigns none of
/// them by chance.
const PORTS: Range<u16> = 14_000..32_000;

/// Returns a port that is currently free. No port is returned twice, because state about an address, such as its
/// logins, outlives its server. Parallel test programs have separate shares: `TEST_PORTS=0/3` is the first third.
///
/// # Panics
/// All ports of the share were returned.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let ports = share_of_ports(std::env::var("TEST_PORTS").ok().as_deref());
    let count = ports.end - ports.start;
    loop {
        let bytes = uuid::Uuid::new_v4().into_bytes();
        let port = ports.start + u16::from_le_bytes([bytes[0], bytes[1]]) % count;
        let is_new = {
            let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(given.len() < usize::from(count), "all {count} ports from {} on were given", ports.start);
            given.insert(port)
        };
        if is_new && std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns all ports, or the share in `TEST_PORTS`.
fn share_of_ports(share: Option<&str>) -> Range<u16> {
    let Some(share) = share else { return PORTS };
    let numbers = share.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    let (index, count): (u16, u16) = numbers.filter(|(index, count)| index < count).unwrap_or_else(|| {
        panic!("TEST_PORTS={share}: a share such as 0/3 is expected");
    });
    let size = (PORTS.end - PORTS.start) / count;
    PORTS.start + index * size..PORTS.start + (index + 1) * size
}

/// Installs one cryptography provider for the process. A second call changes nothing.
pub fn install_crypto() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_ports_are_disjoint_and_cover_all() {
        assert_eq!(share_of_ports(None), 14_000..32_000);
        let thirds = ["0/3", "1/3", "2/3"].map(|share| share_of_ports(Some(share)));
        assert_eq!(thirds, [14_000..20_000, 20_000..26_000, 26_000..32_000]);
    }

    #[test]
    fn a_share_that_does_not_exist_is_refused() {
        for share in ["3/3", "3", "", "a/b", "0/0"] {
            assert!(std::panic::catch_unwind(|| share_of_ports(Some(share))).is_err(), "{share:?}");
        }
    }
}
