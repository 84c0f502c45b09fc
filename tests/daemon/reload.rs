//! Changes of `vsphere.conf` and of the CA file while the daemon manages the nodes of a vCenter that stays.

use std::time::Instant;

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use support::nodes::NodeView;
use support::{Daemon, Vcenter, eventually, replace_file};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, LIMIT, ip};

/// Nodes of the vCenter that stays.
const FIRST: std::ops::Range<usize> = 0..2;
/// Nodes of the vCenter that is added and removed.
const SECOND: std::ops::Range<usize> = 2..4;

/// Log text of the daemon when it uses a changed file.
const IN_FORCE: &str = "was read again and is in effect";

async fn wait_for(what: &str, cluster: &Cluster, daemon: &Daemon, number: usize, is_so: impl Fn(&NodeView) -> bool) {
    let name = cluster.name(number);
    eventually(what, LIMIT, async || match &cluster.views().await[&name] {
        view if is_so(view) => Ok(()),
        view => Err(format!("{view:?}\n{}", daemon.output().tail(30))),
    })
    .await;
}

/// Changes the address of a machine of the vCenter that stays, and waits until its node has that address.
async fn follows(cluster: &Cluster, first: &Vcenter, daemon: &Daemon, address: &str) {
    first.set_ip(&cluster.name(0), address).await;
    let wanted = format!("InternalIP={address}");
    wait_for("a node of the vCenter that stays follows", cluster, daemon, 0, |view| view.addresses.contains(&wanted))
        .await;
}

/// Checks that the vCenter that stays still has its first session only.
async fn one_login(first: &Vcenter, when: &str) {
    let counts = first.counts().await;
    assert_eq!((counts.soap_sessions, counts.soap_logins, counts.rest_logins), (1, 1, 1), "{when}: {counts:?}");
    assert_eq!(counts.of("CreatePropertyCollector"), 1, "{when}: {counts:?}");
}

