//! Collects the report of `status`.

use super::completeness::nodes_gap;
use super::protocol::{Answer, version};
use super::{Inquiries, election, whole};
use crate::app::controllers::ControllerSource;
use crate::app::reports::deletion_pause::DeletionPauseStatus;
use crate::app::reports::status::{
    BalancerCounts, ConfigurationStatus, ControllerStatus, DeletedNodeStatus, DeletionStatus, HeldObject, NodeCounts,
    NsxStatus, PauseStatus, RouteCounts, StatusNote, StatusReport, VcenterStatus, is_same_server,
};
use crate::cloud::Reason;
use crate::controllers::BlockedObject;
use crate::controllers::node::NodeReconciler;
use crate::controllers::node_lifecycle::deletion_history::PastDeletion;
use crate::controllers::node_lifecycle::deletion_pause::DeletionPause;
use crate::controllers::node_lifecycle::pause_monitor::{PauseMonitor, PauseReport};
use crate::controllers::node_lifecycle::recent_deletions::NodeDeletion;
use crate::controllers::node_lifecycle::{DeletionMode, LifecycleStatus, reason};
use crate::providers::vsphere::VcenterReport;
use crate::providers::vsphere::login::LoginPause;
use crate::providers::vsphere::nsx::services::NsxReport;
use crate::runtime::admin::Health;
use jiff::Timestamp;
use tokio::time::Instant;

/// Prefixes of the checks about vCenters and NSX.
const SERVERS: [&str; 2] = ["vcenter ", "nsx "];

/// Returns the report about the process, or only about a vCenter (by host, or host and port) and a Node.
pub(super) fn answer(process: &Inquiries, vcenter: Option<&str>, node: Option<&str>) -> Answer {
    match selected(process, vcenter, node) {
        Ok(report) => Answer::Status(Box::new(report)),
        Err(not_found) => not_found,
    }
}

/// Returns the state of the process, or only that of a vCenter and of a Node.
///
/// # Errors
/// The answer that the process does not know the vCenter or the Node.
pub(super) fn selected(process: &Inquiries, vcenter: Option<&str>, node: Option<&str>) -> Result<StatusReport, Answer> {
    require_known(process, vcenter, node)?;
    let mut report = report(process, node);
    if process.detached.is_some() {
        // The command ends before the next poll.
        for vcenter in &mut report.vcenters {
            vcenter.next_tag_poll_seconds = None;
        }
    }
    report.vcenters.retain(|one| vcenter.is_none_or(|server| is_same_server(&one.server, server)));
    Ok(report)
}

/// Checks that the process knows the vCenter and the Node.
///
/// # Errors
/// The answer that it does not.
pub(super) fn require_known(process: &Inquiries, vcenter: Option<&str>, node: Option<&str>) -> Result<(), Answer> {
    if let Some(wanted) = vcenter {
        let reports = process.vsphere.vcenter_reports();
        let servers: Vec<String> = reports.into_iter().map(|report| report.server).collect();
        // A standby may not be connected, and then has no names.
        if !servers.is_empty() && !servers.iter().any(|server| is_same_server(server, wanted)) {
            return Err(Answer::not_found("vcenter", wanted, servers));
        }
    }
    match node {
        Some(name) if !process.nodes.contains(name) && nodes_gap(process).is_none() => {
            Err(Answer::not_found("node", name, process.nodes.keys()))
        }
        _ => Ok(()),
    }
}

fn report(process: &Inquiries, node: Option<&str>) -> StatusReport {
    let configuration = process.vsphere.configuration();
    StatusReport {
        version: version(),
        time: whole(Timestamp::now()),
        host: process.host.clone(),
        leads: process.leadership.is_leader(),
        is_detached: process.detached.is_some(),
        election: election::status(process),
        controllers: controllers(process),
        configuration: ConfigurationStatus { read: whole(configuration.read), ..configuration },
        vcenters: process.vsphere.vcenter_reports().into_iter().map(vcenter).collect(),
        nsx: process.vsphere.nsx_report().map(|report| nsx(process, report)),
        nodes: process.terms.node.as_ref().and_then(|term| term.get()).map(|term| nodes(&term, node)),
        deletion: process
            .terms
            .lifecycle
            .as_ref()
            .and_then(|term| term.get())
            .map(|term| deletion(process, term.status(), node)),
        deletion_pause: process.terms.deletion_pauses.as_deref().map(deletion_pause),
        notes: notes(process),
    }
}

