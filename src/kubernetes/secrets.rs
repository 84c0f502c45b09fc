//! Watches single Secrets by name. Reads no other Secret, and needs only a Role for the named Secret with `get`,
//! `watch` or both.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use secrecy::{ExposeSecret, SecretSlice};
use tokio::sync::watch;

use super::call::CALL_LIMIT;
use super::watch::WatchPolicy;
use super::watch::object::{ObjectPolicy, ObjectUpdate, follow};
use crate::base::error_chain::chain;

const POLICY: ObjectPolicy = ObjectPolicy {
    watch: WatchPolicy { seconds: 60..120, call_limit: CALL_LIMIT, is_extended_by_events: true },
    poll: Duration::from_secs(10),
    watches_without_get: true,
    forbidden: Duration::from_secs(30),
    worked: Duration::from_secs(10),
};

/// Result of watching one Secret.
#[derive(Clone, Debug)]
pub enum SecretState {
    /// The first read has not completed.
    Pending,
    /// All reads so far have failed. Contains the reason of the last failure.
    Failing(String),
    /// The Secret does not exist, or this process is not permitted to read it. Contains the reason.
    Absent(String),
    /// The Secret was read. The state stays while the API server does not answer.
    Read(Arc<SecretVersion>),
}

/// One version of a Secret. `Debug` omits the data.
#[derive(Debug)]
pub struct SecretVersion {
    /// UID of the Secret. It changes when the Secret is deleted and recreated.
    pub uid: String,
    /// resourceVersion of the Secret.
    pub resource_version: String,
    data: BTreeMap<String, SecretSlice<u8>>,
}

impl SecretVersion {
    /// Copies the data of the Secret, and wipes the original buffers.
    fn new(secret: Secret) -> Self {
        let entries = secret.data.unwrap_or_default().into_iter();
        let data = entries.map(|(key, mut value)| (key, wiped_into_box(&mut value.0)));
        Self {
            uid: secret.metadata.uid.unwrap_or_default(),
            resource_version: secret.metadata.resource_version.unwrap_or_default(),
            data: data.collect(),
        }
    }

    /// Returns the keys and values of the data.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.data.iter().map(|(key, value)| (key.as_str(), value.expose_secret()))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.resource_version == other.resource_version
    }

    /// Whether both are versions of one object, and this is the older one.
    fn is_older_than(&self, other: &Self) -> bool {
        let number = |version: &Self| version.resource_version.parse::<u64>().ok();
        self.uid == other.uid && matches!((number(self), number(other)), (Some(own), Some(others)) if own < others)
    }
}

/// Returns a copy of exactly the required size, which is wiped on drop. Wipes the original immediately. A conversion of
/// the vector into a box would leave another copy in memory if the vector has spare capacity.
fn wiped_into_box(value: &mut Vec<u8>) -> SecretSlice<u8> {
    let copy = SecretSlice::from(Box::<[u8]>::from(value.as_slice()));
    secrecy::zeroize::Zeroize::zeroize(value);
    copy
}

/// Watches the Secret `namespace/name`. Returns a channel with the state, and a future that updates the state until the
/// future is dropped.
pub fn watch_secret(
    client: Client,
    namespace: &str,
    name: &str,
) -> (watch::Receiver<SecretState>, impl Future<Output = Infallible> + Send + use<>) {
    let (state, receiver) = watch::channel(SecretState::Pending);
    let observer = Observer { shown: format!("secret {namespace}/{name}"), state };
    let api = Api::namespaced(client, namespace);
    (receiver, follow(api, name.to_owned(), &POLICY, move |update| observer.handle_update(update)))
}

struct Observer {
    shown: String,
    state: watch::Sender<SecretState>,
}

impl Observer {
    /// Ignores older versions from a watch that follows a `get`. Accepts every version from a `get`, because versions
    /// are lower after a restore of etcd.
    fn handle_update(&self, update: ObjectUpdate<Secret>) {
        let may_be_late = matches!(update, ObjectUpdate::Watched(_));
        let next = match update {
            ObjectUpdate::Read(Some(secret)) | ObjectUpdate::Watched(Some(secret)) => {
                SecretState::Read(Arc::new(SecretVersion::new(secret)))
            }
            ObjectUpdate::Read(None) | ObjectUpdate::Watched(None) => {
                SecretState::Absent("it does not exist".to_owned())
            }
            ObjectUpdate::Polled => return tracing::info!(secret = self.shown, "may not be watched, so it is polled"),
            ObjectUpdate::Forbidden(error) => {
                let why = "this process may not read it: it needs the verbs get and watch for this Secret";
                SecretState::Absent(format!("{why} ({})", chain(&error)))
            }
            ObjectUpdate::Failed(failure) => {
                let reason = chain(&failure);
                tracing::debug!(secret = self.shown, "{reason}");
                SecretState::Failing(reason)
            }
        };
        self.state.send_if_modified(|state| {
            let is_news = match (&*state, &next) {
                (SecretState::Read(known), SecretState::Read(version)) => {
                    !(known.is_same(version) || may_be_late && version.is_older_than(known))
                }
                (SecretState::Absent(old), SecretState::Absent(new))
                | (SecretState::Failing(old), SecretState::Failing(new)) => old != new,
                (SecretState::Absent(_) | SecretState::Read(_), SecretState::Failing(_)) => false,
                _ => true,
            };
            if is_news {
                *state = next;
            }
            is_news
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    #[test]
    fn a_watch_that_begins_in_the_past_does_not_bring_an_old_version_back() {
        let (state, receiver) = watch::channel(SecretState::Pending);
        let observer = Observer { shown: "secret kube-system/vc".to_owned(), state };
        let secret = |uid: &str, version: &str| {
            let mut secret = Secret::default();
            secret.metadata.uid = Some(uid.to_owned());
            secret.metadata.resource_version = Some(version.to_owned());
            secret
        };
        for (uid, version, may_be_late, expected) in [
            ("a", "100", false, "100"),
            ("a", "99", true, "100"),
            ("a", "101", true, "101"),
            ("b", "9", true, "9"),
            ("b", "8", false, "8"),
            ("b", "no number", true, "no number"),
        ] {
            let update = Some(secret(uid, version));
            observer.handle_update(if may_be_late {
                ObjectUpdate::Watched(update)
            } else {
                ObjectUpdate::Read(update)
            });
            let SecretState::Read(known) = receiver.borrow().clone() else { panic!("not read") };
            assert_eq!((known.uid.as_str(), known.resource_version.as_str()), (uid, expected));
        }
    }

    /// The type bound checks that every copy in this file is wiped on drop.
    #[test]
    fn the_data_of_a_secret_is_wiped_on_drop_and_does_not_print() {
        fn is_wiped_on_drop<T: secrecy::zeroize::ZeroizeOnDrop>(_: &T) {}
        let mut buffer = ByteString(b"hidden".to_vec());
        let copy = wiped_into_box(&mut buffer.0);
        is_wiped_on_drop(&copy);
        assert_eq!(copy.expose_secret(), b"hidden");
        assert!(buffer.0.is_empty(), "the original is wiped");

        let data = BTreeMap::from([("key".to_owned(), ByteString(b"hidden".to_vec()))]);
        let version = SecretVersion::new(Secret { data: Some(data), ..Secret::default() });
        version.data.values().for_each(is_wiped_on_drop);
        assert_eq!(version.entries().collect::<Vec<_>>(), [("key", b"hidden".as_slice())]);
        let shown = format!("{version:?}");
        assert!(shown.contains("key") && !shown.contains("hidden") && !shown.contains("104"), "{shown}");
    }
}
