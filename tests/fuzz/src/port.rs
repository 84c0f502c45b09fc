//! Fuzz targets for the authentication of the secure port, and for keys and certificates in PEM.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use ccm::clients::http::{Client, Settings, TlsSettings, TlsTrust};
use ccm::clients::token::HolderKey;
use ccm::kubernetes::access::{
    ClientTrust, DelegatedAuthenticator, LookupResult, Metrics, TokenReviews, check_bundle, follow_published,
};
use ccm::runtime::admin::access::{Authenticator, NotAuthenticated, RequestCredentials, User};
use ccm::runtime::admin::given_certificate;
use http::{HeaderMap, HeaderName, HeaderValue};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::CertificateDer;
use secrecy::SecretString;

use crate::laws::{SECRET, is_told_well};
use crate::memory::{api_server, run};

/// A certificate authority and the certificate that it issued to `jane`.
struct Authority {
    pem: String,
    client: CertificateDer<'static>,
}

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| make().expect("certificates can be made"))
}

fn make() -> Result<Authority, rcgen::Error> {
    let (mut ours, key) = (CertificateParams::new(Vec::new())?, KeyPair::generate()?);
    ours.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ours.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let pem = ours.self_signed(&key)?.pem();
    let mut client = CertificateParams::new(Vec::new())?;
    client.distinguished_name = rcgen::DistinguishedName::new();
    client.distinguished_name.push(DnType::CommonName, "jane");
    client.distinguished_name.push(DnType::OrganizationName, "team");
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let client = client.signed_by(&KeyPair::generate()?, &Issuer::new(ours, key))?.into();
    Ok(Authority { pem, client })
}

/// Authenticates a request at a port with this trust. The API server rejects every token.
fn user(
    trust: ClientTrust,
    headers: &HeaderMap,
    certificate: &CertificateDer<'static>,
) -> Result<Option<User>, NotAuthenticated> {
    run(async {
        let server = api_server(|_, _, sent| (201, sent));
        let metrics = Metrics::default();
        let tokens = TokenReviews::new(server, Duration::from_secs(1), &metrics);
        let certificates = std::slice::from_ref(certificate);
        DelegatedAuthenticator::new(trust, tokens, metrics)
            .authenticate(RequestCredentials { headers, certificates })
            .await
    })
}

/// Reads headers of a request, `Name: value`. With a trusted certificate they change nothing. Without one they
/// authenticate nobody, because the API server rejects every token here.
pub fn headers(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|&byte| byte == b'\n').take(200) {
        let at = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(at);
        let value = value.strip_prefix(b":").unwrap_or(value).trim_ascii();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let Authority { pem, client } = authority();
    let trust = ClientTrust::default();
    trust.trust_clients(pem.as_bytes()).expect("a bundle");
    match user(trust, &headers, client) {
        Ok(Some(user)) => {
            assert_eq!((user.name.as_str(), user.uid.as_str(), user.extra.len()), ("jane", "", 1), "{user:?}");
            assert_eq!(user.groups, ["team", "system:authenticated"], "headers name groups");
        }
        other => panic!("headers hide the certificate: {other:?}"),
    }
    assert!(!matches!(user(ClientTrust::default(), &headers, client), Ok(Some(_))), "headers name a user");
}

/// Modifies a valid client certificate. Each change has four bytes: two are the position, one is the mask. Only the
/// unmodified certificate is accepted. The input is also tried as a certificate itself.
pub fn certificate(bytes: &[u8]) {
    let Authority { pem, client } = authority();
    let mut changed = client.to_vec();
    for change in bytes.chunks_exact(4) {
        let [high, low, what, _] = change else { continue };
        let at = usize::from(u16::from_be_bytes([*high, *low])) % changed.len();
        if let Some(byte) = changed.get_mut(at) {
            *byte ^= what;
        }
    }
    for der in [changed, bytes.to_vec()] {
        let trust = ClientTrust::default();
        trust.trust_clients(pem.as_bytes()).expect("a bundle");
        let is_good = der == client.to_vec();
        let found = user(trust, &HeaderMap::new(), &CertificateDer::from(der));
        match found {
            Ok(Some(user)) => assert!(is_good && user.name == "jane", "{user:?} is believed"),
            Ok(None) => assert!(!is_good, "the good certificate names nobody"),
            Err(error) => assert!(!is_good, "{error}"),
        }
    }
}

