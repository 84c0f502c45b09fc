//! Tests with servers that request a client certificate.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::super::{Client, ClientIdentity, Error, Method, Request, Settings, Thumbprint, TlsSettings};
use super::server::{Identity, Reply, TestServer, issued, params, self_signed};

/// Returns a client certificate with its key, and the certificate of its authority.
fn principal() -> (Identity, CertificateDer<'static>) {
    let (identity, authority) = issued(&params(&["principal"], false), "Principals");
    (identity, CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
}

fn identity(principal: &Identity) -> ClientIdentity {
    ClientIdentity::from_pem(principal.pem.as_bytes(), principal.key.serialize_pem().as_bytes(), "p.pem").unwrap()
}

fn client(server: &TestServer, identity: Option<ClientIdentity>) -> Client {
    let thumbprints = vec![Thumbprint::sha256_of(&server.certificate)];
    let tls = TlsSettings { thumbprints, identity, ..TlsSettings::default() };
    Client::new(Settings::new("127.0.0.1", server.port, tls, "test")).unwrap()
}

async fn status(client: &Client) -> Result<u16, Error> {
    let request = Request::new(Method::GET, "/", "probe", Duration::from_secs(20));
    client.send(request).await.map(|response| response.status)
}

async fn asking_for(authority: CertificateDer<'static>) -> TestServer {
    let own = self_signed(&params(&["127.0.0.1"], false));
    TestServer::start_for(own, Some(authority), |_| Reply::json(200, "{}")).await
}

#[tokio::test]
async fn a_client_certificate_opens_a_server_that_asks_for_one_and_a_new_one_holds_for_new_connections() {
    let ((own, authority), (other, _)) = (principal(), principal());
    let server = asking_for(authority).await;
    let with = client(&server, Some(identity(&own)));
    assert_eq!(status(&with).await.unwrap(), 200);
    assert!(status(&client(&server, None)).await.is_err(), "without a certificate");
    with.set_tls(TlsSettings { identity: Some(identity(&other)), ..with.current().tls }).unwrap();
    assert!(status(&with).await.is_err(), "the idle connection was used again");
    with.set_tls(TlsSettings { identity: Some(identity(&own)), ..with.current().tls }).unwrap();
    assert_eq!(status(&with).await.unwrap(), 200);
}

#[tokio::test]
async fn the_certificate_goes_along_to_the_same_host_only() {
    let (own, authority) = principal();
    let server = asking_for(authority).await;
    let url = format!("https://127.0.0.1:{}", server.port);
    let same = client(&server, Some(identity(&own)));
    assert_eq!(status(&same.sibling(&url).unwrap()).await.unwrap(), 200);
    let elsewhere = Settings::new("nsx.example.com", 1, same.current().tls, "test");
    let sibling = Client::new(elsewhere).unwrap().sibling(&url).unwrap();
    assert_eq!(sibling.current().tls.identity, None);
}

#[test]
fn what_cannot_be_used_is_refused_without_its_content() {
    let ((own, _), (other, _)) = (principal(), principal());
    let (certificate, key) = (own.pem.as_bytes(), own.key.serialize_pem());
    let other_key = other.key.serialize_pem();
    let cases: [(&[u8], &[u8], &str); 5] = [
        (b"", key.as_bytes(), "holds no certificate"),
        (b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n", key.as_bytes(), "is not valid PEM"),
        (certificate, b"", "holds no private key"),
        (certificate, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not supported"),
        (certificate, other_key.as_bytes(), "not that of the certificate"),
    ];
    for (certificate, key, expected) in cases {
        let error = ClientIdentity::from_pem(certificate, key, "/etc/c.pem").unwrap_err();
        assert!(error.contains("/etc/c.pem") && error.contains(expected), "{error}");
    }
    let identity = identity(&own);
    assert_eq!(format!("{identity:?}"), "ClientIdentity(\"p.pem\")");
}

/// A certificate of version 1, which `openssl x509 -req` issues when no extensions are given.
const VERSION_1: &str = "-----BEGIN CERTIFICATE-----\n\
     MIIBGDCBvwIUJZGhX6JX0XVky1zmMI3KhZG4BEswCgYIKoZIzj0EAwIwDjEMMAoG\n\
     A1UEAwwDY2NtMCAXDTI2MTEyNDE2MDMyNFoYDzIxMjYxMDMxMTYwMzI0WjAOMQww\n\
     CgYDVQQDDANjY20wWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATLtf3vO9Fx3INY\n\
     yh0ugB7hLnANXgbWNj/vOyQ0UzsVRxb7R1I9AjoDzXM4V8Fnn+letVRbkXm7H1WG\n\
     F3+p83tYMAoGCCqGSM49BAMCA0gAMEUCIQDBcwJ/aXZpKalTHw+8VeMlTnb5gozd\n\
     9W3ZXCQiIs003QIgIXCTIP6DfHrLLjVXKuCw8V9wKxfuVKCMPEzzGXjjxVc=\n\
     -----END CERTIFICATE-----\n";
const ITS_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
     MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgo0BnTJl0SIa/+H8F\n\
     ESAsbBgdSbigoThFlh7Q8oCBzw2hRANCAATLtf3vO9Fx3INYyh0ugB7hLnANXgbW\n\
     Nj/vOyQ0UzsVRxb7R1I9AjoDzXM4V8Fnn+letVRbkXm7H1WGF3+p83tY\n\
     -----END PRIVATE KEY-----\n";

#[test]
fn a_client_certificate_of_version_1_is_used_with_its_own_key_only() {
    let read = |certificate: &str, key: &str| {
        ClientIdentity::from_pem(certificate.as_bytes(), key.as_bytes(), "p.pem").map(drop)
    };
    assert_eq!(read(VERSION_1, ITS_KEY), Ok(()));
    let other = principal().0.key.serialize_pem();
    let mismatch = "the client certificate p.pem cannot be used: the private key is not that of the certificate";
    assert_eq!(read(VERSION_1, &other), Err(mismatch.to_owned()));
    let unreadable = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let expected = "the client certificate p.pem cannot be used: the certificate cannot be read";
    assert_eq!(read(unreadable, ITS_KEY), Err(expected.to_owned()));
}
