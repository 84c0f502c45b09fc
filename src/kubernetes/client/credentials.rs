//! What a request to the API server proves its sender with: a token, a name and password, or what a program supplies. Blanks
//! at the ends of a file are not part of its token, as in client-go, and what cannot be sent is an error.

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
use super::proof::{CredentialsError, Proof, bearer, sensitive, token_header};

/// How long a token of a file is used before the file is read again, as in client-go.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// Where credentials come from. All clones are one.
#[derive(Clone)]
pub(super) enum Credentials {
    None,
    Fixed(HeaderValue),
    File(Arc<Mutex<TokenFile>>),
    Exec(Arc<Exec>),
}

impl Credentials {
    /// Those of this user. As in client-go, a file with a token takes precedence over a token.
    pub(super) fn of(user: &AuthInfo) -> Result<Self, CredentialsError> {
        if let Some(path) = user.token_file.as_ref().filter(|path| !path.is_empty()) {
            return TokenFile::read(path.into()).map(|file| Self::File(Arc::new(Mutex::new(file))));
        }
        if let Some(token) = user.token.as_ref().filter(|token| !token.expose_secret().is_empty()) {
            return bearer(token.expose_secret()).map(Self::Fixed);
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
            Some(exec) => Ok(Self::Exec(Arc::new(Exec::new(exec)?))),
            None => Ok(Self::None),
        }
    }

    /// What the next request has to bring.
    pub(super) async fn proof(&self) -> Result<Proof, CredentialsError> {
        let header = match self {
            Self::None => None,
            Self::Fixed(header) => Some(header.clone()),
            Self::File(file) => Some(file.lock().header()),
            Self::Exec(exec) => return exec.proof().await,
        };
        Ok(Proof { header, identity: None })
    }

    /// The API server did not accept what the last request brought (401).
    pub(super) fn refused(&self) {
        if let Self::Exec(exec) = self {
            exec.refused();
        }
    }
}

/// The token of a provider. client-go supports this one alone.
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

fn basic(name: &str, password: &str) -> Result<HeaderValue, CredentialsError> {
    let pair = Zeroizing::new(STANDARD.encode(&*Zeroizing::new(format!("{name}:{password}"))));
    let text = Zeroizing::new(format!("Basic {}", *pair));
    let header = HeaderValue::from_str(&text);
    header.map(sensitive).map_err(|_| CredentialsError("username and password cannot be sent".to_owned()))
}

/// A file with a token, such as that of a pod, which the kubelet exchanges.
pub(super) struct TokenFile {
    path: PathBuf,
    header: HeaderValue,
    read_at: SystemTime,
}

impl TokenFile {
    fn read(path: PathBuf) -> Result<Self, CredentialsError> {
        let header = header_of(&path)?;
        Ok(Self { path, header, read_at: SystemTime::now() })
    }

    /// The header with the token. A file that cannot be used later changes nothing: it may be half written.
    fn header(&mut self) -> HeaderValue {
        // A clock that was set back is no reason to wait longer.
        if self.read_at.elapsed().is_ok_and(|age| age < READ_AGAIN) {
            return self.header.clone();
        }
        self.read_at = SystemTime::now();
        match header_of(&self.path) {
            Ok(header) => self.header = header,
            Err(error) => {
                tracing::warn!("the token for the API server cannot be read again; the old one stays: {error}");
            }
        }
        self.header.clone()
    }
}

fn header_of(path: &std::path::Path) -> Result<HeaderValue, CredentialsError> {
    let failed = |why: String| CredentialsError(format!("tokenFile {}: {why}", path.display()));
    let content = read_file(path).map_err(|error| failed(format!("the file cannot be read: {error}")))?;
    token_header(&content).map_err(|error| failed(error.0))
}
