//! Reloads `vsphere.conf` and CA files while the process runs. A valid configuration is applied without dropping
//! caches. An invalid configuration is rejected, and the previous configuration stays active.

mod differences;
mod watch;

use super::{Connections, Error};
use crate::app::reports::status::ConfigurationStatus;
use crate::app::settings::vsphere::CloudConfig;
use crate::app::settings::{Standby, Vsphere};
use crate::base::error_chain::chain;
use crate::kubernetes::events::EventType;
use crate::kubernetes::leader_election::LeaseEvents;
use crate::providers::vsphere::Provider;
use crate::providers::vsphere::config::{Config, PartName};
use crate::providers::{BuildError, Task};
use crate::runtime::metrics::{Registry, counter_vec, gauge, int_gauge_vec, metrics};
use crate::runtime::tasks::{BoxError, EndCause, TaskEnded, Tasks};
use differences::differences;
use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::{Gauge, IntCounterVec, IntGaugeVec};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, watch as latest};
use tokio_util::sync::CancellationToken;

/// Reason of Events about an invalid configuration.
const INVALID: &str = "InvalidCloudConfig";

/// Maximum number of repeated reads of the Lease, before an Event is written without the UID of the Lease.
const LEASE_READS: usize = 5;

/// Pause before each repeated read of the Lease.
const LEASE_PAUSE: Duration = Duration::from_secs(2);

/// Time limit for the tasks to end: less than the 7 s of `ShutdownStage::Provider`, so that remaining tasks are logged
/// by name.
const GRACE: Duration = Duration::from_millis(6_500);

/// The task that applies changes of the files and runs the background tasks of the provider.
pub struct Reload {
    /// The provider to configure.
    pub provider: Arc<Provider>,
    /// The clients and credentials of the provider.
    pub connections: Arc<Connections>,
    /// The background tasks of the provider.
    pub background: Background,
    /// The path of `vsphere.conf`.
    pub file: PathBuf,
    /// Publishes the active configuration to the parts that follow it.
    pub current: latest::Sender<Arc<CloudConfig>>,
    /// Whether this process keeps sessions while it does not lead.
    pub standby: Standby,
    /// Whether this process leads.
    pub leads: latest::Receiver<bool>,
    /// Writes Events about the Lease of the election, because the names of the Pod and the ConfigMap are unknown.
    pub events: Arc<LeaseEvents>,
    /// The state of `vsphere.conf`, for status output.
    pub status: Arc<Mutex<ConfigurationStatus>>,
    /// The metrics of reloads.
    pub metrics: ReloadMetrics,
    /// Whether routes are on without `--cluster-cidr`. A configuration with routes is then rejected, as at the start.
    pub lacks_cluster_cidr: bool,
}

/// Returns the receiver of changes, and the task that polls the files.
pub fn watch(
    vsphere: &Vsphere,
) -> (mpsc::Receiver<watch::ReloadResult>, impl Future<Output = Result<(), BoxError>> + Send + 'static) {
    let (sender, receiver) = mpsc::channel(1);
    (receiver, watch::run(Arc::new(vsphere.file.clone()), vsphere.fingerprints.clone(), sender))
}

impl Reload {
    /// Applies changes of files and leadership until `stop`, then waits for the provider's tasks.
    pub async fn run(
        mut self,
        mut changes: mpsc::Receiver<watch::ReloadResult>,
        stop: CancellationToken,
    ) -> Result<(), BoxError> {
        self.metrics.succeeded();
        self.metrics.show_parts(&self.current.borrow().config);
        let report = report_refused_parts(self.current.borrow().clone(), Arc::clone(&self.events));
        tokio::pin!(report);
        let mut is_reported = false;
        loop {
            tokio::select! {
                () = &mut report, if !is_reported => is_reported = true,
                () = stop.cancelled() => break,
                ended = self.background.first_unexpected_end() => return Err(ended),
                Some(outcome) = changes.recv() => self.take(outcome).await,
                Ok(()) = self.leads.changed(), if self.standby == Standby::Cold => self.change_role(),
            }
        }
        self.background.shut_down().await;
        Ok(())
    }

    /// Applies a changed configuration, or rejects and reports it.
    async fn take(&mut self, outcome: watch::ReloadResult) {
        let before = Arc::clone(&self.current.borrow());
        // At the start, an invalid part is turned off. A reload with an invalid part is rejected instead, so that the
        // part keeps working with the active configuration.
        let new = match outcome.and_then(|new| new.without_refused_parts(Some(&before))) {
            Ok(new) => Arc::new(new),
            Err(mistakes) => return self.refuse(&mistakes.to_string()).await,
        };
        if self.lacks_cluster_cidr && new.config.routes.used().is_some() {
            return self.refuse(&format!("{}: routes: {}", self.file.display(), Error::NoClusterCidr)).await;
        }
        let changes = differences(&before, &new);
        for oddity in new.notices.iter().filter(|oddity| !before.notices.contains(oddity)) {
            tracing::warn!("{oddity}");
        }
        self.activate(Arc::clone(&new));
        let applied = self.apply();
        if applied.is_err() {
            self.activate(before);
        }
        self.connections.drop_unused();
        if let Err(errors) = applied {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return self.refuse(&errors.join("; ")).await;
        }
        self.metrics.succeeded();
        self.metrics.show_parts(&new.config);
        for unverified in new.unverified() {
            tracing::warn!("{unverified}");
        }
        let file = self.file.display();
        if changes.is_empty() {
            self.metrics.count("unchanged");
            self.status.lock().accept(false, Timestamp::now());
            tracing::info!("{file} was read again and changes nothing");
        } else {
            self.metrics.count("applied");
            self.status.lock().accept(true, Timestamp::now());
            tracing::info!("{file} was read again and is in effect: {}", changes.join("; "));
        }
    }

