//! What the controller logs in one test.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The log of this thread, which is that of one test.
pub struct Log;

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(text))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Starts to keep the logs of all threads. A subscriber for one thread alone may miss what another thread logged
    /// first: whether a place in the code is listened to is asked once for all threads.
    pub fn keep() {
        static KEPT: Once = Once::new();
        KEPT.call_once(|| {
            let subscriber = tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(|| Log).finish();
            tracing::subscriber::set_global_default(subscriber).unwrap();
        });
    }

    /// The lines that contain this text.
    pub fn lines(text: &str) -> Vec<String> {
        let all = LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap());
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}
