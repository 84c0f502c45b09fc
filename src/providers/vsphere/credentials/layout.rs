//! Pure: the keys of a Secret, or the files of a directory → one login per server.
//!
//! Two layouts, which may stand side by side:
//!
//! | layout | keys |
//! |---|---|
//! | per server | `<server>.username`, `<server>.password`, `<server>.vc-session-manager-url`, `<server>.vc-session-manager-token` |
//! | indexed, for IPv6 | `server_<id>`, `username_<id>`, `password_<id>` |
//!
//! Mirrors `credentialmanager.go:parseConfig`, with a stricter grammar of keys: what is wrong with one key or one server
//! leaves the others alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Login, ReadToken, SessionToken, pem};
use crate::clients::http::Endpoint;

/// What may be done with session managers that a Secret or a directory names.
pub struct SessionManagers {
    /// What an absent token stands for.
    pub account: Arc<dyn ReadToken>,
    /// The hosts that may be asked, as [`Endpoint::host`] has them; empty is any.
    pub hosts: BTreeSet<String>,
}

impl SessionManagers {
    /// Whether the manager at this URL may be asked.
    fn allow(&self, url: &str) -> bool {
        self.hosts.is_empty() || Endpoint::of_url(url).is_ok_and(|endpoint| self.hosts.contains(endpoint.host()))
    }
}

/// What a Secret or a directory holds. Deliberately without `Debug`.
pub struct Stored {
    /// By server as it is written there: what to log in with, or what is wrong with it.
    pub servers: BTreeMap<String, Result<Login, String>>,
    /// What is odd about single keys. Names keys, never values.
    pub problems: Vec<String>,
}

/// Longer names of keys and servers are cut in messages.
const SHOWN: usize = 100;

/// The parts of one server's login. What is empty counts as not given.
#[derive(Default, Clone, PartialEq)]
struct Parts<'a> {
    user: Option<&'a str>,
    password: Option<&'a str>,
    url: Option<&'a str>,
    token: Option<&'a str>,
}

