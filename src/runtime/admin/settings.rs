//! The settings of the secure port.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The settings of the secure port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The default certificate, for names without their own.
    pub certificate: CertificateSource,
    /// Further certificates, by name.
    pub by_name: Vec<NamedPair>,
    /// Restrictions of TLS.
    pub tls: TlsRules,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Most concurrent requests of one HTTP/2 connection.
    pub streams: u32,
    /// Whether `SO_REUSEADDR` was requested; it is set in any case.
    pub shares_address: bool,
    /// Whether the pages that change the process are served (`/debug/flags/v`).
    pub debug: bool,
    /// Requested features that do not exist here, to be logged once.
    pub warnings: Vec<String>,
}

/// The source of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files, read again when they change.
    Files(PairFiles),
    /// A folder: its pair is used if it exists, otherwise one is created and written there.
    Folder(PathBuf),
    /// Created at the start and renewed before it expires; never written.
    Memory,
}

/// A certificate chain and its key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairFiles {
    /// The chain, leaf first.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// A pair with its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPair {
    /// Its files.
    pub files: PairFiles,
    /// Its names, with `*` allowed as first label; empty means the names in the certificate.
    pub names: Vec<String>,
}

/// Restrictions of TLS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsRules {
    /// Whether only TLS 1.3 is offered.
    pub only_13: bool,
    /// The cipher suites that are offered; empty is all supported ones.
    pub cipher_suites: Vec<rustls::CipherSuite>,
    /// The key exchange groups that are offered; empty is all supported ones.
    pub groups: Vec<rustls::NamedGroup>,
}