    fn activate(&self, cloud_config: Arc<CloudConfig>) {
        self.current.send_replace(cloud_config);
        self.connections.update();
    }

    async fn refuse(&self, errors: &str) {
        self.metrics.count("refused");
        self.status.lock().refused = Some(errors.to_owned());
        tracing::error!("the changed cloud config is invalid, and the previous one stays in effect: {errors}");
        self.events.recorder.event(&self.events.reference().await, EventType::Warning, INVALID, errors);
    }

    fn change_role(&mut self) {
        let leads = *self.leads.borrow_and_update();
        tracing::info!(leads, "{}", if leads { "connecting to the vCenters" } else { "leaving the vCenters" });
        if let Err(errors) = self.apply() {
            // Should not fail: the entries were accepted when the file was read.
            tracing::error!("{}", Error::Vcenters(errors));
        }
    }

    /// Applies the active configuration to the provider.
    ///
    /// # Errors
    /// Entries that cannot be used. The provider is then unchanged.
    pub fn apply(&mut self) -> Result<(), Vec<BuildError>> {
        let cloud_config = Arc::clone(&self.current.borrow());
        let config = match self.standby == Standby::Warm || *self.leads.borrow() {
            true => cloud_config.config.clone(),
            false => Config { vcenters: Vec::new(), ..cloud_config.config.clone() },
        };
        for task in self.provider.apply(&config)? {
            self.background.start(task);
        }
        Ok(())
    }
}

/// Reports the parts that are turned off at the start. Waits for the Lease, which a new cluster lacks at first: without
/// the UID of the Lease, `kubectl describe` does not show the Event.
async fn report_refused_parts(cloud_config: Arc<CloudConfig>, events: Arc<LeaseEvents>) {
    let errors: Vec<_> =
        cloud_config.rejected.iter().map(|(part, error)| format!("{part} is turned off: {error}")).collect();
    if errors.is_empty() {
        return;
    }
    for error in &errors {
        tracing::error!("a part of the cloud config is invalid, the other parts are in effect: {error}");
    }
    let mut reference = events.reference().await;
    for _ in 0..LEASE_READS {
        if reference.uid.is_some() {
            break;
        }
        tokio::time::sleep(LEASE_PAUSE).await;
        reference = events.reference().await;
    }
    events.recorder.event(&reference, EventType::Warning, INVALID, &errors.join("; "));
}

/// The provider's background tasks, which start and end while the process runs. Dropping this value aborts all tasks.
#[derive(Default)]
pub struct Background {
    tasks: Tasks,
}

impl Background {
    /// Starts a task. An end before the stop signal of the task is unexpected.
    pub fn start(&mut self, task: Task) {
        let Task { name, stop, run } = task;
        self.tasks.spawn(name, async move {
            run.await;
            if stop.is_cancelled() { Ok(()) } else { Err("nothing was left to do".into()) }
        });
    }

    /// Completes when a task ends without its stop signal. Cancel-safe.
    pub async fn first_unexpected_end(&mut self) -> BoxError {
        loop {
            match self.tasks.first_unexpected_end().await {
                TaskEnded { name, cause: EndCause::Finished } => tracing::debug!(task = name, "task ended"),
                ended => return ended.into(),
            }
        }
    }

    /// Waits up to `GRACE` until all tasks have ended, and aborts the remaining tasks. The caller must have sent the
    /// stop signals of the tasks.
    pub async fn shut_down(self) {
        if let Err(still_running) = self.tasks.shut_down(GRACE).await {
            tracing::warn!("{}", chain(&still_running));
        }
    }
}

metrics! {
    /// Metrics of reloads: results, parts that are turned off, and time of the last valid configuration.
    pub struct ReloadMetrics {
        reloads: IntCounterVec = counter_vec("vsphere_ccm_config_reloads_total",
            "Changed contents of vsphere.conf and the files it names, by what became of them.", &["result"]),
        part_refused: IntGaugeVec = int_gauge_vec("vsphere_ccm_config_part_refused",
            "Whether the part of the configuration is turned off because of errors in vsphere.conf or the \
             environment (1) or not (0).",
            &["part"]),
        last_success: Gauge = gauge("vsphere_ccm_config_last_success_timestamp_seconds",
            "When vsphere.conf and the files it names were last read and accepted."),
    }
}

impl ReloadMetrics {
    /// Registers the metrics. Fails if `registry` already has a metric with one of the names.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self::default();
        for result in ["applied", "unchanged", "refused"] {
            metrics.reloads.with_label_values(&[result]);
        }
        for part in PartName::ALL {
            metrics.part_refused.with_label_values(&[part.as_str()]);
        }
        registry.register(Box::new(metrics.clone()))?;
        Ok(metrics)
    }

    fn show_parts(&self, config: &Config) {
        for part in PartName::ALL {
            self.part_refused.with_label_values(&[part.as_str()]).set(i64::from(config.is_refused(part)));
        }
    }

    fn count(&self, result: &str) {
        self.reloads.with_label_values(&[result]).inc();
    }

    fn succeeded(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_success.set(now.as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
