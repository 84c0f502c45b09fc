//! One vCenter: its session, its snapshot, and the searches others ask for.

mod power;
pub mod reads;

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::mirror::Mirror;
use super::retry::PASSING;
use super::session::{Failure, Pause, Rotation, Session};
use super::snapshot::{Entity, Freshness, Proven, Snapshot, Tags, Trouble, VmRecord};
use super::watch::{Prepared, Watch};
use crate::base::backoff::Failures;
use crate::base::error_chain::chain;
use crate::clients::vim;
use crate::providers::vsphere::reason;
use crate::providers::vsphere::zones::ZoneCategories;

/// How long vCenter may take to say whether all is as known. A client that waits for an answer that never comes gives it
/// up within a part of this.
const CONFIRM_LIMIT: Duration = Duration::from_secs(3);

/// How one vCenter is used. May change while it is: see [`Vcenter::reconfigure`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The configuration's name for it, for messages.
    pub key: String,
    /// Host and port, for messages.
    pub server: String,
    /// The configured datacenters; none means all.
    pub datacenters: Vec<String>,
    /// The tag categories of zone and region, where zones are on.
    pub categories: Option<ZoneCategories>,
    /// How often tags are polled.
    pub tag_poll: Duration,
}

/// One vCenter. Shared by its actor ([`Vcenter::run`]) and by those who search and read.
pub struct Vcenter {
    pub(super) settings: watch::Sender<Arc<Settings>>,
    pub(super) session: Session,
    pub(super) state: Mutex<State>,
    /// The virtual machines somebody wants to be told about, by id.
    pub(super) wanted: Mutex<BTreeSet<Arc<str>>>,
    pub(super) wanted_changed: Notify,
    /// New objects in the snapshot that tags were not read for.
    pub(super) objects_changed: Notify,
    /// When somebody last wanted to know whether all is as known.
    pub(super) doubted: watch::Sender<Option<tokio::time::Instant>>,
    /// When the last wait for updates was sent that was answered whole: the snapshot has everything until then.
    pub(super) confirmed: watch::Sender<Option<tokio::time::Instant>>,
    snapshot: watch::Sender<Arc<Snapshot>>,
}

/// What the snapshot is made from. Never locked over an await.
#[derive(Default)]
pub(super) struct State {
    /// Snapshots that were published.
    pub(super) published: u64,
    pub(super) freshness: Freshness,
    /// See [`Snapshot::live_period`].
    pub(super) live_period: Option<u64>,
    pub(super) instance_uuid: Arc<str>,
    pub(super) offer_trouble: Option<String>,
    pub(super) mirror: Mirror,
    pub(super) entities: Arc<HashMap<vim::MoRef, Entity>>,
    pub(super) unresolved: Arc<Vec<Arc<str>>>,
    /// What the view on the server holds, as far as calls have told.
    pub(super) in_view: BTreeSet<Arc<str>>,
    /// Those of it that are wanted and may be shown.
    pub(super) members: BTreeSet<Arc<str>>,
    /// Those that have to be taken out of the view, and put in again if they are still wanted.
    pub(super) renew: BTreeSet<Arc<str>>,
    pub(super) tags: Arc<Tags>,
    /// The power states that the last snapshot proved.
    pub(super) power: Arc<HashMap<Arc<str>, Proven>>,
    /// The failures in a row of reading tags, and when it may be tried again.
    pub(super) tags_retry: Failures,
    pub(super) tags_not_before: Option<tokio::time::Instant>,
    /// The last moment vCenter answered.
    pub(super) answered: Option<Instant>,
}

/// A change of the view. What is in both parts is taken out and put in again.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) add: BTreeSet<Arc<str>>,
    pub(super) remove: BTreeSet<Arc<str>>,
}

