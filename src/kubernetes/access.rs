//! Delegated authentication and authorisation of the secure port: the API server decides who the client is, and what it
//! may do.

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

/// Authentication settings: the flags of the Go program's `DelegatingAuthenticationOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// The kubeconfig of the API server to ask; by default, the process's own API server.
    pub kubeconfig: Option<PathBuf>,
    /// Whether to ignore the ConfigMap `kube-system/extension-apiserver-authentication`.
    pub skips_lookup: bool,
    /// Whether to start although that ConfigMap cannot be read.
    pub tolerates_lookup_failure: bool,
    /// How long the result of a TokenReview is cached.
    pub cache: Duration,
    /// CAs of client certificates, instead of those in the ConfigMap.
    pub client_ca: Option<PathBuf>,
}

/// Authorisation settings: the flags of the Go program's `DelegatingAuthorizationOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// The kubeconfig of the API server to ask; by default, the process's own API server.
    pub kubeconfig: Option<PathBuf>,
    /// Paths that need no permission.
    pub always_allow: OpenPaths,
    /// How long a granted permission is cached.
    pub allowed_cache: Duration,
    /// How long a denied permission is cached.
    pub refused_cache: Duration,
}
