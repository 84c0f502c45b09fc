//! All sources of credentials, held by one task: watches of Secrets and looks at directories come and go with the
//! entries that ask for them, and every entry has its [`Offers`].

mod directory;

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
use crate::kubernetes::secrets::{self, State};
use crate::providers::vsphere::config::Vcenter;
use crate::providers::vsphere::credentials::layout::{SessionManagers, Stored};
use crate::providers::vsphere::credentials::offer::{offer, places};
use crate::providers::vsphere::credentials::source::{News, Place, Reading, Source};
use crate::providers::vsphere::credentials::{Credential, Login, Offer, Offers, Origin, ReadToken, SessionToken};
use directory::{Seen, Watched};

/// Problems of one reading that are logged; a source full of foreign keys must not fill the log.
const MOST_TOLD: usize = 20;

/// How often it is looked whether anybody still listens for an entry that is not configured any more.
const LINGER: Duration = Duration::from_secs(30);

/// Readings that wait to be taken in.
const READINGS: usize = 16;

/// Where the kubelet puts the token of this process's service account.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// How long reading it may take.
const TOKEN_LIMIT: Duration = Duration::from_secs(5);

/// The credentials of all vCenter entries.
#[derive(Clone)]
pub struct Credentials {
    shared: Arc<Shared>,
}

struct Shared {
    known: Mutex<Known>,
    /// An entry asked for a source.
    asked: Notify,
    default_directory: PathBuf,
}

#[derive(Default)]
struct Known {
    sources: BTreeMap<Place, Source>,
    entries: BTreeMap<Server, Entry>,
}

/// Whose credentials: another server or port under the same key must never see those of the one before.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    pub key: String,
    server: String,
    port: u16,
}

struct Entry {
    config: Vcenter,
    offer: watch::Sender<Arc<Offer>>,
    /// The session managers that get the service account's token, as far as they were logged.
    trusted: BTreeSet<String>,
}

impl Credentials {
    /// The credentials of whatever `current` configures, and the work that keeps them true. `secrets` is the client that
    /// watches Secrets; of the session managers only those on these hosts are used, or any if there are none. An entry
    /// without credentials in the file also reads the default directory. The work ends only when it is dropped.
    pub fn new(
        secrets: kube::Client,
        current: watch::Receiver<Arc<CloudConfig>>,
        hosts: BTreeSet<String>,
        default_directory: PathBuf,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let shared = Arc::new(Shared { known: Mutex::default(), asked: Notify::new(), default_directory });
        let (sender, readings) = mpsc::channel(READINGS);
        let keeper = Keeper {
            shared: Arc::clone(&shared),
            secrets,
            managers: Arc::new(SessionManagers { account: Arc::new(AccountToken(PathBuf::from(TOKEN_PATH))), hosts }),
            current,
            sender,
            readings,
            followed: BTreeMap::new(),
            running: FuturesUnordered::new(),
        };
        (Self { shared }, keeper.run())
    }

    /// What this entry has to log in with, as it changes. What is known already is there at once: for an entry with user
    /// and password in the file that is all.
    ///
    /// The same key, server and port give the same offers, also when their credentials are configured in another way
    /// from now on. They last until the entry is in the current configuration no longer and nobody listens.
    pub fn offers(&self, entry: &Vcenter) -> Offers {
        let mut known = self.shared.known.lock();
        let server = Server::of(entry);
        let Known { sources, entries } = &mut *known;
        let unread = || Offer::Pending { why: "its credentials have not been looked at yet".to_owned() };
        let held = entries.entry(server).or_insert_with(|| Entry {
            config: entry.clone(),
            offer: watch::Sender::new(Arc::new(unread())),
            trusted: BTreeSet::new(),
        });
        held.config = entry.clone();
        held.publish(sources, &self.shared.default_directory);
        self.shared.asked.notify_one();
        held.offer.subscribe()
    }
}

