//! Polls a directory of credentials. Each file is one key, as in a mounted Secret.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use secrecy::zeroize::Zeroize;
use secrecy::{ExposeSecret, SecretSlice};
use tokio::time::{Instant, sleep_until, timeout};

/// Poll interval. The kubelet needs up to a minute to update a mounted Secret, so 5 s more do not matter.
const PAUSE: Duration = Duration::from_secs(5);

/// Time that files must stay unchanged before they are used, so that user name and password match.
const SETTLE: Duration = Duration::from_secs(1);

/// Time after which a poll is reported as failing. If the next poll is slow too, that poll has no time limit.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// Maximum number of directory entries that are read.
const MAX_ENTRIES: usize = 1000;

/// Size limit in bytes of all files together; no Secret is larger.
const MAX_BYTES: u64 = 1024 * 1024;

/// Prefix of entries that are not keys, such as the link that the kubelet swaps when a mounted Secret changes.
const HIDDEN: &str = "..";

/// Outcome of a poll.
#[derive(PartialEq)]
pub enum DirectoryReading {
    /// The files, all of the same version.
    Files(DirectoryFiles),
    /// The path does not exist, is not a directory, or is not readable for this process. The text is the reason.
    Absent(String),
    /// The directory could not be read completely, or not in time. The text is the reason.
    Failing(String),
}

/// The files of a directory. Has no `Debug`, so that contents cannot be logged.
#[derive(Default)]
pub struct DirectoryFiles {
    /// The contents by file name; `None` if the file cannot be read.
    files: BTreeMap<String, Option<SecretSlice<u8>>>,
    /// Problems of single files, with their paths.
    pub problems: Vec<String>,
    /// Target of the link `..data`, with which the kubelet swaps all files in one step; `None` without a link.
    link: Option<PathBuf>,
}

impl DirectoryFiles {
    /// Returns names and contents; a content is `None` if the file cannot be read.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.files.iter().map(|(name, content)| (name.as_str(), content.as_ref().map(ExposeSecret::expose_secret)))
    }
}

impl PartialEq for DirectoryFiles {
    fn eq(&self, other: &Self) -> bool {
        self.problems == other.problems && self.link == other.link && self.entries().eq(other.entries())
    }
}

/// A poller of one directory.
pub struct DirectoryWatcher {
    path: PathBuf,
    returned: Option<DirectoryReading>,
    /// Files of the last poll that another poll must confirm.
    unconfirmed: Option<DirectoryFiles>,
    next_poll: Instant,
}

impl DirectoryWatcher {
    /// Creates a watcher whose first poll is due immediately.
    pub fn new(path: PathBuf) -> Self {
        Self { path, returned: None, unconfirmed: None, next_poll: Instant::now() }
    }

    /// Polls until the outcome differs from the last returned outcome, and returns the new outcome.
    pub async fn next(&mut self) -> &DirectoryReading {
        let path = self.path.clone();
        let changes = loop {
            sleep_until(self.next_poll).await;
            let mut looking = pin!(read_directory(&path));
            let observed = match timeout(READ_LIMIT, &mut looking).await {
                Ok(seen) => seen,
                Err(_) => {
                    let stuck = DirectoryReading::Failing(format!("it was not read within {} s", READ_LIMIT.as_secs()));
                    if self.returned.as_ref() != Some(&stuck) {
                        break stuck;
                    }
                    looking.await
                }
            };
            self.next_poll = Instant::now() + PAUSE;
            if self.returned.as_ref() == Some(&observed) {
                self.unconfirmed = None;
                continue;
            }
            match observed {
                DirectoryReading::Files(files) if !self.is_settled(&files) => {
                    self.unconfirmed = Some(files);
                    self.next_poll = Instant::now() + SETTLE;
                }
                seen => break seen,
            }
        };
        self.unconfirmed = None;
        self.returned.insert(changes)
    }

    /// Returns true if the files count as one version: a link swaps them, two polls found them, or they are the first
    /// outcome.
    fn is_settled(&self, files: &DirectoryFiles) -> bool {
        files.link.is_some() || self.returned.is_none() || self.unconfirmed.as_ref() == Some(files)
    }
}

/// Reads the whole directory, up to three times if the kubelet swaps the files during the read.
async fn read_directory(path: &Path) -> DirectoryReading {
    const ATTEMPTS: usize = 3;
    let link = path.join("..data");
    for _ in 0..ATTEMPTS {
        let before = tokio::fs::read_link(&link).await.ok();
        match read(path).await {
            Ok(files) if tokio::fs::read_link(&link).await.ok() == before => {
                return DirectoryReading::Files(DirectoryFiles { link: before, ..files });
            }
            Ok(_) => {}
            Err(error) => return failure(&error),
        }
    }
    DirectoryReading::Failing("its files are swapped all the time".to_owned())
}

fn failure(error: &std::io::Error) -> DirectoryReading {
    match error.kind() {
        ErrorKind::NotFound => DirectoryReading::Absent("it does not exist".to_owned()),
        ErrorKind::NotADirectory => DirectoryReading::Absent("it is not a directory".to_owned()),
        ErrorKind::PermissionDenied => DirectoryReading::Absent(format!("this process may not read it ({error})")),
        _ => DirectoryReading::Failing(format!("it cannot be read: {error}")),
    }
}

async fn read(path: &Path) -> std::io::Result<DirectoryFiles> {
    let mut files = DirectoryFiles::default();
    let mut entries = tokio::fs::read_dir(path).await?;
    let mut observed = 0;
    let mut left = MAX_BYTES;
    while let Some(entry) = entries.next_entry().await? {
        observed += 1;
        if observed > MAX_ENTRIES {
            files.problems.push(format!("only the first {MAX_ENTRIES} entries of {} are read", path.display()));
            break;
        }
        let name = entry.file_name();
        let shown = entry.path().display().to_string();
        let Some(name) = name.to_str() else {
            files.problems.push(format!("the name of {shown:?} is not text in UTF-8"));
            continue;
        };
        if name.starts_with(HIDDEN) {
            continue;
        }
        match content(&entry.path(), left).await {
            Ok(None) => {}
            Ok(Some(content)) => {
                left = left.saturating_sub(content.expose_secret().len() as u64);
                files.files.insert(name.to_owned(), Some(content));
            }
            Err(reason) => {
                files.problems.push(format!("the file {shown:?} is not read: {reason}"));
                files.files.insert(name.to_owned(), None);
            }
        }
    }
    files.problems.sort();
    Ok(files)
}

/// Returns the content of a file; `None` for a directory.
async fn content(path: &Path, left: u64) -> Result<Option<SecretSlice<u8>>, String> {
    // Follows links, since the files of a mounted Secret are links.
    let metadata = tokio::fs::metadata(path).await.map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Ok(None);
    }
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.len() > left {
        return Err(format!("it is too large: all files together may have {MAX_BYTES} bytes"));
    }
    let mut read = tokio::fs::read(path).await.map_err(|error| error.to_string())?;
    let content = SecretSlice::from(Box::<[u8]>::from(read.as_slice()));
    read.zeroize();
    Ok(Some(content))
}

#[cfg(test)]
mod tests;
