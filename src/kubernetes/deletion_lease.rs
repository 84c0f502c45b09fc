//! The Lease whose annotations pause the deletion of Nodes. All replicas share it. It is read with the clock of the API
//! server, and written by compare-and-swap with the permissions of the leader election (get, create, update).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use super::call::{CallError, limited};
use super::dated_lease;
use super::leader_election::reference;

/// Name of the Lease.
pub const NAME: &str = "vsphere-ccm-deletions";

/// Limit of a read. Short, because the deletion that depends on the read has the rest of its window.
const READ_LIMIT: Duration = Duration::from_secs(4);
/// Limit of a write.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Access to the Lease.
#[derive(Clone)]
pub struct DeletionLease {
    api: Api<Lease>,
    namespace: String,
}

/// The Lease as read.
#[derive(Clone, Debug)]
pub struct LeaseReading {
    lease: Option<Lease>,
    /// Time of the answer by the clock of the API server, if the answer has one.
    pub server_time: Option<Timestamp>,
    /// Time just before the read was sent.
    pub began: Instant,
}

impl LeaseReading {
    /// Returns the annotations; none if the Lease does not exist.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.lease.as_ref().and_then(|lease| lease.metadata.annotations.clone()).unwrap_or_default()
    }

    /// Returns the UID of the Lease, if the Lease exists.
    pub fn uid(&self) -> Option<&str> {
        self.lease.as_ref()?.metadata.uid.as_deref()
    }
}

impl DeletionLease {
    /// Uses the Lease in this namespace, which is that of the election. `client` must neither retry nor check
    /// leadership: any replica may pause deletions.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    /// Returns the namespace of the Lease.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the reference to the Lease for Events.
    pub fn reference(&self, uid: Option<String>) -> ObjectReference {
        reference(&self.namespace, NAME, uid)
    }

    /// Reads the Lease.
    ///
    /// # Errors
    /// The API server does not answer within 4 s, or answers with an error other than that the Lease does not exist.
    pub async fn read(&self) -> Result<LeaseReading, CallError> {
        let began = Instant::now();
        let what = format!("get lease {}/{NAME}", self.namespace);
        let found = limited(&what, READ_LIMIT, dated_lease::read(&self.api, NAME)).await?;
        Ok(LeaseReading { lease: found.lease, server_time: found.server_time, began })
    }

    /// Writes the annotations if the Lease is as read, and keeps everything else. Creates a missing Lease.
    ///
    /// # Errors
    /// The Lease was changed since the read, which is a conflict, or the call fails.
    pub async fn write(&self, reading: &LeaseReading, annotations: BTreeMap<String, String>) -> Result<(), CallError> {
        let parameters = PostParams::default();
        let Some(mut lease) = reading.lease.clone() else {
            let metadata =
                ObjectMeta { name: Some(NAME.to_owned()), annotations: Some(annotations), ..ObjectMeta::default() };
            // The Lease has no holder, so its spec is empty.
            let lease = Lease { metadata, spec: Some(LeaseSpec::default()) };
            let what = format!("create lease {}/{NAME}", self.namespace);
            return limited(&what, WRITE_LIMIT, self.api.create(&parameters, &lease)).await.map(drop);
        };
        lease.metadata.annotations = Some(annotations);
        lease.metadata.managed_fields = None;
        let what = format!("update lease {}/{NAME}", self.namespace);
        limited(&what, WRITE_LIMIT, self.api.replace(NAME, &parameters, &lease)).await.map(drop)
    }
}
