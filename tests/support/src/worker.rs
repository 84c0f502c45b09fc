//! Another node in a [`crate::sandbox`], without pods: a kubelet and a container runtime with separate folders and
//! another machine id. The network is that of the sandbox.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::ApiServer;
use crate::api_server::free_port;
use crate::eventually::unique;
use crate::real_node::{CONTAINERD_SOCKET, Containerd, Kubelet, KubeletSettings, NodeFolders};
use crate::sandbox::Sandbox;

/// Script that runs a program in a new mount namespace. `$0` is the folder that replaces the folders of the sandbox.
/// The machine id is mounted over the firmware UUID, if the machine has one.
const ENTER: &str = "\
for folder in etc run var/lib var/log; do mount --bind \"$0/$folder\" \"/$folder\" || exit; done
for file in /sys/class/dmi/id/product_uuid /proc/device-tree/system-id /proc/device-tree/vm,uuid; do
    [ ! -e $file ] || mount --bind /etc/machine-id $file || exit
done
exec \"$@\"";

/// The machine of the node. Dropping it ends the container runtime.
pub struct Worker {
    folders: NodeFolders,
    _containerd: Containerd,
}

impl Worker {
    /// Starts the container runtime on a machine whose kubelets report this text as its UUID.
    ///
    /// # Panics
    ///
    /// If it does not start in time.
    pub async fn start(sandbox: &Sandbox, system_uuid: &str) -> Self {
        let folder = sandbox.folder().join(unique("worker"));
        for own in ["run", "var/lib", "var/log"] {
            fs::create_dir_all(folder.join(own)).unwrap();
        }
        let copied = Command::new("cp").args(["--archive", "/etc"]).arg(folder.join("etc")).status();
        assert!(copied.unwrap().success(), "failed to copy /etc");
        fs::write(folder.join("etc/machine-id"), format!("{system_uuid}\n")).unwrap();
        let enter = ["unshare", "--mount", "--", "sh", "-c", ENTER, folder.to_str().unwrap()];
        let folders = NodeFolders {
            enter: enter.map(str::to_owned).into(),
            socket: folder.join(CONTAINERD_SOCKET.trim_start_matches('/')),
            folder,
        };
        let containerd = Containerd::start_in(&folders).await;
        Self { folders, _containerd: containerd }
    }

    /// Starts the kubelet as this Node.
    #[must_use]
    pub fn kubelet(&self, server: &ApiServer, name: &str, settings: &KubeletSettings) -> Kubelet {
        let mut settings = settings.clone();
        // The other kubelet, on the control-plane Node, uses the default ports.
        let own = [("port", json!(free_port())), ("healthzPort", json!(0)), ("registerWithTaints", json!([]))];
        settings.configuration.extend(own.map(|(key, value)| (key.to_owned(), value)));
        Kubelet::start_in(&self.folders, server, name, &settings)
    }
}
