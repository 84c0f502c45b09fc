//! `explain vcenter SERVER`: session, trust, inventory, tags and logins of one vCenter.

use super::{Explanation, not_known};
use crate::app::inquiries::completeness::NOT_CONNECTED;
use crate::app::inquiries::{Inquiries, whole};
use crate::app::reports::explain::{Section, SubjectState};
use crate::app::reports::status::is_same_server;
use crate::app::reports::text::{count, duration};
use crate::providers::vsphere::VcenterReport;
use jiff::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

/// Explains the vCenter with this host, or host and port.
///
/// # Errors
/// The servers that the process has.
pub(super) fn explain(process: &Inquiries, name: &str) -> Result<Explanation, Vec<String>> {
    let reports = process.vsphere.vcenter_reports();
    if reports.is_empty() {
        return Ok(not_known(format!("vCenter {name}"), NOT_CONNECTED));
    }
    let Some(report) = reports.iter().find(|report| is_same_server(&report.server, name)) else {
        return Err(reports.into_iter().map(|report| report.server).collect());
    };
    Ok(explanation(report, process.detached.is_some()))
}

fn explanation(report: &VcenterReport, is_detached: bool) -> Explanation {
    let mut findings = findings(report);
    let (state, summary) = match findings.facts.first() {
        Some(first) => (SubjectState::Held, first.text.clone()),
        None => (SubjectState::Settled, "connected, current".to_owned()),
    };
    // The summary has the first finding already.
    if findings.facts.len() == 1 {
        findings.facts.clear();
    }
    let sections = vec![findings, inventory(report), session(report), tags(report, is_detached)];
    Explanation { subject: format!("vCenter {}", report.server), summary, state, sections }
}

fn findings(report: &VcenterReport) -> Section {
    let mut section = Section::new("Findings");
    if let Some(failure) = &report.failure {
        section.add_finding("inventory", format!("not current: {failure}"));
    }
    if let Some(why) = &report.rejected_credentials {
        section.add_finding("credentials", format!("the new credentials are rejected: {why}"));
    }
    if let Some(pause) = &report.login_pause {
        let until = whole(pause.until);
        section.add_finding("logins", format!("logins are paused until {until}: {}", pause.cause));
    }
    if let Some(why) = &report.tag_failure {
        section.add_finding("tags", format!("zones and regions stay as they are: {why}"));
    }
    if !report.certificate.is_verified {
        section.add_finding("trust", "insecure-flag is on, so the certificate is not verified");
    }
    section
}

fn inventory(report: &VcenterReport) -> Section {
    let mut section = Section::new("Inventory");
    let state = match report.lag {
        Some(Duration::ZERO) => "changes arrive as they happen".to_owned(),
        Some(lag) => format!("was current {} ago", duration(lag.as_secs())),
        None => "nothing was read yet".to_owned(),
    };
    section.add("state", state);
    section
        .add_some("last answer", report.last_answer.map(|last| format!("{} ago", duration(last.elapsed().as_secs()))));
    let (vms, ancestors) = (count(report.virtual_machines, "VM"), count(report.ancestors, "object"));
    section.add("cached", format!("{vms} behind Nodes, {ancestors} above them"));
    section
}

fn session(report: &VcenterReport) -> Section {
    let mut section = Section::new("Session");
    let session = &report.session;
    // The session of a connection that has failed may be over.
    let since = session.since.filter(|_| report.failure.is_none());
    section.add_some("age", since.map(|since| duration(since.elapsed().as_secs())));
    let (accepted, rejected) = (session.soap_logins + session.rest_logins, session.rejections);
    section.add("logins", format!("{accepted} accepted, {rejected} rejected, {} unanswered", session.unanswered));
    let trust = if report.certificate.is_verified { "verified" } else { "not verified" };
    let expiry = report.certificate.expiry.and_then(|expiry| Timestamp::from_second(expiry).ok());
    let expiry = expiry.map(|expiry| format!(", expires {expiry}")).unwrap_or_default();
    section.add("certificate", format!("{trust}{expiry}"));
    section.add_some("next attempt", report.next_attempt.map(remaining));
    section
}

/// Returns the time until `next` in words.
fn remaining(next: Instant) -> String {
    format!("in {}", duration(next.saturating_duration_since(Instant::now()).as_secs()))
}

/// Returns the polls of the tags. A detached command ends before the next one.
fn tags(report: &VcenterReport, is_detached: bool) -> Section {
    let mut section = Section::new("Tags");
    let now = Instant::now();
    section
        .add_some("last poll", report.tag_reads.last.map(|last| format!("{} ago", duration((now - last).as_secs()))));
    section.add_some("next poll", report.tag_reads.next.filter(|_| !is_detached).map(remaining));
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::explain::ExplainReport;
    use crate::app::reports::golden::assert_golden;
    use crate::providers::vsphere::login::LoginPause;

    fn texts(section: &Section) -> Vec<(&str, &str)> {
        section.facts.iter().map(|fact| (fact.label.as_str(), fact.text.as_str())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn last_answer_and_next_attempt_are_shown_while_they_are_known() {
        let now = Instant::now();
        tokio::time::advance(Duration::from_secs(90)).await;
        let report = VcenterReport {
            lag: Some(Duration::from_secs(90)),
            last_answer: Some(now),
            next_attempt: Some(Instant::now() + Duration::from_secs(7)),
            ..VcenterReport::default()
        };
        let held = "0 VMs behind Nodes, 0 objects above them";
        let expected = [("state", "was current 1 m 30 s ago"), ("last answer", "1 m 30 s ago"), ("cached", held)];
        assert_eq!(texts(&inventory(&report)), expected);
        assert_eq!(texts(&session(&report)).last(), Some(&("next attempt", "in 7 s")));
        let report = VcenterReport { next_attempt: None, ..report };
        assert_eq!(texts(&session(&report)).last(), Some(&("certificate", "not verified")));
    }

    #[tokio::test(start_paused = true)]
    async fn the_document_is_the_golden_file() {
        let last = Instant::now();
        tokio::time::advance(Duration::from_secs(90)).await;
        let until = "2026-11-24T03:20:00Z".parse().unwrap();
        let mut report = VcenterReport {
            server: "vc.example.com:443".to_owned(),
            lag: Some(Duration::from_secs(90)),
            virtual_machines: 12,
            ancestors: 9,
            failure: Some("logins are paused".to_owned()),
            last_answer: Some(last),
            next_attempt: Some(Instant::now() + Duration::from_secs(7)),
            login_pause: Some(LoginPause { until, cause: "three rejections".to_owned(), is_of_rejection: true }),
            ..VcenterReport::default()
        };
        report.certificate.is_verified = true;
        report.session.rejections = 3;
        report.tag_reads.last = Some(last);
        let report = explanation(&report, false).report_of_test();
        assert_golden("explain-vcenter", ExplainReport::KIND, report.verdict(), &report);
    }
}