/// Returns the states of the controllers.
pub(super) fn controllers(process: &Inquiries) -> Vec<ControllerStatus> {
    let status = |source: &ControllerSource| {
        let (state, reason) = source.state();
        ControllerStatus { name: source.name.to_owned(), state, reason: reason.map(str::to_owned) }
    };
    process.terms.sources.iter().map(status).collect()
}

fn nodes(term: &NodeReconciler, selected: Option<&str>) -> NodeCounts {
    let status = term.status();
    let held = held(status.blocked, |_| false);
    let Some(name) = selected else {
        let waiting = status.nodes.saturating_sub(status.settled).saturating_sub(held.len());
        return NodeCounts { nodes: status.nodes, settled: status.settled, waiting, held, selected: None };
    };
    let held: Vec<_> = held.into_iter().filter(|held| held.name == name).collect();
    let settled = usize::from(term.is_settled(name));
    let waiting = 1_usize.saturating_sub(settled).saturating_sub(held.len());
    NodeCounts { nodes: 1, settled, waiting, held, selected: Some(name.to_owned()) }
}

fn vcenter(report: VcenterReport) -> VcenterStatus {
    let now = Instant::now();
    let age = |since: Instant| now.saturating_duration_since(since).as_secs();
    VcenterStatus {
        server: report.server,
        inventory_age_seconds: report.lag.map(|lag| lag.as_secs().max(u64::from(!lag.is_zero()))),
        failure: report.failure.clone(),
        virtual_machines: report.virtual_machines,
        // The session of a connection that has failed may be over.
        session_age_seconds: report.session.since.filter(|_| report.failure.is_none()).map(age),
        rejected_credentials: report.rejected_credentials,
        is_certificate_verified: report.certificate.is_verified,
        certificate_expiry: report.certificate.expiry.and_then(|expiry| Timestamp::from_second(expiry).ok()),
        tags_age_seconds: report.tag_reads.last.map(age),
        next_tag_poll_seconds: report.tag_reads.next.map(|next| next.saturating_duration_since(now).as_secs()),
        tag_failure: report.tag_failure,
        login_pause: report.login_pause.map(|one| pause(one, report.login_reset)),
    }
}

fn nsx(process: &Inquiries, report: NsxReport) -> NsxStatus {
    let balancers = process.terms.service.as_ref().and_then(|term| term.get()).map(|term| {
        let status = term.status();
        BalancerCounts {
            ensured: status.ensured,
            waiting: status.waiting,
            held: held(status.blocked, |_| false),
            ambiguous_objects: report.balancers.map(|counts| counts.ambiguous),
            orphans: report.balancers.map(|counts| counts.orphans),
            list_age_seconds: report.balancer_list.last.map(|last| last.elapsed().as_secs()),
            list_failure: report.balancer_list.failure,
        }
    });
    let routes = process.terms.route.as_ref().and_then(|term| term.get()).map(|term| {
        let status = term.status();
        RouteCounts {
            are_listed: status.are_listed,
            failure: status.failure,
            ready: status.ready,
            pending: status.pending,
            held: held(status.blocked, |_| false),
        }
    });
    NsxStatus {
        server: report.server,
        is_in_use: report.is_in_use,
        is_logged_in: report.login.is_logged_in,
        failure: report.login.failure.or(report.login.rejected_credentials),
        is_certificate_verified: report.certificate.is_verified,
        certificate_expiry: report.certificate.expiry.and_then(|expiry| Timestamp::from_second(expiry).ok()),
        login_pause: report.login_pause.map(|one| pause(one, report.login_reset)),
        load_balancers: balancers,
        routes,
    }
}

/// Returns the mode as `--node-deletion` spells it.
pub(super) fn mode_of(mode: &DeletionMode) -> &'static str {
    match mode {
        DeletionMode::Enforce => "enforce",
        DeletionMode::DryRun => "dry-run",
        DeletionMode::Off { .. } => "off",
    }
}

