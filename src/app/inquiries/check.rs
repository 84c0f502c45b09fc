//! Collects the facts of `check` from what this process knows, and runs the checks. The checks themselves are pure.

pub(super) mod accounts;
mod inspection;
mod lease;
mod nodes;
pub(super) mod permissions;
mod workloads;

use super::protocol::{Answer, version};
use super::{DetachedSettings, Inquiries, status};
use crate::app::reports::check::catalogue::CheckId;
use crate::app::reports::check::configuration::{
    ConfigurationFacts, CredentialFacts, CredentialSourceState, SecretFacts,
};
use crate::app::reports::check::connections::VcenterFacts;
use crate::app::reports::check::nodes::{NodeCheckFacts, NodeChecksInput};
use crate::app::reports::check::nsx::NsxFacts;
use crate::app::reports::check::nsx_plan::NsxPlanFacts;
use crate::app::reports::check::nsx_resources::{self, InspectionFacts};
use crate::app::reports::check::observation::LeaseFacts;
use crate::app::reports::check::{
    CheckReport, CheckResult, CheckSummary, configuration, connections, kubernetes, nodes as node_checks, nsx,
    observation, resolve_needs,
};
use crate::app::reports::header::ReportHeader;
use crate::app::reports::status::{StatusNote, StatusReport};
use crate::app::settings::SettingErrors;
use crate::app::vsphere::CredentialReport;
use crate::base::addresses::host_and_port;
use crate::providers::vsphere::config::{AddressRule, AddressRules, Config, Credentials, NsxLogin, VcenterConfig};
use crate::providers::vsphere::login::credentials::source::SourceLocation;
use crate::providers::vsphere::login::credentials::{CredentialState, Login};
use crate::providers::vsphere::nodes::metadata::addresses::rule_matches::unmatched_rules;
use crate::runtime::admin::Health;
use accounts::Accounts;
use jiff::Timestamp;

/// The check of the probe `/healthz` that fails if this process leads and does not renew the Lease.
const ELECTION_CHECK: &str = "leaderElection";

/// The options of `check`.
pub(super) struct CheckOptions {
    /// The only Node to check; all Nodes without it.
    pub node: Option<String>,
    /// The only vCenter to check; all vCenters without it.
    pub vcenter: Option<String>,
    /// Whether more findings are named.
    pub is_deep: bool,
    /// Whether the checks of a running daemon do not apply.
    pub is_preflight: bool,
}

/// What `check` read with calls.
struct CheckReadings {
    accounts: Accounts,
    /// The Lease; `None` in a daemon, which knows it, and without an election.
    lease: Option<LeaseFacts>,
    inspection: InspectionFacts,
    /// The plan of a new leader in NSX; `None` in a daemon.
    nsx_plan: Option<NsxPlanFacts>,
}

/// Runs the checks. If the Node or the vCenter is not known, returns the nearest names.
pub(super) async fn answer(process: &Inquiries, options: &CheckOptions) -> Answer {
    // Before any call, because a mistyped name needs none.
    if let Err(not_found) = status::require_known(process, options.vcenter.as_deref(), options.node.as_deref()) {
        return not_found;
    }
    let permissions = permissions::check(process);
    let accounts = accounts::read(process, options.vcenter.as_deref());
    let kubernetes = async { tokio::join!(permissions, workloads::check(process, options.is_preflight)) };
    let nsx = async { tokio::join!(inspection::read(process), inspection::plan(process)) };
    let ((permissions, workloads), accounts, lease, (inspection, nsx_plan)) =
        tokio::join!(kubernetes, accounts, lease::read(process), nsx);
    let state = match status::selected(process, options.vcenter.as_deref(), options.node.as_deref()) {
        Ok(state) => state,
        Err(not_found) => return not_found,
    };
    let readings = CheckReadings { accounts, lease, inspection, nsx_plan };
    let mut checks = permissions;
    checks.extend(workloads);
    checks.extend(of_process(process, &state, &readings, options));
    if options.is_preflight {
        checks = observation::before_installation(checks);
    }
    Answer::Check(Box::new(report(state, checks)))
}

/// Returns the report if the daemon would not start with its flags and files.
pub(super) fn of_unusable_settings(errors: &SettingErrors, host: String, time: Timestamp) -> CheckReport {
    let texts: Vec<String> = errors.errors.iter().map(ToString::to_string).collect();
    let mut checks = observation::unusable_settings(&texts, &errors.warnings);
    checks.sort_by_key(|check| check.id);
    CheckReport {
        header: ReportHeader { version: version(), time, host, leads: false, is_detached: true, find_leader: None },
        summary: CheckSummary::new(&checks),
        checks,
    }
}

