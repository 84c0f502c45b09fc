//! The built binary: help, flags that are refused, settings that are wrong, exit codes. Starts no component.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

use std::io::{BufRead, BufReader, Read};
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

const THREE_MISTAKES: &str = r#"
[Global]
user = "administrator@vsphere.local"
password = "correct-horse-battery"
port = "many"
ca-file = "/no/such/ca.pem"

[VirtualCenter "vc.example"]
insecure-flag = perhaps

[Nodes]
internal-network-subnet-cidr = 10.0.0.0/40
"#;

#[test]
fn three_mistakes_of_the_file_are_told_in_one_message_with_file_line_and_key() {
    let told = refusal(THREE_MISTAKES, &["--secure-port=none"]);
    assert!(told.contains("4 mistakes in the settings:"), "{told}");
    for place in [
        "/vsphere.conf:5: [Global] port: ",
        "/vsphere.conf:9: [VirtualCenter \"vc.example\"] insecure-flag: ",
        "/vsphere.conf:12: [Nodes] internal-network-subnet-cidr: ",
        "--secure-port=none: ",
    ] {
        assert!(told.contains(place), "{place} is missing in {told}");
    }
}

#[test]
fn files_that_the_file_names_are_read_at_start() {
    let config =
        |more: &str| format!("[Global]\nuser = u\npassword = {SECRET}\n{more}\n[VirtualCenter \"vc.example\"]\n");
    let gone = refusal(&config("ca-file = /no/such/ca.pem"), &[]);
    assert!(
        gone.contains("/vsphere.conf: vCenter \"vc.example\": the CA file /no/such/ca.pem cannot be read"),
        "{gone}"
    );
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing\n").unwrap();
    let told = refusal(&config(&format!("ca-file = {}", empty.display())), &[]);
    assert!(told.contains("empty.pem") && told.contains("vc.example"), "{told}");
}

#[test]
fn the_other_form_is_refused_with_its_own_words_for_the_keys() {
    let told = refusal("global:\n  user: u\n  password: correct-horse-battery\nvcenter:\n  a:\n    port: many\n", &[]);
    assert!(told.contains("vcenter.a port: "), "{told}");
}

/// Nothing listens on the port: the daemon keeps trying, and stops in order when told to.
#[test]
fn a_signal_stops_the_process_in_order_with_code_0() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("vsphere.conf");
    let text = format!(
        "[Global]\nuser = u\npassword = {SECRET}\ninsecure-flag = true\n[VirtualCenter \"127.0.0.1\"]\nport = 1\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut daemon = program()
        .arg(format!("--cloud-config={}", config.display()))
        .args(["--master=http://127.0.0.1:1", "--secure-port=0", "-v=10"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(daemon.stderr.take().unwrap());
    let mut told = String::new();
    while !told.contains(" started") {
        assert_ne!(log.read_line(&mut told).unwrap(), 0, "it ended: {told}");
    }
    let id = daemon.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    log.read_to_string(&mut told).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0), "{told}");
    assert!(told.contains("stopping") && !told.contains(SECRET) && !told.contains("still at work"), "{told}");
}
