//! Reads an OCI archive as a container runtime does: from `index.json`, by digests.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// An archive with one image of one layer.
pub struct Contents {
    /// Descriptor of the image in `index.json`.
    pub descriptor: Value,
    pub config: Value,
    pub layer: Vec<Entry>,
}

/// An entry of a tar file, owned by root and with modification time 0. A folder has no contents.
#[derive(Debug, PartialEq)]
pub struct Entry {
    pub path: String,
    pub mode: u32,
    pub contents: Option<Vec<u8>>,
}

impl Contents {
    /// Reads the archive. Checks the digest and the size of each blob, and that each blob is part of the image.
    pub fn read(archive: &[u8]) -> Self {
        let mut files: BTreeMap<String, Vec<u8>> =
            entries(archive).into_iter().filter_map(|entry| Some((entry.path, entry.contents?))).collect();
        let mut take = |path: &str| files.remove(path).unwrap_or_else(|| panic!("no {path}"));
        let layout: Value = serde_json::from_slice(&take("oci-layout")).unwrap();
        assert_eq!(layout["imageLayoutVersion"], "1.0.0");
        let index: Value = serde_json::from_slice(&take("index.json")).unwrap();
        assert_eq!(index["schemaVersion"], 2);
        let mut blob = |descriptor: &Value, media_type: &str| {
            assert_eq!(descriptor["mediaType"], media_type);
            let digest = descriptor["digest"].as_str().unwrap();
            let contents = take(&format!("blobs/{}", digest.replace(':', "/")));
            assert_eq!(sha256(&contents), digest);
            assert_eq!(descriptor["size"], contents.len());
            contents
        };
        let descriptor = one(&index["manifests"]).clone();
        let manifest = blob(&descriptor, "application/vnd.oci.image.manifest.v1+json");
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["schemaVersion"], 2);
        let config = blob(&manifest["config"], "application/vnd.oci.image.config.v1+json");
        let config: Value = serde_json::from_slice(&config).unwrap();
        let compressed = blob(one(&manifest["layers"]), "application/vnd.oci.image.layer.v1.tar+gzip");
        assert!(files.is_empty(), "not part of the image: {:?}", files.keys());

        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(compressed.as_slice()).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"], serde_json::json!({"type": "layers", "diff_ids": [sha256(&layer)]}));
        Self { descriptor, config, layer: entries(&layer) }
    }
}

fn one(list: &Value) -> &Value {
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 1, "{list:?}");
    &list[0]
}

fn sha256(contents: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(contents))
}

fn entries(archive: &[u8]) -> Vec<Entry> {
    let mut archive = tar::Archive::new(archive);
    let entry = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let header = entry.header();
        let owner = (header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap());
        assert_eq!(owner, (0, 0, 0), "{path}: user, group and time");
        let mode = header.mode().unwrap();
        let contents = match header.entry_type() {
            tar::EntryType::Directory => None,
            tar::EntryType::Regular => {
                let mut contents = Vec::new();
                entry.read_to_end(&mut contents).unwrap();
                Some(contents)
            }
            other => panic!("{path} is neither a file nor a folder: {other:?}"),
        };
        Entry { path, mode, contents }
    };
    archive.entries().unwrap().map(entry).collect()
}
