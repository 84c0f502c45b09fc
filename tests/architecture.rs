//! The rules of the tree, checked by machine: each holds over all files, and each is shown to notice a made-up breach.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/code_map.rs"]
mod code_map;
#[path = "architecture/public_names.rs"]
mod public_names;
#[path = "architecture/reasons.rs"]
mod reasons;
#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/shape.rs"]
mod shape;
#[path = "architecture/source.rs"]
mod source;
#[path = "architecture/vectors.rs"]
mod vectors;

use source::{Source, files_below};
use std::path::Path;
use std::sync::LazyLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The Rust files below the folders; each is parsed once for all tests.
fn sources(folders: &[&str]) -> Vec<Source> {
    static ALL: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let paths = ["src", "tests"].iter().flat_map(|folder| files_below(root(), folder));
        paths.filter(|path| path.ends_with(".rs")).map(|path| Source::new(&path, &read(&path))).collect()
    });
    let is_below = |source: &&Source| folders.iter().any(|folder| Path::new(&source.path).starts_with(folder));
    let found: Vec<_> = ALL.iter().filter(is_below).cloned().collect();
    assert!(found.len() > 5, "the rules look at files, and found only {}", found.len());
    found
}

/// The files of the product, without those that only tests have.
fn product() -> Vec<Source> {
    let all = sources(&["src"]);
    let of_tests: Vec<_> = all.iter().flat_map(Source::test_modules).collect();
    all.into_iter().filter(|source| !source.is_all_tests() && !of_tests.contains(&source.path)).collect()
}

/// A text that is written from the code, held against the file it is kept in.
fn assert_golden(path: &str, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(root().join(path), text).unwrap();
    }
    let kept = read(path);
    let only = |mark, one: &str, other: &str| -> String {
        one.lines()
            .filter(|line| !other.lines().any(|there| there == *line))
            .map(|line| format!("{mark} {line}\n"))
            .collect()
    };
    let changed = only('-', &kept, text) + &only('+', text, &kept);
    assert!(text == kept, "UPDATE_GOLDEN=1 cargo test --test architecture writes {path}, if this is meant:\n{changed}");
}

fn assert_none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Every rule over every file it is for.
fn hold(folders: &[&str], rule: impl Fn(&Source) -> Vec<String>) {
    assert_none(&sources(folders).iter().flat_map(rule).collect::<Vec<_>>());
}

/// Each made-up file, with whether the rule must notice it.
fn notices(rule: impl Fn(&Source) -> Vec<String>, cases: &[(&str, &str, bool)]) {
    for (path, text, is_breach) in cases {
        assert_eq!(!rule(&Source::new(path, text)).is_empty(), *is_breach, "{path}: {text}");
    }
}

#[test]
fn modules_use_only_what_the_table_allows() {
    hold(&["src"], rules::edges);
}

#[test]
fn a_forbidden_edge_or_crate_is_noticed() {
    notices(
        rules::edges,
        &[
            ("src/cloud/node.rs", "use crate::kubernetes::client;", true),
            ("src/cloud/node.rs", "use kube::Client;", true),
            ("src/cloud/node.rs", "use crate::cloud::Error;", false),
            ("src/providers/vsphere.rs", "use super::super::controllers::node;", true),
            ("src/providers/vsphere.rs", "fn f() { crate::runtime::tasks::start() }", true),
            ("src/providers/vsphere/zones.rs", "use crate::{cloud::Zone, clients::vim};", false),
            ("src/providers/vsphere/zones.rs", "fn f() { reqwest::get() }", true),
            ("src/controllers/node/apply.rs", "use kube::Api; use crate::kubernetes::events;", false),
            ("src/controllers/node/apply.rs", "use crate::{cloud, providers::memory};", true),
            ("src/kubernetes/client.rs", "use crate::app::options;", true),
            ("src/clients/vim.rs", "use k8s_openapi::api::core::v1::Node;", true),
            ("src/clients/vim.rs", "use crate::cloud::Error;", true),
            ("src/runtime/admin.rs", "use kube::Client;", true),
            ("src/runtime/admin.rs", "use hyper::server::conn::http1;", false),
            ("src/main.rs", "fn main() { ccm::runtime::logging::start(); ccm::app::run() }", false),
            ("src/main.rs", "fn main() { ccm::kubernetes::client::connect() }", true),
            ("src/base/backoff.rs", "use crate::runtime::tasks;", true),
            ("src/base/backoff.rs", "use tokio::time::Instant;", true),
            ("src/clients/vim.rs", "use crate::base::backoff::Backoff;", false),
            ("src/newcomer.rs", "", true),
        ],
    );
}

#[test]
fn controllers_providers_and_wire_clients_do_not_know_each_other() {
    let all = sources(&["src"]);
    assert_none(&all.iter().flat_map(|source| rules::siblings(source, &all)).collect::<Vec<_>>());
}

#[test]
fn a_sibling_is_noticed() {
    let all = [
        "src/controllers/node/plan.rs",
        "src/controllers/route/plan.rs",
        "src/controllers/reasons.rs",
        "src/providers/memory.rs",
        "src/providers/vsphere.rs",
    ]
    .map(|path| Source::new(path, ""));
    notices(
        |source| rules::siblings(source, &all),
        &[
            ("src/controllers/node/plan.rs", "use crate::controllers::route::plan;", true),
            ("src/controllers/node/plan.rs", "use crate::controllers::{Context, node::observe};", false),
            ("src/controllers/node.rs", "use crate::controllers::reasons::Reasons;", false),
            ("src/providers/memory.rs", "use super::vsphere::zones;", true),
            ("src/clients/vapi.rs", "use crate::clients::vim::types;", true),
            ("src/clients/vapi.rs", "use crate::clients::http;", false),
        ],
    );
}

