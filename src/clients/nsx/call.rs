//! One NSX call: waits for the rate limiter, logs in, sends, and classifies the answer.

use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};

use super::answer::{self, PresentedCredentials, RequestContext};
use super::error::{Error, ErrorAnswer, Kind};
use super::json;
use super::object::Object;
use super::pace::LONGEST_HOLD;
use super::proof::{Login, NoLogin};
use super::{BASE, Client};
use crate::clients::http::{self, FailedRequest, Method, Permit, Request, Response};

/// The largest accepted answer, in bytes. If a page of a list is larger, the list continues with smaller pages.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// Maximum number of attempts of a call that `may_repeat` allows to repeat.
const ATTEMPTS: u32 = 4;

/// The characters that are escaped in a path segment and in a query value.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

pub(super) struct NsxCall<'a> {
    pub(super) method: Method,
    /// The path of the object, which begins with `/infra`; not escaped.
    pub(super) object: &'a str,
    /// Names and values; not escaped.
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) body: Option<&'a Map<String, Value>>,
    pub(super) operation: &'static str,
    pub(super) permit: Option<Arc<dyn Permit>>,
    pub(super) shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    Page,
    /// An empty body, or an object that is not parsed.
    Acknowledgement,
}

impl<'a> NsxCall<'a> {
    pub(super) fn get(object: &'a str, operation: &'static str) -> Self {
        let (method, shape) = (Method::GET, Shape::Object);
        Self { method, object, query: &[], body: None, operation, permit: None, shape }
    }

    /// Returns a write. `permit` is the caller's permission, which ends with its leadership.
    fn write(permit: &Arc<dyn Permit>, method: Method, object: &'a str, operation: &'static str) -> Self {
        let permit = Some(Arc::clone(permit));
        Self { method, object, query: &[], body: None, operation, permit, shape: Shape::Acknowledgement }
    }

    /// Returns path and query without the manager's prefix.
    fn path(&self) -> String {
        let mut path = BASE.to_owned();
        for segment in self.object.split('/').filter(|segment| !segment.is_empty()) {
            path.push('/');
            path.extend(utf8_percent_encode(segment, &ESCAPED));
        }
        for (position, (name, value)) in self.query.iter().enumerate() {
            path.push(if position == 0 { '?' } else { '&' });
            path.push_str(name);
            path.push('=');
            path.extend(utf8_percent_encode(value, &ESCAPED));
        }
        path
    }

    fn target(&self) -> String {
        format!("{} {}", self.method, self.object)
    }
}

impl Client {
    /// Returns the object at this path.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the object does not exist.
    pub async fn get(&self, path: &str, operation: &'static str) -> Result<Object, Error> {
        self.object(NsxCall::get(path, operation)).await
    }

    /// Creates the object at this path, or updates it. The answer is not parsed.
    pub async fn patch(
        &self,
        permit: &Arc<dyn Permit>,
        path: &str,
        operation: &'static str,
        body: &Object,
    ) -> Result<(), Error> {
        let call = NsxCall { body: Some(&body.0), ..NsxCall::write(permit, Method::PATCH, path, operation) };
        self.send(&call).await.map(drop)
    }

    /// Creates the object at this path, or replaces it if its `_revision` still equals that of `body`. Returns the
    /// object as stored.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if another client has changed the object.
    pub async fn put(
        &self,
        permit: &Arc<dyn Permit>,
        path: &str,
        operation: &'static str,
        body: &Object,
    ) -> Result<Object, Error> {
        let call = NsxCall::write(permit, Method::PUT, path, operation);
        self.object(NsxCall { body: Some(&body.0), shape: Shape::Object, ..call }).await
    }

    /// Replaces several objects of one type in one call: either all or none. Each object must contain its `_revision`.
    ///
    /// # Errors
    /// [`Kind::Conflict`] if another client has changed one of the objects.
    pub async fn patch_together(
        &self,
        permit: &Arc<dyn Permit>,
        resource_type: &str,
        operation: &'static str,
        objects: &[Object],
    ) -> Result<(), Error> {
        let child = |object: &Object| {
            let mut child = Map::new();
            child.insert("resource_type".to_owned(), format!("Child{resource_type}").into());
            child.insert(resource_type.to_owned(), Value::Object(object.0.clone()));
            Value::Object(child)
        };
        let mut body = Map::new();
        body.insert("resource_type".to_owned(), "Infra".into());
        body.insert("children".to_owned(), objects.iter().map(child).collect());
        let query = [("enforce_revision_check", "true")];
        let call = NsxCall::write(permit, Method::PATCH, "/infra", operation);
        self.send(&NsxCall { query: &query, body: Some(&body), ..call }).await.map(drop)
    }

