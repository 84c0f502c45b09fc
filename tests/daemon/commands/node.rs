//! `explain node`, `explain vm` and `explain ip` against a running daemon.

use super::{CommandResult, ask, compare_with_page, json, normalised, start_candidate};
use crate::cluster::{Cluster, LIMIT, ip, swapped, uuid};
use serde_json::Value;
use support::{Object, Vcenter, eventually};

/// Replaces the name of the cluster and what differs between two runs.
fn screen_of(output: &str, cluster: &Cluster, vcenter: &Vcenter) -> String {
    let output = output.replace(cluster.pool(), "worker").replace(vcenter.instance_uuid(), "VCENTER");
    let lines = normalised(&output, vcenter);
    let attempt = |line: &str| match line.starts_with("  reconcile ") {
        true => "  reconcile         in 7 s, after 3 failures".to_owned(),
        false => line.to_owned(),
    };
    lines.lines().map(attempt).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_node_without_a_zone_its_vm_and_its_address_are_explained() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    vcenter.detach_tag("k8s-zone", "zone-a", &Object::host("host-1")).await;
    let leader = start_candidate(&cluster, &vcenter).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(1..3, &leader).await;
    let [held, settled] = [cluster.name(0), cluster.name(1)];

    let screen = eventually("the Node is held and nothing is left to write", LIMIT, async || {
        let CommandResult { code, output, messages } = ask(&leader, &["explain", "node", &held]).await;
        let parts =
            [": NoZoneTags\n", "Written next\n                    nothing\n", "reconcile         in ", " failure"];
        let is_held = parts.iter().all(|part| output.contains(part));
        if code == Some(1) && is_held { Ok(output) } else { Err(format!("{code:?} {output}{messages}")) }
    })
    .await;
    assert!(screen.contains("govc tags.attach -c k8s-zone ZONE /dc-1/host/"), "{screen}");
    compare_with_page("explain node NAME", &screen_of(&screen, &cluster, &vcenter));

    let (code, report) = json(&leader, &["explain", "node", &settled]).await;
    assert_eq!((code, report["summary"].as_str()), (Some(0), Some("initialized, up to date")), "{report:#}");
    let facts = |title: &str| {
        let sections = report["sections"].as_array().unwrap();
        sections.iter().find(|section| section["title"] == title).map(|section| section["facts"].clone()).unwrap()
    };
    let found_by = facts("Look-up")[0]["text"].as_str().unwrap().to_owned();
    assert!(found_by.contains("systemUUID") && found_by.contains("byte order of the guest"), "{found_by}");
    assert_eq!(facts("Look-up")[2]["text"], swapped(&uuid(1)).as_str(), "{report:#}");
    let chosen = facts("Addresses")[0]["text"].as_str().unwrap().to_owned();
    let rule = ": InternalIP and ExternalIP, usable, and no rule names an address";
    assert!(chosen.starts_with(&ip(1)) && chosen.ends_with(rule), "{chosen}");
    assert_eq!(facts("Written next")[0]["text"], "nothing", "{report:#}");

    let by_name = ask(&leader, &["explain", "vm", &settled]).await;
    assert_eq!(by_name.code, Some(0), "{}{}", by_name.output, by_name.messages);
    let id = vcenter.object_id(&Object::vm(&settled)).await;
    let by_id = ask(&leader, &["explain", "vm", id.rsplit(':').next().unwrap()]).await;
    assert_eq!(by_id.code, Some(0), "{}{}", by_id.output, by_id.messages);
    compare_with_page("explain vm ID|NAME", &screen_of(&by_name.output, &cluster, &vcenter));
    let by_ip = ask(&leader, &["explain", "ip", &ip(1)]).await;
    assert_eq!(by_ip.code, Some(0), "{}{}", by_ip.output, by_ip.messages);
    compare_with_page("explain ip ADDRESS", &screen_of(&by_ip.output, &cluster, &vcenter));

    let misspelt = settled.replace("pool", "pol");
    for (subject, name) in [("node", misspelt.as_str()), ("vm", &misspelt), ("ip", "10.1.0.99")] {
        let unknown = ask(&leader, &["explain", subject, name]).await;
        assert_eq!((unknown.code, unknown.output.as_str()), (Some(2), ""), "{subject}: {}", unknown.messages);
        assert!(unknown.messages.contains("the nearest names are "), "{subject}: {}", unknown.messages);
    }

    cluster.register(3..4).await;
    let lost = cluster.name(3);
    let found = format!("govc find / -type m -config.uuid {}; govc find / -type m -config.uuid ", swapped(&uuid(3)));
    eventually("a Node without a VM has the search as its remedy", LIMIT, async || {
        let (code, report) = json(&leader, &["explain", "node", &lost]).await;
        let facts = report["sections"][0]["facts"].as_array().cloned().unwrap_or_default();
        let is_fix = |fact: &Value| fact["label"] == "fix" && fact["text"].as_str().unwrap().contains(&found);
        let has_reason = report["summary"].as_str().is_some_and(|summary| summary.ends_with(": VMNotFound"));
        if code == Some(1) && has_reason && facts.iter().any(is_fix) { Ok(()) } else { Err(format!("{report:#}")) }
    })
    .await;

    let standby = start_candidate(&cluster, &vcenter).await;
    let of_standby = ask(&standby, &["explain", "node", &settled]).await;
    assert_eq!(of_standby.code, Some(3), "{}{}", of_standby.output, of_standby.messages);
    assert!(of_standby.output.contains(" does not lead: it shows what a standby knows\n"), "{}", of_standby.output);
    let finds_leader = "\nfind the Pod of the leader with\n  kubectl -n kube-system get ";
    assert!(of_standby.output.contains(finds_leader), "{}", of_standby.output);
    for output in [&screen, &by_name.output, &by_ip.output, &of_standby.output] {
        assert!(!output.contains(vcenter.password()), "{output}");
    }

    vcenter.attach_tag("k8s-zone", "zone-a", &Object::host("host-1")).await;
    vcenter.set_ip(&cluster.name(2), &ip(1)).await;
    eventually("two Nodes have one address", LIMIT, async || {
        let CommandResult { code, output, .. } = ask(&leader, &["explain", "ip", &ip(1)]).await;
        let is_shared = output.contains("several Nodes have it: ");
        if code == Some(1) && is_shared { Ok(()) } else { Err(format!("{code:?} {output}")) }
    })
    .await;
}
