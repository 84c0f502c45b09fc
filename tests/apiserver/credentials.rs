//! Credentials of a kubeconfig with a real API server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ccm::kubernetes::client::{Settings, purpose, read_config, unguarded};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Api;
use kube::api::PostParams;
use support::ApiServer;

macro_rules! golden {
    ($name:literal) => {
        include_str!(concat!("../golden/credentials/", $name))
    };
}

/// Such certificates exist in clusters: `openssl x509 -req` creates them if it gets no extensions.
#[tokio::test]
async fn a_client_certificate_of_version_1_names_its_user() {
    let server = ApiServer::with_client_authorities(golden!("ca.crt")).await;
    let path = server.kubeconfig();
    let mut kubeconfig: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    kubeconfig["users"][0]["user"] = serde_json::json!({
        "client-certificate-data": STANDARD.encode(golden!("rsa-version1.crt")),
        "client-key-data": STANDARD.encode(golden!("rsa.key")),
    });
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let config = read_config(&Settings { kubeconfig: Some(path), ..Settings::default() }).await.unwrap();
    let reviews: Api<SelfSubjectReview> = Api::all(unguarded(&config, purpose::PROCESS).unwrap());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    assert_eq!(review.status.unwrap().user_info.unwrap().username.as_deref(), Some("v1"));
}
