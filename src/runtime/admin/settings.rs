//! The settings of the secure port.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The settings of the secure port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The default certificate, for names that have no other certificate.
    pub certificate: CertificateSource,
    /// Further certificates, with their server names.
    pub by_name: Vec<NamedPair>,
    /// Restrictions of TLS.
    pub tls: TlsRules,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Maximum number of concurrent requests of one HTTP/2 connection.
    pub streams: u32,
    /// Whether the pages that change the process are served (`/debug/flags/v`).
    pub debug: bool,
    /// Requested features that this program lacks, to be logged once.
    pub warnings: Vec<String>,
}

/// The source of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files, which are read again when they change.
    Files(PairFiles),
    /// A folder. Its pair is used if it exists; otherwise a pair is generated and written there.
    Folder(PathBuf),
    /// Memory only. The pair is generated at the start and renewed before it expires.
    Memory,
}

/// The files of a certificate chain and its key, both in PEM form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairFiles {
    /// The file of the chain, leaf first.
    pub certificate: PathBuf,
    /// The file of the key.
    pub key: PathBuf,
}

/// A pair with its server names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPair {
    /// The files of the pair.
    pub files: PairFiles,
    /// The names. The first label may be `*`. If empty, the names in the certificate are used.
    pub names: Vec<String>,
}

/// Restrictions of TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsRules {
    /// Whether only TLS 1.3 is offered.
    pub only_13: bool,
    /// The offered cipher suites. If empty, all supported suites are offered.
    pub cipher_suites: Vec<rustls::CipherSuite>,
    /// The offered key exchange groups. If empty, all supported groups are offered.
    pub groups: Vec<rustls::NamedGroup>,
}
