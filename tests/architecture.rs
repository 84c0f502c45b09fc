//! The architecture rules. Each rule applies to all its files, and a test with invented violations shows that each rule
//! finds them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

#[path = "architecture/addresses.rs"]
mod addresses;
#[path = "architecture/book.rs"]
mod book;
#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/code_map.rs"]
mod code_map;
#[path = "architecture/markers.rs"]
mod markers;
#[path = "architecture/names.rs"]
mod names;
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
#[path = "architecture/workflows.rs"]
mod workflows;

use source::{Source, files_below};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the Rust files below the folders. Each file is parsed once for all tests.
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

/// Returns the files of the product, without those for tests only.
fn product() -> Vec<Source> {
    let all = sources(&["src"]);
    let of_tests: Vec<_> = all.iter().flat_map(Source::test_modules).collect();
    all.into_iter().filter(|source| !source.is_all_tests() && !of_tests.contains(&source.path)).collect()
}

/// Compares a generated text with the file in the repository.
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

/// Applies a rule to every file below the folders.
fn hold(folders: &[&str], rule: impl Fn(&Source) -> Vec<String>) {
    assert_none(&sources(folders).iter().flat_map(rule).collect::<Vec<_>>());
}

/// Applies a rule to invented files. The flag of each case is true if the rule must report the file.
fn notices(rule: impl Fn(&Source) -> Vec<String>, cases: &[(&str, &str, bool)]) {
    for (path, text, is_breach) in cases {
        assert_eq!(!rule(&Source::new(path, text)).is_empty(), *is_breach, "{path}: {text}");
    }
}

#[test]
fn modules_use_only_what_the_table_allows() {
    hold(&["src"], rules::edges);
    assert_none(&rules::stale_modules(&sources(&["src"])));
    assert!(!rules::stale_modules(&[]).is_empty());
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
            ("src/providers/vsphere/nodes/metadata/zones.rs", "use crate::{cloud::Zone, clients::vim};", false),
            ("src/providers/vsphere/nodes/metadata/zones.rs", "fn f() { reqwest::get() }", true),
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
        "src/controllers/reason_tracker.rs",
        "src/providers/memory.rs",
        "src/providers/provider_id.rs",
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
            ("src/providers/vsphere.rs", "use super::provider_id::BiosUuid;", false),
            ("src/clients/vapi.rs", "use crate::clients::vim::types;", true),
            ("src/clients/vapi.rs", "use crate::clients::http;", false),
        ],
    );
}

