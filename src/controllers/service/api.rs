//! The API server as a sync needs it: one Service as it is now, and patches of its status.

use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use super::failure::{ServiceBlocked, Stop};
use crate::cloud::Presence;
use crate::controllers::FIELD_MANAGER;
use crate::controllers::retry::Retry;
use crate::kubernetes::call::{CALL_LIMIT, limited};
use crate::kubernetes::cluster::LiveApi;

/// Reads and writes with the permissions of one client.
pub(super) struct ServiceApi {
    live: LiveApi,
    write: Client,
    /// `--service-selector`
    selector: Option<String>,
}

/// A Service as the API server has it.
pub(super) enum Live {
    /// There is one, and it is one of those that this process looks after.
    Selected(Box<Service>),
    /// There is one, with this UID, and another selection has to look after it.
    NotSelected(Option<String>),
    /// There is none of this name.
    Absent,
}

impl ServiceApi {
    pub(super) fn new(write: Client, selector: Option<String>) -> Self {
        Self { live: LiveApi::new(write.clone()), write, selector }
    }

    /// The Service of the name of `service`.
    pub(super) async fn read(&self, service: &Service) -> Result<Live, Stop> {
        let (namespace, name) = names(service);
        match self.live.selected_service(namespace, name, self.selector.as_deref()).await {
            Presence::Exists((live, true)) => Ok(Live::Selected(Box::new(live))),
            Presence::Exists((live, false)) => Ok(Live::NotSelected(live.metadata.uid)),
            Presence::Absent(_) => Ok(Live::Absent),
            Presence::Unknown(unknown) => {
                Err(ServiceBlocked::new(unknown.reason, unknown.message, Retry::Backoff).into())
            }
        }
    }

    /// Patches the status, and the finalizers with it, as in the Go program. None if the Service is gone. `what` begins the
    /// text of an error.
    pub(super) async fn patch(&self, what: &str, service: &Service, patch: Value) -> Result<Option<Service>, Stop> {
        let (namespace, name) = names(service);
        let services = Api::<Service>::namespaced(self.write.clone(), namespace);
        let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let (shown, patch) = (format!("{what} service {namespace}/{name}"), Patch::Strategic(patch));
        match limited(&shown, CALL_LIMIT, services.patch_status(name, &parameters, &patch)).await {
            Ok(service) => Ok(Some(service)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

fn names(service: &Service) -> (&str, &str) {
    let metadata = &service.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}
