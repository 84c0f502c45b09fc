//! The source of one pair: polled files, or this program, which renews the pair before it expires.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::CertificateError;
use super::pair::{self, LIFETIME, Pair, is_chain_self_made};
use crate::base::error_chain::chain;
use crate::base::limited_read::{MAX_FILE, read_limited};
use crate::runtime::admin::settings::PairFiles;

/// Name of the certificate file in the folder of `--cert-dir`, as in the Go program.
pub const SERVED_CERTIFICATE: &str = "cloud-controller-manager.crt";

/// Name of the key file in the folder of `--cert-dir`.
pub const SERVED_KEY: &str = "cloud-controller-manager.key";

/// Time before the expiry at which a generated pair is renewed: a fifth of its lifetime.
const MARGIN: Duration = Duration::from_secs(LIFETIME.as_secs() / 5);

/// The source of a certificate and its key, with the pair in use and the last failure.
pub(super) struct Origin {
    kind: Kind,
    pub(super) pair: Pair,
    digests: Digests,
    rejected: Option<RefusedPair>,
}

enum Kind {
    /// Files that users or other programs update.
    Files(PairFiles),
    /// Files in the folder of `--cert-dir`. This program renews a generated pair before it expires.
    Folder(PairFiles, Vec<String>),
    /// A generated pair in memory only.
    Memory(Vec<String>),
}

/// Hashes of the certificate and the key, for comparison.
type Digests = [[u8; 32]; 2];

struct RefusedPair {
    reason: String,
    is_logged: bool,
}

impl Origin {
    pub(super) fn files(files: PairFiles) -> Result<Self, CertificateError> {
        let (pair, seen) = read(&files)?;
        Ok(Self { kind: Kind::Files(files), pair, digests: seen, rejected: None })
    }

    /// Uses the existing pair, or generates a pair if neither file exists. An expiring pair is replaced only if this
    /// program generated it. A generated certificate with a missing or different key is also replaced, because the
    /// process may have ended before it wrote both files.
    pub(super) fn folder(folder: &Path, names: &[String], now: SystemTime) -> Result<Self, CertificateError> {
        let files = PairFiles { certificate: folder.join(SERVED_CERTIFICATE), key: folder.join(SERVED_KEY) };
        match (is_there(&files.certificate)?, is_there(&files.key)?) {
            (true, true) => {}
            (false, false) => write_new(&files, names, now)?,
            (true, false) if is_ours(&files) => write_new(&files, names, now)?,
            (true, false) => return Err(CertificateError::Half(files.certificate, files.key)),
            (false, true) => return Err(CertificateError::Half(files.key, files.certificate)),
        }
        let (pair, seen) = match read(&files) {
            Err(error @ CertificateError::Pair { .. }) if is_ours(&files) => {
                tracing::warn!("a new certificate is made for the secure port: {}", chain(&error));
                write_new(&files, names, now)?;
                read(&files)?
            }
            found => found?,
        };
        let mut origin = Self { kind: Kind::Folder(files, names.to_vec()), pair, digests: seen, rejected: None };
        origin.reload(now);
        Ok(origin)
    }

    pub(super) fn memory(names: &[String], now: SystemTime) -> Result<Self, CertificateError> {
        let pair = make(names, now)?;
        Ok(Self { kind: Kind::Memory(names.to_vec()), pair, digests: Digests::default(), rejected: None })
    }

    #[cfg(test)]
    pub(super) fn is_refusal_logged(&self) -> bool {
        self.rejected.as_ref().is_some_and(|refused| refused.is_logged)
    }

    /// Polls the source. Returns whether the pair has changed. An unusable pair is logged at the second poll, because
    /// its two files may still be incomplete at the first poll.
    pub(super) fn reload(&mut self, now: SystemTime) -> bool {
        match self.changed(now) {
            Ok(is_new) => {
                self.rejected = None;
                is_new
            }
            Err(error) => {
                let why = chain(&error);
                let before = self.rejected.take().filter(|refused| refused.reason == why);
                if before.as_ref().is_some_and(|refused| !refused.is_logged) {
                    tracing::warn!("the certificate of the secure port stays as it is: {why}");
                }
                self.rejected = Some(RefusedPair { reason: why, is_logged: before.is_some() });
                false
            }
        }
    }

