//! Pure: caches the credentials of one source, a Secret or a directory, over successive reads.
//!
//! Mirrors `credentialmanager.go:GetCredential`, with two differences: each version replaces the previous version as a
//! whole, and no lookup succeeds before the source was read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::{self, ANY_SERVER, StoredKeys};
use super::{Credential, Login, Origin};
use crate::base::quoting::listed;

/// Location of a source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceLocation {
    /// A Kubernetes Secret.
    Secret {
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret.
        name: String,
    },
    /// A directory of files.
    Directory(PathBuf),
}

/// Result of reading a source once.
pub enum SourceReading {
    /// The read failed, for this reason.
    Failing(String),
    /// The Secret or directory does not exist, or this process may not read it. The text gives the reason.
    Absent(String),
    /// The source was read completely.
    Read {
        /// The parsed contents.
        stored: StoredKeys,
        /// The origin of the contents: the directory, or the Secret with its UID and `resourceVersion`.
        origin: Origin,
    },
}

/// The cached credentials of one source.
#[derive(Default)]
pub struct CredentialSource {
    state: SourceState,
    servers: BTreeMap<String, ServerCredential>,
    problems: BTreeSet<String>,
}

#[derive(Default, PartialEq)]
enum SourceState {
    #[default]
    Unread,
    Failing(String),
    Absent(String),
    Read,
}

/// The last valid credential of a server, and the error in the current version.
#[derive(Default)]
struct ServerCredential {
    credential: Option<Arc<Credential>>,
    error: Option<String>,
}

/// Changes that one read found, without values. The caller logs each change once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceChanges {
    /// New problems.
    pub problems: Vec<String>,
    /// The servers of this version, if it is the first version or differs from the previous version.
    pub servers: Option<Vec<String>>,
}

/// Answer of a source about one server.
#[derive(Debug, PartialEq, Eq)]
pub enum SourceAnswer {
    /// The source was never read.
    Unread,
    /// Every read so far failed, for this reason.
    Failing(String),
    /// The credential of the server.
    Found(Arc<Credential>),
    /// The source has no valid credential for the server, for this reason.
    Missing(String),
}

impl CredentialSource {
    /// Applies the result of a read.
    pub fn take(&mut self, reading: SourceReading) -> SourceChanges {
        let mut problems = BTreeSet::new();
        let mut read = None;
        match reading {
            SourceReading::Failing(reason) => {
                // A failed read does not discard an earlier result.
                if matches!(self.state, SourceState::Unread | SourceState::Failing(_)) {
                    self.state = SourceState::Failing(reason);
                }
                return SourceChanges::default();
            }
            SourceReading::Absent(why) => {
                if self.has_credentials() {
                    problems.insert(format!("{why}; the last credentials from it stay in use"));
                }
                self.state = SourceState::Absent(why);
            }
            SourceReading::Read { stored, origin } => {
                problems.extend(stored.problems.iter().cloned());
                let is_first = self.state != SourceState::Read;
                self.state = SourceState::Read;
                if stored.is_empty() && self.has_credentials() {
                    problems.insert("it has no credentials; the previous ones stay in use".to_owned());
                } else {
                    let is_other = is_first || !self.says_the_same(&stored);
                    read = is_other.then(|| stored.servers.keys().cloned().collect());
                    problems.extend(self.replace(stored, &origin));
                }
            }
        }
        let new = problems.difference(&self.problems).cloned().collect();
        self.problems = problems;
        SourceChanges { problems: new, servers: read }
    }

