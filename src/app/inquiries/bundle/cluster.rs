//! The parts of a bundle that come from the API server: Nodes from the cache, Leases and Events by calls, as far as the
//! permissions of this process go.

use crate::app::inquiries::Inquiries;
use crate::app::reports::bundle::{PartContent, PartPage};
use crate::base::error_chain::chain;
use crate::kubernetes::call::{CallError, get_opt, limited};
use crate::kubernetes::deletion_lease;
use crate::kubernetes::login_ledger::record_name;
use crate::providers::vsphere::login::policy::{LOGIN_POLICY, NSX_LOGIN_POLICY};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Number of Nodes of one page.
const NODES: usize = 100;

/// Maximum number of Events of one namespace.
const EVENTS: u32 = 500;

/// Maximum number of Leases of the login throttle.
const LOGINS: usize = 32;

/// Time limit of one call.
const LIMIT: Duration = Duration::from_secs(5);

/// Time limit of all calls for one part, including the wait for the calls of other commands.
const TOTAL_LIMIT: Duration = Duration::from_secs(20);

/// The namespace of Events about Nodes.
const NODE_EVENTS: &str = "default";

/// Returns the Nodes from this name on.
pub(super) fn nodes(process: &Inquiries, from: Option<&str>) -> PartPage {
    let mut names = process.nodes.keys().into_iter().filter(|name| from.is_none_or(|from| name.as_str() >= from));
    let page: Vec<String> = names.by_ref().take(NODES).collect();
    let nodes = page.iter().filter_map(|name| serde_json::to_value(&*process.nodes.get(name)?).ok());
    let content = PartContent::Document(Value::Array(nodes.collect()));
    PartPage { next: names.next(), ..PartPage::only(content) }
}

/// Returns the Leases of the election, of deletions, and of the logins with the known user names.
pub(super) async fn leases(process: &Inquiries) -> PartPage {
    let api = Api::<Lease>::namespaced(process.api_server.clone(), &process.lease_namespace);
    let reads = async {
        let mut leases = Vec::new();
        for name in lease_names(process) {
            // The semaphore is never closed.
            let _turn = process.calls.acquire().await;
            let lease = get_opt(&format!("get lease {name}"), LIMIT, &api, &name).await;
            leases.extend(lease.map_err(ReadGap::from).transpose());
        }
        leases
    };
    within(reads).await
}

fn lease_names(process: &Inquiries) -> BTreeSet<String> {
    let users = process.vsphere.users();
    let mut logins = BTreeSet::new();
    for report in process.vsphere.credential_reports() {
        let policy = if report.is_of_vcenter { LOGIN_POLICY } else { NSX_LOGIN_POLICY };
        logins.extend(users.iter().map(|user| record_name(policy.scope, &report.server, user)));
    }
    let election = process.lease.as_ref().map(|lease| lease.name.clone());
    election.into_iter().chain([deletion_lease::NAME.to_owned()]).chain(logins.into_iter().take(LOGINS)).collect()
}

/// Returns the Events about Nodes and Leases. Other Events in their namespaces are those of other programs.
pub(super) async fn events(process: &Inquiries) -> PartPage {
    let reads = async {
        let mut events = Vec::new();
        for (namespace, kind) in [(NODE_EVENTS, "Node"), (process.lease_namespace.as_str(), "Lease")] {
            let api = Api::<Event>::namespaced(process.api_server.clone(), namespace);
            let parameters = ListParams::default().limit(EVENTS).fields(&format!("involvedObject.kind={kind}"));
            // The semaphore is never closed.
            let _turn = process.calls.acquire().await;
            let what = format!("list events about {kind}s in {namespace}");
            match limited(&what, LIMIT, api.list(&parameters)).await {
                Ok(list) => {
                    let is_cut = list.metadata.continue_.as_deref().is_some_and(|rest| !rest.is_empty());
                    events.extend(list.items.into_iter().map(Ok));
                    events.extend(is_cut.then(|| Err(ReadGap::cut(&what))));
                }
                Err(error) => events.push(Err(error.into())),
            }
        }
        events
    };
    within(reads).await
}

