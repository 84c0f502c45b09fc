//! Pure: derives the credentials of a vCenter entry or an NSX Manager from the state of its sources, and lists the
//! sources to follow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use secrecy::ExposeSecret;

use super::layout::{self, ANY_SERVER, KeyLayout};
use super::source::{CredentialSource, SecretPlace, SourceAnswer, SourceLocation};
use super::{Credential, CredentialState, Credentials, Login, Origin};

/// The credential settings of a vCenter entry.
#[derive(Clone, Copy, Debug)]
pub struct EntryCredentials<'a> {
    /// The server, as the entry writes it.
    pub server: &'a str,
    /// The credentials to try first.
    pub credentials: &'a Credentials,
    /// The credentials to try when the first are rejected.
    pub fallback: Option<&'a Credentials>,
}

/// The sources of the credentials of an NSX Manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NsxSources {
    /// `host:port` of the manager. Another manager never gets these credentials.
    pub server: String,
    /// The Secret with the keys `username` and `password`.
    pub secret: Option<SecretPlace>,
    /// User name and password of the cloud config. The Secret takes precedence.
    pub file: Option<Login>,
}

/// Returns the sources to watch, with the layouts of each source. A source that several entries use is listed once.
pub fn followed<'a>(
    vcenters: impl IntoIterator<Item = EntryCredentials<'a>>,
    nsx: impl IntoIterator<Item = &'a NsxSources>,
    default_directory: &Path,
) -> BTreeMap<SourceLocation, BTreeSet<KeyLayout>> {
    let of_vcenters = vcenters.into_iter().flat_map(|entry| places(entry, default_directory));
    let of_nsx = nsx.into_iter().filter_map(|sources| sources.secret.as_ref()).map(SourceLocation::from);
    let mut followed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let with_layout = of_vcenters.map(|location| (location, KeyLayout::Vcenter));
    for (place, layout) in with_layout.chain(of_nsx.map(|place| (place, KeyLayout::BasicAuth))) {
        followed.entry(place).or_default().insert(layout);
    }
    followed
}

/// Returns the credentials of an NSX Manager: those of its Secret. The credentials of the cloud config are used only if
/// no Secret is configured, or while the Secret does not exist, has no valid credentials or cannot be read. Pending
/// until the first attempt to read the Secret, and while the Secret cannot be read and the cloud config has no
/// credentials.
pub fn nsx_offer(sources: &NsxSources, secrets: &BTreeMap<SecretPlace, CredentialSource>) -> CredentialState {
    let of_file = sources.file.clone().map(|login| {
        let credential = Credential { login, origin: Origin::Config };
        CredentialState::Ready(vec![Arc::new(credential)])
    });
    let Some(secret) = &sources.secret else {
        let why = || "the cloud config has neither user and password nor a Secret for NSX".to_owned();
        return of_file.unwrap_or_else(|| CredentialState::Missing { reason: why() });
    };
    let location = SourceLocation::from(secret);
    match secrets.get(secret).map_or(SourceAnswer::Unread, |source| source.find(ANY_SERVER, &location)) {
        SourceAnswer::Unread => CredentialState::Pending { reason: format!("{location} has not been read yet") },
        SourceAnswer::Found(credential) => CredentialState::Ready(vec![credential]),
        SourceAnswer::Failing(why) => of_file.unwrap_or(CredentialState::Pending { reason: why }),
        SourceAnswer::Missing(why) => of_file.unwrap_or(CredentialState::Missing { reason: why }),
    }
}

/// Returns the sources of an entry, in order of precedence. An entry without inline credentials also uses
/// `default_directory`.
pub fn places(entry: EntryCredentials<'_>, default_directory: &Path) -> Vec<SourceLocation> {
    let mut places: Vec<_> = stored(entry).cloned().collect();
    let default = SourceLocation::Directory(default_directory.to_owned());
    if inline(entry).is_none() && !places.contains(&default) {
        places.push(default);
    }
    places
}

/// Returns the credentials of an entry, those of the cloud config first, as in `connectionmanager.go:Connect`. Pending
/// until the first attempt to read each needed source, and while no credential was found and a source cannot be read.
pub fn offer(
    entry: EntryCredentials<'_>,
    default_directory: &Path,
    sources: &BTreeMap<SourceLocation, CredentialSource>,
) -> CredentialState {
    let mut ready: Vec<Arc<Credential>> = Vec::new();
    let mut missing = Vec::new();
    let mut failing = Vec::new();
    if let Some(pair) = inline(entry) {
        match pair {
            Ok(login) => ready.push(Arc::new(Credential { login, origin: Origin::Config })),
            Err(why) => missing.push(format!("the pair of the cloud config: {why}")),
        }
    }
    let default = SourceLocation::Directory(default_directory.to_owned());
    let is_configured = stored(entry).any(|location| *location == default);
    for place in places(entry, default_directory) {
        let is_default = place == default && !is_configured;
        if is_default && !ready.is_empty() {
            break;
        }
        let answer = sources.get(&place).map_or(SourceAnswer::Unread, |source| source.find(entry.server, &place));
        match answer {
            SourceAnswer::Unread => {
                return CredentialState::Pending { reason: format!("{place} has not been read yet") };
            }
            SourceAnswer::Found(credential) if ready.iter().any(|other| other.login == credential.login) => {}
            SourceAnswer::Found(credential) => ready.push(credential),
            SourceAnswer::Failing(why) => failing.push(why),
            // The default directory is not configured, so missing credentials in it are no error.
            SourceAnswer::Missing(_) if is_default => {}
            SourceAnswer::Missing(why) => missing.push(why),
        }
    }
    match (ready.is_empty(), failing.is_empty()) {
        (false, _) => CredentialState::Ready(ready),
        (true, false) => CredentialState::Pending { reason: failing.join("; ") },
        (true, true) => CredentialState::Missing { reason: missing.join("; ") },
    }
}

fn configured(entry: EntryCredentials<'_>) -> impl Iterator<Item = &Credentials> {
    [Some(entry.credentials), entry.fallback].into_iter().flatten()
}

fn stored(entry: EntryCredentials<'_>) -> impl Iterator<Item = &SourceLocation> {
    configured(entry).filter_map(|credentials| match credentials {
        Credentials::Inline { .. } => None,
        Credentials::Stored(location) => Some(location),
    })
}

fn inline(entry: EntryCredentials<'_>) -> Option<Result<Login, String>> {
    configured(entry).find_map(|credentials| match credentials {
        Credentials::Inline { user, password } => Some(layout::pair(user, password.expose_secret())),
        Credentials::Stored(_) => None,
    })
}

#[cfg(test)]
mod tests;
