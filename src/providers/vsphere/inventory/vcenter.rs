//! One vCenter: its session, its snapshot, and the searches others ask for.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use secrecy::SecretString;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::login::Logins;
use super::mirror::Mirror;
use super::retry::{Kind, Retry};
use super::snapshot::{Freshness, Snapshot, Tags, VmRecord};
use crate::clients::{vapi, vim};
use crate::cloud::error::chain;
use crate::providers::vsphere::zones::ZoneCategories;

/// How long one search may take; a hanging vCenter must not hold a node's look-up.
const SEARCH_LIMIT: Duration = Duration::from_secs(10);
/// How long logging out may take.
const LOGOUT_LIMIT: Duration = Duration::from_secs(3);

/// What one vCenter is known by and how it is used.
#[derive(Debug)]
pub struct Settings {
    /// The configuration's name for it, for messages.
    pub key: String,
    /// Host and port, for messages.
    pub server: String,
    /// The account.
    pub user: String,
    /// Its password.
    pub password: SecretString,
    /// The configured datacenters; none means all.
    pub datacenters: Vec<String>,
    /// The tag categories of zone and region, where zones are on.
    pub categories: Option<ZoneCategories>,
    /// How often tags are polled.
    pub tag_poll: Duration,
}

/// One vCenter. Shared by its actor ([`Vcenter::run`]) and by those who search and read.
pub struct Vcenter {
    pub(super) settings: Settings,
    pub(super) soap: vim::Client,
    pub(super) rest: vapi::Client,
    pub(super) logins: Logins,
    pub(super) state: Mutex<State>,
    /// The virtual machines somebody wants to be told about, by id.
    pub(super) wanted: Mutex<BTreeSet<String>>,
    pub(super) wanted_changed: Notify,
    /// New objects in the snapshot that tags were not read for.
    pub(super) objects_changed: Notify,
    snapshot: watch::Sender<Arc<Snapshot>>,
}

/// What the snapshot is made from. Never locked over an await.
#[derive(Default)]
pub(super) struct State {
    pub(super) freshness: Freshness,
    pub(super) instance_uuid: String,
    pub(super) mirror: Mirror,
    pub(super) entities: Arc<std::collections::HashMap<vim::MoRef, super::snapshot::Entity>>,
    pub(super) unresolved: Arc<Vec<String>>,
    /// What the view on the server holds, as far as calls have told.
    pub(super) in_view: BTreeSet<String>,
    /// Those of it that are wanted and may be shown.
    pub(super) members: BTreeSet<String>,
    /// Those that have to be taken out of the view, and put in again if they are still wanted.
    pub(super) renew: BTreeSet<String>,
    pub(super) tags: Arc<Tags>,
    /// The failures in a row of reading tags, and when it may be tried again.
    pub(super) tags_retry: Retry,
    pub(super) tags_not_before: Option<tokio::time::Instant>,
    /// The last moment vCenter answered.
    pub(super) answered: Option<Instant>,
}

/// A change of the view. What is in both parts is taken out and put in again.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) add: BTreeSet<String>,
    pub(super) remove: BTreeSet<String>,
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

impl State {
    /// A change of the view was made, and this is what the server did not know.
    pub(super) fn changed(&mut self, change: &Change, unresolved: Vec<String>) {
        for id in change.remove.difference(&change.add) {
            self.in_view.remove(id);
            self.members.remove(id);
        }
        self.in_view.extend(change.add.iter().cloned());
        self.members.extend(change.add.iter().cloned());
        for id in &unresolved {
            self.in_view.remove(id);
            self.members.remove(id);
        }
        // The same list stays the same allocation: readers compare pointers.
        if *self.unresolved != unresolved {
            self.unresolved = Arc::new(unresolved);
        }
    }

    /// The virtual machines that are watched and known. The mirror may hold more: what was taken out of the view stays
    /// there until the server says that it left, since the server may never have noticed.
    pub(super) fn vms(&self) -> impl Iterator<Item = (&String, &Arc<VmRecord>)> {
        self.mirror.vms.iter().filter(|(id, _)| self.members.contains(*id))
    }
}

/// Why a connection ended, and during what.
#[derive(Debug, thiserror::Error)]
#[error("{during}")]
pub(super) struct Failure {
    pub(super) during: String,
    #[source]
    pub(super) source: vim::Error,
}