impl Change {
    pub(super) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

impl State {
    /// A change of the view was made, and this is what the server did not know.
    pub(super) fn changed(&mut self, change: &Change, unresolved: Vec<Arc<str>>) {
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

    /// From the next snapshot on every change is reported.
    pub(super) fn begin_live_period(&mut self) {
        self.live_period = Some(self.published);
    }

    /// Another vCenter has taken the place of the one that was known, under the same address. Ids mean something else
    /// there: what is held beside its instance UUID would say that its machines are those of the old one.
    pub(super) fn forget_contents(&mut self) {
        self.mirror = Mirror::default();
        self.entities = Arc::default();
        self.tags = Arc::default();
        // An id of the new one may be another machine's: how long it has been off is not known.
        self.power = Arc::default();
    }

    /// The virtual machines that are watched and known. The mirror may hold more: what was taken out of the view stays
    /// there until the server says that it left, since the server may never have noticed.
    pub(super) fn vms(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<VmRecord>)> {
        self.mirror.vms.iter().filter(|(id, _)| self.members.contains(*id))
    }
}

impl Vcenter {
    /// A vCenter that nobody has connected to yet.
    pub fn new(settings: Settings, session: Session) -> Arc<Self> {
        Arc::new(Self {
            settings: watch::Sender::new(Arc::new(settings)),
            session,
            state: Mutex::default(),
            wanted: Mutex::default(),
            wanted_changed: Notify::new(),
            objects_changed: Notify::new(),
            doubted: watch::Sender::default(),
            confirmed: watch::Sender::default(),
            snapshot: watch::Sender::default(),
        })
    }

    /// Its settings now.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.borrow().clone()
    }

    /// Changes datacenters, tag categories and the tag poll. They are in force at once; the session and what is known
    /// stay. Names and server are for messages: another server is another vCenter.
    pub fn reconfigure(&self, settings: Settings) {
        let settings = Arc::new(settings);
        let changed = |now: &mut Arc<Settings>| {
            let is_other = **now != *settings;
            *now = Arc::clone(&settings);
            is_other
        };
        if self.settings.send_if_modified(changed) {
            // Which datacenters count is the look-up's to apply: it looks at every snapshot that is published.
            self.publish(|_| {});
        }
    }

    /// Its host and port.
    pub fn server(&self) -> &str {
        &self.session.names().server
    }

    /// Its session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What is known of it now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// Tells when [`Vcenter::snapshot`] gives another answer.
    pub fn changes(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    /// Asks vCenter whether its inventory is as known, tags apart, since a wait for updates that was lost on its way looks
    /// like one with nothing to tell. When this returns, the snapshot is live and has everything until now, or is not live.
    /// Takes 3 s at most.
    pub async fn confirm(&self) {
        let asked = tokio::time::Instant::now();
        let (mut answers, mut changes) = (self.confirmed.subscribe(), self.changes());
        if changes.borrow_and_update().freshness != Freshness::Live {
            return;
        }
        self.doubt(asked);
        let answered = async {
            while !answers.borrow_and_update().is_some_and(|sent| sent >= asked)
                && changes.borrow_and_update().freshness == Freshness::Live
            {
                tokio::select! {
                    Ok(()) = answers.changed() => {}
                    Ok(()) = changes.changed() => {}
                    else => return,
                }
            }
        };
        let is_late = timeout(CONFIRM_LIMIT, answered).await.is_err();
        if is_late && !self.confirmed.borrow().is_some_and(|sent| sent >= asked) {
            let why = format!("it did not say within {} s whether its inventory is as known", CONFIRM_LIMIT.as_secs());
            warn!(vcenter = self.server(), reason = why, "vCenter does not answer; what is known is kept");
            self.mark_stale(Trouble::unavailable(why));
            // The answer may come this very moment: another one takes it back.
            self.doubt(tokio::time::Instant::now());
        }
    }

    /// Somebody wants to know whether all is as known at this moment. Who asked later than that stays in force.
    fn doubt(&self, asked: tokio::time::Instant) {
        self.doubted.send_modify(|doubted| *doubted = (*doubted).max(Some(asked)));
    }

    /// Watches these virtual machines too; one that vCenter did not know before is tried again. Additions are gathered
    /// into few calls.
    pub fn want(&self, ids: impl IntoIterator<Item = Arc<str>>) {
        let ids: Vec<Arc<str>> = ids.into_iter().collect();
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

    /// Puts virtual machines into the view once more that are in it, and were never reported, or may be gone without a
    /// word: vCenter says whether it knows them.
    pub fn rewatch(&self, ids: &[Arc<str>]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).renew.extend(ids.iter().cloned());
        self.wanted_changed.notify_one();
    }

    /// Stops watching a virtual machine.
    pub fn unwant(&self, id: &str) {
        if self.wanted.lock().unwrap_or_else(PoisonError::into_inner).remove(id) {
            self.wanted_changed.notify_one();
        }
    }

    pub(super) fn wanted(&self) -> BTreeSet<Arc<str>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a session and the snapshot true until `stop`, then logs out. Never ends before.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        {
            let mut keeping = pin!(self.keep());
            let mut tending = pin!(self.session.tend());
            let mut reviewing = pin!(self.session.review());
            let mut probing = pin!(self.session.probe());
            tokio::select! {
                () = stop.cancelled() => {}
                never = &mut keeping => match never {},
                never = &mut tending => match never {},
                never = &mut reviewing => match never {},
                never = &mut probing => match never {},
            }
            self.session.logins().give_up(keeping).await;
        }
        self.session.log_out().await;
    }

