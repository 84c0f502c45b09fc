//! Reads for a command without a daemon: starts the parts that read, waits until they have read, answers, and stops
//! them.
//!
//! There is no election, controller, secure port or local socket, no Event is written, and leadership never begins. So
//! the only writes are those of the login throttle, in which each login is claimed as by a daemon.

use super::inquiries::Inquiries;
use super::inquiries::protocol::{ExplainSubject, Question, Request};
use super::options::{self, Invocation, PROGRAM, UsageError};
use super::settings::{self, SettingErrors};
use super::shared_services::SharedServices;
use super::shutdown_order::Stages;
use super::vsphere::CredentialReport;
use super::{Error, build_provider, files::SystemFiles};
use crate::cloud::{CloudProvider, Presence, Unknown};
use crate::kubernetes::stores::{Nodes, Services};
use crate::providers::vsphere::VcenterReport;
use crate::providers::vsphere::config::Environment;
use crate::providers::vsphere::login::LoginPause;
use crate::providers::vsphere::login::credentials::CredentialState;
use crate::providers::vsphere::vcenter::snapshot::ConnectionStep;
use crate::runtime::core_dumps;
use crate::runtime::local_socket::RequestHandler as _;
use jiff::Timestamp;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Interval at which the readers are checked.
const POLL: Duration = Duration::from_millis(50);

/// Maximum wait for tags and for the look-up of Nodes, after each vCenter has connected or failed. A tag that the
/// account may not read, or a Node whose provider ID and VM disagree, would otherwise use up the time of the command.
const PATIENCE: Duration = Duration::from_secs(5);

/// Part of the command's remaining time in which the parts may read. The rest is for the answer.
const READ_SHARE: f64 = 0.8;

/// Reason why the observer cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum ObserverError {
    /// The flags are misspelled, or ask for something other than the daemon.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The flags or the files that they name are invalid.
    #[error("the daemon would not start with these settings: {0}")]
    Settings(SettingErrors),
    /// The parts cannot be started.
    #[error(transparent)]
    Start(Box<Error>),
    /// The login throttle allows no login now. Each item names a server, the end of the pause and its cause.
    #[error(
        "no login now, so that the account is not locked: {}. Try again after that time, or ask the running process, \
         which needs no login",
        .0.join("; ")
    )]
    LoginsPaused(Vec<String>),
    /// The API server did not answer in time.
    #[error("the API server did not answer in time")]
    Late,
}

/// The parts that read, with their running tasks.
pub struct Observer {
    inquiries: Inquiries,
    provider: Arc<dyn CloudProvider>,
    nodes: Nodes,
    services: Option<Services>,
    stages: Stages,
}

impl Observer {
    /// Starts the parts. `flags` are those of the daemon, without the name of the program; its environment variables
    /// count, too. Waits for a DNS lookup and one read of the Lease, at most until `end`.
    ///
    /// # Errors
    /// The flags or the files are wrong, the credentials for the API server cannot be used, or it is `end`.
    pub async fn start(flags: &[OsString], end: Instant) -> Result<Self, ObserverError> {
        // Must run before any secret is read. A failure is no reason to answer nothing.
        let _ = core_dumps::turn_off();
        // Fails only if a crypto provider is already installed. No other code of this program installs a provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let arguments = std::iter::once(OsString::from(PROGRAM)).chain(flags.iter().cloned());
        let options = match options::parse(arguments)? {
            Invocation::Run(options) => options,
            Invocation::Print(_) => {
                return Err(UsageError::new("--help and --version are no flags of a command").into());
            }
        };
        let environment = Environment::new(std::env::vars_os());
        let settings = settings::resolve(&options, &SystemFiles, &environment).map_err(ObserverError::Settings)?;
        let mut stages = Stages::default();
        let error = match timeout_at(end, start_parts(&settings, &mut stages)).await {
            Ok(Ok((parts, provider, inquiries))) => {
                let (nodes, services) = (parts.caches.nodes.clone(), parts.caches.services.clone());
                return Ok(Self { inquiries, provider, nodes, services, stages });
            }
            Ok(Err(error)) => ObserverError::Start(Box::new(error)),
            Err(_) => ObserverError::Late,
        };
        stages.stop().await;
        Err(error)
    }

    /// Waits until the parts have read what the question needs, and returns the encoded response. A part that could not
    /// be read until `end` is reported as not known.
    ///
    /// # Errors
    /// The login throttle allows no login to a server that the question needs.
    pub async fn respond(&self, request: Request, end: Instant) -> Result<Vec<u8>, ObserverError> {
        let needs_nsx = needs_nsx(&request.question);
        let left = end.saturating_duration_since(Instant::now());
        // What was read by then is the answer.
        let _ = timeout_at(Instant::now() + left.mul_f64(READ_SHARE), self.read(needs_nsx)).await;
        let paused = self.paused_logins(needs_nsx);
        if !paused.is_empty() {
            return Err(ObserverError::LoginsPaused(paused));
        }
        Ok(self.inquiries.respond(request).await)
    }

