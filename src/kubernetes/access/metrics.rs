//! Metrics of authentication and authorisation at the secure port, named and labelled as in `kubernetes/apiserver`.

use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{HistogramVec, IntCounterVec};

use crate::runtime::metrics::{Registry, counter_vec, histogram_vec, metrics};

/// Buckets of the duration of authentications and authorisations, in seconds.
const ATTEMPT_SECONDS: [f64; 15] =
    [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

metrics! {
    /// Metrics of delegated authentication and authorisation. Cheap to clone; clones share the values.
    pub struct Metrics {
        /// TokenReviews, by HTTP status; `<error>` if there is no answer.
        pub(super) authentication: ReviewCounts = ReviewCounts::reviews("authn"),
        /// SubjectAccessReviews, by HTTP status; `<error>` if there is no answer.
        pub(super) authorization: ReviewCounts = ReviewCounts::reviews("authz"),
        users: IntCounterVec = counter_vec("authenticated_user_requests",
            "Counter of authenticated requests broken out by username.", &["username"]),
        authentications: ReviewCounts = ReviewCounts::attempts(
            ["authentication_attempts", "Counter of authenticated attempts."],
            ["authentication_duration_seconds", "Authentication duration in seconds broken out by result."]),
        /// Decisions on requests at the secure port, by result: `allowed`, `denied`, `no-opinion` or `error`.
        pub(super) authorizations: ReviewCounts = ReviewCounts::attempts(
            ["authorization_attempts_total", "Counter of authorization attempts broken down by result. It can be \
                either 'allowed', 'denied', 'no-opinion' or 'error'."],
            ["authorization_duration_seconds", "Authorization duration in seconds broken out by result."]),
    }
}

/// A counter and the duration of what it counts.
#[derive(Clone)]
pub(super) struct ReviewCounts {
    total: IntCounterVec,
    duration: HistogramVec,
}

impl Collector for ReviewCounts {
    fn desc(&self) -> Vec<&Desc> {
        [self.total.desc(), self.duration.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        [self.total.collect(), self.duration.collect()].concat()
    }
}

impl Metrics {
    /// Registers the metrics. Fails if `registry` already has a collector with one of the names.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.clone()))
    }

    /// Counts an authentication attempt. `user` is the user's name, empty if anonymous, or `None` after a failure.
    pub(super) fn count_authentication(&self, user: Option<&str>, took: Duration) {
        if let Some(name) = user {
            self.users.with_label_values(&[shown_name(name)]).inc();
        }
        self.authentications.count(if user.is_some() { "success" } else { "error" }, took);
    }
}

impl ReviewCounts {
    fn new(label: &str, total: [&str; 2], duration: [&str; 2], buckets: &[f64]) -> Self {
        let ([total, total_help], [duration, duration_help]) = (total, duration);
        Self {
            total: counter_vec(total, total_help, &[label]),
            duration: histogram_vec(duration, duration_help, &[label], buckets),
        }
    }

    fn reviews(kind: &str) -> Self {
        let total = format!("apiserver_delegated_{kind}_request_total");
        let duration = format!("apiserver_delegated_{kind}_request_duration_seconds");
        Self::new(
            "code",
            [&total, "Number of HTTP requests partitioned by status code."],
            [&duration, "Request latency in seconds. Broken down by status code."],
            &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0],
        )
    }

    fn attempts(total: [&str; 2], duration: [&str; 2]) -> Self {
        Self::new("result", total, duration, &ATTEMPT_SECONDS)
    }

    pub(super) fn count(&self, outcome: &str, took: Duration) {
        self.total.with_label_values(&[outcome]).inc();
        self.duration.with_label_values(&[outcome]).observe(took.as_secs_f64());
    }
}

/// Maps user names to a few label values, as `compressUsername` in `pkg/endpoints/filters/metrics.go` of
/// `kubernetes/apiserver`.
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
            metrics.count_authentication(Some(name), took);
        }
        metrics.count_authentication(None, took);
        for outcome in ["allowed", "denied", "no-opinion", "error"] {
            metrics.authorizations.count(outcome, took);
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