    /// Deletes the object at this path. Succeeds if the object does not exist or is already marked for deletion.
    ///
    /// # Errors
    /// [`Kind::Referenced`] while other objects refer to the object.
    pub async fn delete(&self, permit: &Arc<dyn Permit>, path: &str, operation: &'static str) -> Result<(), Error> {
        match self.send(&NsxCall::write(permit, Method::DELETE, path, operation)).await.map(drop) {
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::MarkedForDeletion) => Ok(()),
            other => other,
        }
    }

    pub(super) async fn object(&self, call: NsxCall<'_>) -> Result<Object, Error> {
        let response = self.send(&call).await?;
        serde_json::from_slice(&response.body).map(Object).map_err(|_| self.misshapen(&call))
    }

    /// Returns the error for a successful answer without a JSON object. Omits the parser's text, which may quote
    /// values.
    fn misshapen(&self, call: &NsxCall<'_>) -> Error {
        let kind = if call.permit.is_some() { Kind::Unknown } else { Kind::Unavailable };
        self.failed(call, kind, "the answer is not a JSON object")
    }

    fn failed(&self, call: &NsxCall<'_>, kind: Kind, message: impl Into<String>) -> Error {
        Error::other(kind, self.inner.http.failed(call.operation), call.target(), message)
    }

    /// Returns the error for a successful answer that is a web page, such as the login page of a portal.
    fn page(&self, call: &NsxCall<'_>, status: u16) -> Error {
        let message = "the answer is a page, and not a JSON object".to_owned();
        let refused = ErrorAnswer { status, message, ..ErrorAnswer::default() };
        Error::refused(self.misshapen(call).kind, self.inner.http.failed(call.operation), call.target(), refused)
    }

    /// Sends a call once the rate limiter admits it, after a login if necessary. Repeats a call that a busy manager
    /// refused, if that is safe. After the end of the session, logs in again. If the manager rejects the new session
    /// too, tries another form of login. A call without a valid session has no effect, so repeating the call is safe.
    pub(super) async fn send(&self, call: &NsxCall<'_>) -> Result<Response, Error> {
        // URL parsers resolve the segments `.` and `..`, so the path would name another object.
        if call.object.split('/').any(|segment| matches!(segment, "." | "..")) {
            let message = "not sent: the path has a segment that is \".\" or \"..\"";
            return Err(self.failed(call, Kind::BadRequest, message));
        }
        let mut attempt = 1;
        let mut refusals = 0;
        let mut was_reconnected = false;
        let mut was_doubted = false;
        loop {
            if self.login().is_none() {
                self.log_in(call, None).await?;
            }
            let Some(login) = self.login() else {
                return Err(self.failed(call, Kind::SessionOver, "not sent: the login was ended"));
            };
            match self.attempt(call, &login).await {
                Err(error) if attempt < ATTEMPTS && may_repeat(call, &error) => attempt += 1,
                Err(error) if is_distrusted(&login, &error) && !was_reconnected => {
                    was_reconnected = true;
                    if self.inner.http.forget_connections().is_err() {
                        return Err(error);
                    }
                }
                Err(error) if login.is_session() && is_page(&error) && !was_doubted => {
                    was_doubted = true;
                    let has_another = self.inner.log_in.recheck_login(self, &login).await;
                    // A write with a web page as its answer may have taken effect, so it is not repeated.
                    if !has_another || error.kind == Kind::Unknown {
                        return Err(error);
                    }
                }
                Err(error) if error.kind == Kind::SessionOver && error.status().is_some() && refusals < 2 => {
                    refusals += 1;
                    self.forget(&login);
                    if refusals == 1 {
                        self.log_in(call, Some(&login)).await?;
                    } else {
                        self.log_in_otherwise(call, &login, error).await?;
                    }
                }
                other => return other,
            }
        }
    }

    /// Logs in with another form of credentials after the manager rejected two sessions, the second time with
    /// `refused`.
    async fn log_in_otherwise(&self, call: &NsxCall<'_>, over: &Login, refused: Error) -> Result<(), Error> {
        let logged_in = self.inner.log_in.log_in_otherwise(self, over).await;
        logged_in.map_err(|NoLogin { kind, reason }| self.failed(call, kind, format!("{reason}: {}", refused.what())))
    }

    async fn log_in(&self, call: &NsxCall<'_>, over: Option<&Login>) -> Result<(), Error> {
        let logged_in = self.inner.log_in.log_in(self, over).await;
        logged_in.map_err(|NoLogin { kind, reason }| self.failed(call, kind, reason))
    }

    async fn attempt(&self, call: &NsxCall<'_>, login: &Login) -> Result<Response, Error> {
        let http = &self.inner.http;
        let failed = || http.failed(call.operation);
        let asked = RequestContext { object: call.object, presents: login.presents() };
        let wait = async {
            let basic = match asked.presents {
                PresentedCredentials::EachTime => self.inner.basic.acquire().await.ok(),
                PresentedCredentials::Login | PresentedCredentials::Nothing => None,
            };
            (basic, self.inner.pace.turn().await)
        };
        let Ok((_basic, turn)) = timeout(self.inner.timeouts.turn, wait).await else {
            let message = format!("not sent: no turn within {} s", self.inner.timeouts.turn.as_secs());
            return Err(self.failed(call, Kind::Unavailable, message));
        };
        // The login may have been rejected while the call waited. A rejected password must not be sent again.
        if !self.login().is_some_and(|current| current.is(login)) {
            return Err(self.failed(call, Kind::SessionOver, "not sent: the login has changed"));
        }
        let mut request = self.request(call);
        login.authenticate(&mut request);
        let sent = async {
            let response = http.send(request).await.map_err(|error| not_answered(call, failed(), error))?;
            if response.is_success() {
                let most = if call.shape == Shape::Page { json::MAX_VALUES } else { json::MAX_OBJECT_VALUES };
                if json::count_values(&response.body) > most {
                    return Err(not_answered(call, failed(), http::Error::TooManyValues(failed(), most)));
                }
                let is_empty = call.shape == Shape::Acknowledgement && response.body.trim_ascii().is_empty();
                let is_page = response.media_type() == "text/html";
                return match is_empty || json::is_object(&response.body) {
                    true => Ok(response),
                    false if is_page => Err(self.page(call, response.status)),
                    false => Err(self.misshapen(call)),
                };
            }
            let (kind, refused) = self.classify(asked, turn.began, &response);
            Err(Error::refused(kind, failed(), call.target(), refused))
        };
        let sent = http.observed(call.operation, Error::reason, sent).await;
        if sent.as_ref().is_err_and(|error| error.kind == Kind::Rejected) {
            self.forget(login);
            self.inner.log_in.rejected(login);
        }
        sent
    }

    /// Classifies an error answer to a request that was sent at `sent`. Lowers the call rate if the manager is
    /// overloaded.
    pub(super) fn classify(
        &self,
        asked: RequestContext<'_>,
        sent: Instant,
        response: &Response,
    ) -> (Kind, ErrorAnswer) {
        let retry_after = retry_after(response);
        if answer::slows_down(response.status) {
            self.inner.pace.slow_down(sent, retry_after);
        }
        let (kind, refused) = answer::classify(asked, response.status, &response.body);
        (kind, ErrorAnswer { retry_after, ..refused })
    }

    pub(super) fn request(&self, call: &NsxCall<'_>) -> Request {
        let path = format!("{}{}", self.inner.prefix, call.path());
        let mut request = Request::new(call.method.clone(), path, call.operation, self.inner.timeouts.call);
        request.headers.push(("Accept", "application/json".to_owned()));
        if let Some(body) = call.body {
            request.headers.push(("Content-Type", "application/json".to_owned()));
            request.body = serde_json::to_string(body).unwrap_or_default().into();
        }
        request.max_bytes = MAX_BYTES;
        request.permit.clone_from(&call.permit);
        request
    }
}

