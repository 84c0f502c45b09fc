//! Time limit and errors of one call to the API server.

use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Api;
use kube::core::Status;
use serde::de::DeserializeOwned;
use tower::BoxError;

use super::leadership::NotLeader;

/// Time limit of an ordinary call.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Runs one call to the API server with a time limit. `what` names action and object (`patch node a`) in errors.
pub async fn limited<T>(
    what: &str,
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    let asked = Arc::new(OnceLock::new());
    match CONTACTED.scope(Arc::clone(&asked), tokio::time::timeout(limit, call)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(CallError::failed(what, error)),
        Err(_) => Err(CallError::TimedOut(what.to_owned(), Timeout { limit, server: asked.get().cloned() })),
    }
}

tokio::task_local! {
    /// The API server that the call of this task has contacted. The timeout error names it.
    static CONTACTED: Arc<OnceLock<Arc<str>>>;
    /// The number of requests that this task has sent.
    static REQUESTS: Arc<AtomicU64>;
}

/// Runs the work, and adds the number of requests to the API server that this task sends meanwhile to `requests`.
pub async fn count_requests<T>(requests: &Arc<AtomicU64>, work: impl Future<Output = T>) -> T {
    REQUESTS.scope(Arc::clone(requests), work).await
}

/// Records the server of the request that this task sends next.
pub(super) fn record_server(server: &Arc<str>) {
    // Fails outside of `limited`, which is the only reader of `CONTACTED`.
    let _ = CONTACTED.try_with(|asked| asked.set(Arc::clone(server)));
    // Fails outside of `count_requests`.
    let _ = REQUESTS.try_with(|requests| requests.fetch_add(1, Ordering::Relaxed));
}

/// Details of a timeout: the time limit and the contacted API server.
#[derive(Debug)]
pub struct Timeout {
    limit: Duration,
    /// `None` if the request was not sent.
    server: Option<Arc<str>>,
}

impl From<Duration> for Timeout {
    fn from(limit: Duration) -> Self {
        Self { limit, server: None }
    }
}

impl Display for Timeout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "no answer within {} s", self.limit.as_secs_f32())?;
        match &self.server {
            Some(server) => write!(formatter, " from the API server {server}"),
            None => Ok(()),
        }
    }
}

/// Reads one object. Returns `None` if the API server answers that the object does not exist. `what` is as in
/// [`limited`]. Unlike with [`Api::get_opt`], a 404 from a proxy is an error.
pub async fn get_opt<K>(what: &str, limit: Duration, api: &Api<K>, name: &str) -> Result<Option<K>, CallError>
where
    K: Clone + DeserializeOwned + Debug,
{
    match limited(what, limit, api.get(name)).await {
        Ok(object) => Ok(Some(object)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error of a failed call to the API server. Each text starts with the action and the object.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server did not answer within the time limit. A write may have happened nevertheless.
    #[error("{0}: {1}")]
    TimedOut(String, Timeout),
    /// This process does not lead. The write was not sent, or was cancelled.
    #[error("{0}: not written")]
    NotLeader(String, #[source] NotLeader),
    /// The service account of the controller has no token, so the request was not sent.
    #[error("{0}: not written")]
    NoToken(String, #[source] NoToken),
    /// The API server returned an error. The text contains the message of that error once; the library's text contains
    /// the message three times.
    #[error("{0}: {message} ({code})", message = .1.message, code = .1.code)]
    Refused(String, Box<Status>),
    /// The API server was unreachable, or its answer was unreadable.
    #[error("{0}")]
    Failed(String, #[source] BoxError),
}

impl CallError {
    /// Returns a stable word for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            CallError::TimedOut { .. } => "TimedOut",
            CallError::NotLeader { .. } => "NotLeader",
            CallError::NoToken { .. } => "NoToken",
            CallError::Refused { .. } if self.is_not_found() => "NotFound",
            CallError::Refused { .. } if self.is_conflict() => "Conflict",
            CallError::Refused { .. } if self.is_forbidden() => "Forbidden",
            CallError::Refused { .. } => "Refused",
            CallError::Failed { .. } => "Unreachable",
        }
    }

    /// Whether the API server answered that the object does not exist. A 404 from a proxy does not count.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CallError::Refused(_, status) if status.code == 404 && status.reason == "NotFound")
    }

    /// Whether the object has changed or already exists (409).
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the credentials do not allow the call (403).
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Whether the API server rejected the call without any effect (4xx). A failed call (5xx) may have had an effect.
    pub fn is_refusal(&self) -> bool {
        self.code().is_some_and(|code| code < 500)
    }

    /// Whether the write failed because this process does not lead.
    pub fn is_not_leader(&self) -> bool {
        matches!(self, CallError::NotLeader { .. })
    }

    /// Returns the HTTP status of the API server's error, or `None` for any other error.
    pub fn code(&self) -> Option<u16> {
        match self {
            CallError::Refused(_, status) => Some(status.code),
            _ => None,
        }
    }

    fn failed(what: &str, error: kube::Error) -> Self {
        let what = what.to_owned();
        match error {
            kube::Error::Api(status) => CallError::Refused(what, status),
            kube::Error::Service(source) if source.is::<NotLeader>() => CallError::NotLeader(what, NotLeader),
            kube::Error::Service(source) => match source.downcast::<NoToken>() {
                Ok(source) => CallError::NoToken(what, *source),
                Err(source) => CallError::Failed(what, source),
            },
            error => CallError::Failed(what, error.into()),
        }
    }
}

/// The error for a service account without a token.
#[derive(Debug, Clone, thiserror::Error)]
#[error("there is no token for the service account {account}: {reason}")]
pub struct NoToken {
    /// Namespace and name of the service account.
    pub account: String,
    /// Reason for the missing token.
    pub reason: String,
    /// Whether the API server rejected (4xx) a request for the account or its token. An administrator may then have to
    /// grant a permission.
    pub is_refused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Response;
    use k8s_openapi::api::core::v1::Node;
    use kube::Client;
    use kube::client::Body;

    #[tokio::test]
    async fn requests_are_counted_in_the_task_that_asks_for_it() {
        let requests = Arc::new(AtomicU64::new(0));
        let server: Arc<str> = "https://api:6443".into();
        record_server(&server);
        let sent = count_requests(&requests, async {
            record_server(&server);
            tokio::spawn(async move { record_server(&"https://other:6443".into()) }).await.unwrap();
            let call = async {
                record_server(&server);
                Ok(())
            };
            limited("get node a", CALL_LIMIT, call).await.is_ok()
        });
        assert!(sent.await);
        record_server(&server);
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn only_the_api_server_can_say_that_there_is_no_object() {
        let status =
            |reason: &str| format!(r#"{{"kind": "Status", "status": "Failure", "code": 404, "reason": "{reason}"}}"#);
        for (answer, is_absent) in
            [(status("NotFound"), true), (status(""), false), (status("Gone"), false), ("<html>".to_owned(), false)]
        {
            let body = answer.clone();
            let server = tower::service_fn(move |_| {
                let response = Response::builder().status(404).body(Body::from(body.clone().into_bytes()));
                async move { Ok::<_, BoxError>(response?) }
            });
            let nodes = Api::<Node>::all(Client::new(server, "default"));
            match get_opt("get node a", CALL_LIMIT, &nodes, "a").await {
                Ok(found) => assert!(found.is_none() && is_absent, "{answer}"),
                Err(error) => assert!(!error.is_not_found() && !is_absent, "{answer}: {error}"),
            }
        }
    }
}
