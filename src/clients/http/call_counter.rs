//! Counts the calls of one task, for commands that print how many calls they have made.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

tokio::task_local! {
    /// The counter of this task.
    static COUNTER: CallCounter;
}

/// A counter of calls. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct CallCounter(Arc<Mutex<BTreeMap<String, u64>>>);

impl CallCounter {
    /// Runs the work, and counts the calls of this task that begin meanwhile, in all clients. Calls of tasks that the
    /// work starts are not counted. A second attempt of a call counts, too, because the server gets both.
    pub async fn count<T>(&self, work: impl Future<Output = T>) -> T {
        COUNTER.scope(self.clone(), work).await
    }

    /// Returns the number of calls so far, by `host:port`.
    pub fn calls(&self) -> BTreeMap<String, u64> {
        self.0.lock().clone()
    }
}

/// Records that this task sends a call to `host:port`.
pub(super) fn record_call(endpoint: &str) {
    // Fails in a task without a counter.
    let _ = COUNTER.try_with(|counter| {
        let mut calls = counter.0.lock();
        match calls.get_mut(endpoint) {
            Some(calls) => *calls += 1,
            None => drop(calls.insert(endpoint.to_owned(), 1)),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_counter_counts_the_calls_of_its_own_task_by_server() {
        let counter = CallCounter::default();
        record_call("a:443");
        counter
            .count(async {
                record_call("a:443");
                record_call("b:443");
                // Another task has no counter.
                tokio::spawn(async { record_call("a:443") }).await.unwrap();
                tokio::join!(async { record_call("a:443") }, async { record_call("b:443") });
            })
            .await;
        record_call("a:443");
        assert_eq!(counter.calls(), BTreeMap::from([("a:443".to_owned(), 2), ("b:443".to_owned(), 2)]));
    }
}
