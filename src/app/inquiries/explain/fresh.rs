//! `explain --fresh`: reads again what an explanation depends on, with the sessions and limits of this process, and
//! compares it with what the process knows. The reads write nothing, log in nowhere, and change nothing that a
//! controller knows.

mod differences;
mod nsx;
mod objects;
mod vms;

use super::{not_known, report};
use crate::app::inquiries::Inquiries;
use crate::app::inquiries::check::permissions::TOTAL_LIMIT;
use crate::app::inquiries::completeness::nodes_gap;
use crate::app::inquiries::protocol::{Answer, ExplainSubject};
use crate::app::reports::explain::fresh::{FreshObject, FreshReading, ServerCalls};
use crate::clients::http::CallCounter;
use crate::kubernetes::call::count_requests;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Maximum wait for a turn: commands of `check` and other reads make at most two calls at the same time.
const TURN_LIMIT: Duration = Duration::from_secs(5);

/// Returns the explanation of the subject with this name and what was read again within `limit`, or the nearest names.
pub(in crate::app::inquiries) async fn answer(
    process: &Inquiries,
    subject: ExplainSubject,
    name: &str,
    limit: Duration,
) -> Answer {
    let known = super::answer(process, subject, name);
    if matches!(known, Answer::NotFound { .. }) && !may_be_unseen(subject) {
        return known;
    }
    let reading = read(process, subject, name, limit.min(TOTAL_LIMIT)).await;
    // Again, because the process may have learnt during the reads what they show.
    match super::answer(process, subject, name) {
        Answer::Explain(mut report) => {
            report.fresh = Some(reading);
            Answer::Explain(report)
        }
        Answer::NotFound { .. } if reading.has_differences() || !reading.is_complete() => {
            let gap = nodes_gap(process).unwrap_or_else(|| gap_of(&reading).to_owned());
            let mut unseen = report(process, not_known(format!("{} {name}", subject.as_str()), &gap));
            unseen.fresh = Some(reading);
            Answer::Explain(Box::new(unseen))
        }
        other => other,
    }
}

/// Returns the reason why a subject that the process does not know may exist.
fn gap_of(reading: &FreshReading) -> &'static str {
    match reading.has_differences() {
        true => "the API server has it, and this process has not seen it yet, or leaves it out by a selector",
        false => "this process has not seen it, and the API server did not say whether it exists",
    }
}

/// Whether the API server may have an object of this name that the process has not seen.
fn may_be_unseen(subject: ExplainSubject) -> bool {
    match subject {
        ExplainSubject::Node | ExplainSubject::Deletion | ExplainSubject::Route | ExplainSubject::Service => true,
        // The process knows all vCenters. It watches only VMs that match a Node, so that a name says nothing.
        ExplainSubject::Vcenter | ExplainSubject::Vm | ExplainSubject::Ip => false,
    }
}

async fn read(process: &Inquiries, subject: ExplainSubject, name: &str, limit: Duration) -> FreshReading {
    let end = Instant::now() + limit;
    let Ok(turn) = timeout(TURN_LIMIT.min(limit), process.calls.acquire()).await else {
        let failure = "two other commands make calls at the moment (check, or explain --fresh): run the command again";
        return FreshReading { failure: Some(failure.to_owned()), ..FreshReading::default() };
    };
    let calls = CallCounter::default();
    let requests = Arc::new(AtomicU64::new(0));
    let mut objects: Vec<FreshObject> = Vec::new();
    let reads = calls.count(count_requests(&requests, read_subject(process, subject, name, &mut objects)));
    let is_late = timeout_at(end, reads).await.is_err();
    drop(turn);
    let failure = is_late.then(|| format!("the answers took longer than {:.1} s", limit.as_secs_f32()));
    FreshReading { calls: by_server(process, &calls, requests.load(Ordering::Relaxed)), objects, failure }
}

/// Reads what the explanation of the subject depends on, and adds each object as soon as it is read.
async fn read_subject(process: &Inquiries, subject: ExplainSubject, name: &str, objects: &mut Vec<FreshObject>) {
    match subject {
        ExplainSubject::Node | ExplainSubject::Deletion => {
            objects.push(objects::node(process, name).await);
            vms::of_node(process, name, objects).await;
        }
        ExplainSubject::Vm => vms::of_name(process, name, objects).await,
        ExplainSubject::Ip => vms::of_address(process, name, objects).await,
        ExplainSubject::Vcenter => vms::account(process, name, objects).await,
        ExplainSubject::Service => {
            objects.push(objects::service(process, name).await);
            nsx::of_service(process, name, objects).await;
        }
        ExplainSubject::Route => {
            objects.push(objects::node(process, name).await);
            nsx::of_routes(process, name, objects).await;
        }
    }
}

/// Returns the calls by server, each with its product. `requests` are those to the API server.
fn by_server(process: &Inquiries, calls: &CallCounter, requests: u64) -> Vec<ServerCalls> {
    let vcenters: Vec<String> = process.vsphere.vcenter_reports().into_iter().map(|report| report.server).collect();
    let mut servers: Vec<ServerCalls> = Vec::new();
    for (server, calls) in calls.calls() {
        let product = if vcenters.contains(&server) { "vCenter" } else { "NSX" };
        servers.push(ServerCalls { server: format!("{product} {server}"), calls });
    }
    if requests > 0 {
        servers.push(ServerCalls { server: "the API server".to_owned(), calls: requests });
    }
    servers
}
