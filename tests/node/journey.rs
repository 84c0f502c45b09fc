//! The exact commands of the pages for kubeadm, from the image to the final check, on a real node.
//!
//! In the sandbox vCenter has the name of the pages, so that the test replaces few names. The output on a page is
//! compared with the output of the commands.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::api_server::NODE_ADDRESS;
use support::components::release_binary;
use support::pages::{Shell, is_as_shown, page, sections};
use support::real_node::{KubeletSettings, add_pod_network, system_uuid};
use support::{Scenario, sandbox};

use crate::cluster::{Cluster, LIMIT, NODE, TAG, TEST_LIMIT, eventually};
use crate::images;

const PAGES: [&str; 4] =
    ["docs/install/image.md", "docs/install/vsphere.md", "docs/install/kubeadm.md", "docs/install/verify.md"];

/// The sections of the journey.
const SECTIONS: [&str; 8] = [IMAGE, NAME, PRIVATE, NO_REGISTRY, VSPHERE, KUBEADM, COMPONENTS, VERIFY];
const IMAGE: &str = "Build the image";
const NAME: &str = "Name the image";
const PRIVATE: &str = "Private registry";
const NO_REGISTRY: &str = "Without a registry";
const VSPHERE: &str = "Prepare vSphere";
const KUBEADM: &str = "Steps with kubeadm";
const COMPONENTS: &str = "Add components";
const VERIFY: &str = "Verify";

/// Commands whose blocks in these sections are not run, with the reasons.
const NOT_RUN: &[(&str, &str)] = &[
    ("sed -i 's|newName", "the overlay of the page for kubeadm names the image; the suite daemon runs it"),
    ("docker login registry.example.com", "needs a registry with credentials"),
    ("create secret generic registry-credentials", "needs the login before it; the suite daemon runs it with a file"),
];

/// Commands and steps of the page that have no effect here, with the reasons.
const NOT_DONE: &[(&str, &str)] = &[
    ("skopeo copy", "it needs a registry; a program that does nothing takes its place"),
    (
        "kubeadm init --config init.yaml",
        "it pulls images and asks systemd; the kubelet has the flag that it would write",
    ),
    ("kubeadm join --config", "there is one node"),
    ("*Administration > Access Control > Global Permissions > Add*", "the simulator needs no permission"),
];

const ADMINISTRATOR: &str = "administrator@vsphere.local";
const ADMINISTRATOR_PASSWORD: &str = "Adm1n-4711";
/// The reader's password for the account of the page.
const PASSWORD: &str = "S3cret-4711";

#[test]
fn what_is_not_run_is_on_the_page() {
    let pages = PAGES.map(page).concat();
    for (command, reason) in NOT_RUN.iter().chain(NOT_DONE) {
        assert!(pages.contains(command), "{command} ({reason})");
    }
}

#[test]
fn a_reader_of_the_page_for_installing_gets_a_cluster_with_initialized_nodes() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        // kubeadm names a node after its host. The leader's identity also begins with the host's name.
        fs::write("/proc/sys/kernel/hostname", NODE).unwrap();
        // Without a pod network the Node would not be ready, unlike on the page.
        add_pod_network();
        let scenario = Scenario::small().login(ADMINISTRATOR, ADMINISTRATOR_PASSWORD);
        let mut reader = Reader::new(Cluster::without_kubelet_on(sandbox, scenario).await);
        reader.make_image().await;
        let thumbprint = reader.prepare_vsphere().await;
        reader.start_node().await;
        reader.configure(&thumbprint).await;
        reader.forget_the_image().await;
        reader.run(KUBEADM, "mkdir -p my-ccm", "").await;
        reader.run(KUBEADM, "kubectl apply -k my-ccm", "").await;
        reader.look(KUBEADM, "rollout status").await;
        reader.verify().await;
        reader.run(COMPONENTS, "kubectl apply -k my-ccm", "").await;
        reader.verify().await;
        reader.end();
    });
}

/// A reader with a cluster, a vCenter and a copy of the manifests.
struct Reader {
    cluster: Cluster,
    shell: Shell,
}

