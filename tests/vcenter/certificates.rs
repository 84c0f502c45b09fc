//! Certificates that this process cannot present, presented by the simulator: weak keys, old versions,
//! SHA-1. `src/clients/http/tls/tests.rs` covers the certificates that it can present.
//!
//! The files were made with `openssl ca`, valid from 2000 to 2100, for `127.0.0.1` and `localhost`. The authority in
//! `ca.pem` issued `rsa1024` and `sha1`. `v1` is self-signed.

use ccm::clients::http::{Error, Method, Request, Thumbprint, TlsSettings, TlsTrust};
use std::time::Duration;
use support::{Scenario, Vcenter};

use crate::https_with;

const AUTHORITY: &str = include_str!("certificates/ca.pem");
const RSA1024: (&str, &str) = (include_str!("certificates/rsa1024.pem"), include_str!("certificates/rsa1024.key"));
const V1: (&str, &str) = (include_str!("certificates/v1.pem"), include_str!("certificates/v1.key"));
const SHA1: (&str, &str) = (include_str!("certificates/sha1.pem"), include_str!("certificates/sha1.key"));

async fn attempt(vcenter: &Vcenter, ca_file: &str, is_pinned: bool) -> Result<u16, Error> {
    let pin = Thumbprint::parse(vcenter.sha256_thumbprint()).unwrap();
    let tls = TlsSettings {
        trust: TlsTrust::Ca { pem: ca_file.as_bytes().to_vec(), path: "ca.pem".to_owned() },
        thumbprints: is_pinned.then_some(pin).into_iter().collect(),
        insecure: false,
        identity: None,
        can_be_pinned: true,
    };
    let request = Request::new(Method::GET, "/sdk/vimServiceVersions.xml", "probe", Duration::from_secs(20));
    https_with(vcenter, tls).send(request).await.map(|response| response.status)
}

#[tokio::test]
async fn certificates_that_the_tls_library_cannot_use_are_refused_even_when_pinned_and_say_so() {
    let cases = [
        ("RSA of 1024 bits", RSA1024, AUTHORITY, "its RSA key has 1024 bits; at least 2048 are needed; "),
        ("X.509 version 1, itself in the CA file", V1, V1.0, "it is of X.509 version 1; only version 3 can be used; "),
    ];
    for (name, (certificate, key), ca_file, complaint) in cases {
        let vcenter = Vcenter::start(&Scenario::small().certificate(certificate, key)).await;
        for is_pinned in [false, true] {
            let error = attempt(&vcenter, ca_file, is_pinned).await.unwrap_err();
            assert!(matches!(error, Error::Certificate { .. }), "{name}: {error:?}");
            let text = error.to_string();
            for part in
                [complaint, vcenter.sha256_thumbprint(), "the certificate has to be replaced; neither a CA file"]
            {
                assert!(text.contains(part), "{name}: {part:?} is missing in {text}");
            }
        }
    }
}

/// As in Go, which treats a chain with SHA-1 as a chain from an unknown authority.
#[tokio::test]
async fn a_sha1_signature_is_refused_and_a_thumbprint_excuses_it() {
    let vcenter = Vcenter::start(&Scenario::small().certificate(SHA1.0, SHA1.1)).await;
    let error = attempt(&vcenter, AUTHORITY, false).await.unwrap_err();
    assert!(matches!(error, Error::Certificate { .. }), "{error:?}");
    assert!(error.to_string().contains("is signed in a way that is no longer trusted, such as SHA-1; "), "{error}");
    assert_eq!(attempt(&vcenter, AUTHORITY, true).await.unwrap(), 200);
}
