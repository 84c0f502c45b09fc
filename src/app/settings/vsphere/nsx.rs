//! The files that the section `NSXT` names: the CA file and the client certificate with its key.

use crate::app::files::FileSystem;
use crate::clients::http::{self, ClientIdentity, TlsSettings, TlsTrust};
use crate::providers::vsphere::config::{NsxConfig, NsxLogin};
use std::path::Path;
use zeroize::Zeroizing;

const CA_FILE: &str = "ca-file";
const CERTIFICATE: &str = "client-auth-cert-file";
const KEY: &str = "client-auth-key-file";

/// Returns the TLS settings of NSX, after a check that the files can be used. Each error has the key of section `NSXT`
/// that causes it, in the spelling of INI files; `None` if no key causes it.
pub(super) fn nsx_tls(
    nsx: &NsxConfig,
    files: &dyn FileSystem,
) -> Result<TlsSettings, Vec<(Option<&'static str>, String)>> {
    let mut errors = Vec::new();
    let mut read = |key, file: &str, path: &Path| {
        let unreadable = |error| (Some(key), format!("{file} {} cannot be read: {error}", path.display()));
        files.read(path).map_err(|error| errors.push(unreadable(error))).ok()
    };
    let trust = match &nsx.ca_file {
        None => TlsTrust::System,
        Some(path) => {
            let pem = read(CA_FILE, "the CA file", path).map(|pem| pem.to_vec()).unwrap_or_default();
            TlsTrust::Ca { pem, path: path.display().to_string() }
        }
    };
    let pems = match &nsx.login {
        NsxLogin::Certificate { certificate, key } => {
            let (chain, own) = (read(CERTIFICATE, "the client certificate", certificate), read(KEY, "the key", key));
            chain.zip(own).map(|(chain, own)| (chain, own, certificate.display().to_string()))
        }
        NsxLogin::VmcToken { .. } | NsxLogin::Pair { .. } => None,
    };
    let identity = pems.and_then(|(chain, own, shown): (Zeroizing<_>, Zeroizing<_>, _)| {
        ClientIdentity::from_pem(&chain, &own, shown).map_err(|error| errors.push((Some(CERTIFICATE), error))).ok()
    });
    let tls = TlsSettings { trust, insecure: nsx.insecure, identity, ..TlsSettings::default() };
    if errors.is_empty() {
        // The certificate of the service that exchanges a VMC token is always verified.
        let insecure = nsx.insecure && !matches!(nsx.login, NsxLogin::VmcToken { .. });
        let verified = TlsSettings { insecure, ..tls.clone() };
        let client = http::Client::new(http::Settings::new(&nsx.host, nsx.port, verified, ""));
        let key = nsx.ca_file.as_ref().map(|_| CA_FILE);
        errors.extend(client.err().map(|error| (key, error.to_string())));
    }
    if errors.is_empty() { Ok(tls) } else { Err(errors) }
}