fn report(state: StatusReport, mut checks: Vec<CheckResult>) -> CheckReport {
    // A stable sort: subjects stay in their order.
    checks.sort_by_key(|check| check.id);
    resolve_needs(&mut checks);
    let is_standby = !state.leads && !state.is_detached;
    let find_leader = state.election.as_ref().filter(|_| is_standby).map(|election| election.command());
    let StatusReport { version, time, host, leads, is_detached, .. } = state;
    CheckReport {
        header: ReportHeader { version, time, host, leads, is_detached, find_leader },
        summary: CheckSummary::new(&checks),
        checks,
    }
}

/// Runs the checks that need no call, and those of the accounts that were read.
fn of_process(
    process: &Inquiries,
    state: &StatusReport,
    reads: &CheckReadings,
    options: &CheckOptions,
) -> Vec<CheckResult> {
    let users = users(&process.vsphere.credential_reports());
    let nodes = process.nodes.is_ready().then(|| nodes::facts(process, options.node.as_deref(), &users));
    let mut checks = vec![of_lease(process, state, reads.lease.as_ref(), options)];
    checks.extend(of_kubelets(process, nodes.as_deref(), options.is_deep));
    checks.extend(of_configuration(process, state));
    checks.extend(of_servers(process, state, reads, options.is_deep));
    let subject = state.nsx.as_ref().map(|nsx| format!("NSX {}", nsx.server)).unwrap_or_default();
    checks.extend(nsx_resources::resources(&subject, &reads.inspection));
    checks.extend(of_nodes(process, state, nodes.as_deref(), options.is_deep));
    checks
}

/// The reason why nothing is known of Nodes right after the start.
const NODES_NOT_READ: &str = "the Nodes were not read yet";

fn of_lease(
    process: &Inquiries,
    state: &StatusReport,
    lease: Option<&LeaseFacts>,
    options: &CheckOptions,
) -> CheckResult {
    if process.detached.is_some() {
        return observation::lease(lease, state.time, options.is_preflight);
    }
    let mut failures = process.checks.all().into_iter().filter_map(|(name, health)| match health {
        Health::Failed(reason) if name == ELECTION_CHECK => Some(reason),
        _ => None,
    });
    let failure = failures.next();
    kubernetes::lease(state.election.as_ref(), state.leads, failure.as_deref())
}

fn of_kubelets(process: &Inquiries, nodes: Option<&[NodeCheckFacts]>, is_deep: bool) -> Vec<CheckResult> {
    let Some(nodes) = nodes else {
        return [CheckId::K09, CheckId::K10].map(|id| CheckResult::incomplete(id, "", NODES_NOT_READ)).into();
    };
    let mut results = kubernetes::external_kubelets(nodes, process.adopts_untainted_nodes, is_deep);
    results.extend(kubernetes::foreign_nodes(nodes, is_deep));
    results
}

fn of_configuration(process: &Inquiries, state: &StatusReport) -> Vec<CheckResult> {
    let cloud_config = process.vsphere.cloud_config();
    let part = |note: StatusNote| (note.subject, note.message);
    let facts = ConfigurationFacts {
        status: state.configuration.clone(),
        rejected_parts: process.vsphere.rejected_parts().into_iter().map(part).collect(),
        notices: cloud_config.notices.iter().map(ToString::to_string).collect(),
    };
    let mut results = configuration::file(&facts);
    if process.detached.is_some() {
        results.retain(|result| result.id != CheckId::C02);
        results.push(observation::in_effect());
    }
    let credentials = process.vsphere.credential_reports();
    if credentials.is_empty() {
        results.push(CheckResult::incomplete(CheckId::C05, "", NOT_CONNECTED));
    }
    let config = &cloud_config.config;
    results.extend(credentials.iter().map(|report| configuration::credentials(&of_credentials(report, config))));
    results
}

/// The reason why a standby without sessions knows nothing of vCenters.
const NOT_CONNECTED: &str = "this process connects to the vCenters when it leads";

/// Returns the user name of each vCenter with a user name and a password. The first credentials are tried first.
fn users(reports: &[CredentialReport]) -> nodes::Users {
    let user = |report: &CredentialReport| {
        let CredentialState::Ready(credentials) = &*report.state else { return None };
        let user = credentials.iter().find_map(|credential| match &credential.login {
            Login::Password { user, .. } => Some(user.clone()),
            Login::Certificate { .. } | Login::SharedSession { .. } => None,
        })?;
        Some((report.server.clone(), user))
    };
    reports.iter().filter(|report| report.is_of_vcenter).filter_map(user).collect()
}

