//! Tests of the flags for the secure port: a table of accepted values and a table of rejected values.

use super::*;
use crate::app::options::{self, Invocation, PROGRAM};
use crate::app::settings::secure_port;
use crate::app::settings::tests::settled;
use std::ffi::OsString;

fn serving(arguments: &[&str]) -> Settings {
    settled(arguments).unwrap().serving.unwrap()
}

#[test]
fn defaults_are_the_go_programs() {
    let settings = serving(&[]);
    assert_eq!(settings.certificate, CertificateSource::Memory);
    assert_eq!((settings.tls, settings.by_name), (TlsRules::default(), Vec::new()));
    assert_eq!((settings.http2, settings.streams, settings.debug), (true, 100, true));
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn every_flag_reaches_the_settings() {
    let settings = serving(&[
        "--bind-address=::1",
        "--secure-port=10300",
        "--cert-dir=/certs",
        "--tls-cert-file=/a.crt",
        "--tls-private-key-file=/a.key",
        "--tls-sni-cert-key=/b.crt,/b.key:b.example, *.b.example",
        "--tls-sni-cert-key=/a.crt,/a.key",
        "--tls-min-version=VersionTLS13",
        "--tls-curve-preferences=29,23",
        "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "--disable-http2-serving",
        "--http2-max-streams-per-connection=7",
        "--permit-address-sharing",
        "--permit-port-sharing=true",
        "--profiling=false",
    ]);
    let pair = |name: &str, names: &[&str]| NamedPair {
        files: files(&format!("/{name}.crt"), &format!("/{name}.key")),
        names: names.iter().map(|&name| name.to_owned()).collect(),
    };
    let expected = Settings {
        address: "[::1]:10300".parse().unwrap(),
        certificate: CertificateSource::Files(files("/a.crt", "/a.key")),
        by_name: vec![pair("b", &["b.example", "*.b.example"]), pair("a", &[])],
        tls: TlsRules {
            only_13: true,
            cipher_suites: vec![CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256],
            groups: vec![NamedGroup::X25519, NamedGroup::secp256r1],
        },
        http2: false,
        streams: 7,
        debug: false,
        warnings: Vec::new(),
    };
    assert_eq!(settings, expected);
    assert_eq!(serving(&["--cert-dir=/certs"]).certificate, CertificateSource::Folder("/certs".into()));
}

#[test]
fn where_to_listen_is_known_although_other_flags_are_wrong() {
    let at = |address: &str, is_shared| Some(SecurePort { address: address.parse().unwrap(), is_shared });
    let cases: [(&[&str], Option<SecurePort>); 6] = [
        (&[], at("0.0.0.0:10258", false)),
        (&["--bind-address=::1", "--secure-port=10300", "--permit-port-sharing"], at("[::1]:10300", true)),
        (&["--concurrent-node-syncs=0", "--tls-cert-file=/a"], at("0.0.0.0:10258", false)),
        (&["--secure-port=0"], None),
        (&["--secure-port=70000"], None),
        (&["--bind-address=here"], None),
    ];
    for (arguments, expected) in cases {
        let all = [PROGRAM].into_iter().chain(arguments.iter().copied()).map(OsString::from);
        let Ok(Invocation::Run(options)) = options::parse(all) else { panic!("{arguments:?}") };
        assert_eq!(secure_port(&options), expected, "{arguments:?}");
    }
}

#[test]
fn what_is_not_to_be_had_is_taken_and_told_once() {
    let cases: [(&[&str], &str); 5] = [
        (&["--tls-min-version=VersionTLS10"], "--tls-min-version=VersionTLS10: TLS 1.2 is the oldest version"),
        (&["--tls-min-version=VersionTLS11"], "--tls-min-version=VersionTLS11: TLS 1.2 is the oldest version"),
        (
            &["--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"],
            "--tls-cipher-suites: not offered, because there are none of them: TLS_RSA_WITH_RC4_128_SHA",
        ),
        (
            &["--tls-min-version=VersionTLS13", "--tls-cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"],
            "--tls-cipher-suites: not offered, because there are none of them: TLS_RSA_WITH_AES_128_CBC_SHA",
        ),
        (
            &["--tls-curve-preferences=4588,25,23"],
            "--tls-curve-preferences: not offered, because there are none of them: 4588, 25",
        ),
    ];
    for (arguments, expected) in cases {
        let remarks = serving(arguments).warnings;
        assert!(remarks.len() == 1 && remarks[0].starts_with(expected), "{arguments:?}: {remarks:?}");
    }
}

#[test]
fn suites_of_tls_13_alone_leave_nothing_for_tls_12() {
    let rules = serving(&["--tls-cipher-suites=TLS_AES_128_GCM_SHA256"]).tls;
    assert!(!rules.cipher_suites.is_empty() && !rules.only_13, "{rules:?}");
}

#[test]
fn each_wrong_flag_is_told() {
    let cases: [(&[&str], &str); 18] = [
        (&["--tls-cert-file=/a"], "--tls-cert-file=/a: --tls-private-key-file has to be given as well"),
        (&["--tls-private-key-file=/a"], "--tls-private-key-file=/a: --tls-cert-file has to be given as well"),
        (
            &["--tls-cert-file=/gone.crt", "--tls-private-key-file=/a.key"],
            "--tls-cert-file=/gone.crt: /gone.crt cannot be read: entity not found",
        ),
        (
            &["--tls-cert-file=/a.crt", "--tls-private-key-file=/etc/vsphere.conf"],
            "--tls-cert-file=/a.crt: the private key is not in PEM form",
        ),
        (
            &["--tls-cert-file=/a.crt", "--tls-private-key-file=/b.key"],
            "--tls-cert-file=/a.crt: the certificate cannot be used: keys may not be consistent: KeyMismatch",
        ),
        (
            &["--tls-sni-cert-key=/etc/ca.pem,/a.key:a.example"],
            "--tls-sni-cert-key=/etc/ca.pem,/a.key:a.example: the certificate cannot be used",
        ),
        (&["--tls-cipher-suites=NULL"], "--tls-cipher-suites=NULL: there is no such cipher suite; expected of TLS_"),
        (
            &["--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA,TLS_RSA_WITH_AES_128_CBC_SHA"],
            "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA,TLS_RSA_WITH_AES_128_CBC_SHA: none of these cipher suites",
        ),
        (&["--tls-curve-preferences=1"], "--tls-curve-preferences=1: expected a number of a group"),
        (&["--tls-curve-preferences=25"], "--tls-curve-preferences=25: none of these groups can be used"),
        (&["--tls-min-version=1.2"], "--tls-min-version=1.2: expected VersionTLS12 or VersionTLS13"),
        (&["--tls-sni-cert-key=/a"], "--tls-sni-cert-key=/a: there are no two paths"),
        (&["--tls-sni-cert-key=/a,/b:"], "--tls-sni-cert-key=/a,/b:: the list of names is empty"),
        (&["--tls-sni-cert-key=/a,/b:x,,y"], "--tls-sni-cert-key=/a,/b:x,,y: a name is empty"),
        (&["--http2-max-streams-per-connection=-1"], "--http2-max-streams-per-connection=-1: expected a whole number"),
        (&["--disable-http2-serving=no"], "--disable-http2-serving=no: expected true or false"),
        (&["--permit-port-sharing=x"], "--permit-port-sharing=x: expected true or false"),
        (&["--profiling=x"], "--profiling=x: expected true or false"),
    ];
    for (arguments, expected) in cases {
        let text = settled(arguments).unwrap_err().to_string();
        assert!(text.starts_with(&format!("invalid configuration: {expected}")), "{arguments:?}: {text}");
    }
}
