//! Tests of the reload: which changes of the files are applied, and when.

use super::{Background, Connections, GRACE, Reload, ReloadMetrics, watch};
use crate::app::files::{FileSystem, SystemFiles};
use crate::app::reports::status::ConfigurationStatus;
use crate::app::settings::Standby;
use crate::app::settings::vsphere::{CloudConfig, CloudConfigFile};
use crate::app::vsphere::credentials::Credentials;
use crate::app::vsphere::metrics::{Calls, Certificates, VCENTER};
use crate::app::vsphere::nsx::NsxConnection;
use crate::base::error_chain::chain;
use crate::clients::http::{ProxySettings, TlsSettings, TlsTrust};
use crate::clients::vim::Timeouts;
use crate::kubernetes::cluster::Cluster;
use crate::kubernetes::events;
use crate::kubernetes::leader_election::LeaseEvents;
use crate::kubernetes::login_ledger::{LeaseStore, Ledger};
use crate::kubernetes::stores;
use crate::providers::Task;
use crate::providers::vsphere::config::Environment;
use crate::providers::vsphere::nodes::metadata::topology::TopologyLabels;
use crate::providers::vsphere::{Connect, Options, Provider};
use crate::runtime::metrics::Registry;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch as latest};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

/// A file system with the same content at every path.
struct Only<'a>(&'a str);

impl FileSystem for Only<'_> {
    fn read(&self, _: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        Ok(Zeroizing::new(self.0.as_bytes().to_vec()))
    }

    fn is_directory(&self, _: &Path) -> bool {
        false
    }
}

fn file(path: &str) -> CloudConfigFile {
    CloudConfigFile { path: path.into(), environment: Environment::default(), ipv6_pools: Default::default() }
}

/// Parses this text as `vsphere.conf`.
pub(super) fn cloud_config(text: &str) -> CloudConfig {
    file("vsphere.conf").read(&Only(text)).0.unwrap()
}

/// Returns a task whose provider has this configuration. No request reaches an API server.
fn reload(active: CloudConfig) -> Reload {
    let no_server = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, tower::BoxError>("there is no API server".into())
    });
    let client = kube::Client::new(no_server, "default");
    let (registry, current) = (Registry::default(), latest::Sender::new(Arc::new(active)));
    let (credentials, _) = Credentials::new(client.clone(), BTreeSet::new(), PathBuf::new(), PathBuf::new());
    let proxy = ProxySettings::default();
    let nsx = NsxConnection::new(&registry, current.subscribe(), credentials.clone(), proxy.clone()).unwrap();
    let connections = Arc::new(Connections {
        calls: Arc::new(Calls::register(&registry, VCENTER).unwrap()),
        certificates: Certificates::register(&registry, VCENTER).unwrap(),
        proxy,
        current: current.subscribe(),
        clients: Mutex::default(),
        credentials,
        nsx: Arc::new(nsx),
    });
    let options = Options {
        file: "vsphere.conf".to_owned(),
        tag_poll: Duration::from_secs(60),
        allow_name_match: false,
        trusts_unseen: false,
        topology: TopologyLabels::default(),
        demotes_virtual_ips: true,
        trusts_guest_interfaces: false,
        api_server: Vec::new(),
        family_wait: Duration::ZERO,
        timeouts: Timeouts::default(),
    };
    let ledger = Arc::new(Ledger::new(LeaseStore::new(client.clone(), "kube-system")));
    let cluster = Arc::new(Cluster::new(stores::watch_nodes(client.clone(), None).0, None));
    let connect = Arc::clone(&connections) as Arc<dyn Connect>;
    let (provider, _) = Provider::new(options, connect, ledger, cluster, &CancellationToken::new());
    let recorder = events::recorder(client.clone(), "test").0;
    let events = LeaseEvents { client, namespace: "kube-system".to_owned(), name: "ccm".to_owned(), recorder };
    let mut reload = Reload {
        provider: Arc::new(provider),
        connections,
        background: Background::default(),
        file: "vsphere.conf".into(),
        current,
        standby: Standby::Warm,
        leads: latest::Sender::new(true).subscribe(),
        events: Arc::new(events),
        status: Arc::new(Mutex::new(ConfigurationStatus::new("2026-01-01T00:00:00Z".parse().unwrap()))),
        metrics: ReloadMetrics::register(&registry).unwrap(),
        lacks_cluster_cidr: false,
    };
    reload.apply().unwrap();
    reload
}