/// The reason why something was not read.
#[derive(Debug)]
struct ReadGap {
    reason: String,
    /// Whether a permission is missing.
    is_forbidden: bool,
}

impl From<CallError> for ReadGap {
    fn from(error: CallError) -> Self {
        Self { reason: chain(&error), is_forbidden: error.is_forbidden() }
    }
}

impl ReadGap {
    /// Returns the gap of a list that has more than its limit.
    fn cut(list: &str) -> Self {
        Self { reason: format!("{list}: there are more than {EVENTS}"), is_forbidden: false }
    }
}

async fn within<K: Resource + Serialize>(reads: impl Future<Output = Vec<Result<K, ReadGap>>>) -> PartPage {
    match tokio::time::timeout(TOTAL_LIMIT, reads).await {
        Ok(objects) => page(objects),
        Err(_) => {
            let reason = format!("the API server did not answer within {} s", TOTAL_LIMIT.as_secs());
            PartPage::only(PartContent::Unread(reason))
        }
    }
}

/// Returns the objects that were read, and the reasons why others were not. A missing permission is no gap.
fn page<K: Resource + Serialize>(objects: Vec<Result<K, ReadGap>>) -> PartPage {
    let mut found = Vec::new();
    let mut gaps: Vec<ReadGap> = Vec::new();
    for object in objects {
        match object {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                found.extend(serde_json::to_value(object).ok());
            }
            Err(gap) => gaps.push(gap),
        }
    }
    let unexpected: Vec<&str> = gaps.iter().filter(|gap| !gap.is_forbidden).map(|gap| gap.reason.as_str()).collect();
    if !found.is_empty() || gaps.is_empty() {
        let gap = (!unexpected.is_empty()).then(|| unexpected.join("; "));
        found.extend(gaps.iter().map(|gap| json!({ "unread": gap.reason })));
        return PartPage { gap, ..PartPage::only(PartContent::Document(Value::Array(found))) };
    }
    let is_forbidden = unexpected.is_empty();
    let reasons: Vec<&str> = gaps.iter().map(|gap| gap.reason.as_str()).collect();
    let reason = reasons.join("; ");
    PartPage::only(if is_forbidden { PartContent::Unavailable(reason) } else { PartContent::Unread(reason) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refused(code: u16, reason: &str) -> ReadGap {
        let status = Status { code, reason: reason.to_owned(), message: "why".to_owned(), ..Status::default() };
        CallError::Refused("list events in default".to_owned(), Box::new(status)).into()
    }

    fn event() -> Event {
        let fields = json!({
            "metadata": {"name": "e", "namespace": "default", "managedFields": [{"manager": "ccm"}]},
            "involvedObject": {"kind": "Node"},
        });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_missing_permission_is_another_reason_than_a_missing_answer() {
        let forbidden = || refused(403, "Forbidden");
        let text = "list events in default: why (403)".to_owned();
        let content = |objects: Vec<Result<Event, ReadGap>>| page(objects).content;
        assert_eq!(content(vec![Err(forbidden())]), PartContent::Unavailable(text.clone()));
        let both = content(vec![Err(forbidden()), Err(refused(500, "InternalError"))]);
        assert_eq!(both, PartContent::Unread(format!("{text}; list events in default: why (500)")));
        assert_eq!(content(vec![]), PartContent::Document(json!([])));
        let PartContent::Document(found) = content(vec![Ok(event()), Err(forbidden())]) else { panic!("no document") };
        assert_eq!(found[0]["metadata"], json!({"name": "e", "namespace": "default"}));
        assert_eq!(found[1], json!({"unread": text}));
    }

    #[test]
    fn what_was_not_read_beside_other_objects_is_a_gap_unless_a_permission_is_missing() {
        let gap = |second: ReadGap| page(vec![Ok(event()), Err(second)]).gap;
        assert_eq!(gap(refused(403, "Forbidden")), None);
        assert_eq!(gap(refused(500, "InternalError")).as_deref(), Some("list events in default: why (500)"));
        assert_eq!(gap(ReadGap::cut("list events")).as_deref(), Some("list events: there are more than 500"));
        assert_eq!(page(vec![Ok(event())]).gap, None);
    }
}
