//! One call to the API server: its time limit, and what it comes to when it fails.

use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Api;
use kube::core::Status;
use serde::de::DeserializeOwned;
use tower::BoxError;

use super::leadership::NotLeader;

/// How long an ordinary call may take.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Runs one call to the API server with a time limit. `what` says what is being done and to which object
/// (`patch node a`): it begins the error's text.
pub async fn limited<T>(
    what: &str,
    limit: Duration,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    let asked = Arc::new(OnceLock::new());
    match ASKED.scope(Arc::clone(&asked), tokio::time::timeout(limit, call)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(CallError::failed(what, error)),
        Err(_) => Err(CallError::TimedOut(what.to_owned(), Silence { limit, server: asked.get().cloned() })),
    }
}

tokio::task_local! {
    /// The server that the call of this task has asked. A call that is given up has no error of its client.
    static ASKED: Arc<OnceLock<Arc<str>>>;
}

/// A request to this server, which is sent when the future is first polled.
pub(super) async fn asking<T>(server: Arc<str>, answer: impl Future<Output = T>) -> T {
    // Fails outside of a limited call, which alone reads it.
    let _ = ASKED.try_with(|asked| asked.set(server));
    answer.await
}

/// The limit in which no answer came, and the server that was called.
#[derive(Debug)]
pub struct Silence {
    limit: Duration,
    /// Unless the request was not sent yet.
    server: Option<Arc<str>>,
}

impl From<Duration> for Silence {
    fn from(limit: Duration) -> Self {
        Self { limit, server: None }
    }
}

impl Display for Silence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "no answer within {} s", self.limit.as_secs_f32())?;
        match &self.server {
            Some(server) => write!(formatter, " from the API server {server}"),
            None => Ok(()),
        }
    }
}

/// Reads one object; none if the API server answers that there is none of this name. `what` is as in [`limited`]. In place of
/// [`Api::get_opt`], which takes any 404 for that answer, also one of a proxy.
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

/// A call to the API server failed. Each variant begins with what was being done and to what.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There was no answer within this limit. A write may have happened all the same.
    #[error("{0}: {1}")]
    TimedOut(String, Silence),
    /// This process does not lead (any more), so the write was not sent, or given up half-way.
    #[error("{0}: not written")]
    NotLeader(String, #[source] NotLeader),
    /// The controller's own identity has no token, so nothing was sent.
    #[error("{0}: not written")]
    NoToken(String, #[source] NoToken),
    /// The API server answered that it did not do it. Its own words once: the library's text of it has them three times.
    #[error("{0}: {message} ({code})", message = .1.message, code = .1.code)]
    Refused(String, Box<Status>),
    /// The API server could not be reached, or its answer not be read.
    #[error("{0}")]
    Failed(String, #[source] BoxError),
}

impl CallError {
    /// A stable word for metrics and events.
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

    /// The API server answered that the object does not exist. A 404 of a proxy on the way has another reason, or none, and
    /// is no proof.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CallError::Refused(_, status) if status.code == 404 && status.reason == "NotFound")
    }

    /// The object has changed, or exists already (409).
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The credentials do not allow this (403).
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The API server refused, and nothing was done (4xx). One that failed (5xx) may have done it all the same.
    pub fn is_refusal(&self) -> bool {
        self.code().is_some_and(|code| code < 500)
    }

    /// The write was refused because this process does not lead.
    pub fn is_not_leader(&self) -> bool {
        matches!(self, CallError::NotLeader { .. })
    }

    /// The HTTP status of the server's refusal.
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

/// There is no token for the account.
#[derive(Debug, Clone, thiserror::Error)]
#[error("there is no token for the service account {account}: {why}")]
pub struct NoToken {
    /// Its namespace and name.
    pub account: String,
    /// Why there is none.
    pub why: String,
    /// The API server does not allow it: somebody has to grant the right.
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
