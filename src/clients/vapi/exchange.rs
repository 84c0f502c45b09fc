//! One REST call, in either framing.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::{Client, Error, Framing, Session};
use crate::clients::http::{Method, Request, Response};

pub(super) const SESSION_HEADER: &str = "vmware-api-session-id";

/// The largest accepted answer, in bytes. The server itself refuses answers above about 7 MB.
const MAX_BYTES: usize = 8 << 20;

/// The characters that are escaped in ids. Colons are not escaped, because vCenter accepts them in a path.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// A tagging call, independent of the framing.
pub(super) struct TaggingCall<'a> {
    /// Resource and action, such as `tag.get`.
    pub(super) operation: &'static str,
    pub(super) id: Option<&'a str>,
    /// The body of a `POST`; `None` for a `GET`, whose path has no action.
    pub(super) body: Option<serde_json::Value>,
}

impl TaggingCall<'_> {
    pub(super) fn path(&self, framing: Framing) -> String {
        let (base, id_prefix, action_name) = match framing {
            Framing::Rest => ("/rest/com/vmware/cis/tagging", "id:", "~action"),
            Framing::Api => ("/api/cis/tagging", "", "action"),
        };
        let (resource, action) = self.operation.split_once('.').unwrap_or((self.operation, ""));
        let mut path = format!("{base}/{resource}");
        // With the framing `/api`, only the body of a `POST` has the id.
        if let Some(id) = self.id.filter(|_| framing == Framing::Rest || self.body.is_none()) {
            let _ = write!(path, "/{id_prefix}{}", utf8_percent_encode(id, &ESCAPED));
        }
        if self.body.is_some() {
            let _ = write!(path, "?{action_name}={action}");
        }
        path
    }
}

impl Client {
    /// Makes a call that only reads.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, call: TaggingCall<'_>) -> Result<T, Error> {
        let operation = call.operation;
        let Some(Session { id, framing, .. }) = self.inner.session.lock().clone() else {
            return Err(Error::NoSession(self.inner.http.failed(operation)));
        };
        let method = if call.body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::new(method, call.path(framing), operation, self.inner.timeouts.call);
        request.secret_headers.push((SESSION_HEADER, id));
        request.headers.push(("Accept", "application/json".to_owned()));
        if let Some(body) = &call.body {
            request.headers.push(("Content-Type", "application/json".to_owned()));
            request.body = body.to_string().into();
        }
        request.max_bytes = MAX_BYTES;
        request.repeatable = true;
        let response = self.send(request).await?;
        self.read_result(framing, operation, &response)
    }

    /// Sends a request and informs the observer.
    pub(super) async fn send(&self, request: Request) -> Result<Response, Error> {
        let operation = request.operation;
        let http = &self.inner.http;
        let answered = async {
            match http.send(request).await? {
                response if response.is_success() => Ok(response),
                // The HTTP client follows no redirect, and vCenter's REST API uses none.
                response if response.status < 400 => Err(http.status_error(operation, &response).into()),
                response => Err(Error::refused(http.failed(operation), &response)),
            }
        };
        http.observed(operation, Error::reason, answered).await
    }

    pub(super) fn read_result<T: DeserializeOwned>(
        &self,
        framing: Framing,
        operation: &'static str,
        response: &Response,
    ) -> Result<T, Error> {
        let malformed = |error: serde_json::Error| Error::Malformed(self.inner.http.failed(operation), error.into());
        decode(framing, &response.body).map_err(malformed)
    }
}

/// Decodes the result in the body of an answer. An answer without a result is malformed, not empty.
pub(super) fn decode<T: DeserializeOwned>(framing: Framing, body: &[u8]) -> serde_json::Result<T> {
    match framing {
        Framing::Rest => serde_json::from_slice::<ValueEnvelope<T>>(body).map(|wrapped| wrapped.value),
        Framing::Api => serde_json::from_slice(body),
    }
}

#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct ValueEnvelope<T> {
    #[serde(deserialize_with = "present")]
    value: T,
}

/// Reads a required field that may be `null`. Without this function, serde treats a missing field as `null`.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::deserialize(deserializer)
}
