//! The real kube-controller-manager, of which the controllers of Nodes run. It alone sets Ready=Unknown.

use std::time::Duration;

use crate::ApiServer;
use crate::components::Component;
use crate::supervisor::{Output, Supervised};

/// It runs until it is dropped.
pub struct ControllerManager(Supervised);

impl ControllerManager {
    /// Starts it on this API server, as an administrator and with an external cloud provider. A kubelet that renews its
    /// Lease for `grace` no more is silent.
    #[must_use]
    pub fn start(server: &ApiServer, grace: Duration) -> Self {
        let arguments = [
            format!("--kubeconfig={}", server.kubeconfig().display()),
            "--controllers=node-lifecycle-controller,taint-eviction-controller,node-ipam-controller".to_owned(),
            "--cloud-provider=external".to_owned(),
            "--allocate-node-cidrs=true".to_owned(),
            "--cluster-cidr=10.244.0.0/16".to_owned(),
            format!("--node-monitor-grace-period={}s", grace.as_secs()),
            "--node-monitor-period=1s".to_owned(),
            "--leader-elect=false".to_owned(),
            // It serves nothing.
            "--secure-port=0".to_owned(),
        ];
        let program = Component::KubeControllerManager.path();
        Self(Supervised::start("kube-controller-manager", &program, &arguments, server.folder()))
    }

    /// What it has written.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.0.output
    }
}
