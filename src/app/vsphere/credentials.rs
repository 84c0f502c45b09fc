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
use futures::stream::{BoxStream, FuturesUnordered};
use parking_lot::Mutex;
use secrecy::SecretString;
use secrecy::zeroize::Zeroize;
use tokio::sync::{Notify, watch};

use crate::base::addresses::host_and_port;
use crate::clients::http::Endpoint;
use crate::kubernetes::secrets::SecretState;
use crate::providers::vsphere::login::credentials::layout::{ANY_SERVER, KeyLayout, SessionManagers};
use crate::providers::vsphere::login::credentials::offer::{CredentialSettings, CredentialSources, followed};
use crate::providers::vsphere::login::credentials::source::{SourceChanges, SourceLocation};
use crate::providers::vsphere::login::credentials::{
    Credential, CredentialState, Login, Offers, Origin, ReadToken, SessionToken,
};
use readings::{Observation, observe, of_secret};

/// Maximum number of logged problems, and of logged servers, of one source. A source full of foreign keys must not fill
/// the log.
const MAX_LOGGED: usize = 20;

/// Interval at which entries are checked for remaining receivers.
const LINGER: Duration = Duration::from_secs(30);

/// The file in which the kubelet stores the service account's token.
pub const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Maximum number of kept user names of earlier credentials of an entry.
const MAX_USERS: usize = 16;

const TOKEN_LIMIT: Duration = Duration::from_secs(5);

/// The credentials of all vCenter entries and NSX Managers.
pub struct Credentials {
    known: Mutex<KnownSources>,
    /// Signals that an entry may need another source.
    changed: Notify,
    default_directory: PathBuf,
}

#[derive(Default)]
struct KnownSources {
    sources: CredentialSources,
    entries: BTreeMap<ServerKey, Entry>,
}

/// Name of the vCenter entry (none for NSX), server and port. Credentials belong to all three, so that an entry with a
/// changed server never sends the credentials of the previous server.
type ServerKey = (Option<String>, String, u16);

struct Entry {
    settings: CredentialSettings,
    offer: watch::Sender<Arc<CredentialState>>,
    /// The last user names that were offered before, up to [`MAX_USERS`].
    former_users: Vec<String>,
    /// Session managers for which the use of the service account's token is logged already.
    trusted: BTreeSet<String>,
}

impl Credentials {
    /// Returns the credentials, and the task that keeps them up to date.
    ///
    /// `hosts` are the allowed hosts of session managers; empty allows any host. `token` is the token file for session
    /// managers without their own token. Entries without user name and password in `vsphere.conf` read
    /// `default_directory` after their configured sources.
    pub fn new(
        secrets: kube::Client,
        hosts: BTreeSet<String>,
        token: PathBuf,
        default_directory: PathBuf,
    ) -> (Arc<Self>, impl Future<Output = ()> + Send + use<>) {
        let credentials = Arc::new(Self { known: Mutex::default(), changed: Notify::new(), default_directory });
        let keeper = CredentialUpdater {
            credentials: Arc::clone(&credentials),
            secrets,
            managers: Arc::new(SessionManagers { account: Arc::new(AccountToken(token)), hosts }),
            followed: BTreeMap::new(),
        };
        (credentials, keeper.run())
    }

    /// Returns the credentials for these settings and their changes. The first value already has the credentials from
    /// `vsphere.conf` and from sources that were read before.
    ///
    /// Settings with the same entry, server and port share their offers, even after a reload that changes the
    /// credentials. The offers are removed once they have no receiver, so the caller must keep a receiver until the
    /// next call.
    pub fn offers(&self, settings: CredentialSettings) -> Offers {
        let mut known = self.known.lock();
        let KnownSources { sources, entries } = &mut *known;
        let key = (settings.entry.clone(), settings.server.clone(), settings.port);
        let entry = entries.entry(key).or_insert_with(|| Entry::new(settings.clone()));
        entry.settings = settings;
        entry.publish(sources, &self.default_directory);
        self.changed.notify_one();
        entry.offer.subscribe()
    }
}

