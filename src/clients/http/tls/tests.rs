//! Tests which certificates are accepted with which settings: the behaviour of Go clients, and the differences of
//! rustls. `tests/vcenter/certificates.rs` tests the kinds of certificates that this process cannot present.

use std::time::Duration;

use rcgen::CertificateParams;
use rustls::client::danger::ServerCertVerifier as _;

use super::super::tests::server::{Identity, Reply, TestServer, issued, issued_under, params, self_signed};
use super::super::{Client, Endpoint, Error, Method, Request, Settings, Thumbprint, TlsSettings, TlsTrust};

/// The certificate of the server, and the content of the CA file.
struct Setup {
    identity: Identity,
    ca_file: String,
}

fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    params
}

fn of_the_future(mut params: CertificateParams) -> CertificateParams {
    params.not_before = rcgen::date_time_ymd(4000, 1, 1);
    params
}

fn for_clients(mut params: CertificateParams) -> CertificateParams {
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn by_authority(leaf: &CertificateParams) -> Setup {
    let (identity, ca_file) = issued(leaf, "Test Authority");
    Setup { identity, ca_file }
}

fn by_an_expired_authority(leaf: &CertificateParams) -> Setup {
    let (identity, ca_file) = issued_under(leaf, expired(params(&[], true)));
    Setup { identity, ca_file }
}

fn by_a_server_certificate(leaf: &CertificateParams) -> Setup {
    let (identity, ca_file) = issued_under(leaf, params(&["127.0.0.1"], false));
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

/// The configured thumbprints, and which of them match the certificate.
#[derive(Clone, Copy, PartialEq)]
enum Pin {
    None,
    Sha1,
    Sha256,
    Second,
    Both,
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
            Pin::Both => vec![Thumbprint::sha1_of(der), Thumbprint::sha256_of(der)],
            Pin::Wrong => vec![wrong],
        }
    }
}

async fn attempt(server: &TestServer, ca_file: &str, pin: Pin, insecure: bool) -> Result<u16, Error> {
    let tls = TlsSettings {
        trust: TlsTrust::Ca { pem: ca_file.as_bytes().to_vec(), path: "/etc/ca.pem".to_owned() },
        thumbprints: pin.thumbprints(&server.certificate),
        can_be_pinned: true,
        insecure,
        identity: None,
    };
    let client = Client::new(Settings::new("127.0.0.1", server.port, tls, "test"))?;
    let request = Request::new(Method::GET, "/", "probe", Duration::from_secs(20));
    client.send(request).await.map(|response| response.status)
}

/// NSX is such a server. Its section has no thumbprint, and `govc` cannot connect to it.
#[tokio::test]
async fn a_refusal_of_a_server_without_thumbprints_in_its_configuration_offers_none() {
    for (setup, expected) in [
        (
            by_a_stranger(&params(&["127.0.0.1"], false)),
            "shows on a host with a trusted path to the server; if they agree, put",
        ),
        (by_authority(&params(&["nsx.example.com"], false)), "name the server as in its certificate, or give it a"),
    ] {
        let server = TestServer::start_as(setup.identity, |_| Reply::json(200, "{}")).await;
        let trust = TlsTrust::Ca { pem: setup.ca_file.into_bytes(), path: "/etc/ca.pem".to_owned() };
        let tls = TlsSettings { trust, ..TlsSettings::default() };
        let client = Client::new(Settings::new("127.0.0.1", server.port, tls, "test")).unwrap();
        let request = Request::new(Method::GET, "/", "probe", Duration::from_secs(20));
        let text = client.send(request).await.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("govc") && !text.contains("configure one"), "{text}");
    }
}

