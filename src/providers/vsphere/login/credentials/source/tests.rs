//! Tests of sources that change: the vectors S14, S16, S21, S22 and S23, and changes for single servers.

use async_trait::async_trait;
use secrecy::SecretString;

use super::*;
use crate::cloud::login_ledger::SecretVersion;
use crate::providers::vsphere::login::credentials::layout::SessionManagers;
use crate::providers::vsphere::login::credentials::{Login, ReadToken};

struct Account;

#[async_trait]
impl ReadToken for Account {
    async fn read(&self) -> Result<SecretString, String> {
        Ok("account".into())
    }
}

fn place() -> SourceLocation {
    SourceLocation::Secret { namespace: "ns".into(), name: "n".into() }
}

fn origin(version: u32) -> Origin {
    let version = SecretVersion { uid: "uid".into(), resource_version: version.to_string() };
    Origin::Source { location: place(), version: Some(version) }
}

fn version(version: u32, entries: &[(&str, &str)]) -> SourceReading {
    let managers = SessionManagers { account: Arc::new(Account), hosts: std::collections::BTreeSet::new() };
    let stored = StoredKeys::read(entries.iter().map(|(key, value)| (*key, Some(value.as_bytes()))), &managers);
    SourceReading::Read { stored, origin: origin(version) }
}

fn found(user: &str, password: &str, version: u32) -> SourceAnswer {
    let login = Login::Password { user: user.into(), password: password.into() };
    SourceAnswer::Found(Arc::new(Credential { login, origin: origin(version) }))
}

const VC: [(&str, &str); 2] = [("vc.username", "u"), ("vc.password", "p")];

// vectors: S16
#[test]
fn s16_a_foreign_key_is_told_once_and_the_pair_counts_from_the_first_time_on() {
    let mut source = CredentialSource::default();
    let entries = [VC.as_slice(), &[("extra", "x")]].concat();
    let changes = source.take(version(1, &entries));
    assert_eq!(changes.servers.unwrap(), ["vc"]);
    assert!(matches!(changes.problems.as_slice(), [reported] if reported.starts_with("\"extra\" is not known")));
    assert_eq!(source.find("vc", &place()), found("u", "p", 1));
    assert_eq!(source.take(version(2, &entries)), SourceChanges::default(), "told once, and nothing else is new");
    assert_eq!(source.find("vc", &place()), found("u", "p", 2));
}

// vectors: S21
#[test]
fn s21_a_server_is_found_as_written_first_then_in_another_spelling() {
    for (case, stored, asked, expected) in [
        ("S21 as written", &["VC", "vc"][..], "vc", Some("vc")),
        ("S21 as written, the other", &["VC", "vc"], "VC", Some("VC")),
        ("S21 another case", &["VC"], "vc", Some("VC")),
        ("S21 two that differ in case, and neither is it", &["VC", "Vc"], "vc", None),
        ("S21 a final dot", &["vc.example.com"], "vc.example.com.", Some("vc.example.com")),
        ("S21 brackets in the file", &["fd01::1"], "[fd01::1]", Some("fd01::1")),
        ("S21 brackets in the Secret", &["[fd01::1]"], "fd01::1", Some("[fd01::1]")),
        ("S21 an address written in another way", &["FD01:0:0::1"], "fd01::1", Some("FD01:0:0::1")),
        ("S21 another server", &["vc2"], "vc", None),
    ] {
        let mut source = CredentialSource::default();
        let keys: Vec<_> = (0..stored.len())
            .map(|index| ["server_", "username_", "password_"].map(|part| format!("{part}{index}")))
            .collect();
        let entries: Vec<_> = stored
            .iter()
            .zip(&keys)
            .flat_map(|(server, [key, user, password])| [(key.as_str(), *server), (user, *server), (password, "p")])
            .collect();
        source.take(version(1, &entries));
        let answer = source.find(asked, &place());
        match expected {
            Some(server) => assert_eq!(answer, found(server, "p", 1), "{case}"),
            None => {
                assert!(
                    matches!(&answer, SourceAnswer::Missing(reason) if reason.contains("Secret ns/n")),
                    "{case}: {answer:?}"
                )
            }
        }
    }
}

