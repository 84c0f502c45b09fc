//! Tests with real files: pairs of certificate and key that are given, generated, replaced and renewed.

use super::*;
use crate::runtime::admin::settings::PairFiles;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Returns a certificate and its key as PEM.
fn pair(names: &[&str]) -> (String, String) {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn write(folder: &Path, (chain, key): &(String, String)) -> PairFiles {
    let files = PairFiles { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
    std::fs::write(&files.certificate, chain).unwrap();
    std::fs::write(&files.key, key).unwrap();
    files
}

fn leaf_of(certificates: &Certificates) -> Vec<u8> {
    certificates.served().default.end_entity_cert().unwrap().to_vec()
}

fn leaf_in((chain, _): &(String, String)) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::from_pem_slice(chain.as_bytes()).unwrap().to_vec()
}

#[test]
fn a_given_pair_is_used_and_a_wrong_one_says_what_is_wrong() {
    let ((chain, key), (_, other)) = (pair(&["a"]), pair(&["a"]));
    assert!(given_certificate(chain.as_bytes(), key.as_bytes()).is_ok());
    let cases = [
        ("no certificate", "", key.as_str(), "the certificate cannot be used"),
        ("no key", chain.as_str(), "", "the private key is not in PEM form"),
        ("another's key", chain.as_str(), &other, "the certificate cannot be used"),
    ];
    for (case, chain, key, expected) in cases {
        let error = given_certificate(chain.as_bytes(), key.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{case}");
    }
}

#[test]
fn files_are_read_again_and_a_broken_pair_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (pair(&["a"]), pair(&["a"]));
    let files = write(folder.path(), &first);
    let now = SystemTime::now();
    let (certificates, mut keeper) = Certificates::load(&CertificateSource::Files(files.clone()), &[], &[]).unwrap();
    std::fs::write(&files.certificate, &second.0).unwrap();
    for _ in 0..3 {
        keeper.reload(now);
        assert_eq!(leaf_of(&certificates), leaf_in(&first), "a certificate without its key");
    }
    assert!(keeper.default.is_refusal_logged());
    std::fs::write(&files.key, &second.1).unwrap();
    keeper.reload(now);
    assert_eq!(leaf_of(&certificates), leaf_in(&second));
    assert!(!keeper.default.is_refusal_logged());
    std::fs::remove_file(&files.key).unwrap();
    keeper.reload(now);
    assert_eq!(leaf_of(&certificates), leaf_in(&second), "a file is gone");
}

/// The kubelet replaces the files of a Secret in the same way.
#[test]
fn an_exchanged_symbolic_link_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (pair(&["a"]), pair(&["a"]));
    for (name, pair) in [("1", &first), ("2", &second)] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        write(&folder.path().join(name), pair);
    }
    let link = folder.path().join("..data");
    symlink("1", &link).unwrap();
    let files = PairFiles { certificate: link.join("tls.crt"), key: link.join("tls.key") };
    let (certificates, mut keeper) = Certificates::load(&CertificateSource::Files(files), &[], &[]).unwrap();
    assert_eq!(leaf_of(&certificates), leaf_in(&first));
    let new = folder.path().join("..data_tmp");
    symlink("2", &new).unwrap();
    std::fs::rename(&new, &link).unwrap();
    keeper.reload(SystemTime::now());
    assert_eq!(leaf_of(&certificates), leaf_in(&second));
}

