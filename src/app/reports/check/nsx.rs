//! Pure: the checks of NSX, its load balancers and routes.

use super::catalogue::CheckId;
use super::configuration::{SecretFacts, with_other_login};
use super::connections::{expiry, login_pause, not_verified, with_connection};
use super::nodes::summarized;
use super::nsx_plan::{self, NsxPlanFacts};
use super::{CheckResult, CheckStatus};
use crate::app::reports::status::{HeldObject, NsxStatus};
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
    /// The Secret with the credentials; `None` if they are elsewhere, too.
    pub secret: Option<SecretFacts>,
    /// Whether `vsphere.conf` has load balancers.
    pub has_load_balancers: bool,
    /// Whether `vsphere.conf` has routes.
    pub has_routes: bool,
    /// The plan of a new leader, for a command without a daemon; `None` in a daemon.
    pub plan: Option<NsxPlanFacts>,
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
    let login = login(&subject, facts, &reach);
    let mut results = vec![login_pause(&subject, status.login_pause.as_ref())];
    // A standby has no connection, so it knows no certificate.
    if status.certificate_expiry.is_some() {
        results.push(expiry(&subject, status.certificate_expiry, time, CheckId::X01));
    }
    let objects = objects(&subject, facts, &login, is_deep);
    results.extend([reach, login, name(&subject, facts)]);
    results.extend(objects);
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
        // The login may be older than the failure.
        _ if status.is_logged_in && has_list_failure(status) => CheckResult::needs(ID, subject, CheckId::X07),
        (_, Some(_)) => {
            let age = status.load_balancers.as_ref().and_then(|balancers| balancers.list_age_seconds);
            let age = age.map(|age| format!("; its objects were listed {} ago", duration(age))).unwrap_or_default();
            CheckResult::passed(ID, subject, format!("answers, and the certificate is verified{age}"))
        }
        (Some(failure), None) => {
            let (host, port) = host_and_port(status);
            with_connection(CheckResult::failed(ID, subject, failure), host, port)
                .with_remedy("if the certificate is not accepted: set ca-file in the section NSXT")
        }
        (None, None) if !status.is_in_use => CheckResult::incomplete(ID, subject, "only the leader uses NSX"),
        (None, None) => CheckResult::incomplete(ID, subject, "this process has not connected yet"),
    }
}

/// Returns the reasons why the load balancers or the routes cannot be listed now.
fn list_failures(status: &NsxStatus) -> impl Iterator<Item = &String> {
    let of_balancers = status.load_balancers.as_ref().and_then(|balancers| balancers.list_failure.as_ref());
    let of_routes = status.routes.as_ref().and_then(|routes| routes.failure.as_ref());
    of_balancers.into_iter().chain(of_routes)
}

fn has_list_failure(status: &NsxStatus) -> bool {
    list_failures(status).next().is_some()
}

fn login(subject: &str, facts: &NsxFacts, reach: &CheckResult) -> CheckResult {
    const ID: CheckId = CheckId::X02;
    let NsxFacts { status, secret, .. } = facts;
    match (&status.failure, status.is_logged_in) {
        _ if !status.is_in_use => CheckResult::incomplete(ID, subject, "only the leader uses NSX"),
        (Some(failure), true) => {
            let message = format!("newer credentials are rejected, and older ones are in use: {failure}");
            with_other_login(CheckResult::warning(ID, subject, message), secret.as_ref())
        }
        (None, true) if has_list_failure(status) => CheckResult::needs(ID, subject, CheckId::X07),
        (None, true) => CheckResult::passed(ID, subject, "logged in"),
        _ if matches!(reach.status, CheckStatus::Failed | CheckStatus::Incomplete) => {
            CheckResult::needs(ID, subject, CheckId::X01)
        }
        (Some(failure), false) => with_other_login(CheckResult::failed(ID, subject, failure), secret.as_ref()),
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

fn objects(subject: &str, facts: &NsxFacts, login: &CheckResult, is_deep: bool) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::X07;
    const PASSED: &str = "no load balancer or route is held, and none is left over";
    let status = &facts.status;
    if !facts.has_load_balancers && !facts.has_routes {
        return vec![CheckResult::skipped(ID, subject, "vsphere.conf has neither load balancers nor routes")];
    }
    if let Some(plan) = &facts.plan {
        let mut findings = leftovers(subject, plan.ambiguous_objects, plan.orphans);
        match login.is_passed() {
            true => findings.extend(nsx_plan::findings(subject, plan)),
            false => findings.push(CheckResult::needs(ID, subject, CheckId::X02)),
        }
        return summarized(ID, findings, PASSED, is_deep);
    }
    let are_known = (!facts.has_load_balancers || status.load_balancers.is_some())
        && (!facts.has_routes || status.routes.is_some());
    let mut findings = Vec::new();
    if let Some(balancers) = &status.load_balancers {
        findings.extend(leftovers(subject, balancers.ambiguous_objects, balancers.orphans));
        findings.extend(balancers.held.iter().map(|held| blocked("Service", held)));
    }
    if let Some(routes) = &status.routes {
        findings.extend(routes.held.iter().map(|held| blocked("route", held)));
    }
    findings.extend(list_failures(status).map(|failure| not_listed(subject, status, failure)));
    if !are_known {
        findings.push(CheckResult::incomplete(ID, subject, "only the leader knows the load balancers and routes"));
    } else if !has_list_failure(status) {
        findings.extend(gap(subject, status, login));
    }
    summarized(ID, findings, PASSED, is_deep)
}

/// Returns the result about objects that were not listed or tried yet, or that may have changed since the login ended.
fn gap(subject: &str, status: &NsxStatus, login: &CheckResult) -> Option<CheckResult> {
    const ID: CheckId = CheckId::X07;
    if !login.is_passed() {
        return Some(CheckResult::needs(ID, subject, CheckId::X02));
    }
    let message = "some load balancers or routes were not listed or not synchronized yet";
    (!status.is_complete()).then(|| CheckResult::incomplete(ID, subject, message))
}

fn not_listed(subject: &str, status: &NsxStatus, failure: &str) -> CheckResult {
    let (host, port) = host_and_port(status);
    let message = format!("the objects in NSX cannot be listed: {failure}");
    with_connection(CheckResult::failed(CheckId::X07, subject, message), host, port)
        .with_remedy("if a permission is missing: see docs/reasons.md#nsxnopermission")
}

/// Returns host and port of NSX.
fn host_and_port(status: &NsxStatus) -> (&str, &str) {
    status.server.rsplit_once(':').unwrap_or((&status.server, "443"))
}

/// The remedy for objects that are left over.
const LEFT_OVER: &str = "see docs/nsx/operate.md: the log names the objects, and when they are tried again";

/// Returns the results about objects of unclear owner and about load balancers of deleted Services.
fn leftovers(subject: &str, ambiguous_objects: Option<usize>, orphans: Option<usize>) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::X07;
    let mut found = Vec::new();
    if let Some(objects @ 1..) = ambiguous_objects {
        let objects = count(objects, "object");
        let message = format!("{objects} name this cluster and are not known to be its objects, so they stay");
        found.push(CheckResult::warning(ID, subject, message).with_remedy(LEFT_OVER));
    }
    if let Some(orphans @ 1..) = orphans {
        let message = format!("{} still have load balancers", count(orphans, "deleted Service"));
        found.push(CheckResult::warning(ID, subject, message).with_remedy(LEFT_OVER));
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
pub(super) mod tests;
