//! The server's certificates: generated or from files, selected by server name, replaced without a restart.

mod origin;
mod pair;

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureAlgorithm};
use tokio_util::sync::CancellationToken;

use super::settings::{CertificateSource, NamedPair, PairFiles, TlsRules};
use super::tls;
use crate::runtime::tasks::{BoxError, off_thread};
use origin::Origin;
pub use origin::{SERVED_CERTIFICATE, SERVED_KEY};
use pair::Pair;

/// Poll interval of the files. The kubelet needs up to a minute to update a mounted Secret.
const PAUSE: Duration = Duration::from_secs(3);

/// Failure to read or generate a certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Creating a certificate for these names failed.
    #[error("cannot make a certificate for {0}")]
    Make(String, #[source] rcgen::Error),
    /// A file cannot be read.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// A file, or its folder, cannot be written.
    #[error("cannot write {}", .0.display())]
    Write(PathBuf, #[source] std::io::Error),
    /// The folder has the first file, but not its counterpart, the second file.
    #[error("{} is there, and its counterpart {} is not", .0.display(), .1.display())]
    Half(PathBuf, PathBuf),
    /// The certificate chain or the key is not PEM. Omits the library's error, which quotes a line of the file.
    #[error("the {0} is not in PEM form")]
    Pem(&'static str),
    /// The certificate and the key do not belong together, or cannot be used.
    #[error("the certificate cannot be used")]
    Unusable(#[from] rustls::Error),
    /// The given pair cannot be used.
    #[error("cannot use the key pair {} and {}", .0.certificate.display(), .0.key.display())]
    Pair(PairFiles, #[source] Box<CertificateError>),
}

/// The certificates in use.
#[derive(Debug)]
pub struct Certificates {
    served: RwLock<Arc<ServedCertificates>>,
}

#[derive(Debug)]
struct ServedCertificates {
    default: Arc<CertifiedKey>,
    /// Certificates by name in lower case. The first label may be `*`.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

/// The sources of the certificates, with the pairs in use. The task [`CertificateUpdater::run`] updates the pairs.
pub struct CertificateUpdater {
    certificates: Arc<Certificates>,
    default: Origin,
    by_name: Vec<(Vec<String>, Origin)>,
}

impl Certificates {
    /// Reads or generates all certificates. Generated certificates are for `names` and the loopback names. Blocks on
    /// the file system.
    pub fn load(
        source: &CertificateSource,
        by_name: &[NamedPair],
        names: &[String],
    ) -> Result<(Arc<Self>, CertificateUpdater), CertificateError> {
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
        Ok((Arc::clone(&certificates), CertificateUpdater { certificates, default, by_name }))
    }

    /// Returns the kind of key of the default certificate, which restricts the cipher suites of TLS 1.2: `RSA`, or
    /// `ECDSA` for any other kind, such as Ed25519.
    pub fn key_kind(&self) -> &'static str {
        match self.served().default.key.algorithm() {
            SignatureAlgorithm::RSA => "RSA",
            _ => "ECDSA",
        }
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
    /// Selects a certificate as Go's `crypto/tls` does: by the name, then by the name with `*` as first label. If the
    /// client sends no name, selects by the local address of the connection, as `dynamiccertificates` does. If no
    /// certificate matches, returns the default certificate.
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

/// Maps names to pairs. Configured names take precedence over names in certificates, and earlier over later pairs.
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

impl CertificateUpdater {
    /// Polls the files every 3 s, and renews generated certificates before they expire. If a new pair is unusable, logs
    /// it once and keeps the previous pair.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), BoxError> {
        loop {
            if stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                return Ok(());
            }
            self = off_thread(move || {
                self.reload(SystemTime::now());
                self
            })
            .await?;
        }
    }

    fn reload(&mut self, now: SystemTime) {
        let mut is_new = self.default.reload(now);
        for (_, origin) in &mut self.by_name {
            is_new |= origin.reload(now);
        }
        if is_new {
            let served = Arc::new(served(&self.default, &self.by_name));
            *self.certificates.served.write() = served;
        }
    }
}

/// Returns the TLS configuration for a fixed certificate chain (leaf first) and its private key, both in PEM form.
pub fn given_certificate(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, CertificateError> {
    let default = Pair::parse(chain, key)?.key;
    let certificates =
        Certificates { served: RwLock::new(Arc::new(ServedCertificates { default, by_name: HashMap::new() })) };
    Ok(tls::server_config(&TlsRules::default(), true, Arc::new(certificates))?)
}

#[cfg(test)]
mod tests;
