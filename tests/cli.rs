//! The daemon's binary: help, rejected flags, invalid settings, exit codes. The tests start no component.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

#[path = "cli/config_lint.rs"]
mod config_lint;
#[path = "cli/flags_page.rs"]
mod flags_page;
#[path = "cli/kubectl_plugin.rs"]
mod kubectl_plugin;
#[path = "cli/process.rs"]
mod process;

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SECRET: &str = "correct-horse-battery";

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager"));
    // As in a pod, which needs no kubeconfig.
    command.env_clear().env("KUBERNETES_SERVICE_HOST", "127.0.0.1").stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs with `config` as vsphere.conf, and returns standard error. Checks that the process fails and prints no secret.
fn refusal(config: &str, arguments: &[&str]) -> String {
    refusal_with(config, arguments, &[])
}

/// As [`refusal`], with these environment variables.
fn refusal_with(config: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vsphere.conf");
    std::fs::write(&path, config).unwrap();
    let file = format!("--cloud-config={}", path.display());
    // Another test may use the default port.
    let output =
        program().arg(file).args(["-v=10", "--secure-port=0"]).args(arguments).envs(variables.iter().copied()).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stderr) + &text(&output.stdout);
    assert!(!told.contains(SECRET), "{told}");
    told.replace(folder.path().to_str().unwrap(), "")
}

/// Compares a generated text with the file in the repository.
fn assert_golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "if this is meant, UPDATE_GOLDEN=1 cargo test --test cli writes {}", path.display());
}

#[test]
fn help_is_the_golden_text() {
    let output = run(&["--help"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert_golden("tests/golden/help.txt", &text(&output.stdout));
    let with_an_empty_variable = program().arg("-h").env("CCM_STANDBY", "").output().unwrap();
    assert_eq!(text(&with_an_empty_variable.stdout), text(&output.stdout));
}

#[test]
fn help_has_the_groups_of_the_go_program_then_ours_and_flags_without_effect_last() {
    let help = text(&run(&["--help"]).stdout);
    let groups: Vec<_> = help.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':')).collect();
    let expected = [
        "Commands (each has --help):",
        "Debugging flags:",
        "Leader-migration flags:",
        "Generic flags:",
        "Cloud-node-controller flags:",
        "Service-lb-controller flags:",
        "Secure serving flags:",
        "Authentication flags:",
        "Authorization flags:",
        "Misc flags:",
        "Global flags:",
        "Flags the Go program does not have (each also an environment variable, which it ignores):",
        "Flags without effect (accepted, so that the flags of the Go program can stay):",
    ];
    assert_eq!(groups, expected);
    for group in help.split("\n\n").filter(|group| group.contains(" flags:\n") || group.starts_with("Flags")) {
        let name = |line: &str| {
            line.trim_start().split("--").nth(1).unwrap_or("?").split([' ', '[']).next().unwrap().to_owned()
        };
        let names: Vec<_> = group.lines().filter(|line| line.trim_start().starts_with('-')).map(name).collect();
        assert!(names.is_sorted(), "{names:?}");
    }
}

#[test]
fn the_page_of_flags_is_as_it_is_written_from_their_definitions() {
    assert_golden("docs/flags.md", &flags_page::page());
}

#[test]
fn version_names_the_program_and_its_version() {
    let own = env!("CARGO_PKG_VERSION");
    for (form, version) in
        [("--version", own), ("--version=raw", own), ("--version=true", own), ("--version=v9.8.7", "v9.8.7")]
    {
        let output = run(&[form]);
        let expected = format!("vsphere-cloud-controller-manager {version}\n");
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), expected), "{form}");
    }
}

