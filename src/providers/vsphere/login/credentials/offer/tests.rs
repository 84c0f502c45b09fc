//! Tests of the order of sources, and of sources that are not read yet.

use std::path::PathBuf;

use async_trait::async_trait;
use secrecy::SecretString;

use super::super::layout::StoredKeys;
use super::super::source::SourceReading;
use super::super::{Login, ReadToken};
use super::*;
use crate::providers::vsphere::config::{self, VcenterConfig};
use crate::providers::vsphere::login::credentials::layout::SessionManagers;

const DEFAULT: &str = "/default";

struct Account;

#[async_trait]
impl ReadToken for Account {
    async fn read(&self) -> Result<SecretString, String> {
        Ok("account".into())
    }
}

/// Returns sources with these readings. `None` means that the source was not read yet.
fn sources(known: &[(SourceLocation, Option<SourceReading>)]) -> CredentialSources {
    let known: Vec<_> = known.iter().map(|(location, reading)| (location.clone(), reading)).collect();
    known
        .into_iter()
        .map(|(place, reading)| {
            let mut source = CredentialSource::default();
            match reading {
                None => {}
                Some(SourceReading::Failing(reason)) => drop(source.take(SourceReading::Failing(reason.clone()))),
                Some(SourceReading::Absent(why)) => drop(source.take(SourceReading::Absent(why.clone()))),
                Some(SourceReading::Read { .. }) => {
                    drop(
                        source.take(SourceReading::Read { stored: stored(&place.to_string()), origin: Origin::Config }),
                    );
                }
            }
            ((place, KeyLayout::Vcenter), source)
        })
        .collect()
}

fn stored(user: &str) -> StoredKeys {
    let managers = SessionManagers { account: Arc::new(Account), hosts: std::collections::BTreeSet::new() };
    StoredKeys::read([("vc.username", Some(user.as_bytes())), ("vc.password", Some(b"p".as_slice()))], &managers)
}

fn read() -> Option<SourceReading> {
    Some(SourceReading::Read { stored: stored("any"), origin: Origin::Config })
}

fn secret() -> SourceLocation {
    SourceLocation::Secret { namespace: "ns".into(), name: "n".into() }
}

fn directory(path: &str) -> SourceLocation {
    SourceLocation::Directory(path.into())
}

fn entry(text: &str) -> VcenterConfig {
    config::parse(text, "vsphere.conf").unwrap().config.vcenters.remove(0)
}

fn with_pair() -> VcenterConfig {
    entry("[VirtualCenter \"vc\"]\nuser = inline\npassword = p\nsecret-name = n\nsecret-namespace = ns\n")
}

fn with_secret() -> VcenterConfig {
    entry("[VirtualCenter \"vc\"]\nsecret-name = n\nsecret-namespace = ns\n")
}

/// Returns the users in their order, or the state of the offer and its reason.
fn shown(offer: &CredentialState) -> String {
    match offer {
        CredentialState::Pending { reason: why } => format!("pending: {why}"),
        CredentialState::Unreadable { reason: why } => format!("unreadable: {why}"),
        CredentialState::Missing { reason: why } => format!("missing: {why}"),
        CredentialState::Ready(credentials) => {
            let user = |credential: &Arc<Credential>| match &credential.login {
                Login::Password { user, .. } => user.clone(),
                other => other.kind().to_owned(),
            };
            credentials.iter().map(user).collect::<Vec<_>>().join(", ")
        }
    }
}