/// The credentials of a vCenter entry or an NSX Manager, as their sources have them.
pub struct CredentialReport {
    /// Whether the server is a vCenter, and not an NSX Manager.
    pub is_of_vcenter: bool,
    /// Host and port.
    pub server: String,
    /// The state.
    pub state: Arc<CredentialState>,
}

impl Credentials {
    /// Returns the state of the credentials of each vCenter entry and NSX Manager.
    pub fn reports(&self) -> Vec<CredentialReport> {
        let report = |((entry, server, port), known): (&ServerKey, &Entry)| CredentialReport {
            is_of_vcenter: entry.is_some(),
            server: host_and_port(server, *port),
            state: Arc::clone(&known.offer.borrow()),
        };
        self.known.lock().entries.iter().map(report).collect()
    }

    /// Returns the secrets of the credentials that are offered. The token of the service account is not among them.
    pub fn secrets(&self) -> Vec<SecretString> {
        let known = self.known.lock();
        let offers = known.entries.values().map(|entry| Arc::clone(&entry.offer.borrow()));
        let logins = offers.flat_map(|offer| match &*offer {
            CredentialState::Ready(credentials) => credentials.clone(),
            CredentialState::Pending { .. } | CredentialState::Unreadable { .. } | CredentialState::Missing { .. } => {
                Vec::new()
            }
        });
        let secret = |credential: Arc<Credential>| match &credential.login {
            Login::Password { password, .. } => Some(password.clone()),
            Login::Certificate { key, .. } => Some(key.clone()),
            Login::SharedSession { token: SessionToken::Given(token), .. } => Some(token.clone()),
            Login::SharedSession { token: SessionToken::ServiceAccount(_), .. } => None,
        };
        logins.filter_map(secret).collect()
    }

    /// Returns the user names of the credentials that are offered, or were offered before: messages about earlier
    /// logins name them.
    pub fn users(&self) -> BTreeSet<String> {
        let known = self.known.lock();
        known.entries.values().flat_map(|entry| [entry.former_users.clone(), entry.users()].concat()).collect()
    }
}

/// A Secret that is watched or a directory that is polled.
struct FollowedSource {
    layouts: BTreeSet<KeyLayout>,
    /// The newest state of a Secret; pending for a directory.
    secret: SecretState,
    /// The watch or the poll, which ends when the stream is dropped.
    observations: BoxStream<'static, Observation>,
}

/// The task that owns the sources.
struct CredentialUpdater {
    credentials: Arc<Credentials>,
    secrets: kube::Client,
    managers: Arc<SessionManagers>,
    followed: BTreeMap<SourceLocation, FollowedSource>,
}

impl CredentialUpdater {
    async fn run(mut self) {
        loop {
            self.follow_requested();
            tokio::select! {
                () = self.credentials.changed.notified() => {}
                Some((location, observation)) = next_observation(&mut self.followed) => {
                    self.take(&location, observation);
                }
                () = tokio::time::sleep(LINGER) => {}
            }
        }
    }

    /// Removes entries without receivers. Starts one watch or poll for each source in use, and stops the others.
    fn follow_requested(&mut self) {
        let asked = {
            let mut known = self.credentials.known.lock();
            known.entries.retain(|_, entry| entry.offer.receiver_count() > 0);
            let directory = &self.credentials.default_directory;
            let asked = followed(known.entries.values().map(|entry| &entry.settings), directory);
            known.sources.retain(|(place, layout), _| asked.get(place).is_some_and(|layouts| layouts.contains(layout)));
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
                None => {
                    tracing::debug!(source = %place, "the source of credentials is followed");
                    let observations = observe(&place, &self.secrets, &self.managers);
                    let followed = FollowedSource { layouts, secret: SecretState::Pending, observations };
                    self.followed.insert(place, followed);
                }
                Some(followed) if followed.layouts == layouts => {}
                Some(followed) => {
                    followed.layouts = layouts;
                    let again = Observation::Secret(followed.secret.clone());
                    self.take(&place, again);
                }
            }
        }
    }

    /// Stores an observation of a source in each layout in use, and publishes the changed offers.
    fn take(&mut self, location: &SourceLocation, observation: Observation) {
        let Some(followed) = self.followed.get_mut(location) else { return };
        let readings = match observation {
            Observation::Directory(reading) => vec![(KeyLayout::Vcenter, reading)],
            Observation::Secret(state) => {
                followed.secret = state;
                of_secret(location, &followed.secret, &followed.layouts, &self.managers)
            }
        };
        let mut known = self.credentials.known.lock();
        let KnownSources { sources, entries } = &mut *known;
        for (layout, reading) in readings {
            let source = sources.entry((location.clone(), layout)).or_default();
            log_changes(location, &source.take(reading));
        }
        for entry in entries.values_mut() {
            entry.publish(sources, &self.credentials.default_directory);
        }
    }
}

