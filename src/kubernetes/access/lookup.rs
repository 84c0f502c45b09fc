//! Watches the ConfigMap in which the API server publishes the CAs of client certificates, and trusts the same CAs.
//!
//! The previous CAs stay in use while the ConfigMap is missing or cannot be read, and while its key `client-ca-file` is
//! missing or invalid. The `requestheader-*` keys for a front proxy are ignored: the secure port accepts no identity
//! from headers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use tokio::sync::watch;

use super::certificates::ClientTrust;
use crate::base::error_chain::chain;
use crate::kubernetes::call::{CALL_LIMIT, CallError};
use crate::kubernetes::watch::object::{ObjectPolicy, ObjectUpdate, follow};
use crate::kubernetes::watch::{Failure, PAUSE_FORBIDDEN, WatchPolicy};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

const CLIENT_CA: &str = "client-ca-file";

const SHOWN: &str = "configmap kube-system/extension-apiserver-authentication";

const POLICY: ObjectPolicy = ObjectPolicy {
    watch: WatchPolicy { seconds: 240..480, call_limit: CALL_LIMIT, is_extended_by_events: true },
    poll: Duration::from_secs(60),
    watches_without_get: false,
    forbidden: PAUSE_FORBIDDEN,
    worked: Duration::from_secs(30),
};

/// Result of the last read of the ConfigMap.
#[derive(Debug, Clone)]
pub enum LookupResult {
    /// The first read has not completed.
    Pending,
    /// The ConfigMap was read, or it does not exist.
    Done,
    /// This process is not permitted to read the ConfigMap.
    Forbidden(Arc<CallError>),
    /// The call to the API server failed for a reason other than a missing permission.
    Failed,
}

/// Returns a channel with the result of the last read, and a future that replaces the CAs of `trust` by those of the
/// ConfigMap. The future never completes.
pub fn follow_published(
    client: Client,
    trust: ClientTrust,
) -> (watch::Receiver<LookupResult>, impl Future<Output = Infallible> + Send + use<>) {
    let (looks, receiver) = watch::channel(LookupResult::Pending);
    let api = Api::namespaced(client, NAMESPACE);
    let mut lookup = ClientCaLookup { trust, result: looks, last_bundle: None };
    (receiver, follow(api, NAME.to_owned(), &POLICY, move |update| lookup.handle_update(update)))
}

struct ClientCaLookup {
    trust: ClientTrust,
    result: watch::Sender<LookupResult>,
    /// The last processed bundle, valid or invalid.
    last_bundle: Option<String>,
}

impl ClientCaLookup {
    fn handle_update(&mut self, update: ObjectUpdate<ConfigMap>) {
        match update {
            ObjectUpdate::Read(found) => {
                match found {
                    Some(found) => self.take(found),
                    None => tracing::debug!("there is no {SHOWN}"),
                }
                self.result.send_replace(LookupResult::Done);
            }
            ObjectUpdate::Watched(Some(found)) => self.take(found),
            ObjectUpdate::Watched(None) => {}
            ObjectUpdate::Polled => tracing::info!("{SHOWN} may not be watched, so it is polled"),
            ObjectUpdate::Forbidden(error) => self.forbidden(error),
            ObjectUpdate::Failed(failure) => self.failed(&failure),
        }
    }

    /// Applies the bundle of the ConfigMap if it has changed. Logs an invalid bundle once and keeps the previous CAs.
    /// Ignores a missing or blank `client-ca-file`.
    fn take(&mut self, found: ConfigMap) {
        let bundle = found.data.and_then(|mut data| data.remove(CLIENT_CA)).filter(|pem| !pem.trim().is_empty());
        let Some(pem) = bundle.filter(|pem| self.last_bundle.as_ref() != Some(pem)) else { return };
        match self.trust.trust_clients(pem.as_bytes()) {
            Ok(()) => tracing::debug!("taken over: {CLIENT_CA} of {SHOWN}"),
            Err(error) => tracing::warn!("{SHOWN}: {CLIENT_CA}: {}; what was known before stays", chain(&error)),
        }
        self.last_bundle = Some(pem);
    }

    fn forbidden(&self, error: CallError) {
        if !matches!(*self.result.borrow(), LookupResult::Forbidden(_)) {
            tracing::warn!(
                "client certificates are not believed at the secure port: {}; to allow it, bind the user of this \
                 process to the Role extension-apiserver-authentication-reader in kube-system",
                chain(&error)
            );
        }
        self.result.send_replace(LookupResult::Forbidden(Arc::new(error)));
    }

    fn failed(&self, failure: &Failure) {
        // Only the first failed call causes a warning. After a broken watch, the next read shows whether calls fail.
        let is_told = !matches!(
            (&*self.result.borrow(), failure),
            (LookupResult::Pending | LookupResult::Done, Failure::Call(_))
        );
        if is_told {
            tracing::debug!("{}", chain(failure));
        } else {
            tracing::warn!(
                "the client CAs for the secure port cannot be read and may have changed: {}",
                chain(failure)
            );
        }
        if matches!(failure, Failure::Call(_)) {
            self.result.send_replace(LookupResult::Failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::access::authority::{Authority, client};
    use rustls::pki_types::{CertificateDer, UnixTime};
    use serde_json::json;

    #[tokio::test]
    async fn the_cas_of_clients_are_taken_over_and_what_says_nothing_of_them_changes_nothing() {
        let (one, two, proxies) = (Authority::new("one"), Authority::new("two"), Authority::new("proxies"));
        let (looks, trust) = (watch::Sender::new(LookupResult::Pending), ClientTrust::default());
        let mut lookup = ClientCaLookup { trust, result: looks, last_bundle: None };
        let signed = |authority: &Authority| [authority.sign(&client("jane", &[]))];
        let (of_one, of_two, of_proxies) = (signed(&one), signed(&two), signed(&proxies));
        for (name, data, expected) in [
            ("nothing is there", json!(null), [false, false]),
            ("no data", json!({}), [false, false]),
            ("an authority", json!({"client-ca-file": one.pem}), [true, false]),
            ("the key is gone", json!({"else": two.pem}), [true, false]),
            ("the key is blank", json!({"client-ca-file": "\n"}), [true, false]),
            ("no bundle", json!({"client-ca-file": "hello"}), [true, false]),
            ("another authority", json!({"client-ca-file": two.pem}), [false, true]),
            ("proxies only", json!({"requestheader-client-ca-file": proxies.pem}), [false, true]),
            (
                "proxies by a list that is none",
                json!({"client-ca-file": one.pem, "requestheader-client-ca-file": proxies.pem,
                    "requestheader-username-headers": "X-Remote-User"}),
                [true, false],
            ),
        ] {
            let found = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data});
            lookup.take(serde_json::from_value(found).unwrap());
            let is_known =
                |chain: &[CertificateDer<'_>]| matches!(lookup.trust.user(chain, UnixTime::now()), Ok(Some(_)));
            assert_eq!([is_known(&of_one), is_known(&of_two)], expected, "{name}");
            assert!(!is_known(&of_proxies), "{name}");
        }
    }
}