#[test]
fn the_pair_of_the_file_goes_first_and_nothing_is_offered_before_every_source_was_looked_at() {
    let inline = || entry("[Global]\nuser = inline\npassword = p\n[VirtualCenter \"vc\"]\n");
    let in_directory = || entry("[Global]\nsecrets-directory = /dir\n[VirtualCenter \"vc\"]\n");
    let failing = || Some(SourceReading::Failing("no route".into()));
    let absent = || Some(SourceReading::Absent("it does not exist".into()));
    let default = || directory(DEFAULT);
    for (case, entry, known, expected) in [
        ("a pair alone", inline(), vec![], "inline"),
        (
            "W20 W25 a Secret that nobody has looked at",
            with_secret(),
            vec![],
            "pending: Secret ns/n has not been read yet",
        ),
        (
            "a Secret, not the default directory",
            with_secret(),
            vec![(secret(), read()), (default(), read())],
            "Secret ns/n",
        ),
        ("a Secret, the default directory unread", with_secret(), vec![(secret(), read())], "Secret ns/n"),
        (
            "a Secret that cannot be asked",
            with_secret(),
            vec![(secret(), failing()), (default(), absent())],
            "unreadable: Secret ns/n: no route",
        ),
        (
            "S23 no Secret",
            with_secret(),
            vec![(secret(), absent()), (default(), absent())],
            "missing: Secret ns/n: it does not exist",
        ),
        (
            "W16 no Secret, the default directory unread",
            with_secret(),
            vec![(secret(), absent())],
            "pending: directory /default has not been read yet",
        ),
        (
            "W16 no Secret, but the default directory",
            with_secret(),
            vec![(secret(), absent()), (default(), read())],
            "directory /default",
        ),
        ("pair and Secret", with_pair(), vec![(secret(), read())], "inline, Secret ns/n"),
        (
            "pair, and a Secret that nobody has looked at",
            with_pair(),
            vec![],
            "pending: Secret ns/n has not been read yet",
        ),
        ("pair, and a Secret that cannot be asked", with_pair(), vec![(secret(), failing())], "inline"),
        ("pair, and no Secret", with_pair(), vec![(secret(), absent())], "inline"),
        (
            "W23 a directory that nobody has looked at",
            in_directory(),
            vec![],
            "pending: directory /dir has not been read yet",
        ),
        (
            "W23 no directory",
            in_directory(),
            vec![(directory("/dir"), absent()), (default(), absent())],
            "missing: directory /dir: it does not exist",
        ),
        ("a directory", in_directory(), vec![(directory("/dir"), read())], "directory /dir"),
    ] {
        let offer = entry.credential_settings().offer(Path::new(DEFAULT), &sources(&known));
        assert_eq!(shown(&offer), expected, "{case}");
    }
}

#[test]
fn a_pair_that_stands_in_both_places_is_offered_once() {
    let mut source = CredentialSource::default();
    source.take(SourceReading::Read { stored: stored("inline"), origin: Origin::Config });
    let known = BTreeMap::from([((secret(), KeyLayout::Vcenter), source)]);
    assert_eq!(shown(&with_pair().credential_settings().offer(Path::new(DEFAULT), &known)), "inline");
}

#[test]
fn a_certificate_in_the_file_is_a_login_by_certificate_and_half_of_one_is_none() {
    let with_user = |user: &str| {
        let mut entry = entry("[VirtualCenter \"vc\"]\nuser = u\npassword = k\n");
        entry.credentials = Credentials::Inline { user: user.into(), password: "k".into() };
        shown(&entry.credential_settings().offer(Path::new(DEFAULT), &BTreeMap::new()))
    };
    assert_eq!(with_user("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"), "certificate");
    let expected =
        "missing: user and password in the cloud config: its user name begins like a PEM certificate and is none";
    assert_eq!(with_user("-----BEGIN CERTIFICATE-----\nMIIB\n"), expected);
}

#[test]
fn an_entry_asks_for_its_own_sources_and_only_without_a_pair_for_the_default_one() {
    let places = |entry: &VcenterConfig| entry.credential_settings().sources(Path::new(DEFAULT));
    assert_eq!(places(&with_secret()), [secret(), directory(DEFAULT)]);
    assert_eq!(places(&with_pair()), [secret()]);
    let own = entry(&format!("[Global]\nsecrets-directory = {DEFAULT}\n[VirtualCenter \"vc\"]\n"));
    assert_eq!(places(&own), [SourceLocation::Directory(PathBuf::from(DEFAULT))], "asked for once");
}

