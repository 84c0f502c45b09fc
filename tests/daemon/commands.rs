//! Commands that ask a running daemon over its local socket or, detached, none.

pub mod bundle;
mod check;
mod deletion;
mod deletions;
mod fresh;
mod node;
pub mod observer;
mod plan;
mod rehearsal;
mod remedy;
mod route;
mod screen;
mod service;
mod socket;

use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use support::{Daemon, Vcenter, eventually};
use tokio::process::Command;

use crate::cluster::{BINARY, Cluster, LIMIT};

/// The page with the screens of the commands.
const PAGE: &str = "docs/cli.md";

/// The end of a command.
pub struct CommandResult {
    pub code: Option<i32>,
    pub output: String,
    pub messages: String,
}

/// Runs a command against this daemon, because other daemons run in the same PID namespace.
pub async fn ask(daemon: &Daemon, arguments: &[&str]) -> CommandResult {
    ask_process(daemon.pid().unwrap(), arguments).await
}

/// Runs a command against the daemon with this process id, which may have ended.
pub async fn ask_process(process: u32, arguments: &[&str]) -> CommandResult {
    let mut command = Command::new(BINARY);
    let process = format!("--pid={process}");
    let (name, rest) = arguments.split_first().unwrap();
    command.arg(name).arg(process).args(rest).env_clear();
    let output = support::command::output(command, "").await;
    CommandResult {
        code: output.status.code(),
        output: String::from_utf8(output.stdout).unwrap(),
        messages: String::from_utf8(output.stderr).unwrap(),
    }
}

pub async fn json(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, Value) {
    let CommandResult { code, output, messages } = ask(daemon, &[arguments, &["-o", "json"]].concat()).await;
    (code, serde_json::from_str(&output).unwrap_or_else(|error| panic!("{error}: {output}{messages}")))
}

/// Starts a candidate for the Lease of this cluster.
pub async fn start_candidate(cluster: &Cluster, vcenter: &Vcenter) -> Daemon {
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let mut daemon = cluster.start_for(vcenter, &["--leader-elect=true", &lease]).await;
    daemon.wait_for_line(" started", LIMIT).await;
    daemon
}

