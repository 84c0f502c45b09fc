//! Nodes of real size, as a kubelet on a busy machine writes them, with the same owners of fields.

use futures::{TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::{KubeletNode, Model};

const MANAGER: &str = "kubelet";
/// Number of images that a kubelet reports. Each has a digest and a tag.
const IMAGES: usize = 50;
/// Number of concurrent requests.
const AT_ONCE: usize = 32;

/// A registered node.
#[derive(Clone, Debug)]
pub struct Registered {
    /// Number of its machine, from 1 on.
    pub number: usize,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion` after the last write.
    pub version: String,
}

impl Registered {
    /// Returns its name, which is also that of its machine.
    #[must_use]
    pub fn name(&self) -> String {
        name(self.number)
    }
}

/// Creates the nodes of the machines `n-1` to `n-<count>`: first the Node, then its status, as a kubelet does, so that
/// both have an entry in `managedFields`. Returns the size of one node as JSON, in bytes.
///
/// # Errors
///
/// A sentence, if the API server rejects a node.
pub async fn register(client: &Client, count: usize) -> Result<usize, String> {
    register_telling(client, count, |_| {}).await
}

/// Like [`register`], and sends each node to a channel as soon as it is registered.
///
/// # Errors
///
/// Like [`register`].
pub async fn register_telling(
    client: &Client,
    count: usize,
    tell: impl Fn(Registered) + Sync,
) -> Result<usize, String> {
    let nodes = Api::<Node>::all(client.clone());
    let create = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let update = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let (nodes, create, update, tell) = (&nodes, &create, &update, &tell);
    stream::iter((1..=count).map(Ok::<usize, String>))
        .try_for_each_concurrent(AT_ONCE, async |number| {
            let name = name(number);
            let failed = |error: kube::Error| format!("failed to create node {name}: {error}");
            nodes.create(create, &node(number)).await.map_err(failed)?;
            let node = nodes.patch_status(&name, update, &Patch::Strategic(status(number))).await.map_err(failed)?;
            let (uid, version) = (node.metadata.uid.unwrap_or_default(), node.metadata.resource_version);
            tell(Registered { number, uid, version: version.unwrap_or_default() });
            Ok(())
        })
        .await?;
    let one = nodes.get(&name(count)).await.map_err(|error| error.to_string())?;
    let fields = one.metadata.managed_fields.as_ref().map_or(0, Vec::len);
    if fields < 2 {
        return Err(format!("the API server keeps {fields} entries in managedFields, two are expected"));
    }
    serde_json::to_vec(&one).map(|text| text.len()).map_err(|error| error.to_string())
}

/// Deletes all nodes.
///
/// # Errors
///
/// A sentence, if the API server rejects that.
pub async fn remove_all(client: &Client) -> Result<(), String> {
    let nodes = &Api::<Node>::all(client.clone());
    let list = nodes.list_metadata(&ListParams::default()).await.map_err(|error| format!("Nodes: {error}"))?;
    stream::iter(list.items.into_iter().map(Ok))
        .try_for_each_concurrent(AT_ONCE, async |node| {
            let name = node.name_any();
            let answer = nodes.delete(&name, &DeleteParams::default()).await;
            answer.map(drop).map_err(|error| format!("failed to delete node {name}: {error}"))
        })
        .await
}

fn name(number: usize) -> String {
    format!("n-{number}")
}

/// Returns the machine's UUID as most guests report it: the first three groups have the other byte order.
fn as_the_guest_says(number: usize) -> String {
    let uuid = Model::uuid(number);
    let swapped = |group: &str| {
        let digits: Vec<char> = group.chars().collect();
        digits.chunks(2).rev().flatten().collect::<String>()
    };
    let groups = uuid.split('-').enumerate();
    groups.map(|(index, group)| if index < 3 { swapped(group) } else { group.to_owned() }).collect::<Vec<_>>().join("-")
}

fn node(number: usize) -> Node {
    let mut node = KubeletNode::new(&name(number), &as_the_guest_says(number)).build();
    node.metadata.annotations.get_or_insert_default().extend([
        ("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned()),
        (
            "csi.volume.kubernetes.io/nodeid".to_owned(),
            format!("{{\"csi.vsphere.vmware.com\":\"{}\"}}", Model::uuid(number)),
        ),
    ]);
    node
}

fn status(number: usize) -> Value {
    let image = |index: usize| {
        let digest = format!("{:016x}", (index * 7_919 + number) as u64).repeat(4);
        let repository = format!("images.example.com/platform/team-{index}/application-server");
        json!({
            "names": [format!("{repository}@sha256:{digest}"), format!("{repository}:v1.{index}.{number}")],
            "sizeBytes": 100_000_000 + index,
        })
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": "2025-01-01T00:00:00Z", "lastTransitionTime": "2025-01-01T00:00:00Z",
        })
    };
    let resources = json!({
        "cpu": "16", "memory": "65842312Ki", "ephemeral-storage": "101430960Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        "pods": "110",
    });
    json!({ "status": {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10_250 } },
        "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
    } })
}