#[tokio::test]
async fn the_client_in_use_follows_the_trust_settings_also_after_a_refused_reload() {
    let config = |entries: &[(&str, u16, &str)]| {
        let entries = entries
            .iter()
            .map(|(name, port, more)| format!("[VirtualCenter \"{name}\"]\nserver = 127.0.0.1\nport = {port}\n{more}"));
        cloud_config(&format!("[Global]\nuser = u\npassword = p\n{}", entries.collect::<String>()))
    };
    let mut reload = reload(config(&[("a", 1, "")]));
    let client = reload.connections.clients.lock().values().next().unwrap().http.clone();
    // The new port of the first entry can be used. The second entry refuses the whole configuration.
    let mut refused = config(&[("a", 2, ""), ("b", 3, "")]);
    let trust = TlsTrust::Ca { pem: Vec::new(), path: "empty".to_owned() };
    refused.tls.insert("b".to_owned(), TlsSettings { trust, ..TlsSettings::default() });
    reload.take(Ok(refused)).await;
    assert_eq!(reload.current.borrow().config.vcenters[0].port, 1, "the configuration is refused");
    assert!(client.is_verified());
    reload.take(Ok(config(&[("a", 1, "insecure-flag = true\n")]))).await;
    assert!(!client.is_verified());
    assert_eq!(reload.connections.clients.lock().len(), 1, "no client of the refused configuration is left");
}

/// Waits for the result of the next changed content. With a paused clock this takes no real time.
async fn next(changes: &mut mpsc::Receiver<watch::ReloadResult>) -> Option<watch::ReloadResult> {
    timeout(Duration::from_secs(60), changes.recv()).await.ok().flatten()
}

#[tokio::test(start_paused = true)]
async fn a_changed_content_is_handed_over_once_through_exchanged_links_too() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // The kubelet mounts a ConfigMap like this: the file is a link into a folder that is a link.
    let link = |target: &str| {
        let fresh = folder.path().join("fresh");
        std::os::unix::fs::symlink(target, &fresh).unwrap();
        std::fs::rename(fresh, folder.path().join("data")).unwrap();
    };
    let valid = |server: &str| format!("[Global]\nuser = u\npassword = hunter2\n[VirtualCenter \"{server}\"]\n");
    write("1/vsphere.conf", &valid("a"));
    write("2/vsphere.conf", &valid("a"));
    write("3/vsphere.conf", &valid("b"));
    write("4/vsphere.conf", "[VirtualCenter \"c\"]\npassword = hunter2\nport = high\n");
    link("1");
    let path = folder.path().join("vsphere.conf");
    std::os::unix::fs::symlink("data/vsphere.conf", &path).unwrap();

    let file = Arc::new(file(path.to_str().unwrap()));
    let read = file.read(&SystemFiles);
    let (sender, mut changes) = mpsc::channel(1);
    let watching = tokio::spawn(watch::run(Arc::clone(&file), read.1, sender));
    assert!(next(&mut changes).await.is_none(), "nothing changed");
    link("2");
    assert!(next(&mut changes).await.is_none(), "the same content elsewhere");
    link("3");
    let new = next(&mut changes).await.unwrap().unwrap();
    assert_eq!(new.config.vcenters[0].key, "b");
    assert!(next(&mut changes).await.is_none(), "told once");
    link("4");
    let errors = next(&mut changes).await.unwrap().unwrap_err().to_string();
    assert!(errors.contains("vsphere.conf:3") && errors.contains("port"), "{errors}");
    assert!(!errors.contains("hunter2") && !errors.contains("high"), "{errors}");
    assert!(next(&mut changes).await.is_none(), "told once");
    std::fs::remove_file(&path).unwrap();
    let mistakes = next(&mut changes).await.unwrap().unwrap_err().to_string();
    assert!(mistakes.contains("cannot be read"), "{mistakes}");
    std::os::unix::fs::symlink("data/vsphere.conf", &path).unwrap();
    link("3");
    assert!(next(&mut changes).await.unwrap().is_ok(), "mended");
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn a_changed_ca_file_is_a_change_although_vsphere_conf_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (path, ca) = (folder.path().join("vsphere.conf"), folder.path().join("ca.pem"));
    let authority = || rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem();
    std::fs::write(&ca, authority()).unwrap();
    let text = "[Global]\nuser = u\npassword = p\nca-file = CA\n[VirtualCenter \"a\"]\n";
    std::fs::write(&path, text.replace("CA", ca.to_str().unwrap())).unwrap();
    let file = Arc::new(file(path.to_str().unwrap()));
    let read = file.read(&SystemFiles);
    let before = read.0.unwrap();
    let (sender, mut changes) = mpsc::channel(1);
    let watching = tokio::spawn(watch::run(Arc::clone(&file), read.1, sender));
    std::fs::write(&ca, authority()).unwrap();
    let now = next(&mut changes).await.unwrap().unwrap();
    assert_eq!(super::differences(&before, &now), ["vCenter \"a\" (a:443) changed: trust"]);
    std::fs::write(&ca, "no certificate").unwrap();
    assert!(next(&mut changes).await.unwrap().is_err());
    watching.abort();
}

