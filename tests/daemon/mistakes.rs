//! Mistakes of an operator: the log lines for each, their number, and the reaction of the process.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use support::{Daemon, Vcenter, eventually};

use crate::cluster::{ANSWERS, Cluster, LIMIT, until_it_answers, until_passed};

const WRONG_PASSWORD: &str = "not-the-password-31";
/// Period over which the calls after a wrong password are counted.
const WATCHED: Duration = Duration::from_secs(30);

/// One `vsphere.conf` has all three mistakes, and a correct vCenter that works.
#[tokio::test]
async fn a_wrong_password_a_wrong_thumbprint_and_a_refused_connection_are_each_told_once_and_clearly() {
    let cluster = Cluster::new().await;
    let (some, none) = (cluster.scenario(0..2), cluster.scenario(0..0));
    let (right, password, thumbprint, refused) =
        tokio::join!(Vcenter::start(&some), Vcenter::start(&none), Vcenter::start(&none), Vcenter::start(&none));
    refused.stop_listening().await;
    let wrong = "AA:".repeat(19) + "AA";
    let sections = [
        right.ini_section("right", "dc-1"),
        password.ini_section("wrong-password", "dc-1").replace(password.password(), WRONG_PASSWORD),
        thumbprint.ini_section("wrong-thumbprint", "dc-1").replace(
            &format!("ca-file = \"{}\"", thumbprint.ca_file().display()),
            &format!("thumbprint = \"{wrong}\""),
        ),
        refused.ini_section("down", "dc-1"),
    ];
    let started = Instant::now();
    let mut daemon = cluster.start(&Cluster::zoned(&sections), &["-v=0"]);
    daemon.wait_for_line(ANSWERS, LIMIT).await;
    cluster.register(0..2).await;
    cluster.wait_until_initialized(0..2, &daemon).await;
    until_passed(started, WATCHED).await;

    let told = only_line(&daemon, password.port());
    println!("{told}");
    for part in
        ["login rejected by", password.user(), "wrong-password", "wrong user or password, or the account is locked"]
    {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    let logins = password.counts().await;
    println!("a wrong password cost {} logins in {WATCHED:?}", logins.of("Login"));
    assert!((1..=3).contains(&logins.of("Login")), "{logins:?}");
    assert_eq!(logins.of("REST:session-login"), 0, "{logins:?}");

    let told = only_line(&daemon, thumbprint.port());
    println!("{told}");
    let key = "[VirtualCenter \\\"wrong-thumbprint\\\"]";
    for part in ["thumbprint is not the configured", &wrong, "presented", thumbprint.sha1_thumbprint(), key] {
        assert!(told.to_uppercase().contains(&part.to_uppercase()), "{part} is missing in {told}");
    }
    assert_eq!(thumbprint.counts().await.total, 0, "nothing is sent to a server that is not trusted");

    let told = only_line(&daemon, refused.port());
    println!("{told}");
    for part in ["Connection refused", "expected is a vCenter Server", "[VirtualCenter \\\"down\\\"]", "cloud config"] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }

    assert!(daemon.ended().is_none(), "the process keeps running");
    assert!(daemon.output().find(WRONG_PASSWORD).is_none());
    refused.resume_listening().await;
    until_it_answers(&daemon, &format!("127.0.0.1:{}", refused.port())).await;
}

/// The usual first start: the configuration lacks the private authority, and the Nodes of a cluster wait.
#[tokio::test]
async fn a_certificate_of_a_private_authority_and_100_nodes_that_wait_make_few_lines() {
    const NODES: usize = 100;
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..0)).await;
    let trust = format!("ca-file = \"{}\"\n", vcenter.ca_file().display());
    let section = vcenter.ini_section("private", "dc-1");
    assert!(section.contains(&trust), "{section}");
    cluster.register(0..NODES).await;
    let daemon = cluster.start(&Cluster::zoned(&[section.replace(&trust, "")]), &["-v=0"]);
    // Each Node has the reason in its condition, which is written after the log line.
    eventually("every node says why it waits", LIMIT * 2, async || {
        let nodes = cluster.nodes().await;
        let is_told = |node: &&Node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            conditions.iter().any(|condition| condition.reason.as_deref() == Some("VCenterCertificateRejected"))
        };
        match nodes.values().filter(is_told).count() {
            NODES => Ok(()),
            told => Err(format!("{told} of {}", nodes.len())),
        }
    })
    .await;
    let lines = daemon.output().lines();
    let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
    println!("{} lines, {bytes} bytes", lines.len());
    let place = format!("127.0.0.1:{}", vcenter.port());
    let of_nodes: Vec<_> = lines.iter().filter(|line| line.contains("cannot initialize node")).collect();
    for line in &of_nodes {
        assert!(line.contains(&format!("waiting for vCenter {place}: its certificate is not accepted")), "{line}");
        assert!(
            line.contains("VCenterCertificateRejected") && !line.contains("in the vCenters that answered"),
            "{line}"
        );
    }
    assert_eq!(of_nodes.len(), NODES, "once each");
    assert!(lines.len() <= 120 && bytes <= 40_000, "{} lines, {bytes} bytes", lines.len());

    let told = only_line(&daemon, vcenter.port());
    println!("{told}");
    let thumbprint = format!("thumbprint = {}", vcenter.sha256_thumbprint());
    for part in
        ["the certificate of vCenter is not accepted", "presented", "[VirtualCenter \\\"private\\\"]", &thumbprint]
    {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    assert_eq!(vcenter.counts().await.total, 0, "nothing is sent to a server that is not trusted");
}

/// Returns the only warning or error about the vCenter on this port.
fn only_line(daemon: &Daemon, port: u16) -> String {
    let place = format!("127.0.0.1:{port}");
    let lines = daemon.output().lines();
    let about: Vec<_> = lines
        .iter()
        .filter(|line| line.contains(&place) && line.starts_with(['W', 'E']))
        .filter(|line| !line.contains("cannot initialize node"))
        .collect();
    assert_eq!(about.len(), 1, "{about:#?}");
    about[0].clone()
}

#[tokio::test]
async fn three_mistakes_of_the_cloud_config_are_told_at_once_and_end_the_process() {
    let cluster = Cluster::new().await;
    let config = "[Global]\nuser = \"u\"\npassword = \"not-the-password-31\"\nport = \"many\"\n\n\
                  [VirtualCenter \"vc.example\"]\nthumbprint = \"AA:BB\"\n\n\
                  [Nodes]\nexternal-network-subnet-cidr = \"10.0.0.0/40\"\n";
    let mut daemon = cluster.start(config, &["-v=10"]);
    let status = daemon.wait(LIMIT).await;
    let told = daemon.output().lines().join("\n");
    assert_eq!(status.code(), Some(1), "{told}");
    assert!(told.contains("3 configuration errors"), "{told}");
    let lines: Vec<_> = told.lines().filter(|line| line.contains(".conf:")).collect();
    assert_eq!(lines.len(), 3, "{told}");
    for (line, (place, expected)) in lines.iter().zip([
        (":4: [Global] port: ", "expected"),
        (":7: [VirtualCenter \"vc.example\"] thumbprint: ", "expected"),
        (":10: [Nodes] external-network-subnet-cidr: ", "expected"),
    ]) {
        assert!(line.contains(place) && line.contains(expected), "{place} in {told}");
    }
    assert!(!told.contains(WRONG_PASSWORD), "{told}");
}
