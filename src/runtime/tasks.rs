//! Named tasks: the only module that spawns tasks and threads. Each task has an owner, which observes its end.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::base::error_chain::chain;

/// An error of any type, which a task returns.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The tasks of the process, by name. Dropping this set aborts all tasks.
#[derive(Default)]
pub struct Tasks {
    running: JoinSet<Result<(), BoxError>>,
    names: HashMap<Id, String>,
}

/// The end of a task.
#[derive(Debug, thiserror::Error)]
#[error("task {name} {}", .cause.verb())]
pub struct TaskEnded {
    /// The name of the task.
    pub name: String,
    /// The cause of the end.
    #[source]
    pub cause: EndCause,
}

/// Cause of the end of a task.
#[derive(Debug, thiserror::Error)]
pub enum EndCause {
    /// The task returned without an error.
    #[error("nothing was left to do")]
    Finished,
    /// The task returned an error.
    #[error(transparent)]
    Failed(BoxError),
    /// The task panicked. Contains the message of the panic.
    #[error("{0}")]
    Panicked(String),
    /// The task was aborted.
    #[error("it was stopped from outside")]
    Aborted,
}

/// The tasks that did not end within the grace period and were aborted.
#[derive(Debug, thiserror::Error)]
#[error("tasks still at work after {} s: {}", .grace.as_secs_f32(), .names.join(", "))]
pub struct StillRunning {
    /// The names of the tasks, sorted.
    pub names: Vec<String>,
    /// The grace period.
    pub grace: Duration,
}

impl EndCause {
    fn verb(&self) -> &'static str {
        match self {
            EndCause::Finished => "ended although it should not",
            EndCause::Failed(_) => "failed",
            EndCause::Panicked(_) => "panicked",
            EndCause::Aborted => "was aborted",
        }
    }

    fn of(outcome: Result<Result<(), BoxError>, JoinError>) -> Self {
        match outcome {
            Ok(Ok(())) => EndCause::Finished,
            Ok(Err(error)) => EndCause::Failed(error),
            Err(error) => match error.try_into_panic() {
                Ok(payload) => EndCause::Panicked(panic_message(payload.as_ref())),
                Err(_) => EndCause::Aborted,
            },
        }
    }
}

impl Tasks {
    /// Starts `future` as the task `name`, inside a span of that name. A task runs until its stop signal, so each end
    /// before [`Tasks::shut_down`] is unexpected.
    pub fn spawn<F>(&mut self, name: impl Into<String>, future: F)
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let name = name.into();
        let span = tracing::info_span!("task", %name);
        // Boxing avoids a compiled copy of the code around a task for each type of future.
        let handle = self.running.spawn(future.boxed().instrument(span));
        self.names.insert(handle.id(), name);
    }

    /// Waits until a task ends, and returns its name and the cause. Never completes while no task runs. Cancel-safe.
    pub async fn first_unexpected_end(&mut self) -> TaskEnded {
        match self.next_end().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Waits up to `grace` for all tasks to end, and aborts the remaining tasks. The caller must have sent the stop
    /// signal. Logs errors and panics of the ending tasks. Fails with the names of the aborted tasks.
    pub async fn shut_down(mut self, grace: Duration) -> Result<(), StillRunning> {
        let deadline = Instant::now() + grace;
        loop {
            match tokio::time::timeout_at(deadline, self.next_end()).await {
                Ok(None) => return Ok(()),
                Ok(Some(TaskEnded { name, cause: EndCause::Finished })) => tracing::debug!(task = name, "task ended"),
                Ok(Some(ended)) => tracing::warn!("{} while stopping", chain(&ended)),
                Err(_) => {
                    let mut names: Vec<_> = self.names.into_values().collect();
                    names.sort();
                    return Err(StillRunning { names, grace });
                }
            }
        }
    }

    async fn next_end(&mut self) -> Option<TaskEnded> {
        let (id, outcome) = match self.running.join_next_with_id().await? {
            Ok((id, outcome)) => (id, Ok(outcome)),
            Err(error) => (error.id(), Err(error)),
        };
        let name = self.names.remove(&id).unwrap_or_default();
        Some(TaskEnded { name, cause: EndCause::of(outcome) })
    }
}