fn nsx(credentials: Credentials, fallback: Option<Credentials>) -> CredentialSettings {
    CredentialSettings { entry: None, server: "nsx.test".into(), port: 443, credentials, fallback }
}

fn of_the_file() -> Credentials {
    Credentials::Inline { user: "of the file".into(), password: "p".into() }
}

#[test]
fn nsx_has_the_credentials_of_its_secret_and_those_of_the_file_until_the_secret_has_some() {
    let stored = |entries: &[(&str, &str)]| {
        StoredKeys::read_basic_auth(entries.iter().map(|(key, value)| (*key, value.as_bytes())))
    };
    let read = |entries: &[(&str, &str)]| SourceReading::Read { stored: stored(entries), origin: Origin::Config };
    let good = || read(&[("username", "of the secret"), ("password", "p")]);
    let none = "missing: Secret ns/n: its key \"password\" is missing or empty";
    for (case, reading, without_file, with_file) in [
        ("not checked yet", None, "pending: Secret ns/n has not been read yet", None),
        ("read", Some(good()), "of the secret", Some("of the secret")),
        ("without password", Some(read(&[("username", "u")])), none, Some("of the file")),
        (
            "deleted",
            Some(SourceReading::Absent("it does not exist".into())),
            "missing: Secret ns/n: it does not exist",
            None,
        ),
        ("unreadable", Some(SourceReading::Failing("no route".into())), "unreadable: Secret ns/n: no route", None),
    ] {
        let is_unread = reading.is_none();
        let mut source = CredentialSource::default();
        if let Some(reading) = reading {
            source.take(reading);
        }
        let secrets = BTreeMap::from([((secret(), KeyLayout::BasicAuth), source)]);
        let offered = |file| {
            let settings = nsx(Credentials::Stored(secret()), file);
            shown(&settings.offer(Path::new(DEFAULT), &secrets))
        };
        assert_eq!(offered(None), without_file, "{case}");
        let with_file = with_file.unwrap_or(if is_unread { without_file } else { "of the file" });
        assert_eq!(offered(Some(of_the_file())), with_file, "{case}, and a user in the file");
    }
    let without_secret = nsx(of_the_file(), None);
    assert_eq!(shown(&without_secret.offer(Path::new(DEFAULT), &BTreeMap::new())), "of the file");
}

#[test]
fn a_secret_of_vcenters_and_nsx_is_followed_once_and_read_in_both_layouts() {
    let (one, other) = (with_secret().credential_settings(), with_pair().credential_settings());
    let elsewhere = SourceLocation::Secret { namespace: "ns".into(), name: "m".into() };
    let stored = |location: SourceLocation| nsx(Credentials::Stored(location), None);
    let both = || BTreeSet::from([KeyLayout::Vcenter, KeyLayout::BasicAuth]);
    let own = || BTreeSet::from([KeyLayout::Vcenter]);
    for (case, nsx, expected) in [
        ("no NSX", vec![], vec![(secret(), own()), (directory(DEFAULT), own())]),
        ("no Secret", vec![nsx(of_the_file(), None)], vec![(secret(), own()), (directory(DEFAULT), own())]),
        ("the same", vec![stored(secret())], vec![(secret(), both()), (directory(DEFAULT), own())]),
        (
            "another",
            vec![stored(elsewhere.clone())],
            vec![(secret(), own()), (elsewhere, BTreeSet::from([KeyLayout::BasicAuth])), (directory(DEFAULT), own())],
        ),
    ] {
        let all = [&one, &other].into_iter().chain(&nsx);
        assert_eq!(followed(all, Path::new(DEFAULT)), expected.into_iter().collect(), "{case}");
    }
}
