//! Which certificates are accepted, with which settings: the table of what Go clients do, and where rustls alone differs.

use std::time::Duration;

use rcgen::CertificateParams;

use super::super::tests::server::{Identity, Reply, TestServer, issued, params, self_signed};
use super::super::{Client, Error, Method, Request, Settings, Thumbprint, TlsSettings, TlsTrust};

/// What the server presents and what the CA file holds.
struct Setup {
    identity: Identity,
    ca_file: String,
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    params
}

fn by_authority(leaf: &CertificateParams) -> Setup {
    let (identity, ca_file) = issued(leaf, "Test Authority");
    Setup { identity, ca_file }
}

fn trusted_itself(leaf: &CertificateParams) -> Setup {
    let identity = self_signed(leaf);
    let ca_file = identity.pem.clone();
    Setup { identity, ca_file }
}

fn by_a_stranger(leaf: &CertificateParams) -> Setup {
    Setup { identity: issued(leaf, "Test Authority").0, ca_file: issued(leaf, "Another Authority").1 }
}

fn by_a_rebuilt_authority(leaf: &CertificateParams) -> Setup {
    Setup { identity: issued(leaf, "Test Authority").0, ca_file: issued(leaf, "Test Authority").1 }
}

/// Whether the pin fits the certificate.
#[derive(Clone, Copy, PartialEq)]
enum Pin {
    None,
    Sha1,
    Sha256,
    Second,
    Wrong,
}

impl Pin {
    fn thumbprints(self, der: &[u8]) -> Vec<Thumbprint> {
        let wrong = Thumbprint::sha256_of(b"another certificate");
        match self {
            Pin::None => Vec::new(),
            Pin::Sha1 => vec![Thumbprint::sha1_of(der)],
            Pin::Sha256 => vec![Thumbprint::sha256_of(der)],
            Pin::Second => vec![wrong, Thumbprint::sha1_of(der)],
            Pin::Wrong => vec![wrong],
        }
    }
}

async fn attempt(server: &TestServer, ca_file: &str, pin: Pin, insecure: bool) -> Result<u16, Error> {
    let tls = TlsSettings {
        trust: TlsTrust::Ca { pem: ca_file.as_bytes().to_vec(), path: "/etc/ca.pem".to_owned() },
        thumbprints: pin.thumbprints(&server.certificate),
        insecure,
    };
    let client = Client::new(Settings::new("127.0.0.1", server.port, tls, "test"))?;
    let request = Request::new(Method::Get, "/", "probe", Duration::from_secs(20));
    client.send(request).await.map(|response| response.status)
}

