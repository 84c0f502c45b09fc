//! SAML holder-of-key tokens: the token service issues them, and both of vCenter's protocols sign with their key.
//!
//! Certificates, keys and assertions are secrets here: they are never printed, and our own copies are wiped on drop.
//! The parsed key inside the signature library is not.

mod key;
pub(super) mod signature;

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

pub use key::{HolderKey, KeyError};

/// A token that only the holder of a key may use. Cheap to clone.
#[derive(Clone)]
pub struct Token {
    id: String,
    assertion: Arc<SecretString>,
    key: Arc<HolderKey>,
}

impl Token {
    /// Builds a token from its parts: the `saml2:Assertion` element byte for byte as issued (it is signed), its `ID`,
    /// and the key it was issued for.
    pub fn new(id: impl Into<String>, assertion: SecretString, key: Arc<HolderKey>) -> Self {
        Self { id: id.into(), assertion: Arc::new(assertion), key }
    }

    /// The assertion's `ID`.
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
