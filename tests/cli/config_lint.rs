//! `config-lint FILE`: exit codes, the same messages as the daemon, and no secrets.

use super::{SECRET, THREE_MISTAKES, program, run, text};
use ccm::base::limited_read::MAX_FILE;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Output;

const FILE: &str = "vsphere.conf";

/// Runs `config-lint`. Checks that the output does not contain the secret in any form.
fn lint(folder: &Path, arguments: &[&OsStr], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = program();
    command.current_dir(folder).arg("config-lint").args(arguments).envs(variables.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert!(!(stdout.clone() + &stderr).contains(SECRET), "{stdout}{stderr}");
    (status.code(), stdout, stderr)
}

/// Returns the error of the daemon for the same file.
fn refusal_of_the_daemon(folder: &Path) -> String {
    let mut command = program();
    let output =
        command.current_dir(folder).args([&format!("--cloud-config={FILE}"), "--secure-port=0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stderr)
}

/// A file without errors has exit code 0 and these warnings.
#[test]
fn a_file_without_errors_passes_with_its_warnings() {
    let ini = "[Global]\nuser = u\npassword = correct-horse-battery\n";
    let vcenter = "[VirtualCenter \"vc.example\"]\n";
    let yaml = "global:\n  user: u\n  password: correct-horse-battery\nvcenter:\n  a:\n    server: vc.example\n";
    let cases: &[(&str, String, &[&str])] = &[
        ("INI", [ini, vcenter].concat(), &[]),
        ("YAML", yaml.to_owned(), &[]),
        (
            "a Secret, which only the API server knows",
            format!("[Global]\nsecret-name = none\nsecret-namespace = kube-system\n{vcenter}"),
            &[],
        ),
        (
            "a key that nothing reads, and no verification",
            format!("{ini}colour = correct-horse-battery\n{vcenter}insecure-flag = true\n"),
            &[
                "warning: vsphere.conf:4: [Global]: unknown key",
                "warning: vCenter vc.example:443: its certificate is not",
            ],
        ),
    ];
    for (case, content, warnings) in cases {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), content).unwrap();
        let (code, stdout, stderr) = lint(folder.path(), &[FILE.as_ref()], &[]);
        assert_eq!((code, stdout.as_str()), (Some(0), "vsphere.conf: no errors\n"), "{case}: {stderr}");
        assert_eq!(stderr.lines().count(), warnings.len(), "{case}: {stderr}");
        for (line, warning) in stderr.lines().zip(*warnings) {
            assert!(line.starts_with(warning), "{case}: {line}");
        }
    }
}

/// A file with errors has exit code 1. All errors are printed, with the texts of the daemon.
#[test]
fn a_file_with_errors_fails_in_the_words_of_the_daemon() {
    let vcenter = "[Global]\nuser = u\npassword = correct-horse-battery\n[VirtualCenter \"vc.example\"]\n";
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        (
            "INI",
            THREE_MISTAKES.into(),
            &[
                "vsphere.conf:5: [Global] port: ",
                "vsphere.conf:9: [VirtualCenter \"vc.example\"] insecure-flag: ",
                "vsphere.conf:12: [Nodes] internal-network-subnet-cidr: ",
            ],
        ),
        (
            "YAML",
            "global:\n  user: u\n  password: correct-horse-battery\nvcenter:\n  a:\n    port: many\n".into(),
            &["vsphere.conf:6: vcenter.a.port: "],
        ),
        (
            "files that it names",
            format!("{vcenter}ca-file = /no/such/ca.pem\n[VirtualCenter \"b\"]\nca-file = vsphere.conf\n").into(),
            &[
                "vsphere.conf:5: [VirtualCenter \"vc.example\"] ca-file: the CA file /no/such/ca.pem cannot be read",
                "vsphere.conf:7: [VirtualCenter \"b\"] ca-file: ",
            ],
        ),
        (
            "no credentials",
            "[VirtualCenter \"vc.example\"]\n".into(),
            &["[VirtualCenter \"vc.example\"] user: missing", "[VirtualCenter \"vc.example\"] password: missing"],
        ),
        ("empty", " \n".into(), &["the file is empty"]),
        ("not UTF-8", b"[Global]\npassword = correct-horse-battery\xff\n".into(), &["the file is not text in UTF-8"]),
    ];
    for (case, content, errors) in cases {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), content).unwrap();
        let (code, stdout, stderr) = lint(folder.path(), &[FILE.as_ref()], &[]);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{case}: {stderr}");
        for error in *errors {
            assert_eq!(stderr.matches(error).count(), 1, "{case}: {error} in {stderr}");
        }
        assert_eq!(stderr, refusal_of_the_daemon(folder.path()), "{case}");
    }
}

