//! `kubectl apply`, as users do it.

use support::sandbox;

use crate::cluster::{Cluster, TEST_LIMIT};

#[test]
fn an_overlay_initialises_the_node_that_it_runs_on() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let cluster = Cluster::start(sandbox).await;
        cluster.configure();
        let overlay = cluster.manifests().join("overlays/kubeadm");
        cluster.kubectl(&["apply", "--kustomize", overlay.to_str().unwrap()]);
        let node = cluster.wait_until_initialised().await;
        println!("{}", node["spec"]);
        println!("{}", cluster.wait_until_ready().await);
    });
}
