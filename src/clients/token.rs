//! SAML holder-of-key tokens from the token service. The SOAP and REST logins sign with the key of a token.
//!
//! Certificates, keys and assertions are never printed. Our own copies of keys and assertions are wiped on drop, except
//! the parsed key inside the signature library.

mod key;
pub(super) mod signature;

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

pub use key::{HolderKey, KeyError};

/// A token that only the holder of its key can use. Clones are cheap.
#[derive(Clone)]
pub struct Token {
    id: String,
    assertion: Arc<SecretString>,
    key: Arc<HolderKey>,
}

impl Token {
    /// Builds a token from the `ID` of a `saml2:Assertion`, the assertion byte for byte as issued, and the key of the
    /// token.
    pub fn new(id: impl Into<String>, assertion: SecretString, key: Arc<HolderKey>) -> Self {
        Self { id: id.into(), assertion: Arc::new(assertion), key }
    }

    /// Returns the assertion's `ID`.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn assertion(&self) -> &str {
        self.assertion.expose_secret()
    }

    pub(super) fn key(&self) -> &HolderKey {
        &self.key
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
