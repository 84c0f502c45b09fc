//! Builds the vSphere provider from the settings, and starts its background work.

mod credentials;
mod metrics;
mod nsx;
mod reload;
mod sessions;

use super::Error;
use super::election::hostname;
use super::reports::status::{ConfigurationStatus, StatusNote};
use super::settings::vsphere::CloudConfig;
use super::settings::{SettingError, Settings, Standby, Vsphere};
use super::shared_services::SharedServices;
use super::shutdown_order::{ShutdownStage, Stages};
use crate::base::addresses::host_and_port;
use crate::base::error_chain::chain;
use crate::clients::http::{self, CallObserver, ProxySettings, TlsSettings};
use crate::clients::vim;
use crate::cloud::{CloudProvider, ClusterEvents};
use crate::kubernetes::client::COMMIT;
use crate::kubernetes::cluster::Cluster;
use crate::kubernetes::leader_election::LeaseEvents;
use crate::kubernetes::login_ledger::{LeaseStore, Ledger};
use crate::providers::vsphere::VcenterReport;
use crate::providers::vsphere::config::{DEFAULT_DIRECTORY, NsxLogin, PartName, VcenterConfig};
use crate::providers::vsphere::login::credentials::Offers;
use crate::providers::vsphere::nsx::NsxSessionStatus;
use crate::providers::vsphere::nsx::load_balancer::NsxLoadBalancers;
use crate::providers::vsphere::nsx::routes::KnownRoute;
use crate::providers::vsphere::nsx::services::NsxReport;
use crate::providers::vsphere::{Connect, Options, Provider};
use crate::runtime::admin::{Checks, Health};
pub use credentials::CredentialReport;
use credentials::Credentials;
use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use metrics::{Calls, Certificates, VCENTER};
use nsx::NsxConnection;
use parking_lot::Mutex;
use reload::{Background, Reload, ReloadMetrics};
use secrecy::SecretString;
use sessions::Sessions;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// Builds the provider and starts its tasks. Does not wait for connections, since a vCenter may be unreachable.
pub fn build(
    vsphere: &Vsphere,
    settings: &Settings,
    parts: &SharedServices,
    stages: &mut Stages,
) -> Result<(Arc<dyn CloudProvider>, VsphereInquiry), Error> {
    for oddity in &vsphere.cloud_config.notices {
        tracing::warn!("{oddity}");
    }
    for unverified in vsphere.cloud_config.unverified() {
        tracing::warn!("{unverified}");
    }
    let registry = parts.metrics.registry();
    let current = watch::Sender::new(Arc::clone(&vsphere.cloud_config));
    let connections = Arc::new(Connections::new(vsphere, current.subscribe(), parts, stages)?);
    let cluster = Arc::new(Cluster::new(parts.caches.nodes.clone(), parts.caches.services.clone()));
    let stop = stages.stop_signal(ShutdownStage::Provider);
    let connect = Arc::clone(&connections) as Arc<dyn Connect>;
    let ledger = Arc::new(ledger(settings, parts));
    let options = Options { api_server: parts.api_server.addresses.clone(), ..vsphere.options.clone() };
    nsx::warn_of_cluster_name(settings, &vsphere.cloud_config);
    let name = settings.services.cluster_name.as_str();
    let events = Arc::new(LeaseEvents {
        client: parts.api_server.clients.auxiliary.clone(),
        namespace: settings.lease.namespace.clone(),
        name: settings.lease.name.clone(),
        recorder: parts.events.clone(),
    });
    let for_nsx: Arc<dyn ClusterEvents> = events.clone();
    let setup =
        nsx::setup(&connections.nsx, Arc::clone(&ledger) as _, cluster.clone(), for_nsx, &vsphere.nsx, name, parts);
    let (provider, tracker) = Provider::new(options, connect, ledger, cluster, &stop);
    let provider = Arc::new(provider.with_nsx(setup));
    let reports = Arc::downgrade(&provider);
    connections.nsx.show(move || reports.upgrade().and_then(|provider| provider.nsx_report()));
    let mut background = Background::default();
    background.start(tracker);
    let inquiry = VsphereInquiry {
        provider: Arc::downgrade(&provider),
        credentials: Arc::clone(&connections.credentials),
        current: current.subscribe(),
        reloads: Arc::new(Mutex::new(ConfigurationStatus::new(Timestamp::now()))),
        name_problem: nsx::name_problem(settings),
    };
    let mut reload = Reload {
        provider: Arc::clone(&provider),
        connections,
        status: Arc::clone(&inquiry.reloads),
        background,
        file: vsphere.file.path.clone(),
        current,
        // The observer connects, although it never leads.
        standby: if parts.is_observer { Standby::Warm } else { settings.standby },
        leads: parts.elections.main.watch(),
        events,
        metrics: ReloadMetrics::register(registry)?,
        lacks_cluster_cidr: settings.routes.as_ref().is_some_and(|routes| routes.networks.is_empty()),
    };
    reload.apply().map_err(Error::Vcenters)?;
    let (changes, watching) = reload::watch(vsphere);
    stages.spawn_until_stop(ShutdownStage::Provider, "watch-cloud-config", watching);
    stages.spawn(ShutdownStage::Provider, "vcenters", reload.run(changes, stop));
    let reports = Arc::downgrade(&provider);
    let reports = move || reports.upgrade().map(|provider| provider.reports()).unwrap_or_default();
    Sessions::register(registry, reports)?;
    show_vcenters(&provider, &parts.checks, nsx::name_problem(settings));
    Ok((provider, inquiry))
}

