//! Pure: the readings of one source, a Secret or a directory → the credentials of a server.
//!
//! Mirrors `credentialmanager.go:GetCredential`, except that a version counts as a whole, and that nothing is looked up
//! before the source was read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::{self, ANY_SERVER, StoredKeys};
use super::{Credential, Login, Origin};

/// How many of a source's servers a message names.
const MOST_NAMED: usize = 10;

/// Where a source is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceLocation {
    /// A Kubernetes Secret.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A directory of files.
    Directory(PathBuf),
}

/// A Kubernetes Secret, by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretPlace {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl From<&SecretPlace> for SourceLocation {
    fn from(place: &SecretPlace) -> Self {
        let SecretPlace { namespace, name } = place.clone();
        SourceLocation::Secret { namespace, name }
    }
}

/// What a source says at one moment.
pub enum Reading {
    /// It was not possible to tell. Says what went wrong.
    Failing(String),
    /// There is no such object or directory, or this process may not read it. Says which.
    Absent(String),
    /// All of it was read.
    Read {
        /// What it holds.
        stored: StoredKeys,
        /// Which version that is.
        origin: Origin,
    },
}

/// What is known of a source.
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

/// The last good credential of a server, and what is wrong with what stands there now.
#[derive(Default)]
struct ServerCredential {
    credential: Option<Arc<Credential>>,
    trouble: Option<String>,
}

/// What changed with a reading, to be told once. Names no value.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Problems that were not there before.
    pub problems: Vec<String>,
    /// The servers of a version that says something else than the one before, or of the first one.
    pub read: Option<Vec<String>>,
}

/// What a source has for a server.
#[derive(Debug, PartialEq, Eq)]
pub enum SourceAnswer {
    /// Nobody knows yet: it was never looked at.
    Unread,
    /// It was looked at in vain and never read. Says why.
    Failing(String),
    /// This.
    Found(Arc<Credential>),
    /// Nothing. Says why.
    Missing(String),
}

impl CredentialSource {
    /// Takes in what the source says now.
    pub fn take(&mut self, reading: Reading) -> News {
        let mut problems = BTreeSet::new();
        let mut read = None;
        match reading {
            Reading::Failing(why) => {
                // What was read stays true until something else is known.
                if matches!(self.state, SourceState::Unread | SourceState::Failing(_)) {
                    self.state = SourceState::Failing(why);
                }
                return News::default();
            }
            Reading::Absent(why) => {
                if self.has_credentials() {
                    problems.insert(format!("{why}; the last credentials from it stay in use"));
                }
                self.state = SourceState::Absent(why);
            }
            Reading::Read { stored, origin } => {
                problems.extend(stored.problems.iter().cloned());
                let is_first = self.state != SourceState::Read;
                self.state = SourceState::Read;
                if stored.is_empty() && self.has_credentials() {
                    problems.insert("it holds no credentials any more; the last ones stay in use".to_owned());
                } else {
                    let is_other = is_first || !self.says_the_same(&stored);
                    read = is_other.then(|| stored.servers.keys().cloned().collect());
                    problems.extend(self.replace(stored, &origin));
                }
            }
        }
        let new = problems.difference(&self.problems).cloned().collect();
        self.problems = problems;
        News { problems: new, read }
    }

