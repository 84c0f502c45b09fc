//! Stores login records in Leases, in the leader election's namespace. The record is an annotation of the Lease.

use std::collections::BTreeSet;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Duration;

use super::{LedgerStore, StoreError, StoreReading, StoredText};
use crate::base::error_chain::chain;
use crate::kubernetes::call::{CallError, limited};
use crate::kubernetes::dated_lease;

const ANNOTATION: &str = "vsphere-ccm.dev/logins";
/// Label of all Leases with login records, for example to delete them.
const LABEL: (&str, &str) = ("vsphere-ccm.dev/lease", "logins");
/// Maximum number of Leases that a delete command names, because an Event's message has at most 1,024 bytes. For more
/// Leases, the command deletes the Leases of all accounts.
const MAX_NAMED: usize = 4;
const CALL_LIMIT: Duration = Duration::from_secs(4);

/// Store that consists of the Leases of one namespace.
pub struct LeaseStore {
    api: Api<Lease>,
}

impl LeaseStore {
    /// Creates a store in this namespace. `client` must neither retry nor check leadership: standbys also log in.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace) }
    }
}

#[async_trait]
impl LedgerStore for LeaseStore {
    async fn read(&self, name: &str) -> Result<StoreReading, StoreError> {
        let answer = limited(&format!("get lease {name}"), CALL_LIMIT, dated_lease::read(&self.api, name)).await;
        let found = answer.map_err(|error| sorted(&error))?;
        let stored = found.lease.map(|lease| {
            let text = lease.metadata.annotations.unwrap_or_default().remove(ANNOTATION).unwrap_or_default();
            StoredText { text, version: lease.metadata.resource_version.unwrap_or_default() }
        });
        Ok(StoreReading { stored, server_time: found.server_time.map(Timestamp::as_second) })
    }

    fn delete_command(&self, names: &BTreeSet<String>) -> Option<String> {
        Some(delete_command(self.api.namespace().unwrap_or_default(), names))
    }

    async fn write(&self, name: &str, version: Option<&str>, text: &str) -> Result<(), StoreError> {
        let annotations = [(ANNOTATION.to_owned(), text.to_owned())].into();
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: version.map(str::to_owned),
            annotations: Some(annotations),
            labels: Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into()),
            ..ObjectMeta::default()
        };
        // The Lease has no holder, so its spec is empty. Annotations of other clients are dropped.
        let lease = Lease { metadata, spec: Some(LeaseSpec::default()) };
        let parameters = PostParams::default();
        let written = match version {
            None => limited(&format!("create lease {name}"), CALL_LIMIT, self.api.create(&parameters, &lease)).await,
            Some(_) => {
                limited(&format!("update lease {name}"), CALL_LIMIT, self.api.replace(name, &parameters, &lease)).await
            }
        };
        written.map(drop).map_err(|error| match version {
            // The Lease was deleted after the read, so the caller reads again. A create gets a 404 only if the namespace
            // does not exist, and to read again would not help.
            Some(_) if error.is_not_found() => StoreError::Conflict,
            _ => sorted(&error),
        })
    }
}

fn delete_command(namespace: &str, names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let what = match names.as_slice() {
        [name] => (*name).to_owned(),
        // The first login of an account at a server creates the Lease, so some of these Leases may not exist.
        several if several.len() <= MAX_NAMED => format!("--ignore-not-found {}", several.join(" ")),
        _ => format!("-l {}={}", LABEL.0, LABEL.1),
    };
    format!("kubectl -n {namespace} delete lease {what}")
}

fn sorted(error: &CallError) -> StoreError {
    // After a conflict, the caller reads again.
    if error.is_conflict() { StoreError::Conflict } else { StoreError::OutOfReach(chain(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_names_up_to_four_leases_and_finds_more_by_their_label() {
        let command = |count: usize| {
            let names = (1..=count).map(|number| format!("lease-{number}")).collect();
            delete_command("ns", &names)
        };
        assert_eq!(command(1), "kubectl -n ns delete lease lease-1");
        assert_eq!(command(2), "kubectl -n ns delete lease --ignore-not-found lease-1 lease-2");
        assert_eq!(command(4), "kubectl -n ns delete lease --ignore-not-found lease-1 lease-2 lease-3 lease-4");
        assert_eq!(command(5), "kubectl -n ns delete lease -l vsphere-ccm.dev/lease=logins");
    }
}