#[test]
fn the_wings_of_the_vsphere_provider_use_those_below_them() {
    hold(&["src"], rules::wings);
    notices(
        rules::wings,
        &[
            ("src/providers/vsphere/vcenter/tags.rs", "use crate::providers::vsphere::nodes::metadata;", true),
            ("src/providers/vsphere/nodes/lookup.rs", "use crate::providers::vsphere::{Task, vcenter};", true),
            ("src/providers/vsphere/nodes/lookup.rs", "use crate::providers::vsphere::{reason, vcenter};", false),
            ("src/providers/vsphere/nodes/lookup.rs", "use super::super::nsx;", true),
            ("src/providers/vsphere/login/schedule.rs", "pub(in crate::providers::vsphere) fn f() {}", false),
            ("src/providers/vsphere/newcomer.rs", "", true),
            ("src/providers/vsphere.rs", "use self::nsx::session;", false),
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
    assert_none(&rules::stale_pure_files(&sources(&["src"])));
    assert!(!rules::stale_pure_files(&[]).is_empty());
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
            ("src/controllers/node/plan.rs", "use crate::kubernetes::workloads::Workload;", false),
            ("src/controllers/node/plan.rs", "async fn f() { crate::kubernetes::workloads::read_workloads(); }", true),
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

/// Returns the types below each top-level module of `src`, and those of `tests/support`.
fn types_of_folders() -> Vec<(String, Vec<names::Declared>)> {
    let mut folders: BTreeMap<String, Vec<names::Declared>> = BTreeMap::new();
    for source in product() {
        if let Some(folder) = source.module().first() {
            folders.entry(format!("src/{folder}")).or_default().extend(names::declared(&source));
        }
    }
    let support = sources(&["tests/support"]);
    // `tests/support` consists of test code only. Here it is read like product code.
    let as_product = support.iter().map(|source| Source::new(&format!("src/{}", source.path), &source.text));
    let declared = as_product.flat_map(|source| names::declared(&source));
    folders.entry("tests/support".to_owned()).or_default().extend(declared);
    folders.into_iter().collect()
}

/// Compares violations of a rule with the list of known ones, which are older than the rule. The list may only shrink:
/// an entry without a violation must be removed.
fn assert_known(kept: &str, rule: &str, found: &BTreeMap<String, String>) {
    let text = read(kept);
    let known: BTreeSet<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let new = found.iter().filter(|(breach, _)| !known.contains(breach.as_str()));
    let mut broken: Vec<_> = new.map(|(breach, place)| format!("{breach}: {rule} ({place})")).collect();
    let gone = known.iter().filter(|line| !found.contains_key(**line));
    broken.extend(gone.map(|line| format!("{kept}: {line}: this is no breach any more, remove the line")));
    assert_none(&broken);
}

#[test]
fn types_of_a_folder_have_different_names() {
    let twice = types_of_folders().into_iter().flat_map(|(folder, types)| names::twice(&folder, &types));
    assert_known("tests/architecture/names-twice.txt", "two types have this name", &twice.collect());
}

#[test]
fn a_name_that_two_types_have_is_noticed() {
    let cases = [
        (["struct Known;", "enum Known {}"], true),
        (["pub struct Known;", "type Known = u8;"], true),
        (["struct Known;", "#[cfg(test)] struct Known;"], false),
        (["struct Known;", "impl Trait for X {\n    type Known = u8;\n}"], false),
        (["enum Error {}", "enum Error {}"], false),
        (["enum Error {}", "pub enum Error {}"], true),
        (["pub(super) enum Error {}", "enum Error {}"], true),
        (["#[derive(Debug)]\nenum Error {}", "fn f() {}\nenum Error {}"], false),
    ];
    for (texts, is_breach) in cases {
        let sources = [Source::new("src/app/a.rs", texts[0]), Source::new("src/app/b.rs", texts[1])];
        let types: Vec<_> = sources.iter().flat_map(names::declared).collect();
        assert_eq!(!names::twice("src/app", &types).is_empty(), is_breach, "{texts:?}");
    }
    let same = ["src/app/a/state.rs", "src/app/b/state.rs"].map(|path| Source::new(path, "enum Error {}"));
    let types: Vec<_> = same.iter().flat_map(names::declared).collect();
    assert!(!names::twice("src/app", &types).is_empty(), "both are called state::Error");
}

#[test]
fn types_and_modules_have_nouns_as_names() {
    let mut found = BTreeMap::new();
    for (folder, types) in types_of_folders() {
        for declared in types.into_iter().filter(|declared| names::is_no_noun(&declared.name)) {
            found.insert(format!("{folder}: {}", declared.name), declared.place);
        }
    }
    let files = ["src", "tests"].iter().flat_map(|folder| files_below(root(), folder));
    for path in files.filter(|path| path.ends_with(".rs")) {
        let name = path.trim_end_matches(".rs").rsplit('/').next().unwrap();
        if names::is_no_name_of_a_module(name) {
            found.insert(path.clone(), "a file".to_owned());
        }
    }
    assert_known("tests/architecture/names-no-noun.txt", "a verb, a past participle or a preposition", &found);
}

#[test]
fn a_name_that_is_no_noun_is_noticed() {
    let is_noticed = ["Known", "Held", "Looks", "Sync", "Seen", "Remembered", "Wanted", "Claim", "Works"];
    assert_eq!(is_noticed.map(names::is_no_noun), [true; 9]);
    let passes = ["NodeReconciler", "LoginBlocked", "Seed", "Queue", "Plan", "Watch", "Freshness", "ReadFiles", "Set"];
    assert_eq!(passes.map(names::is_no_noun), [false; 9]);
    let is_noticed = ["under_way", "look", "enter", "tracked", "not_configured", "without_nodes", "take_over"];
    assert_eq!(is_noticed.map(names::is_no_name_of_a_module), [true; 7]);
    let passes = ["observe", "plan", "apply", "go_flags", "feed", "node", "session", "out_of_service"];
    assert_eq!(passes.map(names::is_no_name_of_a_module), [false; 8]);
}

#[test]
fn the_product_has_no_more_lines_than_its_budget() {
    let output =
        std::process::Command::new("sh").arg("tests/architecture/product-lines.sh").current_dir(root()).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let lines: i64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    let budget = rules::line_budget(&read("tests/architecture/product-lines.txt"));
    assert!(
        lines <= budget,
        "the product has {lines} lines, {} more than tests/architecture/product-lines.txt allows: remove some, or add a \
         number there with what they are for",
        lines - budget
    );
    assert_eq!(rules::line_budget("# head\n10 all\n-3 removed\n"), 7);
    let unused = budget - lines;
    assert!(unused < 300, "the product has {lines} lines: lower the first number in product-lines.txt by {unused}");
}

/// Counts the markers in each file with texts for users, and in each page.
fn marker_counts() -> BTreeMap<String, markers::MarkerCount> {
    let markers = markers::Markers::parse(&read("tests/architecture/markers.txt"));
    let mut counts = BTreeMap::new();
    for source in product() {
        counts.insert(source.path.clone(), markers.count_literals(&source));
    }
    for path in files_below(root(), "docs").into_iter().chain(["README.md".to_owned()]) {
        if path.ends_with(".md") {
            counts.insert(path.clone(), markers.count_page(&read(&path)));
        }
    }
    for path in files_below(root(), "manifests") {
        if path.ends_with(".md") {
            counts.insert(path.clone(), markers.count_page(&read(&path)));
        } else if let Ok(text) = std::fs::read_to_string(root().join(&path)) {
            counts.insert(path, markers.count_lines(&text));
        }
    }
    counts
}

#[test]
fn markers_of_an_indirect_style_only_become_fewer() {
    let counts = marker_counts();
    assert!(counts.len() > 300, "only {} files were read", counts.len());
    let kept = read("tests/architecture/marker-counts.txt");
    let known = markers::parse_table(&kept);
    let more = counts.iter().filter_map(|(path, count)| {
        let before = known.get(path.as_str()).copied().unwrap_or_default();
        let is_more = count.marked > before;
        is_more.then(|| {
            format!("{path}: {} texts with a word of tests/architecture/markers.txt, at most {before}", count.marked)
        })
    });
    assert_none(&more.collect::<Vec<_>>());
    assert_golden("tests/architecture/marker-counts.txt", &markers::table(&counts));
}

#[test]
fn a_marker_is_found_as_a_whole_word_outside_of_code_and_terms() {
    let markers = markers::Markers::parse("# a comment\nmachine\n^what\nany more\n=virtual machine\n");
    let cases: [(&str, &[&str]); 6] = [
        ("The Machine is off.", &["machine"]),
        ("The virtual machine is off.", &[]),
        ("Machinery is not there any, more or less", &["any more"]),
        ("What is gone stays gone", &["^ what"]),
        ("See what is gone", &[]),
        ("any\nmore", &["any more"]),
    ];
    for (text, expected) in cases {
        assert_eq!(markers.find(text), expected, "{text}");
    }
    let page = "# The machine room\n\nA `machine` in code.\nAny other line; what is a machine.\n\n```\nthe machine is code\n```\n| a cell of text | the machine of a cell |\n";
    let count = markers.count_page(page);
    assert_eq!((count.marked, count.all), (3, 5));
    let source = Source::new(
        "src/a.rs",
        "fn f() { g(\"the machine is off\", \"machine\"); }\n#[cfg(test)]\nmod tests {\n    const A: &str = \"the machine is off\";\n}\n",
    );
    let literals = markers.count_literals(&source);
    assert_eq!((literals.marked, literals.all), (1, 1));
}
