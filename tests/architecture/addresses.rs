//! The addresses of the project: each place that names one has the value of `manifests/addresses.env`, and
//! `make addresses` copies changed values there.

use std::collections::BTreeMap;

use super::{files_below, read, root};

/// The file with the addresses.
const FILE: &str = "manifests/addresses.env";

/// The last part of the repository's and of the image's address.
const PROJECT: &str = "/vsphere-cloud-controller-manager";

/// The names in the file.
const NAMES: [&str; 5] = ["CHARTS", "DOCUMENTATION", "IMAGE", "REPOSITORY", "RUNBOOKS"];

type Addresses = BTreeMap<String, String>;

/// Parses the lines `NAME=value`. A shell, make and this function read the same values.
fn addresses(text: &str) -> Result<Addresses, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parse = |line: &str| {
        let (name, value) = line.split_once('=').filter(|(_, value)| !value.is_empty())?;
        let is_plain = |char: char| char.is_ascii_alphanumeric() || ":/.-_".contains(char);
        value.chars().all(is_plain).then(|| (name.to_owned(), value.to_owned()))
    };
    let found: Addresses =
        lines.map(|line| parse(line).ok_or_else(|| format!("no address: {line}"))).collect::<Result<_, _>>()?;
    if !found.keys().eq(&NAMES) {
        return Err(format!("expected the names {NAMES:?}, found {:?}", found.keys()));
    }
    if !found["RUNBOOKS"].starts_with(&found["DOCUMENTATION"]) {
        return Err("RUNBOOKS is no page of DOCUMENTATION".to_owned());
    }
    Ok(found)
}

/// Returns the places of a file with another address than the given ones.
fn different(path: &str, text: &str, addresses: &Addresses) -> Vec<String> {
    let is_one = |value: &str, names: &[&str]| names.iter().any(|name| value.starts_with(&addresses[*name]));
    let mut wrong = Vec::new();
    let mut expect = |value: &str, names: &[&str]| {
        if !is_one(value, names) {
            wrong.push(format!("{path}: {value} is not {} of {FILE}", names.join(" or ")));
        }
    };
    for line in text.lines() {
        for &(key, names) in keys(path) {
            let Some((before, value)) = line.split_once(key) else { continue };
            let value = value.trim_start_matches(['"', '\'']).split(['"', '\'', ' ']).next().unwrap_or_default();
            // A value without an address is a default or a template.
            if (before.trim().is_empty() || path == "Dockerfile") && value.contains("://") {
                expect(value, names);
            }
        }
        let is_address = |char: char| char.is_ascii_alphanumeric() || ":/.-_".contains(char);
        for word in line.split(|char| !is_address(char)) {
            if word.starts_with("oci://") && word.contains("/vsphere-cpi") {
                expect(word, &["CHARTS"]);
            }
            // An address without its scheme begins with the name of a host.
            let bare = word.split_once("://").map_or(word, |(_, bare)| bare);
            // Some schemes have no slashes: `containers-storage:`.
            let is_scheme = |scheme: &str| !scheme.contains(['.', '/']);
            let bare = bare.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).map_or(bare, |(_, bare)| bare);
            let host = bare.split('/').next().unwrap_or_default();
            // kubectl prints `daemonset.apps/NAME`.
            let is_object = host.ends_with(".apps");
            let is_host =
                host.starts_with(|char: char| char.is_ascii_alphanumeric()) && host.contains('.') && !is_object;
            if bare.contains(PROJECT) && is_host {
                let is_web = word.starts_with("http");
                expect(
                    if is_web { word } else { bare },
                    if is_web { &["REPOSITORY", "DOCUMENTATION"] } else { &["IMAGE"] },
                );
            }
        }
    }
    wrong
}

/// Returns the texts before an address in a file, and the names of the addresses that may follow.
fn keys(path: &str) -> &'static [(&'static str, &'static [&'static str])] {
    match path {
        "Dockerfile" => &[
            ("org.opencontainers.image.source=", &["REPOSITORY"]),
            ("org.opencontainers.image.url=", &["REPOSITORY"]),
            ("org.opencontainers.image.documentation=", &["DOCUMENTATION"]),
        ],
        "Cargo.toml" => &[
            ("repository = ", &["REPOSITORY"]),
            ("homepage = ", &["REPOSITORY"]),
            ("documentation = ", &["DOCUMENTATION"]),
        ],
        "manifests/monitoring/alerts.yaml" => &[("runbook_url: ", &["RUNBOOKS"])],
        path if path.ends_with("/Chart.yaml") => &[
            ("home: ", &["REPOSITORY", "DOCUMENTATION"]),
            ("icon: ", &["DOCUMENTATION"]),
            ("- ", &["REPOSITORY", "DOCUMENTATION"]),
        ],
        path if path.ends_with("/values.yaml") => &[("runbookBaseUrl: ", &["DOCUMENTATION"])],
        _ => &[],
    }
}

/// Returns the files that may name an address.
fn places() -> Vec<String> {
    let folders = ["docs", "manifests", ".github"].iter().flat_map(|folder| files_below(root(), folder));
    let files = ["Cargo.toml", "Dockerfile", "Makefile", "README.md", "SECURITY.md", "CONTRIBUTING.md"];
    let endings = [".md", ".yaml", ".yml", ".tpl", ".txt", ".toml"];
    let texts = folders.filter(|path| endings.iter().any(|ending| path.ends_with(ending)));
    texts.chain(files.map(str::to_owned)).filter(|path| root().join(path).exists()).collect()
}

