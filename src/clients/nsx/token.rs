//! Access tokens of VMware Cloud, obtained with a refresh token.

use std::fmt;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

use super::error::{Error, ErrorAnswer, Kind};
use super::http;
use crate::clients::http::{BodyWriter, Method, Request};

const EXCHANGE: &str = "token.exchange";

/// The largest accepted answer, in bytes. A token has some thousand bytes.
const MAX_BYTES: usize = 64 << 10;

/// Lifetime of a token if the answer has no valid `expires_in`.
const LIFETIME: Duration = Duration::from_secs(1800);

/// Lowest and highest lifetime, in seconds. The lowest lifetime ensures a pause between renewals.
const LIFETIMES: (f64, f64) = (60.0, 86_400.0);

/// An access token for requests. `Debug` does not print the secret.
#[derive(Clone)]
pub struct AccessToken {
    pub(super) secret: SecretString,
    /// Lifetime, which begins with the exchange.
    pub lifetime: Duration,
}

impl AccessToken {
    /// Exchanges a refresh token at this path of the token service, for example
    /// `/csp/gateway/am/api/auth/api-tokens/authorize`.
    ///
    /// # Errors
    /// [`Kind::Rejected`] if the service rejects the refresh token.
    pub async fn exchange(
        http: &http::Client,
        path: &str,
        refresh_token: &SecretString,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let failed = || http.failed(EXCHANGE);
        let target = || format!("POST {path}");
        let mut request = Request::new(Method::POST, path, EXCHANGE, timeout);
        request.headers.push(("Accept", "application/json".to_owned()));
        request.max_bytes = MAX_BYTES;
        request.headers.push(("Content-Type", "application/x-www-form-urlencoded".to_owned()));
        let mut body = BodyWriter::with_capacity(16 + 3 * refresh_token.expose_secret().len());
        body.push_form("refresh_token", refresh_token.expose_secret());
        request.body = body.into();
        let sent = async {
            let response = http.send(request).await;
            let response = response.map_err(|error| Error::http(Kind::Unavailable, failed(), target(), error))?;
            if !response.is_success() {
                let kind = match response.status {
                    400 | 401 | 403 => Kind::Rejected,
                    429 | 503 => Kind::Busy,
                    _ => Kind::Unavailable,
                };
                // Omits the body, which has an unknown form and may repeat the token.
                let refused = ErrorAnswer { status: response.status, ..ErrorAnswer::default() };
                return Err(Error::refused(kind, failed(), target(), refused));
            }
            let unreadable = || Error::other(Kind::Unavailable, failed(), target(), "the answer has no access token");
            read(&response.body).ok_or_else(unreadable)
        };
        http.observed(EXCHANGE, Error::reason, sent).await
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

/// Parses the answer of the service; `None` if it has no access token. `expires_in` may be a number, text or null.
fn read(body: &[u8]) -> Option<AccessToken> {
    let answer: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let token = answer.get("access_token")?.as_str().filter(|token| !token.is_empty())?;
    let seconds = match answer.get("expires_in") {
        Some(Value::Number(number)) => number.as_f64().filter(|seconds| *seconds > 0.0),
        Some(Value::String(text)) => text.trim().parse().ok().filter(|seconds: &f64| *seconds > 0.0),
        _ => None,
    };
    let within = |seconds: f64| Duration::from_secs_f64(seconds.clamp(LIFETIMES.0, LIFETIMES.1));
    let lifetime = seconds.map_or(LIFETIME, within);
    Some(AccessToken { secret: SecretString::from(token), lifetime })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secrecy::ExposeSecret as _;

    use super::read;

    #[test]
    fn l_16_the_lifetime_may_be_a_number_or_text() {
        for (body, expected) in [
            (r#"{"access_token": "t", "expires_in": 1799, "id_token": null}"#, Some(1799)),
            (r#"{"access_token": "t", "expires_in": "1799"}"#, Some(1799)),
            (r#"{"access_token": "t", "expires_in": null}"#, Some(1800)),
            (r#"{"access_token": "t", "expires_in": -4}"#, Some(1800)),
            (r#"{"access_token": "t", "expires_in": 1e300}"#, Some(86_400)),
            (r#"{"access_token": "t", "expires_in": "inf"}"#, Some(86_400)),
            (r#"{"access_token": "t", "expires_in": "NaN"}"#, Some(1800)),
            (r#"{"access_token": "t", "expires_in": 0.001}"#, Some(60)),
            (r#"{"access_token": null}"#, None),
            (r#"{"access_token": ""}"#, None),
            ("<html>", None),
        ] {
            let token = read(body.as_bytes());
            assert_eq!(token.as_ref().map(|token| token.lifetime), expected.map(Duration::from_secs), "{body}");
            assert!(token.is_none_or(|token| token.secret.expose_secret() == "t"));
        }
    }
}