#[tokio::test]
async fn a_changed_configuration_is_in_force_without_dropping_what_is_known() {
    let cluster = Cluster::new().await;
    let scenarios = [FIRST, SECOND].map(|numbers| cluster.scenario(numbers));
    let (first, second) = tokio::join!(Vcenter::start(&scenarios[0]), Vcenter::start(&scenarios[1]));
    let ca = first.folder().join("ca-of-the-test.pem");
    std::fs::write(&ca, first.ca_pem()).unwrap();
    let section =
        first.ini_section("vc-1", "dc-1").replace(&first.ca_file().display().to_string(), ca.to_str().unwrap());
    let alone = Cluster::zoned(std::slice::from_ref(&section));
    let both = Cluster::zoned(&[section.clone(), second.ini_section("vc-2", "dc-1")]);
    let path = first.folder().join("vsphere-of-the-test.conf");
    replace_file(&path, &alone);
    let (admin, token) = (Admin::new(), token(&cluster).await);
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let more = ["--leader-elect=true", &lease, &admin.flag()];
    let mut daemon = cluster.start_on(&path, &more);
    cluster.register(FIRST).await;
    cluster.register(SECOND).await;
    cluster.wait_until_initialized(FIRST, &daemon).await;

    // A vCenter is added.
    let changed = Instant::now();
    replace_file(&path, &both);
    cluster.wait_until_initialized(SECOND, &daemon).await;
    println!("the nodes of an added vCenter were initialized {:?} after the file changed", changed.elapsed());
    let told = daemon.wait_for_line(IN_FORCE, LIMIT).await;
    assert!(told.contains("vCenter \\\"vc-2\\\"") && told.contains("added"), "{told}");
    assert!(!told.contains(second.password()), "{told}");
    follows(&cluster, &first, &daemon, "10.1.0.101").await;
    one_login(&first, "a vCenter was added").await;

    // The vCenter is removed. The daemon stops using it, and its nodes become unknown, with the reason.
    let changed = Instant::now();
    replace_file(&path, &alone);
    eventually("the daemon logs out", LIMIT, async || match second.counts().await {
        counts if counts.soap_sessions + counts.rest_sessions == 0 => Ok(()),
        counts => Err(format!("{counts:?}\n{}", daemon.output().tail(20))),
    })
    .await;
    println!("no session was left {:?} after the vCenter was taken out of the file", changed.elapsed());
    let told = daemon.wait_for_line("VCenterNotConfigured", LIMIT).await;
    let server = format!("127.0.0.1:{}", second.port());
    assert!(told.contains(&server) && told.contains(path.to_str().unwrap()), "{told}");
    follows(&cluster, &first, &daemon, "10.1.0.102").await;
    one_login(&first, "a vCenter was removed").await;
    let views = cluster.views().await;
    for number in SECOND {
        let view = &views[&cluster.name(number)];
        assert!(view.addresses.contains(&format!("InternalIP={}", ip(number))), "{view:?}");
    }

    // The vCenter is added again.
    replace_file(&path, &both);
    eventually("there is a session again", LIMIT, async || match second.counts().await {
        counts if counts.pending_waits == 1 => Ok(()),
        counts => Err(format!("{counts:?}\n{}", daemon.output().tail(20))),
    })
    .await;
    second.set_ip(&cluster.name(2), "10.1.0.203").await;
    wait_for("its nodes are found again", &cluster, &daemon, 2, |view| {
        view.addresses.contains(&"InternalIP=10.1.0.203".to_owned())
    })
    .await;

    // The rules for addresses are changed.
    replace_file(&path, &format!("{both}\n[Nodes]\nexclude-external-network-subnet-cidr = 10.1.0.0/16\n"));
    wait_for("the rules are in force", &cluster, &daemon, 0, |view| {
        view.addresses == [format!("Hostname={}", cluster.name(0)), "InternalIP=10.1.0.102".to_owned()]
    })
    .await;
    one_login(&first, "the rules were changed").await;

    // The file is invalid, so the daemon keeps the current configuration.
    replace_file(&path, &format!("{both}\n[Nodes]\ninternal-network-subnet-cidr = hunter2-secret\n"));
    let told = daemon.wait_for_line("is invalid, and the previous one stays in effect", LIMIT).await;
    assert!(told.contains("internal-network-subnet-cidr") && !told.contains("hunter2"), "{told}");
    let message = refused(&cluster).await;
    assert!(message.contains("vsphere-of-the-test.conf:") && !message.contains("hunter2"), "{message}");
    follows(&cluster, &first, &daemon, "10.1.0.103").await;
    let text = metrics(&admin, &token, &mut daemon).await;
    for line in [
        "vsphere_ccm_config_reloads_total{result=\"applied\"} 4",
        "vsphere_ccm_config_reloads_total{result=\"refused\"} 1",
        "vsphere_ccm_config_reloads_total{result=\"unchanged\"} 0",
    ] {
        assert!(text.contains(line), "{line} is missing in {text}");
    }

    // The file is valid again.
    replace_file(&path, &both);
    wait_for("the old rules are in force", &cluster, &daemon, 0, |view| {
        view.addresses.contains(&"ExternalIP=10.1.0.103".to_owned())
    })
    .await;

    // The CA file gets another authority, and then the right one again. The session stays valid.
    replace_file(&ca, second.ca_pem());
    daemon.wait_for_line("changed: trust", LIMIT).await;
    // The pending wait keeps its connection and its trust until a change in vCenter ends it.
    first.set_ip(&cluster.name(1), "10.1.0.105").await;
    daemon.wait_for_line("the certificate of vCenter is not accepted; the last known state stays in use", LIMIT).await;
    replace_file(&ca, first.ca_pem());
    follows(&cluster, &first, &daemon, "10.1.0.104").await;
    let counts = first.counts().await;
    assert_eq!((counts.soap_sessions, counts.soap_logins), (1, 1), "{counts:?}");
    second.set_ip(&cluster.name(3), "10.1.0.204").await;
    wait_for("the other vCenter is followed", &cluster, &daemon, 3, |view| {
        view.addresses.contains(&"InternalIP=10.1.0.204".to_owned())
    })
    .await;
}

