//! The log contains no secret at any level, and neither does the output of a command.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use support::fake_nsx::{FakeNsx, Model};
use support::rbac::{self, Subject};
use support::{ApiServer, Rule, Vcenter, eventually, unique};

use crate::cluster::{ANSWERS, Cluster, LIMIT, ip};
use crate::commands::bundle::{Bundle, bundle};
use crate::commands::observer::{BALANCER_PATHS, Site};
use crate::commands::{CommandResult, ask};

/// XML, URLs and INI escape some of these characters differently.
const PASSWORD: &str = "Hors3<&>Battery/+%7";
const USER: &str = "ccm@vsphere.local";
const OTHER_USER: &str = "other@vsphere.local";
const WRONG_PASSWORD: &str = "Stapl3<&>Wrong/+%8";
const NSX_USER: &str = "nsx-ccm";
const NSX_PASSWORD: &str = "Donkey5<&>Saddle/+%9";

#[tokio::test]
async fn no_secret_is_in_the_log_at_the_highest_level() {
    let cluster = Cluster::new().await;
    // The daemon counts rejections of one user name over all vCenters, so the other vCenter has another user.
    let right = cluster.scenario(0..3).login(USER, PASSWORD);
    let wrong = cluster.scenario(0..0).login(OTHER_USER, PASSWORD);
    let (right, wrong) = tokio::join!(Vcenter::start(&right), Vcenter::start(&wrong));
    let sections =
        [right.ini_section("right", "dc-1"), wrong.ini_section("wrong", "dc-1").replace(PASSWORD, WRONG_PASSWORD)];
    let (kubeconfig, token) = administrator(&cluster).await;
    // Errors that quote answers must not contain a secret either.
    right.add_rule(&Rule::cut("Login").times(1)).await;
    right.add_rule(&Rule::status("REST:session-login", 503, "<html>no healthy upstream</html>").times(1)).await;
    let flags =
        ["-v=10", &kubeconfig, "--leader-elect=true", &format!("--leader-elect-resource-name={}", cluster.pool())];
    let mut daemon = cluster.start(&Cluster::zoned(&sections), &flags);
    daemon.wait_for_line(ANSWERS, LIMIT).await;
    daemon.wait_for_line("rejected the login", LIMIT).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialized(0..3, &daemon).await;

    // The daemon renews a session that ended, and logs a rejected REST login.
    right.reset_counts().await;
    right.kill_soap_sessions().await;
    eventually("it logs in again", LIMIT, async || match right.counts().await {
        counts if counts.soap_logins == 1 && counts.pending_waits == 1 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    right.set_login(USER, "changed meanwhile").await;
    right.kill_soap_sessions().await;
    eventually("both logins were rejected", LIMIT, async || match daemon.output().count("rejected the login") {
        2 => Ok(()),
        count => Err(count),
    })
    .await;
    let leaked = write_secrets(&cluster).await;
    let mut printed = Vec::new();
    let (node, address) = (cluster.name(1), ip(1));
    let rejecting = format!("{}:{}", wrong.host(), wrong.port());
    for words in [
        &["status"][..],
        &["check"],
        &["plan"],
        &["deletions", "list"],
        &["explain", "vcenter", right.host()],
        &["explain", "vcenter", &rejecting],
        &["explain", "node", &node],
        &["explain", "node", &node, "--fresh"],
        &["explain", "deletion", &node],
        &["explain", "vm", &node],
        &["explain", "ip", &address],
        &["explain", "route", &node],
        &["explain", "service", "shop/web"],
    ] {
        for form in ["text", "json", "yaml"] {
            let CommandResult { output, messages, .. } = ask(&daemon, &[words, &["-o", form]].concat()).await;
            assert!(!output.is_empty() || words.contains(&"service"), "{words:?}: {messages}");
            printed.extend([output, messages]);
            let masked = ask(&daemon, &[words, &["-o", form, "--mask-users"]].concat()).await.output;
            assert!(!masked.contains(USER) && !masked.contains(OTHER_USER), "{masked}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&[][..], &["--mask-users"], &["--anonymise", "--map=-"]] {
        let Bundle { files, manifest, .. } = bundle(&daemon, folder.path(), arguments).await;
        assert!(files["events.json"].contains(MARK) && files["events.json"].contains("***"), "{manifest}");
        for text in files.values() {
            assert!(arguments.is_empty() || !(text.contains(USER) || text.contains(OTHER_USER)), "{text}");
            let found = leaked.iter().find(|secret| text.contains(secret.as_str()));
            assert!(found.is_none(), "{found:?} is in the bundle: {text}");
        }
        printed.extend(files.into_values());
        if !arguments.contains(&"--map=-") {
            printed.push(manifest);
        }
    }
    assert!(printed.iter().any(|output| output.contains(USER)), "a rejected login names its user");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));

    let mut lines = daemon.output().lines();
    println!("{} lines", lines.len());
    assert!(lines.len() < 50_000, "all lines are there, none was dropped");
    assert!(lines.iter().any(|line| line.contains("] \"settings\" ")), "the level is high");
    lines.extend(printed);
    let secrets = [PASSWORD, WRONG_PASSWORD]
        .into_iter()
        .flat_map(|password| [USER, OTHER_USER].map(|user| forms(user, password)).concat());
    for secret in secrets.chain([token, "vmware_soap_session=".to_owned()]) {
        let found = lines.iter().find(|line| line.contains(&secret));
        assert!(found.is_none(), "{secret} is in the log or the output of a command: {found:?}");
    }
}

/// A command without a process logs in to each vCenter and to NSX itself.
#[tokio::test]
async fn no_secret_is_in_the_output_of_a_command_without_a_process() {
    let cluster = Cluster::new().await;
    let right = cluster.scenario(0..2).login(USER, PASSWORD);
    let wrong = cluster.scenario(0..0).login(OTHER_USER, PASSWORD);
    let (right, wrong) = tokio::join!(Vcenter::start(&right), Vcenter::start(&wrong));
    cluster.kubelet(0).pod_cidrs(&["10.244.0.0/24"]).register(&cluster.client).await;
    let nsx = FakeNsx::start(Model::small().user(NSX_USER, NSX_PASSWORD)).await;
    let ca_file = cluster.folder().join(format!("{}-secrets-ca.pem", cluster.pool()));
    std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
    let nsx_sections = format!(
        "[NSXT]\nhost = {}\nca-file = {}\nuser = {NSX_USER}\npassword = {NSX_PASSWORD}\n\
         [LoadBalancer]\nip-pool-name = pool1\nsize = SMALL\n{BALANCER_PATHS}[Route]\nrouter-path = /infra/tier-1s/t1\n",
        nsx.address(),
        ca_file.display(),
    );
    let with_nsx = |vcenters: &[String]| format!("{}\n{nsx_sections}", Cluster::zoned(vcenters));
    let accepted = right.ini_section("right", "dc-1");
    let rejected = wrong.ini_section("wrong", "dc-1").replace(PASSWORD, WRONG_PASSWORD);
    let server = ApiServer::shared().await;
    let flags = ["-v=10".to_owned(), format!("--cluster-name={}", cluster.pool())];
    let (node, rejecting) = (cluster.name(0), format!("{}:{}", wrong.host(), wrong.port()));
    let mut printed = Vec::new();
    // After three rejected logins the throttle permits no further one.
    for (vcenters, commands) in [
        (
            vec![accepted.clone(), rejected],
            &[
                &["check", "--preflight"][..],
                &["check", "--preflight", "-o", "json"],
                &["explain", "vcenter", &rejecting],
            ][..],
        ),
        (
            vec![accepted],
            &[
                &["check", "--preflight"],
                &["status"],
                &["plan"],
                &["plan", "-o", "json"],
                &["explain", "node", &node],
                &["explain", "deletion", &node],
                &["explain", "route", &node],
            ],
        ),
    ] {
        let mut site = Site::new(&cluster, server, &with_nsx(&vcenters));
        site.flags.extend(flags.clone());
        for words in commands {
            let CommandResult { output, messages, .. } = site.run(words).await;
            assert!(!output.is_empty(), "{words:?}: {messages}");
            printed.extend([output, messages]);
        }
    }
    assert!(!nsx.login_attempts().is_empty(), "NSX is asked");
    assert!(printed.iter().any(|output| output.contains(OTHER_USER)), "a rejected login names its user");
    let of_vcenters = [PASSWORD, WRONG_PASSWORD]
        .into_iter()
        .flat_map(|password| [USER, OTHER_USER].map(|user| forms(user, password)).concat());
    for secret in of_vcenters.chain(forms(NSX_USER, NSX_PASSWORD)) {
        let found = printed.iter().find(|output| output.contains(&secret));
        assert!(found.is_none(), "{secret} is in the output of a command: {found:?}");
    }
}

#[test]
fn a_password_is_recognized_in_whatever_form_it_is_sent() {
    let encoded = |text: String| STANDARD.encode(text);
    for (case, line) in [
        ("plain", format!("password={PASSWORD}")),
        ("debug", format!("{:?}", [PASSWORD])),
        (
            "SOAP",
            format!(
                "<password>{}</password>",
                PASSWORD.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
            ),
        ),
        ("REST", format!("authorization: Basic {}", encoded(format!("{USER}:{PASSWORD}")))),
        ("a file in base64", encoded(format!("[Global]\nuser = {USER}\npassword = {PASSWORD}\n"))),
        ("another user", encoded(format!("u:{PASSWORD}"))),
        ("yet another user", encoded(format!("us:{PASSWORD}"))),
        ("a third user", encoded(format!("use:{PASSWORD}"))),
    ] {
        assert!(forms(USER, PASSWORD).iter().any(|form| line.contains(form)), "{case}: {line}");
    }
}

/// Returns the possible encodings of a password: plain, in XML, JSON, a URL, as basic authentication, or inside longer
/// base64.
fn forms(user: &str, password: &str) -> Vec<String> {
    let xml = password.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let url = password.replace('%', "%25").replace('<', "%3C").replace('&', "%26").replace('>', "%3E");
    let core = password.split(['<', '>', '&', '/']).max_by_key(|part| part.len()).unwrap();
    let pair = format!("{user}:{password}");
    let whole = [password.as_bytes(), pair.as_bytes()]
        .map(|text| [STANDARD.encode(text), STANDARD_NO_PAD.encode(text), URL_SAFE_NO_PAD.encode(text)]);
    // In longer base64 the text can start at any of three offsets in a group. The neighbours in the first and last
    // group vary.
    let inside: Vec<_> = [0, 2, 3]
        .into_iter()
        .enumerate()
        .map(|(offset, mixed)| {
            let encoded = STANDARD_NO_PAD.encode([vec![0; offset], password.as_bytes().to_vec()].concat());
            let end = (offset + password.len()) / 3 * 4;
            encoded.chars().take(end).skip(mixed).collect::<String>()
        })
        .collect();
    [password.to_owned(), xml, url, core.to_owned()]
        .into_iter()
        .chain(whole.into_iter().flatten())
        .chain(inside)
        .collect()
}

/// The text before the secrets of [`write_secrets`].
const MARK: &str = "written by the test of secrets";

/// Writes an Event with secrets of every kind, which do not belong there. Returns the secrets, and parts of them.
async fn write_secrets(cluster: &Cluster) -> BTreeSet<String> {
    let key = "MIIEowIBAAKCAQEA7bq";
    let web_token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjY20ifQ.c2lnbmF0dXJl";
    let (opaque_token, session, login) = ("Zt0qVmcRefresh71", "52f4a1c2-session", "pr0xyPassw0rd");
    let pair = STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let part = PASSWORD.get(..14).unwrap();
    let message = format!(
        "{MARK}: {PASSWORD}, {pair}, {part}, -----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----, \
         Authorization: Bearer {opaque_token}\n, {web_token}, JSESSIONID={session}, \
         http://proxy:{login}@proxy.example.com:3128"
    );
    let event: Event = serde_json::from_value(json!({
        "metadata": {"generateName": "secrets-", "namespace": "kube-system"},
        "involvedObject": {"kind": "Lease", "namespace": "kube-system", "name": cluster.pool()},
        "message": message,
    }))
    .unwrap();
    let events = Api::<Event>::namespaced(cluster.client.clone(), "kube-system");
    events.create(&PostParams::default(), &event).await.unwrap();
    [key, web_token, opaque_token, session, login, part, &pair].map(str::to_owned).into()
}

/// Creates a service account with all rights. Returns the flag with its kubeconfig, and its token.
pub async fn administrator(cluster: &Cluster) -> (String, String) {
    let name = unique("administrator");
    let (kubeconfig, token) = ApiServer::shared().await.create_service_account("default", &name).await;
    let account = Subject::ServiceAccount("default", &name);
    rbac::bind(&cluster.client, None, &name, account, "cluster-admin").await;
    (format!("--kubeconfig={}", kubeconfig.display()), token)
}
