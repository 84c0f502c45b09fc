//! Leadership as a token that is checked before each write.

use std::future::Future;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cloud::LeaderToken;

/// Interval at which waiting tasks check the wall clock, because the monotonic clock stops while the host is suspended.
const WALL_CLOCK_PERIOD: Duration = Duration::from_secs(1);

/// The error for a write without leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process is not the leader")]
pub struct NotLeader;

/// Leadership of this process, with its end. Cheap to clone; clones share the state.
#[derive(Debug, Clone)]
pub struct Leadership {
    term: Option<watch::Receiver<Option<Term>>>,
    flag: watch::Receiver<bool>,
    wall_clock: WallClock,
}

/// One uninterrupted period of leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Term {
    number: u64,
    /// Time just before the last successful renewal was sent.
    renewed: Instant,
    ends: Instant,
    ends_by_wall_clock: SystemTime,
}

/// The elector's side of a [`Leadership`].
#[derive(Debug)]
pub(in crate::kubernetes) struct Holder {
    term: watch::Sender<Option<Term>>,
    flag: watch::Sender<bool>,
    terms: u64,
    wall_clock: WallClock,
}

impl Term {
    fn starting(number: u64, sent: SendTime, lasts: Duration) -> Self {
        let (ends, ends_by_wall_clock) = (sent.monotonic + lasts, sent.wall_clock + lasts);
        Self { number, renewed: sent.monotonic, ends, ends_by_wall_clock }
    }

    /// Whether the term has ended by either clock. The monotonic clock stops while the host is suspended.
    fn is_over(&self, now: Instant, wall_clock: SystemTime) -> bool {
        now >= self.ends || wall_clock >= self.ends_by_wall_clock
    }

    fn is_current(&self, wall_clock: &WallClock) -> bool {
        !self.is_over(Instant::now(), wall_clock.now())
    }
}

impl Leadership {
    /// Returns the leadership of a process without leader election (`--leader-elect=false`).
    pub fn always() -> Self {
        let (_, flag) = watch::channel(true);
        Self { term: None, flag, wall_clock: WallClock::default() }
    }

    /// Returns a leadership that never begins.
    pub fn never() -> Self {
        Holder::new().1
    }

    /// Whether this process leads now.
    pub fn is_leader(&self) -> bool {
        self.term.is_none() || self.current().is_some()
    }

    /// Fails if this process does not lead now.
    pub fn check(&self) -> Result<(), NotLeader> {
        if self.is_leader() { Ok(()) } else { Err(NotLeader) }
    }

    /// Returns the number of the current term of this process, from 1. Zero without a term, and without leader election.
    pub fn term_number(&self) -> u64 {
        self.current().map_or(0, |term| term.number)
    }

    /// Returns a permission to write to the cloud. The permission ends with the current term; renewals extend the term.
    /// Without a current term, the permission is invalid; without leader election, it never ends.
    pub fn permit(&self) -> LeaderToken {
        let (leadership, term) = (self.clone(), self.current().map(|term| term.number));
        let is_valid = {
            let leadership = leadership.clone();
            move || leadership.term.is_none() || leadership.current().is_some_and(|now| Some(now.number) == term)
        };
        LeaderToken::new(is_valid, move || leadership.wait_until_over(term).boxed())
    }

    /// Completes once this process leads.
    pub async fn wait_until_leader(&self) {
        let Some(term) = &self.term else { return };
        let is_current = |term: &Option<Term>| term.is_some_and(|term| term.is_current(&self.wall_clock));
        if term.clone().wait_for(is_current).await.is_err() {
            // The elector was dropped, so leadership never begins.
            std::future::pending::<()>().await;
        }
    }

