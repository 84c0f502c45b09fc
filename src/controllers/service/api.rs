//! API server calls of a sync: reads one Service live, and patches its status.

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client};
use serde_json::Value;

use super::failure::{ServiceBlocked, Stop};
use crate::cloud::Presence;
use crate::controllers::retry::Retry;
use crate::kubernetes::cluster::LiveApi;
use crate::kubernetes::patch::patch_status;

pub(super) struct ServiceApi {
    live: LiveApi,
    write: Client,
    selector: Option<String>,
}

pub(super) enum Live {
    /// The Service exists, and this process manages it.
    Selected(Box<Service>),
    /// The Service exists with this UID, but does not match the selector.
    NotSelected(Option<String>),
    Absent,
}

impl ServiceApi {
    pub(super) fn new(write: Client, selector: Option<String>) -> Self {
        Self { live: LiveApi::new(write.clone()), write, selector }
    }

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

    /// Patches the status and the finalizers together, as in the Go program. Returns `None` if the Service is deleted.
    pub(super) async fn patch(
        &self,
        operation: &str,
        service: &Service,
        patch: Value,
    ) -> Result<Option<Service>, Stop> {
        let (namespace, name) = names(service);
        let services = Api::<Service>::namespaced(self.write.clone(), namespace);
        match patch_status(&format!("{operation} Service {namespace}/{name}"), &services, name, patch).await {
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
