//! The series about who asks at the secure port, under the names, labels and buckets of `kubernetes/apiserver`.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

use crate::runtime::metrics::Registry;

/// What every part of the delegation counts. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Metrics {
    /// TokenReviews.
    pub(super) authentication: Requests,
    /// SubjectAccessReviews.
    pub(super) authorization: Requests,
    users: IntCounterVec,
    authentications: Attempts,
    authorizations: Attempts,
}

/// Questions to the API server.
#[derive(Clone)]
pub(super) struct Requests {
    total: IntCounterVec,
    duration: HistogramVec,
}

/// Requests at the secure port.
#[derive(Clone)]
struct Attempts {
    total: IntCounterVec,
    duration: HistogramVec,
}

/// What came of finding out who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Authenticated<'a> {
    /// A user of this name, which may be the anonymous one.
    User(&'a str),
    /// What was shown is wrong or cannot be checked.
    Failed,
}

/// What came of finding out what somebody may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Authorized {
    Allowed,
    Denied,
    NoOpinion,
    Failed,
}

const VALID: &str = "the names and labels are valid";

impl Default for Metrics {
    fn default() -> Self {
        let users =
            Opts::new("authenticated_user_requests", "Counter of authenticated requests broken out by username.");
        Self {
            authentication: Requests::new("authn"),
            authorization: Requests::new("authz"),
            users: IntCounterVec::new(users, &["username"]).expect(VALID),
            authentications: Attempts::new(
                ["authentication_attempts", "Counter of authenticated attempts."],
                ["authentication_duration_seconds", "Authentication duration in seconds broken out by result."],
            ),
            authorizations: Attempts::new(
                [
                    "authorization_attempts_total",
                    "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', \
                     'no-opinion' or 'error'.",
                ],
                ["authorization_duration_seconds", "Authorization duration in seconds broken out by result."],
            ),
        }
    }
}

impl Metrics {
    /// Adds the series. Two of one name are an error.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.users.clone()))?;
        for requests in [&self.authentication, &self.authorization] {
            registry.register(Box::new(requests.total.clone()))?;
            registry.register(Box::new(requests.duration.clone()))?;
        }
        for attempts in [&self.authentications, &self.authorizations] {
            registry.register(Box::new(attempts.total.clone()))?;
            registry.register(Box::new(attempts.duration.clone()))?;
        }
        Ok(())
    }

    pub(super) fn count_authentication(&self, outcome: Authenticated<'_>, took: Duration) {
        let result = match outcome {
            Authenticated::User(name) => {
                self.users.with_label_values(&[shown_name(name)]).inc();
                "success"
            }
            Authenticated::Failed => "error",
        };
        self.authentications.count(result, took);
    }

    pub(super) fn count_authorization(&self, outcome: Authorized, took: Duration) {
        let result = match outcome {
            Authorized::Allowed => "allowed",
            Authorized::Denied => "denied",
            Authorized::NoOpinion => "no-opinion",
            Authorized::Failed => "error",
        };
        self.authorizations.count(result, took);
    }
}

impl Requests {
    fn new(kind: &str) -> Self {
        let total = Opts::new(
            format!("apiserver_delegated_{kind}_request_total"),
            "Number of HTTP requests partitioned by status code.",
        );
        let duration = HistogramOpts::new(
            format!("apiserver_delegated_{kind}_request_duration_seconds"),
            "Request latency in seconds. Broken down by status code.",
        );
        let duration = duration.buckets(vec![0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0]);
        Self {
            total: IntCounterVec::new(total, &["code"]).expect(VALID),
            duration: HistogramVec::new(duration, &["code"]).expect(VALID),
        }
    }

    /// `code` is the HTTP status, or `<error>` where there is none.
    pub(super) fn count(&self, code: &str, took: Duration) {
        self.total.with_label_values(&[code]).inc();
        self.duration.with_label_values(&[code]).observe(took.as_secs_f64());
    }
}

impl Attempts {
    fn new([total, total_help]: [&str; 2], [duration, duration_help]: [&str; 2]) -> Self {
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 15).expect(VALID);
        let duration = HistogramOpts::new(duration, duration_help).buckets(buckets);
        Self {
            total: IntCounterVec::new(Opts::new(total, total_help), &["result"]).expect(VALID),
            duration: HistogramVec::new(duration, &["result"]).expect(VALID),
        }
    }

    fn count(&self, result: &str, took: Duration) {
        self.total.with_label_values(&[result]).inc();
        self.duration.with_label_values(&[result]).observe(took.as_secs_f64());
    }
}

/// So that there are few of them, as `compressUsername` in `pkg/endpoints/filters/metrics.go`.
fn shown_name(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => name,
        _ if name.contains('@') => "email_id",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{Encoder, TextEncoder};

    #[test]
    fn the_series_are_those_of_the_go_program() {
        let (metrics, registry) = (Metrics::default(), Registry::default());
        metrics.register(&registry).unwrap();
        let took = Duration::from_millis(300);
        metrics.authentication.count("201", took);
        metrics.authorization.count("<error>", took);
        for name in ["admin", "jane@example.com", "system:anonymous", "prometheus"] {
            metrics.count_authentication(Authenticated::User(name), took);
        }
        metrics.count_authentication(Authenticated::Failed, took);
        for outcome in [Authorized::Allowed, Authorized::Denied, Authorized::NoOpinion, Authorized::Failed] {
            metrics.count_authorization(outcome, took);
        }
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            r#"apiserver_delegated_authn_request_total{code="201"} 1"#,
            r#"apiserver_delegated_authn_request_duration_seconds_bucket{code="201",le="0.25"} 0"#,
            r#"apiserver_delegated_authn_request_duration_seconds_bucket{code="201",le="0.5"} 1"#,
            r#"apiserver_delegated_authn_request_duration_seconds_bucket{code="201",le="10"} 1"#,
            r#"apiserver_delegated_authz_request_total{code="<error>"} 1"#,
            r#"authenticated_user_requests{username="admin"} 1"#,
            r#"authenticated_user_requests{username="email_id"} 1"#,
            r#"authenticated_user_requests{username="other"} 2"#,
            r#"authentication_attempts{result="success"} 4"#,
            r#"authentication_attempts{result="error"} 1"#,
            r#"authentication_duration_seconds_bucket{result="error",le="0.256"} 0"#,
            r#"authentication_duration_seconds_bucket{result="error",le="16.384"} 1"#,
            r#"authorization_attempts_total{result="allowed"} 1"#,
            r#"authorization_attempts_total{result="denied"} 1"#,
            r#"authorization_attempts_total{result="no-opinion"} 1"#,
            r#"authorization_attempts_total{result="error"} 1"#,
            r#"authorization_duration_seconds_count{result="denied"} 1"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in {text}");
        }
    }
}