    /// Returns a channel that shows whether this process leads. The channel may lag behind [`Leadership::check`].
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.flag.clone()
    }

    /// Returns the time since the last renewal, if the elector has a term. Unlike in [`Leadership::check`], an expired
    /// term counts until the elector ends it.
    pub(in crate::kubernetes) fn unrenewed_for(&self) -> Option<Duration> {
        let term = *self.term.as_ref()?.borrow();
        term.map(|term| term.renewed.elapsed())
    }

    /// Completes at the end of the current term; renewals extend the term. Completes immediately if this process does
    /// not lead, and never if it runs without leader election.
    pub fn wait_until_lost(&self) -> impl Future<Output = ()> + Send + 'static {
        self.wait_until_over(self.current().map(|term| term.number))
    }

    /// Completes at the end of the term with this number. Completes immediately if that term is not the current one,
    /// and never without leader election.
    fn wait_until_over(&self, started: Option<u64>) -> impl Future<Output = ()> + Send + 'static {
        let leadership = self.clone();
        let mut end = Box::pin(self.clone().watch_term(started));
        // Each poll checks the term, because the timer may lag behind, for example after the process was suspended.
        std::future::poll_fn(move |context| match &leadership.term {
            Some(_) if leadership.current().map(|term| term.number) != started => Poll::Ready(()),
            _ => end.as_mut().poll(context),
        })
    }

    async fn watch_term(self, started: Option<u64>) {
        let Some(receiver) = &self.term else { return std::future::pending().await };
        let mut receiver = receiver.clone();
        loop {
            receiver.mark_unchanged();
            let Some(term) = self.current().filter(|term| Some(term.number) == started) else { return };
            let look = term.ends.min(Instant::now() + WALL_CLOCK_PERIOD);
            // The next iteration checks the term again. A dropped elector has ended its term.
            let _ = tokio::time::timeout_at(look, receiver.changed()).await;
        }
    }

    fn current(&self) -> Option<Term> {
        let term = *self.term.as_ref()?.borrow();
        term.filter(|term| term.is_current(&self.wall_clock))
    }
}

impl Holder {
    /// Creates a leadership without a term.
    pub(in crate::kubernetes) fn new() -> (Self, Leadership) {
        Self::with_clock(WallClock::default())
    }

    pub(in crate::kubernetes) fn with_clock(wall_clock: WallClock) -> (Self, Leadership) {
        let (term, term_receiver) = watch::channel(None);
        let (flag, flag_receiver) = watch::channel(false);
        let leadership = Leadership { term: Some(term_receiver), flag: flag_receiver, wall_clock: wall_clock.clone() };
        (Self { term, flag, terms: 0, wall_clock }, leadership)
    }

    /// Returns the current time by both clocks. The caller must send the request afterwards.
    pub(in crate::kubernetes) fn sends_now(&self) -> SendTime {
        SendTime { monotonic: Instant::now(), wall_clock: self.wall_clock.now() }
    }

    pub(in crate::kubernetes) fn begin(&mut self, sent: SendTime, lasts: Duration) {
        self.terms += 1;
        self.term.send_replace(Some(Term::starting(self.terms, sent, lasts)));
        self.flag.send_replace(true);
    }

    /// Extends the term by a successful renewal, which was sent at `sent`. Returns false if the term has already ended.
    #[must_use]
    pub(in crate::kubernetes) fn extend(&mut self, sent: SendTime, lasts: Duration) -> bool {
        if !self.is_held() {
            return false;
        }
        self.term.send_replace(Some(Term::starting(self.terms, sent, lasts)));
        true
    }

    pub(in crate::kubernetes) fn end(&mut self) {
        self.term.send_replace(None);
        self.flag.send_replace(false);
    }

    pub(in crate::kubernetes) fn is_held(&self) -> bool {
        self.ends().is_some()
    }

    /// Returns the end of the current term without further renewals.
    pub(in crate::kubernetes) fn ends(&self) -> Option<Instant> {
        let term = *self.term.borrow();
        term.filter(|term| term.is_current(&self.wall_clock)).map(|term| term.ends)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.end();
    }
}

/// Time just before a request was sent, on both clocks.
#[derive(Debug, Clone, Copy)]
pub(in crate::kubernetes) struct SendTime {
    monotonic: Instant,
    wall_clock: SystemTime,
}

impl SendTime {
    /// Now, by the host's clocks.
    #[cfg(test)]
    pub(in crate::kubernetes) fn now() -> Self {
        Self { monotonic: Instant::now(), wall_clock: SystemTime::now() }
    }

    pub(in crate::kubernetes) fn elapsed(&self) -> Duration {
        self.monotonic.elapsed()
    }
}

/// Wall clock of the host. It ends terms in addition to the monotonic clock. Tests can move it forward.
#[derive(Debug, Clone, Default)]
pub(in crate::kubernetes) struct WallClock {
    #[cfg(test)]
    ahead: std::sync::Arc<std::sync::Mutex<std::time::Duration>>,
}

impl WallClock {
    #[cfg(not(test))]
    pub(in crate::kubernetes) fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    #[cfg(test)]
    pub(in crate::kubernetes) fn now(&self) -> SystemTime {
        SystemTime::now() + *self.ahead.lock().unwrap()
    }

