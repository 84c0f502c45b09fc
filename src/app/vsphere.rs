//! Builds the vSphere provider from the settings, and starts its background work.

use super::Error;
use super::background::Background;
use super::parts::Parts;
use super::settings::{Settings, Vsphere};
use super::stages::{Stage, Stages};
use crate::clients::http::{self, CallObserver, ProxySettings};
use crate::clients::vim;
use crate::cloud::CloudProvider;
use crate::kubernetes::cluster::Cluster;
use crate::providers::vsphere::config::{Credentials, Vcenter};
use crate::providers::vsphere::credentials::{Credential, Login, Offer, Offers, Origin};
use crate::providers::vsphere::{Connect, Options, Provider};
use crate::runtime::admin::{Checks, Health};
use prometheus::{HistogramOpts, HistogramVec};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Connects to nothing yet: a vCenter that is down delays nothing.
pub fn build(settings: &Settings, parts: &Parts, stages: &mut Stages) -> Result<Arc<dyn CloudProvider>, Error> {
    let vsphere = &settings.vsphere;
    for oddity in &vsphere.oddities {
        tracing::warn!("{oddity}");
    }
    let calls = Arc::new(Calls::register(parts.metrics.registry())?);
    let proxy = ProxySettings::from_environment(|name| std::env::var(name).ok()).map_err(Error::Proxies)?;
    let connections = Arc::new(Connections::new(calls, proxy, vsphere));
    let options = Options {
        file: vsphere.path.display().to_string(),
        tag_poll: vsphere.tag_poll_interval,
        allow_name_match: vsphere.allows_name_match,
        trusts_unseen: false,
    };
    let cluster = Arc::new(Cluster::new(parts.nodes.clone()));
    let stop = stages.stop_signal(Stage::Provider);
    let (provider, tracker) = Provider::new(options, connections, cluster, &stop);
    let provider = Arc::new(provider);
    let mut background = Background::default();
    background.start(tracker);
    for task in provider.apply(&vsphere.config).map_err(Error::Vcenters)? {
        background.start(task);
    }
    stages.spawn(Stage::Provider, "vcenters", async move {
        tokio::select! {
            () = stop.cancelled() => {}
            ended = background.first_unexpected_end() => return Err(ended),
        }
        background.shut_down().await;
        Ok(())
    });
    show_vcenters(&provider, &parts.checks);
    Ok(provider)
}

/// The state of each vCenter, for whoever looks. It fails no probe: an outage must not block a rollout.
fn show_vcenters(provider: &Arc<Provider>, checks: &Checks) {
    let provider = Arc::clone(provider);
    checks.add_readiness_group(move || {
        let show = |(server, trouble): (String, Option<String>)| {
            let health = if trouble.is_some() { Health::Note("unavailable") } else { Health::Ok };
            (format!("vcenter {server}"), health)
        };
        provider.vcenters().into_iter().map(show).collect()
    });
}

/// The clients and credentials of the vCenter entries.
struct Connections {
    calls: Arc<dyn CallObserver>,
    proxy: ProxySettings,
    tls: BTreeMap<String, http::TlsSettings>,
    /// By the key of the entry. Kept, since offers last as long as their sender.
    offers: Mutex<BTreeMap<String, watch::Sender<Arc<Offer>>>>,
}

impl Connections {
    fn new(calls: Arc<dyn CallObserver>, proxy: ProxySettings, vsphere: &Vsphere) -> Self {
        Self { calls, proxy, tls: vsphere.tls.clone(), offers: Mutex::default() }
    }
}

impl Connect for Connections {
    fn http(&self, entry: &Vcenter) -> Result<http::Client, String> {
        let tls = self.tls.get(&entry.key).cloned().unwrap_or_default();
        let mut connection = http::Settings::new(&entry.server, entry.port, tls, vim::USER_AGENT);
        connection.observer = Arc::clone(&self.calls);
        connection.proxy = Some(self.proxy.clone());
        http::Client::new(connection).map_err(|error| error.to_string())
    }

    fn offers(&self, entry: &Vcenter) -> Offers {
        let offer = Arc::new(match &entry.credentials {
            Credentials::Inline { user, password } => {
                let login = Login::Password { user: user.clone(), password: password.clone() };
                Offer::Ready(vec![Arc::new(Credential { login, origin: Origin::Config })])
            }
            Credentials::Secret { .. } | Credentials::Directory(_) => Offer::Missing {
                why: "credentials in a Secret or a directory are not supported yet; expected user and password in the \
                      cloud config"
                    .to_owned(),
            },
        });
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = offers.entry(entry.key.clone()).or_insert_with(|| watch::Sender::new(Arc::clone(&offer)));
        sender.send_if_modified(|known| {
            let is_new = *known != offer;
            *known = offer;
            is_new
        });
        sender.subscribe()
    }
}

/// How long the calls of vCenter take, and how they end.
struct Calls(HistogramVec);

impl Calls {
    fn register(registry: &prometheus::Registry) -> Result<Self, prometheus::Error> {
        let options =
            HistogramOpts::new("vsphere_ccm_vcenter_call_duration_seconds", "Calls, by vCenter and how they ended.");
        let calls = HistogramVec::new(options, &["vcenter", "operation", "outcome"])?;
        registry.register(Box::new(calls.clone()))?;
        Ok(Self(calls))
    }
}

impl CallObserver for Calls {
    fn observed(&self, endpoint: &str, operation: &'static str, outcome: &'static str, duration: Duration) {
        self.0.with_label_values(&[endpoint, operation, outcome]).observe(duration.as_secs_f64());
    }
}