#[tokio::test]
async fn certificates_are_judged_as_go_clients_do() {
    let fits = || params(&["127.0.0.1"], false);
    let authority = || params(&["127.0.0.1"], true);
    let other_name = || params(&["vc.example.com"], false);
    let unnamed = || params(&[], false);
    let untrusted = Some("no trusted authority issued it");
    let named_otherwise = Some("it was issued for other names (");
    let no_server = Some("it is not a certificate for servers");
    let too_old = Some("it has expired");
    let too_new = Some("it is not valid yet");
    let not_pinned = Some("and its thumbprint is not the configured ");
    let cases: [(&str, Setup, Pin, Option<&str>); 33] = [
        ("leaf by CA", by_authority(&fits()), Pin::None, None),
        (
            "leaf by CA that has expired: what is trusted has no dates",
            by_an_expired_authority(&fits()),
            Pin::None,
            None,
        ),
        ("leaf by a server certificate in file", by_a_server_certificate(&fits()), Pin::None, untrusted),
        ("leaf by CA, wrong pin: a pin is only a fallback", by_authority(&fits()), Pin::Wrong, None),
        ("self-signed CA:FALSE in file", trusted_itself(&fits()), Pin::None, None),
        ("self-signed CA:TRUE in file", trusted_itself(&authority()), Pin::None, None),
        ("self-signed CA:TRUE in file, other name", trusted_itself(&params(&["vc"], true)), Pin::None, named_otherwise),
        ("self-signed CA:TRUE in file, expired", trusted_itself(&expired(authority())), Pin::None, too_old),
        ("for clients, by CA", by_authority(&for_clients(fits())), Pin::None, no_server),
        ("for clients, in file", trusted_itself(&for_clients(fits())), Pin::None, no_server),
        ("for clients, in file, pin: never excused", trusted_itself(&for_clients(fits())), Pin::Sha256, no_server),
        ("unknown issuer", by_a_stranger(&fits()), Pin::None, untrusted),
        ("unknown issuer, SHA-1 pin", by_a_stranger(&fits()), Pin::Sha1, None),
        ("unknown issuer, SHA-256 pin", by_a_stranger(&fits()), Pin::Sha256, None),
        ("unknown issuer, second of two pins", by_a_stranger(&fits()), Pin::Second, None),
        ("unknown issuer, both pins", by_a_stranger(&fits()), Pin::Both, None),
        ("unknown issuer, wrong pin", by_a_stranger(&fits()), Pin::Wrong, not_pinned),
        ("unknown issuer and CA:TRUE, pin", by_a_stranger(&authority()), Pin::Sha256, None),
        ("issuer rebuilt", by_a_rebuilt_authority(&fits()), Pin::None, Some("was the authority rebuilt?")),
        ("issuer rebuilt, pin", by_a_rebuilt_authority(&fits()), Pin::Sha256, None),
        ("name mismatch", by_authority(&other_name()), Pin::None, named_otherwise),
        ("name mismatch, pin", by_authority(&other_name()), Pin::Sha256, None),
        ("name mismatch, wrong pin", by_authority(&other_name()), Pin::Wrong, not_pinned),
        ("no subject alternative name", by_authority(&unnamed()), Pin::None, Some("it names no host")),
        ("no subject alternative name, pin", by_authority(&unnamed()), Pin::Sha1, None),
        ("not valid yet", by_authority(&of_the_future(fits())), Pin::None, too_new),
        ("not valid yet, pin: never excused", by_authority(&of_the_future(fits())), Pin::Sha256, too_new),
        ("self-signed CA:TRUE in file, expired, pin", trusted_itself(&expired(authority())), Pin::Both, too_old),
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
            (Some(complaint), Err(error @ Error::Certificate { .. })) => {
                assert!(error.to_string().contains(complaint), "{name}: {error}");
                assert!(!error.is_transient(), "{name}");
            }
            (Some(_), other) => panic!("{name}: {other:?}"),
        }
        let insecure = attempt(&server, &setup.ca_file, pin, true).await;
        assert_eq!(insecure.map_err(|error| error.to_string()), Ok(200), "{name}, insecure");
    }
}