/// Returns the pause of deletions.
pub(super) fn deletion_pause(pauses: &PauseMonitor) -> DeletionPauseStatus {
    let PauseReport { pause, is_known, failure } = pauses.report();
    let mut status = DeletionPauseStatus {
        namespace: pauses.namespace().to_owned(),
        is_paused: is_known.then_some(pause.is_some()),
        failure,
        ..DeletionPauseStatus::default()
    };
    match pause {
        Some(DeletionPause::Until { until, cause }) => {
            status.until = Some(until);
            status.cause = cause;
        }
        Some(DeletionPause::Unreadable { fault }) => status.message = Some(fault),
        None => {}
    }
    status
}

/// Returns the state of deletions, or only that of one Node.
pub(super) fn deletion(process: &Inquiries, status: LifecycleStatus, node: Option<&str>) -> DeletionStatus {
    let mut pending = held(status.blocked, reason::is_expected);
    pending.retain(|held| node.is_none_or(|node| held.name == node));
    DeletionStatus {
        mode: mode_of(&status.mode).to_owned(),
        allowance: status.allowance,
        limit: status.capacity,
        is_mass_held: status.is_mass_held,
        unanswered: status.unanswered,
        pending,
        last: last_deletion(process, status.last_deletion),
    }
}

/// Returns the last deletion: the one by this process, or a later one on the Lease.
fn last_deletion(process: &Inquiries, own: Option<NodeDeletion>) -> Option<DeletedNodeStatus> {
    let own = own.map(|deletion| DeletedNodeStatus {
        name: deletion.node,
        uid: deletion.uid,
        time: whole(deletion.proof_began),
        proof: deletion.proof.to_string(),
        replica: process.host.clone(),
    });
    let past = process.terms.deletion_pauses.as_ref().map(|pauses| pauses.past_deletions()).unwrap_or_default();
    let of_lease = |deletion: PastDeletion| DeletedNodeStatus {
        name: deletion.node,
        uid: deletion.uid,
        time: whole(deletion.time),
        proof: deletion.proof,
        replica: deletion.replica,
    };
    let is_gone = |deletion: &PastDeletion| {
        let node = process.nodes.get(&deletion.node);
        !deletion.has_failed(node.as_ref().and_then(|node| node.metadata.uid.as_deref()))
    };
    // Of the same deletion in both places, the one of this process is last.
    past.into_iter().filter(is_gone).map(of_lease).chain(own).max_by_key(|deletion| deletion.time)
}

/// Returns the failed checks, the remarks of the other checks, and the parts of the configuration that are turned off.
fn notes(process: &Inquiries) -> Vec<StatusNote> {
    let mut notes = process.vsphere.rejected_parts();
    for (subject, health) in process.checks.all() {
        let (is_finding, message) = match health {
            Health::Ok => continue,
            Health::Note(_) if has_own_line(process, &subject) => continue,
            Health::Note(note) => (false, note.into_owned()),
            Health::Failed(reason) => (true, reason),
        };
        let note = StatusNote { is_finding, subject, message };
        // A check may be part of several probes.
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Whether the subject of a check is a server or a controller, which have lines of their own.
fn has_own_line(process: &Inquiries, subject: &str) -> bool {
    let is_controller = process.terms.sources.iter().any(|source| source.name == subject);
    is_controller || SERVERS.iter().any(|prefix| subject.starts_with(prefix))
}

fn held(blocked: Vec<BlockedObject>, is_expected: fn(Reason) -> bool) -> Vec<HeldObject> {
    let held = |blocked: BlockedObject| HeldObject {
        is_expected: is_expected(blocked.reason),
        name: blocked.key,
        reason: blocked.reason.as_str().to_owned(),
        for_seconds: blocked.blocked_for.as_secs(),
    };
    blocked.into_iter().map(held).collect()
}

fn pause(pause: LoginPause, reset_command: Option<String>) -> PauseStatus {
    PauseStatus { until: whole(pause.until), cause: pause.cause, reset_command }
}