    /// What there is for this server: as it is written, else the one that differs in case, brackets or spelling of an
    /// address only.
    pub fn find(&self, server: &str, place: &SourceLocation) -> SourceAnswer {
        let held = match self.servers.get(server) {
            Some(held) => Some(held),
            None => {
                let mut alike = self.servers.iter().filter(|(other, _)| normal(other) == normal(server));
                match (alike.next(), alike.next()) {
                    (Some((one, _)), Some((other, _))) => {
                        return SourceAnswer::Missing(format!(
                            "{place} has {one:?} and {other:?}, and none of them is {server:?} exactly"
                        ));
                    }
                    (found, _) => found.map(|(_, held)| held),
                }
            }
        };
        match (held, &self.state) {
            (Some(ServerCredential { credential: Some(credential), .. }), _) => {
                SourceAnswer::Found(Arc::clone(credential))
            }
            (_, SourceState::Unread) => SourceAnswer::Unread,
            (_, SourceState::Failing(why)) => SourceAnswer::Failing(format!("{place}: {why}")),
            (_, SourceState::Absent(why)) => SourceAnswer::Missing(format!("{place}: {why}")),
            (Some(ServerCredential { trouble: Some(trouble), .. }), SourceState::Read) => {
                SourceAnswer::Missing(format!("{place}{}: {trouble}", of_server(", server", server)))
            }
            (_, SourceState::Read) => SourceAnswer::Missing(self.without(server, place)),
        }
    }

    /// What is missing where nothing is stored for this server: the keys that are expected, and the servers there are.
    fn without(&self, server: &str, place: &SourceLocation) -> String {
        let keys = match (server.contains(':'), place) {
            // A colon is allowed in neither of the two.
            (true, SourceLocation::Secret { .. }) => "keys server_0, username_0 and password_0".to_owned(),
            (true, SourceLocation::Directory(_)) => "files server_0, username_0 and password_0".to_owned(),
            (false, SourceLocation::Secret { .. }) => format!("keys {server}.username and {server}.password"),
            (false, SourceLocation::Directory(_)) => format!("files {server}.username and {server}.password"),
        };
        let names: Vec<_> = self.servers.keys().take(MOST_NAMED).map(|name| layout::cut("", name)).collect();
        let found = match self.servers.len().checked_sub(names.len()) {
            _ if names.is_empty() => "none".to_owned(),
            None | Some(0) => names.join(", "),
            Some(more) => format!("{} and {more} more", names.join(", ")),
        };
        format!("{place} has no entry for server {server:?}; expected the {keys}; servers it has: {found}")
    }

    /// Swaps the servers for those of a new version. One that is broken there keeps its last good credential; one that
    /// is not there any more is forgotten. Gives back what is wrong.
    fn replace(&mut self, stored: StoredKeys, origin: &Origin) -> Vec<String> {
        let mut before = std::mem::take(&mut self.servers);
        let mut problems = Vec::new();
        for (server, login) in stored.servers {
            let held = match login {
                Ok(login) => {
                    let credential = Arc::new(Credential { login, origin: origin.clone() });
                    ServerCredential { credential: Some(credential), trouble: None }
                }
                Err(trouble) => {
                    let credential = before.remove(&server).and_then(|held| held.credential);
                    let kept = if credential.is_some() { "; the last good ones stay in use" } else { "" };
                    problems.push(format!("credentials{}: {trouble}{kept}", of_server(" for server", &server)));
                    ServerCredential { credential, trouble: Some(trouble) }
                }
            };
            self.servers.insert(server, held);
        }
        problems
    }

    fn says_the_same(&self, stored: &StoredKeys) -> bool {
        let is_same = |held: &ServerCredential, login: &Result<Login, String>| match login {
            Ok(login) => held.credential.as_ref().is_some_and(|known| known.login == *login) && held.trouble.is_none(),
            Err(why) => held.trouble.as_ref() == Some(why),
        };
        let both = self.servers.iter().zip(&stored.servers);
        self.servers.len() == stored.servers.len()
            && both.into_iter().all(|((one, held), (other, login))| one == other && is_same(held, login))
    }

    fn has_credentials(&self) -> bool {
        self.servers.values().any(|held| held.credential.is_some())
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

/// The server's name with this before it; nothing where the login is for any server.
fn of_server(before: &str, server: &str) -> String {
    if server == ANY_SERVER { String::new() } else { format!("{before} {server:?}") }
}

/// Host names know no case, and an address can be written in several ways.
fn normal(server: &str) -> String {
    let bare = server.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(server);
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => bare.trim_end_matches('.').to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests;