/// Answers the questions of commands about the provider.
pub struct VsphereInquiry {
    provider: Weak<Provider>,
    credentials: Arc<Credentials>,
    current: watch::Receiver<Arc<CloudConfig>>,
    reloads: Arc<Mutex<ConfigurationStatus>>,
    /// The problem of `--cluster-name`, if it is the default.
    name_problem: Option<&'static str>,
}

impl VsphereInquiry {
    /// Returns the provider; `None` once the process stops. The caller must not keep it.
    pub fn provider(&self) -> Option<Arc<Provider>> {
        self.provider.upgrade()
    }

    /// Returns the active configuration.
    pub fn cloud_config(&self) -> Arc<CloudConfig> {
        Arc::clone(&self.current.borrow())
    }

    /// Returns the state of the credentials of each vCenter and NSX Manager.
    pub fn credential_reports(&self) -> Vec<CredentialReport> {
        self.credentials.reports()
    }

    /// Returns the problem of `--cluster-name` in NSX, if it is the default.
    pub fn name_problem(&self) -> Option<&'static str> {
        self.name_problem
    }

    /// Returns the reports about the vCenters.
    pub fn vcenter_reports(&self) -> Vec<VcenterReport> {
        self.provider.upgrade().map(|provider| provider.reports()).unwrap_or_default()
    }

    /// Returns the report about NSX; `None` without NSX.
    pub fn nsx_report(&self) -> Option<NsxReport> {
        self.provider.upgrade()?.nsx_report()
    }

    /// Returns what is known about the route of this Node to this network; `None` without routes on NSX.
    pub fn known_route(&self, node: &Node, network: &IpNet) -> Option<KnownRoute> {
        self.provider.upgrade()?.known_route(node, network)
    }

    /// Returns the load balancers on NSX; `None` without.
    pub fn load_balancers(&self) -> Option<Arc<NsxLoadBalancers>> {
        self.provider.upgrade()?.nsx_load_balancers()
    }

    /// Returns the state of `vsphere.conf`.
    pub fn configuration(&self) -> ConfigurationStatus {
        self.reloads.lock().clone()
    }

    /// Returns the parts of the configuration that are turned off because of errors.
    pub fn rejected_parts(&self) -> Vec<StatusNote> {
        let current = Arc::clone(&self.current.borrow());
        let note = |(part, error): &(PartName, SettingError)| StatusNote {
            is_finding: true,
            subject: part.to_string(),
            message: format!("turned off: {error}"),
        };
        current.rejected.iter().map(note).collect()
    }

    /// Returns the secrets of the credentials, also of those in the configuration that are not in use.
    pub fn secrets(&self) -> Vec<SecretString> {
        let config = self.cloud_config();
        let token = config.config.nsx.used().and_then(|nsx| match &nsx.login {
            NsxLogin::VmcToken { token, .. } => Some(token.clone()),
            NsxLogin::Certificate { .. } | NsxLogin::Pair { .. } => None,
        });
        let inline = config.config.inline_pairs();
        let unused = inline.into_iter().map(|(_, password)| password.clone());
        self.credentials.secrets().into_iter().chain(token).chain(unused).collect()
    }

    /// Returns the user names of the credentials, also of those in the configuration that are not in use.
    pub fn users(&self) -> BTreeSet<String> {
        let config = self.cloud_config();
        let mut users = self.credentials.users();
        users.extend(config.config.inline_pairs().into_iter().map(|(user, _)| user.to_owned()));
        // The user may be a certificate.
        users.retain(|user| !user.contains("-----BEGIN"));
        users
    }
}

