//! Schedule of the rounds of node updates. A round batches changes, so that one call covers many changes. A round also
//! retries failed updates, and requests the syncs that changed Nodes make necessary.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Delay between the first change and its round.
const GATHER: Duration = Duration::from_millis(250);
/// Minimum interval between the beginnings of two rounds.
const SPACING: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct NodeSyncSchedule {
    state: Mutex<RoundState>,
    changed: Notify,
}

#[derive(Default)]
struct RoundState {
    /// Time of the first change that no round covers yet.
    first_change: Option<Instant>,
    /// Time of the next requested round, for example the retry of failed updates.
    again_at: Option<Instant>,
    last_round: Option<Instant>,
    /// Keys of the Services to sync.
    syncs: BTreeSet<String>,
}

impl NodeSyncSchedule {
    pub(super) fn nodes_changed(&self) {
        self.state.lock().first_change.get_or_insert_with(Instant::now);
        self.changed.notify_one();
    }

    /// Requests a round at this time, unless a round begins earlier.
    pub(super) fn again_at(&self, at: Instant) {
        let mut state = self.state.lock();
        state.again_at = Some(state.again_at.map_or(at, |earlier| earlier.min(at)));
        self.changed.notify_one();
    }

    pub(super) fn sync_soon(&self, keys: Vec<String>) {
        self.state.lock().syncs.extend(keys);
        self.changed.notify_one();
    }

    /// Waits for the next task. Returns the key of a Service to sync, or `None` if a round is due. Cancel-safe.
    pub(super) async fn next(&self) -> Option<String> {
        loop {
            // Created before the state is read, so that no change is missed.
            let changed = self.changed.notified();
            if let Some(key) = self.state.lock().syncs.pop_first() {
                return Some(key);
            }
            let Some(due) = self.due() else {
                changed.await;
                continue;
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(due) => {
                    let mut state = self.state.lock();
                    state.first_change = None;
                    state.again_at = None;
                    state.last_round = Some(Instant::now());
                    return None;
                }
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        let RoundState { first_change, again_at, last_round, .. } = *self.state.lock();
        let due = first_change.map(|first| first + GATHER).into_iter().chain(again_at).min()?;
        Some(last_round.map_or(due, |last| due.max(last + SPACING)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn syncs_come_before_the_next_round_and_leave_its_time() {
        let rounds = NodeSyncSchedule::default();
        rounds.nodes_changed();
        rounds.sync_soon(vec!["ns/b".to_owned(), "ns/a".to_owned(), "ns/b".to_owned()]);
        let began = Instant::now();
        assert_eq!((rounds.next().await.as_deref(), rounds.next().await.as_deref()), (Some("ns/a"), Some("ns/b")));
        assert_eq!((rounds.next().await, began.elapsed()), (None, GATHER));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_gathered_and_rounds_are_spaced() {
        let rounds = NodeSyncSchedule::default();
        let began = Instant::now();
        let at = |expected: u64| assert_eq!(began.elapsed(), Duration::from_millis(expected));
        let nothing = tokio::time::timeout(Duration::from_secs(5), rounds.next()).await;
        assert!(nothing.is_err(), "without a change there is no round");
        rounds.nodes_changed();
        tokio::time::sleep(Duration::from_millis(100)).await;
        rounds.nodes_changed();
        rounds.next().await;
        at(5_250);
        // 20 Nodes that are removed within 5 s cause at most four rounds.
        let mut count = 0;
        let mut leave = tokio::time::interval(Duration::from_millis(250));
        for _ in 0..20 {
            tokio::select! {
                _ = leave.tick() => rounds.nodes_changed(),
                _ = rounds.next() => count += 1,
            }
        }
        assert!(count <= 3, "{count}");
        rounds.next().await;
        rounds.nodes_changed();
        let cancelled = tokio::time::timeout(Duration::from_millis(10), rounds.next()).await;
        assert!(cancelled.is_err());
        rounds.next().await;
        // A failed update is retried in time, even if another delay has begun.
        let began = Instant::now();
        let again = async {
            rounds.again_at(began + Duration::from_secs(60));
            tokio::time::sleep(Duration::from_secs(1)).await;
            rounds.again_at(began + Duration::from_secs(30));
        };
        tokio::join!(rounds.next(), again);
        assert_eq!(began.elapsed(), Duration::from_secs(30));
    }
}
