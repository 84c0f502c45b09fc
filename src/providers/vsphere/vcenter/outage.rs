//! Pure: classifies outages of a vCenter. A class has a headline for the log, and a reason and message for Nodes.

use crate::base::error_chain::chain;
use crate::clients::{http, vim};
use crate::cloud::Reason;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::vcenter::snapshot::{ConnectionStep, VcenterFailure};

const FIRST_CALL: &str = "RetrieveServiceContent";

/// Kinds of outages that require different actions of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    NameNotResolved,
    ConnectionRefused,
    /// The proxy provides no connection.
    ProxyFailed,
    /// The certificate of the server is rejected.
    CertificateRejected,
    HandshakeFailed,
    /// The connection settings cannot be used, so nothing was sent.
    NotConnectable,
    CredentialsMissing,
    /// The credentials were not read yet, or cannot be read.
    CredentialsUnread,
    LoginRejected,
    LoginDelayed {
        /// Whether the server rejected the same credentials before.
        was_rejected: bool,
    },
    /// The session manager issues no ticket for a session.
    NoTicket,
    NotVcenter,
    /// vCenter refuses a call because the account lacks a permission.
    PermissionDenied,
    /// The server answers with an error or with an invalid message.
    ErrorAnswered,
    NoAnswer,
}

impl Outage {
    pub(super) fn of_http(error: &http::Error) -> Self {
        use http::Error as E;
        match error {
            E::Resolve(..) => Outage::NameNotResolved,
            // Matches the text of the operating system, because the HTTP library has no type for this error.
            E::Connect(_, message) if message.contains("refused") => Outage::ConnectionRefused,
            E::Proxy(..) => Outage::ProxyFailed,
            E::Certificate(_, refusal) if refusal.is_of_proxy => Outage::ProxyFailed,
            E::Certificate(..) => Outage::CertificateRejected,
            E::Tls(..) => Outage::HandshakeFailed,
            E::Configuration { .. } => Outage::NotConnectable,
            // A server that sends such a code is not a vCenter, because an overloaded or starting vCenter returns other
            // codes. After a successful first call, a gateway or proxy before the vCenter refused the request.
            E::Status(request, 200..=407 | 409..=428, _) => match request.operation == FIRST_CALL {
                true => Outage::NotVcenter,
                false => Outage::ErrorAnswered,
            },
            E::TooLarge(..) | E::TooManyValues(..) => Outage::ErrorAnswered,
            E::Connect(..)
            | E::Timeout(..)
            | E::Status(..)
            | E::Broken(..)
            | E::NotPermitted(..)
            | E::PermitEnded(..) => Outage::NoAnswer,
        }
    }

    pub(super) fn of_soap(error: &vim::Error) -> Self {
        match error {
            _ if error.is_invalid_login() => Outage::LoginRejected,
            _ if error.is_no_permission() => Outage::PermissionDenied,
            vim::Error::Http(error) => Self::of_http(error),
            vim::Error::NotVcenter(..) => Outage::NotVcenter,
            vim::Error::Fault(..) | vim::Error::Malformed(..) => Outage::ErrorAnswered,
        }
    }

    /// Whether messages of Nodes refer to the log for the cause.
    pub(super) fn is_logged(self) -> bool {
        matches!(self, Outage::CertificateRejected | Outage::ProxyFailed)
    }