#[tokio::test]
async fn certificates_are_judged_as_go_clients_do() {
    let fits = || params(&["127.0.0.1"], false);
    let authority = || params(&["127.0.0.1"], true);
    let other_name = || params(&["vc.example.com"], false);
    let unnamed = || params(&[], false);
    let untrusted = Some("no trusted authority issued it");
    let named_otherwise = Some("it was issued for other names (");
    let too_old = Some("it has expired");
    let not_pinned = Some("and its thumbprint is not the configured ");
    let cases: [(&str, Setup, Pin, Option<&str>); 24] = [
        ("leaf by CA", by_authority(&fits()), Pin::None, None),
        ("leaf by CA, wrong pin: a pin is only a fallback", by_authority(&fits()), Pin::Wrong, None),
        ("self-signed CA:FALSE in file", trusted_itself(&fits()), Pin::None, None),
        ("self-signed CA:TRUE in file", trusted_itself(&authority()), Pin::None, None),
        ("self-signed CA:TRUE in file, other name", trusted_itself(&params(&["vc"], true)), Pin::None, named_otherwise),
        ("self-signed CA:TRUE in file, expired", trusted_itself(&expired(authority())), Pin::None, too_old),
        ("unknown issuer", by_a_stranger(&fits()), Pin::None, untrusted),
        ("unknown issuer, SHA-1 pin", by_a_stranger(&fits()), Pin::Sha1, None),
        ("unknown issuer, SHA-256 pin", by_a_stranger(&fits()), Pin::Sha256, None),
        ("unknown issuer, second of two pins", by_a_stranger(&fits()), Pin::Second, None),
        ("unknown issuer, wrong pin", by_a_stranger(&fits()), Pin::Wrong, not_pinned),
        ("unknown issuer and CA:TRUE, pin", by_a_stranger(&authority()), Pin::Sha256, None),
        ("issuer rebuilt", by_a_rebuilt_authority(&fits()), Pin::None, Some("was the authority rebuilt?")),
        ("issuer rebuilt, pin", by_a_rebuilt_authority(&fits()), Pin::Sha256, None),
        ("name mismatch", by_authority(&other_name()), Pin::None, named_otherwise),
        ("name mismatch, pin", by_authority(&other_name()), Pin::Sha256, None),
        ("name mismatch, wrong pin", by_authority(&other_name()), Pin::Wrong, not_pinned),
        ("no subject alternative name", by_authority(&unnamed()), Pin::None, Some("it names no host")),
        ("no subject alternative name, pin", by_authority(&unnamed()), Pin::Sha1, None),
        ("expired", by_authority(&expired(fits())), Pin::None, too_old),
        ("expired, pin: never excused", by_authority(&expired(fits())), Pin::Sha256, too_old),
        ("expired by unknown issuer, pin", by_a_stranger(&expired(fits())), Pin::Sha256, too_old),
        ("expired under another name, pin", by_authority(&expired(other_name())), Pin::Sha256, too_old),
        (
            "self-signed not in file, pin",
            {
                let ca_file = issued(&fits(), "Another Authority").1;
                Setup { identity: self_signed(&authority()), ca_file }
            },
            Pin::Sha256,
            None,
        ),
    ];
    for (name, setup, pin, complaint) in cases {
        let server = TestServer::start_as(setup.identity, |_| Reply::json(200, "{}")).await;
        let result = attempt(&server, &setup.ca_file, pin, false).await;
        match (complaint, result) {
            (None, result) => assert_eq!(result.map_err(|error| error.to_string()), Ok(200), "{name}"),
            (Some(complaint), Err(error @ Error::Tls { .. })) => {
                assert!(error.to_string().contains(complaint), "{name}: {error}");
                assert!(!error.is_transient(), "{name}");
            }
            (Some(_), other) => panic!("{name}: {other:?}"),
        }
        let insecure = attempt(&server, &setup.ca_file, pin, true).await;
        assert_eq!(insecure.map_err(|error| error.to_string()), Ok(200), "{name}, insecure");
    }
}

#[tokio::test]
async fn a_refusal_shows_what_was_presented_and_how_to_compare_it() {
    let setup = by_a_stranger(&params(&["127.0.0.1"], false));
    let server = TestServer::start_as(setup.identity, |_| Reply::json(200, "{}")).await;
    let text = attempt(&server, &setup.ca_file, Pin::Wrong, false).await.unwrap_err().to_string();
    let expected = [
        format!("probe at 127.0.0.1:{}: the certificate of 127.0.0.1 is not trusted", server.port),
        "subject CN=vcenter.test".to_owned(),
        "issuer CN=Test Authority".to_owned(),
        "valid 1975-01-01T00:00:00Z to 4096-01-01T00:00:00Z".to_owned(),
        format!("SHA-256 {}", Thumbprint::sha256_of(&server.certificate)),
        format!("SHA-1 {}", Thumbprint::sha1_of(&server.certificate)),
        format!("is not the configured {}", Thumbprint::sha256_of(b"another certificate")),
        format!("`govc about.cert -u 127.0.0.1:{} -k -thumbprint`", server.port),
    ];
    for part in expected {
        assert!(text.contains(&part), "{part:?} is missing in {text}");
    }
    assert_eq!(text.matches(&Thumbprint::sha1_of(&server.certificate).to_string()).count(), 1, "{text}");
}

#[test]
fn a_ca_file_without_a_usable_certificate_is_a_configuration_error_with_its_path() {
    let cases: [(&str, &[u8]); 3] = [
        ("empty", b""),
        ("no certificate", b"just text"),
        ("broken", b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n"),
    ];
    for (name, pem) in cases {
        let trust = TlsTrust::Ca { pem: pem.to_vec(), path: "/etc/ca.pem".to_owned() };
        let tls = TlsSettings { trust, ..TlsSettings::default() };
        let error = Client::new(Settings::new("vc", 443, tls, "test")).unwrap_err();
        assert!(matches!(error, Error::Configuration { .. }), "{name}");
        assert!(error.to_string().contains("/etc/ca.pem"), "{name}: {error}");
    }
}