    async fn keep(&self) -> Infallible {
        let mut retry = Failures::default();
        loop {
            // From before the offer is looked at, so that no change is missed.
            let (offer_changed, released) = (self.session.offer_changed(), self.session.released());
            let returned = self.session.returned();
            let failure = self.serve(&mut retry).await;
            if failure.pause != Pause::Backoff {
                // It answers, and has to be logged in to later.
                self.session.mark_reachable();
            }
            let pause = match failure.pause {
                Pause::Backoff => Some(retry.next_pause(&PASSING, fastrand::f64())),
                Pause::For(pause) => Some(pause),
                Pause::UntilOffered => None,
            };
            self.mark_down(&failure, pause);
            let over = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                () = offer_changed => {}
                () = released => {}
                () = returned, if failure.pause == Pause::Backoff => {
                    retry.reset();
                    let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    // A login that has to wait still does.
                    state.tags_retry.reset();
                    state.tags_not_before = None;
                }
            }
        }
    }

    /// One connection: from the first call to the first failure.
    async fn serve(&self, retry: &mut Failures) -> Failure {
        // Every call below has a limit of its own.
        let mut watch = match self.open().await {
            Ok(watch) => watch,
            Err(failure) => return failure,
        };
        let mut tags = pin!(self.follow_tags());
        let mut rotation = Box::pin(self.rotate());
        let failure = loop {
            let failure = tokio::select! {
                failure = self.follow(&watch, retry) => failure,
                failure = self.keep_view(&watch) => failure,
                never = &mut tags => match never {},
                prepared = &mut rotation => {
                    // The old subscription ends with its session; the new one tells everything anew.
                    watch = self.change_to(prepared);
                    rotation.set(self.rotate());
                    continue;
                }
            };
            break failure;
        };
        self.session.logins().give_up(futures::future::join(tags, rotation)).await;
        if !failure.source.is_not_authenticated() {
            self.clear(&watch).await;
        }
        failure
    }

