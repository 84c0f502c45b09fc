//! Answers the commands that ask this process over the local socket. Answers come from snapshots and do not wait for
//! controllers, the API server, vCenter or NSX, except those of `check`, `deletions` and `explain --fresh`, which call
//! with limits.

mod answer_time;
mod bundle;
mod check;
mod completeness;
mod deletions;
mod election;
mod explain;
mod plan;
pub mod protocol;
mod status;

use super::controllers::ControllerTerms;
use super::election::{LeaseSource, hostname};
use super::options::PROGRAM;
use super::pages::flagz;
use super::reports::header::ReportHeader;
use super::settings::{LeaseName, SettingErrors, Settings};
use super::shared_services::SharedServices;
use super::shutdown_order::{ShutdownStage, Stages};
use super::vsphere::VsphereInquiry;
use crate::controllers::decisions::DecisionHistory;
use crate::controllers::node_lifecycle::DeletionMode;
use crate::kubernetes::leader_election::read_lease;
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::stores::{Nodes, Services};
use crate::runtime::admin::Checks;
use crate::runtime::local_socket::{self, RequestHandler};
use crate::runtime::logging::RecentLog;
use crate::runtime::metrics::Metrics;
use async_trait::async_trait;
use check::permissions::{CALLS, PermissionSettings};
use jiff::{Timestamp, Unit};
use plan::PlanSettings;
use protocol::{Answer, Question, Request, version};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The parts of the process that answer questions.
pub struct Inquiries {
    /// Name of the host or Pod.
    host: String,
    leadership: Leadership,
    /// The Lease; `None` without an election.
    lease: Option<LeaseSource>,
    checks: Checks,
    terms: ControllerTerms,
    nodes: Nodes,
    vsphere: VsphereInquiry,
    /// `--adopt-untainted-nodes`.
    adopts_untainted_nodes: bool,
    /// The cached Services that may need or have a load balancer; `None` if this process manages no Services.
    services: Option<Services>,
    permissions: PermissionSettings,
    decisions: DecisionHistory,
    metrics: Metrics,
    log: RecentLog,
    /// All flags with their values, as on the page `/flagz`.
    flags: String,
    /// The namespace of the Leases.
    lease_namespace: String,
    /// The client for reviews of permissions, and for reads of the Lease by a command without a daemon.
    api_server: kube::Client,
    /// The settings that a command without a daemon answers with; `None` in a daemon.
    detached: Option<DetachedSettings>,
    /// Limits how many calls commands make at the same time.
    calls: Semaphore,
}

/// The settings that a command without a daemon answers with, because it knows no term of leadership.
struct DetachedSettings {
    /// The Lease of the election; `None` if the flags turn the election off.
    lease: Option<LeaseName>,
    deletion: DeletionMode,
    /// The settings of the controllers, for `plan`.
    plan: PlanSettings,
}

impl Inquiries {
    /// Collects the parts of a command without a daemon. Reads the Lease once.
    pub async fn observing(parts: &SharedServices, settings: &Settings, vsphere: VsphereInquiry) -> Self {
        let mut inquiries = Self::new(parts, settings, ControllerTerms::default(), vsphere, RecentLog::default());
        let lease = settings.election.as_ref().map(|_| settings.lease.clone());
        if let Some(LeaseName { namespace, name }) = &lease {
            // A Lease that cannot be read has no known holder. `check` reads it again and shows the reason.
            let reading = read_lease(&inquiries.api_server, namespace, name).await;
            let status = reading.ok().flatten().map(|reading| reading.status).unwrap_or_default();
            inquiries.lease = Some(LeaseSource::read_once(namespace, name, status));
        }
        let deletion = settings.node_lifecycle.deletion.clone();
        inquiries.detached = Some(DetachedSettings { lease, deletion, plan: PlanSettings::new(settings) });
        inquiries
    }