/// The one task.
struct Keeper {
    shared: Arc<Shared>,
    secrets: kube::Client,
    managers: Arc<SessionManagers>,
    current: watch::Receiver<Arc<CloudConfig>>,
    sender: mpsc::Sender<(Place, Reading)>,
    readings: mpsc::Receiver<(Place, Reading)>,
    /// What is followed, each until its guard is dropped.
    followed: BTreeMap<Place, DropGuard>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Keeper {
    async fn run(mut self) {
        let mut is_configured = true;
        loop {
            let lingers = self.forget_what_is_not_used();
            self.follow_what_is_asked_for();
            tokio::select! {
                () = self.shared.asked.notified() => {}
                changed = self.current.changed(), if is_configured => is_configured = changed.is_ok(),
                Some((place, reading)) = self.readings.recv() => self.take(&place, reading),
                Some(()) = self.running.next(), if !self.running.is_empty() => {}
                () = tokio::time::sleep(LINGER), if lingers => {}
            }
        }
    }

    /// Forgets entries that are not configured any more and that nobody listens to. Gives back whether there are some
    /// that only the listeners keep.
    fn forget_what_is_not_used(&mut self) -> bool {
        let current = Arc::clone(&self.current.borrow_and_update());
        let configured: BTreeSet<Server> = current.config.vcenters.iter().map(Server::of).collect();
        let mut known = self.shared.known.lock();
        known.entries.retain(|server, entry| configured.contains(server) || entry.offer.receiver_count() > 0);
        known.entries.keys().any(|server| !configured.contains(server))
    }

    /// One watch for each Secret, one look for each directory, however many entries ask for it.
    fn follow_what_is_asked_for(&mut self) {
        let mut known = self.shared.known.lock();
        let directory = &self.shared.default_directory;
        let asked: BTreeSet<Place> =
            known.entries.values().flat_map(|entry| places(&entry.config, directory)).collect();
        self.followed.retain(|place, _| {
            let is_asked = asked.contains(place);
            if !is_asked {
                tracing::debug!(source = %place, "the source of credentials is followed no longer");
                known.sources.remove(place);
            }
            is_asked
        });
        drop(known);
        for place in asked {
            if !self.followed.contains_key(&place) {
                tracing::debug!(source = %place, "the source of credentials is followed");
                let stop = CancellationToken::new();
                let work = follow(place.clone(), self.secrets.clone(), Arc::clone(&self.managers), self.sender.clone());
                let guarded = stop.clone();
                self.running.push(Box::pin(async move {
                    guarded.run_until_cancelled(work).await;
                }));
                self.followed.insert(place, stop.drop_guard());
            }
        }
    }

    /// Takes in what a source says, and offers what follows from it.
    fn take(&self, place: &Place, reading: Reading) {
        if !self.followed.contains_key(place) {
            return;
        }
        let mut known = self.shared.known.lock();
        let Known { sources, entries } = &mut *known;
        tell(place, &sources.entry(place.clone()).or_default().take(reading));
        for entry in entries.values_mut() {
            entry.publish(sources, &self.shared.default_directory);
        }
    }
}

impl Server {
    pub fn of(entry: &Vcenter) -> Self {
        Self { key: entry.key.clone(), server: entry.server.clone(), port: entry.port }
    }
}

impl Entry {
    /// Offers what the sources have for this entry, if that is something else than before.
    fn publish(&mut self, sources: &BTreeMap<Place, Source>, default_directory: &Path) {
        let (key, offer) = (&self.config.key, offer(&self.config, default_directory, sources));
        let trusted = trusted_managers(&offer);
        for (manager, origin) in trusted.iter().filter(|(manager, _)| !self.trusted.contains(*manager)) {
            tracing::warn!(
                vcenter = key,
                from = %origin,
                "the service account's token is sent to the session manager at {manager}, which can use it at the API \
                 server: set a token for it (SERVER.vc-session-manager-token), or limit the hosts with --session-manager-hosts"
            );
        }
        // A source that is empty for a moment is no news.
        if !trusted.is_empty() {
            self.trusted = trusted.into_keys().collect();
        }
        self.offer.send_if_modified(|known| {
            if **known == offer {
                return false;
            }
            match (&**known, &offer) {
                (Offer::Ready(known), Offer::Ready(new)) if is_same(known, new) => {
                    tracing::debug!(vcenter = key, "the same credentials stand in a new version of their source");
                }
                (_, Offer::Ready(new)) => tracing::info!(vcenter = key, from = origins(new), "credentials"),
                (_, Offer::Pending { why }) => tracing::info!(vcenter = key, reason = why, "no credentials yet"),
                (_, Offer::Missing { why }) => tracing::warn!(vcenter = key, reason = why, "there are no credentials"),
            }
            *known = Arc::new(offer);
            true
        });
    }
}

/// The session managers that are to get the service account's token, as their URLs begin, and where each is named. One
/// that would be sent the token without encryption is not asked.
fn trusted_managers(offer: &Offer) -> BTreeMap<String, &Origin> {
    let Offer::Ready(credentials) = offer else { return BTreeMap::new() };
    let trusted = credentials.iter().filter_map(|credential| match &credential.login {
        Login::SharedSession { url, token: SessionToken::ServiceAccount(_) } => {
            let endpoint = Endpoint::of_url(url).ok().filter(Endpoint::is_confidential)?;
            Some((endpoint.base(), &credential.origin))
        }
        _ => None,
    });
    trusted.collect()
}

/// Whether the same is presented in the same order.
fn is_same(one: &[Arc<Credential>], other: &[Arc<Credential>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.login == other.login)
}

fn origins(credentials: &[Arc<Credential>]) -> String {
    let shown = credentials.iter().map(|credential| format!("{} of {}", credential.login.kind(), credential.origin));
    shown.collect::<Vec<_>>().join(", then ")
}

/// Logs what is new about a source: names of keys and servers, never values.
fn tell(place: &Place, news: &News) {
    if let Some(servers) = &news.read {
        let shown: Vec<_> = servers.iter().take(MOST_TOLD).map(String::as_str).collect();
        tracing::info!(source = %place, count = servers.len(), servers = shown.join(" "), "credentials were read");
    }
    for problem in news.problems.iter().take(MOST_TOLD) {
        tracing::warn!(source = %place, "{problem}");
    }
    if let Some(more) = news.problems.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        tracing::warn!(source = %place, "and {more} more problems");
    }
}