    /// Returns the encoded response to the bytes of a request, as a process returns it over its local socket. Waits for
    /// nothing that is still being read.
    pub async fn respond_to_bytes(&self, request: Vec<u8>) -> Vec<u8> {
        self.inquiries.handle(request).await
    }

    /// Logs out and stops all tasks, in a few seconds.
    pub async fn stop(self) {
        self.stages.stop().await;
    }

    async fn read(&self, needs_nsx: bool) {
        let of_nsx = async {
            if needs_nsx && let Some(provider) = self.inquiries.vsphere().provider() {
                provider.read_nsx_once().await;
            }
        };
        tokio::join!(of_nsx, self.read_vcenters());
    }

    async fn read_vcenters(&self) {
        let mut settled_since = None;
        while !self.has_read(&mut settled_since) {
            sleep(POLL).await;
        }
        if let Some(instances) = self.provider.instances_v2() {
            // The look-ups then include all that was read.
            instances.refresh().await;
        }
    }

    /// Whether everything is read that can be read. `settled_since` is the time at which each vCenter had connected or
    /// failed.
    fn has_read(&self, settled_since: &mut Option<Instant>) -> bool {
        let vsphere = self.inquiries.vsphere();
        let (reports, credentials) = (vsphere.vcenter_reports(), vsphere.credential_reports());
        let are_listed = self.nodes.is_ready()
            && self.services.as_ref().is_none_or(|services| services.is_ready() || services.is_refused());
        if !are_listed || !reports.iter().all(|report| has_settled(report, &credentials)) {
            return false;
        }
        let settled_since = *settled_since.get_or_insert_with(Instant::now);
        if !reports.iter().all(is_current) || settled_since.elapsed() >= PATIENCE {
            return true;
        }
        let has_zones = vsphere.cloud_config().config.labels.is_some();
        let are_tags_read = !has_zones || reports.iter().all(|report| report.tag_reads.last.is_some());
        are_tags_read && self.are_nodes_found()
    }

    /// Whether the look-up of each Node has ended.
    fn are_nodes_found(&self) -> bool {
        let Some(provider) = self.inquiries.vsphere().provider() else { return true };
        let is_pending = |presence| matches!(presence, Presence::Unknown(Unknown { is_transient: true, .. }));
        !self.nodes.list().any(|node| is_pending(provider.vm_of(&node)))
    }

    /// Returns a text for each server to which the login throttle allows no login now. A rejection of a login of this
    /// command is a finding instead, which the answer has.
    fn paused_logins(&self, needs_nsx: bool) -> Vec<String> {
        let vsphere = self.inquiries.vsphere();
        // A pause of other credentials, or of the other interface, hinders nothing that was read.
        let is_unread = |report: &VcenterReport| !is_current(report) || report.tag_failure.is_some();
        let of_vcenters = vsphere.vcenter_reports().into_iter().filter(is_unread);
        let of_vcenters = of_vcenters.map(|report| (format!("vCenter {}", report.server), report.login_pause));
        let of_nsx = vsphere.nsx_report().filter(|report| needs_nsx && !report.login.is_logged_in);
        let of_nsx = of_nsx.map(|report| (format!("NSX {}", report.server), report.login_pause));
        let paused = of_vcenters.chain(of_nsx).filter_map(|(server, pause)| paused_login(&server, pause?));
        paused.collect()
    }
}

async fn start_parts(
    settings: &settings::Settings,
    stages: &mut Stages,
) -> Result<(SharedServices, Arc<dyn CloudProvider>, Inquiries), Error> {
    let parts = SharedServices::prepare_observer(settings, stages).await?;
    let (provider, vsphere) = build_provider(settings, &parts, stages)?;
    let inquiries = Inquiries::observing(&parts, settings, vsphere).await;
    Ok((parts, provider, inquiries))
}

/// Whether the answer has something that only NSX knows. Other explanations cost no login there.
fn needs_nsx(question: &Question) -> bool {
    match question {
        Question::Status { .. } | Question::Check { .. } | Question::Plan { .. } => true,
        Question::Explain { subject, .. } => matches!(subject, ExplainSubject::Route | ExplainSubject::Service),
        // Only a running process changes deletions and has what a bundle contains.
        Question::Deletions(_) | Question::BundlePart { .. } | Question::BundleNames => false,
    }
}