/// Returns the login throttle. Its records are stored in the namespace of the election's Lease, so that no permission
/// in another namespace is needed.
fn ledger(settings: &Settings, parts: &SharedServices) -> Ledger {
    let client = parts.api_server.clients.auxiliary.clone();
    let ledger = Ledger::new(LeaseStore::new(client, settings.lease_namespace()));
    // The observer may run in the Pod of a daemon. It replaces no process there, so it does not name the Pod: claims in
    // flight of the daemon and of the observer count for both.
    match hostname().filter(|_| !parts.is_observer) {
        Some(pod) => ledger.in_pod(&pod),
        None => ledger,
    }
}

/// Shows the state of vCenters and NSX in `/readyz`. Never fails the probe: an outage must not block a rollout.
fn show_vcenters(provider: &Arc<Provider>, checks: &Checks, name_problem: Option<&'static str>) {
    let provider = Arc::clone(provider);
    checks.add_readiness_group(move || {
        let mut shown = Vec::new();
        for report in provider.reports() {
            let health = match report {
                VcenterReport { lag: Some(Duration::ZERO), rejected_credentials: None, .. } => Health::Ok,
                VcenterReport { lag: Some(Duration::ZERO), .. } => {
                    Health::Note("answers; new credentials were refused".into())
                }
                VcenterReport { .. } => Health::Note("unavailable".into()),
            };
            shown.push((format!("vcenter {}", report.server), health));
        }
        if let Some(report) = provider.nsx_report() {
            let health = match report {
                NsxReport { is_in_use: false, .. } => Health::Note("used by the leader only".into()),
                NsxReport { login: NsxSessionStatus { failure: Some(_), .. }, .. } => Health::Note("no login".into()),
                NsxReport { login: NsxSessionStatus { rejected_credentials: Some(_), .. }, .. } => {
                    Health::Note("answers; new credentials were refused".into())
                }
                NsxReport { .. } => Health::Ok,
            };
            shown.push((format!("nsx {}", report.server), health));
            shown.extend(name_problem.map(|problem| ("cluster-name".to_owned(), Health::Note(problem.into()))));
            let tags = report.too_many_tags;
            shown.extend(tags.map(|problem| ("load-balancer-tags".to_owned(), Health::Note(problem.into()))));
        }
        shown
    });
}