    /// Returns the beginning of the log line.
    pub(super) fn headline(self) -> &'static str {
        match self {
            Outage::NameNotResolved => "the host name of vCenter cannot be resolved",
            Outage::ConnectionRefused => "the connection to vCenter is refused",
            Outage::ProxyFailed => "the proxy gives no connection to vCenter",
            Outage::CertificateRejected => "the certificate of vCenter is not accepted",
            Outage::HandshakeFailed => "the TLS handshake with vCenter fails",
            Outage::NotConnectable => "the settings of the connection to vCenter cannot be used",
            Outage::CredentialsMissing => "no credentials for vCenter",
            Outage::CredentialsUnread => "the credentials for vCenter are not read",
            Outage::LoginRejected => "vCenter rejected the login",
            Outage::LoginDelayed { .. } => "the login to vCenter is delayed",
            Outage::NoTicket => "the session manager gives no session for vCenter",
            Outage::NotVcenter => "the server is not a vCenter",
            Outage::PermissionDenied => "the account lacks a permission in vCenter",
            Outage::ErrorAnswered => "vCenter answers with an error",
            Outage::NoAnswer => "vCenter does not answer",
        }
    }

    /// Returns the reason for Nodes whose VMs may be in this vCenter.
    pub(super) fn reason(self) -> Reason {
        match self {
            Outage::CertificateRejected => reason::VCenterCertificateRejected,
            Outage::CredentialsMissing => reason::CredentialsMissing,
            Outage::LoginRejected | Outage::LoginDelayed { was_rejected: true } => reason::CredentialsRejected,
            _ => reason::VCenterUnavailable,
        }
    }

    /// Returns the step of the connection that fails.
    fn step(self) -> ConnectionStep {
        match self {
            Outage::NameNotResolved | Outage::NotConnectable => ConnectionStep::Resolution,
            Outage::ConnectionRefused | Outage::ProxyFailed | Outage::HandshakeFailed | Outage::NoAnswer => {
                ConnectionStep::Network
            }
            Outage::CertificateRejected => ConnectionStep::Certificate,
            Outage::NotVcenter => ConnectionStep::Product,
            Outage::CredentialsMissing | Outage::CredentialsUnread => ConnectionStep::Credentials,
            Outage::LoginRejected | Outage::LoginDelayed { .. } | Outage::NoTicket => ConnectionStep::Login,
            Outage::PermissionDenied | Outage::ErrorAnswered => ConnectionStep::Reads,
        }
    }

    /// Returns the message for Nodes that wait for the vCenter: a short text if there is one, otherwise `cause`. Only
    /// the log line of the vCenter has the details. The message is short because every waiting Node carries it.
    fn brief(self, cause: String) -> String {
        let words = match self {
            Outage::NameNotResolved => "its host name cannot be resolved",
            Outage::ConnectionRefused => "the connection is refused",
            Outage::CertificateRejected => {
                "its certificate is not accepted; the log has one line about this vCenter that says why and how to accept it"
            }
            Outage::NotVcenter => "the server at this address is not a vCenter",
            Outage::ProxyFailed => {
                "the proxy gives no connection; the log has one line about this vCenter that says why"
            }
            _ => return cause,
        };
        words.to_owned()
    }

    /// Converts the outage to `VcenterFailure`. `why` is the full text, and `cause` is the cause alone.
    pub(super) fn vcenter_failure(self, why: String, cause: String) -> VcenterFailure {
        VcenterFailure { reason: self.reason(), message: why, summary: self.brief(cause), step: self.step() }
    }
}

/// Returns the text of a certificate or proxy error without the operation, so that all calls that fail for this reason
/// have the same text. Returns the full text of any other error.
pub(super) fn cause_of(error: &vim::Error) -> String {
    match error {
        vim::Error::Http(http::Error::Certificate(_, refusal)) => refusal.to_string(),
        vim::Error::Http(http::Error::Proxy(_, proxy, reason)) => format!("{proxy}: {reason}"),
        other => chain(other),
    }
}

