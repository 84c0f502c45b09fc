//! How the secure port serves, as it was told to.

use std::net::SocketAddr;
use std::path::PathBuf;

/// How the secure port serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where it listens.
    pub address: SocketAddr,
    /// The certificate for whoever asks for no name that another has.
    pub certificate: CertificateSource,
    /// Further certificates, by name.
    pub by_name: Vec<NamedPair>,
    /// What TLS may be like.
    pub tls: TlsRules,
    /// Whether HTTP/2 is offered.
    pub http2: bool,
    /// Requests of one HTTP/2 connection at the same time.
    pub streams: u32,
    /// `SO_REUSEADDR` was asked for; it is always set.
    pub shares_address: bool,
    /// Whether the pages that change the process are served (`/debug/flags/v`).
    pub debug: bool,
    /// What was asked for and is not to be had, to be told once.
    pub remarks: Vec<String>,
}

/// Where the certificate is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// Files, read again when they change.
    Files(PairFiles),
    /// A folder: a pair that is there is used, else one is made and written there.
    Folder(PathBuf),
    /// Made at the start and renewed before it ends; never written.
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

/// A pair for some names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPair {
    /// Its files.
    pub files: PairFiles,
    /// The names it is for, a `*` label at the beginning allowed; empty means those in the certificate.
    pub names: Vec<String>,
}

/// What TLS may be like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsRules {
    /// TLS 1.3 only.
    pub only_13: bool,
    /// The cipher suites that are offered; empty is all that there are.
    pub cipher_suites: Vec<rustls::CipherSuite>,
    /// The key exchange groups that are offered; empty is all that there are.
    pub groups: Vec<rustls::NamedGroup>,
}
