//! Until when the client certificates are valid with which this process reaches the API server.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use parking_lot::Mutex;
use prometheus::{GaugeVec, Opts};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

/// One for the process: clients are made in several places. Without a certificate there is no series.
pub(super) static EXPIRY: LazyLock<GaugeVec> = LazyLock::new(|| {
    let options = Opts::new(
        "vsphere_ccm_apiserver_client_certificate_expiry_timestamp_seconds",
        "When the client certificate for the API server expires, in seconds since 1970; of several, the first to expire.",
    );
    GaugeVec::new(options, &[]).expect("the name is a valid constant")
});

/// By server, and where the certificate is from.
static KNOWN: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());

/// Shows the client certificate of `config`, if it has one that can be read.
pub(super) fn show(config: &Config) {
    let user = &config.auth_info;
    let file = user.client_certificate.as_deref().unwrap_or_default();
    let pem = match &user.client_certificate_data {
        Some(data) => STANDARD.decode(data).ok(),
        None => std::fs::read(file).ok(),
    };
    let Some(seconds) = pem.map(Zeroizing::new).and_then(|pem| not_after(&pem)) else { return };
    let mut known = KNOWN.lock();
    known.insert(format!("{} {file}", config.cluster_url), seconds);
    let first = known.values().copied().fold(f64::INFINITY, f64::min);
    EXPIRY.with_label_values::<&str>(&[]).set(first);
}

/// What is shown for the certificate in this file.
#[cfg(test)]
pub(super) fn shown_for(file: &str) -> Option<f64> {
    let known = KNOWN.lock();
    known.iter().find(|(key, _)| key.ends_with(file)).map(|(_, seconds)| *seconds)
}

/// The end of the first certificate, in seconds since 1970.
fn not_after(pem: &[u8]) -> Option<f64> {
    let certificate = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
    // Seconds since 1970 are far below what a float holds exactly.
    Some(parsed.validity().not_after.timestamp() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn the_end_of_a_certificate_in_a_file_or_in_the_kubeconfig_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let mut shown = Vec::new();
        for year in [2040, 2030] {
            let mut parameters = CertificateParams::new(Vec::new()).unwrap();
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
            let pem = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
            let mut config = Config::new(format!("https://{year}.example").parse().unwrap());
            if year == 2040 {
                let path = folder.path().join("tls.crt");
                std::fs::write(&path, pem).unwrap();
                config.auth_info.client_certificate = Some(path.display().to_string());
            } else {
                config.auth_info.client_certificate_data = Some(STANDARD.encode(pem));
            }
            show(&config);
            let known = KNOWN.lock();
            shown.extend(known.iter().filter(|(key, _)| key.contains(&year.to_string())).map(|(_, seconds)| *seconds));
        }
        assert_eq!(shown, [2_208_988_800.0, 1_893_456_000.0]);
        assert!(EXPIRY.with_label_values::<&str>(&[]).get() <= 1_893_456_000.0, "the first to expire");
    }
}
