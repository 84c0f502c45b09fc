//! A real node in a [`crate::sandbox`]: containerd, and a kubelet that registers with `--cloud-provider=external`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::ApiServer;
use crate::components::Component;
use crate::eventually::eventually;
use crate::sandbox::{MACHINE_ID, SNAPSHOTTER, Sandbox};
use crate::supervisor::{Output, Supervised};

/// Socket of containerd for CRI clients.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// Folder of the kubelet's static pods.
pub const STATIC_PODS: &str = "/etc/kubernetes/manifests";

/// Folder of containerd's network configuration for pods.
const NETWORKS: &str = "/etc/cni/net.d";

/// Folder of volume plugins for the kubelet and kube-controller-manager. They create it. The default is below
/// `/usr/libexec`, outside of a sandbox.
pub(crate) const VOLUME_PLUGINS: &str = "/var/lib/kubelet/volume-plugins";

/// Image of the pause containers.
pub const PAUSE_IMAGE: &str = "registry.k8s.io/pause:3.10";

/// Timeout of a program's start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct NodeFolders {
    /// Folder for files of this harness.
    pub(crate) folder: PathBuf,
    /// First words of a command that runs a program with the node's folders in place of `/etc`, `/run` and others.
    pub(crate) enter: Vec<String>,
    /// Socket of the container runtime, as a path outside of these folders.
    pub(crate) socket: PathBuf,
}

impl NodeFolders {
    fn of(sandbox: &Sandbox) -> Self {
        Self { folder: sandbox.folder().to_owned(), enter: Vec::new(), socket: PathBuf::from(CONTAINERD_SOCKET) }
    }

    fn start(&self, name: &str, program: &Path, arguments: Vec<String>) -> Supervised {
        let command = self.enter.iter().cloned().chain([program.display().to_string()]).chain(arguments);
        let command: Vec<String> = command.collect();
        Supervised::start(name, Path::new(&command[0]), &command[1..], &self.folder)
    }
}

/// The containerd of this system. Dropping it ends it, but containers continue to run.
pub struct Containerd(Supervised);

impl Containerd {
    /// Starts it, without images.
    pub async fn start(sandbox: &Sandbox) -> Self {
        Self::start_in(&NodeFolders::of(sandbox)).await
    }

    pub(crate) async fn start_in(folders: &NodeFolders) -> Self {
        let config = folders.folder.join("containerd.toml");
        // In many containers runc may not write its own OOM score, and fails at a score below its parent's. An AppArmor
        // profile would stay in the host's kernel, and `opt` creates a folder outside of the sandbox. From version 2
        // on, containerd unpacks an import with the snapshotters in `transfer`.
        let text = format!(
            "version = 2\n[grpc]\naddress = \"{CONTAINERD_SOCKET}\"\n[plugins.\"io.containerd.grpc.v1.cri\"]\n\
             disable_apparmor = true\nrestrict_oom_score_adj = true\nsandbox_image = \"{PAUSE_IMAGE}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"{SNAPSHOTTER}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = \"{NETWORKS}\"\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"/var/lib/containerd/opt\"\n\
             [[plugins.\"io.containerd.transfer.v1.local\".unpack_config]]\n\
             platform = \"linux\"\nsnapshotter = \"{SNAPSHOTTER}\"\n"
        );
        fs::write(&config, text).unwrap();
        let arguments = vec![format!("--config={}", config.display())];
        let containerd = Self(folders.start("containerd", Path::new("containerd"), arguments));
        eventually("containerd answers", START_LIMIT, async || {
            let output = Command::new("ctr").arg("--address").arg(&folders.socket).arg("version").output();
            let output = output.map_err(|error| format!("ctr: {error}"))?;
            let log = || format!("{}\n{}", String::from_utf8_lossy(&output.stderr), containerd.0.output.tail(10));
            if output.status.success() { Ok(()) } else { Err(log()) }
        })
        .await;
        containerd
    }

    /// Imports an archive with the command of the installation page.
    ///
    /// # Panics
    ///
    /// If containerd rejects it.
    pub fn import(&self, archive: &Path) {
        let output = Command::new("ctr").args(["-n", "k8s.io", "images", "import"]).arg(archive).output().unwrap();
        assert!(output.status.success(), "{}: {}", archive.display(), String::from_utf8_lossy(&output.stderr));
    }

