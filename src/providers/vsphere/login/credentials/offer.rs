//! Pure: the credential settings of a vCenter entry or an NSX Manager. Lists the sources to follow, and derives the
//! credentials from the contents of the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use super::layout::{self, ANY_SERVER, KeyLayout};
use super::source::{CredentialSource, SourceAnswer, SourceLocation};
use super::{Credential, CredentialState, Credentials, Login, Origin};

/// The contents of sources, in each layout in use.
pub type CredentialSources = BTreeMap<(SourceLocation, KeyLayout), CredentialSource>;

/// The credential settings of a vCenter entry or an NSX Manager.
#[derive(Clone)]
pub struct CredentialSettings {
    /// The name of the vCenter entry; `None` for an NSX Manager.
    pub entry: Option<String>,
    /// The server, as the cloud config writes it.
    pub server: String,
    /// The TCP port.
    pub port: u16,
    /// The credentials to try first.
    pub credentials: Credentials,
    /// For a vCenter, the credentials to try when the first are rejected. For NSX, user and password to use while the
    /// Secret has none.
    pub fallback: Option<Credentials>,
}

/// Returns the sources to follow, with the layouts of each source. A source that several settings use is listed once.
pub fn followed<'a>(
    all: impl IntoIterator<Item = &'a CredentialSettings>,
    default_directory: &Path,
) -> BTreeMap<SourceLocation, BTreeSet<KeyLayout>> {
    let mut followed: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for settings in all {
        for location in settings.sources(default_directory) {
            followed.entry(location).or_default().insert(settings.layout());
        }
    }
    followed
}

impl CredentialSettings {
    /// Returns the sources, in order of precedence. A vCenter entry without inline credentials also uses
    /// `default_directory`.
    pub fn sources(&self, default_directory: &Path) -> Vec<SourceLocation> {
        let mut sources: Vec<_> = self.stored().cloned().collect();
        let default = SourceLocation::Directory(default_directory.to_owned());
        if self.layout() == KeyLayout::Vcenter && self.inline().is_none() && !sources.contains(&default) {
            sources.push(default);
        }
        sources
    }

    /// Returns the credentials.
    ///
    /// A vCenter gets all credentials, those of the cloud config first, as in `connectionmanager.go:Connect`. They are
    /// pending until the first attempt to read each needed source, and unreadable while no credential was found and a
    /// source cannot be read.
    ///
    /// NSX gets the credentials of its Secret. Those of the cloud config are used only if no Secret is configured, or
    /// while the Secret does not exist, has no valid credentials or cannot be read. They are pending until the first
    /// attempt to read the Secret, and unreadable while the Secret cannot be read and the cloud config has no
    /// credentials.
    pub fn offer(&self, default_directory: &Path, sources: &CredentialSources) -> CredentialState {
        match self.layout() {
            KeyLayout::Vcenter => self.vcenter_offer(default_directory, sources),
            KeyLayout::BasicAuth => self.nsx_offer(sources),
        }
    }

    fn vcenter_offer(&self, default_directory: &Path, sources: &CredentialSources) -> CredentialState {
        let mut ready: Vec<Arc<Credential>> = Vec::new();
        let mut missing = Vec::new();
        let mut failing = Vec::new();
        if let Some((user, password)) = self.inline() {
            match layout::pair(user, password.expose_secret()) {
                Ok(login) => ready.push(Arc::new(Credential { login, origin: Origin::Config })),
                Err(why) => missing.push(format!("user and password in the cloud config: {why}")),
            }
        }
        let default = SourceLocation::Directory(default_directory.to_owned());
        let is_configured = self.stored().any(|location| *location == default);
        for place in self.sources(default_directory) {
            let is_default = place == default && !is_configured;
            if is_default && !ready.is_empty() {
                break;
            }
            match self.answer(&place, sources) {
                SourceAnswer::Unread => return unread(&place),
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
            (true, false) => CredentialState::Unreadable { reason: failing.join("; ") },
            (true, true) => CredentialState::Missing { reason: missing.join("; ") },
        }
    }

    fn nsx_offer(&self, sources: &CredentialSources) -> CredentialState {
        let secret = match &self.credentials {
            Credentials::Inline { user, password } => return of_file(user, password),
            Credentials::Stored(location) => location,
        };
        match (self.answer(secret, sources), &self.fallback) {
            (SourceAnswer::Unread, _) => unread(secret),
            (SourceAnswer::Found(credential), _) => CredentialState::Ready(vec![credential]),
            (_, Some(Credentials::Inline { user, password })) => of_file(user, password),
            (SourceAnswer::Failing(why), _) => CredentialState::Unreadable { reason: why },
            (SourceAnswer::Missing(why), _) => CredentialState::Missing { reason: why },
        }
    }

    /// Returns the layout of the keys in the sources.
    pub fn layout(&self) -> KeyLayout {
        match self.entry {
            Some(_) => KeyLayout::Vcenter,
            None => KeyLayout::BasicAuth,
        }
    }

    fn answer(&self, location: &SourceLocation, sources: &CredentialSources) -> SourceAnswer {
        let server = match self.layout() {
            KeyLayout::Vcenter => &self.server,
            KeyLayout::BasicAuth => ANY_SERVER,
        };
        let source = sources.get(&(location.clone(), self.layout()));
        source.map_or(SourceAnswer::Unread, |source| source.find(server, location))
    }

    fn configured(&self) -> impl Iterator<Item = &Credentials> {
        [Some(&self.credentials), self.fallback.as_ref()].into_iter().flatten()
    }

    fn stored(&self) -> impl Iterator<Item = &SourceLocation> {
        self.configured().filter_map(|credentials| match credentials {
            Credentials::Inline { .. } => None,
            Credentials::Stored(location) => Some(location),
        })
    }

    fn inline(&self) -> Option<(&str, &SecretString)> {
        self.configured().find_map(|credentials| match credentials {
            Credentials::Inline { user, password } => Some((user.as_str(), password)),
            Credentials::Stored(_) => None,
        })
    }
}

fn unread(location: &SourceLocation) -> CredentialState {
    CredentialState::Pending { reason: format!("{location} has not been read yet") }
}

fn of_file(user: &str, password: &SecretString) -> CredentialState {
    let login = Login::Password { user: user.to_owned(), password: password.clone() };
    CredentialState::Ready(vec![Arc::new(Credential { login, origin: Origin::Config })])
}

#[cfg(test)]
mod tests;