    /// Jumps ahead, as seen by a process whose host was suspended.
    #[cfg(test)]
    pub(in crate::kubernetes) fn jump(&self, ahead: std::time::Duration) {
        *self.ahead.lock().unwrap() += ahead;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::Error;

    const LASTS: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_term_ends_at_the_deadline_counted_from_before_the_renewal_was_sent() {
        let (mut holder, leadership) = Holder::new();
        assert_eq!(leadership.check(), Err(NotLeader));
        let sent = SendTime::now();
        tokio::time::advance(Duration::from_secs(3)).await;
        holder.begin(sent, LASTS);
        assert_eq!(leadership.check(), Ok(()));
        tokio::time::timeout(Duration::from_secs(60), leadership.wait_until_lost()).await.unwrap();
        assert_eq!(Instant::now().duration_since(sent.monotonic), LASTS);
        assert!(!leadership.is_leader());
    }

    #[tokio::test(start_paused = true)]
    async fn renewals_move_the_end_but_never_revive_a_term() {
        let (mut holder, leadership) = Holder::new();
        holder.begin(SendTime::now(), LASTS);
        let lost = leadership.wait_until_lost();
        tokio::pin!(lost);
        tokio::time::advance(Duration::from_secs(8)).await;
        assert!(holder.extend(SendTime::now(), LASTS));
        tokio::time::advance(Duration::from_secs(8)).await;
        assert!(futures::poll!(&mut lost).is_pending());
        assert!(leadership.is_leader());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(!holder.extend(SendTime::now(), LASTS), "too late");
        assert!(!leadership.is_leader());
        holder.begin(SendTime::now(), LASTS);
        lost.await;
        assert!(leadership.is_leader(), "a new term; the old one's writes are over all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_lasts_as_long_as_its_term_and_never_into_another() {
        let (mut holder, leadership) = Holder::new();
        let too_early = leadership.permit();
        holder.begin(SendTime::now(), LASTS);
        let permit = leadership.permit();
        let is_over = |permit: &crate::cloud::LeaderToken| permit.ended().now_or_never().is_some();
        assert!(!is_over(&permit) && is_over(&too_early));
        tokio::time::advance(Duration::from_secs(8)).await;
        assert!(holder.extend(SendTime::now(), LASTS));
        tokio::time::advance(Duration::from_secs(8)).await;
        assert!(permit.check().is_ok(), "renewed");
        assert!(matches!(too_early.check(), Err(Error::NotLeader)));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(permit.check(), Err(Error::NotLeader)), "the deadline is over");
        holder.begin(SendTime::now(), LASTS);
        assert!(matches!(permit.check(), Err(Error::NotLeader)), "another term");
        assert!(is_over(&permit) && !is_over(&leadership.permit()) && !is_over(&Leadership::always().permit()));
        assert!(leadership.permit().check().is_ok() && Leadership::always().permit().check().is_ok());
        assert!(Leadership::never().permit().check().is_err());
    }

    #[test]
    fn either_clock_ends_a_term() {
        let sent = SendTime { monotonic: Instant::now(), wall_clock: SystemTime::now() };
        let term = Term::starting(1, sent, LASTS);
        let second = Duration::from_secs(1);
        let cases = [
            ("both early", 9, 9, false),
            ("monotonic reached", 10, 9, true),
            ("woken from suspension", 1, 3600, true),
            ("wall clock set back", 9, 0, false),
        ];
        for (case, monotonic, wall_clock, expected) in cases {
            let over = term.is_over(sent.monotonic + second * monotonic, sent.wall_clock + second * wall_clock);
            assert_eq!(over, expected, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_end_sees_soon_that_it_passed_while_the_machine_was_suspended() {
        let wall_clock = WallClock::default();
        let (mut holder, leadership) = Holder::with_clock(wall_clock.clone());
        holder.begin(SendTime::now(), LASTS);
        let lost = leadership.wait_until_lost();
        tokio::pin!(lost);
        assert!(futures::poll!(&mut lost).is_pending());
        wall_clock.jump(LASTS);
        let resumed = Instant::now();
        lost.await;
        assert!(resumed.elapsed() <= WALL_CLOCK_PERIOD, "{:?}", resumed.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_leadership_sees_it_begin_and_a_dropped_elector_ends_it() {
        let (mut holder, leadership) = Holder::new();
        let waiting = leadership.wait_until_leader();
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        holder.begin(SendTime::now(), LASTS);
        waiting.await;
        let flag = leadership.watch();
        assert!(*flag.borrow());
        drop(holder);
        leadership.wait_until_lost().await;
        assert!(!*flag.borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_without_rivals_always_leads() {
        let leadership = Leadership::always();
        leadership.wait_until_leader().await;
        assert!(leadership.is_leader());
        assert!(*leadership.watch().borrow());
        tokio::time::timeout(Duration::from_secs(3600), leadership.wait_until_lost()).await.unwrap_err();
    }
}
