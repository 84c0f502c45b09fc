//! Pure: an image as an OCI archive, the tar file of an [image layout](https://github.com/opencontainers/image-spec).
//!
//! The archive is reproducible: it has no times, the owner is always root, and the order is fixed. The keys of the JSON
//! documents are in alphabetical order, because `serde_json` sorts them or keeps their order, depending on its
//! features.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::{Reference, Stage};

/// An OCI archive with one image.
#[derive(Debug, PartialEq)]
pub struct Archive {
    /// Content of the tar file.
    pub bytes: Vec<u8>,
    /// Digest of the image's manifest, which identifies the image in registries and container runtimes.
    pub digest: String,
}

/// Returns the architecture name of images for this build target.
///
/// # Errors
///
/// A sentence, if the Dockerfile has no image for the target.
pub fn architecture(target: &str) -> Result<&'static str, String> {
    match target.split_once("-unknown-linux-") {
        Some(("x86_64", _)) => Ok("amd64"),
        Some(("aarch64", _)) => Ok("arm64"),
        _ => Err(format!(
            "there is no image for {target}: expected x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu"
        )),
    }
}

impl Archive {
    /// Builds the image of a stage without a base image. The contents are its files by their path in the image. The
    /// entry point is executable, other files are not.
    ///
    /// The layer is compressed, which halves the size and keeps the digest in registries (`skopeo` compresses plain
    /// layers).
    ///
    /// # Errors
    ///
    /// A sentence, if the stage has a base image or a path is too long for a tar file.
    pub fn new(
        stage: &Stage,
        files: &BTreeMap<String, Vec<u8>>,
        architecture: &str,
        reference: &Reference,
    ) -> Result<Self, String> {
        if stage.base != "scratch" {
            return Err(format!("the image is based on {}: expected FROM scratch", stage.base));
        }
        Self::write(stage, files, architecture, reference).map_err(|error| format!("it cannot be written: {error}"))
    }

    fn write(
        stage: &Stage,
        files: &BTreeMap<String, Vec<u8>>,
        architecture: &str,
        reference: &Reference,
    ) -> io::Result<Self> {
        let program = stage.entrypoint.first();
        let layer = tar(files.iter().map(|(path, contents)| {
            let mode = if program == Some(path) { 0o755 } else { 0o644 };
            (path.trim_start_matches('/').to_owned(), mode, contents.as_slice())
        }))?;
        let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
        compressed.write_all(&layer)?;

        let mut blobs = Blobs::default();
        let compressed = blobs.add("application/vnd.oci.image.layer.v1.tar+gzip", compressed.finish()?);
        let config = json!({
            "architecture": architecture,
            "config": {"Entrypoint": stage.entrypoint, "Labels": stage.labels, "User": stage.user},
            "os": "linux",
            "rootfs": {"diff_ids": [digest(&layer)], "type": "layers"},
        });
        let config = blobs.add("application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let manifest = json!({"config": config, "layers": [compressed], "mediaType": media_type, "schemaVersion": 2});
        let manifest = blobs.add(media_type, manifest.to_string().into_bytes());

        // containerd and podman read the first annotation as the whole name. The second annotation is the tag alone, as
        // containerd and BuildKit write it: `skopeo copy oci-archive:FILE:TAG`.
        let index = json!({
            "manifests": [{
                "annotations": {
                    "io.containerd.image.name": reference.to_string(),
                    "org.opencontainers.image.ref.name": reference.tag(),
                },
                "digest": manifest["digest"],
                "mediaType": manifest["mediaType"],
                "platform": {"architecture": architecture, "os": "linux"},
                "size": manifest["size"],
            }],
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "schemaVersion": 2,
        });
        let documents = [("index.json", index), ("oci-layout", json!({"imageLayoutVersion": "1.0.0"}))]
            .map(|(name, document)| (name.to_owned(), document.to_string().into_bytes()));
        let all: BTreeMap<String, Vec<u8>> = documents.into_iter().chain(blobs.0).collect();
        let bytes = tar(all.iter().map(|(path, contents)| (path.clone(), 0o644, contents.as_slice())))?;
        Ok(Self { bytes, digest: manifest["digest"].as_str().unwrap_or_default().to_owned() })
    }
}

/// Contents by path in the archive.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Adds a blob. Returns its descriptor.
    fn add(&mut self, media_type: &str, contents: Vec<u8>) -> Value {
        let digest = digest(&contents);
        let descriptor = json!({"digest": digest, "mediaType": media_type, "size": contents.len()});
        self.0.insert(format!("blobs/{}", digest.replace(':', "/")), contents);
        descriptor
    }
}

fn digest(contents: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(contents))
}

/// Makes a tar file of these files, by path and mode, and of their parent folders, in the order of their paths.
fn tar<'a>(files: impl Iterator<Item = (String, u32, &'a [u8])>) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    let mut folders = BTreeSet::new();
    for (path, mode, contents) in files {
        for (end, _) in path.match_indices('/') {
            let folder = path.get(..=end).unwrap_or_default();
            if folders.insert(folder.to_owned()) {
                append(&mut builder, folder, EntryType::Directory, 0o755, &[])?;
            }
        }
        append(&mut builder, &path, EntryType::Regular, mode, contents)?;
    }
    builder.into_inner()
}

fn append(builder: &mut Builder<Vec<u8>>, path: &str, kind: EntryType, mode: u32, contents: &[u8]) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(contents.len() as u64);
    builder.append_data(&mut header, path, contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_for_two_machines() {
        let table = [
            ("x86_64-unknown-linux-gnu", Some("amd64")),
            ("x86_64-unknown-linux-musl", Some("amd64")),
            ("aarch64-unknown-linux-gnu", Some("arm64")),
            ("aarch64-apple-darwin", None),
            ("riscv64gc-unknown-linux-gnu", None),
            ("", None),
        ];
        for (target, expected) in table {
            let architecture = architecture(target);
            assert_eq!(architecture.as_ref().ok().copied(), expected, "{target}");
            assert!(architecture.is_ok() || architecture.unwrap_err().contains(target), "{target}");
        }
    }

    #[test]
    fn a_base_image_is_refused() {
        let stage = Stage { base: "debian".to_owned(), ..Stage::default() };
        let reference = Reference::parse("ccm", "v1").unwrap();
        let refused = Archive::new(&stage, &BTreeMap::new(), "amd64", &reference).unwrap_err();
        assert_eq!(refused, "the image is based on debian: expected FROM scratch");
    }
}
