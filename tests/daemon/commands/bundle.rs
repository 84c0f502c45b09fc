//! `bundle`: the archive of a running daemon, its manifest, its limits, and what it must not contain.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use support::{Daemon, Vcenter, eventually};
use tokio::process::Command;

use super::{ask, compare_with_page, normalised, start_candidate};
use crate::cluster::{BINARY, Cluster, LIMIT, ip};

/// The archive with its manifest.
pub struct Bundle {
    pub code: Option<i32>,
    /// Text of each file, by name without the folder.
    pub files: BTreeMap<String, String>,
    pub manifest: String,
    /// Size of the archive, in bytes.
    pub size: usize,
}

/// Runs the command, writes the archive into the folder, and unpacks it with tar.
pub async fn bundle(daemon: &Daemon, folder: &Path, arguments: &[&str]) -> Bundle {
    let mut command = Command::new(BINARY);
    command.arg("bundle").arg(format!("--pid={}", daemon.pid().unwrap())).args(arguments).env_clear();
    let output = support::command::output(command, "").await;
    let manifest = String::from_utf8(output.stderr).unwrap();
    let archive = folder.join("bundle.tar.gz");
    let unpacked = folder.join("unpacked");
    std::fs::write(&archive, &output.stdout).unwrap();
    // The files of an earlier bundle.
    let _ = std::fs::remove_dir_all(&unpacked);
    std::fs::create_dir_all(&unpacked).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(&archive).arg("-C").arg(&unpacked);
    let ended = support::command::output(tar, "").await;
    assert!(ended.status.success(), "{}{manifest}", String::from_utf8_lossy(&ended.stderr));
    let files = std::fs::read_dir(unpacked.join("vsphere-ccm-bundle")).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
    });
    Bundle { code: output.status.code(), files: files.collect(), manifest, size: output.stdout.len() }
}

#[tokio::test]
async fn a_bundle_has_all_parts_and_an_anonymised_one_no_names() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let leader = start_candidate(&cluster, &vcenter).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &leader).await;
    let name = cluster.name(1);
    // An operator may write a secret where it does not belong.
    let note = json!({"metadata": {"annotations": {"example.com/note": format!("it is {}", vcenter.password())}}});
    let nodes = Api::<Node>::all(cluster.client.clone());
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(note)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();

    let waited = ask(&leader, &["status", "--wait", "--quiet", "--timeout=60s"]).await;
    assert_eq!(waited.code, Some(0), "{}", waited.messages);
    let Bundle { code, files, manifest, size } = bundle(&leader, folder.path(), &[]).await;
    assert_eq!(code, Some(0), "{manifest}");
    assert!(size < 1 << 20, "{size}");
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let expected = [
        "check.json",
        "configuration.txt",
        "decisions.json",
        "events.json",
        "flags.txt",
        "inventory-001.json",
        "leases.json",
        "log.txt",
        "manifest.txt",
        "metrics.txt",
        "nodes-001.json",
        "status.json",
        "status.txt",
    ];
    assert_eq!(names, expected);
    assert_eq!(files["manifest.txt"], manifest);
    for (file, text) in [
        ("check.json", "\"kind\": \"CheckReport\""),
        ("configuration.txt", vcenter.host()),
        ("decisions.json", "\"decision\": \"Initialized\""),
        ("events.json", "\"involvedObject\""),
        ("flags.txt", "\nnode-deletion=enforce\n"),
        ("inventory-001.json", &ip(1)),
        ("leases.json", cluster.pool()),
        ("log.txt", "became leader"),
        ("metrics.txt", "\n# TYPE process_cpu_seconds_total counter\n"),
        ("status.json", "\"result\": \"ok\""),
        ("status.txt", "nodes 3   settled 3"),
    ] {
        assert!(files[file].contains(text), "{text} in {file}: {}", files[file]);
    }
    let of_nodes: Value = serde_json::from_str(&files["nodes-001.json"]).unwrap();
    assert_eq!(of_nodes.as_array().map(Vec::len), Some(3), "{of_nodes:#}");
    for (file, text) in &files {
        assert!(!text.contains(vcenter.password()), "{file}");
    }
    compare_with_page("bundle", &without_sizes(&normalised(&manifest, &vcenter)));

    let map = folder.path().join("names.json");
    let arguments = ["--anonymise", &format!("--map={}", map.display())];
    let Bundle { code, files, manifest, .. } = bundle(&leader, folder.path(), &arguments).await;
    assert_eq!(code, Some(0), "{manifest}");
    let map: BTreeMap<String, String> = serde_json::from_str(&std::fs::read_to_string(&map).unwrap()).unwrap();
    let token = |original: &str| map.iter().find(|(_, name)| name.as_str() == original).map(|(token, _)| token.clone());
    let of_node = token(&name).unwrap();
    assert!(of_node.starts_with("node_") && token(&ip(1)).is_some_and(|token| token.starts_with("ip_")), "{map:?}");
    assert!(files["nodes-001.json"].contains(&of_node) && files["inventory-001.json"].contains(&of_node));
    let replaced = [name.as_str(), &ip(1), vcenter.instance_uuid()];
    for (file, text) in &files {
        for name in replaced {
            assert!(!text.contains(name), "{name} in {file}");
        }
    }
    assert_eq!(files.len(), names.len(), "the map is not in the archive");
}

#[tokio::test]
async fn a_bundle_is_cut_and_a_standby_makes_one_too() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let leader = start_candidate(&cluster, &vcenter).await;
    cluster.register(0..2).await;
    cluster.wait_until_initialized(0..2, &leader).await;
    let standby = start_candidate(&cluster, &vcenter).await;
    let folder = tempfile::tempdir().unwrap();
    eventually("a standby knows its Nodes", LIMIT, async || {
        let Bundle { code, files, manifest, .. } = bundle(&standby, folder.path(), &["--max-size=1Mi"]).await;
        match code == Some(0) && files["nodes-001.json"].contains(&cluster.name(1)) {
            true => Ok(()),
            false => Err(format!("{code:?} {manifest}")),
        }
    })
    .await;
    let Bundle { code, files, manifest, size } =
        bundle(&leader, folder.path(), &["--max-size=64Ki", "-o", "json"]).await;
    assert!(size <= 64 << 10, "{size}");
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!((&manifest["kind"], &manifest["maxSize"]), (&"BundleManifest".into(), &(64 << 10).into()));
    let is_cut = manifest["parts"].as_array().unwrap().iter().any(|part| part["note"] == "because of --max-size");
    assert_eq!((code == Some(3), &manifest["result"]), (is_cut, &if is_cut { "incomplete" } else { "ok" }.into()));
    assert!(files.contains_key("status.txt") && files.contains_key("manifest.txt"), "{:?}", files.keys());
}

/// Replaces the sizes of parts.
fn without_sizes(screen: &str) -> String {
    let lines = screen.lines().map(|line| match line.rsplit_once(", ") {
        Some((before, size)) if size.ends_with("iB") || size.ends_with(" B") => format!("{before}, 7 KiB"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}
