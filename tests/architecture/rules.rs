//! The rules. Each takes sources and returns the violations, as `file:line: what`.

use crate::source::{Source, is_word};

/// A module, the modules that it may use, and the crates that it must not use.
struct Module {
    name: &'static str,
    may_use: &'static [&'static str],
    forbidden_crates: &'static [&'static str],
}

/// A change of this table changes the architecture. The commit has to explain it, and `docs/ARCHITECTURE.md` has to
/// change with it.
const MODULES: &[Module] = &[
    Module { name: "main", may_use: &["app", "base"], forbidden_crates: &["kube", "k8s_openapi", "reqwest", "hyper"] },
    Module {
        name: "app",
        may_use: &["cloud", "controllers", "kubernetes", "providers", "clients", "runtime", "base"],
        forbidden_crates: &["reqwest", "quick_xml", "hyper"],
    },
    Module {
        name: "cloud",
        may_use: &["base"],
        forbidden_crates: &["kube", "reqwest", "quick_xml", "hyper", "clap", "rustls", "tokio"],
    },
    Module {
        name: "controllers",
        may_use: &["cloud", "kubernetes", "runtime", "base"],
        forbidden_crates: &["reqwest", "quick_xml", "hyper", "clap", "rustls"],
    },
    Module {
        name: "kubernetes",
        may_use: &["cloud", "runtime", "base"],
        forbidden_crates: &["reqwest", "quick_xml", "clap"],
    },
    Module {
        name: "providers",
        may_use: &["cloud", "clients", "base"],
        forbidden_crates: &["kube", "reqwest", "quick_xml", "hyper", "clap", "rustls"],
    },
    Module { name: "clients", may_use: &["base"], forbidden_crates: &["kube", "k8s_openapi", "clap"] },
    Module {
        name: "runtime",
        may_use: &["base"],
        forbidden_crates: &["kube", "k8s_openapi", "reqwest", "quick_xml", "clap"],
    },
    Module {
        name: "base",
        may_use: &[],
        forbidden_crates: &["kube", "k8s_openapi", "reqwest", "hyper", "quick_xml", "clap", "rustls", "tokio"],
    },
];

/// The wire clients. Each implements one protocol and uses no other wire client.
const WIRE_CLIENTS: &[&str] = &["vim", "vapi", "nsx", "sts", "session_manager"];

/// Files with decisions only, in addition to `base`, every `plan.rs` and every file with `Pure` in its header.
const PURE: &[&str] = &[
    "src/cloud/node.rs",
    "src/providers/vsphere/nodes/metadata/addresses.rs",
    "src/providers/vsphere/nodes/metadata/guest_metadata.rs",
    "src/providers/vsphere/nodes/metadata/instance_type.rs",
    "src/providers/provider_id.rs",
    "src/providers/vsphere/nodes/metadata/zones.rs",
];

fn told(source: &Source, line: usize, what: impl std::fmt::Display) -> String {
    format!("{}:{line}: {what}", source.path)
}

/// Checks the dependencies between the modules of the crate, and the forbidden crates of a module.
pub fn edges(source: &Source) -> Vec<String> {
    let module = source.module();
    let Some(own) = module.first() else { return Vec::new() };
    let Some(row) = MODULES.iter().find(|row| row.name == own) else {
        return vec![told(source, 1, format!("module {own} is not in the table of tests/architecture/rules.rs"))];
    };
    let mut broken = Vec::new();
    for named in source.paths() {
        let first = named.segments[0].as_str();
        let second = named.segments.get(1).map_or("", String::as_str);
        let is_module = MODULES.iter().any(|row| row.name == second);
        let is_logging = own == "main" && named.segments.get(1..3).is_some_and(|path| path == ["runtime", "logging"]);
        if first == "crate" && is_module && second != own && !row.may_use.contains(&second) && !is_logging {
            broken.push(told(source, named.line, format!("{own} must not use {second}")));
        }
        let is_test_clock = first == "tokio" && named.is_test;
        if row.forbidden_crates.contains(&first) && !is_test_clock {
            broken.push(told(source, named.line, format!("{own} must not know the crate {first}")));
        }
    }
    broken
}

