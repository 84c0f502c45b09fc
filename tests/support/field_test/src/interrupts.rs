//! Ctrl-C, SIGTERM, and the SIGHUP of a closed terminal. The first signal ends the checks and starts the clean-up. The
//! second signal ends the clean-up, too.

use std::future::{Future, pending};
use std::io::Write as _;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Message that is printed at the first signal.
const TIDYING_UP: &str = "\nInterrupted. This program removes what it made in NSX, if anything, which can take some minutes, and \
                          logs out. A second Ctrl-C ends it at once.";

/// Prints a line on standard error. The reader of standard error may have ended with the same signal; a failed write
/// must not end the clean-up.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The number of signals so far. Clones share it.
#[derive(Clone, Debug)]
pub struct Interrupts(watch::Receiver<u8>);

impl Interrupts {
    /// Installs handlers for Ctrl-C and SIGTERM, so that they no longer end the process.
    ///
    /// # Errors
    /// The system rejects a signal handler.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn install() -> std::io::Result<Self> {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut hangup = signal(SignalKind::hangup())?;
        let (sender, receiver) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                let came = tokio::select! {
                    came = interrupt.recv() => came,
                    came = terminate.recv() => came,
                    came = hangup.recv() => came,
                };
                if came.is_none() {
                    return;
                }
                sender.send_modify(|count: &mut u8| *count = count.saturating_add(1));
                if *sender.borrow() == 1 {
                    say(TIDYING_UP);
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Interrupts that never come.
    #[must_use]
    pub fn never() -> Self {
        Self::counted(watch::channel(0).1)
    }

    /// Interrupts whose number comes from this channel.
    #[must_use]
    pub fn counted(count: watch::Receiver<u8>) -> Self {
        Self(count)
    }

    /// Returns true if a signal has come.
    pub(crate) fn is_interrupted(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Returns the outcome of this work, or `None` if a signal came before or comes first. The work is dropped then.
    pub(crate) async fn until_first<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.until(1, work).await
    }

    /// Like [`Interrupts::until_first`], for a second signal.
    pub(crate) async fn until_second<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.until(2, work).await
    }

    /// Waits for a logout. A second signal ends the wait.
    pub(crate) async fn log_out(&self, title: &str, logout: impl Future<Output = ()>) {
        if self.until_second(logout).await.is_none() {
            say(&format!("{title}: not logged out. The session ends with its idle time."));
        }
    }

    async fn until<T>(&self, count: u8, work: impl Future<Output = T>) -> Option<T> {
        let mut signals = self.0.clone();
        let came = async {
            if signals.wait_for(|come| *come >= count).await.is_err() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = came => None,
            outcome = work => Some(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::sync::watch;

    use super::Interrupts;

    #[tokio::test]
    async fn the_first_signal_ends_the_checks_and_the_second_one_the_tidying_up() {
        let (sender, receiver) = watch::channel(0);
        let interrupts = Interrupts::counted(receiver);
        assert_eq!(interrupts.until_first(ready(7)).await, Some(7));
        sender.send_replace(1);
        assert_eq!(interrupts.until_first(ready(7)).await, None, "a signal that came between two waits is not lost");
        assert_eq!(interrupts.until_second(ready(7)).await, Some(7));
        sender.send_replace(2);
        assert_eq!(interrupts.until_second(pending::<()>()).await, None);
    }

    #[tokio::test]
    async fn without_signals_work_is_done() {
        assert_eq!(Interrupts::never().until_first(tokio::task::yield_now()).await, Some(()));
    }
}