/// Case L-18 of `docs/compatibility.md`. A mistake that turns a part off at start makes a reload fail.
#[tokio::test(start_paused = true)]
async fn a_changed_client_certificate_of_nsx_is_a_change_and_a_wrong_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
    let renew = || {
        let made = rcgen::generate_simple_self_signed(["principal".to_owned()]).unwrap();
        write("key.pem", &made.signing_key.serialize_pem());
        write("cert.pem", &made.cert.pem());
    };
    renew();
    let text = "[VirtualCenter \"a\"]\nuser = u\npassword = p\n[NSXT]\nhost = n\nclient-auth-cert-file = DIR/cert.pem\n\
                client-auth-key-file = DIR/key.pem\n";
    write("vsphere.conf", &text.replace("DIR", folder.path().to_str().unwrap()));
    let file = Arc::new(file(path("vsphere.conf").to_str().unwrap()));
    let read = file.read(&SystemFiles);
    let before = read.0.unwrap();
    assert!(before.rejected.is_empty() && before.nsx_tls.as_ref().is_some_and(|tls| tls.identity.is_some()));
    let (sender, mut changes) = mpsc::channel(1);
    let watching = tokio::spawn(watch::run(Arc::clone(&file), read.1, sender));
    renew();
    let now = next(&mut changes).await.unwrap().unwrap();
    let reported = super::differences(&before, &now);
    assert_eq!(reported, ["the connection to NSX changed: trust or client certificate"]);
    write("key.pem", "no key");
    let wrong = next(&mut changes).await.unwrap().and_then(|new| new.without_refused_parts(Some(&now)));
    let errors = wrong.unwrap_err().to_string();
    assert!(
        errors.contains("[NSXT] client-auth-cert-file: the client certificate") && !errors.contains("no key"),
        "{errors}"
    );
    watching.abort();
}

fn task(name: &str, stop: &CancellationToken, run: impl Future<Output = ()> + Send + 'static) -> Task {
    Task { name: name.to_owned(), stop: stop.clone(), run: Box::pin(run) }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_told_to_may_end_and_no_other() {
    let mut background = Background::default();
    let (changes, not_told) = (CancellationToken::new(), CancellationToken::new());
    background.start(task("told", &changes, changes.clone().cancelled_owned()));
    changes.cancel();
    let nothing = tokio::time::timeout(Duration::from_secs(1), background.first_unexpected_end()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    background.start(task("other", &not_told, async {}));
    let ended = background.first_unexpected_end().await;
    assert_eq!(chain(ended.as_ref()), "task other failed: nothing was left to do");
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_waited_for_and_what_is_stuck_is_not() {
    let mut background = Background::default();
    let stop = CancellationToken::new();
    let before = tokio::time::Instant::now();
    background.start(task("stuck", &stop, std::future::pending()));
    background.start(task("slow", &stop, tokio::time::sleep(Duration::from_secs(2))));
    stop.cancel();
    background.shut_down().await;
    assert_eq!(before.elapsed(), GRACE);
}
