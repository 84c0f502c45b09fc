//! The rights that the secure port needs, the daemon's behaviour and log without them, and its connection to the API
//! server.

use serde_json::json;
use support::{ApiServer, Clock, Vcenter};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, LIMIT};
use crate::rights::account_without_secrets;
use crate::secrets::administrator;

/// The Go program's rights name neither reviews nor, in the ClusterRole, the ConfigMap.
#[tokio::test]
async fn missing_rights_are_told_once_with_what_to_grant() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let (admin, kubeconfig) = (Admin::new(), account_without_secrets(&cluster).await);

    let mut daemon = cluster.start(&config, &[&admin.flag(), &kubeconfig]);
    assert_eq!(daemon.wait(LIMIT).await.code(), Some(1), "{}", daemon.output().tail(20));
    let told = daemon.output().lines().join("\n");
    for text in ["extension-apiserver-authentication-reader", "--authentication-tolerate-lookup-failure", "forbidden"] {
        assert!(told.contains(text), "{text} in {told}");
    }

    let tolerates = "--authentication-tolerate-lookup-failure";
    let mut daemon = cluster.start(&config, &[&admin.flag(), &kubeconfig, tolerates]);
    let token = token(&cluster).await;
    for _ in 0..3 {
        for (token, expected) in [(Some(token.as_str()), 401), (None, 500)] {
            let (status, text) = admin.get("/metrics", token, &mut daemon).await;
            assert_eq!(status, expected, "{text}");
        }
        assert_eq!(admin.get("/healthz", Some("bad"), &mut daemon).await, (200, "ok".to_owned()));
    }
    let lines = daemon.output().lines();
    for text in [
        "may not create TokenReviews",
        "may not create SubjectAccessReviews",
        "bind the user of this process to the Role extension-apiserver-authentication-reader",
    ] {
        let count = lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(count, 1, "{text} in {}", lines.join("\n"));
    }
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

/// The API server publishes the authority that issued this certificate.
#[tokio::test]
async fn where_a_file_names_the_authorities_of_clients_those_of_the_api_server_are_not_believed() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let own = rcgen::generate_simple_self_signed(vec!["other".to_owned()]).unwrap();
    let path = cluster.folder().join(format!("{}.ca", cluster.pool()));
    std::fs::write(&path, own.cert.pem()).unwrap();
    let client = ApiServer::shared().await.administrator_pem();
    let flag = format!("--client-ca-file={}", path.display());
    for (flags, expected) in [(vec![], 200), (vec![flag.as_str()], 401)] {
        let identity = reqwest::Identity::from_pem(client.as_bytes()).unwrap();
        let admin = Admin::with(|builder| builder.identity(identity));
        let port = admin.flag();
        let mut daemon = cluster.start(&config, &[&[port.as_str()], &flags[..]].concat());
        let (status, text) = admin.get("/metrics", None, &mut daemon).await;
        assert_eq!(status, expected, "{flags:?}: {text}");
        assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    }
}

/// The daemon waits for an unreachable API server at the start, and does not end.
#[tokio::test]
async fn an_api_server_that_is_away_at_the_start_is_waited_for() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..1)).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let server = ApiServer::shared().await;
    let text = std::fs::read_to_string(server.kubeconfig()).unwrap();
    let away = format!("https://127.0.0.1:{}", support::api_server::free_port());
    let path = cluster.folder().join(format!("{}.kubeconfig", cluster.pool()));
    std::fs::write(&path, text.replace(&server.url(), &away)).unwrap();
    let admin = Admin::new();
    let kubeconfig = format!("--kubeconfig={}", path.display());
    let mut daemon = cluster.start(&config, &[&admin.flag(), &kubeconfig]);
    assert_eq!(admin.get("/livez", None, &mut daemon).await, (200, "ok".to_owned()));
    assert_eq!(admin.get("/metrics", Some("token"), &mut daemon).await.0, 401);
    assert_eq!(admin.get("/metrics", None, &mut daemon).await.0, 500);
    assert!(daemon.ended().is_none());
}

/// U8: the token file is read again about once a minute, as client-go does. L5: a connection without verification is
/// logged as a warning.
#[tokio::test]
async fn a_token_in_a_file_is_read_again_and_a_server_that_is_not_verified_is_a_warning() {
    let (cluster, server) = (Cluster::new().await, ApiServer::shared().await);
    let (_, token) = administrator(&cluster).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let path = |end: &str| cluster.folder().join(format!("{}.{end}", cluster.pool()));
    std::fs::write(path("token"), &token).unwrap();
    let kubeconfig = json!({
        "clusters": [{"name": "c", "cluster": {"server": server.url(), "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"tokenFile": path("token")}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    });
    std::fs::write(path("kubeconfig"), kubeconfig.to_string()).unwrap();
    let clock = Clock::new(cluster.folder());
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let flag = format!("--kubeconfig={}", path("kubeconfig").display());
    let mut daemon = cluster.start_in(&clock.environment(), &config, &[&flag]);
    daemon.wait_for_line("the certificate of the API server is not checked", LIMIT).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &daemon).await;

    std::fs::write(path("token"), "exchanged").unwrap();
    clock.set_ahead(60);
    cluster.register(1..2).await;
    daemon.wait_for_line("Unauthorized", LIMIT).await;
    std::fs::write(path("token"), &token).unwrap();
    clock.set_ahead(120);
    cluster.wait_until_initialized(1..2, &daemon).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}
