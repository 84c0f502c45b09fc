//! The files of a release: `make release-files` without the build of the binary, which is a file of the test here. That the
//! binary is static, and what the SBOM lists, other tests check.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use support::components::Component;

use super::UNSET_IMAGE;
use super::kustomize::{forms, objects, piped};

/// Returns an address of the project.
fn address(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/addresses.env");
    let text = std::fs::read_to_string(file).unwrap();
    let prefix = format!("{name}=");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap().to_owned()
}

/// Replaces the image that the manifests leave open.
fn with_image(object: &Value, image: &str) -> Value {
    let unset = format!("{UNSET_IMAGE}:v{}", env!("CARGO_PKG_VERSION"));
    serde_json::from_str(&object.to_string().replace(&unset, image)).unwrap()
}

#[tokio::test]
async fn a_release_has_binary_overlays_and_chart_with_their_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("binary"), "binary").unwrap();
    std::fs::write(path("vsphere-cloud-controller-manager.cdx.json"), "{}").unwrap();
    // The chart of an earlier version.
    std::fs::create_dir(path("release-files")).unwrap();
    std::fs::write(path("release-files/vsphere-cpi-1.0.0.tgz"), "earlier").unwrap();
    let run = async |arguments: &[String]| {
        // Helm keeps a cache in the home folder.
        let home = format!("HOME={}", path("home"));
        let arguments: Vec<String> = [home].iter().chain(arguments).cloned().collect();
        piped(Path::new("/usr/bin/env"), &arguments, "").await.unwrap()
    };
    let targets = ["make", "release-binary", "release-manifests", "release-chart", "release-checksums"];
    let variables = [
        format!("TARGET={}", folder.path().display()),
        format!("RELEASE_BINARY={}", path("binary")),
        "RELEASE_TARGET=aarch64-unknown-linux-gnu".to_owned(),
        format!("KUBECTL={}", Component::Kubectl.path().display()),
        format!("HELM={}", Component::Helm.path().display()),
    ];
    run(&targets.map(str::to_owned).into_iter().chain(variables).collect::<Vec<_>>()).await;

    let files = folder.path().join("release-files");
    let found: BTreeSet<String> =
        std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let (version, image) = (env!("CARGO_PKG_VERSION"), address("IMAGE"));
    let metadata = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/helm/vsphere-cpi/Chart.yaml"));
    let chart_version = metadata.lines().find_map(|line| line.strip_prefix("version: ")).unwrap();
    let chart_name = format!("vsphere-cpi-{chart_version}.tgz");
    let binary = "vsphere-cloud-controller-manager-linux-arm64";
    let mut expected: BTreeSet<String> =
        ["SHA256SUMS", binary, &format!("{binary}.cdx.json"), &chart_name].map(str::to_owned).into();
    for form in forms().await {
        let Some(distribution) = form.name.strip_prefix("overlays/") else { continue };
        let file = format!("install-{distribution}.yaml");
        let text = std::fs::read_to_string(files.join(&file)).unwrap();
        assert!(text.contains(&address("DOCUMENTATION")) && !text.contains(UNSET_IMAGE), "{text}");
        let wanted: Vec<Value> =
            form.objects.iter().map(|object| with_image(object, &format!("{image}:v{version}"))).collect();
        assert_eq!(json!(objects(&text).await), json!(wanted), "{file}");
        expected.insert(file);
    }
    assert_eq!(found, expected);

    let sums = std::fs::read_to_string(files.join("SHA256SUMS")).unwrap();
    let summed: BTreeSet<String> = sums.lines().map(|line| line.split_once("  ").unwrap().1.to_owned()).collect();
    expected.remove("SHA256SUMS");
    assert_eq!(summed, expected);
    let check = format!("cd {} && sha256sum --check --strict SHA256SUMS", files.display());
    run(&["sh", "-c", &check].map(str::to_owned)).await;

    let chart = files.join(chart_name).display().to_string();
    let helm = Component::Helm.path().display().to_string();
    let shown = run(&[helm, "show".to_owned(), "chart".to_owned(), chart]).await;
    assert!(shown.contains(&format!("version: {chart_version}\n")), "{shown}");
}
