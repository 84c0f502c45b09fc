//! Authentication and authorization of requests by a real API server.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm::kubernetes::access::{
    Authorization, ClientTrust, DelegatedAuthenticator, LookupResult, Metrics, OpenPaths, Permissions, TokenReviews,
    follow_published,
};
use ccm::runtime::admin::access::{Authenticator, Authorizer, NotAuthenticated, RequestCredentials, User};
use http::{HeaderMap, HeaderName, HeaderValue};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::config::Kubeconfig;
use kube::{Api, Client};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use support::rbac::{self, Subject};
use support::{ApiServer, eventually, unique};

const LIMIT: Duration = Duration::from_secs(60);

/// Returns an authenticator and an authorizer that ask this API server and cache nothing.
fn access(client: &Client, trust: &ClientTrust) -> (DelegatedAuthenticator, Permissions) {
    let metrics = Metrics::default();
    let tokens = TokenReviews::new(client.clone(), Duration::ZERO, &metrics);
    let (allowed_cache, refused_cache) = (Duration::ZERO, Duration::ZERO);
    let settings = Authorization { kubeconfig: None, always_allow: OpenPaths::default(), allowed_cache, refused_cache };
    (
        DelegatedAuthenticator::new(trust.clone(), tokens, metrics.clone()),
        Permissions::new(client.clone(), &settings, metrics),
    )
}

async fn who(
    delegated: &DelegatedAuthenticator,
    certificates: &[CertificateDer<'static>],
    headers: &[(&'static str, &str)],
) -> Result<Option<User>, NotAuthenticated> {
    let parse =
        |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    let headers: HeaderMap = headers.iter().map(parse).collect();
    delegated.authenticate(RequestCredentials { headers: &headers, certificates }).await
}

/// Returns the user with this token.
async fn whose(delegated: &DelegatedAuthenticator, token: &str) -> Result<Option<User>, NotAuthenticated> {
    who(delegated, &[], &[("authorization", &format!("Bearer {token}"))]).await
}

/// Returns name and token of a new service account.
async fn service_account(server: &ApiServer) -> (String, String) {
    let name = unique("prometheus");
    let (_, token) = server.create_service_account("default", &name).await;
    (name, token)
}

#[tokio::test]
async fn tokens_are_known_with_their_groups_and_may_what_rbac_says() {
    let server = ApiServer::shared().await;
    let client = server.client().await;
    let (delegated, permissions) = access(&client, &ClientTrust::default());
    let (name, token) = service_account(server).await;

    let user = whose(&delegated, &token).await.unwrap().unwrap();
    assert_eq!(user.name, format!("system:serviceaccount:default:{name}"));
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
    assert_eq!(user.groups, groups);
    assert!(!user.uid.is_empty() && user.extra.contains_key("authentication.kubernetes.io/credential-id"), "{user:?}");
    let tampered = whose(&delegated, &format!("{token}x")).await;
    assert!(matches!(tampered, Err(NotAuthenticated::Invalid)), "{tampered:?}");
    assert_eq!(who(&delegated, &[], &[]).await.unwrap(), None);

    let nobody = User::anonymous();
    let mut admin = User { name: "jane".to_owned(), ..User::default() };
    for (user, verb, path, expected) in [
        (&user, "get", "/metrics", false),
        (&nobody, "get", "/metrics", false),
        // The ClusterRole system:public-info-viewer is for all users.
        (&nobody, "get", "/version", true),
        (&nobody, "post", "/version", false),
        (&admin, "get", "/metrics", false),
    ] {
        assert_eq!(permissions.is_allowed(user, verb, path).await.unwrap(), expected, "{} {verb} {path}", user.name);
    }
    admin.groups.push("system:masters".to_owned());
    assert!(permissions.is_allowed(&admin, "delete", "/metrics").await.unwrap());

    // The user gets the right through a group, which works only if the group is passed on.
    let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    rbac::grant(&client, None, &name, Subject::Group(&name), rules).await;
    let member = User { groups: vec![name.clone()], ..user.clone() };
    eventually("the role counts", LIMIT, async || match permissions.is_allowed(&member, "get", "/metrics").await {
        Ok(true) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(!permissions.is_allowed(&user, "get", "/metrics").await.unwrap(), "without the group");
    assert!(!permissions.is_allowed(&member, "put", "/metrics").await.unwrap(), "another verb");
}

#[tokio::test]
async fn who_may_not_ask_is_told_so() {
    let server = ApiServer::shared().await;
    let client = server.client_of(&unique("nobody")).await;
    let (delegated, permissions) = access(&client, &ClientTrust::default());
    let (_, token) = service_account(server).await;
    let error = whose(&delegated, &token).await.unwrap_err();
    let NotAuthenticated::Unknown(error) = error else { panic!("{error:?}") };
    assert!(error.to_string().starts_with("create a TokenReview: "), "{error}");
    let user = User { name: "jane".to_owned(), ..User::default() };
    let error = permissions.is_allowed(&user, "get", "/metrics").await.unwrap_err();
    assert!(error.to_string().starts_with("create a SubjectAccessReview: "), "{error}");
    let (mut looks, following) = follow_published(client, ClientTrust::default());
    let following = tokio::spawn(following);
    let look = tokio::time::timeout(LIMIT, looks.wait_for(|look| !matches!(look, LookupResult::Pending)));
    let look = look.await.unwrap().unwrap().clone();
    assert!(matches!(&look, LookupResult::Forbidden(error) if error.is_forbidden()), "{look:?}");
    following.abort();
}

/// A certificate authority that is not the cluster's.
struct Other {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Other {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, "another CA");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(parameters, key), pem }
    }

    fn sign(&self, name: &str) -> Vec<CertificateDer<'static>> {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        vec![parameters.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()]
    }
}

/// Reads the client certificate in a kubeconfig.
fn certificate_in(path: &std::path::Path) -> Vec<CertificateDer<'static>> {
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let data = kubeconfig.auth_infos[0].auth_info.as_ref().unwrap().client_certificate_data.clone().unwrap();
    let pem = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data).unwrap();
    CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().unwrap()
}