/// A panic, or a stop of the runtime, in [`contain`], [`detach`] or [`off_thread`].
#[derive(Debug, thiserror::Error)]
#[error("panic: {0}")]
pub struct PanicError(pub String);

/// Runs `future` as its own task within the current span. Returns the output, or the panic as an error. Dropping the
/// returned future aborts the task.
pub async fn contain<F>(future: F) -> Result<F::Output, PanicError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = AbortOnDropHandle::new(tokio::spawn(future.boxed().in_current_span()));
    task.await.map_err(|error| panicked(error, "the task was stopped with its runtime"))
}

/// Starts `future`, which ends by itself, as its own task within the current span. The returned future waits for the
/// output, or for the panic as an error. Dropping the returned future does not stop the task.
pub fn detach<F>(future: F) -> impl Future<Output = Result<F::Output, PanicError>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = tokio::spawn(future.boxed().in_current_span());
    async { task.await.map_err(|error| panicked(error, "the task was stopped with its runtime")) }
}

/// Runs `work`, which is allowed to block, on a thread for blocking work. Dropping the returned future does not stop
/// `work`.
pub async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PanicError> {
    let outcome = tokio::task::spawn_blocking(work).await;
    outcome.map_err(|error| panicked(error, "the thread was stopped with its runtime"))
}

fn panicked(error: JoinError, otherwise: &str) -> PanicError {
    match error.try_into_panic() {
        Ok(payload) => PanicError(panic_message(payload.as_ref())),
        Err(_) => PanicError(otherwise.into()),
    }
}

/// Starts a thread outside the runtime, for work that must continue while all threads of the runtime are busy, such as
/// writing the log. The thread ends when `work` returns.
pub fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_end_that_should_not_be_carries_the_name_and_the_cause() {
        type Start = fn(&mut Tasks);
        let cases: [(&str, Start, &str); 3] = [
            ("finished", |tasks| tasks.spawn("a", async { Ok(()) }), "ended although it should not"),
            ("failed", |tasks| tasks.spawn("a", async { Err("no disk".into()) }), "failed: no disk"),
            ("panicked", |tasks| tasks.spawn("a", async { panic!("odd {}", 1) }), "panicked: odd 1"),
        ];
        for (case, start, expected) in cases {
            let mut tasks = Tasks::default();
            tasks.spawn("other", std::future::pending());
            start(&mut tasks);
            let ended = tasks.first_unexpected_end().await;
            assert_eq!(ended.name, "a", "{case}");
            let text = chain(&ended);
            assert!(text.starts_with(&format!("task a {expected}")), "{case}: {text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn shutting_down_waits_for_the_willing_and_names_the_others() {
        let mut tasks = Tasks::default();
        tasks.spawn("quick", async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(())
        });
        tasks.spawn("stuck", std::future::pending());
        let error = tasks.shut_down(Duration::from_secs(5)).await.unwrap_err();
        assert_eq!(error.names, ["stuck"]);

        let mut tasks = Tasks::default();
        tasks.spawn("quick", async { Ok(()) });
        assert!(tasks.shut_down(Duration::from_secs(5)).await.is_ok());
    }

    #[tokio::test]
    async fn a_contained_panic_is_an_error_and_a_dropped_container_stops_its_task() {
        let outcome = contain(async { panic!("inside") }).await;
        assert_eq!(outcome.unwrap_err().to_string(), "panic: inside");
        assert_eq!(contain(async { 7 }).await.unwrap(), 7);
        assert_eq!(off_thread(|| panic!("there")).await.map(|(): ()| ()).unwrap_err().to_string(), "panic: there");
        assert_eq!(off_thread(|| 7).await.unwrap(), 7);

        let (tx, rx) = tokio::sync::oneshot::channel::<()>();
        let contained = contain(async move {
            let _held = tx;
            std::future::pending::<()>().await;
        });
        assert!(tokio::time::timeout(Duration::from_millis(1), contained).await.is_err());
        assert!(rx.await.is_err(), "the task was dropped");
    }
}