/// The daemon starts without such a part, and a reload rejects the file.
#[test]
fn an_error_in_a_part_fails_although_the_daemon_starts_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let vcenter = "[Global]\nuser = u\npassword = correct-horse-battery\n[VirtualCenter \"vc.example\"]\n";
    let nsx = "[NSXT]\nhost = nsx\nuser = u\npassword = correct-horse-battery\nca-file = vsphere.conf\n[Route]\n";
    std::fs::write(folder.path().join(FILE), [vcenter, nsx].concat()).unwrap();
    let (code, stdout, stderr) = lint(folder.path(), &[FILE.as_ref()], &[]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    for error in ["vsphere.conf:10: [Route] router-path: router path is required", "vsphere.conf:9: [NSXT] ca-file: "] {
        assert!(stderr.contains(error), "{error} in {stderr}");
    }
}

#[test]
fn the_variables_that_go_with_the_file_count() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(FILE), "[VirtualCenter \"vc.example\"]\n").unwrap();
    let variables = [("VSPHERE_USER", "u"), ("VSPHERE_PASSWORD", SECRET)];
    let code = |variables: &[(&str, &str)]| lint(folder.path(), &[FILE.as_ref()], variables).0;
    assert_eq!((code(&variables), code(&[])), (Some(0), Some(1)));
}

#[test]
fn odd_variables_are_warned_of_as_by_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let vcenter = "[Global]\nuser = u\npassword = correct-horse-battery\n[VirtualCenter \"vc.example\"]\n";
    std::fs::write(folder.path().join(FILE), vcenter).unwrap();
    let variables = [
        ("CCM_NODE_DELETIONS", "dry-run"),
        ("CCM_SERVICE_HOST", "10.96.0.9"),
        ("CCM_PORT", "tcp://10.96.0.9:443"),
        ("VSPHERE_VCENTER_SERVICE_HOST", "10.96.7.7"),
        ("VSPHERE_VCENTER_PORT", "tcp://10.96.7.7:443"),
        ("VSPHERE_VCENTER_PORT_443_TCP_ADDR", "10.96.7.7"),
    ];
    let (code, _, stderr) = lint(folder.path(), &[FILE.as_ref()], &variables);
    let expected = [
        "warning: environment variable CCM_NODE_DELETIONS: unknown, ignored; did you mean CCM_NODE_DELETION?",
        "warning: environment: VSPHERE_VCENTER_PORT: ignored, with the others that Kubernetes sets for the Service \
         vsphere-vcenter: set enableServiceLinks: false in the pod",
    ];
    assert_eq!((code, stderr.lines().collect::<Vec<_>>().as_slice()), (Some(0), &expected[..]));
    // Also with an error that makes the daemon turn a part off.
    let wrong = [("VSPHERE_VCENTER_2", "vc"), ("VCENTER_2_PORT", "many"), ("CCM_NODE_DELETIONS", "dry-run")];
    let (code, _, stderr) = lint(folder.path(), &[FILE.as_ref()], &wrong);
    assert_eq!(code, Some(1));
    assert!(
        stderr.contains("environment: VCENTER_2_PORT: expected a port") && stderr.contains("CCM_NODE_DELETIONS"),
        "{stderr}"
    );
}

