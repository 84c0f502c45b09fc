//! Credentials of one request, in the form in which they are sent.

use std::sync::Arc;

use http::HeaderValue;
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

/// The error for unusable credentials. Contains no text of a file and no output of a program.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct CredentialsError(pub(super) String);

#[derive(Clone, Default)]
pub(super) struct RequestCredentials {
    /// The value of the `Authorization` header.
    pub(super) header: Option<HeaderValue>,
    /// The client certificate from an `exec` program.
    pub(super) identity: Option<Arc<CertifiedKey>>,
}

pub(super) fn bearer(token: &str) -> Result<HeaderValue, CredentialsError> {
    let token = token.trim();
    let text = Zeroizing::new(format!("Bearer {token}"));
    match HeaderValue::from_str(&text) {
        _ if token.is_empty() => Err(CredentialsError("the token is empty".to_owned())),
        Ok(header) if !token.contains(char::is_whitespace) => Ok(sensitive(header)),
        _ => Err(CredentialsError(
            "the token has characters that cannot be sent, such as a line break or a blank".to_owned(),
        )),
    }
}

/// Returns the `Authorization` header for the token in a file.
pub(super) fn token_header(content: &[u8]) -> Result<HeaderValue, CredentialsError> {
    let text = std::str::from_utf8(content).map_err(|_| CredentialsError("the file is not text".to_owned()))?;
    bearer(text.trim_start_matches('\u{feff}'))
}

/// Marks the header as sensitive, so that logs do not show it.
pub(super) fn sensitive(mut header: HeaderValue) -> HeaderValue {
    header.set_sensitive(true);
    header
}
