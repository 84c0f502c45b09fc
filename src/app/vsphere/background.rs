//! The provider's background work, which comes and goes while the process runs: one task per vCenter and one for the
//! nodes.

use crate::base::error_chain::chain;
use crate::providers::vsphere::Task;
use crate::runtime::tasks::{BoxError, Cause, TaskEnded, Tasks};
use std::time::Duration;

/// How long the tasks may take to end together; a moment less than their stage is given, so that the names of those
/// that do not end are told.
const GRACE: Duration = Duration::from_millis(6_500);

/// Holds the tasks. Dropping it aborts them all.
#[derive(Default)]
pub struct Background {
    tasks: Tasks,
}

impl Background {
    /// Starts a task. It may end once its own stop signal was given.
    pub fn start(&mut self, task: Task) {
        let Task { name, stop, run } = task;
        self.tasks.spawn(name, async move {
            run.await;
            if stop.is_cancelled() { Ok(()) } else { Err("nothing was left to do".into()) }
        });
    }

    /// Completes when a task ends although it was not told to. Safe to cancel.
    pub async fn first_unexpected_end(&mut self) -> BoxError {
        loop {
            match self.tasks.first_unexpected_end().await {
                TaskEnded { name, cause: Cause::Finished } => tracing::debug!(task = name, "task ended"),
                ended => return ended.into(),
            }
        }
    }

    /// Waits until all tasks have ended. The caller has given their stop signals.
    pub async fn shut_down(self) {
        if let Err(still_running) = self.tasks.shut_down(GRACE).await {
            tracing::warn!("{}", chain(&still_running));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_util::sync::CancellationToken;

    fn task(name: &str, stop: &CancellationToken, run: impl Future<Output = ()> + Send + 'static) -> Task {
        Task { name: name.to_owned(), stop: stop.clone(), run: Box::pin(run) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_was_told_to_may_end_and_no_other() {
        let mut background = Background::default();
        let (told, not_told) = (CancellationToken::new(), CancellationToken::new());
        background.start(task("told", &told, told.clone().cancelled_owned()));
        told.cancel();
        let nothing = tokio::time::timeout(Duration::from_secs(1), background.first_unexpected_end()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        background.start(task("other", &not_told, async {}));
        let ended = background.first_unexpected_end().await;
        assert_eq!(chain(ended.as_ref()), "task other failed: nothing was left to do");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_is_waited_for_and_what_is_stuck_is_not() {
        let mut background = Background::default();
        let stop = CancellationToken::new();
        let before = tokio::time::Instant::now();
        background.start(task("stuck", &stop, std::future::pending()));
        background.start(task("slow", &stop, tokio::time::sleep(Duration::from_secs(2))));
        stop.cancel();
        background.shut_down().await;
        assert_eq!(before.elapsed(), GRACE);
    }
}
