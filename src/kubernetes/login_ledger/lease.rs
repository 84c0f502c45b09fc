//! The store of all replicas: Leases beside that of the leader election, which hold the record in an annotation.

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Duration;

use super::{Store, StoreError, Stored};
use crate::kubernetes::client::{CallError, limited};
use crate::runtime::logging::chain;

/// The annotation that holds a record.
const ANNOTATION: &str = "vsphere-ccm.dev/logins";
/// The label that finds all these Leases, for example to delete them.
const LABEL: (&str, &str) = ("vsphere-ccm.dev/lease", "logins");
/// How long one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(4);

/// Leases of one namespace.
pub struct LeaseStore {
    api: Api<Lease>,
    namespace: String,
}

impl LeaseStore {
    /// Leases of this namespace. `client` must neither retry by itself nor ask whether this process leads: standbys log
    /// in, too.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    async fn get(&self, name: &str) -> Result<Option<Lease>, StoreError> {
        let what = format!("get lease {name}");
        match limited(&what, CALL_LIMIT, self.api.get(name)).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(sorted(&error)),
        }
    }
}

#[async_trait]
impl Store for LeaseStore {
    async fn read(&self, name: &str) -> Result<Option<Stored>, StoreError> {
        let Some(lease) = self.get(name).await? else { return Ok(None) };
        let text = lease.metadata.annotations.unwrap_or_default().remove(ANNOTATION).unwrap_or_default();
        Ok(Some(Stored { text, version: lease.metadata.resource_version.unwrap_or_default() }))
    }

    fn delete_command(&self, name: &str) -> Option<String> {
        Some(format!("kubectl -n {} delete lease {name}", self.namespace))
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
        // Nobody holds it: the spec stays empty. What others put beside the record is not kept, it is our object.
        let lease = Lease { metadata, spec: Some(LeaseSpec::default()) };
        let parameters = PostParams::default();
        let written = match version {
            None => limited(&format!("create lease {name}"), CALL_LIMIT, self.api.create(&parameters, &lease)).await,
            Some(_) => {
                limited(&format!("update lease {name}"), CALL_LIMIT, self.api.replace(name, &parameters, &lease)).await
            }
        };
        written.map(drop).map_err(|error| sorted(&error))
    }
}

fn sorted(error: &CallError) -> StoreError {
    // Deleted between read and write: read again.
    if error.is_conflict() || error.is_not_found() {
        StoreError::Conflict
    } else {
        StoreError::OutOfReach(chain(error))
    }
}
