//! Delegated authentication and authorisation of the secure port by the API server.

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

/// Authentication settings, from the flags of the Go program's `DelegatingAuthenticationOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// Kubeconfig of the API server that authenticates. Default: the API server of this process.
    pub kubeconfig: Option<PathBuf>,
    /// Whether to ignore the ConfigMap `kube-system/extension-apiserver-authentication`.
    pub skips_lookup: bool,
    /// Whether to start although the ConfigMap `kube-system/extension-apiserver-authentication` cannot be read.
    pub tolerates_lookup_failure: bool,
    /// Time for which the result of a TokenReview is cached.
    pub cache: Duration,
    /// A file with the CAs of client certificates. It replaces the ConfigMap.
    pub client_ca: Option<PathBuf>,
}

/// Authorisation settings, from the flags of the Go program's `DelegatingAuthorizationOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// Kubeconfig of the API server that authorises. Default: the API server of this process.
    pub kubeconfig: Option<PathBuf>,
    /// Paths that need no permission.
    pub always_allow: OpenPaths,
    /// Time for which a granted permission is cached.
    pub allowed_cache: Duration,
    /// Time for which a denied permission is cached.
    pub refused_cache: Duration,
}
