//! `check` against a real API server and the simulator.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;
use support::fake_nsx::{FakeNsx, Model};
use support::{KubeletNode, Vcenter, eventually};

use super::{CommandResult, ask, compare_with_page, json, normalised, start_candidate};
use crate::cluster::{Cluster, LIMIT, swapped, uuid};

/// Returns id and subject of each result with this status.
fn with_status(report: &Value, status: &str) -> Vec<(String, String)> {
    let results = report["checks"].as_array().unwrap().iter().filter(|result| result["status"] == status);
    let text = |result: &Value, field: &str| result[field].as_str().unwrap().to_owned();
    results.map(|result| (text(result, "id"), text(result, "subject"))).collect()
}

#[tokio::test]
async fn a_healthy_cluster_passes_and_a_standby_says_what_it_does_not_know() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let leader = start_candidate(&cluster, &vcenter).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &leader).await;
    let waited = ask(&leader, &["check", "--wait", "--quiet", "--timeout=60s"]).await;
    assert_eq!((waited.code, waited.output.as_str()), (Some(0), ""), "{}", waited.messages);
    let (code, report) = json(&leader, &["check"]).await;
    assert_eq!((code, report["result"].as_str()), (Some(0), Some("ok")), "{report:#}");
    assert_eq!((&report["apiVersion"], &report["kind"]), (&"cli.vsphere-ccm.dev/v1".into(), &"CheckReport".into()));
    for status in ["failed", "incomplete", "warning"] {
        assert_eq!(with_status(&report, status), [], "{report:#}");
    }
    let skipped: Vec<String> = with_status(&report, "skipped").into_iter().map(|(id, _)| id).collect();
    assert_eq!(skipped, ["K05", "K07", "C08", "X01", "X02", "X03", "X04", "X05", "X06", "X07"], "{report:#}");
    let screen = ask(&leader, &["check"]).await.output.replace(cluster.pool(), "cloud-controller-manager");
    compare_with_page("check", &normalised(&screen, &vcenter));
    for form in ["text", "json", "yaml"] {
        let CommandResult { output, messages, .. } = ask(&leader, &["check", "-o", form]).await;
        assert!(!output.contains(vcenter.password()) && messages.is_empty(), "{output}{messages}");
    }
    let unknown = ask(&leader, &["check", "--node=nobody"]).await;
    assert_eq!((unknown.code, unknown.output.as_str()), (Some(2), ""), "{}", unknown.messages);
    let unknown = ask(&leader, &["check", "--vcenter=127.0.0.2"]).await;
    let near = format!("vCenter \"127.0.0.2\"; the nearest name is {}:{}\n", vcenter.host(), vcenter.port());
    assert!(unknown.code == Some(2) && unknown.messages.ends_with(&near), "{}", unknown.messages);

    let standby = start_candidate(&cluster, &vcenter).await;
    eventually("a standby does not know the deletions", LIMIT, async || {
        let (code, report) = json(&standby, &["check"]).await;
        let incomplete = with_status(&report, "incomplete");
        match (code, report["findLeader"].is_string(), incomplete.as_slice()) {
            (Some(3), true, [(id, _)]) if id == "D01" => Ok(()),
            _ => Err(format!("{code:?} {report:#}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_broken_cluster_fails_with_the_ids_of_the_causes() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let section = vcenter.ini_section("vc-1", "dc-1");
    let config = cluster.folder().join("check.conf");
    std::fs::write(&config, format!("{}colour = blue\n", Cluster::zoned(std::slice::from_ref(&section)))).unwrap();
    let mut daemon = cluster.start_on(&config, &[]);
    daemon.wait_for_line(" started", LIMIT).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    // No VM has the UUID of this Node.
    cluster.register(3..4).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let mut untainted = cluster.kubelet(1).build();
    untainted.spec.get_or_insert_default().taints = None;
    let mut foreign = cluster.marked(KubeletNode::new(&cluster.name(2), &swapped(&uuid(2)))).build();
    foreign.spec.get_or_insert_default().provider_id = Some("k3s://foreign".to_owned());
    for node in [&untainted, &foreign] {
        nodes.create(&PostParams::default(), node).await.unwrap();
    }
    let expected = [("K09", 1), ("K10", 2), ("V01", 3)]
        .map(|(id, number)| (id.to_owned(), format!("Node {}", cluster.name(number))));
    eventually("the causes fail", LIMIT, async || {
        let (code, report) = json(&daemon, &["check"]).await;
        match code == Some(1) && with_status(&report, "failed") == expected {
            true => Ok(()),
            false => Err(format!("{code:?} {report:#}")),
        }
    })
    .await;
    let (_, report) = json(&daemon, &["check"]).await;
    assert_eq!(with_status(&report, "warning"), [("C03".to_owned(), String::new())], "{report:#}");
    let (code, alone) = json(&daemon, &["check", &format!("--node={}", cluster.name(0))]).await;
    assert_eq!((code, with_status(&alone, "failed")), (Some(0), Vec::new()), "{alone:#}");
    let text = ask(&daemon, &["check"]).await.output;
    let name = cluster.name(3);
    let is_told = text.contains(&format!("  × V01 Node {name}: ")) && text.contains("docs/checks.md#v01");
    assert!(is_told && text.contains("\n          govc find / -type m -config.uuid "), "{text}");

    support::replace_file(&config, &format!("{section}\n[Global]\nport = many\n"));
    drop(vcenter);
    let causes = ["C01", "C02", "N02"];
    eventually("the refused file and the vCenter that is down fail", LIMIT, async || {
        let (code, report) = json(&daemon, &["check", "--node", &cluster.name(0)]).await;
        let failed: Vec<String> = with_status(&report, "failed").into_iter().map(|(id, _)| id).collect();
        let skipped: Vec<String> = with_status(&report, "skipped").into_iter().map(|(id, _)| id).collect();
        let are_skipped =
            ["A03", "P04", "V01", "V05", "V06", "Z02"].iter().all(|id| skipped.contains(&(*id).to_owned()));
        match code == Some(1) && failed == causes && are_skipped {
            true => Ok(()),
            false => Err(format!("{code:?} {report:#}")),
        }
    })
    .await;
}

#[tokio::test]
async fn nsx_passes_and_a_rejected_login_and_the_default_name_are_found() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let nsx = FakeNsx::start(Model::small().user("ccm", "Correct-Horse-1")).await;
    let ca_file = cluster.folder().join("check-nsx-ca.pem");
    std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
    let config = |password: &str| {
        let section = vcenter.ini_section("vc-1", "dc-1");
        let (host, ca_file) = (nsx.address(), ca_file.display());
        let login = format!("[NSXT]\nhost = {host}\nca-file = {ca_file}\nuser = ccm\npassword = {password}\n");
        format!("{}\n{login}[Route]\nrouter-path = /infra/tier-1s/t1\n", Cluster::zoned(&[section]))
    };
    let name = format!("--cluster-name={}", cluster.pool());
    let cidr = "--cluster-cidr=10.244.0.0/16";
    let mut daemon = cluster.start(&config("Correct-Horse-1"), &[&name, cidr]);
    daemon.wait_for_line(" started", LIMIT).await;
    eventually("NSX passes", LIMIT, async || {
        let (code, report) = json(&daemon, &["check"]).await;
        let passed: Vec<String> = with_status(&report, "passed").into_iter().map(|(id, _)| id).collect();
        let have_passed =
            ["X01", "X02", "X03", "X04", "X06", "X07"].iter().all(|id| passed.contains(&(*id).to_owned()));
        match code == Some(0) && have_passed {
            true => Ok(()),
            false => Err(format!("{code:?} {report:#}")),
        }
    })
    .await;
    drop(daemon);

    let mut daemon = cluster.start(&config("Wrong-Horse-1"), &[cidr]);
    daemon.wait_for_line(" started", LIMIT).await;
    eventually("the login is rejected", LIMIT, async || {
        let (code, report) = json(&daemon, &["check"]).await;
        let has = |status: &str, id: &str| with_status(&report, status).iter().any(|(found, _)| found == id);
        match code == Some(1) && has("failed", "X02") && has("warning", "X06") && has("skipped", "X01") {
            true => Ok(()),
            false => Err(format!("{code:?} {report:#}")),
        }
    })
    .await;
}