/// Returns the next observation of any source; `None` without sources.
async fn next_observation(
    followed: &mut BTreeMap<SourceLocation, FollowedSource>,
) -> Option<(SourceLocation, Observation)> {
    let next = followed.iter_mut().map(|(location, source)| async move {
        let observation = source.observations.next().await?;
        Some((location.clone(), observation))
    });
    next.collect::<FuturesUnordered<_>>().next().await?
}

impl Entry {
    fn new(settings: CredentialSettings) -> Self {
        let offer = CredentialState::Pending { reason: "its credentials have not been read yet".to_owned() };
        Self {
            settings,
            offer: watch::Sender::new(Arc::new(offer)),
            former_users: Vec::new(),
            trusted: BTreeSet::new(),
        }
    }

    /// Returns the user names that are offered.
    fn users(&self) -> Vec<String> {
        let CredentialState::Ready(credentials) = &**self.offer.borrow() else { return Vec::new() };
        let name = |credential: &Arc<Credential>| match &credential.login {
            Login::Password { user, .. } => Some(user.clone()),
            _ => None,
        };
        credentials.iter().filter_map(name).collect()
    }

    /// Keeps the user names that are offered now, before the offer changes.
    fn remember_users(&mut self) {
        for user in self.users() {
            self.former_users.retain(|known| *known != user);
            self.former_users.push(user);
        }
        let excess = self.former_users.len().saturating_sub(MAX_USERS);
        self.former_users.drain(..excess);
    }

    /// Publishes the offer if it has changed. The log line names the vCenter or the NSX Manager.
    fn publish(&mut self, sources: &CredentialSources, default_directory: &Path) {
        let new = self.settings.offer(default_directory, sources);
        self.remember_users();
        self.warn_of_trust(&new);
        let vcenter = self.settings.entry.as_deref();
        let nsx = vcenter.is_none().then(|| host_and_port(&self.settings.server, self.settings.port));
        self.offer.send_if_modified(|known| {
            if **known == new {
                return false;
            }
            match (&**known, &new) {
                (CredentialState::Ready(known), CredentialState::Ready(new)) if is_same(known, new) => {
                    tracing::debug!(vcenter, nsx, "a new version of the source has the same credentials");
                }
                (_, CredentialState::Ready(new)) => tracing::info!(vcenter, nsx, from = origins(new), "credentials"),
                (_, CredentialState::Pending { reason: why } | CredentialState::Unreadable { reason: why }) => {
                    tracing::info!(vcenter, nsx, reason = why, "no credentials yet")
                }
                (_, CredentialState::Missing { reason: why }) => {
                    tracing::warn!(vcenter, nsx, reason = why, "there are no credentials")
                }
            }
            *known = Arc::new(new);
            true
        });
    }

    fn warn_of_trust(&mut self, offer: &CredentialState) {
        let trusted = trusted_managers(offer);
        for (manager, origin) in trusted.iter().filter(|(manager, _)| !self.trusted.contains(*manager)) {
            tracing::warn!(
                vcenter = self.settings.entry,
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
    }
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
