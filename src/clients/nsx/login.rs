//! Logs in and out.

use std::sync::Arc;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::answer::{PresentedCredentials, RequestContext};
use super::call::NsxCall;
use super::error::{Error, Kind};
use super::json;
use super::proof::{Login, RequestAuth, Scheme};
use super::{Client, http};
use crate::clients::http::{BodyWriter, Method, Request, Response};

const CREATE: &str = "session.create";
const DESTROY: &str = "session.destroy";
const BASIC: &str = "login.basic";

/// The object that is read only to check the credentials.
const PROBE: &str = "/infra/sites";

impl Client {
    /// Opens a session. Calls use the session once the returned login is adopted. Returns `None` if a path prefix is
    /// configured, because an intermediary may drop sessions, or if the manager has no sessions (404 or 405).
    ///
    /// # Errors
    /// [`Kind::Rejected`] for rejected credentials. Repeated attempts lock the account.
    pub async fn open_session(
        &self,
        scheme: Scheme,
        user: &str,
        password: &SecretString,
    ) -> Result<Option<Login>, Error> {
        if !self.inner.prefix.is_empty() {
            return Ok(None);
        }
        let mut request = Request::new(Method::POST, "/api/session/create", CREATE, self.inner.timeouts.login);
        request.headers.push(("Accept", "application/json".to_owned()));
        request.headers.push(("Content-Type", "application/x-www-form-urlencoded".to_owned()));
        if scheme == Scheme::Remote {
            request.secret_headers.push(("Authorization", scheme.authorization(user, password)));
        }
        let mut body = BodyWriter::with_capacity(32 + 3 * (user.len() + password.expose_secret().len()));
        body.push_form("j_username", user);
        body.push('&');
        body.push_form("j_password", password.expose_secret());
        request.body = body.into();
        let session = |response: &Response| session_of(response).ok_or("the answer has no session cookie and token");
        match self.exchange(request, CREATE, PresentedCredentials::Login, session).await {
            Ok(login) => Ok(Some(login)),
            Err(error) if matches!(error.status(), Some(404 | 405)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks user and password with one request. Once the returned login is adopted, each request sends user and
    /// password.
    ///
    /// # Errors
    /// [`Kind::Rejected`] for rejected credentials. Repeated attempts lock the account.
    pub async fn try_basic(&self, scheme: Scheme, user: &str, password: &SecretString) -> Result<Login, Error> {
        let login = Login(Arc::new(RequestAuth::Basic(scheme.authorization(user, password))));
        let probe = NsxCall { query: &[("page_size", "1")], ..NsxCall::get(PROBE, BASIC) };
        let mut request = self.request(&probe);
        login.authenticate(&mut request);
        request.timeout = self.inner.timeouts.login;
        // A repeated request would be a second login.
        request.repeatable = false;
        // A web page, such as that of a portal, does not show whether the credentials are accepted.
        let is_answer = |response: &Response| {
            if json::is_object(&response.body) { Ok(()) } else { Err("the answer is not a JSON object") }
        };
        match self.exchange(request, BASIC, PresentedCredentials::EachTime, is_answer).await {
            // NSX has accepted the credentials even if it refuses the read, or if the object does not exist.
            Ok(_) | Err(Error { kind: Kind::NoPermission | Kind::NotFound | Kind::BadRequest, .. }) => Ok(login),
            Err(error) => Err(error),
        }
    }

    /// Uses this login for further calls. Returns the previous login, whose calls in flight continue.
    pub fn adopt(&self, login: Login) -> Option<Login> {
        self.inner.login.lock().replace(login)
    }

    /// Stops using the login, and returns it.
    pub fn take(&self) -> Option<Login> {
        self.inner.login.lock().take()
    }

    /// Returns the current login, which the manager may already have ended.
    pub fn login(&self) -> Option<Login> {
        self.inner.login.lock().clone()
    }

    /// Ends the session of a login that is no longer used, within `Timeouts::logout`. Sends nothing for another kind of
    /// login. If the call fails, the manager ends the session after its idle time.
    pub async fn end(&self, login: Login) -> Result<(), Error> {
        if !matches!(*login.0, RequestAuth::Session { .. }) {
            return Ok(());
        }
        let mut request = Request::new(Method::POST, "/api/session/destroy", DESTROY, self.inner.timeouts.logout);
        login.authenticate(&mut request);
        match self.exchange(request, DESTROY, PresentedCredentials::Nothing, |_| Ok(())).await {
            Err(error) if error.kind == Kind::SessionOver => Ok(()),
            other => other,
        }
    }

    /// Drops this login, unless another login has replaced it.
    pub(super) fn forget(&self, used: &Login) {
        self.inner.login.lock().take_if(|current| current.is(used));
    }

    /// Sends a login or logout once, without waiting for the rate limiter.
    async fn exchange<T>(
        &self,
        request: Request,
        operation: &'static str,
        presents: PresentedCredentials,
        read: impl FnOnce(&Response) -> Result<T, &'static str>,
    ) -> Result<T, Error> {
        let (http, began) = (&self.inner.http, Instant::now());
        let target = format!("{} {}", request.method, request.path);
        let sent = async {
            let failed = || http.failed(operation);
            let response = http.send(request).await.map_err(|error| {
                let kind = match error {
                    http::Error::Broken(..) | http::Error::Timeout(..) => Kind::Unknown,
                    _ => Kind::Unavailable,
                };
                Error::http(kind, failed(), target.clone(), error)
            })?;
            if response.is_success() {
                let wrong = |message| Error::other(Kind::Unavailable, failed(), target.clone(), message);
                return read(&response).map_err(wrong);
            }
            let (kind, refused) = self.classify(RequestContext { object: PROBE, presents }, began, &response);
            Err(Error::refused(kind, failed(), target.clone(), refused))
        };
        http.observed(operation, Error::reason, sent).await
    }
}

fn session_of(response: &Response) -> Option<Login> {
    let cookies = response.headers.get_all("set-cookie").iter();
    let cookie = cookies.filter_map(|value| value.to_str().ok()).find_map(|value| {
        let pair = value.split(';').next().unwrap_or_default().trim();
        pair.strip_prefix("JSESSIONID=").filter(|id| !id.is_empty()).map(|_| pair)
    })?;
    let xsrf = response.headers.get("x-xsrf-token")?.to_str().ok()?;
    let cookie = Zeroizing::new(cookie.to_owned());
    let (cookie, xsrf) = (SecretString::from(cookie.as_str()), SecretString::from(xsrf));
    Some(Login(Arc::new(RequestAuth::Session { cookie, xsrf })))
}