// vectors: S22
#[test]
fn s22_a_secret_that_is_deleted_keeps_its_last_credentials_and_that_is_told_once() {
    let mut source = CredentialSource::default();
    source.take(version(1, &VC));
    let absent = || SourceReading::Absent("it does not exist".into());
    assert_eq!(source.take(absent()).problems, ["it does not exist; the last credentials from it stay in use"]);
    assert_eq!(source.take(absent()), SourceChanges::default());
    assert_eq!(source.find("vc", &place()), found("u", "p", 1));
    let other = source.find("other", &place());
    assert_eq!(other, SourceAnswer::Missing("Secret ns/n: it does not exist".into()));
    // The Secret is created again, changes, and is deleted again.
    assert_eq!(source.take(version(4, &VC)).servers.unwrap(), ["vc"]);
    source.take(version(5, &[("vc.username", "u"), ("vc.password", "new")]));
    assert_eq!(source.find("vc", &place()), found("u", "new", 5));
    assert_eq!(source.take(absent()).problems.len(), 1);
}

// vectors: S23
#[test]
fn s23_nothing_is_there_before_the_secret_is() {
    let mut source = CredentialSource::default();
    assert_eq!(source.find("vc", &place()), SourceAnswer::Unread);
    source.take(SourceReading::Failing("no route".into()));
    assert_eq!(source.find("vc", &place()), SourceAnswer::Failing("Secret ns/n: no route".into()));
    assert_eq!(source.take(SourceReading::Absent("it does not exist".into())), SourceChanges::default());
    assert_eq!(source.find("vc", &place()), SourceAnswer::Missing("Secret ns/n: it does not exist".into()));
    source.take(SourceReading::Failing("no route".into()));
    assert!(matches!(source.find("vc", &place()), SourceAnswer::Missing(_)), "what was known stays known");
    source.take(version(1, &VC));
    assert_eq!(source.find("vc", &place()), found("u", "p", 1));
    let other = source.find("other", &place());
    let reported = "Secret ns/n has no entry for server \"other\"; expected the keys other.username and other.password; \
                servers it has: vc";
    assert_eq!(other, SourceAnswer::Missing(reported.into()));
}

