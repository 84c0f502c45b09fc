//! User and password from a Secret or from a directory that appears after the start of the daemon.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ccm::cloud::login_ledger::{LoginThrottle, Outcome, PlannedLogin};
use ccm::kubernetes::login_ledger::{LeaseStore, Ledger, record_name};
use ccm::providers::vsphere::login::policy::LOGIN_POLICY;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use support::rbac::{self, Subject};
use support::{ApiServer, Daemon, Rule, Vcenter, eventually};

use crate::cluster::{ANSWERS, Cluster, LIMIT};
use crate::manifests::kustomize::kubectl;
use crate::rights::account_without_secrets;

const NAMESPACE: &str = "kube-system";
/// User of the vCenter.
pub const USER: &str = "ccm@vsphere.local";
/// Password of [`USER`].
pub const PASSWORD: &str = "Hors3BatteryStapl3";

/// A `vsphere.conf` for this vCenter whose section `Global` begins with `source`.
fn config(vcenter: &Vcenter, source: &str) -> String {
    let section = format!(
        "[Global]\n{source}\nca-file = {}\n[VirtualCenter \"vc-1\"]\nserver = {}\nport = {}\ndatacenters = dc-1\n",
        vcenter.ca_file().display(),
        vcenter.host(),
        vcenter.port()
    );
    Cluster::zoned(&[section])
}

/// Grants the right to read one Secret to an account with this cluster's name.
async fn permit(cluster: &Cluster) {
    let name = cluster.pool();
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": ["get", "watch"]});
    let account = Subject::ServiceAccount("kube-system", name);
    rbac::grant(&cluster.client, Some(NAMESPACE), name, account, json!([rule])).await;
}

async fn assert_no_login(vcenter: &Vcenter, daemon: &Daemon) {
    let counts = vcenter.counts().await;
    let logins = counts.of("Login") + counts.of("REST:session-login");
    assert_eq!((logins, counts.soap_logins), (0, 0), "{counts:?}\n{}", daemon.output().tail(20));
}

/// Checks that there was at most one login at each interface, and that the log does not have the password.
async fn assert_one_login_and_no_word_of_it(vcenter: &Vcenter, daemon: &Daemon) {
    let counts = vcenter.counts().await;
    assert_eq!((counts.of("Login"), counts.soap_logins), (1, 1), "{counts:?}");
    let lines = daemon.output().lines();
    for hidden in [PASSWORD, &STANDARD.encode(PASSWORD), &STANDARD.encode(format!("{PASSWORD}\n"))] {
        let found = lines.iter().find(|line| line.contains(hidden));
        assert!(found.is_none(), "{hidden} is in the log: {found:?}");
    }
}

#[tokio::test]
async fn a_secret_that_is_created_later_is_enough_and_nothing_is_tried_before_it_was_read() {
    let cluster = Cluster::new().await;
    let name = cluster.pool();
    let vcenter = Vcenter::start(&cluster.scenario(0..1).login(USER, PASSWORD)).await;
    let kubeconfig = account_without_secrets(&cluster).await;
    permit(&cluster).await;
    let source = format!("secret-name = {name}\nsecret-namespace = {NAMESPACE}");
    let mut daemon = cluster.start(&config(&vcenter, &source), &["-v=10", &kubeconfig]);
    cluster.register(0..1).await;
    let told = daemon.wait_for_line("there are no credentials", LIMIT).await;
    assert!(told.contains(&format!("Secret {NAMESPACE}/{name}: it does not exist")), "{told}");
    assert_no_login(&vcenter, &daemon).await;
    assert!(cluster.views().await[&cluster.name(0)].uninitialized);

    let server = vcenter.host();
    let entries =
        json!({format!("{server}.username"): USER, format!("{server}.password"): format!("{PASSWORD}\n"), "odd": "x"});
    let secret = json!({"metadata": {"name": name}, "stringData": entries});
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), NAMESPACE);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    daemon.wait_for_line(ANSWERS, LIMIT).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    let odd = daemon.output().find("is not known; expected <server>.username").unwrap();
    assert!(odd.contains("\\\"odd\\\""), "{odd}");
    assert_one_login_and_no_word_of_it(&vcenter, &daemon).await;
    let refused: Vec<_> =
        daemon.output().lines().into_iter().filter(|line| line.to_lowercase().contains("forbidden")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn a_directory_that_appears_later_is_enough_and_nothing_is_tried_before_it_was_read() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1).login(USER, PASSWORD)).await;
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("secrets");
    let source = format!("secrets-directory = {}", directory.display());
    let mut daemon = cluster.start(&config(&vcenter, &source), &["-v=10"]);
    cluster.register(0..1).await;
    let told = daemon.wait_for_line("there are no credentials", LIMIT).await;
    assert!(told.contains(&format!("directory {}: it does not exist", directory.display())), "{told}");
    assert_no_login(&vcenter, &daemon).await;

    write_pair(&directory, vcenter.host());
    cluster.wait_until_initialized(0..1, &daemon).await;
    assert_one_login_and_no_word_of_it(&vcenter, &daemon).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn to_which_host_the_service_accounts_token_is_sent_is_told_once_and_can_be_limited() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let folder = tempfile::tempdir().unwrap();
    let key = format!("{}.vc-session-manager-url", vcenter.host());
    std::fs::write(folder.path().join(key), "https://ccm:hunter2@manager.test:8443/tickets?key=hunter2").unwrap();
    let text = config(&vcenter, &format!("secrets-directory = {}", folder.path().display()));
    let sent = "is sent to the session manager at https://manager.test:8443";
    let refused = "its vc-session-manager-url names a host that is not among --session-manager-hosts";
    for (hosts, expected, absent) in
        [("", sent, refused), ("Manager.test,10.0.0.1", sent, refused), ("other.test,test", refused, sent)]
    {
        let mut daemon = cluster.start(&text, &[&format!("--session-manager-hosts={hosts}")]);
        daemon.wait_for_line(expected, LIMIT).await;
        assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
        let lines = daemon.output().lines();
        let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        assert_eq!(count("hunter2") + count(absent), 0, "{hosts}: {lines:#?}");
        assert!(expected != sent || count(sent) == 1, "{hosts}: {lines:#?}");
    }
}

