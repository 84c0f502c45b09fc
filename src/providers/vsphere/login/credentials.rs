//! Credentials for vCenter and NSX, and their sources: the cloud config, a Secret, a directory.
//!
//! Nothing here does I/O: `app` reads the sources and publishes one [`Offers`] per vCenter entry and NSX Manager.
//! Mirrors `pkg/common/credentialmanager`.

pub mod layout;
pub mod offer;
pub mod pem;
pub mod source;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

use self::source::SourceLocation;
use crate::cloud::login_ledger::SecretVersion;

/// Where user and password come from. Prints without secrets.
#[derive(Clone)]
pub enum Credentials {
    /// In the cloud config itself.
    Inline {
        /// The user name, or a PEM certificate.
        user: String,
        /// The password, or a PEM private key.
        password: SecretString,
    },
    /// In a Secret, under keys that begin with the server, or in files of a directory. Whether the Secret or directory
    /// exists is not checked here.
    Stored(SourceLocation),
}

/// Not in constant time: both sides are configurations of this process, so timing discloses nothing.
impl PartialEq for Credentials {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline { user, password }, Self::Inline { user: other_user, password: other_password }) => {
                user == other_user && password.expose_secret() == other_password.expose_secret()
            }
            (Self::Stored(location), Self::Stored(other)) => location == other,
            _ => false,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `user` is the private key if the operator swapped user and password.
            Self::Inline { user, .. } if user.contains("-----BEGIN") => {
                formatter.debug_struct("Inline").finish_non_exhaustive()
            }
            Self::Inline { user, .. } => formatter.debug_struct("Inline").field("user", user).finish_non_exhaustive(),
            Self::Stored(location) => location.fmt(formatter),
        }
    }
}

/// A login to present to a server. Prints without secrets.
#[derive(Clone)]
pub enum Login {
    /// A user name and its password.
    Password {
        /// The user name.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// The user name was a PEM certificate, the password its private key.
    Certificate {
        /// The certificate (and its chain), in PEM.
        certificate: String,
        /// The private key, in PEM.
        key: SecretString,
    },
    /// A clone of a session, with a ticket from a session manager.
    SharedSession {
        /// URL of the session manager.
        url: String,
        /// Authenticates this process to the session manager.
        token: SessionToken,
    },
}

/// The bearer token for a session manager.
#[derive(Clone)]
pub enum SessionToken {
    /// Configured next to the URL.
    Given(SecretString),
    /// The token of this process's service account, used if none is configured. The kubelet renews it, so it is read at
    /// each use, and a renewed token is not a new credential.
    ServiceAccount(Arc<dyn ReadToken>),
}

/// Reads a token that changes by itself. Implemented in `app`, which knows the files.
#[async_trait]
pub trait ReadToken: Send + Sync {
    /// The current token.
    ///
    /// # Errors
    /// The reason, in one sentence without the token, if it cannot be read.
    async fn read(&self) -> Result<SecretString, String>;
}

/// Where a [`Login`] came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file of `--cloud-config`, or an environment variable.
    Config,
    /// Files of a directory.
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// A Kubernetes Secret, in one of its versions.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
        /// The resourceVersion it was read at. It also changes with a label or with another server's credentials.
        resource_version: String,
    },
}

/// A [`Login`] and its [`Origin`]. Credentials with equal logins but different origins make the same request to the
/// server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The login.
    pub login: Login,
    /// Where it came from.
    pub origin: Origin,
}

/// The current credentials of a vCenter entry or an NSX Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialState {
    /// A source was not read yet. No login may be tried.
    Pending {
        /// Names the source that was not read.
        reason: String,
    },
    /// The credentials in the order to try them: those of the cloud config, then those of the Secret or directory.
    /// Never empty.
    Ready(Vec<Arc<Credential>>),
    /// All sources were read, and none has credentials for this entry. No login may be tried.
    Missing {
        /// What is missing, and where.
        reason: String,
    },
}

/// Watch of one entry's [`CredentialState`]. The sender lives as long as the entry is in the configuration.
pub type Offers = tokio::sync::watch::Receiver<Arc<CredentialState>>;

impl SessionToken {
    /// The current token.
    ///
    /// # Errors
    /// The reason, if it cannot be read.
    pub async fn read(&self) -> Result<SecretString, String> {
        match self {
            SessionToken::Given(token) => Ok(token.clone()),
            SessionToken::ServiceAccount(source) => source.read().await,
        }
    }
}

impl Login {
    /// The kind of login, for logs and metrics.
    pub fn kind(&self) -> &'static str {
        self.parts().0
    }

    /// The kind, the name and the secret of the login; no secret for the service account's token, since there is only
    /// one.
    fn parts(&self) -> (&'static str, &str, Option<&str>) {
        match self {
            Login::Password { user, password } => ("password", user, Some(password.expose_secret())),
            Login::Certificate { certificate, key } => ("certificate", certificate, Some(key.expose_secret())),
            Login::SharedSession { url, token: SessionToken::Given(token) } => {
                ("shared session", url, Some(token.expose_secret()))
            }
            Login::SharedSession { url, token: SessionToken::ServiceAccount(_) } => ("shared session", url, None),
        }
    }
}

impl Origin {
    /// The version of the Secret, for the login ledger; `None` for other origins.
    pub fn secret_version(&self) -> Option<SecretVersion> {
        match self {
            Origin::Secret { uid, resource_version, .. } => {
                Some(SecretVersion { uid: uid.clone(), resource_version: resource_version.clone() })
            }
            Origin::Config | Origin::Directory { .. } => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Config => formatter.write_str("the cloud config"),
            Origin::Directory { path } => write!(formatter, "directory {}", path.display()),
            Origin::Secret { namespace, name, .. } => write!(formatter, "Secret {namespace}/{name}"),
        }
    }
}

/// Not in constant time: both sides are credentials of this process, so timing discloses nothing.
impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Login {}

/// Prints only the kind: a text taken for a user name, a certificate or a URL may be a secret.
impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests;