/// Wrong usage and an unreadable file have exit code 2.
#[test]
fn what_is_not_checked_is_no_pass() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    std::fs::File::create(folder.path().join("large")).unwrap().set_len(MAX_FILE as u64 + 1).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["missing"], "error: missing: cannot be read: "),
        (&["folder"], "error: folder: cannot be read: "),
        (&["large"], "error: large: cannot be read: "),
        (&[""], "error: : cannot be read: "),
        (&["--cloud-config=missing"], "error: expected config-lint [--strict] FILE\n"),
        (&["--version"], "error: expected config-lint [--strict] FILE\n"),
        (&[], "error: expected config-lint [--strict] FILE\n"),
        (&["missing", "folder"], "error: expected config-lint [--strict] FILE\n"),
    ];
    for (arguments, expected) in cases {
        let words: Vec<_> = arguments.iter().map(OsStr::new).collect();
        let (code, stdout, stderr) = lint(folder.path(), &words, &[]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with(expected), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_dash_reads_standard_input() {
    let vcenter = "[Global]\nuser = u\npassword = correct-horse-battery\n[VirtualCenter \"vc.example\"]\n";
    let folder = tempfile::tempdir().unwrap();
    for (content, code, stdout, stderr) in [
        (vcenter.to_owned(), 0, "standard input: no errors\n", ""),
        (format!("{vcenter}port = many\n"), 1, "", "standard input:5: [VirtualCenter \"vc.example\"] port: "),
        (String::new(), 1, "", "standard input: the file is empty"),
        ("#".repeat(MAX_FILE + 1), 2, "", "error: standard input: cannot be read: "),
    ] {
        let path = folder.path().join("input");
        std::fs::write(&path, content).unwrap();
        let input = std::fs::File::open(path).unwrap();
        let output = program().args(["config-lint", "-"]).stdin(input).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), stdout), "{told}");
        assert!(told.contains(stderr) && !told.contains(SECRET), "{told}");
    }
}

#[test]
fn with_strict_a_warning_is_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let vcenter = "[Global]\nuser = u\npassword = correct-horse-battery\n[VirtualCenter \"vc.example\"]\n";
    let code = |content: &str, arguments: &[&str]| {
        std::fs::write(folder.path().join(FILE), content).unwrap();
        let (code, stdout, stderr) = lint(folder.path(), &arguments.iter().map(OsStr::new).collect::<Vec<_>>(), &[]);
        (code, stdout, stderr.lines().last().map(str::to_owned))
    };
    let odd = format!("{vcenter}colour = red\n");
    let passed = "vsphere.conf: no errors\n".to_owned();
    assert_eq!(code(vcenter, &["--strict", FILE]), (Some(0), passed.clone(), None));
    let (code_without, stdout, _) = code(&odd, &[FILE]);
    assert_eq!((code_without, stdout), (Some(0), passed));
    let fault = "error: vsphere.conf: --strict does not accept the warnings".to_owned();
    assert_eq!(code(&odd, &[FILE, "--strict"]), (Some(1), String::new(), Some(fault)));
}

#[test]
#[cfg(unix)]
fn the_name_of_the_file_may_be_no_text() {
    use std::os::unix::ffi::OsStringExt as _;
    let folder = tempfile::tempdir().unwrap();
    let name = OsString::from_vec(b"vsphere_\xff.conf".to_vec());
    std::fs::write(folder.path().join(&name), "").unwrap();
    assert_eq!(lint(folder.path(), &[&name], &[]).0, Some(1), "it is read and empty");
}

#[test]
fn the_help_text_and_completion_have_it() {
    for arguments in [&["--help"][..], &["completion", "bash"], &["completion", "zsh"], &["completion", "fish"]] {
        let shown = text(&run(arguments).stdout);
        assert!(shown.contains("cloud-config") && shown.contains("config-lint"), "{arguments:?}: {shown}");
    }
}
