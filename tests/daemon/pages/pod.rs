//! The pod of a DaemonSet on the API server: the daemon's binary, started as the kubelet would start the container.

use std::path::Path;

use serde_json::Value;
use support::{ApiServer, Daemon, Vcenter};

use crate::admin::Admin;
use crate::cluster::BINARY;
use crate::manifests::kustomize::{kubectl, objects};
use crate::manifests::pods::{containers, pod};

/// A pod of a DaemonSet.
pub struct Pod {
    flags: Vec<String>,
    variables: Vec<(String, String)>,
    _files: tempfile::TempDir,
}

impl Pod {
    /// Reads flags, variables and files of the DaemonSet in `kube-system`, with the permissions of its service account.
    /// Only the port of vCenter and local paths differ.
    pub async fn of(server: &ApiServer, set: &str, vcenter: &Vcenter) -> Self {
        let get = async |kind: &str, name: &str| {
            let arguments = ["get", kind, name, "--namespace=kube-system", "--output=yaml"];
            objects(&kubectl(Some(server), &arguments, "").await.unwrap()).await.remove(0)
        };
        let set = get("daemonset", set).await;
        let spec = pod(&set).unwrap();
        let volume = spec["volumes"][0]["configMap"]["name"].as_str().unwrap();
        let files = tempfile::tempdir().unwrap();
        for (name, text) in get("configmap", volume).await["data"].as_object().unwrap() {
            let text = text.as_str().unwrap().replace("port: 443", &format!("port: {}", vcenter.port()));
            std::fs::write(files.path().join(name), text).unwrap();
        }
        let account = spec["serviceAccountName"].as_str().unwrap();
        let kubeconfig = server.kubeconfig_of_service_account("kube-system", account).await;
        let container = containers(&set)[0];
        let mounted = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
        let place = |flag: &Value| flag.as_str().unwrap().replace(mounted, files.path().to_str().unwrap());
        let mut flags: Vec<String> = container["args"].as_array().unwrap().iter().map(place).collect();
        flags.extend(Self::places(&kubeconfig));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let variables = container["env"].as_array().cloned().unwrap_or_default();
        let mut variables: Vec<(String, String)> =
            variables.iter().map(|variable| (text(&variable["name"]), text(&variable["value"]))).collect();
        // The default of half a minute would make the test slow.
        variables.push(("CCM_NODE_DELETION_GRACE".to_owned(), "1s".to_owned()));
        Self { flags, variables, _files: files }
    }

    /// Returns the flags for local paths. In a pod Kubernetes defines these paths.
    fn places(kubeconfig: &Path) -> Vec<String> {
        let kubeconfig = kubeconfig.display();
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".to_owned(),
            Admin::new().flag(),
        ]
    }

    /// Starts the pod.
    pub fn start(&self) -> Daemon {
        let variables: Vec<(&str, &str)> =
            self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Daemon::start_with(BINARY, &self.flags, &variables)
    }
}