    /// Looks the server up by its exact name; otherwise by the one name that differs only in case, brackets, a trailing
    /// dot or the spelling of an address.
    pub fn find(&self, server: &str, location: &SourceLocation) -> SourceAnswer {
        let entry = match self.servers.get(server) {
            Some(entry) => Some(entry),
            None => {
                let mut alike = self.servers.iter().filter(|(other, _)| normal(other) == normal(server));
                match (alike.next(), alike.next()) {
                    (Some((one, _)), Some((other, _))) => {
                        return SourceAnswer::Missing(format!(
                            "{location} has {one:?} and {other:?}, and none of them is {server:?} exactly"
                        ));
                    }
                    (found, _) => found.map(|(_, entry)| entry),
                }
            }
        };
        match (entry, &self.state) {
            (Some(ServerCredential { credential: Some(credential), .. }), _) => {
                SourceAnswer::Found(Arc::clone(credential))
            }
            (_, SourceState::Unread) => SourceAnswer::Unread,
            (_, SourceState::Failing(reason)) => SourceAnswer::Failing(format!("{location}: {reason}")),
            (_, SourceState::Absent(why)) => SourceAnswer::Missing(format!("{location}: {why}")),
            (Some(ServerCredential { error: Some(trouble), .. }), SourceState::Read) => {
                SourceAnswer::Missing(format!("{location}{}: {trouble}", of_server(", server", server)))
            }
            (_, SourceState::Read) => SourceAnswer::Missing(self.without(server, location)),
        }
    }

    /// Returns the message for a server without an entry: the expected keys, and the servers of the source.
    fn without(&self, server: &str, location: &SourceLocation) -> String {
        let keys = match (server.contains(':'), location) {
            // A key of a Secret cannot contain a colon, and neither can the name of a file mounted from a Secret.
            (true, SourceLocation::Secret { .. }) => "keys server_0, username_0 and password_0".to_owned(),
            (true, SourceLocation::Directory(_)) => "files server_0, username_0 and password_0".to_owned(),
            (false, SourceLocation::Secret { .. }) => format!("keys {server}.username and {server}.password"),
            (false, SourceLocation::Directory(_)) => format!("files {server}.username and {server}.password"),
        };
        let names: Vec<_> = self.servers.keys().map(|name| layout::cut("", name)).collect();
        let found = if names.is_empty() { "none".to_owned() } else { listed(&names) };
        format!("{location} has no entry for server {server:?}; expected the {keys}; servers it has: {found}")
    }

    /// Replaces the servers with those of a new version. A server with an error keeps its last valid credential. A
    /// server that is not in the new version is removed. Returns the errors.
    fn replace(&mut self, stored: StoredKeys, origin: &Origin) -> Vec<String> {
        let mut before = std::mem::take(&mut self.servers);
        let mut problems = Vec::new();
        for (server, login) in stored.servers {
            let entry = match login {
                Ok(login) => {
                    let credential = Arc::new(Credential { login, origin: origin.clone() });
                    ServerCredential { credential: Some(credential), error: None }
                }
                Err(trouble) => {
                    let credential = before.remove(&server).and_then(|entry| entry.credential);
                    let kept = if credential.is_some() { "; the last good ones stay in use" } else { "" };
                    problems.push(format!("credentials{}: {trouble}{kept}", of_server(" for server", &server)));
                    ServerCredential { credential, error: Some(trouble) }
                }
            };
            self.servers.insert(server, entry);
        }
        problems
    }

    fn says_the_same(&self, stored: &StoredKeys) -> bool {
        let is_same = |entry: &ServerCredential, login: &Result<Login, String>| match login {
            Ok(login) => entry.credential.as_ref().is_some_and(|known| known.login == *login) && entry.error.is_none(),
            Err(reason) => entry.error.as_ref() == Some(reason),
        };
        let both = self.servers.iter().zip(&stored.servers);
        self.servers.len() == stored.servers.len()
            && both.into_iter().all(|((one, entry), (other, login))| one == other && is_same(entry, login))
    }

    fn has_credentials(&self) -> bool {
        self.servers.values().any(|entry| entry.credential.is_some())
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceLocation::Secret { namespace, name } => write!(formatter, "Secret {namespace}/{name}"),
            SourceLocation::Directory(path) => write!(formatter, "directory {}", path.display()),
        }
    }
}

fn of_server(before: &str, server: &str) -> String {
    if server == ANY_SERVER { String::new() } else { format!("{before} {server:?}") }
}

/// Returns the normal form: host names ignore case, and an address has several spellings.
fn normal(server: &str) -> String {
    let bare = server.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(server);
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => bare.trim_end_matches('.').to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests;
