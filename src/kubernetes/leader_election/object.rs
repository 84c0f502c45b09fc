//! The Lease of the election as an object that users are told things on.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Api, Client};
use std::time::Duration;

use crate::kubernetes::call::limited;

/// How long the look for its UID may take.
const LIMIT: Duration = Duration::from_secs(5);

/// See the file's header. It need not exist.
#[derive(Clone)]
pub struct LeaseObject {
    /// Reads it.
    pub client: Client,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl LeaseObject {
    /// What an Event is to be about. With the UID where that can be found out: `kubectl describe` shows no others.
    pub async fn reference(&self) -> ObjectReference {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        let what = format!("get lease {}/{}", self.namespace, self.name);
        let metadata = limited(&what, LIMIT, leases.get(&self.name)).await.map(|lease| lease.metadata).ok();
        reference(&self.namespace, &self.name, metadata.and_then(|metadata| metadata.uid))
    }
}

/// A Lease, as Events refer to it.
pub(super) fn reference(namespace: &str, name: &str, uid: Option<String>) -> ObjectReference {
    ObjectReference {
        api_version: Some("coordination.k8s.io/v1".to_owned()),
        kind: Some("Lease".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid,
        ..ObjectReference::default()
    }
}