/// A controller never imports another controller, a provider another provider, or a wire client another wire client.
pub fn siblings(source: &Source, all: &[Source]) -> Vec<String> {
    let module = source.module();
    let [parent, own, ..] = module.as_slice() else { return Vec::new() };
    let is_apart = |name: &str| match parent.as_str() {
        // Shared modules of controllers have no plan.
        "controllers" => all.iter().any(|other| other.path == format!("src/{parent}/{name}/plan.rs")),
        // Both providers for vSphere use the same form of provider IDs.
        "providers" => name != "provider_id" && all.iter().any(|other| other.path == format!("src/{parent}/{name}.rs")),
        "clients" => WIRE_CLIENTS.contains(&name),
        _ => false,
    };
    if !is_apart(own) {
        return Vec::new();
    }
    let paths = source.paths();
    let foreign = paths.iter().filter(|named| match named.segments.as_slice() {
        [first, second, third, ..] => first == "crate" && second == parent && third != own && is_apart(third),
        _ => false,
    });
    foreign
        .map(|named| told(source, named.line, format!("{own} must not use {}", named.segments[1..].join("::"))))
        .collect()
}

/// The parts of the provider for vSphere, from the bottom up. `src/providers/vsphere.rs` is above all of them.
const WINGS: &[&str] = &["reason", "login", "vcenter", "config", "nodes", "nsx"];

/// Each part of the provider for vSphere uses only the parts below it.
pub fn wings(source: &Source) -> Vec<String> {
    let module = source.module();
    let floor = |wing: &str| WINGS.iter().position(|name| *name == wing);
    let [parent, provider, wing, ..] = module.as_slice() else { return Vec::new() };
    if parent != "providers" || provider != "vsphere" || wing == "tests" {
        return Vec::new();
    }
    let Some(own) = floor(wing) else { return vec![told(source, 1, format!("{wing} is not in the table of wings"))] };
    let paths = source.paths();
    let above = paths.iter().filter(|named| !named.is_test).filter(|named| match named.segments.as_slice() {
        [first, second, third, name, ..] if first == "crate" && second == "providers" && third == "vsphere" => {
            floor(name).is_none_or(|other| other > own)
        }
        _ => false,
    });
    above
        .map(|named| told(source, named.line, format!("{wing} must not use {}", named.segments[1..].join("::"))))
        .collect()
}

/// Tasks start in `runtime::tasks` only, which names them and keeps their handles.
pub fn spawns(source: &Source) -> Vec<String> {
    if source.path == "src/runtime/tasks.rs" {
        return Vec::new();
    }
    let paths = source.paths();
    let bare = paths.iter().filter(|named| !named.is_test).filter(|named| {
        let segments: Vec<_> = named.segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["tokio", .., last] => {
                last.starts_with("spawn") || matches!(*last, "JoinSet") || segments.contains(&"JoinSet")
            }
            ["tokio_util", ..] => segments.contains(&"TaskTracker"),
            ["task" | "thread", last] => last.starts_with("spawn"),
            ["std", "thread", last] => last.starts_with("spawn"),
            _ => false,
        }
    });
    bare.map(|named| told(source, named.line, format!("{} outside runtime::tasks", named.segments.join("::"))))
        .collect()
}

/// Whether a file has decisions only.
pub fn is_pure(source: &Source) -> bool {
    source.path.starts_with("src/base")
        || source.path.ends_with("/plan.rs")
        || source.path.ends_with("/record.rs")
        || PURE.contains(&source.path.as_str())
        || source.header().split(|char: char| !char.is_alphanumeric()).any(|word| word == "Pure")
}

/// A pure file uses no async, clock, random value, client, file, environment variable or log beyond trace.
pub fn impurities(source: &Source) -> Vec<String> {
    if !is_pure(source) {
        return Vec::new();
    }
    let words = source.tokens().iter().enumerate().filter(|(_, token)| !token.is_test);
    let mut broken: Vec<_> = words
        .filter(|(at, token)| {
            let follows =
                |offset: usize, text: &str| source.tokens().get(at + offset).is_some_and(|next| next.text == text);
            // `error != other` compares a field.
            let is_called_macro = follows(1, "!") && !follows(2, "=");
            match token.text.as_str() {
                "async" | "await" | "now" | "elapsed" | "fastrand" | "rand" | "new_v4" | "reqwest" | "kube" => true,
                "debug" | "info" | "warn" | "error" | "println" | "eprintln" => is_called_macro,
                _ => false,
            }
        })
        .map(|(_, token)| told(source, token.line, format!("`{}` in a pure file", token.text)))
        .collect();
    let paths = source.paths();
    let outside = paths.iter().filter(|named| !named.is_test).filter(|named| {
        let path: Vec<_> = named.segments.iter().take(2).map(String::as_str).collect();
        // Decoded values of clients are data, and so are the workloads of the cluster. Their calls are `async`, which is
        // reported above.
        let is_data = named.segments.get(2).is_some_and(|module| module == "workloads");
        match path.as_slice() {
            ["std", "fs" | "env" | "process" | "thread"] | ["tokio", _] => true,
            ["crate", "kubernetes"] => !is_data,
            _ => false,
        }
    });
    broken
        .extend(outside.map(|named| told(source, named.line, format!("{} in a pure file", named.segments.join("::")))));
    broken
}

