//! The one subscription of a vCenter: a ListView of the wanted virtual machines, one filter, one outstanding
//! `WaitForUpdatesEx`.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;
use tracing::debug;

use super::leftovers::{Parts, Unfinished};
use super::members::Change;
use super::mirror::{Mirror, Touched};
use super::retry::PASSING;
use super::session::{Failure, Link, Use, failed};
use super::snapshot::Trouble;
use super::vcenter::Vcenter;
use crate::base::backoff::Failures;
use crate::base::error_chain::chain;
use crate::clients::vim::{self, FilterSpec, MoRef, UpdateSet};

/// How long one `WaitForUpdatesEx` stays outstanding. Proxies cut idle connections at 60 s and more; and this bounds for
/// how long a wait that was lost on its way goes unnoticed, with the margin that the client gives an answer.
const WAIT: Duration = Duration::from_secs(20);
/// The wait for the first answer: with nothing to report a server may stay silent for the whole time.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// First answers without anything that are not believed while there are members. A server may answer early; one whose
/// members may all not be read never tells anything.
const EMPTY_ANSWERS: u32 = 3;
/// Objects per answer; bounds what one answer costs in memory.
const PAGE: u32 = 100;
/// Pause after an answer with changes, in which the server gathers more. It bounds the calls of a migration storm.
const COALESCE: Duration = Duration::from_millis(100);
/// Pause in which additions to the view are gathered.
const GATHER: Duration = Duration::from_millis(50);
/// Objects per change of the view: vCenter accepts at most 500,000 elements in a request.
const PORTION: usize = 1_000;
/// How long a wait that is cancelled may take to end.
const CANCEL_LIMIT: Duration = Duration::from_millis(1_500);
/// The pause before it is cancelled once more, doubled from time to time: a cancellation may overtake the wait.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);
/// How long clearing away an old subscription may take.
const CLEAR_LIMIT: Duration = Duration::from_secs(3);
/// Failures in a row after which the wait is not repeated on the same session.
const PATIENCE: u32 = 3;

/// What belongs to one connection.
pub(super) struct Watch {
    pub(super) soap: Use<vim::Client>,
    pub(super) collector: MoRef,
    pub(super) view: MoRef,
}

fn reference(id: &Arc<str>) -> MoRef {
    MoRef::new("VirtualMachine", id)
}

/// A subscription that is set up and not followed yet.
pub(super) struct Prepared {
    watch: Watch,
    members: BTreeSet<Arc<str>>,
    unresolved: Vec<Arc<str>>,
    instance_uuid: String,
    /// The session it is on, where that is not the one in use.
    pub(super) link: Option<Arc<Link>>,
}

impl Prepared {
    pub(super) fn on(self, link: Arc<Link>) -> Self {
        Self { link: Some(link), ..self }
    }
}

impl Vcenter {
    /// Connects, logs in and sets the subscription up.
    pub(super) async fn open(&self) -> Result<Watch, Failure> {
        self.session.mark_unreachable();
        self.session.open().await?;
        let prepared = self.session.persist(|| self.prepare(self.session.soap())).await;
        self.clear_leftovers(&self.session.soap()).await;
        Ok(self.begin(prepared?))
    }

    /// Sets a subscription up on a session. What it makes before it fails, or is given up, is left over there.
    pub(super) async fn prepare(&self, soap: Use<vim::Client>) -> Result<Prepared, Failure> {
        let doing = format!("subscribing to the inventory of vCenter {}", self.session.names().server);
        let view = soap.create_list_view(&[]).await.map_err(failed(&doing))?;
        let mut unfinished = Unfinished::new(soap.leftovers(), view.clone());
        let collector = soap.create_property_collector().await.map_err(failed(&doing))?;
        unfinished.add_collector(collector.clone());
        let watch = Watch { soap, collector, view };
        let members = self.publisher.with(|state| state.members.wanted().clone());
        let unresolved = self.subscribe(&watch, &members).await.map_err(failed(&doing))?;
        unfinished.finish();
        let instance_uuid = watch.soap.about().instance_uuid.unwrap_or_default();
        Ok(Prepared { watch, members, unresolved, instance_uuid, link: None })
    }

    /// From now on this is the subscription that tells what is true.
    pub(super) fn begin(&self, prepared: Prepared) -> Watch {
        let Prepared { watch, members, unresolved, instance_uuid, link: _ } = prepared;
        self.publisher.with(|state| state.restart(&instance_uuid, members, unresolved));
        watch
    }

    /// Fills the view, which was created empty because only a change of it tells which members the server does not
    /// know, and puts the filter on it. The answer is what the server does not know.
    async fn subscribe(&self, watch: &Watch, members: &BTreeSet<Arc<str>>) -> Result<Vec<Arc<str>>, vim::Error> {
        let all: Vec<MoRef> = members.iter().map(reference).collect();
        let unresolved = if all.is_empty() { Vec::new() } else { self.modify(watch, &all, &[]).await? };
        watch.soap.create_filter(&watch.collector, &FilterSpec::for_view(&watch.view)).await?;
        Ok(unresolved)
    }