    /// Returns its log.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.0.output
    }
}

/// Gives the node a pod network, as a CNI plugin does at its start. No Node becomes ready without one. The pods of
/// these tests do not use it, because all of them have the host network.
///
/// # Panics
///
/// If the file cannot be written.
pub fn add_pod_network() {
    let plugin =
        json!({ "type": "bridge", "bridge": "cni0", "ipam": { "type": "host-local", "subnet": "10.244.0.0/24" } });
    let network = json!({ "cniVersion": "0.4.0", "name": "pods", "plugins": [plugin] });
    fs::create_dir_all(NETWORKS).unwrap();
    fs::write(Path::new(NETWORKS).join("10-pods.conflist"), network.to_string()).unwrap();
}

/// Settings that differ between kubelets.
#[derive(Debug, Clone, Default)]
pub struct KubeletSettings {
    /// Flags in addition to those of every kubelet here, such as `--node-ip`.
    pub flags: Vec<String>,
    /// Configuration fields in addition to those of every kubelet here.
    pub configuration: serde_json::Map<String, serde_json::Value>,
}

/// A kubelet with an external cloud provider. Dropping it ends it, but containers continue to run.
pub struct Kubelet(Supervised);

impl Kubelet {
    /// Starts it as this Node of this API server.
    #[must_use]
    pub fn start(sandbox: &Sandbox, server: &ApiServer, name: &str, settings: &KubeletSettings) -> Self {
        Self::start_in(&NodeFolders::of(sandbox), server, name, settings)
    }

    pub(crate) fn start_in(folders: &NodeFolders, server: &ApiServer, name: &str, settings: &KubeletSettings) -> Self {
        fs::create_dir_all(STATIC_PODS).unwrap();
        let mut configuration = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": true },
                "x509": { "clientCAFile": server.ca_file() },
            },
            "authorization": { "mode": "Webhook" },
            "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
            "staticPodPath": STATIC_PODS,
            "registerWithTaints": [{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }],
            // Settings that a sandbox needs on any machine.
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            "volumePluginDir": VOLUME_PLUGINS,
            "evictionHard": {},
        });
        configuration.as_object_mut().unwrap().extend(settings.configuration.clone());
        let file = folders.folder.join("kubelet.json");
        fs::write(&file, serde_json::to_vec_pretty(&configuration).unwrap()).unwrap();
        let kubeconfig = server.kubeconfig_in_group(&format!("system:node:{name}"), "system:nodes");
        let mut arguments = vec![
            format!("--config={}", file.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--cloud-provider=external".to_owned(),
            format!("--hostname-override={name}"),
            "--v=2".to_owned(),
        ];
        arguments.extend(settings.flags.clone());
        Self(folders.start("kubelet", &Component::Kubelet.path(), arguments))
    }

    /// Sends a signal, named without `SIG`.
    pub async fn signal(&self, signal: &str) {
        self.0.signal(signal).await;
    }

    /// Returns its log.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.0.output
    }
}

/// Files in which cadvisor looks for the UUID of a machine (`GetSystemUUID` in `utils/sysfs/sysfs.go`). The first
/// readable file counts. The last one belongs to the sandbox.
const SYSTEM_UUID: [&str; 4] =
    ["/sys/class/dmi/id/product_uuid", "/proc/device-tree/system-id", "/proc/device-tree/vm,uuid", MACHINE_ID];

/// Returns the UUID that a kubelet in a sandbox of this machine reports. It has hyphens, which a machine id lacks.
///
/// # Panics
///
/// If the firmware's value is not a UUID.
#[must_use]
pub fn system_uuid() -> String {
    let read = |file: &&'static str| Some((*file, fs::read_to_string(file).ok()?));
    let (file, text) = SYSTEM_UUID.iter().find_map(read).expect("a sandbox has a machine id");
    let parsed = uuid::Uuid::parse_str(text.trim_end_matches('\0').trim());
    parsed.unwrap_or_else(|error| panic!("{file}: {text:?}: {error}")).to_string()
}
