//! Errors of token requests, with methods that classify the errors for callers.

use crate::clients::http::{self, FailedRequest};
use crate::clients::token::KeyError;

/// Error of a token request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate and key cannot be used; nothing was sent.
    #[error("the certificate cannot be used to log in: {0}")]
    Key(#[from] KeyError),
    /// There is no answer, or the answer does not follow the protocol.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// There is no token service at `host:port`.
    #[error(
        "sts.Issue at {0}: there is no token service (HTTP status 404); expected it at https://{0}{path}, \
         where vCenter 7.0 and later have it",
        path = super::PATH
    )]
    NotThere(String),
    /// The service refused the request. The texts are the fault's code without prefix, such as `FailedAuthentication`,
    /// and the fault's message, possibly empty.
    #[error("{0}: {1}{detail}{hint}", detail = detail(.2), hint = hint(.1))]
    Fault(FailedRequest, String, String),
    /// A malformed answer. The texts are `host:port` and the error.
    #[error("sts.Issue at {0}: the answer cannot be understood: {1}")]
    Malformed(String, String),
}

impl Error {
    /// Returns a stable word for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Key(_) => "Certificate",
            Error::Http(error) => error.reason(),
            Error::NotThere { .. } => "NotThere",
            Error::Fault { .. } if self.is_invalid_login() => "InvalidLogin",
            Error::Fault { .. } if self.is_clock_difference() => "ClockDifference",
            Error::Fault { .. } => "Fault",
            Error::Malformed { .. } => "Malformed",
        }
    }

    /// Whether the service rejected the certificate or the signature.
    pub fn is_invalid_login(&self) -> bool {
        const CODES: [&str; 4] = ["FailedAuthentication", "FailedCheck", "InvalidSecurity", "InvalidSecurityToken"];
        self.has_code(&CODES)
    }

    /// Whether the clocks of this host and of vCenter differ too much.
    pub fn is_clock_difference(&self) -> bool {
        self.has_code(&CLOCK)
    }

    fn has_code(&self, codes: &[&str]) -> bool {
        matches!(self, Error::Fault(_, code, _) if codes.contains(&code.as_str()))
    }
}

const CLOCK: [&str; 2] = ["InvalidTimeRange", "MessageExpired"];

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

fn hint(code: &str) -> &'static str {
    if CLOCK.contains(&code) { " (the clocks of this host and of vCenter must agree within a minute)" } else { "" }
}