    /// Waits for updates and publishes them, until the session is of no use any more.
    pub(super) async fn follow(&self, watch: &Watch, retry: &mut Failures) -> Failure {
        let mut version = String::new();
        let mut is_complete = false;
        let mut is_truncated = false;
        let mut fresh = Mirror::default();
        let mut failures = Failures::default();
        let mut failed_in_row = 0;
        let mut empty_answers = 0;
        let mut pages = Vec::new();
        let mut sent = Instant::now();
        loop {
            let wait = match is_complete && failed_in_row == 0 {
                true if self.is_doubted() => Duration::ZERO,
                true => WAIT,
                // After a failure the question is whether vCenter answers at all, also where nothing changes for hours.
                false => FIRST_WAIT,
            };
            if !is_truncated {
                // Further pages tell of the same moment.
                sent = Instant::now();
            }
            let may_be_ended = wait == WAIT && !is_truncated;
            let returned = self.session.returned();
            let answer = tokio::select! {
                biased;
                answer = self.wait(watch, &version, wait, may_be_ended) => answer,
                // What was asked while vCenter was away gets no answer.
                () = returned, if wait == FIRST_WAIT && !is_truncated => {
                    self.cancel(watch).await;
                    None
                }
            };
            let Some(answer) = answer else { continue };
            let set = match answer {
                Ok(set) => set,
                // The last complete version may be sent again: the server then reports everything since.
                Err(error) if error.is_transient() && !is_truncated && is_complete && failed_in_row < PATIENCE => {
                    failed_in_row += 1;
                    self.publisher.mark_stale(Trouble::unavailable(chain(&error)));
                    self.session.mark_unreachable();
                    let returned = self.session.returned();
                    let _ = tokio::time::timeout(failures.next_pause(&PASSING, fastrand::f64()), returned).await;
                    self.cancel(watch).await;
                    continue;
                }
                Err(error) => {
                    let during = format!("waiting for updates of vCenter {}", self.session.names().server);
                    return failed(&during)(error);
                }
            };
            failed_in_row = 0;
            failures.reset();
            if let Some(set) = set {
                version.clone_from(&set.version);
                is_truncated = set.truncated;
                if is_complete {
                    pages.push(set);
                } else {
                    fresh.apply(&set);
                }
                if is_truncated {
                    continue;
                }
                // Half an answer may hold a machine without its ancestors; nobody sees it before it is whole.
                let touched = self.publisher.apply(&std::mem::take(&mut pages));
                if touched != Touched::default() {
                    debug!(vcenter = self.server(), ?touched, "the inventory changed");
                }
            }
            if version.is_empty() && !is_complete && self.has_members() && empty_answers < EMPTY_ANSWERS {
                empty_answers += 1;
                tokio::time::sleep(COALESCE).await;
                continue;
            }
            if !is_complete {
                is_complete = true;
                self.publisher.replace(std::mem::take(&mut fresh));
            }
            self.mark_live(retry);
            self.confirmed.send_replace(Some(sent));
            tokio::time::sleep(COALESCE).await;
        }
    }

    /// Whether somebody asked if all is as known, and was not answered yet.
    fn is_doubted(&self) -> bool {
        let doubted = *self.doubted.borrow();
        self.is_open(doubted)
    }

    /// Whether who asked at this moment was not answered yet.
    fn is_open(&self, asked: Option<Instant>) -> bool {
        asked.is_some_and(|asked| self.confirmed.borrow().is_none_or(|sent| sent < asked))
    }

    /// One wait. If somebody asks meanwhile whether all is as known, it is ended where it `may_be_ended`: with nothing,
    /// unless its answer was on its way. The next one asks for everything since the last version.
    async fn wait(
        &self,
        watch: &Watch,
        version: &str,
        wait: Duration,
        may_be_ended: bool,
    ) -> Option<Result<Option<UpdateSet>, vim::Error>> {
        let mut doubts = self.doubted.subscribe();
        let mut waiting = pin!(watch.soap.wait_for_updates(&watch.collector, version, wait, PAGE));
        // Also who asked while this wait was being made: it cannot tell when it got to the server.
        let doubted = async { doubts.wait_for(|asked| self.is_open(*asked)).await.map(drop) };
        tokio::select! {
            // First, so that it is on its way before it is ended.
            biased;
            answer = &mut waiting => return Some(answer),
            Ok(()) = doubted, if may_be_ended => {}
        }
        let mut answer = None;
        let ended = async {
            let mut pause = CANCEL_AGAIN;
            while answer.is_none() {
                // The cancellation is seen through, so that it does not meet the next wait.
                let ending = async { answer = tokio::time::timeout(pause, &mut waiting).await.ok() };
                tokio::join!(ending, self.cancel(watch));
                pause = pause.saturating_mul(2);
            }
        };
        let _ = tokio::time::timeout(CANCEL_LIMIT, ended).await;
        if answer.is_none() {
            answer = waiting.now_or_never();
        }
        if answer.is_none() {
            debug!(vcenter = self.session.names().server, "the old wait did not end; another one is sent");
        }
        // An answer that was on its way already is true, and not every server tells the same twice.
        answer.filter(|answer| matches!(answer, Ok(Some(_))))
    }

