//! What goes with a request to the API server, and what of it can be sent at all.

use std::sync::Arc;

use http::HeaderValue;
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

/// The credentials for the API server cannot be used. Holds no text of a file, and no output of a program.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct CredentialsError(pub(super) String);

/// What goes with one request.
#[derive(Clone, Default)]
pub(super) struct Proof {
    /// The value of the header `Authorization`.
    pub(super) header: Option<HeaderValue>,
    /// The client certificate that a program supplied.
    pub(super) identity: Option<Arc<CertifiedKey>>,
}

/// The header with a token.
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

/// The header with the token that a file holds.
pub(super) fn token_header(content: &[u8]) -> Result<HeaderValue, CredentialsError> {
    let text = std::str::from_utf8(content).map_err(|_| CredentialsError("the file is not text".to_owned()))?;
    bearer(text.trim_start_matches('\u{feff}'))
}

/// No log shows it.
pub(super) fn sensitive(mut header: HeaderValue) -> HeaderValue {
    header.set_sensitive(true);
    header
}