impl Reader {
    fn new(cluster: Cluster) -> Self {
        let names = [
            ("CONTROL-PLANE-NODE", NODE_ADDRESS.to_owned()),
            ("cp-1 cp-2 cp-3", NODE.to_owned()),
            ("node NODE", format!("node {NODE}")),
            ("node-1", NODE.to_owned()),
            // The second half of the identity in the Lease is random.
            ("abd17752-f34d-4a45-9b5c-6f52f0238ece", "…".to_owned()),
            ("0B:40:70:71:C2:D3:…", cluster.vcenter.sha256_thumbprint().to_owned()),
            // The VM has the UUID of this machine.
            ("4211c0de-7e57-4000-8000-000000000001", system_uuid()),
        ];
        let shell = Shell::new(&cluster.server.kubeconfig(), &PAGES, names.into());
        // The user of the test is root already.
        shell.link("sudo", Path::new("/usr/bin/env"));
        shell.link("skopeo", Path::new("/bin/true"));
        let reader = Self { cluster, shell };
        // The only node is this machine.
        reader.link_script("ssh", "shift\nexec \"$@\"");
        reader.link_make();
        reader
    }

    /// Adds a `make` command to the shell that runs in the root of the repository, with a copy of the binary from `make
    /// release`. That target is left out, because it would build the binary again for another commit.
    fn link_make(&self) {
        let binary = release_binary(env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager"));
        let (binary, root) = (binary.display(), env!("CARGO_MANIFEST_DIR"));
        let variables = ["HOME", "PATH", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR"];
        let assignment = |name| std::env::var(name).map(|value| format!("'{name}={value}'"));
        let variables = variables.into_iter().flat_map(assignment).collect::<Vec<_>>().join(" ");
        let script = format!(
            "folder=target/$(uname -m)-unknown-linux-gnu/release\nmkdir -p $folder\ncp '{binary}' $folder\n\
             exec env {variables} make --directory='{root}' --old-file=release TARGET=\"$PWD/target\" \"$@\""
        );
        self.link_script("make", &script);
    }

    /// Adds a script with these commands to the shell, under this name.
    fn link_script(&self, name: &str, commands: &str) {
        let path = self.cluster.sandbox.folder().join(name);
        fs::write(&path, format!("#!/bin/sh\n{commands}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self.shell.link(name, &path);
    }

    /// Builds the archive, and imports it in place of the first image of every cluster.
    async fn make_image(&mut self) {
        let image = format!("{}:{TAG}", images::IMAGE);
        let status = Command::new("ctr").args(["-n", "k8s.io", "images", "rm", "--sync", &image]).status().unwrap();
        assert!(status.success(), "{image} is not removed: {status}");
        self.run(IMAGE, "make image-archive", "").await;
        self.run(NO_REGISTRY, "ssh \"$node\" sudo ctr", "").await;
    }

    /// Runs the block with this command. Its output must equal the output on the page, if the page shows one.
    async fn run(&mut self, heading: &'static str, command: &str, input: &str) -> String {
        let number = self.shell.number_of(heading, command);
        let printed = self.shell.run(heading, number, input).await;
        println!("{printed}");
        match self.shell.shown(heading, number) {
            Some(shown) if !is_as_shown(&shown, &printed) => {
                panic!("the page shows:\n{shown}\nprinted was:\n{printed}")
            }
            _ => printed,
        }
    }

    /// As [`Reader::run`], repeated until the output equals the output on the page.
    async fn look(&mut self, heading: &'static str, command: &str) {
        let number = self.shell.number_of(heading, command);
        let shown = self.shell.shown(heading, number).unwrap();
        let printed = eventually(command, LIMIT, async || {
            let printed = self.shell.run(heading, number, "").await;
            match is_as_shown(&shown, &printed) {
                true => Ok(printed),
                false => Err(format!("the page shows:\n{shown}\nprinted was:\n{printed}")),
            }
        })
        .await;
        println!("{printed}");
    }

    /// Runs the steps in vSphere. Returns the thumbprint that the first step prints.
    async fn prepare_vsphere(&mut self) -> String {
        let printed = self.run(VSPHERE, "govc about.cert", "").await;
        let thumbprint = printed.split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(thumbprint, self.cluster.vcenter.sha256_thumbprint());
        self.run(VSPHERE, "govc sso.user.create", &format!("{ADMINISTRATOR_PASSWORD}\n{PASSWORD}\n")).await;
        self.run(VSPHERE, "govc find / -type m", &format!("{PASSWORD}\n")).await;
        thumbprint
    }

    /// Starts the kubelet with the flags of the page.
    async fn start_node(&mut self) {
        self.run(KUBEADM, "sudo tee /etc/default/kubelet", "").await;
        let text = fs::read_to_string("/etc/default/kubelet").unwrap();
        let flags = text.trim().strip_prefix("KUBELET_EXTRA_ARGS=").unwrap().split_whitespace();
        let settings = KubeletSettings { flags: flags.map(str::to_owned).collect(), ..KubeletSettings::default() };
        self.cluster.start_kubelet(&settings).await;
        let taints = self.cluster.get(&["node", NODE])["spec"]["taints"].to_string();
        assert!(taints.contains("node.cloudprovider.kubernetes.io/uninitialized"), "{taints}");
    }

    async fn configure(&mut self, thumbprint: &str) {
        self.run(KUBEADM, "create secret generic vsphere-cloud-secret", &format!("{PASSWORD}\n")).await;
        let edits = [
            ("# thumbprint: .*", format!("thumbprint: \"{thumbprint}\"")),
            ("# labels:", "labels:".to_owned()),
            ("#   region:", "  region:".to_owned()),
            ("#   zone:", "  zone:".to_owned()),
        ];
        self.shell.set_editor(&edits.map(|(from, to)| (from.to_owned(), to)));
        self.run(KUBEADM, "cp -r manifests/config", "").await;
    }

    /// Applies the overlay without an image name. Checks the result on the page.
    async fn forget_the_image(&self) {
        let overlay = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/overlays/kubeadm");
        self.cluster.kubectl(&["apply", "--kustomize", overlay]);
        eventually("the pod has an invalid image name", LIMIT, async || {
            let pods = self.cluster.kubectl(&["get", "pods", "-n", "kube-system"]);
            let events = self.cluster.get(&["events", "-n", "kube-system"]);
            let names_the_file = |event: &Value| {
                event["message"].as_str().is_some_and(|message| message.contains("manifests/image/kustomization.yaml"))
            };
            let is_named = events["items"].as_array().unwrap().iter().any(names_the_file);
            match pods.contains("InvalidImageName") && is_named {
                true => Ok(()),
                false => Err(pods),
            }
        })
        .await;
    }

    /// Runs the checks of the last section.
    async fn verify(&mut self) {
        self.run(VERIFY, "rollout status", "").await;
        self.look(VERIFY, "get lease").await;
        self.look(VERIFY, "describe node").await;
        let labels = self.cluster.get(&["node", NODE])["metadata"]["labels"].clone();
        let place = ["region", "zone"].map(|kind| labels[format!("topology.kubernetes.io/{kind}")].clone());
        assert_eq!(place, ["region-1", "zone-a"], "the tags of the page");
    }

    /// Checks that each block of the sections was run, or is in [`NOT_RUN`].
    fn end(mut self) {
        let mut expected = Vec::new();
        for (heading, blocks) in PAGES.iter().flat_map(|name| sections(&page(name))) {
            let Some(heading) = SECTIONS.into_iter().find(|section| *section == heading) else { continue };
            for (number, block) in blocks.iter().enumerate() {
                if !NOT_RUN.iter().any(|(command, _)| block.commands.contains(command)) {
                    expected.push((heading, number));
                }
            }
        }
        self.shell.ran.sort_unstable();
        self.shell.ran.dedup();
        expected.sort_unstable();
        assert_eq!(self.shell.ran, expected);
    }
}
