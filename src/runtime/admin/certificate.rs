//! The server's certificates: made by itself, or given; several, for several names; exchanged while they are served.

mod origin;
mod pair;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_util::sync::CancellationToken;

use super::settings::{CertificateSource, NamedPair, PairFiles, TlsRules};
use super::tls;
use crate::runtime::tasks::{BoxError, off_thread};
use origin::Origin;
pub use origin::{SERVED_CERTIFICATE, SERVED_KEY};
pub use pair::KeyKind;
use pair::Pair;

/// Pause between two looks at the files. The kubelet needs up to a minute to bring a changed Secret.
const PAUSE: Duration = Duration::from_secs(3);

/// The server cannot have its certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Making one for these names failed.
    #[error("cannot make a certificate for {0}")]
    Make(String, #[source] rcgen::Error),
    /// A file cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// A file, or its folder, cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] std::io::Error),
    /// A folder has the first file of a pair and not the second.
    #[error("{} is there, and its counterpart {} is not", .0.display(), .1.display())]
    Half(PathBuf, PathBuf),
    /// The given files are no certificate chain or no key, which of them is said. Without the library's error, which quotes
    /// the line.
    #[error("the {0} is not in PEM form")]
    Pem(&'static str),
    /// The certificate and the key do not belong together, or cannot be used.
    #[error("the certificate cannot be used")]
    Unusable(#[from] rustls::Error),
    /// The given pair cannot be used.
    #[error("cannot use the pair of {} and {}", .0.certificate.display(), .0.key.display())]
    Pair(PairFiles, #[source] Box<CertificateError>),
}

/// The certificates that are served at the moment.
#[derive(Debug)]
pub struct Certificates {
    served: RwLock<Arc<ServedCertificates>>,
}

/// Which certificate answers which name.
#[derive(Debug)]
struct ServedCertificates {
    default: Arc<CertifiedKey>,
    /// Lower case, a `*` label at the beginning allowed.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

/// Where the certificates are from, and what was seen there last. [`Keeper::run`] is its task.
pub struct Keeper {
    certificates: Arc<Certificates>,
    default: Origin,
    by_name: Vec<(Vec<String>, Origin)>,
}

impl Certificates {
    /// Reads or makes all certificates. `names` are those of a certificate that is made, beside those of loopback.
    /// Waits for the file system.
    pub fn load(
        source: &CertificateSource,
        by_name: &[NamedPair],
        names: &[String],
    ) -> Result<(Arc<Self>, Keeper), CertificateError> {
        let now = SystemTime::now();
        let default = match source {
            CertificateSource::Files(files) => Origin::files(files.clone()),
            CertificateSource::Folder(folder) => Origin::folder(folder, names, now),
            CertificateSource::Memory => Origin::memory(names, now),
        }?;
        let by_name = by_name.iter().map(|named| {
            let names = named.names.iter().map(|name| name.to_ascii_lowercase()).collect();
            Origin::files(named.files.clone()).map(|origin| (names, origin))
        });
        let by_name = by_name.collect::<Result<Vec<(Vec<String>, _)>, _>>()?;
        let certificates = Arc::new(Self { served: RwLock::new(Arc::new(served(&default, &by_name))) });
        Ok((Arc::clone(&certificates), Keeper { certificates, default, by_name }))
    }

    /// The kind of key that answers whoever asks for no name.
    pub fn key_kind(&self) -> KeyKind {
        KeyKind::of(&self.served().default)
    }

    fn served(&self) -> Arc<ServedCertificates> {
        Arc::clone(&self.served.read())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.served().choose(hello.server_name(), tls::local_address()))
    }
}

impl ServedCertificates {
    /// As Go's `crypto/tls`: the name, then with a star for its first label; without a name the address that was asked
    /// (`dynamiccertificates`).
    fn choose(&self, name: Option<&str>, address: Option<IpAddr>) -> Arc<CertifiedKey> {
        let found = match name {
            None => address.and_then(|address| self.by_name.get(&address.to_string())),
            Some(name) => self.by_name.get(name).or_else(|| {
                let (_, rest) = name.split_once('.')?;
                self.by_name.get(&format!("*.{rest}"))
            }),
        };
        Arc::clone(found.unwrap_or(&self.default))
    }
}

/// Earlier pairs go first, and names that were given before those that certificates have.
fn served(default: &Origin, by_name: &[(Vec<String>, Origin)]) -> ServedCertificates {
    let given = by_name.iter().flat_map(|(names, origin)| names.iter().map(move |name| (name, &origin.pair)));
    let unnamed = by_name.iter().filter(|(names, _)| names.is_empty());
    let own = unnamed.flat_map(|(_, origin)| origin.pair.names.iter().map(move |name| (name, &origin.pair)));
    let mut names = HashMap::new();
    for (name, pair) in given.chain(own) {
        names.entry(name.clone()).or_insert_with(|| Arc::clone(&pair.key));
    }
    ServedCertificates { default: Arc::clone(&default.pair.key), by_name: names }
}

impl Keeper {
    /// Looks at the files every 3 s, by content, and at the end of what was made here. A pair that cannot be used leaves
    /// the one before in place, and is told once.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), BoxError> {
        loop {
            if stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                return Ok(());
            }
            self = off_thread(move || {
                self.look(SystemTime::now());
                self
            })
            .await?;
        }
    }

    /// One look at everything.
    fn look(&mut self, now: SystemTime) {
        let mut is_new = self.default.look(now);
        for (_, origin) in &mut self.by_name {
            is_new |= origin.look(now);
        }
        if is_new {
            let served = Arc::new(served(&self.default, &self.by_name));
            *self.certificates.served.write() = served;
        }
    }
}

/// TLS with the certificate chain (leaf first) and its private key, both in PEM form; never read again.
pub fn given_certificate(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, CertificateError> {
    let default = Pair::parse(chain, key)?.key;
    let certificates =
        Certificates { served: RwLock::new(Arc::new(ServedCertificates { default, by_name: HashMap::new() })) };
    Ok(tls::server_config(&TlsRules::default(), true, Arc::new(certificates))?)
}

#[cfg(test)]
mod tests;