    /// Waits for a session with other credentials and subscribes on it, while the old one is still followed. What is
    /// refused is told, and changes nothing.
    async fn rotate(&self) -> Prepared {
        let mut retry = Failures::default();
        loop {
            let is_told = self.snapshot.borrow().offer_trouble.is_some();
            match self.session.rotated(&mut retry, is_told).await {
                Rotation::Refused(reason) => self.tell_offer_trouble(Some(reason)),
                Rotation::Settled => self.tell_offer_trouble(None),
                Rotation::Accepted(link) => {
                    let mut retry = Failures::default();
                    loop {
                        match self.prepare(link.soap()).await {
                            Ok(prepared) => {
                                self.tell_offer_trouble(None);
                                return prepared.on(link);
                            }
                            Err(failure) if failure.source.is_not_authenticated() => {
                                self.session.discard(&link);
                                break;
                            }
                            Err(failure) => {
                                self.clear_leftovers(&link.soap()).await;
                                self.tell_offer_trouble(Some(chain(&failure)));
                                let pause = retry.next_pause(&PASSING, fastrand::f64());
                                if timeout(pause, self.session.withdrawn(&link)).await.is_ok() {
                                    self.session.discard(&link);
                                    break;
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn change_to(&self, prepared: Prepared) -> Watch {
        if let Some(link) = &prepared.link {
            self.session.adopt(Arc::clone(link));
        }
        self.begin(prepared)
    }

    fn tell_offer_trouble(&self, trouble: Option<String>) {
        if self.snapshot.borrow().offer_trouble == trouble {
            return;
        }
        if let Some(reason) = &trouble {
            let vcenter = self.server();
            error!(
                vcenter,
                reason, "the new credentials are not used; the current session, with the previous ones, stays"
            );
        }
        self.publish(|state| state.offer_trouble = trouble);
    }

    /// Changes the state and publishes what follows from it.
    pub(super) fn publish(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        state.published += 1;
        let mut snapshot = Snapshot {
            number: state.published,
            freshness: state.freshness.clone(),
            live_period: state.live_period,
            instance_uuid: state.instance_uuid.clone(),
            offer_trouble: state.offer_trouble.clone(),
            vms: state.vms().map(|(id, record)| (id.clone(), Arc::clone(record))).collect(),
            unresolved: state.unresolved.clone(),
            entities: state.entities.clone(),
            tags: state.tags.clone(),
            power: state.power.clone(),
        };
        snapshot.prove_power(Instant::now());
        state.power = Arc::clone(&snapshot.power);
        // Still under the lock, so that nobody sees them in another order.
        self.snapshot.send_replace(Arc::new(snapshot));
        drop(state);
    }

    /// vCenter answers: what is known is true.
    pub(super) fn mark_live(&self, retry: &mut Failures) {
        retry.reset();
        self.session.mark_reachable();
        let was = self.snapshot.borrow().freshness.clone();
        if let Freshness::Live = was {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).answered = Some(Instant::now());
            return;
        }
        self.publish(|state| {
            state.freshness = Freshness::Live;
            state.begin_live_period();
            state.answered = Some(Instant::now());
        });
        info!(vcenter = self.server(), "vCenter answers, its inventory is known");
    }

    /// vCenter does not answer: what is known stays, and is stale. Logged when the reason changes.
    pub(super) fn mark_stale(&self, trouble: Trouble) {
        self.publish(|state| {
            state.freshness = match &state.freshness {
                Freshness::Live => {
                    Freshness::Stale { since: state.answered.unwrap_or_else(Instant::now), trouble: trouble.clone() }
                }
                Freshness::Stale { since, .. } => Freshness::Stale { since: *since, trouble: trouble.clone() },
                Freshness::Never | Freshness::Unreachable { .. } => Freshness::Unreachable { trouble: trouble.clone() },
            };
        });
    }

    fn mark_down(&self, failure: &Failure, pause: Option<Duration>) {
        let reason = chain(failure);
        if self.snapshot.borrow().freshness.trouble() == Some(reason.as_str()) {
            return;
        }
        let vcenter = self.server();
        if failure.source.is_invalid_login() {
            error!(vcenter, reason, next_try = ?pause, "vCenter rejected the login; what is known is kept");
        } else if failure.source.is_held() {
            warn!(vcenter, reason, next_try = ?pause, "the login to vCenter is delayed; the last known inventory stays in use");
        } else {
            warn!(vcenter, reason, next_try = ?pause, "vCenter does not answer; what is known is kept");
        }
        let kind = if failure.source.is_refusal() { reason::CredentialsRejected } else { reason::VCenterUnavailable };
        self.mark_stale(Trouble { reason: kind, why: reason });
    }
}
