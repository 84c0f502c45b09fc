//! Golden tests: the file `tests/golden/config/<name>.yaml` (or `.ini`) and the resulting settings in
//! `<name>.yaml.txt`. `yaml.v2` (2.4.2 of `go.yaml.in`) accepts and rejects the same YAML files. The values of merges,
//! texts and numbers were compared by hand.
//! `UPDATE_GOLDEN=1 cargo test --lib golden` writes the settings files again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/config")
}

/// Returns all settings of a file. Instead of a password it shows the length.
fn show(text: &str, file: &str) -> String {
    let parsed = match parse(text, file) {
        Ok(parsed) => parsed,
        Err(errors) => {
            let mistakes = errors.errors.iter().map(|problem| format!("mistake: {problem}\n"));
            return mistakes.chain(errors.warnings.iter().map(|odd| format!("warning: {odd}\n"))).collect();
        }
    };
    let mut shown = String::new();
    for vcenter in &parsed.config.vcenters {
        show_vcenter(vcenter, &mut shown).unwrap();
    }
    match &parsed.config.labels {
        Some(labels) => writeln!(shown, "zone {:?}, region {:?}", labels.zone, labels.region),
        None => writeln!(shown, "no zones"),
    }
    .unwrap();
    for (kind, rule) in
        [("internal", &parsed.config.addresses.internal), ("external", &parsed.config.addresses.external)]
    {
        writeln!(shown, "{kind}: in {:?}, network {:?}, not in {:?}", rule.networks, rule.network_name, rule.excluded)
            .unwrap();
    }
    let Config { nsx, load_balancers, routes, .. } = &parsed.config;
    for (is_there, part) in [
        (*nsx != OptionalSection::Absent, format!("{nsx:?}")),
        (*load_balancers != OptionalSection::Absent, format!("{load_balancers:?}")),
        (*routes != OptionalSection::Absent, format!("{routes:?}")),
    ] {
        if is_there {
            writeln!(shown, "{part}").unwrap();
        }
    }
    for (part, error) in &parsed.rejected {
        writeln!(shown, "mistake of {}: {error}", part.as_str()).unwrap();
    }
    for warning in &parsed.warnings {
        writeln!(shown, "warning: {warning}").unwrap();
    }
    shown
}

fn show_vcenter(vcenter: &VcenterConfig, shown: &mut String) -> std::fmt::Result {
    writeln!(shown, "vCenter {:?}", vcenter.key)?;
    writeln!(shown, "  {:?} port {}", vcenter.server, vcenter.port)?;
    for source in [Some(&vcenter.credentials), vcenter.fallback_credentials.as_ref()].into_iter().flatten() {
        match source {
            Credentials::Inline { user, password } => {
                writeln!(
                    shown,
                    "  user {user:?}, password of {} characters",
                    password.expose_secret().chars().count()
                )?;
            }
            other => writeln!(shown, "  {}", super::shown(other))?,
        }
    }
    let families: Vec<_> = vcenter.ip_families.iter().map(|family| format!("{family:?}")).collect();
    writeln!(shown, "  families {}, datacenters {:?}", families.join(" "), vcenter.datacenters)?;
    if vcenter.insecure || !vcenter.ca_files.is_empty() || !vcenter.thumbprints.is_empty() {
        let (insecure, files, thumbprints) = (vcenter.insecure, &vcenter.ca_files, thumbprint_texts(vcenter));
        writeln!(shown, "  insecure {insecure}, CA {files:?}, thumbprints {thumbprints:?}")?;
    }
    Ok(())
}

#[test]
fn files_have_the_settings_that_are_pinned() {
    let is_update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let (mut inputs, mut outcomes) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        match name.strip_suffix(".txt") {
            Some(input) => outcomes.insert(input.to_owned()),
            None => inputs.insert(name),
        };
    }
    assert!(inputs.len() > 20, "{inputs:?}");
    let mut wrong = Vec::new();
    for name in &inputs {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        let (got, path) = (show(&text, name), folder().join(format!("{name}.txt")));
        assert!(!got.contains("hunter"), "{name} shows a secret: {got}");
        if is_update {
            std::fs::write(&path, &got).unwrap();
        }
        let want = std::fs::read_to_string(&path).unwrap_or_default();
        if got != want {
            wrong.push(format!("{name}: expected\n{want}got\n{got}"));
        }
    }
    assert!(wrong.is_empty(), "{}\nif this is meant, UPDATE_GOLDEN=1 writes them anew", wrong.join("\n"));
    assert!(is_update || inputs == outcomes, "an outcome without its file, or the reverse");
}

/// The files `trap-*` have another meaning than their authors intended, or none. Each must cause a message.
#[test]
fn no_trap_is_passed_over_in_silence() {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let traps: Vec<String> = entries.filter(|name| name.starts_with("trap-") && !name.ends_with(".txt")).collect();
    assert!(traps.len() >= 80, "{}", traps.len());
    let silent = traps.into_iter().filter(|name| {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        let is_told =
            show(&text, name).lines().any(|line| line.starts_with("mistake") || line.starts_with("warning: "));
        !is_told && !text.trim_start_matches('\u{feff}').starts_with("# No message: ")
    });
    assert_eq!(silent.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn the_full_file_is_the_same_in_both_dialects() {
    let outcome = |name: &str| {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        let lines: Vec<String> =
            show(&text, name).lines().filter(|line| !line.starts_with("warning")).map(str::to_owned).collect();
        lines
    };
    assert_eq!(outcome("full.ini"), outcome("full.yaml"));
}
