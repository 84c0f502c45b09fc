//! Credentials of requests to the API server: a token, a user name and password, or the output of a program. As in
//! client-go, blanks around a token in a file are removed. Credentials that cannot be sent are an error.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use kube::config::{AuthInfo, AuthProviderConfig};
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use super::exec::Exec;
use super::files::read_file;
use super::identity;
use super::proof::{CredentialsError, RequestCredentials, bearer, sensitive, token_header};

/// Interval after which a token file is read again, as in client-go.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// Source of credentials. Clones share the state.
#[derive(Clone)]
pub(super) enum Credentials {
    None,
    Fixed(HeaderValue),
    File(Arc<Mutex<TokenFile>>),
    Exec(Arc<Exec>),
}

impl Credentials {
    /// Returns the credentials of this user. As in client-go, a token file takes precedence over an inline token. The
    /// inline token is used until the file has been read once.
    pub(super) fn of(user: &AuthInfo) -> Result<Self, CredentialsError> {
        let token = user.token.as_ref().map(|token| token.expose_secret()).filter(|token| !token.is_empty());
        if let Some(path) = user.token_file.as_ref().filter(|path| !path.is_empty()) {
            return TokenFile::read(path.into(), token).map(|file| Self::File(Arc::new(Mutex::new(file))));
        }
        if let Some(token) = token {
            return bearer(token).map(Self::Fixed);
        }
        if let Some(name) = user.username.as_ref().filter(|name| !name.is_empty()) {
            let password = user.password.as_ref().map_or("", |password| password.expose_secret());
            return basic(name, password).map(Self::Fixed);
        }
        if let Some(provider) = &user.auth_provider {
            let token = token_of(provider).map_err(CredentialsError)?;
            return bearer(token).map(Self::Fixed);
        }
        match &user.exec {
            // As in client-go, the program does not run for a user with a client certificate.
            Some(exec) if !identity::is_configured(user) => Exec::shared(exec).map(Self::Exec),
            _ => Ok(Self::None),
        }
    }

    pub(super) async fn proof(&self) -> Result<Arc<RequestCredentials>, CredentialsError> {
        let header = match self {
            Self::None => None,
            Self::Fixed(header) => Some(header.clone()),
            Self::File(file) => Some(file.lock().header()),
            Self::Exec(exec) => return exec.proof().await,
        };
        Ok(Arc::new(RequestCredentials { header, identity: None }))
    }

    /// Records that the API server rejected these credentials (401), if they come from an `exec` program.
    pub(super) fn refused(&self, proof: &Arc<RequestCredentials>) {
        if let Self::Exec(exec) = self {
            exec.refused(proof);
        }
    }
}

/// Returns the token of an auth provider. Only `oidc` is supported, as in client-go.
pub(super) fn token_of(provider: &AuthProviderConfig) -> Result<&str, String> {
    let name = provider.name.as_str();
    match (name, provider.config.get("id-token").map(|token| token.trim())) {
        ("oidc", Some(token)) if !token.is_empty() => Ok(token),
        ("oidc", _) => Err("auth-provider: oidc has no id-token".to_owned()),
        _ => {
            Err("auth-provider: expected oidc; for other providers use exec with the program of the provider"
                .to_owned())
        }
    }
}

/// Returns the header for a user name and a password.
pub(super) fn basic(name: &str, password: &str) -> Result<HeaderValue, CredentialsError> {
    let pair = Zeroizing::new(STANDARD.encode(&*Zeroizing::new(format!("{name}:{password}"))));
    let text = Zeroizing::new(format!("Basic {}", *pair));
    let header = HeaderValue::from_str(&text);
    header.map(sensitive).map_err(|_| CredentialsError("username and password cannot be sent".to_owned()))
}

/// A token file. The file may change: the kubelet rotates the token file of a pod.
pub(super) struct TokenFile {
    path: PathBuf,
    header: HeaderValue,
    /// Time of the last attempt to read the file. `None` until the file was read for the first time.
    read_at: Option<SystemTime>,
}

impl TokenFile {
    fn read(path: PathBuf, token: Option<&str>) -> Result<Self, CredentialsError> {
        match (header_of(&path), token) {
            (Ok(header), _) => Ok(Self { path, header, read_at: Some(SystemTime::now()) }),
            (Err(error), Some(token)) => {
                let header = bearer(token)?;
                tracing::warn!("the token in the kubeconfig is used until its file can be read: {error}");
                Ok(Self { path, header, read_at: None })
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Returns the header with the token. If a later read fails, the old token stays: the file may be half written.
    fn header(&mut self) -> HeaderValue {
        // If the clock was set back, the file is read immediately.
        if self.read_at.is_some_and(|at| at.elapsed().is_ok_and(|age| age < READ_AGAIN)) {
            return self.header.clone();
        }
        match header_of(&self.path) {
            Ok(header) => (self.header, self.read_at) = (header, Some(SystemTime::now())),
            Err(error) if self.read_at.is_some() => {
                self.read_at = Some(SystemTime::now());
                tracing::warn!("the token for the API server cannot be read again; the old one stays: {error}");
            }
            // This failure was logged when the client was built.
            Err(_) => {}
        }
        self.header.clone()
    }
}

fn header_of(path: &std::path::Path) -> Result<HeaderValue, CredentialsError> {
    let failed = |reason: String| CredentialsError(format!("tokenFile {}: {reason}", path.display()));
    let content = read_file(path).map_err(|error| failed(format!("the file cannot be read: {error}")))?;
    token_header(&content).map_err(|error| failed(error.0))
}
