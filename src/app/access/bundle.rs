//! Polls the client CA file and passes each changed content to a callback.

use crate::app::files::{FileSystem, SystemFiles};
use crate::base::error_chain::chain;
use crate::kubernetes::access::BadBundle;
use crate::runtime::tasks::{BoxError, off_thread};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FLAG: &str = "--client-ca-file";

/// Poll interval. Each poll compares contents, since an update of a ConfigMap only swaps a symbolic link.
const PAUSE: Duration = Duration::from_secs(5);

/// A file and the consumer of its content.
pub struct Bundle<F> {
    path: PathBuf,
    take: F,
    /// Outcome of the last read.
    last_read: Result<Vec<u8>, String>,
}

impl<F: Fn(&[u8]) -> Result<(), BadBundle> + Send> Bundle<F> {
    /// Reads the file and passes its content to `take`. Only logs an error, since a later poll may succeed.
    pub async fn read(path: &Path, take: F) -> Self {
        let mut bundle = Self { path: path.to_owned(), take, last_read: Err(String::new()) };
        bundle.poll().await;
        bundle
    }

    /// Polls the file forever.
    pub async fn follow(mut self) -> Result<(), BoxError> {
        loop {
            tokio::time::sleep(PAUSE).await;
            self.poll().await;
        }
    }

    /// Reads the file once. Has no time limit, because reads of a hanging network file system would then pile up.
    async fn poll(&mut self) {
        let path = self.path.clone();
        let read = match off_thread(move || SystemFiles.read(&path)).await {
            Ok(Ok(content)) => Ok(content.to_vec()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panicked) => Err(panicked.to_string()),
        };
        if read == self.last_read {
            return;
        }
        let path = self.path.display();
        match &read {
            Ok(pem) => match (self.take)(pem) {
                Ok(()) => tracing::info!("{FLAG}: the certificates of {path} are now in use"),
                Err(error) => {
                    tracing::warn!("{FLAG}: {path}: {}; the previous certificates stay in use", chain(&error))
                }
            },
            Err(error) => tracing::warn!(
                "{FLAG}: {path} cannot be read: {error}; the previous certificates stay in \
                                          use"
            ),
        }
        self.last_read = read;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::access::check_bundle;
    use std::sync::{Arc, Mutex};

    #[tokio::test]
    async fn a_file_is_taken_over_when_its_content_changes_and_is_good() {
        let certificate = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap().cert.pem();
        let (one, two) = (certificate("one"), certificate("two"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, &one).unwrap();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let taker = taken.clone();
        let take = move |pem: &[u8]| {
            check_bundle(pem)?;
            taker.lock().unwrap().push(String::from_utf8_lossy(pem).into_owned());
            Ok(())
        };
        let mut bundle = Bundle::read(&file, take).await;
        let mut expected = vec![one.clone()];
        for (name, content, is_news) in [
            ("the same", Some(one.as_str()), false),
            ("half written", Some(two.split("-----END").next().unwrap()), false),
            ("written", Some(two.as_str()), true),
            ("gone", None, false),
            ("back", Some(two.as_str()), true),
        ] {
            match content {
                Some(content) => std::fs::write(&file, content).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            bundle.poll().await;
            expected.extend(content.filter(|_| is_news).map(str::to_owned));
            assert_eq!(*taken.lock().unwrap(), expected, "{name}");
        }
    }
}
