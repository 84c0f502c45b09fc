//! The parts of DaemonSets, Deployments and Pods that are read. One type has the fields of all three kinds: the code
//! that parses the whole objects would be 2 % of the binary.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use serde::Deserialize;

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct ObjectList {
    pub(super) metadata: ListMeta,
    pub(super) items: Option<Vec<WorkloadObject>>,
}

/// A DaemonSet, Deployment or Pod.
#[derive(Debug, Deserialize)]
pub(super) struct WorkloadObject {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: WorkloadSpec,
    #[serde(default)]
    pub(super) status: WorkloadStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WorkloadSpec {
    /// Not of a Pod.
    pub(super) selector: LabelSelector,
    /// Not of a Pod.
    pub(super) template: PodTemplate,
    /// Of a Deployment.
    pub(super) replicas: Option<i32>,
    /// Of a Pod.
    pub(super) containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LabelSelector {
    pub(super) match_labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodTemplate {
    pub(super) spec: PodSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodSpec {
    pub(super) containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) image: Option<String>,
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WorkloadStatus {
    /// Of a DaemonSet.
    pub(super) desired_number_scheduled: i32,
    /// Of a DaemonSet.
    pub(super) number_ready: i32,
    /// Of a Deployment.
    pub(super) ready_replicas: i32,
    /// Of a Deployment or Pod.
    pub(super) conditions: Vec<Condition>,
    /// Of a Pod.
    pub(super) container_statuses: Vec<ContainerStatus>,
    /// Of a Pod.
    pub(super) reason: Option<String>,
    /// Of a Pod.
    pub(super) message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) status: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    pub(super) state: ContainerState,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    pub(super) waiting: Option<WaitingState>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WaitingState {
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
}