#[test]
fn each_place_has_the_address_of_the_one_file() {
    let addresses = addresses(&read(FILE)).unwrap();
    let places = places();
    assert!(places.len() > 60, "{places:?}");
    super::assert_none(&places.iter().flat_map(|path| different(path, &read(path), &addresses)).collect::<Vec<_>>());
    let (alerts, image) = (read("manifests/monitoring/alerts.yaml"), read("Dockerfile"));
    let has_runbooks = alerts.matches("- alert: ").count() == alerts.matches(" runbook_url: https://").count();
    assert!(has_runbooks, "each alert leads to its section");
    for (label, _) in keys("Dockerfile") {
        assert!(image.contains(label), "the image has no label {label}");
    }
    let chart = read("manifests/helm/vsphere-cpi/Chart.yaml");
    let icon = chart.lines().find_map(|line| line.strip_prefix("icon: ")?.strip_prefix(&addresses["DOCUMENTATION"]));
    let icon = format!("docs{}", icon.unwrap());
    assert!(root().join(&icon).is_file(), "the chart names {icon}");
}

#[test]
fn another_address_is_noticed() {
    let addresses = addresses(
        "# A comment.\n\nREPOSITORY=https://git.a.b/vsphere-cloud-controller-manager\nIMAGE=r.a.b/vsphere-cloud-controller-manager\n\
         CHARTS=oci://r.a.b/charts\nDOCUMENTATION=https://docs.a.b\nRUNBOOKS=https://docs.a.b/alerts.html\n",
    )
    .unwrap();
    for (path, text, count) in [
        ("manifests/monitoring/alerts.yaml", "  runbook_url: https://docs.a.b/alerts.html#x", 0),
        ("manifests/monitoring/alerts.yaml", "  runbook_url: https://docs.a.c/alerts.html#x", 1),
        ("Dockerfile", "LABEL org.opencontainers.image.source=\"https://git.a.b/vsphere-cloud-controller-manager\"", 0),
        ("Dockerfile", "LABEL org.opencontainers.image.documentation=\"https://git.a.b\" \\", 1),
        ("a/Chart.yaml", "home: https://other.a.b", 1),
        ("a/Chart.yaml", "sources:\n  - https://git.a.b/vsphere-cloud-controller-manager", 0),
        ("a/values.yaml", "  runbookBaseUrl: \"\"", 0),
        ("a/values.yaml", "  runbookBaseUrl: https://other.a.b/docs", 1),
        ("docs/a.md", "skopeo copy a docker://r.a.b/vsphere-cloud-controller-manager:v1", 0),
        ("docs/a.md", "skopeo copy a containers-storage:r.a.b/vsphere-cloud-controller-manager:v1", 0),
        ("docs/a.md", "`--image=r.a.c/vsphere-cloud-controller-manager:v1`", 1),
        ("docs/a.md", "daemonset.apps/vsphere-cloud-controller-manager created", 0),
        ("docs/a.md", "git clone https://git.a.c/vsphere-cloud-controller-manager", 1),
        ("docs/a.md", "helm install oci://r.a.c/charts/vsphere-cpi", 1),
        ("docs/a.md", "target/release/vsphere-cloud-controller-manager and ./vsphere-cloud-controller-manager", 0),
    ] {
        assert_eq!(different(path, text, &addresses).len(), count, "{path}: {text}");
    }
    for text in ["IMAGE=", "IMAGE=a b", "IMAGE=a", "nothing"] {
        assert!(self::addresses(text).is_err(), "{text}");
    }
}

/// Runs a command in a folder. Returns its standard error if it fails.
fn run(folder: &std::path::Path, program: &str, arguments: &[&str]) {
    let output = std::process::Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn make_addresses_copies_changed_values_to_all_places() {
    let folder = tempfile::tempdir().unwrap();
    let place = |path: &str| folder.path().join(path);
    let copied = ["Makefile", "Dockerfile", FILE, "manifests/monitoring/alerts.yaml", "docs/install/image.md"];
    for path in copied {
        std::fs::create_dir_all(place(path).parent().unwrap()).unwrap();
        std::fs::copy(root().join(path), place(path)).unwrap();
    }
    run(folder.path(), "git", &["init", "--quiet"]);
    let early = std::process::Command::new("make").arg("addresses").current_dir(folder.path()).output().unwrap();
    assert!(!early.status.success(), "without a commit there are no previous values");
    run(folder.path(), "git", &["add", "."]);
    let author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
    run(folder.path(), "git", &[&author[..], &["commit", "--quiet", "--message=all"]].concat());
    let changed = "REPOSITORY=https://git.a.b/vsphere-cloud-controller-manager\nIMAGE=r.a.b/vsphere-cloud-controller-manager\n\
                   CHARTS=oci://r.a.b/charts\nDOCUMENTATION=https://docs.a.b\nRUNBOOKS=https://docs.a.b/alerts.html\n";
    std::fs::write(place(FILE), changed).unwrap();
    run(folder.path(), "make", &["addresses"]);
    let addresses = addresses(changed).unwrap();
    for path in copied {
        let text = std::fs::read_to_string(place(path)).unwrap();
        assert!(!text.contains("git.example.com") || path == "Makefile", "{path}");
        super::assert_none(&different(path, &text, &addresses));
    }
}
