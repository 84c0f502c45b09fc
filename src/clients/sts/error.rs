//! Why the token service issued nothing, and what a caller may do about it.

use crate::clients::http;
use crate::clients::token::KeyError;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificate and key cannot be used; nothing was sent.
    #[error("the certificate cannot be used to log in: {0}")]
    Key(#[from] KeyError),
    /// No answer of the protocol.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// There is no token service.
    #[error(
        "sts.Issue at {endpoint}: there is no token service (HTTP status 404); expected it at https://{endpoint}{path}, \
         where vCenter 7.0 and later have it",
        path = super::PATH
    )]
    NotThere {
        /// `host:port`.
        endpoint: String,
    },
    /// The service refused.
    #[error("sts.Issue at {endpoint}: {code}{}{}", detail(text), hint(code))]
    Fault {
        /// `host:port`.
        endpoint: String,
        /// The fault's code without prefix, for example `FailedAuthentication`.
        code: String,
        /// The service's text, possibly empty.
        text: String,
    },
    /// An answer that cannot be understood.
    #[error("sts.Issue at {endpoint}: the answer cannot be understood: {message}")]
    Malformed {
        /// `host:port`.
        endpoint: String,
        /// What is wrong with it.
        message: String,
    },
}

impl Error {
    /// A stable word for metrics and events.
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

    /// The service rejected the certificate or what was signed with its key.
    pub fn is_invalid_login(&self) -> bool {
        const CODES: [&str; 4] = ["FailedAuthentication", "FailedCheck", "InvalidSecurity", "InvalidSecurityToken"];
        self.has_code(&CODES)
    }

    /// The clocks of this machine and of vCenter differ too much.
    pub fn is_clock_difference(&self) -> bool {
        self.has_code(&CLOCK)
    }

    /// The same request may well succeed later without anybody changing a setting.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Http(error) => error.is_transient(),
            Error::Malformed { .. } => true,
            Error::Fault { .. } => !self.is_invalid_login(),
            Error::Key(_) | Error::NotThere { .. } => false,
        }
    }

    fn has_code(&self, codes: &[&str]) -> bool {
        matches!(self, Error::Fault { code, .. } if codes.contains(&code.as_str()))
    }
}

const CLOCK: [&str; 2] = ["InvalidTimeRange", "MessageExpired"];

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

fn hint(code: &str) -> &'static str {
    if CLOCK.contains(&code) { " (the clocks of this machine and of vCenter must agree within a minute)" } else { "" }
}