/// Returns the message of the only Event on the Lease about the rejected file.
async fn refused(cluster: &Cluster) -> String {
    let events = Api::<Event>::namespaced(cluster.client.clone(), "kube-system");
    let about = format!("involvedObject.name={},reason=InvalidCloudConfig", cluster.pool());
    eventually("an Event on the Lease tells of it", LIMIT, async || {
        let found = events.list(&ListParams::default().fields(&about)).await.unwrap().items;
        match found.as_slice() {
            [only] if only.count.unwrap_or(1) == 1 && only.involved_object.uid.is_some() => {
                Ok(only.message.clone().unwrap_or_default())
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

async fn metrics(admin: &Admin, token: &str, daemon: &mut Daemon) -> String {
    admin.get("/metrics", Some(token), daemon).await.1
}

#[tokio::test]
async fn a_vcenter_that_is_not_verified_is_told_at_the_start_and_at_each_reload() {
    let cluster = Cluster::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vsphere.conf");
    // No process listens on this port.
    let text = |port: u16| {
        format!(
            "[Global]\nuser = u\npassword = p\ninsecure-flag = true\n[VirtualCenter \"127.0.0.1\"]\nport = {port}\n"
        )
    };
    replace_file(&path, &text(1));
    let mut daemon = cluster.start_on(&path, &[]);
    daemon.wait_for_line("vCenter 127.0.0.1:1: its certificate is not verified (insecure-flag)", LIMIT).await;
    replace_file(&path, &text(2));
    daemon.wait_for_line("vCenter 127.0.0.1:2: its certificate is not verified (insecure-flag)", LIMIT).await;
    daemon.stop(LIMIT).await;
}

#[tokio::test]
async fn an_error_in_a_part_turns_off_that_part_at_the_start_and_refuses_a_reload() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(FIRST)).await;
    let (admin, token) = (Admin::new(), token(&cluster).await);
    let path = vcenter.folder().join("vsphere-with-nsx.conf");
    let valid = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let nsx = "[NSXT]\nhost = nsx.invalid\nuser = u\npassword = hunter2-secret\n";
    let wrong = format!("{valid}\n{nsx}[Route]\nrouter-path = hunter2-router\n");
    replace_file(&path, &wrong);
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    // Without this flag a file with routes is rejected.
    let flags = ["--leader-elect=true", &lease, &admin.flag(), "--cluster-cidr=10.244.0.0/16"];
    let mut daemon = cluster.start_on(&path, &flags);
    cluster.register(FIRST).await;
    cluster.wait_until_initialized(FIRST, &daemon).await;
    let told = daemon.wait_for_line("routes is turned off", LIMIT).await;
    assert!(told.contains("[Route] router-path: expected /infra/tier-0s/<id>") && !told.contains("hunter2"), "{told}");
    let message = refused(&cluster).await;
    assert!(message.starts_with("routes is turned off") && !message.contains("hunter2"), "{message}");
    let gauge = |part: &str, value: u8| format!("vsphere_ccm_config_part_refused{{part=\"{part}\"}} {value}\n");
    let text = metrics(&admin, &token, &mut daemon).await;
    for (part, value) in [("nsx", 0), ("load-balancers", 0), ("routes", 1)] {
        assert!(text.contains(&gauge(part, value)), "{part}: {text}");
    }

    // The changed file has the same error, so the daemon keeps the current configuration.
    replace_file(&path, &format!("{wrong}[Nodes]\nexclude-external-network-subnet-cidr = 10.1.0.0/16\n"));
    let told = daemon.wait_for_line("is invalid, and the previous one stays in effect", LIMIT).await;
    assert!(told.contains("router-path") && !told.contains("hunter2"), "{told}");
    follows(&cluster, &vcenter, &daemon, "10.1.0.101").await;

    replace_file(&path, &wrong.replace("hunter2-router", "/infra/tier-1s/a"));
    let told = daemon.wait_for_line(IN_FORCE, LIMIT).await;
    assert!(told.contains("routes added"), "{told}");
    let text = metrics(&admin, &token, &mut daemon).await;
    assert!(text.contains(&gauge("routes", 0)), "{text}");
    let rejected = "vsphere_ccm_config_reloads_total{result=\"refused\"} 1";
    assert!(text.contains(rejected), "{text}");
    daemon.stop(LIMIT).await;
}