#[test]
fn tasks_start_only_where_they_get_a_name() {
    hold(&["src"], rules::spawns);
}

#[test]
fn a_bare_spawn_is_noticed() {
    notices(
        rules::spawns,
        &[
            ("src/kubernetes/stores.rs", "fn f() { tokio::spawn(g()); }", true),
            ("src/kubernetes/stores.rs", "use tokio::task::JoinSet;", true),
            ("src/kubernetes/stores.rs", "fn f() { std::thread::spawn(g); }", true),
            ("src/kubernetes/stores.rs", "#[cfg(test)] mod tests { fn f() { tokio::spawn(g()); } }", false),
            ("src/kubernetes/stores.rs", "fn f(tasks: &Tasks) { tasks.spawn(g()); }", false),
            ("src/runtime/tasks.rs", "fn f() { tokio::spawn(g()); }", false),
        ],
    );
}

#[test]
fn pure_files_only_decide() {
    hold(&["src"], rules::impurities);
    let pure = sources(&["src"]).iter().filter(|source| rules::is_pure(source)).count();
    assert!(pure >= 5, "only {pure} pure files were found");
}

#[test]
fn an_impure_plan_is_noticed() {
    notices(
        rules::impurities,
        &[
            ("src/controllers/node/plan.rs", "async fn plan() {}", true),
            ("src/controllers/node/plan.rs", "fn plan() { jiff::Timestamp::now(); }", true),
            ("src/controllers/node/plan.rs", "fn plan() { fastrand::u8(..); }", true),
            ("src/controllers/node/plan.rs", "fn plan() { tracing::info!(\"x\"); }", true),
            ("src/controllers/node/plan.rs", "fn plan() { tracing::trace!(\"x\"); }", false),
            ("src/controllers/node/plan.rs", "fn plan() { std::fs::read(\"x\"); }", true),
            ("src/controllers/node/plan.rs", "/// Not async: it awaits nothing.\nfn plan(error: Error) {}", false),
            ("src/controllers/node/plan.rs", "use crate::kubernetes::client;", true),
            ("src/runtime/queue/order.rs", "//! Pure: what is next.\nfn f() { Instant::now(); }", true),
            ("src/runtime/queue/order.rs", "//! Pure: what is next.\nfn f(due: Instant) {}", false),
            ("src/runtime/queue.rs", "//! The queue.\nfn f() { Instant::now(); }", false),
            ("src/base/files.rs", "//! Files.\nuse std::fs::File;", true),
        ],
    );
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    hold(&["src", "tests"], rules::headers);
    notices(rules::headers, &[("src/a.rs", "fn main() {}", true), ("src/a.rs", "//! The main thing.", false)]);
}

#[test]
fn no_test_is_ignored() {
    hold(&["src", "tests"], rules::ignored_tests);
    notices(
        rules::ignored_tests,
        &[
            ("tests/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}", true),
            ("tests/a.rs", "#[cfg_attr(not(x), ignore)]\nfn f() {}", true),
            ("tests/a.rs", "fn ignore() { let ignore = [1]; }", false),
        ],
    );
}

#[test]
fn the_project_speaks_only_of_itself() {
    let files = files_below(root(), ".");
    let broken = files.iter().filter_map(|path| {
        let text = std::fs::read_to_string(root().join(path)).ok()?;
        Some(rules::registry_hosts(path, &text))
    });
    assert_none(&broken.flatten().collect::<Vec<_>>());
    let host = ["crates", "io"].join(".");
    assert!(!rules::registry_hosts("README.md", &format!("see https://{host}/x")).is_empty());
    assert!(rules::registry_hosts("Cargo.lock", &host).is_empty());
}

#[test]
fn documents_name_only_files_that_are_there() {
    let pages = files_below(root(), "docs").into_iter().chain(["README.md".to_owned()]);
    let mut broken = Vec::new();
    for page in pages.filter(|path| path.ends_with(".md")) {
        let gone = rules::named_paths(&read(&page)).into_iter().filter(|path| !root().join(path).exists());
        broken.extend(gone.map(|path| format!("{page}: {path} is not there")));
    }
    assert_none(&broken);
    assert_eq!(rules::named_paths("see `src/x.rs`, `a b` and `docs/y.md`"), ["src/x.rs", "docs/y.md"]);
}

#[test]
fn the_tree_of_packages_has_one_tls_and_one_time_stack() {
    assert_none(&rules::banned_crates(&read("Cargo.lock")));
    assert!(!rules::banned_crates("[[package]]\nname = \"openssl\"\nversion = \"1\"\n").is_empty());
}

#[test]
fn every_direct_dependency_has_its_reason() {
    assert_none(&rules::unexplained_dependencies(&read("Cargo.toml")));
    assert!(!rules::unexplained_dependencies("[dependencies]\n\nleft-pad = \"1\"\n").is_empty());
    assert!(rules::unexplained_dependencies("[dependencies]\n# It pads.\nleft-pad = \"1\"\n").is_empty());
}
