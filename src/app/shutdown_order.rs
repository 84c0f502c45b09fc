//! The tasks of the process in the order in which they stop: a task stops before the tasks that it uses.

use crate::base::error_chain::chain;
use crate::runtime::tasks::{BoxError, TaskEnded, Tasks};
use futures::FutureExt;
use std::future::Future;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The stages of the shutdown, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownStage {
    /// Controllers: take no new work and finish work in progress.
    Controllers,
    /// The election: releases the Lease after the controllers, which write under that Lease, have stopped.
    Election,
    /// The provider: logs out of vCenters after the election, so that a hanging vCenter does not delay the next leader.
    Provider,
    /// Caches, the writer of Events, the server of the secure port.
    Services,
}

/// Each stage with its grace period. Controllers get 1.5 s, so that the next leader can write within 2 s. A write in
/// flight takes milliseconds, and the next leader repeats work that waits for a hanging vCenter. The sum is less than
/// the 30 s after which Kubernetes kills a Pod.
const GRACE: [(ShutdownStage, Duration); 4] = [
    (ShutdownStage::Controllers, Duration::from_millis(1_500)),
    (ShutdownStage::Election, Duration::from_secs(5)),
    (ShutdownStage::Provider, Duration::from_secs(7)),
    (ShutdownStage::Services, Duration::from_secs(4)),
];

/// All tasks of the process.
pub struct Stages {
    running: Vec<Running>,
}

struct Running {
    stage: ShutdownStage,
    grace: Duration,
    tasks: Tasks,
    stop: CancellationToken,
}

impl Default for Stages {
    fn default() -> Self {
        let start = |(stage, grace)| Running { stage, grace, tasks: Tasks::default(), stop: CancellationToken::new() };
        Self { running: GRACE.into_iter().map(start).collect() }
    }
}

impl Stages {
    /// Returns the stop signal of a stage, for tasks that shut themselves down.
    pub fn stop_signal(&self, stage: ShutdownStage) -> CancellationToken {
        self.running
            .iter()
            .find(|running| running.stage == stage)
            .map(|running| running.stop.clone())
            .unwrap_or_default()
    }

    /// Starts a task that ends on the stop signal of its stage.
    pub fn spawn<F>(&mut self, stage: ShutdownStage, name: impl Into<String>, future: F)
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        if let Some(running) = self.running.iter_mut().find(|running| running.stage == stage) {
            running.tasks.spawn(name, future);
        }
    }

    /// Starts a task that ignores the stop signal. The task is dropped when its stage stops.
    pub fn spawn_until_stop<F>(&mut self, stage: ShutdownStage, name: impl Into<String>, future: F)
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let stop = self.stop_signal(stage);
        self.spawn(stage, name, async move { stop.run_until_cancelled_owned(future.boxed()).await.unwrap_or(Ok(())) });
    }

    /// Completes when a task ends unexpectedly.
    pub async fn first_unexpected_end(&mut self) -> TaskEnded {
        let ends = self.running.iter_mut().map(|running| running.tasks.first_unexpected_end().boxed());
        futures::future::select_all(ends).await.0
    }

    /// Stops the stages in order. Logs and drops tasks that exceed the grace period.
    pub async fn stop(self) {
        for Running { stage, grace, tasks, stop } in self.running {
            tracing::debug!(?stage, "stopping");
            stop.cancel();
            if let Err(still_running) = tasks.shut_down(grace).await {
                tracing::warn!("{}", chain(&still_running));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[tokio::test(start_paused = true)]
    async fn stages_stop_in_order_and_a_stuck_one_delays_the_next_by_its_grace_only() {
        let ended = Arc::new(Mutex::new(Vec::new()));
        let mut stages = Stages::default();
        for stage in [ShutdownStage::Services, ShutdownStage::Election, ShutdownStage::Provider] {
            let (stop, ended) = (stages.stop_signal(stage), ended.clone());
            stages.spawn(stage, format!("{stage:?}"), async move {
                stop.cancelled().await;
                ended.lock().unwrap().push(stage);
                Ok(())
            });
        }
        stages.spawn(ShutdownStage::Controllers, "stuck", std::future::pending());
        stages.spawn_until_stop(ShutdownStage::Services, "endless", std::future::pending());
        let before = tokio::time::Instant::now();
        stages.stop().await;
        assert_eq!(*ended.lock().unwrap(), [ShutdownStage::Election, ShutdownStage::Provider, ShutdownStage::Services]);
        assert_eq!(before.elapsed(), Duration::from_millis(1_500));
    }

    #[tokio::test]
    async fn an_unexpected_end_of_any_stage_is_noticed() {
        for stage in
            [ShutdownStage::Controllers, ShutdownStage::Provider, ShutdownStage::Election, ShutdownStage::Services]
        {
            let mut stages = Stages::default();
            stages.spawn(ShutdownStage::Services, "fine", std::future::pending());
            stages.spawn_until_stop(stage, "odd", async { Ok(()) });
            assert_eq!(stages.first_unexpected_end().await.name, "odd", "{stage:?}");
        }
    }

    #[test]
    fn all_stages_together_stop_before_the_pod_is_killed() {
        assert!(GRACE.iter().map(|(_, grace)| *grace).sum::<Duration>() < Duration::from_secs(30));
    }
}
