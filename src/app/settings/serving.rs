//! The flags of the secure port.

mod ciphers;

use super::{Flag, SettingsCheck, flags};
use crate::base::error_chain::chain;
use crate::runtime::admin::{CertificateSource, NamedPair, PairFiles, Settings, TlsRules, given_certificate};
use ciphers::CipherSupport;
use rustls::{CipherSuite, NamedGroup};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Default limit of concurrent requests on one HTTP/2 connection.
const STREAMS: u32 = 100;

/// Address of the secure port, and whether it is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurePort {
    /// `--bind-address` and `--secure-port`.
    pub address: SocketAddr,
    /// Whether other processes can listen on the same address and port (`--permit-port-sharing`).
    pub is_shared: bool,
}

impl<'a> SettingsCheck<'a> {
    /// Returns the address of the secure port; `None` if the port is off, or if the port or the address is invalid.
    pub(super) fn secure_port(&mut self) -> Option<SecurePort> {
        let port = self.number(flags::SECURE_PORT, "a port from 1 to 65535, or 0 for none");
        let address = self.number(flags::BIND_ADDRESS, "an IP address such as 0.0.0.0 or ::");
        let is_shared = self.boolean(flags::PERMIT_PORT_SHARING);
        let (address, port) = (address?, port.filter(|port| *port != 0)?);
        Some(SecurePort { address: SocketAddr::new(address, port), is_shared })
    }

    pub(super) fn serving(&mut self) -> Option<Settings> {
        let port = self.secure_port();
        let mut remarks = Vec::new();
        let certificate = self.certificate();
        let by_name = self.named_pairs();
        let tls = self.tls_rules(&mut remarks);
        let http1 = self.boolean(flags::DISABLE_HTTP2_SERVING);
        let streams = self.number(flags::HTTP2_MAX_STREAMS_PER_CONNECTION, "a whole number such as 100");
        // The flag has no effect: `SO_REUSEADDR` is always set.
        self.boolean(flags::PERMIT_ADDRESS_SHARING);
        // `SettingsCheck::generic` reports an invalid `--profiling`.
        let debug = self.options.boolean(flags::PROFILING).unwrap_or_default();
        Some(Settings {
            address: port?.address,
            certificate,
            by_name,
            tls,
            http2: !http1,
            streams: streams.filter(|streams| *streams != 0).unwrap_or(STREAMS),
            debug,
            warnings: remarks,
        })
    }

    /// Returns the source of the certificate. Files take precedence over a folder, as in the Go program.
    fn certificate(&mut self) -> CertificateSource {
        let [certificate, key, folder] =
            [flags::TLS_CERT_FILE, flags::TLS_PRIVATE_KEY_FILE, flags::CERT_DIR].map(|flag| self.options.text(flag));
        match (certificate, key, folder) {
            ("", "", "") => return CertificateSource::Memory,
            ("", "", folder) => return CertificateSource::Folder(PathBuf::from(folder)),
            ("", key, _) => self.invalid(flags::TLS_PRIVATE_KEY_FILE, key, "--tls-cert-file has to be given as well"),
            (certificate, "", _) => {
                self.invalid(flags::TLS_CERT_FILE, certificate, "--tls-private-key-file has to be given as well");
            }
            (certificate, key, _) => {
                if let Err(reason) = self.pair(&files(certificate, key)) {
                    self.invalid(flags::TLS_CERT_FILE, certificate, reason);
                }
            }
        }
        CertificateSource::Files(files(certificate, key))
    }

    fn named_pairs(&mut self) -> Vec<NamedPair> {
        let flag = flags::TLS_SNI_CERT_KEY;
        let texts = self.options.list(flag).iter().filter(|text| !text.is_empty());
        let mut pair = |text: &str| {
            let named = named_pair(text).map_err(|reason| format!("{reason}; expected certificate,key[:names]"));
            let usable = named.and_then(|named| self.pair(&named.files).map(|()| named));
            usable.map_err(|why| self.invalid(flag, text, why)).ok()
        };
        texts.filter_map(|text| pair(text)).collect()
    }

