//! Changes for a running pod: its ConfigMap, its Secret, and the token of its service account, as the kubelet delivers
//! them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use support::real_node::KubeletSettings;
use support::{AuditEvent, sandbox};

use crate::cluster::{Cluster, LIMIT, TEST_LIMIT, eventually};
use crate::pod::{CONTAINER, Pod, ProbeCounts, install_patched};

/// Default `syncFrequency` of the kubelet. It syncs a pod again after this time, and delivers changes then.
const SYNC_PERIOD: Duration = Duration::from_secs(60);

/// Maximum time between two syncs. The kubelet adds up to a half at random.
const KUBELET_LIMIT: Duration = Duration::from_secs(90);

/// The delay that a busy machine may add.
const SLACK: Duration = Duration::from_secs(60);

/// The product uses a token for this time before it reads the file again.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// Folder of the mounted Secret in the pod.
const SECRETS: &str = "/etc/vsphere-credentials";

#[test]
fn configuration_credentials_and_token_are_used_without_a_restart_when_the_kubelet_brings_them() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::start(sandbox).await;
        let mounted = json!({
            "containers": [{
                "name": CONTAINER,
                "volumeMounts": [{ "name": "credentials", "mountPath": SECRETS, "readOnly": true }],
            }],
            "volumes": [{ "name": "credentials", "secret": { "secretName": "vsphere-cloud-secret" } }],
        });
        let pod = install_patched(&cluster, &mounted).await;
        cluster.wait_until_initialized().await;
        pod.wait_for_line("became leader").await;
        let start = cluster.server.audit().len();

        // A kubelet requests a new token for each pod at its start.
        let token = pod.volume("projected", "kube-api-access").join("token");
        let first = token_id(&token);
        cluster.kubelet = None;
        cluster.start_kubelet(&KubeletSettings::default()).await;
        let second = eventually("the kubelet writes another token", LIMIT, async || {
            let id = token_id(&token);
            if id == first { Err(id) } else { Ok(id) }
        })
        .await;
        let rotated = Instant::now();

        let elapsed = change_password(&cluster, "second").await;
        println!("a Secret that is read over the API: a login with the new password after {elapsed:?}");
        // By then a new kubelet makes no early syncs any more.
        eventually("the new kubelet has probed the pod twice", LIMIT, async || match pod.liveness_probes(&cluster) {
            probes @ ProbeCounts { successful: 0..2, .. } => Err(format!("{probes:?}")),
            _ => Ok(()),
        })
        .await;
        let synced = the_config_map_arrives(&cluster, &pod).await;
        let ((), elapsed) =
            tokio::join!(the_secret_arrives(&cluster, &pod, "third", synced), change_password(&cluster, "third"));
        println!("a mounted Secret, and an annotation of the pod: a login with the new password after {elapsed:?}");
        change_config(&cluster, "port: 443", "port: many");
        synchronize(&cluster, &pod);
        let line = pod.wait_for_line("is invalid, and the previous one stays in effect").await;
        println!("{line}");

        eventually("the new token is used", READ_AGAIN + SLACK, async || {
            let requests = requests(&cluster, start);
            let last = requests.last().unwrap().credential().map(str::to_owned);
            if last.as_deref() == Some(&second) { Ok(()) } else { Err(format!("{last:?}")) }
        })
        .await;
        println!("the new token is in use {:?} after it was written", rotated.elapsed());
        no_call_failed(&cluster, start);
        assert_eq!(pod.restarts(&cluster), 0);
    });
}