#[test]
fn what_is_no_flag_is_refused_with_the_nearest_one() {
    let cases: &[(&[&str], &str)] = &[
        (&["--cloud-confg=/x"], "error: unknown flag: --cloud-confg; did you mean --cloud-config?"),
        (&["--leader_elect_lease_time=5s"], "error: unknown flag: --leader-elect-lease-time"),
        (&["--no-such-thing-at-all"], "error: unknown flag: --no-such-thing-at-all\n"),
        (&["--v=2", "serve"], "error: \"vsphere-cloud-controller-manager\" takes no arguments other than flags, got"),
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
fn a_first_word_that_is_no_command_is_refused_with_the_commands() {
    let output = run(&["serve"]);
    let expected = "error: unknown command \"serve\"; commands: status, explain, plan, check, deletions, bundle, \
                    config-lint, completion\n";
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), expected));
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
        "5 configuration errors",
        "--cloud-config: required",
        "--controllers=nodes: ",
        "--leader-elect-lease-duration=15s: expected more than --leader-elect-renew-deadline (1m0s)",
        "--secure-port=70000: ",
        "environment variable CCM_TAG_POLL_INTERVAL=often: ",
    ] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
}

#[test]
fn the_command_line_goes_before_a_variable_and_an_empty_variable_counts_as_none() {
    let told = |value: &str, arguments: &[&str]| {
        let output =
            program().arg("--secure-port=0").args(arguments).env("CCM_TAG_POLL_INTERVAL", value).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        text(&output.stderr)
    };
    // The missing file is the only error.
    for (value, arguments) in [("", &[][..]), ("2m", &[]), ("often", &["--tag-poll-interval=2m"])] {
        let told = told(value, arguments);
        assert!(told.starts_with("error: invalid configuration: --cloud-config: required"), "{told}");
    }
    let told = told("2m", &["--tag-poll-interval=often"]);
    assert!(told.contains("  --tag-poll-interval=often: ") && !told.contains("CCM_"), "{told}");
}

#[test]
#[cfg(unix)]
fn what_is_no_text_is_told_in_one_sentence() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let wrong = OsStr::from_bytes(b"/etc/\xff");
    let argument = program().args(["-v=2", "--cloud-config"]).arg(wrong).output().unwrap();
    assert!(text(&argument.stderr).starts_with("error: argument 3 is not text in UTF-8: "), "{argument:?}");
    let variable = program().env("CCM_NODE_SELECTOR", wrong).output().unwrap();
    let expected = "error: the environment variable CCM_NODE_SELECTOR is not text in UTF-8\n";
    assert!(text(&variable.stderr).starts_with(expected), "{variable:?}");
    assert_eq!((argument.status.code(), variable.status.code()), (Some(1), Some(1)));
}

#[test]
fn a_deprecated_flag_is_told_on_standard_error() {
    let told = text(&run(&["--node_sync_period=1s"]).stderr);
    assert!(told.starts_with("Flag --node-sync-period has been deprecated, This flag is currently no-op"), "{told}");
}