#[test]
fn the_certificate_is_chosen_by_the_name_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let own = pair(&["own.example", "*.own.example", "192.0.2.1"]);
    let (given, later) = (pair(&["other.example"]), pair(&["own.example", "given.example"]));
    let mut named = Vec::new();
    for (number, (pair, names)) in [(&own, &[][..]), (&given, &["GIVEN.example"]), (&later, &[])].iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        let names = names.iter().map(|name: &&str| (*name).to_owned()).collect();
        named.push(NamedPair { files: write(&folder, pair), names });
    }
    let (certificates, _) = Certificates::load(&CertificateSource::Memory, &named, &[]).unwrap();
    let default = leaf_of(&certificates);
    let cases = [
        (Some("own.example"), None, leaf_in(&own)),
        (Some("a.own.example"), None, leaf_in(&own)),
        (Some("a.b.own.example"), None, default.clone()),
        (Some("given.example"), None, leaf_in(&given)),
        (Some("other.example"), None, default.clone()),
        (None, Some("192.0.2.1"), leaf_in(&own)),
        (Some("elsewhere.example"), Some("192.0.2.1"), default.clone()),
        (None, Some("192.0.2.2"), default.clone()),
        (None, None, default.clone()),
    ];
    for (name, address, expected) in cases {
        let address = address.map(|address: &str| address.parse().unwrap());
        let chosen = certificates.served().choose(name, address);
        assert_eq!(chosen.end_entity_cert().unwrap().to_vec(), expected, "{name:?} {address:?}");
    }
}

#[test]
fn w_84_what_was_made_in_memory_is_made_anew_before_it_ends() {
    let (certificates, mut keeper) = Certificates::load(&CertificateSource::Memory, &[], &[]).unwrap();
    let first = leaf_of(&certificates);
    let day = Duration::from_secs(24 * 3600);
    keeper.reload(SystemTime::now() + 290 * day);
    assert_eq!(leaf_of(&certificates), first);
    keeper.reload(SystemTime::now() + 293 * day);
    assert_ne!(leaf_of(&certificates), first);
    let second = leaf_of(&certificates);
    keeper.reload(SystemTime::now() + 294 * day);
    assert_eq!(leaf_of(&certificates), second, "once");
}

#[test]
fn what_is_made_has_the_names_the_times_and_the_issuer_of_the_go_program() {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let (certificates, keeper) = Certificates::load(&CertificateSource::Memory, &[], &["192.0.2.7".into()]).unwrap();
    let served = certificates.served();
    let [leaf, ca] = served.default.cert.as_slice() else { panic!("leaf and CA") };
    let (leaf, ca) = (X509Certificate::from_der(leaf).unwrap().1, X509Certificate::from_der(ca).unwrap().1);
    assert!(leaf.subject().to_string().starts_with("CN=localhost@") && leaf.issuer() == ca.subject());
    assert!(ca.subject().to_string().starts_with("CN=localhost-ca@") && ca.is_ca() && !leaf.is_ca());
    assert_eq!(keeper.default.pair.names, ["localhost", "127.0.0.1", "::1", "192.0.2.7"]);
    let valid = leaf.validity();
    let age = i64::try_from(before).unwrap() - valid.not_before.timestamp();
    assert!((3590..=3601).contains(&age), "{age}");
    assert!(leaf.extended_key_usage().unwrap().unwrap().value.server_auth);
    assert_eq!(certificates.key_kind(), "ECDSA");
}

