//! Tests which client certificates are accepted, and which users result from them.

use super::*;
use crate::kubernetes::access::authority::{Authority, client};
use rcgen::{CertificateParams, CustomExtension, DnType, DnValue, ExtendedKeyUsagePurpose};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn at(time: SystemTime) -> UnixTime {
    UnixTime::since_unix_epoch(time.duration_since(UNIX_EPOCH).unwrap())
}

fn verified(authorities: &ClientVerifier, chain: &[CertificateDer<'static>]) -> Result<(), rustls::Error> {
    authorities.verify_client_cert(&chain[0], &chain[1..], at(SystemTime::now())).map(drop)
}

#[test]
fn a_client_certificate_is_believed_when_an_authority_of_the_bundle_signed_it() {
    let (one, other) = (Authority::new("one"), Authority::new("other"));
    let both = super::authorities(format!("{}\n# between\n{}", one.pem, other.pem).as_bytes()).unwrap();
    let only = super::authorities(one.pem.as_bytes()).unwrap();
    for (name, authorities, signer, is_believed) in [
        ("of the only one", &only, &one, true),
        ("of one of two", &both, &one, true),
        ("of the second of two", &both, &other, true),
        ("of another", &only, &other, false),
    ] {
        let chain = [signer.sign(&client("jane", &[]))];
        assert_eq!(verified(authorities, &chain).is_ok(), is_believed, "{name}");
    }
    let intermediate = one.intermediate("between");
    let leaf = intermediate.sign(&client("jane", &[]));
    assert!(verified(&only, &[leaf.clone(), intermediate.certificate.clone()]).is_ok(), "by an intermediate");
    assert!(verified(&only, &[leaf]).is_err(), "the intermediate is missing");
}

#[test]
fn a_certificate_that_is_for_servers_or_not_valid_now_is_not_believed() {
    let authority = Authority::new("one");
    let authorities = super::authorities(authority.pem.as_bytes()).unwrap();
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut parameters = client("jane", &[]);
        change(&mut parameters);
        [authority.sign(&parameters)]
    };
    let server = with(&|parameters| parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    assert!(verified(&authorities, &server).is_err(), "a server's");
    let any = with(&|parameters| parameters.extended_key_usages.clear());
    assert!(verified(&authorities, &any).is_ok(), "for whatever");
    let unknown = with(&|parameters| {
        let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        parameters.custom_extensions = vec![extension];
    });
    assert!(verified(&authorities, &unknown).is_err(), "with a critical part that nobody knows");
    let year = with(&|parameters| {
        parameters.not_before = rcgen::date_time_ymd(2030, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2031, 1, 1);
    });
    for (seconds, is_believed) in [(1_893_455_999, false), (1_893_456_001, true), (1_925_000_000, false)] {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        assert_eq!(authorities.verify_client_cert(&year[0], &[], now).is_ok(), is_believed, "at {seconds}");
    }
    let garbage = [CertificateDer::from(vec![0x30, 1, 2, 3])];
    assert!(verified(&authorities, &garbage).is_err());
    assert!(matches!(user(&garbage[0]), Err(Refusal::Unreadable)));
}

#[test]
fn the_common_name_is_the_user_and_organisations_are_groups() {
    let authority = Authority::new("one");
    let leaf = authority.sign(&client("jane", &["system:masters", "a"]));
    let jane = user(&leaf).unwrap().unwrap();
    assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", ""));
    assert_eq!(jane.groups, ["system:masters", "a"]);
    let credential = &jane.extra[CREDENTIAL][0];
    assert_eq!(credential.len(), "X509SHA256=".len() + 64, "{credential}");
    assert_eq!(user(&authority.sign(&client("", &["a"]))).unwrap(), None, "nobody without a name");
    let mut with_uid = client("jane", &[]);
    let kind = DnType::CustomDnType(UID.split('.').map(|part| part.parse().unwrap()).collect());
    with_uid.distinguished_name.push(kind, DnValue::Utf8String("7".to_owned()));
    assert_eq!(user(&authority.sign(&with_uid)).unwrap().unwrap().uid, "7");
}

#[test]
fn what_is_no_bundle_is_refused_with_the_reason() {
    let authority = Authority::new("one");
    let broken = authority.pem.replacen("MI", "!!", 1);
    for (name, text, expected) in [
        ("nothing", "", "there is no certificate"),
        ("text", "hello\n", "there is no certificate"),
        ("a key", &rcgen::KeyPair::generate().unwrap().serialize_pem(), "there is no certificate"),
        ("broken base64", &broken, "the PEM form is broken"),
        ("cut off", authority.pem.split("-----END").next().unwrap(), "the PEM form is broken"),
        (
            "no certificate inside",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "the certificate with number 1 cannot be used",
        ),
    ] {
        let error = check_bundle(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{name}: {error}");
    }
    check_bundle(authority.pem.as_bytes()).unwrap();
}
