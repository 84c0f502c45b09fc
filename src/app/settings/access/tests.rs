//! Tests of the flags for authentication and authorisation: the settings that result from them, and their mistakes.

use super::*;
use crate::app::files::FileSystem;
use crate::app::options::{self, Invocation, PROGRAM};
use crate::app::settings::SettingError;
use crate::providers::vsphere::config::Environment;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use zeroize::Zeroizing;

/// A valid kubeconfig.
const KUBECONFIG: &str = "clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443'}}]\n\
                          contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n";

/// A file system with a valid CA bundle, a file without a certificate, and a kubeconfig.
struct MadeUp(String);

impl FileSystem for MadeUp {
    fn read(&self, path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
        let content = match path.to_str() {
            Some("/etc/ca.pem") => self.0.as_str(),
            Some("/etc/no-ca.pem") => "hello",
            Some("/etc/kubeconfig") => KUBECONFIG,
            _ => return Err(std::io::ErrorKind::NotFound.into()),
        };
        Ok(Zeroizing::new(content.as_bytes().to_vec()))
    }

    fn is_directory(&self, _: &Path) -> bool {
        false
    }
}

/// A file system that panics on each access.
struct Unread;

impl FileSystem for Unread {
    fn read(&self, path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
        panic!("{} is read", path.display());
    }

    fn is_directory(&self, path: &Path) -> bool {
        panic!("{} is looked at", path.display());
    }
}

fn settled(flags: &[&str]) -> Result<(Authentication, Authorization), Vec<SettingError>> {
    settled_with(&MadeUp(rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap().cert.pem()), flags)
}

fn settled_with(files: &dyn FileSystem, flags: &[&str]) -> Result<(Authentication, Authorization), Vec<SettingError>> {
    let all = [PROGRAM, "--cloud-config=/etc/vsphere.conf"].iter().chain(flags).map(OsString::from);
    let Ok(Invocation::Run(options)) = options::parse(all) else { panic!("{flags:?}") };
    let environment = Environment::new(std::iter::empty::<(OsString, OsString)>());
    let mut check = SettingsCheck::new(&options, files, &environment);
    let settled = (check.authentication(), check.authorization());
    if check.errors.is_empty() { Ok(settled) } else { Err(check.errors) }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn the_defaults_are_those_of_the_go_program() {
    let (authentication, authorization) = settled(&[]).unwrap();
    let ten = Duration::from_secs(10);
    let expected = Authentication {
        kubeconfig: None,
        skips_lookup: false,
        tolerates_lookup_failure: false,
        cache: ten,
        client_ca: None,
    };
    assert_eq!(authentication, expected);
    let open = OpenPaths::parse(&words(&["/healthz", "/readyz", "/livez"])).unwrap();
    let expected = Authorization { kubeconfig: None, always_allow: open, allowed_cache: ten, refused_cache: ten };
    assert_eq!(authorization, expected);
}

#[test]
fn flags_are_taken_over() {
    let (authentication, authorization) = settled(&[
        "--authentication-kubeconfig=/etc/kubeconfig",
        "--authorization-kubeconfig=/etc/kubeconfig",
        "--authentication-skip-lookup",
        "--authentication-tolerate-lookup-failure=true",
        "--authentication-token-webhook-cache-ttl=1m",
        "--authorization-webhook-cache-authorized-ttl=2m",
        "--authorization-webhook-cache-unauthorized-ttl=3m",
        // O-10: no value after `=` means an empty list.
        "--authorization-always-allow-paths=",
        "--client-ca-file=/etc/ca.pem",
    ])
    .unwrap();
    let minutes = |number: u64| Duration::from_secs(60 * number);
    let kubeconfig = Some(PathBuf::from("/etc/kubeconfig"));
    let expected = Authentication {
        kubeconfig: kubeconfig.clone(),
        skips_lookup: true,
        tolerates_lookup_failure: true,
        cache: minutes(1),
        client_ca: Some(PathBuf::from("/etc/ca.pem")),
    };
    assert_eq!(authentication, expected);
    let always_allow = OpenPaths::default();
    let expected = Authorization { kubeconfig, always_allow, allowed_cache: minutes(2), refused_cache: minutes(3) };
    assert_eq!(authorization, expected);
}

#[test]
fn flags_about_proxies_are_accepted_whatever_they_say_and_change_and_read_nothing() {
    let flags = [
        "--requestheader-client-ca-file=/gone",
        "--requestheader-allowed-names=front,",
        "--requestheader-username-headers=a, ,\"b",
        "--requestheader-uid-headers=x-remote-uid",
        "--requestheader-group-headers=",
        "--requestheader-extra-headers-prefix=x-remote-extra-",
    ];
    assert_eq!(settled_with(&Unread, &flags).unwrap(), settled_with(&Unread, &[]).unwrap());
}

#[test]
fn each_mistake_is_told_with_its_flag_and_what_is_wrong() {
    for (flag, reason) in [
        ("--authentication-kubeconfig=/gone", "cannot be read: entity not found"),
        ("--authorization-kubeconfig=/gone", "cannot be read: entity not found"),
        ("--client-ca-file=/gone", "cannot be read: entity not found"),
        ("--client-ca-file=/etc/no-ca.pem", "there is no certificate in PEM form"),
        ("--authentication-skip-lookup=maybe", "expected true or false"),
        ("--authentication-tolerate-lookup-failure=maybe", "expected true or false"),
        ("--authentication-token-webhook-cache-ttl=soon", ""),
        ("--authorization-webhook-cache-authorized-ttl=soon", ""),
        ("--authorization-webhook-cache-unauthorized-ttl=soon", ""),
        ("--authorization-always-allow-paths=/foo*bar", "has a * before its end"),
    ] {
        let errors = settled(&[flag]).unwrap_err();
        let messages: Vec<_> = errors.iter().map(|error| (error.place.as_str(), error.reason.as_str())).collect();
        let [(place, text)] = messages.as_slice() else { panic!("{flag}: {messages:?}") };
        assert_eq!(*place, flag, "{text}");
        assert!(text.contains(reason), "{flag}: {text}");
    }
}