/// Adds failed logins to the count that all replicas share.
pub async fn reject_three_logins(cluster: &Cluster, vcenter: &Vcenter) {
    let ledger = Ledger::new(LeaseStore::new(cluster.client.clone(), NAMESPACE));
    let server = format!("{}:{}", vcenter.host(), vcenter.port());
    let attempt = PlannedLogin {
        policy: LOGIN_POLICY,
        server,
        user: USER.to_owned(),
        version: None,
        was_accepted: false,
        is_new: true,
    };
    for _ in 0..3 {
        let claim = ledger.claim(&attempt).await.unwrap();
        ledger.record_outcome(claim, Outcome::Rejected).await;
    }
}

#[tokio::test]
async fn a_paused_login_says_until_when_and_why_and_the_command_that_ends_the_pause() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1).login(USER, PASSWORD)).await;
    reject_three_logins(&cluster, &vcenter).await;
    let source = format!("user = {USER}\npassword = {PASSWORD}");
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let flags = ["--leader-elect=true", lease.as_str()];
    let mut daemon = cluster.start(&config(&vcenter, &source), &flags);
    let told = daemon.wait_for_line("is paused until", LIMIT).await;
    println!("{told}");
    let name = record_name("", &format!("{}:{}", vcenter.host(), vcenter.port()), USER);
    let command = format!("kubectl -n {NAMESPACE} delete lease {name}");
    for part in [
        &format!("login to vCenter {}:{} as", vcenter.host(), vcenter.port()),
        USER,
        "so that the account is not locked",
        "logins were rejected or not answered three times within 200 s",
        "after you have corrected the credentials or unlocked the account",
        &format!("run `{command}`; every replica notices it within a minute"),
    ] {
        assert!(told.contains(part), "{part} is missing in {told}");
    }
    assert_no_login(&vcenter, &daemon).await;

    vcenter.add_rule(&Rule::hang("Login")).await;
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    kubectl(Some(ApiServer::shared().await), &arguments, "").await.unwrap();
    let deleted = Instant::now();
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), NAMESPACE);
    let claim = eventually("the login is claimed", Duration::from_secs(60), async || {
        let lease = leases.get_opt(&name).await.unwrap().ok_or("no Lease")?;
        let text = lease.metadata.annotations.unwrap_or_default().remove("vsphere-ccm.dev/logins").unwrap_or_default();
        if text.contains("claimed") { Ok(text) } else { Err("no claim") }
    })
    .await;
    let pod = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(claim.contains(&format!(r#""pod":"{}","start":""#, pod.trim())), "{claim}");
    vcenter.clear_rules().await;
    daemon.wait_for_line(ANSWERS, Duration::from_secs(60)).await;
    println!("it logged in {:?} after the Lease was deleted", deleted.elapsed());
    assert_eq!(vcenter.counts().await.soap_logins, 1);
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

fn write_pair(directory: &Path, server: &str) {
    std::fs::create_dir(directory).unwrap();
    std::fs::write(directory.join(format!("{server}.username")), USER).unwrap();
    std::fs::write(directory.join(format!("{server}.password")), format!("{PASSWORD}\n")).unwrap();
}
