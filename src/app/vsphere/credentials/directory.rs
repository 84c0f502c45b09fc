//! Reads a directory of credentials again and again. One file is one key, as in a Secret that is mounted.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use secrecy::zeroize::Zeroize;
use secrecy::{ExposeSecret, SecretSlice};
use tokio::time::{Instant, sleep_until, timeout};

/// The pause between two looks. The kubelet takes a minute to bring a changed Secret into a pod, so a few seconds more
/// are not felt, and a look at a handful of files costs nothing.
const PAUSE: Duration = Duration::from_secs(5);

/// How long files that somebody writes one by one have to stay the same before they count. A user name of one version
/// with the password of another would be a rejected login.
const SETTLE: Duration = Duration::from_secs(1);

/// A look that takes longer than this is told. The next one is then waited for, however long it takes, so that looks that
/// hang do not pile up.
const LOOK_LIMIT: Duration = Duration::from_secs(10);

/// The most entries that are looked at.
const MOST_ENTRIES: usize = 1000;

/// The most bytes of a file, and of all files together: no Secret is larger.
const MOST_BYTES: u64 = 1024 * 1024;

/// How the kubelet names what it swaps when a mounted Secret changes, and whatever else is not a key.
const HIDDEN: &str = "..";

/// What a look found.
#[derive(PartialEq)]
pub enum DirectoryReading {
    /// The files, all from one moment.
    Files(DirectoryFiles),
    /// There is no such directory, or this process may not look into it. Says which.
    Absent(String),
    /// It was not possible to tell. Says why.
    Failing(String),
}

/// The files of a directory. Deliberately without `Debug`.
#[derive(Default)]
pub struct DirectoryFiles {
    /// By name; nothing where the file cannot be read.
    contents: BTreeMap<String, Option<SecretSlice<u8>>>,
    /// What is wrong with single files. Names paths.
    pub problems: Vec<String>,
    /// Where the link points that swaps all files at once, if there is one.
    link: Option<PathBuf>,
}

impl DirectoryFiles {
    /// Names and contents; no content where the file cannot be read.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.contents.iter().map(|(name, content)| (name.as_str(), content.as_ref().map(ExposeSecret::expose_secret)))
    }
}

impl PartialEq for DirectoryFiles {
    fn eq(&self, other: &Self) -> bool {
        self.problems == other.problems && self.link == other.link && self.entries().eq(other.entries())
    }
}

/// Looks at one directory again and again.
pub struct DirectoryWatcher {
    path: PathBuf,
    told: Option<DirectoryReading>,
    /// What was seen last and is not sure to be complete.
    unsettled: Option<DirectoryFiles>,
    next_look: Instant,
}

impl DirectoryWatcher {
    /// Nothing is looked at yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, told: None, unsettled: None, next_look: Instant::now() }
    }

    /// Completes when there is something else to see than before.
    pub async fn next(&mut self) -> &DirectoryReading {
        let path = self.path.clone();
        let news = loop {
            sleep_until(self.next_look).await;
            let mut looking = pin!(look(&path));
            let seen = match timeout(LOOK_LIMIT, &mut looking).await {
                Ok(seen) => seen,
                Err(_) => {
                    let stuck = DirectoryReading::Failing(format!("it was not read within {} s", LOOK_LIMIT.as_secs()));
                    if self.told.as_ref() != Some(&stuck) {
                        break stuck;
                    }
                    looking.await
                }
            };
            self.next_look = Instant::now() + PAUSE;
            if self.told.as_ref() == Some(&seen) {
                self.unsettled = None;
                continue;
            }
            match seen {
                DirectoryReading::Files(files) if !self.is_settled(&files) => {
                    self.unsettled = Some(files);
                    self.next_look = Instant::now() + SETTLE;
                }
                seen => break seen,
            }
        };
        self.unsettled = None;
        self.told.insert(news)
    }

    /// Whether the files are all from one moment: swapped by a link, seen twice, or there before this process was.
    fn is_settled(&self, files: &DirectoryFiles) -> bool {
        files.link.is_some() || self.told.is_none() || self.unsettled.as_ref() == Some(files)
    }
}

/// One look at everything. Repeated at once when the files were swapped meanwhile.
async fn look(path: &Path) -> DirectoryReading {
    const ATTEMPTS: usize = 3;
    let link = path.join("..data");
    for _ in 0..ATTEMPTS {
        let before = tokio::fs::read_link(&link).await.ok();
        match read(path).await {
            Ok(files) if tokio::fs::read_link(&link).await.ok() == before => {
                return DirectoryReading::Files(DirectoryFiles { link: before, ..files });
            }
            Ok(_) => {}
            Err(error) if is_absent(&error) => return DirectoryReading::Absent(absence(&error)),
            Err(error) => return DirectoryReading::Failing(format!("it cannot be read: {error}")),
        }
    }
    DirectoryReading::Failing("its files are swapped all the time".to_owned())
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

fn absence(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "it does not exist".to_owned(),
        ErrorKind::NotADirectory => "it is not a directory".to_owned(),
        _ => format!("this process may not read it ({error})"),
    }
}

async fn read(path: &Path) -> std::io::Result<DirectoryFiles> {
    let mut files = DirectoryFiles::default();
    let mut entries = tokio::fs::read_dir(path).await?;
    let mut seen = 0;
    let mut left = MOST_BYTES;
    while let Some(entry) = entries.next_entry().await? {
        seen += 1;
        if seen > MOST_ENTRIES {
            files.problems.push(format!("only the first {MOST_ENTRIES} entries of {} are read", path.display()));
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
                files.contents.insert(name.to_owned(), Some(content));
            }
            Err(why) => {
                files.problems.push(format!("the file {shown:?} is not read: {why}"));
                files.contents.insert(name.to_owned(), None);
            }
        }
    }
    files.problems.sort();
    Ok(files)
}

/// The content of a file; nothing for a directory.
async fn content(path: &Path, left: u64) -> Result<Option<SecretSlice<u8>>, String> {
    // Follows links, as those in a mounted Secret.
    let metadata = tokio::fs::metadata(path).await.map_err(|error| error.to_string())?;
    if metadata.is_dir() {
        return Ok(None);
    }
    if !metadata.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    if metadata.len() > left {
        return Err(format!("it is too large: all files together may have {MOST_BYTES} bytes"));
    }
    let mut read = tokio::fs::read(path).await.map_err(|error| error.to_string())?;
    let content = SecretSlice::from(Box::<[u8]>::from(read.as_slice()));
    read.zeroize();
    Ok(Some(content))
}

#[cfg(test)]
mod tests;
