//! Signals: the first signal starts an orderly shutdown, the second signal requests an immediate exit.

use std::future::Future;
use std::io;

use futures::{Stream, StreamExt};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A second signal arrived while the process was stopping.
#[derive(Debug, thiserror::Error)]
#[error("second signal ({0}) while stopping")]
pub struct SecondSignal(pub &'static str);

/// Starts to listen for SIGTERM and SIGINT. The future cancels `stop` at the first signal and completes at the second
/// signal. The caller must poll the future until the process ends.
pub fn watch_signals(stop: CancellationToken) -> io::Result<impl Future<Output = SecondSignal>> {
    let terminate = named("SIGTERM", signal(SignalKind::terminate())?);
    let interrupt = named("SIGINT", signal(SignalKind::interrupt())?);
    Ok(second_signal(stop, futures::stream::select(terminate, interrupt)))
}

fn named(name: &'static str, signal: Signal) -> impl Stream<Item = &'static str> + Unpin {
    Box::pin(futures::stream::unfold(signal, move |mut signal| async move {
        signal.recv().await?;
        Some((name, signal))
    }))
}

async fn second_signal(stop: CancellationToken, mut signals: impl Stream<Item = &'static str> + Unpin) -> SecondSignal {
    if let Some(name) = signals.next().await {
        tracing::info!(signal = name, "stopping; another signal leaves at once");
        stop.cancel();
    }
    match signals.next().await {
        Some(name) => SecondSignal(name),
        // The runtime delivers no more signals, so a second signal cannot arrive.
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_signal_stops_and_the_second_leaves() {
        let (tx, rx) = futures::channel::mpsc::unbounded();
        let stop = CancellationToken::new();
        let mut second = Box::pin(second_signal(stop.clone(), rx));

        assert!(futures::poll!(&mut second).is_pending());
        assert!(!stop.is_cancelled());

        tx.unbounded_send("SIGTERM").unwrap();
        assert!(futures::poll!(&mut second).is_pending());
        assert!(stop.is_cancelled());

        tx.unbounded_send("SIGINT").unwrap();
        assert_eq!(second.await.0, "SIGINT");
    }
}
