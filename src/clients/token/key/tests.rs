//! Tests with the forms of certificate and key that users have, and with all kinds of pairs that do not match.

use proptest::prelude::*;
use rcgen::KeyPair;

use super::HolderKey;
use crate::clients::http::tests::server::{params, self_signed};
use crate::clients::token::tests::{CERTIFICATE, KEY, secret};

const PKCS1: &str = include_str!("../../../../tests/golden/sts/holder.pkcs1.key");
const OTHER: &str = include_str!("../../../../tests/golden/sts/other.key");
const ENCRYPTED: &str = include_str!("../../../../tests/golden/sts/encrypted.key");

#[test]
fn pkcs_1_and_pkcs_8_keys_are_the_same_key() {
    for key in [KEY, PKCS1] {
        let pair = HolderKey::from_pem(CERTIFICATE, &secret(key)).unwrap();
        let signature = pair.sign(b"message").unwrap();
        assert_eq!(signature.len(), 344, "256 bytes in base64");
        assert_eq!(signature, HolderKey::from_pem(CERTIFICATE, &secret(KEY)).unwrap().sign(b"message").unwrap());
    }
}

#[test]
fn text_around_the_blocks_and_further_certificates_do_not_matter() {
    let second = self_signed(&params(&["ca"], true)).pem;
    let certificates = format!("subject=ccm\r\n{}\n{second}", CERTIFICATE.replace('\n', "\r\n"));
    let key = format!("Bag Attributes\n{KEY}\n# end");
    let pair = HolderKey::from_pem(&certificates, &secret(&key)).unwrap();
    assert_eq!(pair.certificate(), HolderKey::from_pem(CERTIFICATE, &secret(KEY)).unwrap().certificate());
}

#[test]
fn a_pair_that_cannot_be_used_says_why_and_shows_nothing_of_it() {
    let elliptic = self_signed(&params(&["ec"], false));
    let elliptic_key = elliptic.key.serialize_pem();
    let rsa_as_ec = KeyPair::from_pem(OTHER).unwrap().serialize_pem();
    let cut: String =
        KEY.lines().take(10).chain(["-----END PRIVATE KEY-----"]).map(|line| format!("{line}\n")).collect();
    let no_der = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let no_base64 = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    let cases = [
        ("no certificate", "ccm@vsphere.local", KEY, super::NO_CERTIFICATE),
        ("a key for the certificate", KEY, KEY, super::NO_CERTIFICATE),
        ("a certificate without an end", "-----BEGIN CERTIFICATE-----\nMIID", KEY, super::NO_CERTIFICATE),
        ("a certificate that is none", no_der, KEY, super::BAD_CERTIFICATE),
        ("a certificate that is no base64", no_base64, KEY, super::BAD_CERTIFICATE),
        ("an elliptic pair", &elliptic.pem, &elliptic_key, super::NOT_RSA),
        ("no key", CERTIFICATE, "hunter2", super::NO_KEY),
        ("a certificate for the key", CERTIFICATE, CERTIFICATE, super::NO_KEY),
        ("an elliptic key", CERTIFICATE, &elliptic_key, super::BAD_KEY),
        ("a key that is cut", CERTIFICATE, &cut, super::BAD_KEY),
        ("a key with a passphrase", CERTIFICATE, ENCRYPTED, super::ENCRYPTED),
        ("another's key", CERTIFICATE, &rsa_as_ec, super::MISMATCH),
    ];
    for (name, certificate, key, expected) in cases {
        let error = HolderKey::from_pem(certificate, &secret(key)).unwrap_err();
        assert_eq!(error, expected, "{name}");
        for line in key.lines().chain(certificate.lines()).filter(|line| line.len() > 8 && !line.contains("-----")) {
            assert!(!format!("{error} {error:?}").contains(line), "{name}: {error:?}");
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in ".{0,300}", label in "[A-Z ]{0,24}", inside in "[A-Za-z0-9+/=\\s-]{0,200}") {
        let block = format!("{text}-----BEGIN {label}-----{inside}-----END {label}-----{text}");
        for (certificate, key) in [(text.as_str(), KEY), (&block, KEY), (CERTIFICATE, &text), (CERTIFICATE, &block)] {
            prop_assert!(HolderKey::from_pem(certificate, &secret(key)).is_err());
        }
    }
}
