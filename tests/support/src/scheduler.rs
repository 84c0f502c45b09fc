//! Runs the real kube-scheduler.

use crate::ApiServer;
use crate::components::Component;
use crate::supervisor::{Output, Supervised};

/// A kube-scheduler. It runs until it is dropped.
pub struct Scheduler(Supervised);

impl Scheduler {
    /// Starts it on this API server, with its default profile.
    #[must_use]
    pub fn start(server: &ApiServer) -> Self {
        let arguments = [
            format!("--kubeconfig={}", server.kubeconfig_of_administrator("system:kube-scheduler").display()),
            "--leader-elect=false".to_owned(),
            // It has no server port.
            "--secure-port=0".to_owned(),
        ];
        let program = Component::KubeScheduler.path();
        Self(Supervised::start("kube-scheduler", &program, &arguments, server.folder()))
    }

    /// Returns its output.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.0.output
    }
}