/// Replaces the Secret by credentials from the mounted directory. Without an early sync the kubelet delivers the change
/// with the next periodic sync. Returns the time of that sync.
async fn the_config_map_arrives(cluster: &Cluster, pod: &Pod) -> Instant {
    let file = pod.volume("configmap", "vsphere-config-volume").join("vsphere.conf");
    let secret = "secretName: vsphere-cloud-secret\n  secretNamespace: kube-system";
    let begin = Instant::now();
    change_config(cluster, secret, &format!("secretsDirectory: {SECRETS}"));
    eventually("the kubelet brings the ConfigMap", KUBELET_LIMIT + SLACK, async || {
        let text = fs::read_to_string(&file).unwrap();
        if text.contains(SECRETS) { Ok(()) } else { Err(text) }
    })
    .await;
    let synced = Instant::now();
    let line = pod.wait_for_line("was read again and is in effect").await;
    println!("a ConfigMap: in the pod after {:?}, in force after {:?}: {line}", synced - begin, begin.elapsed());
    assert_eq!(pod.errors(), Vec::<String>::new());
    synced
}

/// An annotation makes the kubelet sync the pod immediately, and deliver the Secret with this password. The delivery
/// comes before the next periodic sync after `synced`.
async fn the_secret_arrives(cluster: &Cluster, pod: &Pod, password: &str, synced: Instant) {
    let file = pod.volume("secret", "credentials").join("vcenter.example.com.password");
    // The kubelet must receive the new Secret first, through its watch.
    eventually("the kubelet brings the Secret", LIMIT, async || {
        synchronize(cluster, pod);
        let text = fs::read_to_string(&file).unwrap();
        if text == password { Ok(()) } else { Err(text) }
    })
    .await;
    let elapsed = synced.elapsed();
    assert!(elapsed < SYNC_PERIOD, "the sync before was {elapsed:?} ago: the next one may have brought it");
}

fn synchronize(cluster: &Cluster, pod: &Pod) {
    let annotation = format!("synchronized={}", support::unique("at"));
    cluster.kubectl(&["-n", "kube-system", "annotate", "--overwrite", "pod", &pod.name, &annotation]);
}

/// Changes the password of the account and in the Secret. Returns the time until a login with the new password.
async fn change_password(cluster: &Cluster, password: &str) -> Duration {
    let before = cluster.vcenter.counts().await.soap_logins;
    cluster.vcenter.set_login(cluster.vcenter.user(), password).await;
    let begin = Instant::now();
    let patch = json!({ "stringData": { "vcenter.example.com.password": password } });
    patch_object(cluster, "secret", "vsphere-cloud-secret", &patch);
    eventually("a login with the new password", LIMIT, async || {
        let logins = cluster.vcenter.counts().await.soap_logins;
        if logins > before { Ok(()) } else { Err(format!("{logins} logins")) }
    })
    .await;
    begin.elapsed()
}

/// Replaces a part of `vsphere.conf`.
fn change_config(cluster: &Cluster, from: &str, to: &str) {
    let config = cluster.get(&["configmap", "-n", "kube-system", "vsphere-cloud-config"]);
    let text = config["data"]["vsphere.conf"].as_str().unwrap();
    assert!(text.contains(from), "{text}");
    let patch = json!({ "data": { "vsphere.conf": text.replace(from, to) } });
    patch_object(cluster, "configmap", "vsphere-cloud-config", &patch);
}

fn patch_object(cluster: &Cluster, kind: &str, name: &str, patch: &Value) {
    cluster.kubectl(&["-n", "kube-system", "patch", kind, name, "--type=merge", "--patch", &patch.to_string()]);
}

/// Returns the id of a token in the form of the audit log.
fn token_id(file: &Path) -> String {
    let claims = claims(&fs::read_to_string(file).unwrap());
    format!("JTI={}", claims["jti"].as_str().unwrap())
}

fn claims(token: &str) -> Value {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    serde_json::from_slice(&payload).unwrap()
}

/// Returns the product's requests after the first `start` ones, by their user agent. The API server does not know the
/// user of a request that it does not authenticate.
fn requests(cluster: &Cluster, start: usize) -> Vec<AuditEvent> {
    let all = cluster.server.audit().into_iter().skip(start);
    all.filter(|event| event.user_agent.starts_with(CONTAINER)).collect()
}