#[test]
fn a_missing_entry_names_the_keys_that_are_expected_and_the_servers_that_are_there() {
    let reported =
        |source: &CredentialSource, server: &str, location: &SourceLocation| match source.find(server, location) {
            SourceAnswer::Missing(reason) => reason,
            other => panic!("{other:?}"),
        };
    let directory = SourceLocation::Directory("/etc/vcenters".into());
    let mut source = CredentialSource::default();
    source.take(version(1, &[]));
    for (server, place, expected) in [
        ("10.0.0.1", &place(), "the keys 10.0.0.1.username and 10.0.0.1.password; servers it has: none"),
        ("fd00::1", &place(), "the keys server_0, username_0 and password_0; servers it has: none"),
        ("10.0.0.1", &directory, "the files 10.0.0.1.username and 10.0.0.1.password; servers it has: none"),
    ] {
        let told = reported(&source, server, place);
        assert!(told.ends_with(expected), "{told}");
    }
    let keys: Vec<_> = (10..22).map(|index| (format!("vc-{index}.username"), format!("vc-{index}.password"))).collect();
    let pairs = keys.iter().flat_map(|(user, password)| [(user.as_str(), "u"), (password.as_str(), "hunter2")]);
    source.take(version(2, &pairs.collect::<Vec<_>>()));
    let told = reported(&source, "10.0.0.1", &place());
    assert!(
        told.ends_with(
            "servers it has: vc-10, vc-11, vc-12, vc-13, vc-14, vc-15, vc-16, vc-17, vc-18, vc-19 and 2 more"
        )
    );
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn what_was_read_outlives_a_source_that_cannot_be_asked() {
    let mut source = CredentialSource::default();
    source.take(version(1, &VC));
    assert_eq!(source.take(SourceReading::Failing("no route".into())), SourceChanges::default());
    assert_eq!(source.find("vc", &place()), found("u", "p", 1));
    assert!(matches!(source.find("other", &place()), SourceAnswer::Missing(_)));
}

#[test]
fn w21_a_server_that_is_taken_out_is_gone_and_a_broken_one_keeps_its_last_good_pair() {
    let mut source = CredentialSource::default();
    source.take(version(1, &[VC.as_slice(), &[("b.username", "u"), ("b.password", "p")]].concat()));
    let changes = source.take(version(2, &[("b.username", "changed")]));
    let reported = ["credentials for server \"b\": its password is missing or empty; the last good ones stay in use"];
    assert_eq!(changes.problems, reported);
    assert_eq!(source.find("b", &place()), found("u", "p", 1));
    assert!(matches!(source.find("vc", &place()), SourceAnswer::Missing(_)));
    // When the server is back in the Secret, its old credentials are not used again.
    source.take(version(3, &[("vc.username", "u")]));
    let expected = "Secret ns/n, server \"vc\": its password is missing or empty";
    assert_eq!(source.find("vc", &place()), SourceAnswer::Missing(expected.into()));
}

// vectors: S14
#[test]
fn s14_a_secret_that_is_emptied_keeps_its_last_credentials() {
    let mut source = CredentialSource::default();
    assert_eq!(source.take(version(1, &[])).servers, Some(vec![]));
    assert!(matches!(source.find("vc", &place()), SourceAnswer::Missing(_)));
    source.take(version(2, &VC));
    let changes = source.take(version(3, &[]));
    assert_eq!(changes.problems, ["it has no credentials; the previous ones stay in use"]);
    assert_eq!(source.find("vc", &place()), found("u", "p", 2));
}

fn for_nsx(version: u32, entries: &[(&str, &str)]) -> SourceReading {
    let stored = StoredKeys::read_basic_auth(entries.iter().map(|(key, value)| (*key, value.as_bytes())));
    SourceReading::Read { stored, origin: origin(version) }
}

/// Case L-17 of `docs/compatibility.md`. Upstream drops the credentials, and ignores deletions that it notices late.
#[test]
fn user_name_and_password_for_nsx_stay_when_the_secret_is_deleted_or_loses_a_key() {
    let mut source = CredentialSource::default();
    let find = |source: &CredentialSource| source.find(ANY_SERVER, &place());
    assert_eq!(find(&source), SourceAnswer::Unread);
    let missing = "its key \"password\" is missing or empty";
    let changes = source.take(for_nsx(1, &[("username", "u")]));
    assert_eq!(changes.problems, [format!("credentials: {missing}")]);
    assert_eq!(find(&source), SourceAnswer::Missing(format!("Secret ns/n: {missing}")));
    assert_eq!(source.take(for_nsx(2, &[("username", "u"), ("password", "p")])).problems, [""; 0]);
    assert_eq!(find(&source), found("u", "p", 2));
    for (reading, expected) in [
        (for_nsx(3, &[("username", "other")]), format!("credentials: {missing}; the last good ones stay in use")),
        (
            for_nsx(4, &[]),
            "credentials: its keys \"username\" and \"password\" are missing or empty; the last good ones stay in use"
                .to_owned(),
        ),
        (
            SourceReading::Absent("it does not exist".into()),
            "it does not exist; the last credentials from it stay in use".to_owned(),
        ),
    ] {
        assert_eq!(source.take(reading).problems, [expected]);
        assert_eq!(find(&source), found("u", "p", 2));
    }
    assert_eq!(source.take(for_nsx(5, &[("username", "u"), ("password", "new")])).servers.unwrap(), [ANY_SERVER]);
    assert_eq!(find(&source), found("u", "new", 5));
}