    fn changed(&mut self, now: SystemTime) -> Result<bool, CertificateError> {
        let is_due = self.pair.is_self_made && now + MARGIN >= self.pair.ends;
        let (files, due) = match &self.kind {
            Kind::Memory(_) if !is_due => return Ok(false),
            Kind::Memory(names) => {
                self.pair = make(names, now)?;
                tracing::info!("made a new certificate for the secure port, since the one before ends");
                return Ok(true);
            }
            Kind::Folder(files, names) if is_due => (files, Some(names)),
            Kind::Folder(files, _) | Kind::Files(files) => (files, None),
        };
        // Existing files take precedence, because a user may have replaced the pair.
        let is_gone = due.is_some() && !is_there(&files.certificate)? && !is_there(&files.key)?;
        if !is_gone {
            let (chain, key) = contents(files)?;
            let digests = digests(&chain, &key);
            if digests != self.digests {
                self.pair = parse(files, &chain, &key)?;
                self.digests = digests;
                tracing::info!(file = %files.certificate.display(), "the certificate of the secure port was exchanged");
                return Ok(true);
            }
        }
        let Some(names) = due else { return Ok(false) };
        write_new(files, names, now)?;
        (self.pair, self.digests) = read(files)?;
        tracing::info!("made a new certificate for the secure port, since the one before ends");
        Ok(true)
    }
}

fn make(names: &[String], now: SystemTime) -> Result<Pair, CertificateError> {
    let made = pair::make(names, now)?;
    Pair::parse(made.chain.as_bytes(), made.key.as_bytes())
}

fn read(files: &PairFiles) -> Result<(Pair, Digests), CertificateError> {
    let (chain, key) = contents(files)?;
    Ok((parse(files, &chain, &key)?, digests(&chain, &key)))
}

fn parse(files: &PairFiles, chain: &[u8], key: &[u8]) -> Result<Pair, CertificateError> {
    Pair::parse(chain, key).map_err(|source| CertificateError::Pair(files.clone(), Box::new(source)))
}

fn digests(chain: &[u8], key: &[u8]) -> Digests {
    [Sha256::digest(chain).into(), Sha256::digest(key).into()]
}

type Contents = (Zeroizing<Vec<u8>>, Zeroizing<Vec<u8>>);

fn contents(files: &PairFiles) -> Result<Contents, CertificateError> {
    let read = |path: &PathBuf| content(path).map_err(|source| CertificateError::Read(path.clone(), source));
    Ok((read(&files.certificate)?, read(&files.key)?))
}

fn content(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let expected = usize::try_from(file.metadata()?.len()).unwrap_or(MAX_FILE);
    read_limited(file, expected, MAX_FILE)
}

fn is_there(path: &Path) -> Result<bool, CertificateError> {
    path.try_exists().map_err(|source| CertificateError::Read(path.to_owned(), source))
}

/// Returns true if this program, or the Go program, generated the existing certificate.
fn is_ours(files: &PairFiles) -> bool {
    content(&files.certificate).is_ok_and(|chain| is_chain_self_made(&chain))
}

/// Creates a pair and writes it. A crash between the two writes leaves a self-made certificate without a key or with a
/// different key. The next start replaces such a certificate. A key alone may be a user's, and is never replaced.
fn write_new(files: &PairFiles, names: &[String], now: SystemTime) -> Result<(), CertificateError> {
    let made = pair::make(names, now)?;
    let written = |path: &Path, content: &[u8]| {
        replace(path, content).map_err(|source| CertificateError::Write(path.to_owned(), source))
    };
    if let Some(folder) = files.key.parent() {
        std::fs::create_dir_all(folder).map_err(|source| CertificateError::Write(folder.to_owned(), source))?;
    }
    if is_there(&files.certificate)? {
        written(&files.key, made.key.as_bytes())?;
        written(&files.certificate, made.chain.as_bytes())
    } else {
        written(&files.certificate, made.chain.as_bytes())?;
        written(&files.key, made.key.as_bytes())
    }
}

/// Writes a file atomically, readable by its owner only.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    // The name is unique to this process, because another process may write to the folder at the same time.
    name.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(name);
    // Removes a file that a crash left behind.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        // The incomplete file may contain a key.
        let _ = std::fs::remove_file(&new);
    }
    written
}
