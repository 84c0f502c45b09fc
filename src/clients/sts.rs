//! vCenter's token service (STS, WS-Trust 1.3): issues a SAML holder-of-key token for a certificate and its key.
//!
//! vCenter 7.0 and later has this service. Each login requests a new token, because a token expires long before the
//! session that it opens.

mod answer;
mod error;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use zeroize::Zeroizing;

use super::http::{self, BodyWriter, Method};
use super::token::signature::{Ids, KeyReference, RSA_SHA256, SignedParts, sign, time};
use super::token::{HolderKey, Token};
pub use error::Error;

/// Path of the token service, on the vCenter's own host and port.
pub const PATH: &str = "/sts/STSService";

const ISSUE: &str = "sts.Issue";
const ACTION: &str = "\"http://docs.oasis-open.org/ws-sx/ws-trust/200512/RST/Issue\"";
const TRUST: &str = "http://docs.oasis-open.org/ws-sx/ws-trust/200512";

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
     xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\">";

/// Lifetime of a token, as in the Go program. It may be short, because the login follows immediately.
const TOKEN_LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// Time limit of the request, as for a login: issuing a token may involve a directory service.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The largest accepted answer, in bytes. A token names the groups of its user, which may be hundreds.
const MAX_BYTES: usize = 1 << 20;

/// Requests a delegatable token for this certificate (PEM) and its RSA key (PEM, PKCS#1 or PKCS#8).
///
/// # Errors
/// [`Error::Key`] if the certificate or key cannot be used; nothing is sent then. [`Error::is_invalid_login`] if the
/// service rejects the certificate or the signature. Such a request must not be repeated quickly.
pub async fn issue(http: &http::Client, certificate: &str, key: &SecretString, now: Timestamp) -> Result<Token, Error> {
    let key = HolderKey::from_pem(certificate, key)?;
    let document = request(&key, now, &Ids::fresh())?;
    let mut request = http::Request::new(Method::POST, PATH, ISSUE, TIMEOUT);
    request.headers.push(("Content-Type", "text/xml; charset=\"utf-8\"".to_owned()));
    request.headers.push(("SOAPAction", ACTION.to_owned()));
    request.body = document;
    request.max_bytes = MAX_BYTES;
    http.observed(ISSUE, Error::reason, async { token_from(http, http.send(request).await?, key) }).await
}

fn request(key: &HolderKey, now: Timestamp, ids: &Ids) -> Result<http::Body, Error> {
    let expires = now.saturating_add(TOKEN_LIFETIME).unwrap_or(now);
    // The body element declares `wsu`. In canonical form, no inner element declares it again.
    let content = format!(
        "<RequestSecurityToken xmlns=\"{TRUST}\"><TokenType>urn:oasis:names:tc:SAML:2.0:assertion</TokenType>\
         <RequestType>{TRUST}/Issue</RequestType><Lifetime><wsu:Created>{}</wsu:Created><wsu:Expires>{}\
         </wsu:Expires></Lifetime><Renewing Allow=\"false\" OK=\"false\"></Renewing><Delegatable>true</Delegatable>\
         <KeyType>{TRUST}/PublicKey</KeyType><SignatureAlgorithm>{RSA_SHA256}</SignatureAlgorithm>\
         <UseKey Sig=\"{}\"></UseKey></RequestSecurityToken>",
        time(now),
        time(expires),
        ids.signature
    );
    let SignedParts { security, body } = sign(&KeyReference::Certificate(key), &content, now, ids)?;
    let mut document = BodyWriter::with_capacity(HEAD.len() + security.len() + body.len() + 100);
    document.push_all(&[HEAD, "<soapenv:Header>", &security, "</soapenv:Header>", &body, "</soapenv:Envelope>"]);
    Ok(document.into())
}

fn token_from(http: &http::Client, mut response: http::Response, key: HolderKey) -> Result<Token, Error> {
    let endpoint = || http.endpoint().to_owned();
    if response.status == 404 {
        return Err(Error::NotThere(endpoint()));
    }
    let body = Zeroizing::new(std::mem::take(&mut response.body));
    let is_success = response.is_success();
    // The assertion is signed, so no byte may be replaced.
    let read = match std::str::from_utf8(&body) {
        Ok(text) => answer::read(text),
        Err(_) => Err("it is no UTF-8".to_owned()),
    };
    match read {
        Ok(answer::TokenAnswer::Fault { code, text }) => Err(Error::Fault(http.failed(ISSUE), code, text)),
        Ok(answer::TokenAnswer::Token { id, assertion }) if is_success => Ok(Token::new(id, assertion, Arc::new(key))),
        Err(message) if is_success => Err(Error::Malformed(endpoint(), message)),
        _ => Err(http.status_error(ISSUE, &response).into()),
    }
}

#[cfg(test)]
mod tests;
