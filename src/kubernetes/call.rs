//! One call to the API server: its time limit and its errors.

use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Api;
use kube::core::Status;
use serde::de::DeserializeOwned;
use tower::BoxError;

use super::leadership::NotLeader;

/// Time limit of an ordinary call.
pub const CALL_LIMIT: Duration = Duration::from_secs(10);

/// Runs one call to the API server with a time limit. `what` names the action and the object (`patch node a`): it
/// begins the error's text.
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
    /// The server that this task's call has contacted, for the error after the time limit: a cancelled call leaves no
    /// error of its client that names the server.
    static CONTACTED: Arc<OnceLock<Arc<str>>>;
}

/// Records the server of a request, which is sent when the future is first polled.
pub(super) async fn recording_server<T>(server: Arc<str>, answer: impl Future<Output = T>) -> T {
    // Fails outside of `limited`, the only reader.
    let _ = CONTACTED.try_with(|asked| asked.set(server));
    answer.await
}

/// The time limit that passed without an answer, and the server that was called.
#[derive(Debug)]
pub struct Timeout {
    limit: Duration,
    /// `None` if the request was not sent yet.
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

/// Reads one object; `None` if the API server answers that no object has this name. `what` is as in [`limited`].
/// Replaces [`Api::get_opt`], which accepts any 404 for that answer, even one of a proxy.
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

/// A call to the API server failed. Each variant begins with the action and its object.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer within the time limit. A write may have happened nevertheless.
    #[error("{0}: {1}")]
    TimedOut(String, Timeout),
    /// This process does not lead (any more), so the write was not sent, or was cancelled.
    #[error("{0}: not written")]
    NotLeader(String, #[source] NotLeader),
    /// The controller's own identity has no token, so nothing was sent.
    #[error("{0}: not written")]
    NoToken(String, #[source] NoToken),
    /// The API server refused or failed. Shows its message once; the library's text repeats it three times.
    #[error("{0}: {message} ({code})", message = .1.message, code = .1.code)]
    Refused(String, Box<Status>),
    /// The API server could not be reached, or its answer could not be read.
    #[error("{0}")]
    Failed(String, #[source] BoxError),
}

impl CallError {
    /// A stable word for metrics and Events.
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

    /// Whether the API server answered that the object does not exist. A 404 of a proxy has another reason, or none,
    /// and is no proof.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CallError::Refused(_, status) if status.code == 404 && status.reason == "NotFound")
    }

    /// Whether the object has changed, or exists already (409).
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the credentials do not allow the call (403).
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// Whether the API server refused and nothing was done (4xx). After a failure (5xx), the action may have been done
    /// nevertheless.
    pub fn is_refusal(&self) -> bool {
        self.code().is_some_and(|code| code < 500)
    }

    /// Whether the write was refused because this process does not lead.
    pub fn is_not_leader(&self) -> bool {
        matches!(self, CallError::NotLeader { .. })
    }

    /// The HTTP status of the server's error.
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

/// No token is available for the account.
#[derive(Debug, Clone, thiserror::Error)]
#[error("there is no token for the service account {account}: {reason}")]
pub struct NoToken {
    /// The account's namespace and name.
    pub account: String,
    /// Why no token is available.
    pub reason: String,
    /// Whether the API server denies this process the token: an administrator has to grant the permission.
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
