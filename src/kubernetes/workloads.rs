//! Reads the DaemonSets, Deployments and static Pods that may run a cloud controller manager, for checks. The role of
//! the daemon does not allow that; a kubeconfig of an administrator does.

mod objects;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Request};
use kube::{Client, Resource};

use super::call::{CallError, limited};
use crate::base::error_chain::chain;
use objects::{Container, ObjectList, WorkloadObject, WorkloadStatus};

/// Time limit of one call.
const LIMIT: Duration = Duration::from_secs(10);

/// Page size, and maximum number of pages of one list.
const PAGE: u32 = 500;
const MAX_PAGES: usize = 20;

/// Label of Pods of cloud controller managers, also of static Pods: the Go program, this program, RKE2 and K3s set it.
const COMPONENT: &str = "component=cloud-controller-manager";

/// Name of the binary of every cloud controller manager, in its command or image.
const PROGRAM: &str = "cloud-controller-manager";

/// Part of the images of the Go program, whose command is in the image.
const GO_IMAGE: &str = "cloud-provider-vsphere";

/// Flag that only a cloud controller manager sets to a provider.
const PROVIDER_FLAG: &str = "--cloud-provider";

/// A DaemonSet, Deployment or static Pod that may run a cloud controller manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// `DaemonSet`, `Deployment` or `Pod`.
    pub kind: &'static str,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The images of the containers.
    pub images: Vec<String>,
    /// Commands and arguments of all containers.
    pub arguments: Vec<String>,
    /// Number of Pods that should run.
    pub desired: i32,
    /// Number of Pods that are ready.
    pub ready: i32,
    /// The Pods that are not ready, as far as the cause is known.
    pub faults: Vec<PodFault>,
}

/// A Pod that is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFault {
    /// The name of the Pod.
    pub pod: String,
    /// The reason, such as `Unschedulable` or `ImagePullBackOff`.
    pub reason: String,
    /// The message of Kubernetes.
    pub message: String,
}

/// Reason why the workloads are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkloadsError {
    /// The credentials do not allow it.
    Forbidden(String),
    /// The API server did not answer.
    Unavailable(String),
}

impl From<CallError> for WorkloadsError {
    fn from(error: CallError) -> Self {
        match error.is_forbidden() {
            true => Self::Forbidden(chain(&error)),
            false => Self::Unavailable(chain(&error)),
        }
    }
}

/// Reads the workloads of all namespaces that may run a cloud controller manager, ordered by kind, namespace and name.
///
/// # Errors
/// The API server refused a list or did not answer.
pub async fn read_workloads(client: &Client) -> Result<Vec<Workload>, WorkloadsError> {
    let mut workloads = Vec::new();
    for set in list::<DaemonSet>(client, None, None).await? {
        if let Some((workload, labels)) = of_daemon_set(set) {
            workloads.push(with_faults(client, workload, &labels).await?);
        }
    }
    for deployment in list::<Deployment>(client, None, None).await? {
        if let Some((workload, labels)) = of_deployment(deployment) {
            workloads.push(with_faults(client, workload, &labels).await?);
        }
    }
    workloads.extend(list::<Pod>(client, None, Some(COMPONENT)).await?.into_iter().filter_map(of_static_pod));
    Ok(workloads)
}

/// Lists the objects of the kind `K` with these labels, of one or of all namespaces.
async fn list<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<Vec<WorkloadObject>, WorkloadsError> {
    pages(client, &format!("list {}", K::plural(&())), K::url_path(&(), namespace), labels).await
}

async fn pages(
    client: &Client,
    list: &str,
    path: String,
    labels: Option<&str>,
) -> Result<Vec<WorkloadObject>, WorkloadsError> {
    let mut objects = Vec::new();
    let mut parameters = ListParams { limit: Some(PAGE), ..ListParams::default() };
    parameters.label_selector = labels.map(str::to_owned);
    let url = Request::new(path);
    for _ in 0..MAX_PAGES {
        let call = async {
            let request = url.list(&parameters).map_err(kube::Error::BuildRequest)?;
            client.request::<ObjectList>(request).await
        };
        let page = limited(list, LIMIT, call).await?;
        objects.extend(page.items.unwrap_or_default());
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => parameters.continue_token = Some(next),
            None => return Ok(objects),
        }
    }
    Err(WorkloadsError::Unavailable(format!("{list}: there are more than {}", PAGE as usize * MAX_PAGES)))
}

