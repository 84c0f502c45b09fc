//! The components of the binary as a CycloneDX document: `make sbom`.
//!
//! Existing tools do not list the C library that is linked in, and each takes minutes to build.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

const ROOT: &str = "vsphere-cloud-controller-manager";

/// Returns the document. The input is the output of `cargo metadata` for the build target, `Cargo.lock`, and the name
/// and version of the C library that is linked in (`glibc 2.36`). The same input gives the same document.
///
/// # Errors
///
/// A sentence, if the input is malformed.
pub fn document(metadata: &Value, lock: &str, libc: &str) -> Result<Value, String> {
    let packages: BTreeMap<&str, &Value> =
        list(metadata, "packages")?.map(|package| (text(package, "id"), package)).collect();
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"], "nodes")?.map(|node| (text(node, "id"), node)).collect();
    let (root, main) = packages
        .iter()
        .find(|(_, package)| text(package, "name") == ROOT)
        .ok_or_else(|| format!("there is no package {ROOT}"))?;
    let linked = linked(root, &packages, &nodes);
    let sums = checksums(lock);
    let (libc_name, libc_version) =
        libc.trim().split_once(' ').ok_or_else(|| format!("{libc:?} is no C library with its version"))?;
    let libc = json!({
        "type": "library", "bom-ref": format!("pkg:generic/{libc_name}@{libc_version}"), "name": libc_name, "version": libc_version,
        "purl": format!("pkg:generic/{libc_name}@{libc_version}"), "licenses": [{"expression": "LGPL-2.1-or-later"}],
    });
    let mut components = vec![libc.clone()];
    let mut dependencies = Vec::new();
    for id in &linked {
        let package = packages.get(id).ok_or_else(|| format!("{id} has no package"))?;
        let mut on: BTreeSet<String> = normal(nodes.get(id))
            .filter(|id| linked.contains(id))
            .filter_map(|id| packages.get(id))
            .map(|package| reference(package))
            .collect();
        if id == root {
            on.insert(text(&libc, "bom-ref").to_owned());
        } else {
            components.push(component(package, &sums)?);
        }
        dependencies.push(json!({"ref": reference(package), "dependsOn": on}));
    }
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application", "bom-ref": reference(main), "name": ROOT, "version": main["version"], "purl": reference(main),
            "licenses": [{"expression": main["license"]}],
        }},
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Returns all packages in the binary: dependencies other than those for tests and builds, and no macros, which run in
/// the compiler.
fn linked<'a>(
    root: &'a str,
    packages: &BTreeMap<&'a str, &'a Value>,
    nodes: &BTreeMap<&'a str, &'a Value>,
) -> BTreeSet<&'a str> {
    let is_macro = |id: &str| {
        let targets = packages.get(id).and_then(|package| package["targets"].as_array());
        targets.into_iter().flatten().any(|target| target["kind"] == json!(["proc-macro"]))
    };
    let mut found = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        for next in normal(nodes.get(id).copied().as_ref()).filter(|next| !is_macro(next)) {
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    found
}

/// Returns the packages that this one uses at run time.
fn normal<'a>(node: Option<&&'a Value>) -> impl Iterator<Item = &'a str> {
    let all = node.and_then(|node| node["deps"].as_array()).into_iter().flatten();
    let is_normal =
        |used: &&Value| used["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null());
    all.filter(is_normal).map(|used| text(used, "pkg"))
}

fn component(package: &Value, sums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let sum =
        sums.get(&(name.to_owned(), version.to_owned())).ok_or_else(|| format!("{name} {version} has no checksum"))?;
    // SPDX does not have the older spelling of "or".
    let license = text(package, "license").split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
    Ok(json!({
        "type": "library", "bom-ref": reference(package), "name": name, "version": version, "purl": reference(package),
        "licenses": [{"expression": license}], "hashes": [{"alg": "SHA-256", "content": sum}],
    }))
}

fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version").replace('+', "%2B"))
}

/// Returns the checksums of `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |entry: &str, key: &str| {
        let start = format!("{key} = \"");
        entry.lines().find_map(|line| line.strip_prefix(&start)?.strip_suffix('"')).map(str::to_owned)
    };
    let entries = lock.split("[[package]]");
    entries
        .filter_map(|entry| Some(((value(entry, "name")?, value(entry, "version")?), value(entry, "checksum")?)))
        .collect()
}

fn list<'a>(value: &'a Value, key: &str) -> Result<impl Iterator<Item = &'a Value>, String> {
    value[key].as_array().map(|list| list.iter()).ok_or_else(|| format!("no list of {key} in what cargo says"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
