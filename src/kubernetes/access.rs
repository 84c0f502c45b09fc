//! Delegated authentication and authorisation: the API server says who asks at the secure port, and what they may.

mod authenticator;
mod metrics;
mod open_paths;
mod permissions;
mod questions;
mod remembered;
#[cfg(test)]
mod scripted;
mod token_reviews;

use std::path::PathBuf;
use std::time::Duration;

pub use authenticator::Delegated;
pub use metrics::Metrics;
pub use open_paths::{BadPattern, OpenPaths};
pub use permissions::Permissions;
pub use token_reviews::TokenReviews;

/// Who asks: the flags of the Go program's `DelegatingAuthenticationOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// The API server that is asked; without it that of the pod, or nobody.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the ConfigMap `kube-system/extension-apiserver-authentication` is left alone.
    pub skips_lookup: bool,
    /// Whether the process goes on although that ConfigMap cannot be read.
    pub tolerates_lookup_failure: bool,
    /// How long an answer about a token is believed.
    pub cache: Duration,
    /// CAs of client certificates, instead of the ConfigMap's.
    pub client_ca: Option<PathBuf>,
    /// Proxies that are believed, instead of the ConfigMap's.
    pub request_header: Option<RequestHeaderFiles>,
}

/// The proxies whose headers say who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeaderFiles {
    /// The CAs of their certificates.
    pub ca: PathBuf,
    /// Common names of their certificates; empty is any.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name.
    pub username_headers: Vec<String>,
    /// Headers with the user's UID.
    pub uid_headers: Vec<String>,
    /// Headers with a group of the user.
    pub group_headers: Vec<String>,
    /// Beginnings of headers with further facts.
    pub extra_prefixes: Vec<String>,
}

/// Who may do what: the flags of the Go program's `DelegatingAuthorizationOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// The API server that is asked; without it that of the pod, or nobody.
    pub kubeconfig: Option<PathBuf>,
    /// Paths that are open to everybody.
    pub always_allow: OpenPaths,
    /// How long a permission is believed.
    pub allowed_cache: Duration,
    /// How long a refusal is believed.
    pub refused_cache: Duration,
}
