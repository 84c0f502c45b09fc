//! A certificate with its key, for the tests of all clients that sign.

use std::sync::Arc;

use jiff::Timestamp;
use secrecy::SecretString;

use super::{HolderKey, Token};

pub(crate) const CERTIFICATE: &str = include_str!("../../../tests/golden/sts/holder.crt");
pub(crate) const KEY: &str = include_str!("../../../tests/golden/sts/holder.key");
pub(crate) const ASSERTION: &str = "<saml2:Assertion xmlns:saml2=\"urn:oasis:names:tc:SAML:2.0:assertion\" \
     ID=\"_token-1\"><saml2:Subject>ccm &amp; co</saml2:Subject></saml2:Assertion>";

pub(crate) fn secret(text: &str) -> SecretString {
    SecretString::from(text.to_owned())
}

pub(crate) fn holder_key() -> HolderKey {
    HolderKey::from_pem(CERTIFICATE, &secret(KEY)).unwrap()
}

pub(crate) fn token() -> Token {
    Token::new("_token-1", secret(ASSERTION), Arc::new(holder_key()))
}

pub(crate) fn now() -> Timestamp {
    "2026-03-01T10:00:00.1239Z".parse().unwrap()
}

#[test]
fn a_token_and_its_key_print_neither_assertion_nor_key() {
    let token = token();
    let printed = format!("{token:?} {:?}", token.key());
    assert_eq!(printed, "Token { .. } HolderKey { .. }");
}
