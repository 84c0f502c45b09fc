//! Pure: the checks of NSX, its load balancers and routes.

use super::catalogue::CheckId;
use super::connections::{expiry, login_pause, not_verified};
use super::nodes::summarized;
use super::{CheckResult, CheckStatus};
use crate::app::reports::status::{BalancerCounts, HeldObject, NsxStatus};
use crate::app::reports::text::{count, duration};
use jiff::Timestamp;

/// NSX, as far as it is configured.
#[derive(Clone, Debug, PartialEq)]
pub struct NsxFacts {
    /// The connection, as `status` shows it.
    pub status: NsxStatus,
    /// The problem of `--cluster-name`, if it is the default.
    pub name_problem: Option<String>,
    /// Number of objects that name this cluster and have the UID of another cluster; `None` before the first list.
    pub objects_of_other_clusters: Option<usize>,
    /// Whether `vsphere.conf` has load balancers.
    pub has_load_balancers: bool,
    /// Whether `vsphere.conf` has routes.
    pub has_routes: bool,
}

/// Runs all checks of NSX, at this time.
pub fn nsx(facts: Option<&NsxFacts>, time: Timestamp, is_deep: bool) -> Vec<CheckResult> {
    let Some(facts) = facts else {
        let ids = [CheckId::X01, CheckId::X02, CheckId::X06, CheckId::X07];
        return ids.map(|id| CheckResult::skipped(id, "", "NSX is not configured")).into();
    };
    let status = &facts.status;
    let subject = format!("NSX {}", status.server);
    let reach = reach(&subject, status);
    let login = login(&subject, status, &reach);
    let mut results = vec![login_pause(&subject, status.login_pause.as_ref())];
    // A standby has no connection, so it knows no certificate.
    if status.certificate_expiry.is_some() {
        results.push(expiry(&subject, status.certificate_expiry, time, CheckId::X01));
    }
    results.extend([reach, login, name(&subject, facts)]);
    results.extend(objects(&subject, facts, is_deep));
    results
}

fn reach(subject: &str, status: &NsxStatus) -> CheckResult {
    const ID: CheckId = CheckId::X01;
    if !status.is_certificate_verified {
        return not_verified(ID, subject, "set ca-file in the section NSXT in place of insecure-flag");
    }
    match (&status.failure, status.certificate_expiry) {
        // NSX has answered before. Whether it does so now is the question of the login.
        (Some(_), Some(_)) if !status.is_logged_in => CheckResult::needs(ID, subject, CheckId::X02),
        (_, Some(_)) => CheckResult::passed(ID, subject, "answers, and the certificate is verified"),
        (Some(failure), None) => {
            let (host, port) = status.server.rsplit_once(':').unwrap_or((&status.server, "443"));
            CheckResult::failed(ID, subject, failure)
                .with_remedy(format!("on the host of this process: nc -vz {host} {port}"))
                .with_remedy("if the certificate is not accepted: set ca-file in the section NSXT")
        }
        (None, None) if !status.is_in_use => CheckResult::incomplete(ID, subject, "only the leader uses NSX"),
        (None, None) => CheckResult::incomplete(ID, subject, "this process has not connected yet"),
    }
}

fn login(subject: &str, status: &NsxStatus, reach: &CheckResult) -> CheckResult {
    const ID: CheckId = CheckId::X02;
    let remedy = "correct user name and password in the source that C05 names";
    match (&status.failure, status.is_logged_in) {
        _ if !status.is_in_use => CheckResult::incomplete(ID, subject, "only the leader uses NSX"),
        (Some(failure), true) => {
            let message = format!("newer credentials are rejected, and older ones are in use: {failure}");
            CheckResult::warning(ID, subject, message).with_remedy(remedy)
        }
        (None, true) => CheckResult::passed(ID, subject, "logged in"),
        _ if matches!(reach.status, CheckStatus::Failed | CheckStatus::Incomplete) => {
            CheckResult::needs(ID, subject, CheckId::X01)
        }
        (Some(failure), false) => CheckResult::failed(ID, subject, failure).with_remedy(remedy),
        (None, false) => CheckResult::incomplete(ID, subject, "this process has not logged in yet"),
    }
}

fn name(subject: &str, facts: &NsxFacts) -> CheckResult {
    const ID: CheckId = CheckId::X06;
    let remedy = "before the first load balancer or route: set --cluster-name to a name of this cluster alone";
    match (&facts.name_problem, facts.objects_of_other_clusters) {
        (_, Some(objects @ 1..)) => {
            let objects = count(objects, "object");
            let message = format!("{objects} in NSX name this cluster and have the cluster-uid of another cluster");
            CheckResult::failed(ID, subject, message).with_remedy("give one of the two clusters another --cluster-name")
        }
        (Some(problem), _) => CheckResult::warning(ID, subject, problem).with_remedy(remedy),
        (None, None) if facts.has_load_balancers => {
            CheckResult::incomplete(ID, subject, "this process has not listed the objects in NSX yet")
        }
        (None, None) => CheckResult::passed(ID, subject, "--cluster-name is not the default"),
        (None, Some(_)) => {
            let message = "--cluster-name is not the default, and no load balancer of another cluster has it";
            CheckResult::passed(ID, subject, message)
        }
    }
}

fn objects(subject: &str, facts: &NsxFacts, is_deep: bool) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::X07;
    let status = &facts.status;
    if !facts.has_load_balancers && !facts.has_routes {
        return vec![CheckResult::skipped(ID, subject, "vsphere.conf has neither load balancers nor routes")];
    }
    let are_known = (!facts.has_load_balancers || status.load_balancers.is_some())
        && (!facts.has_routes || status.routes.is_some());
    let mut findings = Vec::new();
    if let Some(balancers) = &status.load_balancers {
        findings.extend(leftovers(subject, balancers));
        findings.extend(balancers.held.iter().map(|held| blocked("Service", held)));
    }
    if let Some(routes) = &status.routes {
        findings.extend(routes.held.iter().map(|held| blocked("route", held)));
    }
    if !are_known {
        findings.push(CheckResult::incomplete(ID, subject, "only the leader knows the load balancers and routes"));
    }
    summarized(ID, findings, "no load balancer or route is held, and none is left over", is_deep)
}

fn leftovers(subject: &str, balancers: &BalancerCounts) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::X07;
    let mut found = Vec::new();
    if let Some(objects @ 1..) = balancers.ambiguous_objects {
        let objects = count(objects, "object");
        let message = format!("{objects} name this cluster and are not known to be its objects, so they stay");
        found.push(CheckResult::warning(ID, subject, message));
    }
    if let Some(orphans @ 1..) = balancers.orphans {
        let message = format!("{} still have load balancers", count(orphans, "deleted Service"));
        found.push(CheckResult::warning(ID, subject, message));
    }
    found
}

fn blocked(kind: &str, held: &HeldObject) -> CheckResult {
    let HeldObject { name, reason, for_seconds, .. } = held;
    let message = format!("held for {}: {reason}", duration(*for_seconds));
    CheckResult::failed(CheckId::X07, &format!("{kind} {name}"), message)
        .with_remedy(format!("see docs/reasons.md#{}", reason.to_lowercase()))
}

#[cfg(test)]
mod tests;
