//! `explain --fresh` against a running daemon whose watch of vCenter is held up.

use support::{Counts, Daemon, Rule, Vcenter, eventually};

use super::{CommandResult, ask, compare_with_page, json, normalised, start_candidate};
use crate::cluster::{Cluster, LIMIT, ip};

/// The call with which the daemon waits for changes.
const WATCH: &str = "WaitForUpdatesEx";
/// The call that reads the properties of an object.
const READ: &str = "RetrievePropertiesEx";

/// Returns the number of calls to vCenter that the report has.
fn printed_calls(report: &serde_json::Value, server: &str) -> u64 {
    let calls = report["fresh"]["calls"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    let of_server = calls.iter().find(|calls| calls["server"] == format!("vCenter {server}"));
    of_server.map_or(0, |calls| calls["calls"].as_u64().unwrap())
}

/// Holds up the watch: the waits that begin from now on get no answer, and a change of the address ends the one in
/// flight.
async fn hold_up_watch(vcenter: &Vcenter, vm: &str, address: &str) {
    vcenter.add_rule(&Rule::hang(WATCH)).await;
    let before = vcenter.counts().await.of(WATCH);
    vcenter.set_ip(vm, address).await;
    eventually("the next wait hangs", LIMIT, async || match vcenter.counts().await.of(WATCH) > before {
        true => Ok(()),
        false => Err("no wait yet"),
    })
    .await;
}

/// Asks until the command has this exit code and text.
async fn wait_for(daemon: &Daemon, arguments: &[&str], code: i32, text: &str) -> String {
    eventually(&format!("{arguments:?}: {code}, {text}"), LIMIT, async || {
        let CommandResult { code: found, output, messages } = ask(daemon, arguments).await;
        match found == Some(code) && output.contains(text) {
            true => Ok(output),
            false => Err(format!("{found:?} {output}{messages}")),
        }
    })
    .await
}

#[tokio::test]
async fn a_change_that_the_watch_has_not_reported_is_shown_with_the_number_of_calls() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let leader = start_candidate(&cluster, &vcenter).await;
    cluster.register(0..2).await;
    cluster.wait_until_initialized(0..2, &leader).await;
    let [name, other] = [cluster.name(0), cluster.name(1)];
    let server = format!("{}:{}", vcenter.host(), vcenter.port());

    // The object that the tags are read of may still be new.
    let node = ["explain", "node", &name, "--fresh"];
    let as_known = wait_for(&leader, &node, 0, "Read again\n").await;
    assert!(as_known.contains(&format!("  Node              {name}: as known\n")), "{as_known}");
    assert!(as_known.contains("\n  tags  ") && as_known.contains("1 call to the API server"), "{as_known}");
    for subject in [&["vm", &*other][..], &["ip", &ip(1)], &["vcenter", &server], &["deletion", &other]] {
        let arguments = [&["explain"][..], subject, &["--fresh"]].concat();
        wait_for(&leader, &arguments, 0, "read again: ").await;
    }

    hold_up_watch(&vcenter, &name, "10.1.7.1").await;
    wait_for(&leader, &["explain", "node", &name], 0, "10.1.7.1").await;
    vcenter.set_ip(&name, "10.1.7.2").await;
    // The daemon may make calls of its own at the same time, so the counts agree in one of the attempts.
    let report = eventually("the calls that are printed are those that vCenter counts", LIMIT, async || {
        vcenter.reset_counts().await;
        let (code, report) = json(&leader, &node).await;
        let counts: Counts = vcenter.counts().await;
        let printed = printed_calls(&report, &server);
        match code == Some(1) && printed >= 3 && printed == u64::from(counts.total - counts.of(WATCH)) {
            true if (counts.soap_logins, counts.rest_logins) == (0, 0) => Ok(report),
            _ => Err(format!("{code:?} {printed} {counts:?} {report:#}")),
        }
    })
    .await;
    assert_eq!((&report["state"], &report["result"]), (&"settled".into(), &"findings".into()), "{report:#}");
    let objects = report["fresh"]["objects"].as_array().unwrap();
    let differing: Vec<_> = objects.iter().filter(|object| object["differences"][0].is_object()).collect();
    assert_eq!(differing.len(), 1, "{report:#}");
    let difference = &differing[0]["differences"][0];
    assert_eq!(difference["field"], "addresses of the guest", "{report:#}");
    assert!(difference["read"].as_str().unwrap().starts_with("10.1.7.2 on "), "{report:#}");
    assert!(difference["known"].as_str().unwrap().starts_with("10.1.7.1 on "), "{report:#}");
    let known = ask(&leader, &["explain", "node", &name]).await;
    assert!(known.code == Some(0) && !known.output.contains("10.1.7.2"), "{}", known.output);

    let screen = ask(&leader, &["explain", "vm", &name, "--fresh"]).await.output;
    let shown = screen.replace(cluster.pool(), "worker").replace("10.1.7.", "10.1.0.");
    compare_with_page("explain SUBJECT NAME --fresh", &normalised(&shown, &vcenter));

    vcenter.clear_rules().await;
    wait_for(&leader, &["explain", "vm", &name, "--fresh"], 0, "as known").await;
    for output in [as_known, screen, report.to_string()] {
        assert!(!output.contains(vcenter.password()), "{output}");
    }
}

#[tokio::test]
async fn at_most_two_read_again_at_the_same_time_and_what_is_known_is_shown_without_an_answer() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let leader = start_candidate(&cluster, &vcenter).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &leader).await;
    let name = cluster.name(0);
    let vm = ["explain", "vm", &name, "--fresh"];
    wait_for(&leader, &vm, 0, "as known").await;
    let backs = format!("backs Node {name}");

    vcenter.add_rule(&Rule::hang(READ)).await;
    let late = ask(&leader, &[&vm[..], &["--timeout=3s"]].concat()).await;
    assert!(late.code == Some(3) && late.output.contains(&backs), "{}{}", late.output, late.messages);
    assert!(
        late.output.contains("not everything was read again: the answers took longer than 2.4 s"),
        "{}",
        late.output
    );

    vcenter.reset_counts().await;
    let third = async {
        eventually("two commands read", LIMIT, async || match vcenter.counts().await.of(READ) {
            0 | 1 => Err("not yet"),
            _ => Ok(()),
        })
        .await;
        let busy = ask(&leader, &vm).await;
        vcenter.clear_rules_of(READ).await;
        busy
    };
    let (first, second, busy) = tokio::join!(ask(&leader, &vm), ask(&leader, &vm), third);
    assert!(busy.code == Some(3) && busy.output.contains(&backs), "{}{}", busy.output, busy.messages);
    let because = "not everything was read again: two other commands make calls at the moment";
    assert!(busy.output.contains("read again: no call\n") && busy.output.contains(because), "{}", busy.output);
    assert_eq!((first.code, second.code), (Some(0), Some(0)), "{}{}", first.output, second.output);

    vcenter.stop_listening().await;
    let is_down = ["explain", "node", &name, "--fresh", "--timeout=20s"];
    let down = wait_for(&leader, &is_down, 3, "read again: 1 call to the API server\n").await;
    assert!(down.contains(&format!("  Node              {name}: as known\n")), "{down}");
    assert!(down.contains(": not read: ") && down.contains("\nLook-up\n"), "{down}");
    let refused = ask(&leader, &["explain", "node", &name, "--fresh", "--detached"]).await;
    assert_eq!((refused.code, refused.output.as_str()), (Some(2), ""), "{}", refused.messages);
}
