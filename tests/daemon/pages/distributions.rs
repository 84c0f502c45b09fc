//! The pages of RKE2, K3s, Talos, Cluster API and Rancher: their commands on an API server, and the program with the
//! objects that they create.

use support::pages::is_as_shown;

use super::blocks::{K3S, RANCHER, RKE2, TALOS, WORKLOAD_CLUSTER};
use super::{PASSWORD, Reader, SET, image_and_variables, prepared};
use crate::cluster::LIMIT;
use crate::manifests::kustomize::kubectl;

/// The image that the pages name.
const IMAGE: &str = "registry.example.com/vsphere-cloud-controller-manager:v0.1.0";

impl Reader {
    /// Creates a reader who writes server and thumbprint into the sample of the configuration.
    async fn of(journey: &'static str) -> Self {
        let reader = Self::new(journey, prepared).await;
        let thumbprint = format!("thumbprint: \"{}\"", reader.vcenter.sha256_thumbprint());
        let server = reader.vcenter.host().to_owned();
        let edits = [("# thumbprint: .*".to_owned(), thumbprint), ("vcenter.example.com".to_owned(), server)];
        reader.shell.set_editor(&edits);
        reader
    }

    /// Runs a block. Its output must equal the output on the page, if the page shows one.
    async fn follow(&mut self, heading: &'static str, number: usize, input: &str) -> String {
        let printed = self.run(heading, number, input).await;
        if let Some(shown) = self.shell.shown(heading, number) {
            assert!(is_as_shown(&shown, &printed), "{heading} {number} shows:\n{shown}\nprinted was:\n{printed}");
        }
        printed
    }

    async fn apply(&self, manifest: &str) -> String {
        kubectl(Some(&self.server), &["apply", "--filename=-"], manifest).await.unwrap()
    }

    /// Checks that a manifest equals the objects that the overlay has created.
    async fn assert_applied(&self, manifest: &str) {
        let printed = self.apply(manifest).await;
        assert!(printed.ends_with("daemonset.apps/vsphere-cloud-controller-manager unchanged\n"), "{printed}");
        assert!(!printed.contains("created"), "{printed}");
    }

    /// Starts the pod, and checks that it initializes the nodes.
    async fn assert_initializes(&self) {
        assert_eq!(image_and_variables(self, SET).await.0, IMAGE);
        self.cluster.register(0..2).await;
        let mut daemon = self.start_pod(SET).await;
        self.until_initialized(&daemon).await;
        assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    }
}

fn password() -> String {
    format!("{PASSWORD}\n")
}

/// Follows the steps of a distribution, from the name of the image to the start of the program.
async fn install(journey: &'static str, steps: &'static str) -> Reader {
    let mut reader = Reader::of(journey).await;
    reader.follow(steps, 0, "").await;
    reader.follow(steps, 1, &password()).await;
    reader.follow(steps, 2, "").await;
    let printed = reader.follow(steps, 3, "").await;
    assert!(printed.ends_with("daemonset.apps/vsphere-cloud-controller-manager created\n"), "{printed}");
    reader.assert_initializes().await;
    reader
}

#[tokio::test]
async fn a_reader_installs_the_overlays_of_rke2_and_k3s() {
    let pages = [(RKE2, "Steps on RKE2", "Start with RKE2"), (K3S, "Steps on K3s", "Start with K3s")];
    for (journey, steps, start) in pages {
        let mut reader = install(journey, steps).await;
        reader.follow(start, 0, "").await;
        reader.assert_applied(&reader.shell.read("vsphere-cloud-controller-manager.yaml")).await;
        reader.end();
    }
}

#[tokio::test]
async fn a_reader_installs_the_overlay_of_talos() {
    let mut reader = install(TALOS, "Steps on Talos").await;
    reader.follow("Start with Talos", 0, "").await;
    // The manifest is a text in the patch, below four lines.
    let patch = reader.shell.read("control-plane-patch.yaml");
    let manifest: Vec<&str> = patch.lines().skip(4).map(|line| line.strip_prefix("      ").unwrap()).collect();
    reader.assert_applied(&manifest.join("\n")).await;
    reader.end();
}

/// The test does the work of a `ClusterResourceSet`: it applies each entry of the two objects.
#[tokio::test]
async fn a_reader_installs_in_a_workload_cluster_of_cluster_api() {
    let mut reader = Reader::of(WORKLOAD_CLUSTER).await;
    let steps = "Steps with Cluster API";
    reader.follow(steps, 0, "").await;
    reader.follow(steps, 1, "").await;
    reader.follow(steps, 2, &password()).await;
    let manifests = reader.get(&["configmap", "vsphere-ccm-manifests"]).await;
    for manifest in manifests["data"].as_object().unwrap().values() {
        reader.apply(manifest.as_str().unwrap()).await;
    }
    let secret = reader.get(&["secret", "vsphere-ccm-credentials"]).await;
    assert_eq!(secret["type"], "addons.cluster.x-k8s.io/resource-set");
    let template = "--output=go-template={{index .data \"credentials.yaml\" | base64decode}}";
    let arguments = ["get", "secret", "vsphere-ccm-credentials", template];
    reader.apply(&kubectl(Some(&reader.server), &arguments, "").await.unwrap()).await;
    reader.assert_initializes().await;
    reader.end();
}

/// The test does the work of Rancher: it applies the additional manifest.
#[tokio::test]
async fn a_reader_installs_in_a_cluster_of_rancher() {
    let mut reader = Reader::of(RANCHER).await;
    let steps = "Steps with Rancher";
    reader.follow(steps, 0, "").await;
    reader.follow(steps, 1, "").await;
    reader.apply(&reader.shell.read("additional-manifest.yaml")).await;
    reader.follow(steps, 2, &password()).await;
    reader.assert_initializes().await;
    reader.end();
}
