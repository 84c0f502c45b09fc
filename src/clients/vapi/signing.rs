//! The `Authorization: SIGN` header: a REST login with a holder-of-key token.

use std::io::Write as _;
use std::net::Ipv6Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::clients::token::{KeyError, Token};

/// Returns the value of the header for a request without a body. `endpoint` is `host:port`. The nonce is the time in
/// milliseconds, a colon, and a unique number.
pub(super) fn authorization(
    token: &Token,
    method: &str,
    path: &str,
    endpoint: &str,
    nonce: &str,
) -> Result<SecretString, KeyError> {
    let body_hash = Sha256::digest(b"");
    let (host, port) = signed_authority(endpoint);
    let mut message = format!("{nonce}\n{method}\n{path}\n{host}\n{port}\n").into_bytes();
    message.extend_from_slice(&body_hash);
    message.push(b'\n');
    let signature = token.key().sign(&message)?;
    let token = packed(token.assertion());
    let proof = format!(
        "signature_alg=\"RSA-SHA256\", signature=\"{signature}\", nonce=\"{nonce}\", bodyhash=\"{}\"",
        STANDARD.encode(body_hash)
    );
    // The capacity equals the final length, so the conversion to a secret copies nothing.
    let parts = ["SIGN token=\"", token.as_str(), "\", ", proof.as_str()];
    let mut value = String::with_capacity(parts.iter().map(|part| part.len()).sum());
    value.extend(parts);
    Ok(value.into())
}

/// Returns the host and port to sign. The server takes both from `Host`, and assumes port 80 if `Host` has no port. The
/// HTTP client omits port 443 from `Host`.
fn signed_authority(endpoint: &str) -> (String, &str) {
    let (host, port) = endpoint.rsplit_once(':').unwrap_or((endpoint, "443"));
    let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = match literal.and_then(|literal| literal.parse::<Ipv6Addr>().ok()) {
        Some(address) => format!("[{address}]"),
        None => host.to_lowercase(),
    };
    (host, if port == "443" { "80" } else { port })
}

fn packed(assertion: &str) -> Zeroizing<String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(assertion.as_bytes());
    Zeroizing::new(STANDARD.encode(Zeroizing::new(encoder.finish().unwrap_or_default())))
}

#[cfg(test)]
mod tests;