    /// Returns an error if the server cannot use this certificate and key.
    fn pair(&self, files: &PairFiles) -> Result<(), String> {
        let read =
            |path: &Path| self.files.read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()));
        let (certificate, key) = (read(&files.certificate)?, read(&files.key)?);
        given_certificate(&certificate, &key).map_err(|error| chain(&error)).map(drop)
    }

    fn tls_rules(&mut self, remarks: &mut Vec<String>) -> TlsRules {
        let only_13 = self.is_only_13(remarks);
        let cipher_suites = self.cipher_suites(only_13, remarks);
        TlsRules { only_13, cipher_suites, groups: self.groups(remarks) }
    }

    fn is_only_13(&mut self, remarks: &mut Vec<String>) -> bool {
        let version = self.options.text(flags::TLS_MIN_VERSION);
        match version {
            "" | "VersionTLS12" | "VersionTLS13" => {}
            "VersionTLS10" | "VersionTLS11" => {
                remarks.push(format!("--tls-min-version={version}: TLS 1.2 is the oldest version that is spoken"));
            }
            _ => self.invalid(flags::TLS_MIN_VERSION, version, "expected VersionTLS12 or VersionTLS13"),
        }
        version == "VersionTLS13"
    }

    fn cipher_suites(&mut self, is_without_effect: bool, remarks: &mut Vec<String>) -> Vec<CipherSuite> {
        let flag = flags::TLS_CIPHER_SUITES;
        let unknown = format!("there is no such cipher suite; expected of {}", ciphers::suites_here());
        let Some((mut chosen, missing, has_newer)) = self.known(flag, ciphers::suite, &unknown) else {
            return Vec::new();
        };
        if !missing.is_empty() && chosen.is_empty() && !has_newer && !is_without_effect {
            let reason = format!("none of these cipher suites can be used; expected of {}", ciphers::suites_here());
            self.invalid(flag, &missing.join(","), reason);
        }
        remarks.extend(not_offered(flag, &missing));
        if chosen.is_empty() && has_newer {
            // As in Go, a list with only suites of TLS 1.3 allows none of TLS 1.2. An empty list would allow all.
            chosen.push(CipherSuite::TLS13_AES_128_GCM_SHA256);
        }
        chosen
    }

    fn groups(&mut self, remarks: &mut Vec<String>) -> Vec<NamedGroup> {
        let flag = flags::TLS_CURVE_PREFERENCES;
        let group = |number: &str| number.parse().ok().and_then(ciphers::group);
        let unknown = "expected a number of a group: 23 (P-256), 24 (P-384) or 29 (X25519)";
        let Some((chosen, missing, _)) = self.known(flag, group, unknown) else { return Vec::new() };
        if !missing.is_empty() && chosen.is_empty() {
            let reason = "none of these groups can be used; expected of 23 (P-256), 24 (P-384) and 29 (X25519)";
            self.invalid(flag, &missing.join(","), reason);
        }
        remarks.extend(not_offered(flag, &missing));
        chosen
    }

    /// Sorts the items of a list into supported items and items that only the Go program has. The last value is true if
    /// the list has an item that is always on. Reports any other item with the message `unknown` and returns `None`.
    fn known<T>(
        &mut self,
        flag: Flag<&[String]>,
        find: impl Fn(&str) -> Option<CipherSupport<T>>,
        unknown: &str,
    ) -> Option<(Vec<T>, Vec<&'a str>, bool)> {
        let mut chosen = Vec::new();
        let mut missing = Vec::new();
        let mut is_wrong = false;
        let mut has_newer = false;
        for item in self.items(flag) {
            match find(item) {
                Some(CipherSupport::Here(known)) => chosen.push(known),
                Some(CipherSupport::Always) => has_newer = true,
                Some(CipherSupport::Missing) => missing.push(item),
                None => {
                    is_wrong = true;
                    self.invalid(flag, item, unknown);
                }
            }
        }
        (!is_wrong).then_some((chosen, missing, has_newer))
    }
}

fn not_offered(flag: Flag<&[String]>, missing: &[&str]) -> Option<String> {
    let names = missing.join(", ");
    (!names.is_empty()).then(|| format!("--{}: not offered, because there are none of them: {names}", flag.name))
}

fn files(certificate: &str, key: &str) -> PairFiles {
    PairFiles { certificate: PathBuf::from(certificate), key: PathBuf::from(key) }
}

/// Parses `certificate,key` or `certificate,key:name,name`, as `NamedCertKey` of component-base does.
fn named_pair(text: &str) -> Result<NamedPair, &'static str> {
    let (pair, names) = match text.split_once(':') {
        None => (text, None),
        Some((pair, names)) => (pair, Some(names.trim())),
    };
    let names = match names {
        None => Vec::new(),
        Some("") => return Err("the list of names is empty"),
        Some(names) => names.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    if names.iter().any(String::is_empty) {
        return Err("a name is empty");
    }
    let paths: Vec<_> = pair.split(',').map(str::trim).collect();
    match paths.as_slice() {
        [certificate, key] if !certificate.is_empty() && !key.is_empty() => {
            Ok(NamedPair { files: files(certificate, key), names })
        }
        _ => Err("there are no two paths"),
    }
}

#[cfg(test)]
mod tests;