/// Whether the answer is a web page, or a redirect that probably leads to one.
fn is_page(error: &Error) -> bool {
    error.status().is_some_and(|status| (200..400).contains(&status))
}

/// Whether the manager rejected the client certificate on this connection. A new connection may be accepted.
fn is_distrusted(login: &Login, error: &Error) -> bool {
    login.is_certificate() && error.status() == Some(500) && error.code() == Some(99)
}

/// Whether the call may be repeated: a busy manager refused a read, a busy manager refused a write with 429 (before any
/// effect), or the call was not sent because the login had changed.
fn may_repeat(call: &NsxCall<'_>, error: &Error) -> bool {
    match error.kind {
        Kind::Busy => call.permit.is_none() || error.status() == Some(429),
        Kind::SessionOver => error.status().is_none(),
        _ => false,
    }
}

fn not_answered(call: &NsxCall<'_>, request: FailedRequest, error: http::Error) -> Error {
    use http::Error::{
        Broken, Certificate, Configuration, Connect, NotPermitted, PermitEnded, Proxy, Resolve, Status, Timeout, Tls,
        TooLarge, TooManyValues,
    };
    let kind = match &error {
        NotPermitted(..) | PermitEnded(..) => Kind::NotPermitted,
        Configuration { .. } | Connect(..) | Proxy(..) | Resolve(..) | Certificate(..) | Tls(..) => Kind::Unavailable,
        Broken(..) | Status(..) | Timeout(..) | TooLarge(..) | TooManyValues(..) if call.permit.is_some() => {
            Kind::Unknown
        }
        Broken(..) | Status(..) | Timeout(..) | TooLarge(..) | TooManyValues(..) => Kind::Unavailable,
    };
    Error::http(kind, request, call.target(), error)
}

/// Parses `Retry-After` in seconds, at most five minutes. A date is ignored.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers.get("retry-after")?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs).map(|after| after.min(LONGEST_HOLD))
}
