//! Whom the secure port believes by itself: client certificates of some authorities, and proxies that say who asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::UnixTime;

use super::certificates::{self, Authorities, BadBundle, Refusal};
use super::request_headers::RequestHeaders;
use crate::runtime::admin::access::{Shown, User};

/// The authorities and proxies of the moment; empty at first. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct Trust(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    clients: Option<Arc<Authorities>>,
    proxies: Option<Arc<Proxies>>,
}

struct Proxies {
    authorities: Authorities,
    settings: ProxySettings,
}

/// Which proxies are believed, and how they say who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxySettings {
    /// Common names of their certificates; empty is any.
    pub allowed_names: Vec<String>,
    /// What they say.
    pub headers: RequestHeaders,
}

impl Trust {
    /// Believes client certificates of the authorities in this PEM bundle from now on, and of no others.
    ///
    /// # Errors
    /// It is no bundle; all stays as it was.
    pub fn believe_clients(&self, pem: &[u8]) -> Result<(), BadBundle> {
        let authorities = Authorities::parse(pem)?;
        self.known().clients = Some(Arc::new(authorities));
        Ok(())
    }

    /// Believes proxies with certificates of the authorities in this PEM bundle from now on, and no others.
    ///
    /// # Errors
    /// It is no bundle; all stays as it was.
    pub fn believe_proxies(&self, pem: &[u8], settings: ProxySettings) -> Result<(), BadBundle> {
        let authorities = Authorities::parse(pem)?;
        self.known().proxies = Some(Arc::new(Proxies { authorities, settings }));
        Ok(())
    }

    /// The user that a proxy names; nobody when it names none, or there are no proxies.
    pub(super) fn user_of_proxy(&self, shown: Shown<'_>, now: UnixTime) -> Result<Option<User>, Refusal> {
        let Some((leaf, others)) = shown.certificates.split_first() else { return Ok(None) };
        let Some(proxies) = self.known().proxies.clone() else { return Ok(None) };
        proxies.authorities.verify(leaf, others, now)?;
        let ProxySettings { allowed_names, headers } = &proxies.settings;
        let name = certificates::common_name(leaf)?;
        if !allowed_names.is_empty() && !allowed_names.contains(&name) {
            return Err(Refusal::NoProxy(name));
        }
        Ok(headers.user(shown.headers))
    }

    /// The user that a client certificate names; nobody when there is none, or there are no authorities.
    pub(super) fn user_of_certificate(&self, shown: Shown<'_>, now: UnixTime) -> Result<Option<User>, Refusal> {
        let Some((leaf, others)) = shown.certificates.split_first() else { return Ok(None) };
        let Some(authorities) = self.known().clients.clone() else { return Ok(None) };
        authorities.verify(leaf, others, now)?;
        certificates::user(leaf)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
