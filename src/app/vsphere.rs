//! Builds the vSphere provider from the settings, and starts its background work.

use super::Error;
use super::parts::Parts;
use super::settings::Settings;
use super::stages::{Stage, Stages};
use crate::clients::http::{self, CallObserver};
use crate::clients::vim;
use crate::cloud::CloudProvider;
use crate::kubernetes::cluster::Cluster;
use crate::providers::vsphere::{Options, Provider, config::Vcenter};
use crate::runtime::admin::{Checks, Health};
use prometheus::{HistogramOpts, HistogramVec};
use std::sync::Arc;
use std::time::Duration;

/// Connects to nothing yet: a vCenter that is down delays nothing.
pub fn build(settings: &Settings, parts: &Parts, stages: &mut Stages) -> Result<Arc<dyn CloudProvider>, Error> {
    let vsphere = &settings.vsphere;
    for oddity in &vsphere.oddities {
        tracing::warn!("{oddity}");
    }
    let calls: Arc<dyn CallObserver> = Arc::new(Calls::register(parts.metrics.registry())?);
    let connect = |vcenter: &Vcenter| {
        let tls = vsphere.tls.get(&vcenter.key).cloned().unwrap_or_default();
        let mut connection = http::Settings::new(&vcenter.server, vcenter.port, tls, vim::USER_AGENT);
        connection.observer = Arc::clone(&calls);
        let client = http::Client::new(connection).map_err(|error| error.to_string())?;
        Ok((client.clone(), client))
    };
    let options = Options { tag_poll: vsphere.tag_poll_interval, allow_name_match: vsphere.allows_name_match };
    let cluster = Arc::new(Cluster::new(parts.nodes.clone()));
    let stop = stages.stop_signal(Stage::Provider);
    let (provider, tasks) =
        Provider::build(&vsphere.config, &options, connect, cluster, &stop).map_err(Error::Vcenters)?;
    for (name, task) in tasks {
        stages.spawn(Stage::Provider, name, async move {
            task.await;
            Ok(())
        });
    }
    let provider = Arc::new(provider);
    show_vcenters(&provider, &parts.checks);
    Ok(provider)
}

/// The state of each vCenter, for whoever looks. It fails no probe: an outage must not block a rollout.
fn show_vcenters(provider: &Arc<Provider>, checks: &Checks) {
    for (index, (server, _)) in provider.vcenters().into_iter().enumerate() {
        let provider = Arc::clone(provider);
        checks.add_readiness(format!("vcenter {server}"), move || match provider.vcenters().get(index) {
            Some((_, Some(_))) => Health::Note("unavailable"),
            _ => Health::Ok,
        });
    }
}

/// How long the calls of vCenter take, and how they end.
struct Calls(HistogramVec);

impl Calls {
    fn register(registry: &prometheus::Registry) -> Result<Self, prometheus::Error> {
        let options =
            HistogramOpts::new("vsphere_ccm_vcenter_call_duration_seconds", "Calls of vCenter, by how they ended.");
        let calls = HistogramVec::new(options, &["operation", "outcome"])?;
        registry.register(Box::new(calls.clone()))?;
        Ok(Self(calls))
    }
}

impl CallObserver for Calls {
    fn observed(&self, operation: &'static str, outcome: &'static str, duration: Duration) {
        self.0.with_label_values(&[operation, outcome]).observe(duration.as_secs_f64());
    }
}