#[test]
fn a_folder_keeps_the_pair_and_only_what_is_self_made_is_made_anew() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("certs");
    let source = CertificateSource::Folder(folder.clone());
    let first = leaf_of(&Certificates::load(&source, &[], &[]).unwrap().0);
    for name in [SERVED_CERTIFICATE, SERVED_KEY] {
        let mode = std::fs::metadata(folder.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing else is left there");
    let (certificates, mut keeper) = Certificates::load(&source, &[], &[]).unwrap();
    assert_eq!(leaf_of(&certificates), first, "it is used again");
    let later = SystemTime::now() + Duration::from_secs(360 * 24 * 3600);
    keeper.reload(later);
    assert_ne!(leaf_of(&certificates), first);
    let own = {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    std::fs::write(folder.join(SERVED_CERTIFICATE), &own.0).unwrap();
    std::fs::write(folder.join(SERVED_KEY), &own.1).unwrap();
    keeper.reload(later);
    keeper.reload(later);
    assert_eq!(leaf_of(&certificates), leaf_in(&own), "somebody's own pair stays, although it has ended");
}

#[test]
fn somebodys_own_pair_is_taken_although_the_self_made_one_is_due_and_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let source = CertificateSource::Folder(folder.path().to_owned());
    let (certificates, mut keeper) = Certificates::load(&source, &[], &[]).unwrap();
    let first = leaf_of(&certificates);
    let later = SystemTime::now() + Duration::from_secs(360 * 24 * 3600);
    // A folder at the path makes the write fail. Missing permissions would not stop a test that runs as root.
    let in_the_way = folder.path().join(format!("{SERVED_KEY}.{}.new", std::process::id()));
    std::fs::create_dir(&in_the_way).unwrap();
    for _ in 0..2 {
        keeper.reload(later);
        assert_eq!(leaf_of(&certificates), first);
    }
    assert!(keeper.default.is_refusal_logged());
    let own = pair(&["a"]);
    std::fs::write(folder.path().join(SERVED_CERTIFICATE), &own.0).unwrap();
    std::fs::write(folder.path().join(SERVED_KEY), &own.1).unwrap();
    keeper.reload(later);
    assert_eq!(leaf_of(&certificates), leaf_in(&own));
}

#[test]
fn what_is_left_of_a_self_made_pair_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let source = CertificateSource::Folder(folder.path().to_owned());
    let load = || Certificates::load(&source, &[], &[]);
    let first = leaf_of(&load().unwrap().0);
    let key = folder.path().join(SERVED_KEY);
    std::fs::remove_file(&key).unwrap();
    let second = leaf_of(&load().unwrap().0);
    assert_ne!(second, first, "without its key");
    std::fs::write(&key, pair(&["a"]).1).unwrap();
    assert_ne!(leaf_of(&load().unwrap().0), second, "with another key");
    std::fs::write(folder.path().join(SERVED_CERTIFICATE), pair(&["a"]).0).unwrap();
    let refused = load().map(|_| ()).unwrap_err();
    assert!(matches!(refused, CertificateError::Pair { .. }), "somebody's own: {refused}");
}

#[test]
fn a_first_start_that_ended_between_the_two_files_is_made_good_by_the_next() {
    for unwritable in [SERVED_CERTIFICATE, SERVED_KEY] {
        let folder = tempfile::tempdir().unwrap();
        let load = || Certificates::load(&CertificateSource::Folder(folder.path().to_owned()), &[], &[]);
        // Permissions would not keep a superuser from writing.
        let in_the_way = folder.path().join(format!("{unwritable}.{}.new", std::process::id()));
        std::fs::create_dir(&in_the_way).unwrap();
        let refused = load().map(|_| ()).unwrap_err();
        assert!(matches!(refused, CertificateError::Write(..)), "{unwritable}: {refused}");
        std::fs::remove_dir(&in_the_way).unwrap();
        if let Err(refused) = load() {
            panic!("{unwritable}: {refused}");
        }
    }
}

#[test]
fn half_a_pair_in_the_folder_refuses_the_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(SERVED_KEY), "k").unwrap();
    let refused = Certificates::load(&CertificateSource::Folder(folder.path().to_owned()), &[], &[]);
    let text = refused.map(|_| ()).unwrap_err().to_string();
    assert!(text.contains(".key is there") && text.contains(".crt is not"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_keeper_looks_by_itself_and_stops_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (pair(&["a"]), pair(&["a"]));
    let files = write(folder.path(), &first);
    let (certificates, keeper) = Certificates::load(&CertificateSource::Files(files), &[], &[]).unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(keeper.run(stop.clone()));
    write(folder.path(), &second);
    let changed = async {
        while leaf_of(&certificates) != leaf_in(&second) {
            tokio::time::advance(Duration::from_millis(100)).await;
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), changed).await.expect("it is exchanged");
    stop.cancel();
    task.await.unwrap().unwrap();
}
