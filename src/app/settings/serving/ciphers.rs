//! Pure: TLS cipher suites by name and groups by number, as in the Go program, and their support here.

use rustls::crypto::ring::{ALL_CIPHER_SUITES, ALL_KX_GROUPS};
use rustls::{CipherSuite, NamedGroup};

/// Suites that Go's `crypto/tls` has and rustls lacks: older key exchanges, CBC, RC4, 3DES.
const MISSING_SUITES: &[&str] = &[
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Groups that Go has and rustls lacks with `ring`: P-521 and the hybrids with ML-KEM.
const MISSING_GROUPS: &[u16] = &[25, 4587, 4588, 4589];

/// Support of a suite or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CipherSupport<T> {
    /// Supported here.
    Here(T),
    /// A suite of TLS 1.3, which is always on and cannot be selected.
    Always,
    /// Supported by the Go program only.
    Missing,
}

/// Finds a suite by its IANA name. Suites with CHACHA20 are also found by an older name, as in component-base's
/// `cli/flag`.
pub(super) fn suite(name: &str) -> Option<CipherSupport<CipherSuite>> {
    let name = match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_GCM_SHA256" | "TLS_AES_256_GCM_SHA384" | "TLS_CHACHA20_POLY1305_SHA256" => {
            return Some(CipherSupport::Always);
        }
        name => name,
    };
    let older = ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_none()).map(|suite| suite.suite());
    match older.into_iter().find(|suite| suite.as_str() == Some(name)) {
        Some(suite) => Some(CipherSupport::Here(suite)),
        None => MISSING_SUITES.contains(&name).then_some(CipherSupport::Missing),
    }
}

/// Finds a group by number.
pub(super) fn group(number: u16) -> Option<CipherSupport<NamedGroup>> {
    let found = ALL_KX_GROUPS.iter().map(|group| group.name()).find(|group| u16::from(*group) == number);
    match found {
        Some(group) => Some(CipherSupport::Here(group)),
        None => MISSING_GROUPS.contains(&number).then_some(CipherSupport::Missing),
    }
}

/// Returns the names of the supported suites, for error messages.
pub(super) fn suites_here() -> String {
    let older = ALL_CIPHER_SUITES.iter().filter(|suite| suite.tls13().is_none());
    older.filter_map(|suite| suite.suite().as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_go() {
        let cases = [
            (
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                Some(CipherSupport::Here(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256)),
            ),
            (
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
                Some(CipherSupport::Here(CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)),
            ),
            (
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
                Some(CipherSupport::Here(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256)),
            ),
            ("TLS_AES_128_GCM_SHA256", Some(CipherSupport::Always)),
            ("TLS_RSA_WITH_RC4_128_SHA", Some(CipherSupport::Missing)),
            ("TLS13_AES_128_GCM_SHA256", None),
            ("tls_rsa_with_rc4_128_sha", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(suite(name), expected, "{name}");
        }
        assert_eq!(suites_here().split(", ").count(), 6, "{}", suites_here());
        assert_eq!(group(29), Some(CipherSupport::Here(NamedGroup::X25519)));
        assert_eq!(group(23), Some(CipherSupport::Here(NamedGroup::secp256r1)));
        assert_eq!(
            (group(25), group(4588), group(1)),
            (Some(CipherSupport::Missing), Some(CipherSupport::Missing), None)
        );
    }
}
