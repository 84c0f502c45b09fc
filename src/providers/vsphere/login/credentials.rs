//! What is presented to vCenter and NSX, and where it comes from: the file, a Secret, a directory.
//!
//! Nothing here reads anything: `app` holds the sources and publishes one [`Offers`] per vCenter entry and NSX Manager.
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
    /// They are in the file.
    Inline {
        /// The user name, or a PEM certificate.
        user: String,
        /// The password, or a PEM private key.
        password: SecretString,
    },
    /// They are in a Secret, under keys that begin with the server, or in files of a directory. Whether it exists is not
    /// checked here.
    Stored(SourceLocation),
}

/// Not in constant time: both sides are configurations of this process, so timing discloses nothing.
impl PartialEq for Credentials {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inline { user, password }, Self::Inline { user: other_user, password: other_password }) => {
                user == other_user && password.expose_secret() == other_password.expose_secret()
            }
            (Self::Stored(place), Self::Stored(other)) => place == other,
            _ => false,
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // It may be the private key, if somebody swapped the two.
            Self::Inline { user, .. } if user.contains("-----BEGIN") => {
                formatter.debug_struct("Inline").finish_non_exhaustive()
            }
            Self::Inline { user, .. } => formatter.debug_struct("Inline").field("user", user).finish_non_exhaustive(),
            Self::Stored(place) => place.fmt(formatter),
        }
    }
}

/// What is presented to a server. Prints without secrets.
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
    /// A session that a session manager shares.
    SharedSession {
        /// Where the session manager hands out tickets.
        url: String,
        /// What proves to the session manager who asks.
        token: SessionToken,
    },
}

/// The bearer token for a session manager.
#[derive(Clone)]
pub enum SessionToken {
    /// It stands beside the URL.
    Given(SecretString),
    /// None is given: it is this process's service account. The kubelet renews that token, so it is read at each use,
    /// and a new one is no new credential.
    ServiceAccount(Arc<dyn ReadToken>),
}

/// Reads a token that changes by itself. Implemented in `app`, which knows the files.
#[async_trait]
pub trait ReadToken: Send + Sync {
    /// The token as it is now.
    ///
    /// # Errors
    /// Why it cannot be read, in one sentence without the token.
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
        /// The resourceVersion it was read at. It also changes when only a label or another server's pair did.
        resource_version: String,
    },
}

/// A [`Login`] and its [`Origin`]. Equal ones are the same credential; equal logins of different origins ask vCenter for
/// the same thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// What is presented.
    pub login: Login,
    /// Where it came from.
    pub origin: Origin,
}

/// The credentials of a vCenter entry or an NSX Manager at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialState {
    /// A source was not read yet. Nothing may be tried.
    Pending {
        /// What is waited for.
        why: String,
    },
    /// In the order to try them: the pair of the file, then that of the Secret or directory. Never empty.
    Ready(Vec<Arc<Credential>>),
    /// All sources were read, and there is nothing for this entry. Nothing may be tried.
    Missing {
        /// What is missing, and where.
        why: String,
    },
}

/// One entry's [`CredentialState`], as it changes. The sender lives as long as the entry is in the configuration.
pub type Offers = tokio::sync::watch::Receiver<Arc<CredentialState>>;

impl SessionToken {
    /// The token as it is now.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn read(&self) -> Result<SecretString, String> {
        match self {
            SessionToken::Given(token) => Ok(token.clone()),
            SessionToken::ServiceAccount(source) => source.read().await,
        }
    }
}

impl Login {
    /// Which kind it is, for logs and metrics.
    pub fn kind(&self) -> &'static str {
        self.parts().0
    }

    /// The kind and all that is presented; nothing for the token of the service account, of which there is one.
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
    /// The version of the Secret, for the login ledger; none for credentials from elsewhere.
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

/// Only its kind: what was taken for a user name, a certificate or a URL may be a secret.
impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests;