/// Follows one source for ever and hands its readings over.
async fn follow(
    place: Place,
    secrets: kube::Client,
    managers: Arc<SessionManagers>,
    readings: mpsc::Sender<(Place, Reading)>,
) {
    match &place {
        Place::Secret { namespace, name } => {
            let (mut state, work) = secrets::watch_secret(secrets, namespace, name);
            let forward = async {
                loop {
                    let seen = state.borrow_and_update().clone();
                    if let Some(reading) = of_secret(namespace, name, &seen, &managers) {
                        hand_over(&place, reading, &readings).await;
                    }
                    if state.changed().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                never = work => match never {},
                () = forward => {}
            }
        }
        Place::Directory(path) => {
            let mut directory = Watched::new(path.clone());
            loop {
                let reading = of_directory(path, directory.next().await, &managers);
                hand_over(&place, reading, &readings).await;
            }
        }
    }
}

async fn hand_over(place: &Place, reading: Reading, readings: &mpsc::Sender<(Place, Reading)>) {
    // The receiver lives in the same task: where it is gone, so is this.
    let _ = readings.send((place.clone(), reading)).await;
}

fn of_secret(namespace: &str, name: &str, state: &State, managers: &SessionManagers) -> Option<Reading> {
    match state {
        State::Pending => None,
        State::Failing(why) => Some(Reading::Failing(why.clone())),
        State::Absent(why) => Some(Reading::Absent(why.clone())),
        State::Read(version) => {
            let stored = Stored::read(version.entries().map(|(key, value)| (key, Some(value))), managers);
            let origin = Origin::Secret {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: version.uid.clone(),
                resource_version: version.resource_version.clone(),
            };
            Some(Reading::Read { stored, origin })
        }
    }
}

fn of_directory(path: &Path, seen: &Seen, managers: &SessionManagers) -> Reading {
    match seen {
        Seen::Failing(why) => Reading::Failing(why.clone()),
        Seen::Absent(why) => Reading::Absent(why.clone()),
        Seen::Files(files) => {
            let mut stored = Stored::read(files.entries(), managers);
            stored.problems.extend(files.problems.iter().cloned());
            Reading::Read { stored, origin: Origin::Directory { path: path.to_owned() } }
        }
    }
}

/// The file with the service account's token, for session managers that are given no other. Read at each use, since the
/// kubelet renews it.
struct AccountToken(PathBuf);

#[async_trait]
impl ReadToken for AccountToken {
    async fn read(&self) -> Result<SecretString, String> {
        let failed = |why: String| format!("the service account's token {} cannot be read: {why}", self.0.display());
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