/// Which part of a login a key holds, and whose.
enum Key<'a> {
    User(&'a str),
    Password(&'a str),
    Url(&'a str),
    Token(&'a str),
    IndexedServer(&'a str),
    IndexedUser(&'a str),
    IndexedPassword(&'a str),
}

/// What a key with this owner holds.
type Part<'a> = fn(&'a str) -> Key<'a>;

impl<'a> Key<'a> {
    /// The layout per server goes first, as in the Go program. The server is what stands before the last suffix.
    fn parse(key: &'a str) -> Option<Self> {
        let suffixes: [(&str, Part<'a>); 4] = [
            (".username", Key::User),
            (".password", Key::Password),
            (".vc-session-manager-url", Key::Url),
            (".vc-session-manager-token", Key::Token),
        ];
        let prefixes: [(&str, Part<'a>); 3] =
            [("server_", Key::IndexedServer), ("username_", Key::IndexedUser), ("password_", Key::IndexedPassword)];
        let suffixed = suffixes.iter().filter_map(|(suffix, part)| Some((key.strip_suffix(suffix)?, part)));
        let prefixed = prefixes.iter().filter_map(|(prefix, part)| Some((key.strip_prefix(prefix)?, part)));
        suffixed.chain(prefixed).find(|(owner, _)| !owner.is_empty()).map(|(owner, part)| part(owner))
    }
}

impl Stored {
    /// Sorts keys and values into logins. A key without value is there and cannot be read, which somebody else tells.
    pub fn read<'a>(
        entries: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
        managers: &SessionManagers,
    ) -> Stored {
        let mut problems = Vec::new();
        let mut servers = BTreeMap::<&str, Parts<'a>>::new();
        let mut sets = BTreeMap::<&str, (Option<&str>, Parts<'a>)>::new();
        for (key, value) in entries {
            let Some(parsed) = Key::parse(key) else {
                problems.push(unknown(key));
                continue;
            };
            let value = value.and_then(|value| text(key, value, &mut problems));
            match parsed {
                Key::User(server) => servers.entry(server).or_default().user = value,
                Key::Password(server) => servers.entry(server).or_default().password = value,
                Key::Url(server) => servers.entry(server).or_default().url = value,
                Key::Token(server) => servers.entry(server).or_default().token = value,
                Key::IndexedServer(id) => sets.entry(id).or_default().0 = value.map(str::trim),
                Key::IndexedUser(id) => sets.entry(id).or_default().1.user = value,
                Key::IndexedPassword(id) => sets.entry(id).or_default().1.password = value,
            }
        }
        let mut contradictory = BTreeMap::<&str, String>::new();
        let mut by_id = BTreeMap::<&str, (&str, Parts<'a>)>::new();
        for (id, (server, parts)) in sets {
            let Some(server) = server.filter(|server| !server.is_empty()) else {
                problems.push(format!("{:?} is missing or empty, so nothing of that index counts", cut("server_", id)));
                continue;
            };
            match by_id.get(server) {
                None => drop(by_id.insert(server, (id, parts))),
                Some((_, other)) if *other == parts => {}
                Some((other, _)) => {
                    let why = format!(
                        "it stands under the indexes {:?} and {:?} with different values",
                        cut("", other),
                        cut("", id)
                    );
                    contradictory.insert(server, why);
                }
            }
        }
        for (server, (_, indexed)) in by_id {
            let parts = servers.entry(server).or_default();
            if parts.user.is_some() || parts.password.is_some() {
                let which =
                    if indexed.is_pair() { "indexed one" } else { "other one, as the indexed one is incomplete," };
                problems.push(format!("server {:?} stands there in both layouts; the {which} counts", cut("", server)));
            }
            if indexed.is_pair() || !parts.is_pair() {
                (parts.user, parts.password) = (indexed.user, indexed.password);
            }
        }
        let servers = servers.into_iter().map(|(server, parts)| {
            let login = match contradictory.remove(server) {
                Some(why) => Err(why),
                None => parts.login(managers),
            };
            (server.to_owned(), login)
        });
        Stored { servers: servers.collect(), problems }
    }

    /// Whether there is nothing in it that could be meant for a server.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}

impl Parts<'_> {
    fn is_pair(&self) -> bool {
        self.user.is_some() && self.password.is_some()
    }

    /// A session manager's URL wins over user and password, as in `connection.go:login`.
    fn login(&self, managers: &SessionManagers) -> Result<Login, String> {
        if let Some(url) = self.url {
            if !managers.allow(url) {
                return Err(
                    "its vc-session-manager-url names a host that is not among --session-manager-hosts".to_owned()
                );
            }
            let token = match self.token {
                Some(token) => SessionToken::Given(token.into()),
                None => SessionToken::ServiceAccount(Arc::clone(&managers.account)),
            };
            return Ok(Login::SharedSession { url: url.to_owned(), token });
        }
        match (self.user, self.password) {
            (Some(user), Some(password)) => pair(user, password),
            (Some(_), None) => Err("its password is missing or empty".to_owned()),
            (None, Some(_)) => Err("its user name is missing or empty".to_owned()),
            (None, None) => Err("its user name and password are missing or empty".to_owned()),
        }
    }
}

/// A user name that is a PEM certificate asks for the login by certificate, whatever stands in it otherwise.
///
/// # Errors
/// The user name begins like PEM and is none: sent as a user name it could only be rejected, and would show a key that
/// somebody put there by mistake.
pub fn pair(user: &str, password: &str) -> Result<Login, String> {
    match pem::looks_like(user) {
        pem::Looks::No => Ok(Login::Password { user: user.to_owned(), password: password.into() }),
        pem::Looks::Complete => Ok(Login::Certificate { certificate: user.to_owned(), key: password.into() }),
        pem::Looks::Broken => Err("its user name begins like a PEM certificate and is none".to_owned()),
    }
}

/// The value as text without one trailing newline; nothing if it is empty.
fn text<'a>(key: &str, value: &'a [u8], problems: &mut Vec<String>) -> Option<&'a str> {
    let Ok(text) = std::str::from_utf8(value) else {
        problems.push(format!("the value of {:?} is not text in UTF-8 and does not count", cut("", key)));
        return None;
    };
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.ends_with(['\n', '\r']) && pem::looks_like(text) == pem::Looks::No {
        let odd = "ends in a line break, which is kept as part of it: only one newline is cut off";
        problems.push(format!("the value of {:?} {odd}", cut("", key)));
    }
    Some(text).filter(|text| !text.is_empty())
}

fn unknown(key: &str) -> String {
    let small = key.to_ascii_lowercase();
    let hint = match Key::parse(&small) {
        Some(_) => " (upper and lower case count)",
        None => "",
    };
    format!(
        "{:?} is not known{hint}; expected <server>.username and <server>.password, or server_<id>, username_<id> and \
         password_<id>",
        cut("", key)
    )
}

/// A name for a message, not too long.
pub(super) fn cut(prefix: &str, name: &str) -> String {
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{prefix}{}…", name.get(..end).unwrap_or_default()),
        None => format!("{prefix}{name}"),
    }
}

#[cfg(test)]
mod tests;