/// Adds the Pods that are not ready.
async fn with_faults(
    client: &Client,
    workload: Workload,
    labels: &BTreeMap<String, String>,
) -> Result<Workload, WorkloadsError> {
    if labels.is_empty() || workload.ready >= workload.desired {
        return Ok(workload);
    }
    let pods = list::<Pod>(client, Some(&workload.namespace), Some(&label_text(labels))).await?;
    Ok(Workload { faults: pods.iter().filter_map(fault_of).collect(), ..workload })
}

fn label_text(labels: &BTreeMap<String, String>) -> String {
    let texts: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    texts.join(",")
}

/// Returns the workload of a DaemonSet, and the labels of its Pods.
fn of_daemon_set(set: WorkloadObject) -> Option<(Workload, BTreeMap<String, String>)> {
    let workload = workload("DaemonSet", set.metadata, &set.spec.template.spec.containers)?;
    let (desired, ready) = (set.status.desired_number_scheduled, set.status.number_ready);
    Some((Workload { desired, ready, ..workload }, set.spec.selector.match_labels))
}

/// Returns the workload of a Deployment, and the labels of its Pods.
fn of_deployment(deployment: WorkloadObject) -> Option<(Workload, BTreeMap<String, String>)> {
    let workload = workload("Deployment", deployment.metadata, &deployment.spec.template.spec.containers)?;
    let (desired, ready) = (deployment.spec.replicas.unwrap_or(1), deployment.status.ready_replicas);
    Some((Workload { desired, ready, ..workload }, deployment.spec.selector.match_labels))
}

/// Returns the workload of a Pod that no DaemonSet or ReplicaSet made.
fn of_static_pod(pod: WorkloadObject) -> Option<Workload> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    if owners.iter().any(|owner| owner.kind != "Node") {
        return None;
    }
    let fault = fault_of(&pod);
    let ready = i32::from(is_ready(&pod.status));
    let workload = workload("Pod", pod.metadata, &pod.spec.containers)?;
    Some(Workload { desired: 1, ready, faults: fault.into_iter().collect(), ..workload })
}

/// Returns the workload if a container may run a cloud controller manager.
fn workload(kind: &'static str, metadata: ObjectMeta, containers: &[Container]) -> Option<Workload> {
    let images: Vec<String> = containers.iter().filter_map(|container| container.image.clone()).collect();
    let arguments: Vec<String> =
        containers.iter().flat_map(|container| [&*container.command, &*container.args].concat()).collect();
    let is_named = arguments.iter().any(|argument| argument.contains(PROGRAM) || argument.starts_with(PROVIDER_FLAG));
    let has_image = images.iter().any(|image| image.contains(PROGRAM) || image.contains(GO_IMAGE));
    (is_named || has_image).then(|| Workload {
        kind,
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        images,
        arguments,
        ..Workload::default()
    })
}

