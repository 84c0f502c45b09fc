//! Runs the real kube-controller-manager, which is the only program that sets Ready=Unknown.

use std::time::Duration;

use crate::ApiServer;
use crate::components::Component;
use crate::real_node::VOLUME_PLUGINS;
use crate::supervisor::{Output, Supervised};

/// A kube-controller-manager. It runs until it is dropped.
pub struct ControllerManager(Supervised);

impl ControllerManager {
    /// Starts the Node controllers on this API server, as an administrator and with an external cloud provider. A Node
    /// becomes Ready=Unknown when its kubelet has not renewed its Lease for `grace`.
    #[must_use]
    pub fn start(server: &ApiServer, grace: Duration) -> Self {
        let nodes = "--controllers=node-lifecycle-controller,taint-eviction-controller,node-ipam-controller".to_owned();
        Self::start_with(server, grace, &[nodes])
    }

    /// Like [`ControllerManager::start`], with all default controllers, including those that create pods and everything
    /// that the API server requires for a pod (service accounts, the CA of the cluster).
    #[must_use]
    pub fn start_all(server: &ApiServer, grace: Duration) -> Self {
        let key = server.service_account_key_file();
        let files = [
            format!("--root-ca-file={}", server.ca_file().display()),
            format!("--service-account-private-key-file={}", key.display()),
            "--use-service-account-credentials=true".to_owned(),
            format!("--flex-volume-plugin-dir={VOLUME_PLUGINS}"),
        ];
        Self::start_with(server, grace, &files)
    }

    fn start_with(server: &ApiServer, grace: Duration, flags: &[String]) -> Self {
        let mut arguments = vec![
            format!("--kubeconfig={}", server.kubeconfig().display()),
            "--cloud-provider=external".to_owned(),
            "--allocate-node-cidrs=true".to_owned(),
            "--cluster-cidr=10.244.0.0/16".to_owned(),
            format!("--node-monitor-grace-period={}s", grace.as_secs()),
            "--node-monitor-period=1s".to_owned(),
            "--leader-elect=false".to_owned(),
            // It has no server port.
            "--secure-port=0".to_owned(),
        ];
        arguments.extend_from_slice(flags);
        let program = Component::KubeControllerManager.path();
        Self(Supervised::start("kube-controller-manager", &program, &arguments, server.folder()))
    }

    /// Returns its output.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.0.output
    }
}
