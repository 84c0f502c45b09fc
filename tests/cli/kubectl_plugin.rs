//! The kubectl plugin with a kubectl that records its calls: which Pod it asks, which Job it makes, and that the Job is
//! deleted however the plugin ends. `manifests::plugin` of the daemon's suite has a real kubectl and API server.

use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::text;

const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/plugin/kubectl-vsphere_ccm");

/// The folder with the recording kubectl, and with a `sleep` that lets no time pass.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/kubectl_plugin");

const FLAGS: &str = r#"["--cloud-provider=vsphere","--v=2"]"#;

/// A Pod template as the plugin reads it: name and image, command, arguments, tolerations, and the specification.
const TEMPLATE: &str = concat!(
    "ccm registry.test/ccm:v1\n\n",
    r#"["--cloud-provider=vsphere","--cloud-config=/etc/cloud/vsphere.conf"]"#,
    "\n",
    r#"[{"key":"a","operator":"Exists"}]"#,
    "\n",
    r#"{"containers":[{"name":"ccm"}]}"#,
    "\n",
);

/// Name and content of files.
type Files<'a> = &'a [(&'a str, &'a str)];

/// The files with which the recording kubectl answers.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    /// A cluster with these files.
    fn with(files: Files) -> Self {
        let cluster = Self { folder: tempfile::tempdir().unwrap() };
        for (name, content) in [("code", "0"), ("version-code", "0"), ("state", "Running")].iter().chain(files) {
            let path = cluster.path(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        cluster
    }

    /// A cluster whose leader is the Pod `ccm-a` on the Node `cp-1`.
    fn with_leader(files: Files) -> Self {
        let cluster = Self::with(files);
        std::fs::write(cluster.path("lease"), "cloud-controller-manager=cp-1_5a0f6f5e-5a53").unwrap();
        std::fs::write(cluster.path("pods"), pod("ccm-a", "cp-1")).unwrap();
        cluster
    }

    /// A cluster with the DaemonSet of the chart. Its Job prints `the report` and exits with this code.
    fn with_job(code: &str, files: Files) -> Self {
        let usual = [("daemonset/vsphere-cpi", TEMPLATE), ("log", "the report\n"), ("exit-code", code)];
        Self::with(&[&usual[..], files].concat())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, shell: &str, arguments: &[&str]) -> Command {
        // A shell cannot trap a signal that its parent ignores, as a shell does for what it starts in the background.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", shell, PLUGIN]).args(arguments).stdin(Stdio::null());
        command.env("PATH", format!("{PROGRAMS}:/usr/bin:/bin")).env("CLUSTER", self.folder.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command("sh", arguments).output().unwrap()
    }

    /// Returns the calls of kubectl, one a line.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Returns the only call that begins so.
    fn call(&self, start: &str) -> String {
        let calls = self.calls();
        let found: Vec<&String> = calls.iter().filter(|call| call.starts_with(start)).collect();
        assert_eq!(found.len(), 1, "{start}: {calls:?}");
        found[0].clone()
    }

    /// Checks that the Job that was created is deleted.
    fn assert_job_is_deleted(&self, case: &str) {
        let job = std::fs::read_to_string(self.path("job")).unwrap();
        let name = job.split('"').find(|word| word.starts_with("vsphere-ccm-")).unwrap();
        let deletion = self.call("delete job ");
        assert!(deletion.contains(name) && !deletion.contains("--wait=true"), "{case}: {deletion}");
    }
}

/// A running Pod in the form in which the plugin asks for it.
fn pod(name: &str, node: &str) -> String {
    format!("Running {name} registry.test/ccm:v1 {node} {FLAGS}\n")
}

#[test]
fn the_command_runs_in_the_pod_of_the_process_that_holds_the_lease() {
    let three = pod("ccm-a", "cp-1") + &pod("ccm-b", "cp-2") + &pod("ccm-c", "cp-10");
    let ending =
        "Running2026-11-24T03:12:40Z ccm-old registry.test/ccm:v1 cp-1 []\n".to_owned() + &pod("ccm-a", "cp-1");
    let of_rke2 = r#"Running rke2-ccm rancher/rke2-cloud-provider:v1 cp-1 ["--cloud-provider=rke2"]"#;
    let beside_rke2 = format!("{of_rke2}\n{}", pod("ccm-a", "cp-1"));
    let elsewhere = pod("ccm-b", "cp-10.example.com");
    let two_words = "Running ccm-a registry.test/ccm:v1 cp-1 [\"--cloud-provider\",\"vsphere\"]\n".to_owned();
    for (case, holder, pods, expected) in [
        ("a DaemonSet", "cp-1_5a0f", three.clone(), "ccm-a"),
        ("another replica", "cp-10_5a0f", three, "ccm-c"),
        (
            "a static Pod",
            "cp-2_5a0f",
            pod("vsphere-cloud-controller-manager-cp-2", "cp-2"),
            "vsphere-cloud-controller-manager-cp-2",
        ),
        ("a Pod without the network of the host", "ccm-b_5a0f", pod("ccm-a", "w-1") + &pod("ccm-b", "w-2"), "ccm-b"),
        ("a Node with a domain", "cp-1_5a0f", pod("ccm-a", "cp-1.example.com") + &elsewhere, "ccm-a"),
        ("a host with a domain", "cp-1.example.com_5a0f", pod("ccm-a", "cp-1") + &elsewhere, "ccm-a"),
        ("a host name in upper case", "CP-1_5a0f", pod("ccm-a", "cp-1"), "ccm-a"),
        ("a Pod of before that still ends", "cp-1_5a0f", ending, "ccm-a"),
        ("a program of another cloud", "cp-1_5a0f", beside_rke2, "ccm-a"),
        ("a Node whose name is not that of the host", "host-17_5a0f", pod("ccm-a", "cp-1"), "ccm-a"),
        ("a flag in two words", "cp-1_5a0f", two_words, "ccm-a"),
    ] {
        let lease = format!("cloud-controller-manager={holder}");
        let cluster = Cluster::with(&[("lease", &lease), ("pods", &pods)]);
        let output = cluster.run(&["explain", "node", "worker 7", "-o", "json"]);
        assert_eq!(output.status.code(), Some(0), "{case}: {output:?}");
        let program = "/bin/vsphere-cloud-controller-manager";
        let expected = format!("exec -n kube-system {expected} -- {program} explain node worker 7 -o json");
        assert_eq!(cluster.call("exec "), expected, "{case}");
        assert!(cluster.call("get lease ").starts_with("get lease -n kube-system cloud-controller-manager "), "{case}");
    }
}

#[test]
fn output_and_exit_code_of_the_command_pass_unchanged() {
    let bytes = [0x1f, 0x8b, 0x00, 0xff, b'\r', b'\n', b'\n', 0x00];
    for code in ["0", "1", "2", "3", "137"] {
        let cluster = Cluster::with_leader(&[("code", code)]);
        std::fs::write(cluster.path("output"), bytes).unwrap();
        let output = cluster.run(&["bundle"]);
        assert_eq!(output.status.code(), code.parse().ok(), "{output:?}");
        assert_eq!((output.stdout.as_slice(), text(&output.stderr).as_str()), (&bytes[..], "progress\n"), "{code}");
    }
}

/// kubectl has the exit code 1 for its own errors, too.
#[test]
fn a_container_that_cannot_be_reached_is_no_finding() {
    let cluster = Cluster::with_leader(&[("code", "1"), ("version-code", "1")]);
    let output = cluster.run(&["check"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).ends_with("error: the command cannot run in the Pod ccm-a\n"), "{output:?}");
}

#[test]
fn a_pod_that_does_not_exist_is_wrong_usage() {
    let cluster = Cluster::with_leader(&[("code", "1"), ("version-code", "1"), ("missing", "")]);
    let output = cluster.run(&["--pod=ccm-z", "check"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).ends_with("error: there is no Pod ccm-z\n"), "{output:?}");
}

#[test]
fn options_before_the_command_say_which_cluster_and_pod() {
    let cluster = Cluster::with(&[("lease", "other=cp-1_5a0f"), ("pods", &pod("ccm-a", "cp-1"))]);
    let options = ["--context=prod", "-n", "cloud", "--lease", "leases/other", "--selector=app=ccm", "--kubeconfig=/k"];
    let output = cluster.run(&[&options[..], &["status", "--context=x", "-n"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let calls = cluster.calls();
    assert!(calls[0].starts_with("--context=prod get lease -n leases other "), "{calls:?}");
    assert!(calls[1].starts_with("--context=prod get pods -n cloud -l app=ccm "), "{calls:?}");
    let exec = "--context=prod exec -n cloud ccm-a -- /bin/vsphere-cloud-controller-manager status --context=x -n";
    assert_eq!(calls[2..], [exec]);

    let cluster = Cluster::with(&[]);
    assert_eq!(cluster.run(&["--pod=ccm-b", "status"]).status.code(), Some(0));
    assert_eq!(cluster.calls(), ["exec -n kube-system ccm-b -- /bin/vsphere-cloud-controller-manager status"]);
}

#[test]
fn a_text_with_the_name_of_an_option_makes_no_job() {
    let cluster = Cluster::with_leader(&[]);
    let output = cluster.run(&["deletions", "pause", "--for=4h", "--because=until plan --compare is quiet"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let call = cluster.call("exec ");
    assert!(call.ends_with("deletions pause --for=4h --because=until plan --compare is quiet"), "{call}");
}

#[test]
fn errors_name_what_is_missing_and_the_option_that_helps() {
    let upstream = "Running ccm-a registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.36.0 cp-1 []\n";
    let lease = ("lease", "cloud-controller-manager=cp-1_5a0f");
    let elsewhere = pod("ccm-b", "cp-10") + &pod("ccm-c", "cp-100");
    let several = pod("ccm-a", "cp-1") + &pod("ccm-b", "cp-1");
    let of_upstream = TEMPLATE.replace("registry.test/ccm:v1", "registry.k8s.io/cloud-provider-vsphere:v1");
    let template = ("daemonset/vsphere-cloud-controller-manager", of_upstream.as_str());
    let cases: &[(&[&str], Files, &[&str])] = &[
        (&[], &[], &["a command is missing", "--help"]),
        (&["--jobs", "check"], &[], &["unknown option --jobs"]),
        (&["status", "-n"], &[], &["there is no Lease kube-system/cloud-controller-manager", "--lease", "--job"]),
        (&["-n"], &[], &["-n needs a value"]),
        (&["--pod=", "status"], &[], &["--pod needs a value"]),
        (&["status"], &[("refused", "get lease")], &["Forbidden", "the Lease kube-system/cloud-controller-manager"]),
        (&["status"], &[("lease", "cloud-controller-manager=")], &["no process holds the Lease", "15 seconds"]),
        (&["status"], &[lease, ("refused", "get pods")], &["Forbidden", "the Pods in kube-system cannot be listed"]),
        (&["status"], &[lease], &["kube-system has no running Pod of this program", "Set -n, --selector or --pod"]),
        (
            &["status"],
            &[lease, ("pods", &elsewhere)],
            &["cp-1 holds the Lease", "Set --pod to the Pod there, one of: ccm-b ccm-c"],
        ),
        (&["status"], &[lease, ("pods", upstream)], &["no running Pod of this program"]),
        (&["status"], &[lease, ("pods", &several)], &["Set --pod to the Pod there, one of: ccm-a ccm-b"]),
        (
            &["--job", "check"],
            &[],
            &[
                "kube-system has none of: daemonset/vsphere-cloud-controller-manager daemonset/vsphere-cpi ",
                "--workload",
            ],
        ),
        (
            &["--job", "check"],
            &[("refused", "get -n")],
            &["daemonset/vsphere-cloud-controller-manager", "cannot be read"],
        ),
        (
            &["plan", "--compare"],
            &[template],
            &["upstream's image registry.k8s.io/cloud-provider-vsphere:v1", "--image"],
        ),
        (&["--job", "bundle"], &[], &["bundle needs the running process"]),
    ];
    for (arguments, files, parts) in cases {
        let cluster = Cluster::with(files);
        let output = cluster.run(arguments);
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{arguments:?}: {told}");
        for part in *parts {
            assert!(told.contains(part), "{arguments:?} {files:?}: {part} is not in {told}");
        }
        assert_eq!(told.matches("error: ").count(), 1, "{told}");
        let calls = cluster.calls();
        let is_write = |call: &String| ["exec ", "create ", "delete "].iter().any(|verb| call.starts_with(verb));
        assert!(!calls.iter().any(is_write), "{arguments:?}: {calls:?}");
    }
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new("/bin/sh").args([PLUGIN, "status"]).env("PATH", empty.path()).output().unwrap();
    let expected = (Some(2), "error: kubectl is not in PATH\n".to_owned());
    assert_eq!((output.status.code(), text(&output.stderr)), expected);
}

#[test]
fn help_is_the_head_of_the_file() {
    let output = Cluster::with(&[]).run(&["--help"]);
    let help = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{help}");
    assert!(help.starts_with("Run a command of vsphere-cloud-controller-manager in the cluster"), "{help}");
    let lines: Vec<&str> = help.lines().filter(|line| line.trim_start().starts_with('-')).collect();
    let options: Vec<&str> = lines.iter().flat_map(|line| line.split([' ', '=', ','])).collect();
    let script = std::fs::read_to_string(PLUGIN).unwrap();
    // The patterns of the option parser, such as `-n | --namespace) namespace=…`.
    let patterns = script.lines().filter_map(|line| line.trim_start().split_once(") ")).map(|(pattern, _)| pattern);
    let patterns = patterns.filter(|pattern| pattern.starts_with('-') && !pattern.contains(['\'', '=', '*']));
    let parsed: Vec<&str> = patterns.flat_map(|pattern| pattern.split(" | ")).collect();
    assert!(parsed.len() > 10, "{parsed:?}");
    for option in parsed.iter().filter(|option| !["-h", "--help"].contains(option)) {
        assert!(options.contains(option), "{option} is not in {help}");
    }
    assert!(help.ends_with("3 if the command did not run to its end.\n"), "{help}");
}

#[test]
fn commands_without_a_daemon_run_in_a_job_with_the_pod_template() {
    for arguments in [
        &["check", "--preflight", "-o", "json"][..],
        &["check", "--detached"],
        &["plan", "--compare"],
        &["--job", "status"],
        &[
            "-n",
            "cloud",
            "--workload=deployment/own",
            "--image",
            "registry.test/new:v2",
            "check",
            "--preflight",
            "a\"b\\c d",
        ],
    ] {
        let is_own = arguments.contains(&"cloud");
        let cluster = Cluster::with_job("0", &[("deployment/own", TEMPLATE)]);
        let output = cluster.run(arguments);
        let told = (output.status.code(), text(&output.stdout), text(&output.stderr));
        assert_eq!(told, (Some(0), "the report\n".to_owned(), String::new()), "{arguments:?}");
        assert!(cluster.call("logs ").ends_with(" -f pod-of-the-job"), "{:?}", cluster.calls());
        let patch = cluster.call("patch --local ");
        let image = if is_own { "registry.test/new:v2" } else { "registry.test/ccm:v1" };
        assert!(patch.contains(&format!("\"image\": \"{image}\"")), "{patch}");
        let words: Vec<String> = arguments
            .iter()
            .skip_while(|word| !["check", "plan", "status"].contains(word))
            .filter(|word| **word != "--detached")
            .map(|word| format!("{word:?}"))
            .collect();
        let flags = r#""--cloud-provider=vsphere","--cloud-config=/etc/cloud/vsphere.conf""#;
        let expected = format!(r#""args": [{}, "--detached", "--",{flags}]"#, words.join(", "));
        assert!(patch.contains(&expected), "{expected} is not in {patch}");
        assert!(patch.contains(r#""operator": "Exists"},{"key":"a","operator":"Exists"}]"#), "{patch}");
        let job: serde_json::Value = serde_json::from_slice(&std::fs::read(cluster.path("job")).unwrap()).unwrap();
        let namespace = if is_own { "cloud" } else { "kube-system" };
        assert_eq!((&job["kind"], &job["metadata"]["namespace"]), (&"Job".into(), &namespace.into()));
        assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["name"], "ccm");
        cluster.assert_job_is_deleted(&format!("{arguments:?}"));
    }
}

/// Flags of the daemon may be in the command of the container, after the program.
#[test]
fn flags_in_the_command_of_the_template_are_flags_of_the_daemon() {
    for (command, arguments, expected) in [
        (r#"["/bin/ccm","--v=2"]"#, r#"["--a=[1]"]"#, r#""--","--v=2","--a=[1]"]"#),
        (r#"["/bin/ccm"]"#, r#"["--a=b"]"#, r#""--","--a=b"]"#),
        (r#"["/bin/ccm","--v=2"]"#, "", r#""--","--v=2"]"#),
        ("", "", r#""--"]"#),
    ] {
        let template = format!("ccm registry.test/ccm:v1\n{command}\n{arguments}\n\n{{}}\n");
        let cluster = Cluster::with_job("0", &[("daemonset/vsphere-cpi", &template)]);
        assert_eq!(cluster.run(&["--job", "check"]).status.code(), Some(0));
        let patch = cluster.call("patch --local ");
        assert!(patch.contains(expected), "{expected} is not in {patch}");
        assert!(patch.contains(r#"unavailable", "operator": "Exists"}], "containers""#), "{patch}");
    }
}

#[test]
fn the_exit_code_is_that_of_the_container_and_the_job_is_deleted() {
    let cases: &[(&str, &str, Files, i32, &str)] = &[
        ("passed", "0", &[], 0, ""),
        ("a finding", "1", &[], 1, ""),
        ("incomplete", "3", &[], 3, ""),
        ("killed", "137", &[], 137, ""),
        ("already over", "1", &[("state", "Failed")], 1, ""),
        ("the log is refused", "0", &[("refused", "logs -n")], 3, "was not read to its end"),
        ("the Pod is gone", "", &[], 3, "the exit code of the Job is not known"),
        ("the Job is refused", "0", &[("refused", "create -f")], 2, "the Job cannot be created"),
        ("no start", "", &[("state", "Pending ErrImagePull"), ("refused", "logs -n")], 3, "Pending ErrImagePull"),
    ];
    for (case, code, files, expected, part) in cases {
        let cluster = Cluster::with_job(code, files);
        let output = cluster.run(&["check", "--preflight"]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*expected), "{case}: {told}");
        assert!(told.contains(part) && part.is_empty() == told.is_empty(), "{case}: {told}");
        match *case {
            "the Job is refused" => assert!(cluster.call("delete job ").contains("--ignore-not-found")),
            case => cluster.assert_job_is_deleted(case),
        }
    }
}

/// As after Ctrl-C, a closed terminal, and `kill`.
#[test]
fn a_signal_deletes_the_job_at_once() {
    for (shell, signal) in [("sh", "INT"), ("bash", "INT"), ("sh", "TERM"), ("sh", "HUP")] {
        let cluster = Cluster::with_job("0", &[("endless", "")]);
        let mut plugin = cluster
            .command(shell, &["check", "--preflight"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(plugin.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "the report\n");
        let id = plugin.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap().success());
        assert_eq!(plugin.wait().unwrap().code(), Some(130), "{shell} {signal}");
        cluster.assert_job_is_deleted(signal);
        // The end of the output: kubectl does not follow the log any more.
        output.read_to_string(&mut line).unwrap();
        assert_eq!(line, "the report\n");
    }
}

#[test]
fn the_plugin_is_a_short_posix_script_that_reads_no_secret() {
    let script = std::fs::read_to_string(PLUGIN).unwrap();
    assert!(script.starts_with("#!/bin/sh\n"));
    assert!(script.lines().count() < 150, "{} lines", script.lines().count());
    for (number, line) in script.lines().enumerate() {
        assert!(line.chars().count() <= 120, "line {} is too long: {line}", number + 1);
    }
    for shell in [&["sh", "-n"][..], &["bash", "--posix", "-n"]] {
        let checked = Command::new(shell[0]).args(&shell[1..]).arg(PLUGIN).output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{shell:?}: {checked:?}");
    }
    let foreign = [
        "[[ ",
        "<<<",
        "<(",
        ">(",
        "&>",
        "|&",
        "=(",
        "+=",
        ",,}",
        "^^}",
        "pipefail",
        " local ",
        "function ",
        "declare ",
        "source ",
        "echo ",
        "seq ",
        "mapfile",
        "readarray",
        "$RANDOM",
        "$'",
        "eval ",
        "jq ",
    ];
    let code: String = script.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    for word in foreign {
        assert!(!code.contains(word), "{word} is not in POSIX");
    }
    assert!(!code.to_lowercase().contains("secret"), "the plugin reads a Secret");
    let mode = Path::new(PLUGIN).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o111, 0o111, "kubectl runs it as a program");
    assert_shellcheck_is_clean();
}

/// The checks before this one apply also where shellcheck is not installed.
#[allow(clippy::print_stdout, reason = "a missing program is not passed over in silence")]
fn assert_shellcheck_is_clean() {
    match Command::new("shellcheck").args(["--shell=sh", PLUGIN]).output() {
        Ok(output) => assert!(output.status.success(), "{}", text(&output.stdout)),
        Err(error) => println!("shellcheck did not run ({error}): only syntax and forbidden words are checked"),
    }
}

/// A page must not send a reader to a command that the binary does not have.
#[test]
fn commands_of_the_plugin_on_the_pages_exist() {
    let help = text(&super::run(&["--help"]).stdout);
    let (_, commands) = help.split_once("Commands (each has --help):\n").unwrap();
    let commands = commands.split("\n\n").next().unwrap();
    let commands: Vec<&str> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let mut found = 0;
    for (page, content) in pages() {
        let mentions = content.split("kubectl vsphere-ccm ").skip(1);
        for mention in mentions.filter(|mention| !mention.starts_with("--help")) {
            // A backslash continues the line.
            let mut words = mention.split([' ', '`', '\n', ',', '\\']).filter(|word| !word.is_empty());
            let command = words.find(|word| !word.starts_with('-')).unwrap();
            found += 1;
            assert!(command == "COMMAND" || commands.contains(&command), "{page}: {command} is none of {commands:?}");
        }
    }
    assert!(found > 40, "{found}");
}

fn pages() -> Vec<(String, String)> {
    let names = support::pages::pages().into_iter();
    names.map(|name| (name.clone(), support::pages::page(&name))).collect()
}

#[test]
fn each_alert_and_each_group_of_reasons_names_the_command_that_answers() {
    /// About this process alone, which the log and its series show.
    const WITHOUT_COMMAND: [&str; 6] = [
        "VsphereCcmClientCertificateExpires",
        "VsphereCcmEventsDropped",
        "VsphereCcmMemory",
        "VsphereCcmPanics",
        "VsphereCcmQueueSlow",
        "VsphereCcmQueueStuck",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let alerts = std::fs::read_to_string(root.join("docs/alerts.md")).unwrap();
    let sections: Vec<(&str, &str)> = alerts
        .split("\n## ")
        .filter_map(|section| section.split_once('\n'))
        .filter(|(name, _)| name.starts_with("VsphereCcm"))
        .collect();
    assert!(sections.len() > 30, "{}", sections.len());
    for (name, section) in sections {
        let is_named = section.contains("- `kubectl vsphere-ccm ");
        assert_eq!(is_named, !WITHOUT_COMMAND.contains(&name), "{name}");
    }
    let reasons = std::fs::read_to_string(root.join("docs/reasons.md")).unwrap();
    for (group, command) in [
        ("Nodes", "explain node NODE"),
        ("Nodes", "explain deletion NODE"),
        ("Nodes", "explain vcenter SERVER"),
        ("Services", "explain service NAMESPACE/SERVICE"),
        ("Routes", "explain route NODE"),
    ] {
        let (_, section) = reasons.split_once(&format!("\n# {group}\n")).unwrap();
        let head = section.split("\n## ").next().unwrap();
        assert!(head.contains(&format!("kubectl vsphere-ccm {command}")), "{group}: {command} is missing");
    }
}
