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
    PartPage { content: PartContent::Document(Value::Array(nodes.collect())), next: names.next() }
}

/// Returns the Leases of the election, of deletions, and of the logins with the known user names.
pub(super) async fn leases(process: &Inquiries) -> PartContent {
    let api = Api::<Lease>::namespaced(process.api_server.clone(), &process.lease_namespace);
    let reads = async {
        let mut leases = Vec::new();
        for name in lease_names(process) {
            // The semaphore is never closed.
            let _turn = process.calls.acquire().await;
            let lease = get_opt(&format!("get lease {name}"), LIMIT, &api, &name).await;
            leases.extend(lease.transpose());
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

/// Returns Events in the namespaces in which this program writes Events about Nodes and Leases.
pub(super) async fn events(process: &Inquiries) -> PartContent {
    let parameters = ListParams::default().limit(EVENTS);
    let reads = async {
        let mut events = Vec::new();
        for namespace in BTreeSet::from([NODE_EVENTS, process.lease_namespace.as_str()]) {
            let api = Api::<Event>::namespaced(process.api_server.clone(), namespace);
            // The semaphore is never closed.
            let _turn = process.calls.acquire().await;
            match limited(&format!("list events in {namespace}"), LIMIT, api.list(&parameters)).await {
                Ok(list) => events.extend(list.items.into_iter().map(Ok)),
                Err(error) => events.push(Err(error)),
            }
        }
        events
    };
    within(reads).await
}

async fn within<K: Resource + Serialize>(reads: impl Future<Output = Vec<Result<K, CallError>>>) -> PartContent {
    match tokio::time::timeout(TOTAL_LIMIT, reads).await {
        Ok(objects) => content(objects),
        Err(_) => PartContent::Unread(format!("the API server did not answer within {} s", TOTAL_LIMIT.as_secs())),
    }
}

/// Returns the objects that were read, and the errors of the others. Without any object, the errors are the reason.
fn content<K: Resource + Serialize>(objects: Vec<Result<K, CallError>>) -> PartContent {
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    let mut is_permitted = false;
    for object in objects {
        match object {
            Ok(mut object) => {
                object.meta_mut().managed_fields = None;
                found.extend(serde_json::to_value(object).ok());
            }
            Err(error) => {
                is_permitted |= !error.is_forbidden();
                errors.push(chain(&error));
            }
        }
    }
    if !found.is_empty() || errors.is_empty() {
        found.extend(errors.into_iter().map(|error| json!({ "unread": error })));
        return PartContent::Document(Value::Array(found));
    }
    let reason = errors.join("; ");
    if is_permitted { PartContent::Unread(reason) } else { PartContent::Unavailable(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn refused(code: u16, reason: &str) -> CallError {
        let status = Status { code, reason: reason.to_owned(), message: "why".to_owned(), ..Status::default() };
        CallError::Refused("list events in default".to_owned(), Box::new(status))
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
        assert_eq!(content::<Event>(vec![Err(forbidden())]), PartContent::Unavailable(text.clone()));
        let both = content::<Event>(vec![Err(forbidden()), Err(refused(500, "InternalError"))]);
        assert_eq!(both, PartContent::Unread(format!("{text}; list events in default: why (500)")));
        assert_eq!(content::<Event>(vec![]), PartContent::Document(json!([])));
        let PartContent::Document(found) = content(vec![Ok(event()), Err(forbidden())]) else { panic!("no document") };
        assert_eq!(found[0]["metadata"], json!({"name": "e", "namespace": "default"}));
        assert_eq!(found[1], json!({"unread": text}));
    }
}