    /// Collects the parts.
    pub fn new(
        parts: &SharedServices,
        settings: &Settings,
        terms: ControllerTerms,
        vsphere: VsphereInquiry,
        log: RecentLog,
    ) -> Self {
        Self {
            host: hostname().unwrap_or_else(|| "unknown-host".to_owned()),
            leadership: parts.elections.main.clone(),
            lease: parts.elections.lease.clone(),
            checks: parts.checks.clone(),
            terms,
            nodes: parts.caches.nodes.clone(),
            vsphere,
            adopts_untainted_nodes: settings.nodes.policy.adopts_untainted_nodes,
            services: parts.caches.services.clone(),
            permissions: PermissionSettings::new(settings, parts),
            decisions: parts.decisions.clone(),
            metrics: parts.metrics.clone(),
            log,
            flags: flagz(&settings.options.values),
            lease_namespace: settings.lease_namespace().to_owned(),
            api_server: parts.api_server.clients.auxiliary.clone(),
            calls: Semaphore::new(CALLS),
            detached: None,
        }
    }

    /// Returns the access to the provider.
    pub fn vsphere(&self) -> &VsphereInquiry {
        &self.vsphere
    }

    /// Returns the beginning of a report that is made now.
    fn report_header(&self) -> ReportHeader {
        let leads = self.leadership.is_leader();
        let is_detached = self.detached.is_some();
        let election = election::status(self).filter(|_| !leads && !is_detached);
        ReportHeader {
            version: version(),
            time: whole(Timestamp::now()),
            host: self.host.clone(),
            leads,
            is_detached,
            find_leader: election.map(|election| election.command()),
        }
    }

    async fn answer(&self, request: &[u8]) -> Vec<u8> {
        match protocol::parse(request) {
            Ok(request) => self.respond(request).await,
            Err(reason) => protocol::encode(Err(reason), &BTreeSet::new()),
        }
    }

    /// Returns the encoded response to a request.
    pub async fn respond(&self, request: Request) -> Vec<u8> {
        let Request { question, masks_users, .. } = request;
        let answer = match question {
            Question::Status { vcenter, node } => status::answer(self, vcenter.as_deref(), node.as_deref()),
            Question::Check { node, vcenter, is_deep, is_preflight } => {
                check::answer(self, &check::CheckOptions { node, vcenter, is_deep, is_preflight }).await
            }
            Question::Explain { subject, name, fresh: None } => match &self.detached {
                Some(settings) => explain::first_answer(self, settings, subject, &name).await,
                None => explain::answer(self, subject, &name),
            },
            Question::Explain { subject, name, fresh: Some(limit) } => {
                explain::fresh::answer(self, subject, &name, limit).await
            }
            Question::Deletions(request) => match deletions::answer(self, request).await {
                Ok(answer) => answer,
                Err(reason) => return protocol::encode(Err(reason), &BTreeSet::new()),
            },
            Question::Plan { node } => plan::answer(self, node.as_deref()).await,
            Question::BundlePart { part, from } => bundle::answer(self, part, from.as_deref(), masks_users).await,
            Question::BundleNames => bundle::names::answer(self),
        };
        let users = if masks_users { self.vsphere.users() } else { BTreeSet::new() };
        protocol::encode(Ok(answer), &users)
    }
}

#[async_trait]
impl RequestHandler for Inquiries {
    async fn handle(&self, request: Vec<u8>) -> Vec<u8> {
        self.answer(&request).await
    }
}

/// Returns the answer to `check` if the daemon would not start with its flags and files.
pub fn of_unusable_settings(errors: &SettingErrors) -> Answer {
    let host = hostname().unwrap_or_else(|| "unknown-host".to_owned());
    let report = check::of_unusable_settings(errors, host, whole(Timestamp::now()));
    Answer::Check(Box::new(report))
}

/// Returns the time without fractions of a second.
fn whole(time: Timestamp) -> Timestamp {
    time.round(Unit::Second).unwrap_or(time)
}

/// Serves the local socket. Without a socket, the process works as well, and commands get no answer.
pub fn start(inquiries: Inquiries, stages: &mut Stages) {
    let listener = match local_socket::bind(PROGRAM) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("commands such as status get no answer from this process: no local socket: {error}");
            return;
        }
    };
    let stop = stages.stop_signal(ShutdownStage::Services);
    let served = local_socket::serve(listener, Arc::new(inquiries), stop);
    stages.spawn(ShutdownStage::Services, "local-socket", served);
}