/// Waits until the owner of this certificate is the expected user.
async fn until(
    what: &str,
    delegated: &DelegatedAuthenticator,
    certificates: &[CertificateDer<'static>],
    expected: &str,
) {
    eventually(what, LIMIT, async || match who(delegated, certificates, &[]).await {
        Ok(Some(user)) if format!("{} in {}", user.name, user.groups.join(",")) == expected => Ok(()),
        Err(NotAuthenticated::Invalid) if expected == "wrong" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// Has a separate API server, because the ConfigMap applies to all clients of an API server.
#[tokio::test]
async fn certificates_are_believed_as_the_config_map_says_while_it_changes_and_proxies_never_are() {
    let server = ApiServer::start().await;
    let admin = server.client().await;
    let name = unique("ccm");
    let role = "extension-apiserver-authentication-reader";
    rbac::bind(&admin, Some("kube-system"), &name, Subject::User(&name), role).await;

    // The Role of Kubernetes itself is sufficient for the read and for the watch.
    let trust = ClientTrust::default();
    let (delegated, _) = access(&admin, &trust);
    let (_looks, following) = follow_published(server.client_of(&name).await, trust);
    let following = tokio::spawn(following);

    let (jane, root) = (certificate_in(&server.kubeconfig_of("jane")), certificate_in(&server.kubeconfig()));
    until("jane is known", &delegated, &jane, "jane in system:authenticated").await;
    until("so is an administrator", &delegated, &root, "admin in system:masters,system:authenticated").await;
    let other = Other::new();
    let john = other.sign("john");
    until("john is a stranger", &delegated, &john, "wrong").await;

    let maps = Api::<ConfigMap>::namespaced(admin, "kube-system");
    let cluster_ca =
        maps.get("extension-apiserver-authentication").await.unwrap().data.unwrap()["client-ca-file"].clone();
    let patch = async |data: &BTreeMap<&str, String>| {
        let patch = Patch::Merge(json!({"data": data}));
        maps.patch("extension-apiserver-authentication", &PatchParams::default(), &patch).await.unwrap();
    };
    patch(&BTreeMap::from([("client-ca-file", format!("{cluster_ca}{}", other.pem))])).await;
    until("john's authority is believed", &delegated, &john, "john in system:authenticated").await;
    until("jane is still known", &delegated, &jane, "jane in system:authenticated").await;

    // The proxies in the ConfigMap, and the users in their requests, are never accepted. Once john is unknown again,
    // the authenticator has read the ConfigMap with the proxies.
    let proxies = Other::new();
    let list = |item: &str| json!([item]).to_string();
    patch(&BTreeMap::from([
        ("client-ca-file", cluster_ca.clone()),
        ("requestheader-client-ca-file", proxies.pem.clone()),
        ("requestheader-allowed-names", list("front-proxy-client")),
        ("requestheader-username-headers", list("X-Remote-User")),
        ("requestheader-group-headers", list("X-Remote-Group")),
        ("requestheader-extra-headers-prefix", list("X-Remote-Extra-")),
    ]))
    .await;
    until("john's authority is not believed any more", &delegated, &john, "wrong").await;
    let says = [("x-remote-user", "ann"), ("x-remote-group", "system:masters"), ("x-remote-extra-scopes", "all")];
    let front = who(&delegated, &proxies.sign("front-proxy-client"), &says).await;
    assert!(matches!(front, Err(NotAuthenticated::Invalid)), "{front:?}");
    assert_eq!(who(&delegated, &[], &says).await.unwrap(), None, "without a certificate");
    let user = who(&delegated, &jane, &says).await.unwrap().unwrap();
    assert_eq!((user.name.as_str(), user.groups.as_slice()), ("jane", &["system:authenticated".to_owned()][..]));
    assert!(!user.extra.contains_key("scopes"), "{user:?}");

    // An invalid list in the ConfigMap has no effect here.
    patch(&BTreeMap::from([
        ("client-ca-file", format!("{cluster_ca}{}", other.pem)),
        ("requestheader-allowed-names", "front-proxy-client".to_owned()),
    ]))
    .await;
    until("john is known again", &delegated, &john, "john in system:authenticated").await;
    following.abort();
}
