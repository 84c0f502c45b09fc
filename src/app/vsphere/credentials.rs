//! Sources of credentials. One task watches the Secrets and polls the directories that vCenter entries and NSX Managers
//! use, and publishes the [`Offers`] of each entry and manager.

mod directory;
mod readings;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use secrecy::SecretString;
use secrecy::zeroize::Zeroize;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::settings::vsphere::CloudConfig;
use crate::clients::http::Endpoint;
use crate::kubernetes::secrets::{self, SecretState};
use crate::providers::vsphere::config::VcenterConfig;
use crate::providers::vsphere::login::credentials::layout::{ANY_SERVER, KeyLayout, SessionManagers};
use crate::providers::vsphere::login::credentials::offer::{NsxSources, followed, nsx_offer, offer};
use crate::providers::vsphere::login::credentials::source::{
    CredentialSource, SecretPlace, SourceChanges, SourceLocation,
};
use crate::providers::vsphere::login::credentials::{
    Credential, CredentialState, Login, Offers, Origin, ReadToken, SessionToken,
};
use readings::{Observation, follow_directory, forward_changes, of_secret};

/// Maximum number of logged problems, and of logged servers, of one source. A source full of foreign keys must not fill
/// the log.
const MAX_LOGGED: usize = 20;

/// Interval at which removed entries are checked for remaining receivers.
const LINGER: Duration = Duration::from_secs(30);

/// Capacity of the queue of observations.
const QUEUE_CAPACITY: usize = 16;

/// The file in which the kubelet stores the service account's token.
pub const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

const TOKEN_LIMIT: Duration = Duration::from_secs(5);

/// The credentials of all vCenter entries and NSX Managers.
#[derive(Clone)]
pub struct Credentials {
    shared: Arc<SharedSources>,
}

struct SharedSources {
    sources: Mutex<KnownSources>,
    /// Signals that an entry or NSX Manager may need another source.
    changed: Notify,
    default_directory: PathBuf,
}

#[derive(Default)]
struct KnownSources {
    /// The contents of sources for vCenters.
    sources: BTreeMap<SourceLocation, CredentialSource>,
    entries: BTreeMap<Server, Entry>,
    /// The contents of Secrets for NSX.
    nsx_sources: BTreeMap<SecretPlace, CredentialSource>,
    /// Entries by server, so that a manager never gets the credentials of another manager.
    nsx: BTreeMap<String, NsxEntry>,
}

struct NsxEntry {
    sources: NsxSources,
    offer: watch::Sender<Arc<CredentialState>>,
}

/// Key, server and port of an entry. Credentials belong to all three, so that an entry with a changed server never
/// sends the credentials of the previous server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    pub key: String,
    server: String,
    port: u16,
}

struct Entry {
    config: VcenterConfig,
    offer: watch::Sender<Arc<CredentialState>>,
    /// Session managers for which the use of the service account's token is logged already.
    trusted: BTreeSet<String>,
}

impl Credentials {
    /// Returns the credentials for the configuration in `current`, and the task that keeps the credentials up to date.
    ///
    /// `hosts` are the allowed hosts of session managers; empty allows any host. `token` is the token file for session
    /// managers without their own token. Entries without user name and password in `vsphere.conf` read
    /// `default_directory` after their configured sources.
    pub fn new(
        secrets: kube::Client,
        current: watch::Receiver<Arc<CloudConfig>>,
        hosts: BTreeSet<String>,
        token: PathBuf,
        default_directory: PathBuf,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let shared = Arc::new(SharedSources { sources: Mutex::default(), changed: Notify::new(), default_directory });
        let (sender, readings) = mpsc::channel(QUEUE_CAPACITY);
        let keeper = CredentialUpdater {
            shared: Arc::clone(&shared),
            secrets,
            managers: Arc::new(SessionManagers { account: Arc::new(AccountToken(token)), hosts }),
            current,
            sender,
            reads: readings,
            followed: BTreeMap::new(),
            running: FuturesUnordered::new(),
        };
        (Self { shared }, keeper.run())
    }

