//! The authorities whose client certificates the secure port accepts.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::pki_types::{CertificateDer, UnixTime};

use super::certificates::{self, Authorities, BadBundle, Refusal};
use crate::runtime::admin::access::User;

/// The authorities of the moment; none at first. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Trust(Arc<Mutex<Option<Authorities>>>);

impl Trust {
    /// Believes client certificates of the authorities in this PEM bundle from now on, and of no others.
    ///
    /// # Errors
    /// It is no bundle; all stays as it was.
    pub fn believe_clients(&self, pem: &[u8]) -> Result<(), BadBundle> {
        let authorities = Authorities::parse(pem)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorities);
        Ok(())
    }

    /// The user that a client's chain, leaf first, names; nobody when there is none, or there are no authorities.
    pub(super) fn user(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<Option<User>, Refusal> {
        let Some((leaf, others)) = chain.split_first() else { return Ok(None) };
        let authorities = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(authorities) = authorities else { return Ok(None) };
        authorities.verify(leaf, others, now)?;
        certificates::user(leaf)
    }
}