/// Reads the answer of the API server about a token. Only a user that the answer authenticates is accepted.
pub fn review(bytes: &[u8]) {
    for status in [201, 403, 500] {
        let body = bytes.to_vec();
        let found = run(async move {
            let server = api_server(move |_, _, _| (status, body.clone()));
            TokenReviews::new(server, Duration::from_secs(1), &Metrics::default()).user_of(SECRET).await
        });
        match found {
            Ok(None) => {}
            Ok(Some(user)) => {
                let said: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
                let said = said.get("status").cloned().unwrap_or_default();
                assert_eq!(status, 201, "HTTP status {status} is taken for a user");
                assert_eq!(said.get("authenticated"), Some(&serde_json::Value::Bool(true)), "{said}");
                let name = said.pointer("/user/username").and_then(serde_json::Value::as_str);
                assert_eq!(name, Some(user.name.as_str()), "{said}");
                assert!(!user.name.is_empty(), "{said}");
            }
            // The error may repeat the answer of the API server.
            Err(error) if !String::from_utf8_lossy(bytes).contains(SECRET) => is_token_hidden(&error),
            Err(_) => {}
        }
    }
}

fn is_token_hidden(error: &(dyn std::error::Error + 'static)) {
    crate::laws::hides_secret(&ccm::base::error_chain::chain(error));
}

/// Reads the ConfigMap in which the API server publishes its client certificate authorities: lines of `key=value`,
/// where `\n` is a line break.
pub fn client_authorities(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let data: BTreeMap<&str, String> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key, value.replace("\\n", "\n").replace("%CA%", &authority().pem)))
        .collect();
    let says_clients = data.get("client-ca-file").is_some_and(|ca| ca.contains("BEGIN CERTIFICATE"));
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system", "resourceVersion": "1"},
    });
    let map = map.to_string().into_bytes();
    let trust = ClientTrust::default();
    let believed = trust.clone();
    let look = run(async move {
        let server = api_server(move |_, _, _| (200, map.clone()));
        let (mut looks, work) = follow_published(server, believed);
        let looked =
            async { looks.wait_for(|look| !matches!(look, LookupResult::Pending)).await.map(|look| look.clone()) };
        tokio::select! {
            look = looked => look.expect("it looks for ever"),
            never = work => match never {},
        }
    });
    assert!(matches!(look, LookupResult::Done), "{look:?}");
    let Authority { client, .. } = authority();
    let is_known = matches!(user(trust, &HeaderMap::new(), client), Ok(Some(_)));
    assert!(!is_known || says_clients, "somebody is believed of whom nothing is published");
}

/// Reads certificates and keys in PEM, as in files of `vsphere.conf`, flags and Secrets. No key is reported.
pub fn pem(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = HolderKey::from_pem(&text, &SecretString::from(text.as_ref())) {
        is_told_well(&error);
    }
    let certificate = include_str!("../../golden/sts/holder.crt");
    match HolderKey::from_pem(certificate, &SecretString::from(text.as_ref())) {
        Ok(key) => assert_eq!(format!("{key:?}"), "HolderKey { .. }"),
        Err(error) => is_told_well(&error),
    }
    if let Err(error) = given_certificate(bytes, bytes) {
        crate::laws::hides_secret(&ccm::base::error_chain::chain(&error));
    }
    let is_bundle = check_bundle(bytes).is_ok();
    assert!(!is_bundle || text.contains("BEGIN "), "a bundle without a certificate");
    let trust = TlsTrust::Ca { pem: bytes.to_vec(), path: "/ca.pem".to_owned() };
    let tls = TlsSettings { trust, ..TlsSettings::default() };
    if let Err(error) = Client::new(Settings::new("vc.example.com", 443, tls, "fuzz")) {
        is_told_well(&error);
    }
}