    /// Returns the credentials of this entry and their changes. The first value already has the credentials from
    /// `vsphere.conf` and from sources that were read before.
    ///
    /// Entries with the same key, server and port share their offers, even after a reload that changes the credentials.
    /// The offers are removed once the entry is not configured and has no receivers.
    pub fn offers(&self, entry: &VcenterConfig) -> Offers {
        let mut known = self.shared.sources.lock();
        let server = Server::of(entry);
        let KnownSources { sources, entries, .. } = &mut *known;
        let held = entries.entry(server).or_insert_with(|| Entry {
            config: entry.clone(),
            offer: unread(),
            trusted: BTreeSet::new(),
        });
        held.config = entry.clone();
        held.publish(sources, &self.shared.default_directory);
        self.shared.changed.notify_one();
        held.offer.subscribe()
    }

    /// Returns the credentials of this NSX Manager and their changes; see [`nsx_offer`] for the precedence.
    ///
    /// Calls for the same server share their offers, even after a reload that changes the credentials. The offers are
    /// removed once they have no receiver, so the caller must keep a receiver until the next call.
    pub fn nsx_offers(&self, sources: &NsxSources) -> Offers {
        let mut known = self.shared.sources.lock();
        let KnownSources { nsx_sources, nsx, .. } = &mut *known;
        let entry =
            nsx.entry(sources.server.clone()).or_insert_with(|| NsxEntry { sources: sources.clone(), offer: unread() });
        entry.sources = sources.clone();
        entry.publish(nsx_sources);
        self.shared.changed.notify_one();
        entry.offer.subscribe()
    }
}

fn unread() -> watch::Sender<Arc<CredentialState>> {
    let offer = CredentialState::Pending { reason: "its credentials have not been looked at yet".to_owned() };
    watch::Sender::new(Arc::new(offer))
}

/// A Secret that is watched or a directory that is polled.
struct FollowedSource {
    layouts: BTreeSet<KeyLayout>,
    /// The newest state of a Secret, which may be newer than a queued observation; `None` for a directory.
    secret: Option<watch::Receiver<SecretState>>,
    _stop: DropGuard,
}