/// Creates a namespace for the Leases of a test. All replicas share what the Leases have about deletions.
pub async fn lease_namespace(cluster: &Cluster) -> String {
    let name = cluster.pool();
    let namespace: Namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap();
    Api::all(cluster.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    name.to_owned()
}

/// Starts a candidate whose Leases are in this namespace.
pub async fn start_candidate_in(namespace: &str, cluster: &Cluster, vcenter: &Vcenter, more: &[&str]) -> Daemon {
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let namespace = format!("--leader-elect-resource-namespace={namespace}");
    let flags = [&["--leader-elect=true", &*lease, &*namespace], more].concat();
    let mut daemon = cluster.start_for(vcenter, &flags).await;
    daemon.wait_for_line(" started", LIMIT).await;
    daemon
}

#[tokio::test]
async fn status_shows_the_leader_a_node_without_a_vm_and_a_standby() {
    let cluster = Cluster::new().await;
    let namespace = lease_namespace(&cluster).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let leader = start_candidate_in(&namespace, &cluster, &vcenter, &[]).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &leader).await;

    let waited = ask(&leader, &["status", "--wait", "--quiet", "--timeout=60s"]).await;
    assert_eq!((waited.code, waited.output.as_str()), (Some(0), ""), "{}", waited.messages);
    let (code, status) = json(&leader, &["status"]).await;
    let server = format!("{}:{}", vcenter.host(), vcenter.port());
    assert_eq!((code, status["result"].as_str()), (Some(0), Some("ok")), "{status:#}");
    assert_eq!((&status["apiVersion"], &status["kind"]), (&"cli.vsphere-ccm.dev/v1".into(), &"Status".into()));
    assert_eq!((&status["leads"], &status["election"]["name"]), (&true.into(), &cluster.pool().into()), "{status:#}");
    assert_eq!(status["configuration"]["generation"], 1, "{status:#}");
    let of_vcenter = &status["vcenters"][0];
    assert_eq!((&of_vcenter["server"], &of_vcenter["virtualMachines"]), (&server.into(), &3.into()), "{status:#}");
    assert_eq!(of_vcenter["inventoryAgeSeconds"], 0, "{status:#}");
    assert!(of_vcenter["tagsAgeSeconds"].is_u64() && of_vcenter["certificateExpiry"].is_string(), "{status:#}");
    let nodes = &status["nodes"];
    assert_eq!([&nodes["nodes"], &nodes["settled"], &nodes["waiting"]], [3, 3, 0], "{status:#}");
    assert_eq!([&status["deletion"]["mode"], &status["election"]["namespace"]], ["enforce", namespace.as_str()]);
    let screen = ask(&leader, &["status"]).await.output;
    compare_with_page("status", &normalised(&screen, &vcenter));
    let explained = ask(&leader, &["explain", "vcenter", vcenter.host()]).await;
    assert_eq!(explained.code, Some(0), "{}{}", explained.output, explained.messages);
    compare_with_page("explain vcenter SERVER", &normalised(&explained.output, &vcenter));
    let unknown = ask(&leader, &["explain", "vcenter", "127.0.0.2"]).await;
    assert_eq!((unknown.code, unknown.output.as_str()), (Some(2), ""));
    let near = format!("no vCenter \"127.0.0.2\"; the nearest name is {}:{}\n", vcenter.host(), vcenter.port());
    assert!(unknown.messages.ends_with(&near), "{}", unknown.messages);
    let yaml = ask(&leader, &["status", "-o", "yaml"]).await;
    assert!(yaml.output.lines().any(|line| line == "kind: Status"), "{}", yaml.output);

    cluster.register(3..4).await;
    let name = cluster.name(3);
    eventually("the Node without a VM is held", LIMIT, async || {
        let CommandResult { code, output, .. } = ask(&leader, &["status"]).await;
        let line = format!("nodes 4   settled 3   held 1: VMNotFound {name} (");
        match code == Some(1) && output.lines().any(|shown| shown.starts_with(&line)) {
            true => Ok(()),
            false => Err(format!("{code:?}, {output}")),
        }
    })
    .await;
    let settled = cluster.name(0);
    let selected = ask(&leader, &["status", "--wait", "--timeout=60s", &format!("--node={settled}")]).await;
    assert_eq!(selected.code, Some(0), "{}", selected.output);
    assert!(selected.output.contains(&format!("\nNode {settled}   settled\n")), "{}", selected.output);
    let limited = ask(&leader, &["status", "--wait", "--timeout=3s"]).await;
    assert!(limited.code == Some(1) && limited.output.contains(&name), "{:?} {}", limited.code, limited.output);
    assert_eq!(limited.messages, "waiting for the process, at most 3 s\n");

    let standby = start_candidate_in(&namespace, &cluster, &vcenter, &[]).await;
    eventually("a standby says so", LIMIT, async || {
        let CommandResult { code, output, .. } = ask(&standby, &["status"]).await;
        let is_told = output.starts_with("standby ") && output.contains("   leader ") && output.contains("kubectl");
        match code == Some(3) && is_told && !output.contains("\nnodes ") && !output.contains("idle") {
            true => Ok(()),
            false => Err(format!("{code:?}, {output}")),
        }
    })
    .await;
    for forms in [&["-o", "text"], &["-o", "json"], &["-o", "yaml"]] {
        for daemon in [&leader, &standby] {
            let CommandResult { output, messages, .. } = ask(daemon, &[&["status"][..], forms].concat()).await;
            assert!(!output.contains(vcenter.password()) && messages.is_empty(), "{output}{messages}");
        }
    }
}

#[tokio::test]
async fn status_shows_a_vcenter_that_is_down_and_a_refused_file() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let config = cluster.folder().join("status.conf");
    let section = vcenter.ini_section("vc-1", "dc-1");
    std::fs::write(&config, &section).unwrap();
    let mut daemon = cluster.start_on(&config, &[]);
    daemon.wait_for_line(" started", LIMIT).await;
    let first = ask(&daemon, &["status", "--wait", "--timeout=60s"]).await;
    assert!(first.output.contains("leader ") && first.output.contains("without an election"), "{}", first.output);

    support::replace_file(&config, &format!("{section}\n[Global]\nport = many\n"));
    let refused = "configuration: the changed vsphere.conf is refused, the one before is in use: ";
    let server = format!("{}:{}", vcenter.host(), vcenter.port());
    drop(vcenter);
    eventually("the vCenter and the file are findings", LIMIT, async || {
        let CommandResult { code, output, .. } = ask(&daemon, &["status"]).await;
        let is_down = output.contains(&format!("vCenter {server}: not current: "));
        match code == Some(1) && is_down && output.contains(refused) {
            true => Ok(()),
            false => Err(format!("{code:?}, {output}")),
        }
    })
    .await;
    let explained = ask(&daemon, &["explain", "vcenter", &server]).await;
    assert_eq!(explained.code, Some(1), "{}", explained.output);
    assert!(explained.output.starts_with(&format!("vCenter {server}\n  not current: ")), "{}", explained.output);
    let missing = ask(&daemon, &["explain", "vm", "elsewhere"]).await;
    let summary = format!("VM elsewhere   not known: the inventory of {server} is not current\n");
    assert_eq!((missing.code, missing.output.contains(&summary)), (Some(3), true), "{}", missing.output);
    for selection in ["--vcenter=elsewhere", "--node=elsewhere"] {
        let unknown = ask(&daemon, &["status", selection, "--wait"]).await;
        assert_eq!((unknown.code, unknown.output.as_str()), (Some(2), ""), "{selection}");
        assert!(
            unknown.messages.contains("knows no ") && unknown.messages.contains("elsewhere"),
            "{}",
            unknown.messages
        );
    }
}