/// The clients and credentials of vCenters and NSX.
pub struct Connections {
    calls: Arc<dyn CallObserver>,
    certificates: Certificates,
    proxy: ProxySettings,
    current: watch::Receiver<Arc<CloudConfig>>,
    /// The clients of the vCenters, by the key of the entry and by the server: while a changed configuration is
    /// applied, an entry may have a client of its old and of its new server.
    clients: Mutex<BTreeMap<(String, String), VcenterClient>>,
    credentials: Arc<Credentials>,
    nsx: Arc<NsxConnection>,
}

struct VcenterClient {
    http: http::Client,
    /// A receiver of the offers, which exist only as long as they have a receiver. So a standby that has led before
    /// knows the credentials when it leads again.
    _offers: Offers,
}

impl Connections {
    /// Registers the metrics, and starts the task that follows the sources of credentials in use.
    fn new(
        vsphere: &Vsphere,
        current: watch::Receiver<Arc<CloudConfig>>,
        parts: &SharedServices,
        stages: &mut Stages,
    ) -> Result<Self, Error> {
        let calls = Arc::new(Calls::register(parts.metrics.registry(), VCENTER)?);
        let proxy = vsphere.proxy.clone();
        let hosts = vsphere.session_manager_hosts.clone();
        let token = vsphere.session_manager_token.clone().unwrap_or_else(|| PathBuf::from(credentials::TOKEN_PATH));
        let directory = PathBuf::from(DEFAULT_DIRECTORY);
        let (credentials, keeping) = Credentials::new(parts.api_server.clients.watch.clone(), hosts, token, directory);
        stages.spawn_until_stop(ShutdownStage::Services, "credentials", async move {
            keeping.await;
            Ok(())
        });
        let certificates = Certificates::register(parts.metrics.registry(), VCENTER)?;
        let nsx = NsxConnection::new(parts.metrics.registry(), current.clone(), credentials.clone(), proxy.clone())?;
        let (clients, nsx) = (Mutex::default(), Arc::new(nsx));
        Ok(Self { calls, certificates, proxy, current, clients, credentials, nsx })
    }

    /// Applies the TLS settings of a new active configuration to the clients of its entries.
    fn update(&self) {
        self.nsx.update();
        let current = Arc::clone(&self.current.borrow());
        let clients = self.clients.lock();
        for entry in &current.config.vcenters {
            if let Some(client) = clients.get(&client_key(entry)) {
                set_tls(&client.http, current.tls.get(&entry.key).cloned().unwrap_or_default());
            }
        }
    }

    /// Drops the clients of entries that the active configuration does not have.
    fn drop_unused(&self) {
        self.nsx.drop_unused();
        let current = Arc::clone(&self.current.borrow());
        let keys: Vec<_> = current.config.vcenters.iter().map(client_key).collect();
        self.clients.lock().retain(|key, _| keys.contains(key));
    }
}

fn client_key(entry: &VcenterConfig) -> (String, String) {
    (entry.key.clone(), host_and_port(&entry.server, entry.port))
}

fn set_tls(client: &http::Client, tls: TlsSettings) {
    // Should not fail: the TLS settings were checked when the files were read.
    if let Err(error) = client.set_tls(tls) {
        tracing::error!("{}", chain(&error));
    }
}

impl Connect for Connections {
    fn http(&self, entry: &VcenterConfig) -> Result<http::Client, String> {
        let tls = self.current.borrow().tls.get(&entry.key).cloned().unwrap_or_default();
        let mut connection = http::Settings::new(&entry.server, entry.port, tls, vim::user_agent(COMMIT));
        connection.observer = Some(Arc::clone(&self.calls));
        connection.proxy = Some(self.proxy.clone());
        let http = http::Client::new(connection).map_err(|error| error.to_string())?;
        self.certificates.show(&http);
        let client = VcenterClient { http: http.clone(), _offers: self.offers(entry) };
        self.clients.lock().insert(client_key(entry), client);
        Ok(http)
    }

    fn offers(&self, entry: &VcenterConfig) -> Offers {
        self.credentials.offers(entry.credential_settings())
    }
}