    fn has_members(&self) -> bool {
        !self.publisher.with(|state| state.members.is_empty())
    }

    /// Ends a wait whose client is gone. Closing its connection does not, and until it ends by itself the server keeps
    /// the next one waiting. Best effort: the next one tells whether it helped.
    async fn cancel(&self, watch: &Watch) {
        let call = watch.soap.cancel_wait_for_updates(&watch.collector);
        if let Ok(Err(error)) = tokio::time::timeout(CLEAR_LIMIT, call).await {
            debug!(vcenter = self.session.names().server, error = chain(&error), "the old wait could not be cancelled");
        }
    }

    /// Takes a subscription that is over off its session, and what others left behind there.
    pub(super) async fn clear(&self, watch: &Watch) {
        let Watch { soap, collector, view } = watch;
        soap.leftovers().add(Parts { view: view.clone(), collector: Some(collector.clone()) });
        self.clear_leftovers(soap).await;
    }

    /// Takes what earlier subscriptions left behind off a session that lives on. What cannot be taken off now, as vCenter
    /// does not answer, is left for the next time. Ending the session does the same.
    pub(super) async fn clear_leftovers(&self, soap: &Use<vim::Client>) {
        let leftovers = soap.leftovers();
        while let Some(parts) = leftovers.take() {
            let both = async {
                let collector = match &parts.collector {
                    Some(collector) => soap.destroy_property_collector(collector).await,
                    None => Ok(()),
                };
                (collector, soap.destroy_view(&parts.view).await)
            };
            let ended = tokio::time::timeout(CLEAR_LIMIT, both).await;
            debug!(vcenter = self.session.names().server, ?ended, "an old subscription is taken off");
            let is_over = |end: &Result<(), vim::Error>| !end.as_ref().is_err_and(vim::Error::is_transient);
            if !ended.is_ok_and(|(collector, view)| is_over(&collector) && is_over(&view)) {
                leftovers.add(parts);
                return;
            }
        }
    }

    /// Keeps the members of the view what is wanted.
    pub(super) async fn keep_view(&self, watch: &Watch) -> Failure {
        match self.keep_members(watch).await {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    async fn keep_members(&self, watch: &Watch) -> Result<Infallible, Failure> {
        let doing = format!("changing the list of watched virtual machines of vCenter {}", self.session.names().server);
        loop {
            let change = self.publisher.with(|state| state.members.next_change());
            if !change.is_empty() {
                let unresolved = self.make(watch, &change).await.map_err(failed(&doing))?;
                self.publisher.publish(|state| state.made(&change, unresolved));
                self.publisher.objects_changed.notify_one();
            }
            self.publisher.members_changed.notified().await;
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Makes a change of the view; the answer is what the server does not know.
    async fn make(&self, watch: &Watch, change: &Change) -> Result<Vec<Arc<str>>, vim::Error> {
        let add: Vec<MoRef> = change.add.iter().map(reference).collect();
        let remove: Vec<MoRef> = change.remove.iter().map(reference).collect();
        if change.add.is_disjoint(&change.remove) {
            return self.modify(watch, &add, &remove).await;
        }
        // In one call, taking out and putting in the same object would be no change.
        self.modify(watch, &[], &remove).await?;
        self.modify(watch, &add, &[]).await
    }

    /// Changes the view in portions; the answer is what the server does not know.
    async fn modify(&self, watch: &Watch, add: &[MoRef], remove: &[MoRef]) -> Result<Vec<Arc<str>>, vim::Error> {
        let mut unresolved = Vec::new();
        for portion in remove.chunks(PORTION).skip(1) {
            watch.soap.modify_list_view(&watch.view, &[], portion).await?;
        }
        // The first removals go with the first additions.
        let mut removals = remove.chunks(PORTION).next().unwrap_or_default();
        let mut portions: Vec<&[MoRef]> = add.chunks(PORTION).collect();
        if portions.is_empty() {
            portions.push(&[]);
        }
        for portion in portions {
            let refused = watch.soap.modify_list_view(&watch.view, portion, std::mem::take(&mut removals)).await?;
            unresolved.extend(refused.into_iter().map(|object| Arc::from(object.id())));
        }
        Ok(unresolved)
    }
}
