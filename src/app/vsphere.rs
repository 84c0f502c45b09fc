//! Builds the vSphere provider from the settings, and starts its background work.

mod metrics;

use super::Error;
use super::background::Background;
use super::credentials::Credentials;
use super::parts::Parts;
use super::settings::Settings;
use super::stages::{Stage, Stages};
use crate::clients::http::{self, CallObserver, ProxySettings};
use crate::clients::vim;
use crate::cloud::CloudProvider;
use crate::kubernetes::cluster::Cluster;
use crate::kubernetes::login_ledger::{LeaseStore, Ledger};
use crate::providers::vsphere::config::Vcenter;
use crate::providers::vsphere::credentials::Offers;
use crate::providers::vsphere::{Connect, Options, Provider};
use crate::runtime::admin::{Checks, Health};
use metrics::{Calls, Certificates};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Connects to nothing yet: a vCenter that is down delays nothing.
pub fn build(settings: &Settings, parts: &Parts, stages: &mut Stages) -> Result<Arc<dyn CloudProvider>, Error> {
    let vsphere = &settings.vsphere;
    for oddity in &vsphere.oddities {
        tracing::warn!("{oddity}");
    }
    let calls = Arc::new(Calls::register(parts.metrics.registry())?);
    let proxy = ProxySettings::from_environment(|name| std::env::var(name).ok()).map_err(Error::Proxies)?;
    let current = watch::Sender::new(Arc::clone(vsphere));
    let (credentials, keeping) = Credentials::new(parts.clients.watch.clone(), current.subscribe());
    stages.spawn_until_stop(Stage::Services, "credentials", async move {
        keeping.await;
        Ok(())
    });
    let certificates = Certificates::register(parts.metrics.registry())?;
    let tls = vsphere.tls.clone();
    let connections = Arc::new(Connections { calls, certificates, proxy, tls, credentials });
    let options = Options {
        file: vsphere.path.display().to_string(),
        tag_poll: vsphere.tag_poll_interval,
        allow_name_match: vsphere.allows_name_match,
        trusts_unseen: false,
    };
    let cluster = Arc::new(Cluster::new(parts.nodes.clone()));
    let stop = stages.stop_signal(Stage::Provider);
    // Beside the Lease of the leader election, whose rights suffice.
    let namespace = settings.election.as_ref().map_or("kube-system", |election| election.namespace.as_str());
    let ledger = Arc::new(Ledger::new(LeaseStore::new(parts.clients.auxiliary.clone(), namespace)));
    let (provider, tracker) = Provider::new(options, connections, ledger, cluster, &stop);
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
    certificates: Certificates,
    proxy: ProxySettings,
    tls: BTreeMap<String, http::TlsSettings>,
    credentials: Credentials,
}

impl Connect for Connections {
    fn http(&self, entry: &Vcenter) -> Result<http::Client, String> {
        let tls = self.tls.get(&entry.key).cloned().unwrap_or_default();
        let mut connection = http::Settings::new(&entry.server, entry.port, tls, vim::USER_AGENT);
        connection.observer = Arc::clone(&self.calls);
        connection.proxy = Some(self.proxy.clone());
        let client = http::Client::new(connection).map_err(|error| error.to_string())?;
        self.certificates.show(&client);
        Ok(client)
    }

    fn offers(&self, entry: &Vcenter) -> Offers {
        self.credentials.offers(entry)
    }
}