fn is_ready(status: &WorkloadStatus) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns the cause why the Pod is not ready: it is not scheduled, or a container waits.
fn fault_of(pod: &WorkloadObject) -> Option<PodFault> {
    let status = &pod.status;
    if is_ready(status) {
        return None;
    }
    let unscheduled =
        status.conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let waiting = status.container_statuses.iter().find_map(|container| container.state.waiting.as_ref());
    let (reason, message, otherwise) = match (unscheduled, waiting) {
        (Some(condition), _) => (&condition.reason, &condition.message, "NotScheduled"),
        (None, Some(waiting)) => (&waiting.reason, &waiting.message, ""),
        (None, None) => (&status.reason, &status.message, "NotReady"),
    };
    Some(PodFault {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        reason: reason.clone().unwrap_or_else(|| otherwise.to_owned()),
        message: message.clone().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn daemon_set(container: Value, desired: i32, ready: i32) -> WorkloadObject {
        let template = json!({"metadata": {}, "spec": {"containers": [container]}});
        let selector = json!({"matchLabels": {"name": "ccm"}});
        serde_json::from_value(json!({
            "metadata": {"name": "ccm", "namespace": "kube-system"},
            "spec": {"selector": selector, "template": template},
            "status": {
                "currentNumberScheduled": desired,
                "desiredNumberScheduled": desired,
                "numberMisscheduled": 0,
                "numberReady": ready,
            },
        }))
        .unwrap()
    }

    fn pod(owner: Option<&str>, status: Value) -> WorkloadObject {
        let owners = owner.map(|kind| json!([{"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u"}]));
        let container = json!({"name": "c", "image": "rke2", "command": ["cloud-controller-manager"]});
        serde_json::from_value(json!({
            "metadata": {"name": "ccm-1", "namespace": "kube-system", "ownerReferences": owners},
            "spec": {"containers": [container]},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_workload_is_known_by_its_command_its_flag_or_its_image() {
        for (container, expected) in [
            (json!({"name": "c", "image": "a", "args": ["--cloud-provider=vsphere"]}), true),
            (json!({"name": "c", "image": "a", "command": ["/bin/vsphere-cloud-controller-manager"]}), true),
            (json!({"name": "c", "image": "rancher/mirrored-cloud-provider-vsphere:v1.33.0"}), true),
            (json!({"name": "c", "image": "nginx", "args": ["-v"]}), false),
        ] {
            let found = of_daemon_set(daemon_set(container.clone(), 3, 2));
            assert_eq!(found.is_some(), expected, "{container}");
            if let Some((workload, labels)) = found {
                assert_eq!((workload.kind, workload.desired, workload.ready), ("DaemonSet", 3, 2));
                assert_eq!(label_text(&labels), "name=ccm");
            }
        }
    }

    #[test]
    fn a_deployment_wants_one_pod_unless_it_says_otherwise() {
        let deployment = |spec: Value| -> WorkloadObject {
            let container = json!({"name": "c", "image": "a", "args": ["--cloud-provider=vsphere"]});
            let mut whole = json!({"selector": {}, "template": {"spec": {"containers": [container]}}});
            whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            serde_json::from_value(json!({"metadata": {"name": "ccm"}, "spec": whole, "status": {}})).unwrap()
        };
        let (workload, labels) = of_deployment(deployment(json!({}))).unwrap();
        assert_eq!((workload.desired, workload.ready, labels.len()), (1, 0, 0));
        assert_eq!(of_deployment(deployment(json!({"replicas": 0}))).unwrap().0.desired, 0);
    }

    #[test]
    fn a_list_may_have_neither_items_nor_a_next_page() {
        let list: ObjectList = serde_json::from_value(json!({"metadata": {}, "items": null})).unwrap();
        assert!(list.items.is_none() && list.metadata.continue_.is_none());
    }

    #[test]
    fn a_pod_of_a_controller_is_no_workload_of_its_own() {
        let ready = || json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let found = of_static_pod(pod(Some("Node"), ready())).unwrap();
        assert_eq!((found.kind, found.desired, found.ready, found.faults.len()), ("Pod", 1, 1, 0));
        assert!(of_static_pod(pod(None, ready())).is_some());
        assert_eq!(of_static_pod(pod(Some("DaemonSet"), ready())), None);
    }

    #[test]
    fn a_pod_that_is_not_ready_names_its_cause() {
        let waiting = json!({"containerStatuses": [{
            "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
        }]});
        let unscheduled = json!({"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no free ports"},
        ]});
        for (status, reason, message) in [
            (waiting, "ImagePullBackOff", "no such image"),
            (unscheduled, "Unschedulable", "no free ports"),
            (json!({"phase": "Running"}), "NotReady", ""),
        ] {
            let fault = fault_of(&pod(None, status)).unwrap();
            assert_eq!((fault.reason.as_str(), fault.message.as_str()), (reason, message));
        }
    }
}