/// The task that owns the sources.
struct CredentialUpdater {
    shared: Arc<SharedSources>,
    secrets: kube::Client,
    managers: Arc<SessionManagers>,
    current: watch::Receiver<Arc<CloudConfig>>,
    sender: mpsc::Sender<(SourceLocation, Observation)>,
    reads: mpsc::Receiver<(SourceLocation, Observation)>,
    /// The followed sources. Removing a source stops its watch or poll.
    followed: BTreeMap<SourceLocation, FollowedSource>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl CredentialUpdater {
    async fn run(mut self) {
        let mut is_configured = true;
        loop {
            let lingers = self.remove_unused();
            self.follow_requested();
            tokio::select! {
                () = self.shared.changed.notified() => {}
                changed = self.current.changed(), if is_configured => is_configured = changed.is_ok(),
                Some((location, observation)) = self.reads.recv() => self.take(&location, observation),
                Some(()) = self.running.next(), if !self.running.is_empty() => {}
                () = tokio::time::sleep(LINGER), if lingers => {}
            }
        }
    }

    /// Removes vCenter entries that are not configured and have no receivers, and NSX entries without receivers.
    /// Returns true if the removal must be tried again later: an unconfigured vCenter entry or any NSX entry remains.
    fn remove_unused(&mut self) -> bool {
        let current = Arc::clone(&self.current.borrow_and_update());
        let configured: BTreeSet<Server> = current.config.vcenters.iter().map(Server::of).collect();
        let mut known = self.shared.sources.lock();
        known.entries.retain(|server, entry| configured.contains(server) || entry.offer.receiver_count() > 0);
        known.nsx.retain(|_, entry| entry.offer.receiver_count() > 0);
        known.entries.keys().any(|server| !configured.contains(server)) || !known.nsx.is_empty()
    }

    /// Starts one watch or poll for each source in use. Stops unused watches and polls.
    fn follow_requested(&mut self) {
        let asked = {
            let mut known = self.shared.sources.lock();
            let vcenters = known.entries.values().map(|entry| entry.config.entry_credentials());
            let nsx = known.nsx.values().map(|entry| &entry.sources);
            let asked = followed(vcenters, nsx, &self.shared.default_directory);
            let is_read = |location: &SourceLocation, layout| {
                asked.get(location).is_some_and(|layouts| layouts.contains(&layout))
            };
            known.sources.retain(|place, _| is_read(place, KeyLayout::Vcenter));
            known.nsx_sources.retain(|secret, _| is_read(&SourceLocation::from(secret), KeyLayout::BasicAuth));
            asked
        };
        self.followed.retain(|place, _| {
            let is_asked = asked.contains_key(place);
            if !is_asked {
                tracing::debug!(source = %place, "the source of credentials is followed no longer");
            }
            is_asked
        });
        for (place, layouts) in asked {
            match self.followed.get_mut(&place) {
                None => self.follow(place, layouts),
                Some(followed) if followed.layouts == layouts => {}
                Some(followed) => {
                    followed.layouts = layouts;
                    self.take(&place, Observation::Secret);
                }
            }
        }
    }

    fn follow(&mut self, location: SourceLocation, layouts: BTreeSet<KeyLayout>) {
        tracing::debug!(source = %location, "the source of credentials is followed");
        let stop = CancellationToken::new();
        let guarded = stop.clone();
        let sender = self.sender.clone();
        let (secret, work): (_, BoxFuture<'static, ()>) = match &location {
            SourceLocation::Secret { namespace, name } => {
                let (state, work) = secrets::watch_secret(self.secrets.clone(), namespace, name);
                let forwarding = forward_changes(location.clone(), state.clone(), sender);
                let work = async {
                    tokio::select! {
                        never = work => match never {},
                        () = forwarding => {}
                    }
                };
                (Some(state), Box::pin(work))
            }
            SourceLocation::Directory(path) => {
                (None, Box::pin(follow_directory(path.clone(), Arc::clone(&self.managers), sender)))
            }
        };
        self.running.push(Box::pin(async move {
            guarded.run_until_cancelled(work).await;
        }));
        self.followed.insert(location, FollowedSource { layouts, secret, _stop: stop.drop_guard() });
    }

    /// Stores an observation of a source in each layout in use, and publishes the changed offers.
    fn take(&self, location: &SourceLocation, observation: Observation) {
        let Some(followed) = self.followed.get(location) else { return };
        let mut known = self.shared.sources.lock();
        let KnownSources { sources, entries, nsx_sources, nsx } = &mut *known;
        match (observation, location, &followed.secret) {
            (Observation::Directory(reading), ..) => {
                log_changes(location, &sources.entry(location.clone()).or_default().take(reading));
            }
            (Observation::Secret, SourceLocation::Secret { namespace, name }, Some(state)) => {
                let secret = SecretPlace { namespace: namespace.clone(), name: name.clone() };
                let state = state.borrow().clone();
                for (layout, reading) in of_secret(&secret, &state, &followed.layouts, &self.managers) {
                    let source = match layout {
                        KeyLayout::Vcenter => sources.entry(location.clone()).or_default(),
                        KeyLayout::BasicAuth => nsx_sources.entry(secret.clone()).or_default(),
                    };
                    log_changes(location, &source.take(reading));
                }
            }
            (Observation::Secret, ..) => {}
        }
        for entry in entries.values_mut() {
            entry.publish(sources, &self.shared.default_directory);
        }
        for entry in nsx.values() {
            entry.publish(nsx_sources);
        }
    }
}

impl Server {
    pub fn of(entry: &VcenterConfig) -> Self {
        Self { key: entry.key.clone(), server: entry.server.clone(), port: entry.port }
    }
}

impl Entry {
    fn publish(&mut self, sources: &BTreeMap<SourceLocation, CredentialSource>, default_directory: &Path) {
        let (key, offer) = (&self.config.key, offer(self.config.entry_credentials(), default_directory, sources));
        let trusted = trusted_managers(&offer);
        for (manager, origin) in trusted.iter().filter(|(manager, _)| !self.trusted.contains(*manager)) {
            tracing::warn!(
                vcenter = key,
                from = %origin,
                "the service account's token, or that of --session-manager-token-file, is sent to the session manager at {manager}, \
                 which can use it wherever it is accepted: set a token for it (SERVER.vc-session-manager-token), or limit the hosts \
                 with --session-manager-hosts"
            );
        }
        // An empty set is not stored: a source that is empty for a short time must not repeat the warning.
        if !trusted.is_empty() {
            self.trusted = trusted.into_keys().collect();
        }
        replace(&self.offer, offer, (Some(key), None));
    }
}

impl NsxEntry {
    fn publish(&self, secrets: &BTreeMap<SecretPlace, CredentialSource>) {
        replace(&self.offer, nsx_offer(&self.sources, secrets), (None, Some(&self.sources.server)));
    }
}

/// Publishes the offer if it has changed. The log line names the vCenter or the NSX Manager.
fn replace(
    sender: &watch::Sender<Arc<CredentialState>>,
    offer: CredentialState,
    (vcenter, nsx): (Option<&str>, Option<&str>),
) {
    sender.send_if_modified(|known| {
        if **known == offer {
            return false;
        }
        match (&**known, &offer) {
            (CredentialState::Ready(known), CredentialState::Ready(new)) if is_same(known, new) => {
                tracing::debug!(vcenter, nsx, "a new version of the source has the same credentials");
            }
            (_, CredentialState::Ready(new)) => tracing::info!(vcenter, nsx, from = origins(new), "credentials"),
            (_, CredentialState::Pending { reason: why }) => {
                tracing::info!(vcenter, nsx, reason = why, "no credentials yet")
            }
            (_, CredentialState::Missing { reason: why }) => {
                tracing::warn!(vcenter, nsx, reason = why, "there are no credentials")
            }
        }
        *known = Arc::new(offer);
        true
    });
}

/// Returns the session managers that get the service account's token, by base URL. Omits URLs without encryption.
fn trusted_managers(offer: &CredentialState) -> BTreeMap<String, &Origin> {
    let CredentialState::Ready(credentials) = offer else { return BTreeMap::new() };
    let trusted = credentials.iter().filter_map(|credential| match &credential.login {
        Login::SharedSession { url, token: SessionToken::ServiceAccount(_) } => {
            let endpoint = Endpoint::of_url(url).ok().filter(Endpoint::is_confidential)?;
            Some((endpoint.base(), &credential.origin))
        }
        _ => None,
    });
    trusted.collect()
}

fn is_same(one: &[Arc<Credential>], other: &[Arc<Credential>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.login == other.login)
}

fn origins(credentials: &[Arc<Credential>]) -> String {
    let shown = credentials.iter().map(|credential| format!("{} of {}", credential.login.kind(), credential.origin));
    shown.collect::<Vec<_>>().join(", then ")
}

/// Logs changes of a source with the names of keys and servers, never with values.
fn log_changes(location: &SourceLocation, changes: &SourceChanges) {
    match changes.servers.as_deref() {
        Some([only]) if only == ANY_SERVER => tracing::info!(source = %location, "user name and password were read"),
        Some(servers) => {
            let shown: Vec<_> = servers.iter().take(MAX_LOGGED).map(String::as_str).collect();
            tracing::info!(source = %location, count = servers.len(), servers = shown.join(" "), "credentials were read");
        }
        None => {}
    }
    for problem in changes.problems.iter().take(MAX_LOGGED) {
        tracing::warn!(source = %location, "{problem}");
    }
    if let Some(more) = changes.problems.len().checked_sub(MAX_LOGGED).filter(|more| *more > 0) {
        tracing::warn!(source = %location, "and {more} more problems");
    }
}

/// Token file for session managers without their own token. Read at each use, since the kubelet renews the token.
struct AccountToken(PathBuf);

#[async_trait]
impl ReadToken for AccountToken {
    async fn read(&self) -> Result<SecretString, String> {
        let failed =
            |reason: String| format!("the token for session managers {} cannot be read: {reason}", self.0.display());
        let mut bytes = match tokio::time::timeout(TOKEN_LIMIT, tokio::fs::read(&self.0)).await {
            Ok(read) => read.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed(format!("no answer within {} s", TOKEN_LIMIT.as_secs()))),
        };
        let token = match std::str::from_utf8(&bytes).map(str::trim) {
            Ok("") => Err(failed("it is empty".to_owned())),
            Ok(text) => Ok(SecretString::from(text)),
            Err(_) => Err(failed("it is not text".to_owned())),
        };
        bytes.zeroize();
        token
    }
}

#[cfg(test)]
mod tests;