/// Attaches what was being done to a client's error.
pub(super) fn failed(during: &str) -> impl FnOnce(vim::Error) -> Failure + '_ {
    move |source| Failure { during: during.to_string(), source }
}

impl Vcenter {
    /// A vCenter that nobody has connected to yet.
    pub fn new(settings: Settings, soap: vim::Client, rest: vapi::Client) -> Arc<Self> {
        Arc::new(Self {
            settings,
            soap,
            rest,
            logins: Logins::default(),
            state: Mutex::default(),
            wanted: Mutex::default(),
            wanted_changed: Notify::new(),
            objects_changed: Notify::new(),
            snapshot: watch::Sender::default(),
        })
    }

    /// Its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What is known of it now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// Tells when [`Vcenter::snapshot`] gives another answer.
    pub fn changes(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    /// Watches these virtual machines too; one that vCenter did not know before is tried again. Additions are gathered
    /// into few calls.
    pub fn want(&self, ids: impl IntoIterator<Item = String>) {
        let ids: Vec<String> = ids.into_iter().collect();
        let is_watched = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            ids.iter().all(|id| state.members.contains(id))
        };
        let is_new = {
            let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            let before = wanted.len();
            wanted.extend(ids);
            wanted.len() != before
        };
        // A machine that is just being taken out of the view still counts as watched; that it is wanted is new then.
        if is_new || !is_watched {
            self.wanted_changed.notify_one();
        }
    }