/// A real bash runs the script, as if a user pressed the Tab key.
#[test]
fn bash_completes_flags_and_commands() {
    let script = text(&run(&["completion", "bash"]).stdout);
    let completed = |words: &str, at: usize| {
        let ask = format!(
            "{script}\nCOMP_WORDS=({words}); COMP_CWORD={at}; _vsphere_cloud_controller_manager; echo \"${{COMPREPLY[*]}}\""
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        text(&output.stdout).trim().to_owned()
    };
    assert_eq!(completed("ccm --cloud-", 1), "--cloud-config --cloud-provider");
    assert_eq!(completed("ccm -v 2 --topology-labels", 3), "--topology-labels");
    assert_eq!(completed("ccm com", 1), "completion");
    assert_eq!(completed("ccm s", 1), "status");
    assert_eq!(completed("ccm status --mask", 2), "--mask-users");
    assert_eq!(completed("ccm status -o json --cluster", 4), "", "a command has its own options only");
    assert_eq!(completed("ccm completion f", 2), "fish");
    assert_eq!(completed("ccm status -o j", 3), "json");
    assert_eq!(completed("ccm status --output = y", 4), "yaml", "bash makes three words of --output=y");
    assert_eq!(completed("ccm status --output =", 3), "text json yaml");
    assert_eq!(completed("ccm explain no", 2), "node");
    assert_eq!(completed("ccm explain -o json ser", 4), "service");
    assert_eq!(completed("ccm explain node no", 3), "", "the second argument is a name");
    assert_eq!(completed("ccm explain node worker-1 --q", 4), "--quiet");
    assert_eq!(completed("ccm deletions p", 2), "pause");
    assert_eq!(completed("ccm bundle --wa", 2), "", "the option is hidden");
    assert_eq!(completed("ccm config-lint --s", 2), "--strict");
    assert_eq!(completed("ccm config-lint /e", 2), "", "the shell completes the name of the file");
    assert_eq!(completed("ccm status --kubeconfig /e", 3), "", "the shell completes the name of the file");
    assert_eq!(completed("ccm status --detached -- --cluster-n", 4), "--cluster-name");
    assert_eq!(completed("ccm --cloud-config /e", 2), "");
    let registered = format!("{script}\ncomplete -p vsphere-cloud-controller-manager");
    assert!(Command::new("bash").args(["--norc", "-c", &registered]).output().unwrap().status.success());
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
    assert!(told.contains("4 configuration errors:"), "{told}");
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
    assert!(gone.contains("/vsphere.conf:4: [Global] ca-file: the CA file /no/such/ca.pem cannot be read"), "{gone}");
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing\n").unwrap();
    let told = refusal(&config(&format!("ca-file = {}", empty.display())), &[]);
    assert!(told.contains("empty.pem") && told.contains("vc.example"), "{told}");
}

#[test]
fn the_other_form_is_refused_with_its_own_words_for_the_keys() {
    let told = refusal("global:\n  user: u\n  password: correct-horse-battery\nvcenter:\n  a:\n    port: many\n", &[]);
    assert!(told.contains("vcenter.a.port: "), "{told}");
}

#[test]
fn a_port_in_use_is_told_with_all_other_mistakes_before_anything_is_contacted() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = format!(
        "[Global]\nuser = u\npassword = {SECRET}\ninsecure-flag = true\n[VirtualCenter \"127.0.0.1\"]\nport = {}\n",
        server.local_addr().unwrap().port()
    );
    let master = format!("--master=http://{}", server.local_addr().unwrap());
    let place = format!("--secure-port={port}: cannot listen on 127.0.0.1:{port}");
    let flags = ["--bind-address=127.0.0.1", &format!("--secure-port={port}"), &master];
    for (more, others) in [
        (&[][..], &["error: invalid configuration: "][..]),
        (&["--concurrent-node-syncs=0"], &["error: 2 configuration errors:", "--concurrent-node-syncs=0: "]),
    ] {
        let told = refusal_with(&config, &[&flags[..], more].concat(), &[("CCM_SECURE_PROT", "10300")]);
        for part in others.iter().chain([&place.as_str()]) {
            assert!(told.contains(part), "{part} is missing in {told}");
        }
        assert!(!told.contains(" starts"), "{told}");
        assert!(told.contains("environment variable CCM_SECURE_PROT: unknown"), "{told}");
        let contact = server.accept().unwrap_err();
        assert_eq!(contact.kind(), ErrorKind::WouldBlock, "{told}");
    }
}

/// The port has no listener. The daemon retries, and shuts down cleanly on the signal.
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
        .args([
            "--master=http://127.0.0.1:1",
            "--secure-port=0",
            "-v=10",
            "--min-resync-period=1h",
            "--webhook-secure-port=10260",
            "--requestheader-client-ca-file=/there/is/none",
            "--requestheader-allowed-names=front-proxy-client",
        ])
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
    for flag in ["--min-resync-period", "--requestheader-client-ca-file", "--requestheader-allowed-names"] {
        assert_eq!(told.matches(&format!("{flag} is accepted and has no effect")).count(), 1, "{told}");
    }
    assert!(!told.contains("--webhook-secure-port is accepted"), "it has its default: {told}");
    assert!(told.contains("FLAG: --secure-port="), "{told}");
    assert!(told.contains("stopping") && !told.contains(SECRET) && !told.contains("still at work"), "{told}");
}