pub(super) fn failure_of(error: &vim::Error) -> VcenterFailure {
    Outage::of_soap(error).vcenter_failure(chain(error), chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::http::{Error as E, FailedRequest};

    fn request() -> FailedRequest {
        FailedRequest { endpoint: "vc:443".to_owned(), operation: "RetrieveServiceContent" }
    }

    #[test]
    fn an_outage_fails_at_one_step_of_the_connection() {
        for (outage, step) in [
            (Outage::NameNotResolved, ConnectionStep::Resolution),
            (Outage::NoAnswer, ConnectionStep::Network),
            (Outage::CertificateRejected, ConnectionStep::Certificate),
            (Outage::NotVcenter, ConnectionStep::Product),
            (Outage::CredentialsUnread, ConnectionStep::Credentials),
            (Outage::LoginDelayed { was_rejected: false }, ConnectionStep::Login),
            (Outage::PermissionDenied, ConnectionStep::Reads),
        ] {
            assert_eq!(outage.vcenter_failure(String::new(), String::new()).step, step, "{outage:?}");
        }
    }

    #[test]
    fn the_headline_of_an_outage_is_its_cause() {
        let status = |code| E::Status(request(), code, "text/html".to_owned());
        for (case, error, headline) in [
            (
                "no such name",
                E::Resolve(request(), "dns error".to_owned()),
                "the host name of vCenter cannot be resolved",
            ),
            (
                "nothing listens",
                E::Connect(request(), "tcp connect error: Connection refused (os error 111)".to_owned()),
                "the connection to vCenter is refused",
            ),
            ("no route", E::Connect(request(), "No route to host".to_owned()), "vCenter does not answer"),
            (
                "a proxy",
                E::Proxy(request(), "http://p:1".to_owned(), "Connection refused".to_owned()),
                "the proxy gives no connection to vCenter",
            ),
            ("no TLS", E::Tls(request(), "corrupt message".to_owned()), "the TLS handshake with vCenter fails"),
            ("a web server", status(200), "the server is not a vCenter"),
            ("a page that is not there", status(404), "the server is not a vCenter"),
            ("starting", status(503), "vCenter does not answer"),
            (
                "refused on the way to a vCenter that answered before",
                E::Status(FailedRequest { operation: "FindAllByUuid", ..request() }, 403, "text/html".to_owned()),
                "vCenter answers with an error",
            ),
            ("too many requests", status(429), "vCenter does not answer"),
            ("late", E::Timeout(request(), std::time::Duration::from_secs(5)), "vCenter does not answer"),
        ] {
            let error = vim::Error::Http(error);
            assert_eq!(Outage::of_soap(&error).headline(), headline, "{case}");
            assert_eq!(failure_of(&error).reason, reason::VCenterUnavailable, "{case}");
        }
        let esxi = vim::Error::NotVcenter("esx:443".to_owned(), "VMware ESXi (HostAgent)".to_owned());
        assert_eq!(Outage::of_soap(&esxi).headline(), "the server is not a vCenter");
    }

    #[test]
    fn the_cause_of_an_outage_that_the_log_tells_does_not_name_the_call() {
        let proxy = |operation, text: &str| {
            let request = FailedRequest { endpoint: "vc:443".to_owned(), operation };
            cause_of(&vim::Error::Http(E::Proxy(request, "p:3128".to_owned(), text.to_owned())))
        };
        assert_eq!(proxy("FindAllByUuid", "refused"), proxy("RetrievePropertiesEx", "refused"));
        assert_ne!(proxy("FindAllByUuid", "refused"), proxy("FindAllByUuid", "407"));
        assert!(proxy("FindAllByUuid", "407").contains("p:3128"));
    }

    #[test]
    fn nodes_are_told_of_an_outage_in_a_few_words_or_with_its_cause() {
        for (outage, reported) in [
            (Outage::ConnectionRefused, "the connection is refused"),
            (Outage::NoAnswer, "cause"),
            (Outage::ErrorAnswered, "cause"),
            (Outage::CredentialsUnread, "cause"),
            (Outage::CredentialsMissing, "cause"),
        ] {
            assert_eq!(outage.vcenter_failure("all".to_owned(), "cause".to_owned()).to_string(), reported);
        }
        let rejected = Outage::CertificateRejected.vcenter_failure("x".repeat(1_000), "x".repeat(1_000));
        assert_eq!(rejected.reason.as_str(), "VCenterCertificateRejected");
        let told = rejected.to_string();
        assert!(told.starts_with("its certificate is not accepted;") && told.len() < 120, "{told}");
    }

    #[test]
    fn what_nodes_are_told_refers_to_the_log_only_where_each_failure_has_a_line() {
        for outage in [
            Outage::NameNotResolved,
            Outage::ConnectionRefused,
            Outage::ProxyFailed,
            Outage::CertificateRejected,
            Outage::NotVcenter,
            Outage::ErrorAnswered,
        ] {
            let is_referred = outage.brief("cause".to_owned()).contains("the log has one line");
            assert_eq!(is_referred, outage.is_logged(), "{outage:?}");
        }
    }

    #[test]
    fn missing_credentials_are_no_outage_of_vcenter() {
        let missing = Outage::CredentialsMissing;
        assert_eq!(
            (missing.headline(), missing.reason().as_str()),
            ("no credentials for vCenter", "CredentialsMissing")
        );
        let unread = Outage::CredentialsUnread;
        assert_eq!(
            (unread.headline(), unread.reason()),
            ("the credentials for vCenter are not read", reason::VCenterUnavailable)
        );
        for (was_rejected, word) in [(true, "CredentialsRejected"), (false, "VCenterUnavailable")] {
            assert_eq!(Outage::LoginDelayed { was_rejected }.reason().as_str(), word);
        }
    }
}