fn no_call_failed(cluster: &Cluster, start: usize) {
    let requests = requests(cluster, start);
    let failed: Vec<_> = requests
        .iter()
        .filter(|event| event.response_status.code >= 400)
        .filter(|event| !is_read_of_missing_deletion_lease(event))
        .collect();
    println!("{} requests, {} of which failed", requests.len(), failed.len());
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Whether the request reads the Lease with the pause of deletions, which does not exist before the first pause or
/// deletion.
fn is_read_of_missing_deletion_lease(event: &AuditEvent) -> bool {
    let is_lease = event.object_ref.resource == "leases" && event.object_ref.name == "vsphere-ccm-deletions";
    is_lease && event.verb == "get" && event.response_status.code == 404
}

/// Tests that take the lifetime of a token.
mod nightly {
    use super::*;

    /// Minimum lifetime of a token from the API server.
    const TOKEN_LIFETIME: Duration = Duration::from_secs(600);

    /// Time after the expiry for which the API server still accepts a token: the leeway of its library (go-jose).
    const LEEWAY: Duration = Duration::from_secs(60);

    #[test]
    fn a_token_that_expires_is_replaced_without_a_failed_call() {
        sandbox::run(TEST_LIMIT + TOKEN_LIFETIME + LEEWAY, async |sandbox| {
            let cluster = Cluster::start(sandbox).await;
            let pod = install_patched(&cluster, &short_lived_token()).await;
            cluster.wait_until_initialized().await;
            pod.wait_for_line("became leader").await;
            let start = cluster.server.audit().len();
            let begin = Instant::now();
            let file = pod.volume("projected", "token").join("token");
            let (first, first_id) = (fs::read_to_string(&file).unwrap(), token_id(&file));
            let life = claims(&first);
            assert_eq!(
                life["exp"].as_u64().unwrap() - life["iat"].as_u64().unwrap(),
                TOKEN_LIFETIME.as_secs(),
                "{life}"
            );

            eventually("the kubelet replaces the token", TOKEN_LIFETIME + SLACK, async || {
                let id = token_id(&file);
                if id == first_id { Err(id) } else { Ok(()) }
            })
            .await;
            println!("the kubelet has replaced the token after {:?}", begin.elapsed());
            eventually("the first token is refused", TOKEN_LIFETIME + LEEWAY + SLACK, async || {
                match status_of(&first) {
                    401 => Ok(()),
                    status => Err(status),
                }
            })
            .await;
            println!("the API server refuses the first token after {:?}", begin.elapsed());

            let expired = cluster.server.audit().len();
            eventually("twenty requests more", LIMIT, async || match requests(&cluster, expired).len() {
                count @ ..20 => Err(count),
                _ => Ok(()),
            })
            .await;
            no_call_failed(&cluster, start);
            let failures: Vec<_> = pod.log().into_iter().filter(|line| line.starts_with(['W', 'E'])).collect();
            println!("{}", failures.join("\n"));
            assert_eq!(pod.restarts(&cluster), 0);
        });
    }

    /// Returns the token volume that the API server adds to pods, with the minimum lifetime.
    fn short_lived_token() -> Value {
        json!({
            "containers": [{
                "name": CONTAINER,
                "volumeMounts": [
                    { "name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true },
                ],
            }],
            "volumes": [{
                "name": "token",
                "projected": { "sources": [
                    { "serviceAccountToken": { "path": "token", "expirationSeconds": TOKEN_LIFETIME.as_secs() } },
                    { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                    { "downwardAPI": { "items": [
                        { "path": "namespace", "fieldRef": { "fieldPath": "metadata.namespace" } },
                    ] } },
                ] },
            }],
        })
    }

    /// Returns the status of the API server's answer for this token.
    fn status_of(token: &str) -> u16 {
        let header = format!("Authorization: Bearer {token}");
        let arguments = ["-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", &header, "https://127.0.0.1:6443/api"];
        let output = std::process::Command::new("curl").args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap().parse().unwrap()
    }
}
