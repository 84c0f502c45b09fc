//! Image archives: that of the product, and that of the pods' sandboxes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The product's image, as the manifests of these tests name it.
pub const IMAGE: &str = "registry.example.com/vsphere-cloud-controller-manager";

/// What `make release` builds.
fn release_binary() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager")).ancestors().nth(2).unwrap();
    let binary = folder
        .join(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .join("release/vsphere-cloud-controller-manager");
    assert!(binary.is_file(), "the static binary is missing ({}): build it with `make release`", binary.display());
    binary
}

/// The archive of the product, with this tag.
pub fn product(folder: &Path, tag: &str) -> PathBuf {
    archive(folder, &release_binary(), "/bin/vsphere-cloud-controller-manager", &format!("{IMAGE}:{tag}"), "1001:1001")
}

/// The archive of the sandboxes.
pub fn pause(folder: &Path) -> PathBuf {
    let binary = support::components::Component::Pause.path();
    archive(folder, &binary, "/pause", support::machine::PAUSE_IMAGE, "65535:65535")
}

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn archive(folder: &Path, binary: &Path, place: &str, name: &str, user: &str) -> PathBuf {
    let place = place.trim_start_matches('/');
    let work = folder.join(format!("image-{}", name.replace(['/', ':'], "-")));
    fs::create_dir_all(work.join("blobs/sha256")).unwrap();
    let root = work.join("root");
    fs::create_dir_all(root.join(place).parent().unwrap()).unwrap();
    fs::copy(binary, root.join(place)).unwrap();
    let w = work.display();
    sh(&format!("cd {w}; tar --owner=0 --group=0 -C root -cf layer.tar ."));
    let blob = |file: &str| {
        let digest = sh(&format!("sha256sum {w}/{file} | cut -d' ' -f1"));
        let size = fs::metadata(work.join(file)).unwrap().len();
        fs::rename(work.join(file), work.join("blobs/sha256").join(&digest)).unwrap();
        (format!("sha256:{digest}"), size)
    };
    let (layer, layer_size) = blob("layer.tar");
    let config = serde_json::json!({"architecture":"amd64","os":"linux","config":{"User":user,"Entrypoint":[format!("/{place}")]},"rootfs":{"type":"layers","diff_ids":[layer]}});
    fs::write(work.join("config"), config.to_string()).unwrap();
    let (config, config_size) = blob("config");
    let manifest = serde_json::json!({"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":config,"size":config_size},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":layer,"size":layer_size}]});
    fs::write(work.join("manifest"), manifest.to_string()).unwrap();
    let (manifest, manifest_size) = blob("manifest");
    let index = serde_json::json!({"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":manifest,"size":manifest_size,"annotations":{"io.containerd.image.name":name}}]});
    fs::write(work.join("index.json"), index.to_string()).unwrap();
    fs::write(work.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let archive = work.with_extension("tar");
    sh(&format!("cd {w}; tar -cf {} oci-layout index.json blobs", archive.display()));
    archive
}
