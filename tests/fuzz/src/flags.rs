//! Fuzz targets for flags, environment variables and the files that they name.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use ccm::app::files::FileSystem;
use ccm::app::options::{self, Invocation, PROGRAM};
use ccm::app::settings::{leader_migration, resolve};
use ccm::clients::http::{Endpoint, ProxySettings};
use ccm::providers::vsphere::config::Environment;
use zeroize::Zeroizing;

use crate::laws::{SECRET, hides_secret};

/// Separates the flags from the content of the files. Every file has the same content.
const FILES: &str = "\n%%\n";

/// File reader that returns the same content for every file.
struct Same<'a>(&'a str);

impl FileSystem for Same<'_> {
    fn read(&self, _: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        Ok(Zeroizing::new(self.0.as_bytes().to_vec()))
    }

    fn is_directory(&self, path: &Path) -> bool {
        path.as_os_str().len().is_multiple_of(2)
    }
}

/// Parses flags, one a line, and variables as `$NAME=value`. The size of the reported text is bounded by the size of
/// the input.
pub fn flags(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (flags, files) = text.split_once(FILES).unwrap_or((&text, ""));
    let (variables, arguments): (Vec<&str>, Vec<&str>) = flags.lines().partition(|line| line.starts_with('$'));
    let variables = variables.iter().filter_map(|line| line.trim_start_matches('$').split_once('='));
    let environment = Environment::new(variables.map(|(name, value)| (OsString::from(name), OsString::from(value))));
    let all = [PROGRAM].into_iter().chain(arguments.iter().copied()).map(OsString::from);
    let most = 64 * bytes.len() + 64 * 1024;
    match options::parse(all) {
        Err(misspelled) => assert!(misspelled.to_string().len() <= most, "{misspelled}"),
        Ok(Invocation::Print(text)) => assert!(!text.is_empty(), "nothing is printed"),
        Ok(Invocation::Run(options)) => {
            let settled = resolve(&options, &Same(files), &environment);
            let again = resolve(&options, &Same(files), &environment);
            assert_eq!(settled.is_ok(), again.is_ok(), "the same flags are judged in two ways");
            if let Err(mistakes) = settled {
                assert!(!mistakes.errors.is_empty(), "nothing is wrong with what is refused");
                let told = mistakes.to_string();
                assert!(told.len() <= most, "{} bytes are told of {}", told.len(), bytes.len());
                if !files.contains(SECRET) && is_in_user_part(flags) {
                    hides_secret(&told);
                }
            }
        }
    }
}

/// Returns true if the secret appears only as the password of a URL.
fn is_in_user_part(flags: &str) -> bool {
    let hidden = format!("--master=https://user:{SECRET}@");
    flags.lines().filter(|line| line.contains(SECRET)).all(|line| {
        line.strip_prefix(&hidden).is_some_and(|rest| !rest.contains(SECRET) && rest.chars().all(char::is_alphanumeric))
    })
}

/// Parses the file of a leader migration. The last entry of a controller decides its placement.
pub fn migration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match leader_migration::parse(&text) {
        Ok(migration) => {
            let names: BTreeSet<_> = migration.controller_leaders.iter().map(|leader| &leader.name).collect();
            for name in names {
                assert_ne!(migration.placement(name), leader_migration::Placement::Main, "{name} moves");
            }
            assert!(!migration.leader_name.is_empty(), "a migration without a name is taken");
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "nothing is wrong with what is refused");
            let words: usize = mistakes.iter().map(String::len).sum();
            assert!(words <= 4096 + 64 * bytes.len(), "{words} bytes are told of {}", bytes.len());
        }
    }
}

/// Parses proxy variables, `NAME=value`, and looks up endpoints, `= URL`. No password is reported.
pub fn proxy(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (endpoints, variables): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('='));
    let find = |name: &str| {
        let found = variables.iter().filter_map(|line| line.split_once('=')).find(|(variable, _)| *variable == name);
        found.map(|(_, value)| value.to_owned())
    };
    let has_only_passwords = text.matches(SECRET).count() == text.matches(&format!("://u:{SECRET}@")).count();
    match ProxySettings::from_environment(find) {
        Err(mistakes) => {
            assert!(!mistakes.is_empty() && mistakes.len() <= 2, "{mistakes:?}");
            mistakes.iter().for_each(|mistake| hides_secret(&format!("{mistake} {mistake:?}")));
        }
        Ok(settings) => {
            for endpoint in endpoints.iter().filter_map(|line| Endpoint::of_url(line.get(1..)?.trim()).ok()) {
                let server = settings.server_for(&endpoint);
                let is_local = ["localhost", "127.0.0.1"].contains(&endpoint.host());
                assert!(!is_local || server.is_none(), "{endpoint:?} is asked for through a proxy");
            }
            if has_only_passwords {
                hides_secret(&format!("{settings:?}"));
            }
        }
    }
}
