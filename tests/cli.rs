//! The built binary: help, flags that are refused, settings that are wrong, exit codes. Starts no component.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

use std::path::Path;
use std::process::{Command, Output, Stdio};

const SECRET: &str = "correct-horse-battery";

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager"));
    command.env_clear().stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs with `config` as vsphere.conf; what it says on standard error, after checking that it fails and keeps secrets.
fn refusal(config: &str, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vsphere.conf");
    std::fs::write(&path, config).unwrap();
    let file = format!("--cloud-config={}", path.display());
    let output = program().arg(file).args(["-v=10"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stderr) + &text(&output.stdout);
    assert!(!told.contains(SECRET), "{told}");
    told.replace(folder.path().to_str().unwrap(), "")
}

#[test]
fn help_is_the_golden_text() {
    let output = run(&["--help"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help.txt");
    let help = text(&output.stdout);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &help).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    assert_eq!(help, expected, "if this is meant, UPDATE_GOLDEN=1 cargo test --test cli writes {}", golden.display());
}

#[test]
fn the_page_of_flags_names_every_flag_and_no_other() {
    let flags = |text: &str| {
        let words = text.split(|char: char| !char.is_ascii_alphanumeric() && char != '-');
        let mut flags: Vec<_> =
            words.filter(|word| word.len() > 3 && word.starts_with("--")).map(str::to_owned).collect();
        flags.sort();
        flags.dedup();
        flags
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/flags.md")).unwrap();
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let help = text(&run(&["--help"]).stdout);
    let definitions: Vec<_> = help.lines().map(str::trim).filter(|line| line.starts_with('-')).collect();
    assert_eq!(flags(&rows.join(" ")), flags(&definitions.join(" ")));
}

#[test]
fn version_names_the_program_and_its_version() {
    for form in ["--version", "--version=raw", "--version=true"] {
        let output = run(&[form]);
        let expected = format!("vsphere-cloud-controller-manager {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), expected), "{form}");
    }
}

#[test]
fn what_is_no_flag_is_refused_with_the_nearest_one() {
    let cases: &[(&[&str], &str)] = &[
        (&["--cloud-confg=/x"], "error: unknown flag: --cloud-confg; did you mean --cloud-config?"),
        (&["--leader_elect_lease_time=5s"], "error: unknown flag: --leader-elect-lease-time"),
        (&["--no-such-thing-at-all"], "error: unknown flag: --no-such-thing-at-all\n"),
        (&["serve"], "error: \"vsphere-cloud-controller-manager\" does not take any arguments, got \"serve\""),
        (&["--kubeconfig"], "error: flag needs a value: --kubeconfig"),
    ];
    for (arguments, expected) in cases {
        let output = run(arguments);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {told}");
        assert!(told.starts_with(expected), "{arguments:?}: {told}");
    }
}

#[test]
fn wrong_values_are_told_all_at_once() {
    let output = program()
        .args(["--controllers=*,-nodes", "--leader-elect-renew-deadline=1m", "--secure-port=70000"])
        .env("CCM_TAG_POLL_INTERVAL", "often")
        .output()
        .unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    for part in [
        "5 mistakes in the settings",
        "--cloud-config: it is needed",
        "--controllers=nodes: ",
        "--leader-elect-lease-duration=15s: expected more than --leader-elect-renew-deadline (1m0s)",
        "--secure-port=70000: ",
        "--tag-poll-interval=often: ",
    ] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
}

#[test]
fn an_empty_or_missing_file_is_told_with_its_name() {
    assert!(refusal(" \n", &[]).contains("--cloud-config=/vsphere.conf: the file is empty"));
    assert!(
        text(&run(&["--cloud-config=/no/such.conf"]).stderr).contains("--cloud-config=/no/such.conf: cannot be read")
    );
}