/// Whether the first connection has succeeded or failed. Credentials that are not read yet, and a login that waits for
/// another login of the account, are no failures.
fn has_settled(report: &VcenterReport, credentials: &[CredentialReport]) -> bool {
    let is_missing = |credential: &CredentialReport| {
        credential.is_of_vcenter
            && credential.server == report.server
            && matches!(&*credential.state, CredentialState::Missing { .. })
    };
    match report.failed_step {
        _ if is_current(report) => true,
        None => false,
        Some(ConnectionStep::Credentials) => credentials.iter().any(is_missing),
        Some(ConnectionStep::Login) => {
            report.login_pause.is_some() || report.session.rejections + report.session.unanswered > 0
        }
        Some(_) => true,
    }
}

fn is_current(report: &VcenterReport) -> bool {
    report.lag == Some(Duration::ZERO)
}

fn paused_login(server: &str, pause: LoginPause) -> Option<String> {
    let LoginPause { until, cause, is_of_rejection } = pause;
    let is_over = until <= Timestamp::now();
    (!is_of_rejection && !is_over).then(|| format!("logins to {server} are paused until {until}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(step: ConnectionStep) -> VcenterReport {
        VcenterReport {
            server: "vc:443".to_owned(),
            failed_step: Some(step),
            failure: Some("no".to_owned()),
            ..VcenterReport::default()
        }
    }

    fn pause(is_of_rejection: bool) -> LoginPause {
        LoginPause { until: Timestamp::MAX, cause: "three rejections".to_owned(), is_of_rejection }
    }

    #[test]
    fn a_vcenter_has_settled_when_it_is_current_or_its_first_attempt_has_failed() {
        let credentials =
            |state| vec![CredentialReport { is_of_vcenter: true, server: "vc:443".to_owned(), state: Arc::new(state) }];
        let pending = || CredentialState::Pending { reason: String::new() };
        let missing = || CredentialState::Missing { reason: String::new() };
        let current = VcenterReport { lag: Some(Duration::ZERO), ..failed(ConnectionStep::Reads) };
        let mut rejected = failed(ConnectionStep::Login);
        rejected.session.rejections = 1;
        let paused = VcenterReport { login_pause: Some(pause(false)), ..failed(ConnectionStep::Login) };
        for (case, report, state, expected) in [
            ("not tried", VcenterReport::default(), pending(), false),
            ("current", current, pending(), true),
            ("no network", failed(ConnectionStep::Network), pending(), true),
            ("credentials are being read", failed(ConnectionStep::Credentials), pending(), false),
            ("no credentials", failed(ConnectionStep::Credentials), missing(), true),
            ("another login of the account is under way", failed(ConnectionStep::Login), pending(), false),
            ("rejected", rejected, pending(), true),
            ("paused", paused, pending(), true),
        ] {
            assert_eq!(has_settled(&report, &credentials(state)), expected, "{case}");
        }
    }

    #[test]
    fn a_pause_of_the_login_throttle_is_named_and_a_rejection_of_this_command_is_not() {
        let named = paused_login("vCenter vc:443", pause(false)).unwrap();
        assert!(named.starts_with("logins to vCenter vc:443 are paused until ") && named.ends_with("three rejections"));
        assert_eq!(paused_login("vc:443", pause(true)), None);
        let over = LoginPause { until: Timestamp::UNIX_EPOCH, ..pause(false) };
        assert_eq!(paused_login("vc:443", over), None);
    }

    #[tokio::test]
    async fn flags_that_are_misspelled_or_print_something_are_wrong_usage() {
        for flag in ["--cloud-confg=x", "--version", "--help"] {
            let error = Observer::start(&[OsString::from(flag)], in_a_minute()).await.err().unwrap();
            assert!(matches!(error, ObserverError::Usage(_)), "{flag}: {error}");
        }
    }

    #[tokio::test]
    async fn a_missing_file_is_an_error_of_the_settings() {
        let flag = OsString::from("--cloud-config=/nonexistent/vsphere.conf");
        let error = Observer::start(&[flag], in_a_minute()).await.err().unwrap();
        assert!(error.to_string().contains("/nonexistent/vsphere.conf"), "{error}");
    }

    fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test]
    async fn an_api_server_that_never_answers_ends_the_start_in_time() {
        // Connections are accepted by the system, and nothing reads them.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cloud_config = folder.path().join("vsphere.conf");
        let text = "vcenter:\n  vc:\n    server: 127.0.0.1\n    user: u\n    password: p\n    datacenters: [dc]\n";
        std::fs::write(&cloud_config, text).unwrap();
        let cloud_config = format!("--cloud-config={}", cloud_config.display());
        let flags = [format!("--master=http://{address}"), cloud_config].map(OsString::from);
        let error = Observer::start(&flags, Instant::now() + Duration::from_millis(300)).await.err().unwrap();
        assert!(matches!(error, ObserverError::Late), "{error}");
    }
}
