//! Tests of the list of components, with this repository.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure is a failed test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn texts<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap()).collect()
}

#[test]
fn the_list_is_valid_and_has_what_is_linked_and_nothing_else() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output =
        Command::new(env!("CARGO_BIN_EXE_sbom")).args([&target, "glibc 2.36"]).current_dir(top).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();

    // Requirements of the CycloneDX 1.5 schema for the present members.
    assert_eq!(
        (&document["bomFormat"], &document["specVersion"], &document["version"]),
        (&"CycloneDX".into(), &"1.5".into(), &1.into())
    );
    let main = &document["metadata"]["component"];
    assert_eq!((&main["type"], &main["name"]), (&"application".into(), &"vsphere-cloud-controller-manager".into()));
    let components = document["components"].as_array().unwrap();
    let references: BTreeSet<&str> =
        texts(&document["components"], "bom-ref").into_iter().chain(main["bom-ref"].as_str()).collect();
    assert_eq!(references.len(), components.len() + 1, "a name is given once");
    for component in components {
        assert_eq!(component["type"], "library", "{component}");
        let is_named =
            ["name", "version", "purl"].iter().all(|key| component[*key].as_str().is_some_and(|text| !text.is_empty()));
        let license = component["licenses"][0]["expression"].as_str().unwrap();
        assert!(is_named && !license.is_empty() && !license.contains('/'), "{component}");
        if component["name"] != "glibc" {
            let hash = &component["hashes"][0];
            assert!(
                hash["alg"] == "SHA-256" && hash["content"].as_str().is_some_and(|sum| sum.len() == 64),
                "{component}"
            );
        }
    }
    let dependencies = document["dependencies"].as_array().unwrap();
    for dependency in dependencies {
        let on = dependency["dependsOn"].as_array().unwrap().iter().map(|on| on.as_str().unwrap());
        let all: BTreeSet<&str> = on.chain(dependency["ref"].as_str()).collect();
        assert!(all.is_subset(&references), "{dependency}");
    }

    let names: BTreeSet<&str> = texts(&document["components"], "name").into_iter().collect();
    for linked in ["glibc", "kube", "rustls", "ring", "tokio", "quick-xml"] {
        assert!(names.contains(linked), "{linked} is missing");
    }
    for apart in ["proptest", "ccm-test-support", "cc", "syn", "serde_derive", "windows-sys"] {
        assert!(!names.contains(apart), "{apart} is not in the binary");
    }
}
