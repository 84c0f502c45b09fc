//! Tests of the signed text: host and port as the server sees them, in both framings.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{authorization, signed_authority};
use crate::clients::http::tests::server::{Received, Reply, TestServer};
use crate::clients::token::tests::{ASSERTION, holder_key, now, token};
use crate::clients::vapi::{Client, Framing};

/// Returns a parameter of the header.
fn parameter<'a>(header: &'a str, name: &str) -> &'a str {
    let (_, rest) = header.split_once(&format!("{name}=\"")).unwrap();
    rest.split_once('"').unwrap().0
}

/// Returns true if the signature in the header is valid for this text and the hash of an empty body, with the key of
/// the holder.
fn is_signed(header: &str, text: &str) -> bool {
    let signature = STANDARD.decode(parameter(header, "signature")).unwrap();
    let message = [text.as_bytes(), &Sha256::digest(b""), b"\n"].concat();
    let key = holder_key();
    let (_, certificate) = X509Certificate::from_der(key.certificate()).unwrap();
    let public = certificate.public_key().subject_public_key.data.to_vec();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public).verify(&message, &signature).is_ok()
}

#[test]
fn the_server_sees_the_host_header_and_reads_port_80_without_one() {
    let cases = [
        ("vc.example.com:443", "vc.example.com", "80"),
        ("VC.Example.com:8443", "vc.example.com", "8443"),
        ("10.0.0.5:443", "10.0.0.5", "80"),
        ("[fd00::5]:443", "[fd00::5]", "80"),
        ("[FD00:0::5]:8443", "[fd00::5]", "8443"),
    ];
    for (endpoint, host, port) in cases {
        assert_eq!(signed_authority(endpoint), (host.to_owned(), port), "{endpoint}");
    }
}

#[test]
fn the_header_holds_the_token_compressed_and_a_signature_over_the_request() {
    let header = authorization(&token(), "POST", "/api/session", "VC.example.com:443", "1772359200123:42").unwrap();
    let header = header.expose_secret();
    assert!(header.starts_with("SIGN token=\"") && header.ends_with('"'));
    assert_eq!(parameter(header, "signature_alg"), "RSA-SHA256");
    assert_eq!(parameter(header, "nonce"), "1772359200123:42");
    assert_eq!(parameter(header, "bodyhash"), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    let packed = STANDARD.decode(parameter(header, " token")).unwrap();
    let mut unpacked = String::new();
    GzDecoder::new(packed.as_slice()).read_to_string(&mut unpacked).unwrap();
    assert_eq!(unpacked, ASSERTION);
    assert!(is_signed(header, "1772359200123:42\nPOST\n/api/session\nvc.example.com\n80\n"));
    assert!(!is_signed(header, "1772359200123:42\nPOST\n/api/session\nvc.example.com\n443\n"));
}

#[tokio::test]
async fn a_login_in_the_api_form_is_signed_for_its_own_path() {
    let answer = |received: &Received| match received.line.as_str() {
        "POST /api/session" => Reply::json(201, "\"id-1\""),
        _ => Reply::Whole(404, Vec::new(), Vec::new()),
    };
    let server = TestServer::start(answer).await;
    let client = Client::new(server.client());
    client.login_signed(&token(), now()).await.unwrap();
    assert_eq!(client.inner.session.lock().as_ref().map(|session| session.framing), Some(Framing::Api));
    let received = server.received();
    assert_eq!(received.len(), 2);
    for request in &received {
        let header = request.header("authorization").unwrap();
        let nonce = parameter(header, "nonce");
        let (time, number) = nonce.split_once(':').unwrap();
        assert_eq!(time, "1772359200123");
        assert!(number.parse::<i64>().is_ok_and(|number| number >= 0), "{nonce}");
        let path = request.line.strip_prefix("POST ").unwrap();
        assert!(is_signed(header, &format!("{nonce}\nPOST\n{path}\n127.0.0.1\n{}\n", server.port)), "{path}");
    }
}

#[tokio::test]
async fn a_refused_token_is_an_invalid_login_and_sent_once() {
    let server = TestServer::start(|_| Reply::Whole(401, Vec::new(), Vec::new())).await;
    let client = Client::new(server.client());
    let error = client.login_signed(&token(), now()).await.unwrap_err();
    assert!(error.is_invalid_login(), "{error}");
    assert!(!format!("{error} {error:?}").contains("saml2"), "{error:?}");
    assert_eq!((server.received().len(), client.has_session()), (1, false));
}