/// Every file begins with its purpose.
pub fn headers(source: &Source) -> Vec<String> {
    if source.text.starts_with("//! ") { Vec::new() } else { vec![told(source, 1, "no `//!` header")] }
}

/// A test runs or does not exist: `#[ignore]` is forbidden, also behind `cfg_attr`.
pub fn ignored_tests(source: &Source) -> Vec<String> {
    let tokens = source.tokens();
    let mut broken = Vec::new();
    for (at, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "ignore") {
        let line_start = tokens[..at].iter().rposition(|before| before.text == "#");
        let in_attribute = line_start.is_some_and(|start| {
            tokens[start + 1].text == "[" && !tokens[start..at].iter().any(|between| between.text == "]")
        });
        if in_attribute {
            broken.push(told(source, token.line, "an ignored test"));
        }
    }
    broken
}

/// Only lock files and tool settings may contain hosts of package registries.
pub fn registry_hosts(path: &str, text: &str) -> Vec<String> {
    let hosts = [["crates", "io"], ["proxy.golang", "org"], ["sum.golang", "org"], ["registry.npmjs", "org"]];
    let is_exempt = path == ".cargo/deny.toml" || ["Cargo.lock", "go.sum"].iter().any(|lock| path.ends_with(lock));
    let found = hosts.iter().map(|parts| parts.join(".")).filter(|host| !is_exempt && text.contains(host.as_str()));
    found.map(|host| format!("{path}: names {host}")).collect()
}

/// Returns the paths in backticks of files that must exist according to a document.
pub fn named_paths(document: &str) -> Vec<String> {
    let quoted = document.split('`').skip(1).step_by(2);
    let is_path = |text: &&str| {
        let known = ["src/", "tests/", "docs/", ".ci/", ".cargo/"].iter().any(|folder| text.starts_with(folder));
        known && text.chars().all(|char| char.is_alphanumeric() || "/._-".contains(char))
    };
    quoted.filter(is_path).map(str::to_owned).collect()
}

/// Returns crates that are forbidden in the dependency tree: a second TLS or time library, and unmaintained crates.
pub fn banned_crates(lock: &str) -> Vec<String> {
    const BANNED: &[&str] =
        &["openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys", "chrono", "serde_yaml", "serde_yml"];
    let has = |name: &&&str| lock.contains(&format!("name = \"{name}\"\n"));
    BANNED.iter().filter(has).map(|name| format!("{name} is in Cargo.lock")).collect()
}

/// Returns direct dependencies without a comment above them or above their block.
pub fn unexplained_dependencies(manifest: &str) -> Vec<String> {
    let (mut inside, mut explained, mut broken) = (false, false, Vec::new());
    for line in manifest.lines() {
        match line.trim() {
            "" => explained = false,
            text if text.starts_with('[') => (inside, explained) = (text.contains("dependencies"), false),
            text if text.starts_with('#') => explained = true,
            text => {
                let name = text.split([' ', '=']).next().unwrap_or_default();
                // Common crates need no comment, and neither does the second entry of the runtime for its test
                // features.
                let is_plain = ["serde", "serde_json", "thiserror", "tokio", "tracing", "tempfile"].contains(&name);
                if inside && is_word(name) && !explained && !is_plain && !name.starts_with("tracing") {
                    broken.push(format!("{name} has no reason"));
                }
            }
        }
    }
    broken
}

/// Returns the maximum number of product lines: the sum of the numbers. Each number has a reason.
pub fn line_budget(text: &str) -> i64 {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let number = |line: &str| {
        let (number, reason) = line.split_once(' ').unwrap_or_default();
        assert!(!reason.trim().is_empty(), "{line:?}: expected a number and what the lines are for");
        number.parse::<i64>().unwrap_or_else(|error| panic!("{line:?}: {error}"))
    };
    lines.map(number).sum()
}

/// Returns entries of [`PURE`] without a file.
pub fn stale_pure_files(all: &[Source]) -> Vec<String> {
    let stale = PURE.iter().filter(|path| !all.iter().any(|source| source.path == **path));
    stale.map(|path| format!("PURE names {path}, which is not there")).collect()
}

/// Returns entries of the tables of modules and wire clients without a module.
pub fn stale_modules(all: &[Source]) -> Vec<String> {
    let paths = MODULES.iter().map(|row| format!("src/{}.rs", row.name));
    let paths = paths.chain(WIRE_CLIENTS.iter().map(|name| format!("src/clients/{name}.rs")));
    let stale = paths.filter(|path| !all.iter().any(|source| source.path == *path));
    stale.map(|path| format!("a table names {path}, which is not there")).collect()
}
