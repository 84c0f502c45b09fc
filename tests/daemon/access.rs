//! The rights that the secure port needs: what the daemon says and does without them.

use support::{ApiServer, Vcenter};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, LIMIT};
use crate::rights::account_without_secrets;

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

/// An API server that is away is no reason to end, whatever it would say.
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