/// Checks the whole text of each refusal, as an operator reads it in the log. The values in braces differ from run to
/// run.
#[tokio::test]
async fn a_refusal_says_what_is_wrong_what_was_presented_and_what_mends_it() {
    let wrong = Thumbprint::sha256_of(b"another certificate");
    let presented = |issuer: &str, from: &str, to: &str| {
        format!(
            "presented: [0] subject CN=vcenter.test, issuer {issuer}, valid {from}T00:00:00Z to {to}T00:00:00Z, SHA-256 \
             {{sha256}}, SHA-1 {{sha1}};"
        )
    };
    let compare = "compare the thumbprints with what `govc about.cert -u 127.0.0.1:{port} -k -thumbprint` prints on a \
                   host with a trusted path to vCenter";
    let usual = presented("CN=Test Authority", "1975-01-01", "4096-01-01");
    let cases = [
        (
            "unknown issuer",
            by_a_stranger(&params(&["127.0.0.1"], false)),
            Pin::None,
            format!(
                "no trusted authority issued it; {usual} {compare}; if they agree, put its authority's certificate into \
                 the CA file, or configure one of the thumbprints"
            ),
        ),
        (
            "wrong pin",
            by_a_stranger(&params(&["127.0.0.1"], false)),
            Pin::Wrong,
            format!(
                "no trusted authority issued it, and its thumbprint is not the configured {wrong}; {usual} {compare}; if \
                 they agree, put its authority's certificate into the CA file, or configure one of the thumbprints"
            ),
        ),
        (
            "other name",
            by_authority(&params(&["vc.example.com"], false)),
            Pin::None,
            format!(
                "it was issued for other names (DnsName(\"vc.example.com\")); {usual} name the server as in its \
                 certificate; or {compare}, and configure one of them"
            ),
        ),
        (
            "expired",
            by_authority(&expired(params(&["127.0.0.1"], false))),
            Pin::Sha256,
            format!(
                "it has expired; {} the certificate has to be replaced; neither a CA file nor a thumbprint makes up for \
                 this",
                presented("CN=Test Authority", "2020-01-01", "2021-01-01")
            ),
        ),
        (
            "not valid yet",
            by_authority(&of_the_future(params(&["127.0.0.1"], false))),
            Pin::Sha256,
            format!(
                "it is not valid yet; {} compare the clocks of this host and of the server; neither a CA file nor a \
                 thumbprint makes up for this",
                presented("CN=Test Authority", "4000-01-01", "4096-01-01")
            ),
        ),
    ];
    for (name, setup, pin, expected) in cases {
        let server = TestServer::start_as(setup.identity, |_| Reply::json(200, "{}")).await;
        let error = attempt(&server, &setup.ca_file, pin, false).await.unwrap_err();
        let text = error.to_string();
        let Error::Certificate(_, refusal) = error else { panic!("{name}: {error:?}") };
        // If a configured thumbprint would help, the refusal also has it as a field.
        let thumbprint = expected.contains("configure one").then(|| Thumbprint::sha256_of(&server.certificate));
        assert_eq!((refusal.thumbprint, refusal.is_of_proxy), (thumbprint, false), "{name}");
        let expected = format!("probe at 127.0.0.1:{{port}}: the certificate of 127.0.0.1 is not accepted: {expected}")
            .replace("{port}", &server.port.to_string())
            .replace("{sha256}", &Thumbprint::sha256_of(&server.certificate).to_string())
            .replace("{sha1}", &Thumbprint::sha1_of(&server.certificate).to_string());
        assert_eq!(text, expected, "{name}");
    }
}

