//! The kubectl plugin with a real kubectl and API server, as a user with the permissions on the page: the Job for each
//! form, and the Pod of the leader. The API server has no kubelet, so no command runs.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use support::components::Component;
use support::pages::page;
use support::{ApiServer, eventually};
use tokio::process::Command;

use super::chart;
use super::kustomize::{form, kubectl, objects};
use crate::cluster::LIMIT;

const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/plugin/kubectl-vsphere_ccm");

const OWN_IMAGE: &str = "registry.test/ccm:v2";

/// Returns the plugin with this kubeconfig.
fn plugin(server: &ApiServer, kubeconfig: &Path, arguments: &[&str]) -> Command {
    let kubectl = Component::Kubectl.path();
    let programs = kubectl.parent().unwrap().display();
    // A shell cannot trap a signal that its parent ignores, as a shell does for what it starts in the background.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=INT", "sh", PLUGIN])
        .args(arguments)
        .env("PATH", format!("{programs}:/usr/bin:/bin"));
    command.env("KUBECONFIG", kubeconfig).env("HOME", server.folder()).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Creates a user with the Role on the page. Returns the path of its kubeconfig.
async fn operator(server: &ApiServer) -> PathBuf {
    let text = page("docs/cli.md");
    let (_, section) = text.split_once("### Permissions of the plugin\n").unwrap();
    let (role, _) = section.split_once("```yaml\n").unwrap().1.split_once("```\n").unwrap();
    create(server, role).await;
    let flags =
        ["create", "rolebinding", "commands", "--role=vsphere-ccm-commands", "--user=operator", "-n=kube-system"];
    kubectl(Some(server), &flags, "").await.unwrap();
    server.kubeconfig_of("operator")
}

async fn create(server: &ApiServer, manifest: &str) {
    kubectl(Some(server), &["create", "-f", "-"], manifest).await.unwrap_or_else(|error| panic!("{error}: {manifest}"));
}

/// Returns the objects of this kind in kube-system.
async fn list(server: &ApiServer, kind: &str) -> Vec<Value> {
    let text = kubectl(Some(server), &["get", kind, "-n=kube-system", "-o=json"], "").await.unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().unwrap().clone()
}

async fn the_only(server: &ApiServer, kind: &str) -> Value {
    eventually(&format!("there is one of {kind}"), LIMIT, async || match list(server, kind).await.as_slice() {
        [one] => Ok(one.clone()),
        others => Err(format!("{} of them", others.len())),
    })
    .await
}

/// Waits for the end of the plugin. Returns its exit code and standard error.
async fn end(child: tokio::process::Child) -> (Option<i32>, String) {
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.unwrap().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Returns the Pod specification that the Job has for this workload.
fn expected(workload: &Value, image: &str, words: &[&str]) -> Value {
    let mut pod = workload["spec"]["template"]["spec"].clone();
    pod["restartPolicy"] = json!("Never");
    pod["affinity"].as_object_mut().unwrap().remove("podAntiAffinity");
    let unavailable = json!({"key": "node.kubernetes.io/network-unavailable", "operator": "Exists"});
    pod["tolerations"].as_array_mut().unwrap().insert(0, unavailable);
    let container = pod["containers"][0].as_object_mut().unwrap();
    for field in ["ports", "livenessProbe", "readinessProbe"] {
        container.remove(field);
    }
    let flags = container["args"].as_array().unwrap().clone();
    let words = words.iter().copied().chain(["--detached", "--"]).map(Value::from);
    container.insert("args".to_owned(), words.chain(flags).collect());
    container.insert("command".to_owned(), json!(["/bin/vsphere-cloud-controller-manager"]));
    container.insert("image".to_owned(), json!(image));
    pod
}

#[tokio::test]
async fn the_job_has_the_pod_of_each_form_without_ports_and_probes_and_is_deleted() {
    let server = ApiServer::start().await;
    let operator = operator(&server).await;
    let of_form = async |name: &str, kind: &str| {
        form(name).await.objects.iter().find(|object| object["kind"] == kind).unwrap().clone()
    };
    let upstream = objects(include_str!("../../golden/go-program/release.yaml")).await;
    let upstream = upstream.into_iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    let workloads = [
        (of_form("base", "DaemonSet").await, "daemonsets", None),
        (of_form("deployment", "Deployment").await, "deployments", None),
        (chart::daemon_set().await, "daemonsets", None),
        (chart::deployment().await, "deployments", None),
        (upstream, "daemonsets", Some(OWN_IMAGE)),
    ];
    for (workload, kind, image) in workloads {
        create(&server, &workload.to_string()).await;
        let workload = the_only(&server, kind).await;
        let words = ["check", "--preflight", "--node=a\"b\\c"];
        let option = image.map(|image| format!("--image={image}"));
        let arguments: Vec<&str> = option.as_deref().into_iter().chain(words).collect();
        let child = plugin(&server, &operator, &arguments).spawn().unwrap();

        let job = the_only(&server, "jobs").await;
        let own_image = workload["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
        let template = &job["spec"]["template"];
        assert_eq!(template["spec"], expected(&workload, image.unwrap_or(own_image), &words), "{kind}");
        let labels = template["metadata"]["labels"].as_object().unwrap();
        assert!(labels.keys().all(|key| key.ends_with("job-name") || key.ends_with("controller-uid")), "{labels:?}");
        let limits = ["backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"].map(|key| &job["spec"][key]);
        assert_eq!(limits, [0, 900, 300]);

        let id = child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let (code, told) = end(child).await;
        assert_eq!((code, list(&server, "jobs").await.len()), (Some(130), 0), "{told}");
        let name = workload["metadata"]["name"].as_str().unwrap();
        kubectl(Some(&server), &["delete", kind, name, "-n=kube-system"], "").await.unwrap();
    }
}

/// There is no kubelet, so the log cannot be read. The role allows everything before that.
#[tokio::test]
async fn the_role_on_the_page_is_enough_for_a_job() {
    let server = ApiServer::start().await;
    let operator = operator(&server).await;
    create(&server, &chart::daemon_set().await.to_string()).await;
    create_account(&server, "cloud-controller-manager").await;
    let child = plugin(&server, &operator, &["check", "--preflight"]).spawn().unwrap();
    let job = the_only(&server, "jobs").await;

    // As the Job controller and a kubelet do.
    let mut spec = job["spec"]["template"]["spec"].clone();
    spec["nodeName"] = json!("cp-1");
    let labels = json!({"job-name": job["metadata"]["name"]});
    let ended = json!({"terminated": {"exitCode": 1}});
    let status = json!({"phase": "Failed", "containerStatuses": [
        {"name": "vsphere-cpi", "state": ended, "ready": false, "restartCount": 0, "image": "i", "imageID": "i"}
    ]});
    create_pod(&server, "of-the-job", &labels, &spec, &status).await;
    let (code, told) = end(child).await;
    assert!(code == Some(3) && told.contains("was not read to its end, its Pod is Failed"), "{code:?}: {told}");
    assert!(!told.to_lowercase().contains("forbidden"), "{told}");
    assert_eq!(list(&server, "jobs").await, Vec::<Value>::new());
}

/// There is no kubelet, so kubectl cannot reach the container. The message names the Pod that was chosen.
#[tokio::test]
async fn the_holder_of_a_real_lease_is_found_among_real_pods_with_the_role_on_the_page() {
    let server = ApiServer::start().await;
    let operator = operator(&server).await;
    create_account(&server, "default").await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
        "spec": {"holderIdentity": "cp-2.example.com_5a0f6f5e-5a53-4d2c-9c0b-1f6a3d7e2b10"},
    });
    let refused = end(plugin(&server, &operator, &["status"]).spawn().unwrap()).await;
    assert!(refused.0 == Some(2) && refused.1.starts_with("error: there is no Lease kube-system/"), "{refused:?}");
    create(&server, &lease.to_string()).await;
    let labels = json!({"component": "cloud-controller-manager"});
    let running = json!({"phase": "Running"});
    for (name, node, provider) in
        [("ccm-abcde", "cp-1", "vsphere"), ("ccm-cp-2", "cp-2", "vsphere"), ("rke2-ccm-cp-2", "cp-2", "rke2")]
    {
        let flags = [format!("--cloud-provider={provider}"), "--v=2".to_owned()];
        let container = json!({"name": "ccm", "image": "registry.test/ccm", "args": flags});
        let spec = json!({"nodeName": node, "hostNetwork": true, "containers": [container]});
        create_pod(&server, name, &labels, &spec, &running).await;
    }
    // The Pod of before is being deleted. The finalizer keeps it.
    let spec = json!({"nodeName": "cp-2", "containers": [{"name": "ccm", "image": "registry.test/ccm"}]});
    create_pod(&server, "ccm-of-before", &labels, &spec, &running).await;
    let hold =
        ["patch", "pod", "ccm-of-before", "-n=kube-system", "--patch={\"metadata\":{\"finalizers\":[\"a.test/b\"]}}"];
    kubectl(Some(&server), &hold, "").await.unwrap();
    kubectl(Some(&server), &["delete", "pod", "ccm-of-before", "-n=kube-system", "--wait=false"], "").await.unwrap();
    let (code, told) = end(plugin(&server, &operator, &["explain", "node", "a"]).spawn().unwrap()).await;
    assert!(
        code == Some(3) && told.ends_with("error: the command cannot run in the Pod ccm-cp-2\n"),
        "{code:?}: {told}"
    );
    assert!(!told.to_lowercase().contains("forbidden"), "{told}");
}

async fn create_account(server: &ApiServer, name: &str) {
    kubectl(Some(server), &["create", "serviceaccount", name, "-n=kube-system"], "").await.unwrap();
}

async fn create_pod(server: &ApiServer, name: &str, labels: &Value, spec: &Value, status: &Value) {
    let metadata = json!({"name": name, "namespace": "kube-system", "labels": labels});
    create(server, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string()).await;
    let patch = format!("--patch={}", json!({"status": status}));
    let flags = ["patch", "pod", name, "-n=kube-system", "--subresource=status", "--type=merge", &patch];
    kubectl(Some(server), &flags, "").await.unwrap();
}
