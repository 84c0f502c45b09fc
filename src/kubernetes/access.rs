//! Delegated authentication and authorisation: the API server says who asks at the secure port, and what they may.

mod authenticator;
#[cfg(test)]
mod authority;
mod certificates;
mod lookup;
mod metrics;
mod open_paths;
mod permissions;
mod review_client;
#[cfg(test)]
mod scripted_server;
mod token_reviews;

use std::path::PathBuf;
use std::time::Duration;

pub use authenticator::DelegatedAuthenticator;
pub use certificates::{BadBundle, ClientTrust, check_bundle};
pub use lookup::{LookupResult, follow_published};
pub use metrics::Metrics;
pub use open_paths::{BadPattern, OpenPaths};
pub use permissions::Permissions;
pub use token_reviews::TokenReviews;

/// Who asks: the flags of the Go program's `DelegatingAuthenticationOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// The API server that is asked; without it that of the process itself.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the ConfigMap `kube-system/extension-apiserver-authentication` is left alone.
    pub skips_lookup: bool,
    /// Whether the process goes on although that ConfigMap cannot be read.
    pub tolerates_lookup_failure: bool,
    /// How long an answer about a token is believed.
    pub cache: Duration,
    /// CAs of client certificates, instead of the ConfigMap's.
    pub client_ca: Option<PathBuf>,
}

/// Who may do what: the flags of the Go program's `DelegatingAuthorizationOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// The API server that is asked; without it that of the process itself.
    pub kubeconfig: Option<PathBuf>,
    /// Paths that are open to everybody.
    pub always_allow: OpenPaths,
    /// How long a permission is believed.
    pub allowed_cache: Duration,
    /// How long a refusal is believed.
    pub refused_cache: Duration,
}