#[tokio::test]
async fn without_a_process_there_is_nothing_to_ask() {
    let mut command = Command::new(BINARY);
    // No process has this id: it is above the largest one.
    command.args(["status", "--pid=2000000000"]);
    let output = support::command::output(command, "").await;
    let messages = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), b"".as_slice()), "{messages}");
    assert!(messages.contains("no running process was found") && messages.contains("kubectl"), "{messages}");
    assert!(messages.contains("--detached"), "{messages}");
}

/// Replaces what differs between two runs: names, times and ages.
pub fn normalised(screen: &str, vcenter: &Vcenter) -> String {
    let server = format!("{}:{}", vcenter.host(), vcenter.port());
    let screen = screen.replace(&server, "vc.example.com:443");
    let lines: Vec<String> = screen.lines().map(normalised_line).collect();
    lines.join("\n")
}

pub fn normalised_line(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut normalised: Vec<String> = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let unit = words.get(at + 1).filter(|unit| is_duration_unit(unit.trim_end_matches([',', ':'])));
        let before = normalised.last().map(String::as_str);
        match (unit, before) {
            // The second unit of a duration.
            (Some(unit), Some(before)) if is_number(word) && is_duration_unit(before) => {
                let end = unit.trim_start_matches(|char: char| char.is_ascii_alphabetic());
                normalised.last_mut().unwrap().push_str(end);
                at += 2;
            }
            (Some(unit), _) if is_number(word) => {
                normalised.extend(["7".to_owned(), (*unit).to_owned()]);
                at += 2;
            }
            (_, Some("leader")) => {
                normalised.push("cp-1".to_owned());
                at += 1;
            }
            _ => {
                let is_time = word.ends_with('Z') && word.matches(':').count() == 2;
                let shown = match word.len() {
                    9 if is_time => "03:12:40Z",
                    20 if is_time => "2026-11-24T03:12:40Z",
                    _ => word,
                };
                normalised.push(shown.to_owned());
                at += 1;
            }
        }
    }
    normalised.join(" ")
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|char| char.is_ascii_digit())
}

fn is_duration_unit(word: &str) -> bool {
    ["s", "m", "h", "d"].contains(&word)
}

/// Removes the section with the last decisions, whose number depends on what the daemon found first.
fn without_history(screen: &str) -> String {
    screen.split("\n\nHistory").next().unwrap_or_default().to_owned()
}

/// Compares a screen with the first text block below the heading of its command. `UPDATE_GOLDEN=1` writes the block.
pub fn compare_with_page(command: &str, screen: &str) {
    let screen = &without_history(screen);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(&format!("\n## `{command}`\n")).unwrap();
    let (head, block) = rest.split_once("```text\n").unwrap();
    let (shown, after) = block.split_once("\n```\n").unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let page = format!("{before}\n## `{command}`\n{head}```text\n{screen}\n```\n{after}");
        return std::fs::write(&path, page).unwrap();
    }
    assert_eq!(screen, shown, "if this is meant, UPDATE_GOLDEN=1 cargo test --test daemon commands writes {PAGE}");
}

#[test]
fn a_screen_of_the_page_has_no_time_of_its_run() {
    assert_eq!(normalised_line("held for 6 m 12 s: X"), "held for 7 m: X");
    let line = "leader host-9 for 3 d 4 h, this process   session 41 s   read 01:02:03Z   12 VMs   expires 2025-01-02T03:04:05Z";
    let expected =
        "leader cp-1 for 7 d, this process   session 7 s   read 03:12:40Z   12 VMs   expires 2026-11-24T03:12:40Z";
    assert_eq!(normalised_line(line), expected);
}