/// Tests the verifier without a connection, so that the machine needs no IPv6.
#[test]
fn w29_a_thumbprint_is_used_for_an_ipv6_address_however_it_is_spelled() {
    let identity = self_signed(&params(&["2001:db8::2"], false));
    let leaf = &identity.chain[0];
    let judge = |host: &str, thumbprints: Vec<Thumbprint>| {
        let (_, ca_file) = issued(&params(&["2001:db8::1"], false), "Another Authority");
        let trust = TlsTrust::Ca { pem: ca_file.into_bytes(), path: "/etc/ca.pem".to_owned() };
        let settings = TlsSettings { trust, thumbprints, can_be_pinned: true, ..TlsSettings::default() };
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let endpoint = Endpoint::https(host, 443);
        let verifier = super::verifier(&settings, &endpoint, std::sync::Arc::default(), &provider).unwrap();
        let name = rustls::pki_types::ServerName::try_from("2001:db8::1").unwrap();
        let verified = verifier.verify_server_cert(leaf, &[], &name, &[], rustls::pki_types::UnixTime::now());
        verified.map(|_| ()).map_err(|error| format!("{error:?}"))
    };
    for host in ["2001:db8::1", "2001:DB8:0:0::1"] {
        assert_eq!(judge(host, vec![Thumbprint::sha256_of(leaf)]), Ok(()), "{host}");
        assert_eq!(judge(host, vec![Thumbprint::sha1_of(leaf)]), Ok(()), "{host}");
        let reported = judge(host, Vec::new()).unwrap_err();
        assert!(reported.contains(&format!("`govc about.cert -u [{host}] -k -thumbprint`")), "{reported}");
    }
    let told = judge("2001:db8::7", vec![Thumbprint::sha256_of(leaf)]).unwrap_err();
    assert!(told.contains("the certificate of the proxy 2001:db8::1"), "{told}");
}

#[tokio::test]
async fn the_whole_chain_is_shown_as_it_was_presented() {
    let mut setup = by_a_stranger(&params(&["127.0.0.1"], false));
    let above: Vec<_> = (0..5).map(|_| self_signed(&params(&[], true)).chain[0].clone()).collect();
    setup.identity.chain.extend(above.clone());
    let server = TestServer::start_as(setup.identity, |_| Reply::json(200, "{}")).await;
    let text = attempt(&server, &setup.ca_file, Pin::None, false).await.unwrap_err().to_string();
    for (position, certificate) in [&server.certificate].into_iter().chain(&above).take(4).enumerate() {
        let print = Thumbprint::sha256_of(certificate).to_string();
        let part = text.split_once(&format!("[{position}] subject CN=vcenter.test, ")).unwrap().1;
        assert!(part.split_once(';').unwrap().0.contains(&print), "{position}: {text}");
    }
    assert!(!text.contains("[4]"), "a stranger's chain is not shown without measure: {text}");
}

#[tokio::test]
async fn what_a_stranger_wrote_into_a_certificate_breaks_no_line_and_has_a_measure() {
    let mut strange = params(&["127.0.0.1"], false);
    strange.distinguished_name.push(rcgen::DnType::CommonName, format!("a\nlevel=info msg={}", "x".repeat(5000)));
    let setup = by_a_stranger(&strange);
    let server = TestServer::start_as(setup.identity, |_| Reply::json(200, "{}")).await;
    let text = attempt(&server, &setup.ca_file, Pin::None, false).await.unwrap_err().to_string();
    assert!(!text.contains('\n') && text.len() < 2000, "{text}");
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

#[test]
fn a_public_service_is_verified_whatever_holds_for_the_server_it_goes_with() {
    let (pem, path) = (b"certificates".to_vec(), "ca.pem".to_owned());
    let cases = [
        (TlsTrust::System, TlsTrust::System),
        (
            TlsTrust::Ca { pem: pem.clone(), path: path.clone() },
            TlsTrust::SystemAnd { pem: pem.clone(), path: path.clone() },
        ),
        (TlsTrust::SystemAnd { pem: pem.clone(), path: path.clone() }, TlsTrust::SystemAnd { pem, path }),
    ];
    for (trust, expected) in cases {
        for insecure in [false, true] {
            let of_server = TlsSettings { trust: trust.clone(), insecure, ..TlsSettings::default() };
            let of_service = TlsSettings { trust: expected.clone(), ..TlsSettings::default() };
            assert_eq!(of_server.of_public_service(), of_service, "{trust:?}, insecure: {insecure}");
        }
    }
}
