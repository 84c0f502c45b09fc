//! Credentials for vCenter and NSX, and their sources: the cloud config, a Secret, a directory.
//!
//! This module does no I/O: `app` reads the sources and publishes one [`Offers`] per vCenter entry and NSX Manager.
//! Mirrors `pkg/common/credentialmanager`.

pub mod layout;
pub mod offer;
pub mod pem;
pub mod source;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::{ExposeSecret, SecretString};

use self::source::SourceLocation;
use crate::cloud::login_ledger::SecretVersion;

/// User and password, or the place where they are stored. `Debug` prints no secrets.
#[derive(Clone)]
pub enum Credentials {
    /// In the cloud config itself.
    Inline {
        /// The user name, or a PEM certificate.
        user: String,
        /// The password, or a PEM private key.
        password: SecretString,
    },
    /// In a Secret or in files of a directory.
    Stored(SourceLocation),
}

/// The comparison is not in constant time: both values are configurations of this process, so timing discloses nothing.
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
            // If the operator swapped user and password, `user` is the private key.
            Self::Inline { user, .. } if user.contains("-----BEGIN") => {
                formatter.debug_struct("Inline").finish_non_exhaustive()
            }
            Self::Inline { user, .. } => formatter.debug_struct("Inline").field("user", user).finish_non_exhaustive(),
            Self::Stored(location) => location.fmt(formatter),
        }
    }
}

/// A login to present to a server. `Debug` prints no secrets.
#[derive(Clone)]
pub enum Login {
    /// A user name and its password.
    Password {
        /// The user name.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// A certificate and its key, configured as user name and password.
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
        /// The token that authenticates this process to the session manager.
        token: SessionToken,
    },
}

/// The bearer token for a session manager.
#[derive(Clone)]
pub enum SessionToken {
    /// A token that is configured together with the URL.
    Given(SecretString),
    /// The token of this process's service account. The kubelet renews the token, so each use reads it again.
    ServiceAccount(Arc<dyn ReadToken>),
}

/// Reader of a token that changes over time. Implemented by `app`, which has access to the files.
#[async_trait]
pub trait ReadToken: Send + Sync {
    /// Reads the current token.
    ///
    /// # Errors
    /// If the token cannot be read, returns the reason in one sentence without the token.
    async fn read(&self) -> Result<SecretString, String>;
}

/// Origin of a [`Login`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The file of `--cloud-config`, or an environment variable.
    Config,
    /// A Secret or a directory.
    Source {
        /// The Secret or the directory.
        location: SourceLocation,
        /// The version of the Secret; `None` for a directory. A change of a label or of another server's credentials
        /// also changes the version.
        version: Option<SecretVersion>,
    },
}

/// A [`Login`] and its [`Origin`]. Equal logins with different origins make the same request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The login.
    pub login: Login,
    /// The origin of the login.
    pub origin: Origin,
}

/// The current credentials of a vCenter entry or an NSX Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialState {
    /// A needed source was not read yet, so no login may be tried.
    Pending {
        /// The reason, which names the source.
        reason: String,
    },
    /// A needed source cannot be read, and no credentials are known, so no login may be tried.
    Unreadable {
        /// The reason, which names the source.
        reason: String,
    },
    /// The credentials in the order to try them; never empty. For a vCenter, those of the cloud config come first.
    Ready(Vec<Arc<Credential>>),
    /// All sources were read, but none has credentials for this entry. No login may be tried.
    Missing {
        /// The reason: the missing item and its place.
        reason: String,
    },
}

/// Watch of the [`CredentialState`] of one entry. The sender lives as long as the entry is in the configuration.
pub type Offers = tokio::sync::watch::Receiver<Arc<CredentialState>>;

impl CredentialState {
    /// Returns the credentials. If there are none, returns an empty list and the reason.
    pub(in crate::providers::vsphere) fn offered(&self) -> (Vec<Arc<Credential>>, Option<String>) {
        match self {
            CredentialState::Ready(credentials) => (credentials.clone(), None),
            CredentialState::Pending { reason }
            | CredentialState::Unreadable { reason }
            | CredentialState::Missing { reason } => (Vec::new(), Some(reason.clone())),
        }
    }
}

impl SessionToken {
    /// Returns the current token.
    ///
    /// # Errors
    /// Returns the reason if the token cannot be read.
    pub async fn read(&self) -> Result<SecretString, String> {
        match self {
            SessionToken::Given(token) => Ok(token.clone()),
            SessionToken::ServiceAccount(source) => source.read().await,
        }
    }
}

impl Login {
    /// Returns the kind of login, for logs and metrics.
    pub fn kind(&self) -> &'static str {
        self.parts().0
    }

    /// Returns kind, name and secret of the login. The token of the service account is left out, because this process
    /// has only one.
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
    /// Returns the version of the Secret for the login ledger; `None` for other origins.
    pub fn secret_version(&self) -> Option<SecretVersion> {
        match self {
            Origin::Source { version, .. } => version.clone(),
            Origin::Config => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Config => formatter.write_str("the cloud config"),
            Origin::Source { location, .. } => location.fmt(formatter),
        }
    }
}

/// The comparison is not in constant time: both values are credentials of this process, so timing discloses nothing.
impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Login {}

/// Prints only the kind, because a text in the place of a user name, a certificate or a URL may be a secret.
impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests;
