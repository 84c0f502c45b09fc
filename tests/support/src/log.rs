//! The log of one test that runs the product in its own process.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Level};

/// The log of this thread, and so of one test. Another test of this process starts the global log of the program.
pub struct Log {
    text: Text,
    _kept: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Starts to record the log of this thread.
    #[must_use]
    pub fn keep() -> Self {
        Self::keep_up_to(Level::INFO)
    }

    /// As [`Log::keep`], with all lines up to this level.
    #[must_use]
    pub fn keep_up_to(level: Level) -> Self {
        // With a single subscriber, `tracing` asks only the first thread at a call site whether the site is enabled.
        // With a second subscriber it asks all subscribers.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));
        LazyLock::force(&SECOND);
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .without_time()
            .with_writer(move || writer.clone())
            .finish();
        Self { text, _kept: tracing::subscriber::set_default(subscriber) }
    }

    /// Returns the lines that contain this text.
    #[must_use]
    pub fn lines(&self, text: &str) -> Vec<String> {
        let all = String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap();
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}
