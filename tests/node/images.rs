//! Image archives: the archive of `make image-archive`, and the archive of the pods' sandbox image.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use image_archive::{AUTHORITIES, Archive, BINARY, Reference, Stage, architecture};
use support::components::{Component, release_binary};
use support::real_node::PAUSE_IMAGE;

/// Image of the product in the manifests of these tests.
pub const IMAGE: &str = "registry.example.com/vsphere-cloud-controller-manager";

/// Builds the archive of the product, with this tag.
pub fn product(folder: &Path, tag: &str) -> PathBuf {
    let stage = Stage::parse(include_str!("../../Dockerfile"), &[]).unwrap();
    let contents = |from: &String| match from.as_str() {
        BINARY => fs::read(release_binary(env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager"))).unwrap(),
        AUTHORITIES => fs::read(AUTHORITIES).unwrap(),
        other => panic!("the image has {other}, which is unknown here"),
    };
    let files = stage.copies.iter().map(|(from, to)| (to.clone(), contents(from))).collect();
    write(folder, &stage, &files, &format!("{IMAGE}:{tag}"))
}

/// Builds the archive of the sandbox image.
pub fn pause(folder: &Path) -> PathBuf {
    let place = "/pause".to_owned();
    let stage = Stage {
        base: "scratch".to_owned(),
        user: "65535:65535".to_owned(),
        entrypoint: vec![place.clone()],
        ..Stage::default()
    };
    let files = [(place, fs::read(Component::Pause.path()).unwrap())].into();
    write(folder, &stage, &files, PAUSE_IMAGE)
}

fn write(folder: &Path, stage: &Stage, files: &BTreeMap<String, Vec<u8>>, name: &str) -> PathBuf {
    let reference = Reference::parse(name, "").unwrap();
    let architecture = architecture(&format!("{}-unknown-linux-gnu", std::env::consts::ARCH)).unwrap();
    let path = folder.join(format!("{}.oci.tar", name.replace(['/', ':'], "-")));
    fs::write(&path, Archive::new(stage, files, architecture, &reference).unwrap().bytes).unwrap();
    path
}