    /// Puts virtual machines into the view once more that are in it and were never reported.
    pub fn rewatch(&self, ids: &[String]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).renew.extend(ids.iter().cloned());
        self.wanted_changed.notify_one();
    }

    /// Stops watching a virtual machine.
    pub fn unwant(&self, id: &str) {
        if self.wanted.lock().unwrap_or_else(PoisonError::into_inner).remove(id) {
            self.wanted_changed.notify_one();
        }
    }

    pub(super) fn wanted(&self) -> BTreeSet<String> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The ids of all virtual machines with this BIOS UUID, in the byte order given. Searches the whole vCenter.
    ///
    /// # Errors
    /// Says in words why vCenter did not answer.
    pub async fn find_all_by_uuid(&self, uuid: &str) -> Result<Vec<String>, String> {
        self.search(self.soap.find_all_by_uuid(None, uuid)).await
    }

    /// The ids of all virtual machines whose guest has this host name, or this address if it is one.
    ///
    /// # Errors
    /// Says in words why vCenter did not answer.
    pub async fn find_all_by_name(&self, name: &str) -> Result<Vec<String>, String> {
        if name.parse::<std::net::IpAddr>().is_ok() {
            return self.search(self.soap.find_all_by_ip(None, name)).await;
        }
        self.search(self.soap.find_all_by_dns_name(None, name)).await
    }

    async fn search(
        &self,
        call: impl Future<Output = Result<Vec<vim::MoRef>, vim::Error>>,
    ) -> Result<Vec<String>, String> {
        if let Some(trouble) = self.snapshot.borrow().freshness.trouble() {
            return Err(trouble.to_string());
        }
        match timeout(SEARCH_LIMIT, call).await {
            Ok(Ok(found)) => Ok(found.into_iter().map(|object| object.id).collect()),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err(format!("no answer to a search within {} s", SEARCH_LIMIT.as_secs())),
        }
    }

    /// Keeps a session and the snapshot true until `stop`, then logs out. Never ends before.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut retry = Retry::default();
        loop {
            let failure = {
                let mut serving = pin!(self.serve(&mut retry));
                tokio::select! {
                    () = stop.cancelled() => {
                        self.logins.give_up(serving).await;
                        break;
                    }
                    failure = &mut serving => failure,
                }
            };
            let kind = if failure.source.is_invalid_login() { Kind::Rejected } else { Kind::Passing };
            let pause = retry.after(kind, fastrand::f64());
            self.mark_down(&failure, pause);
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.log_out().await;
    }

    /// One connection: from the first call to the first failure.
    async fn serve(&self, retry: &mut Retry) -> Failure {
        // Every call below has a limit of its own.
        let watch = match self.open().await {
            Ok(watch) => watch,
            Err(failure) => return failure,
        };
        let mut tags = pin!(self.follow_tags());
        let failure = tokio::select! {
            failure = self.follow(&watch, retry) => failure,
            failure = self.keep_view(&watch) => failure,
            never = &mut tags => match never {},
        };
        self.logins.give_up(tags).await;
        if !failure.source.is_not_authenticated() {
            self.clear(Some(&watch.collector), &watch.view).await;
        }
        failure
    }

    /// Logs in unless the session of an earlier connection is still good.
    pub(super) async fn ensure_session(&self) -> Result<(), Failure> {
        if self.soap.session_secret().is_some() {
            // A failed look is no reason for a new login: the old session may live and would be left behind.
            let doing = format!("looking whether the session with vCenter {} lives", self.settings.server);
            if self.soap.is_logged_in().await.map_err(failed(&doing))? {
                return Ok(());
            }
        }
        let Settings { user, password, key, server, .. } = &self.settings;
        let during = format!(
            "logging in to vCenter {server} as {user:?}; expected are the user and password of [VirtualCenter \
             {key:?}] or [Global] in the cloud config"
        );
        let _under_way = self.logins.begin();
        self.soap.login(user, password).await.map(|_| ()).map_err(failed(&during))
    }

    async fn log_out(&self) {
        let both = async {
            let rest = self.rest.logout();
            let soap = async {
                match self.soap.session_secret() {
                    Some(_) => self.soap.logout().await,
                    None => Ok(()),
                }
            };
            let (rest, soap) = tokio::join!(rest, soap);
            if let Err(error) = soap {
                warn!(vcenter = self.settings.server, error = chain(&error), "the session could not be ended");
            }
            if let Err(error) = rest {
                warn!(vcenter = self.settings.server, error = chain(&error), "the REST session could not be ended");
            }
        };
        if timeout(LOGOUT_LIMIT, both).await.is_err() {
            warn!(vcenter = self.settings.server, "the session could not be ended within {LOGOUT_LIMIT:?}");
        }
    }

    /// Changes the state and publishes what follows from it.
    pub(super) fn publish(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        let snapshot = Snapshot {
            freshness: state.freshness.clone(),
            instance_uuid: state.instance_uuid.clone(),
            vms: state.vms().map(|(id, record)| (id.clone(), Arc::clone(record))).collect(),
            unresolved: state.unresolved.clone(),
            entities: state.entities.clone(),
            tags: state.tags.clone(),
        };
        drop(state);
        self.snapshot.send_replace(Arc::new(snapshot));
    }

    /// vCenter answers: what is known is true.
    pub(super) fn mark_live(&self, retry: &mut Retry) {
        retry.reset();
        let was = self.snapshot.borrow().freshness.clone();
        if let Freshness::Live = was {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).answered = Some(Instant::now());
            return;
        }
        self.publish(|state| {
            state.freshness = Freshness::Live;
            state.answered = Some(Instant::now());
        });
        info!(vcenter = self.settings.server, "vCenter answers, its inventory is known");
    }

    /// vCenter does not answer: what is known stays, and is stale. Logged when the reason changes.
    pub(super) fn mark_stale(&self, reason: String) {
        self.publish(|state| {
            state.freshness = match &state.freshness {
                Freshness::Live => {
                    Freshness::Stale { since: state.answered.unwrap_or_else(Instant::now), reason: reason.clone() }
                }
                Freshness::Stale { since, .. } => Freshness::Stale { since: *since, reason: reason.clone() },
                Freshness::Never | Freshness::Unreachable { .. } => Freshness::Unreachable { reason: reason.clone() },
            };
        });
    }

    fn mark_down(&self, failure: &Failure, pause: Duration) {
        let reason = chain(failure);
        if self.snapshot.borrow().freshness.trouble() == Some(reason.as_str()) {
            return;
        }
        let vcenter = &self.settings.server;
        if failure.source.is_invalid_login() {
            error!(vcenter, reason, next_try = ?pause, "vCenter rejected the login; what is known is kept");
        } else {
            warn!(vcenter, reason, next_try = ?pause, "vCenter does not answer; what is known is kept");
        }
        self.mark_stale(reason);
    }
}