/// Returns the Secret that is the only place of the credentials for a server. A key of a Secret cannot contain an IPv6
/// address.
fn secret_of(report: &CredentialReport, config: &Config) -> Option<SecretFacts> {
    let (prefix, sources) = match report.is_of_vcenter {
        true => {
            let is_server = |vcenter: &&VcenterConfig| host_and_port(&vcenter.server, vcenter.port) == report.server;
            let vcenter = config.vcenters.iter().find(is_server)?;
            let sources = [Some(&vcenter.credentials), vcenter.fallback_credentials.as_ref()];
            (format!("{}.", vcenter.server), sources)
        }
        false => match &config.nsx.used()?.login {
            NsxLogin::Pair { credentials, fallback } => (String::new(), [Some(credentials), fallback.as_ref()]),
            NsxLogin::Certificate { .. } | NsxLogin::VmcToken { .. } => return None,
        },
    };
    let [Some(Credentials::Stored(SourceLocation::Secret { namespace, name })), None] = sources else { return None };
    (!prefix.contains(':')).then(|| SecretFacts {
        namespace: namespace.clone(),
        name: name.clone(),
        user_key: format!("{prefix}username"),
        password_key: format!("{prefix}password"),
    })
}

fn of_credentials(report: &CredentialReport, config: &Config) -> CredentialFacts {
    let product = if report.is_of_vcenter { "vCenter" } else { "NSX" };
    let state = match &*report.state {
        CredentialState::Ready(credentials) => CredentialSourceState::Ready(
            credentials
                .iter()
                .map(|credential| format!("{} of {}", credential.login.kind(), credential.origin))
                .collect(),
        ),
        CredentialState::Pending { reason } => CredentialSourceState::Pending(reason.clone()),
        CredentialState::Unreadable { reason } => CredentialSourceState::Unreadable(reason.clone()),
        CredentialState::Missing { reason } => CredentialSourceState::Missing(reason.clone()),
    };
    CredentialFacts { subject: format!("{product} {}", report.server), state, secret: secret_of(report, config) }
}

fn of_servers(process: &Inquiries, state: &StatusReport, reads: &CheckReadings, is_deep: bool) -> Vec<CheckResult> {
    let time = state.time;
    let cloud_config = process.vsphere.cloud_config();
    let reports = process.vsphere.vcenter_reports();
    let credentials = process.vsphere.credential_reports();
    let users = users(&credentials);
    let secret = |is_of_vcenter: bool, server: &str| {
        let is_server = |report: &&CredentialReport| report.is_of_vcenter == is_of_vcenter && report.server == server;
        credentials.iter().find(is_server).and_then(|report| secret_of(report, &cloud_config.config))
    };
    let mut results = Vec::new();
    for vcenter in &state.vcenters {
        let report = reports.iter().find(|report| report.server == vcenter.server);
        let facts = VcenterFacts {
            status: vcenter.clone(),
            failed_step: report.and_then(|report| report.failed_step),
            account: reads.accounts.get(&vcenter.server).cloned(),
            has_zones: cloud_config.config.labels.is_some(),
            user: users.get(&vcenter.server).cloned(),
            secret: secret(true, &vcenter.server),
        };
        results.extend(connections::vcenter(&facts, time));
    }
    if state.vcenters.is_empty() {
        results.extend(connections::CHECKS.map(|id| CheckResult::incomplete(id, "", NOT_CONNECTED)));
    }
    let counts = process.vsphere.nsx_report().and_then(|report| report.balancers);
    let nsx_facts = state.nsx.as_ref().map(|status| NsxFacts {
        status: status.clone(),
        objects_of_other_clusters: counts.map(|counts| counts.of_other_clusters),
        secret: secret(false, &status.server),
        name_problem: process.vsphere.name_problem().map(str::to_owned),
        has_load_balancers: cloud_config.config.load_balancers.used().is_some(),
        has_routes: cloud_config.config.routes.used().is_some(),
        plan: reads.nsx_plan.clone(),
    });
    results.extend(nsx::nsx(nsx_facts.as_ref(), time, is_deep));
    results
}

/// Whether there are network names or subnets to choose addresses from.
fn has_rules(rules: &AddressRules) -> bool {
    let has_any = |rule: &AddressRule| rule.network_name.is_some() || !rule.networks.is_empty();
    has_any(&rules.internal) || has_any(&rules.external)
}

fn of_nodes(
    process: &Inquiries,
    state: &StatusReport,
    nodes: Option<&[NodeCheckFacts]>,
    is_deep: bool,
) -> Vec<CheckResult> {
    let has_zones = process.vsphere.cloud_config().config.labels.is_some();
    let mut results = match nodes {
        Some(nodes) => node_checks::vms(&NodeChecksInput { nodes, has_zones, is_deep }),
        None => node_checks::CHECKS.map(|id| CheckResult::incomplete(id, "", NODES_NOT_READ)).into(),
    };
    let cloud_config = process.vsphere.cloud_config();
    let rules = &cloud_config.config.addresses;
    let unmatched = unmatched_rules(rules, &nodes::live_vms(process));
    results.extend(configuration::address_rules(&unmatched, has_rules(rules)));
    results.push(match &process.detached {
        Some(DetachedSettings { deletion, .. }) => observation::deletion(status::mode_of(deletion), nodes),
        None => {
            let is_paused = state.deletion_pause.as_ref().is_some_and(|pause| pause.is_paused == Some(true));
            node_checks::deletion(state.deletion.as_ref(), is_paused)
        }
    });
    results
}
