//! Pure: parses the keys of a Secret, or the files of a directory, into one login per server.
//!
//! vCenters have two layouts, per server and indexed. One source may use both layouts:
//!
//! | layout | keys |
//! |---|---|
//! | per server | `<server>.username`, `<server>.password` |
//! | per server, shared session | `<server>.vc-session-manager-url`, `<server>.vc-session-manager-token` |
//! | indexed, for IPv6 | `server_<id>`, `username_<id>`, `password_<id>` |
//!
//! Mirrors `credentialmanager.go:parseConfig`, with a stricter grammar of keys: an error in one key or server does not
//! affect other keys or servers.
//!
//! NSX has one layout: the keys `username` and `password`, as in a Secret of the type `kubernetes.io/basic-auth`.
//! Mirrors `connector_manager.go:AddSecretListener`: values are not trimmed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Login, ReadToken, SessionToken, pem};
use crate::clients::http::Endpoint;

/// Layout of the keys of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyLayout {
    /// Keys for vCenters, per server (`<server>.username`) or indexed (`username_<id>`).
    Vcenter,
    /// The keys `username` and `password`.
    BasicAuth,
}

/// Server name of a login for any server. All logins of [`KeyLayout::BasicAuth`] have this name.
pub const ANY_SERVER: &str = "";

const BASIC_AUTH: [&str; 2] = ["username", "password"];

/// Returns true if this key belongs to [`KeyLayout::BasicAuth`]. The layouts for vCenters do not have this key.
pub fn is_basic_auth(key: &str) -> bool {
    BASIC_AUTH.contains(&key)
}

/// Rules for session managers that a Secret or a directory names.
pub struct SessionManagers {
    /// The token to use if the source has no token.
    pub account: Arc<dyn ReadToken>,
    /// The allowed hosts, in the form of [`Endpoint::host`]; an empty set allows any host.
    pub hosts: BTreeSet<String>,
}

impl SessionManagers {
    fn allow(&self, url: &str) -> bool {
        self.hosts.is_empty() || Endpoint::of_url(url).is_ok_and(|endpoint| self.hosts.contains(endpoint.host()))
    }
}

/// The parsed contents of a Secret or a directory. `Debug` is not implemented, because the contents are secret.
pub struct StoredKeys {
    /// The login of each server or the error, by server name as stored.
    pub servers: BTreeMap<String, Result<Login, String>>,
    /// Problems of single keys. A problem names a key, never a value.
    pub problems: Vec<String>,
}

/// Maximum length of the name of a key or server in messages, in characters.
const SHOWN: usize = 100;

/// The parts of one server's login. An empty value counts as absent.
#[derive(Default, Clone, PartialEq)]
struct LoginParts<'a> {
    /// The server of the index; only in the indexed layout.
    server: Option<&'a str>,
    user: Option<&'a str>,
    password: Option<&'a str>,
    url: Option<&'a str>,
    token: Option<&'a str>,
}

/// Selects the part that a key sets.
type PartSelector = for<'a, 'b> fn(&'b mut LoginParts<'a>) -> &'b mut Option<&'a str>;

const SUFFIXES: [(&str, PartSelector); 4] = [
    (".username", |parts| &mut parts.user),
    (".password", |parts| &mut parts.password),
    (".vc-session-manager-url", |parts| &mut parts.url),
    (".vc-session-manager-token", |parts| &mut parts.token),
];

const PREFIXES: [(&str, PartSelector); 3] = [
    ("server_", |parts| &mut parts.server),
    ("username_", |parts| &mut parts.user),
    ("password_", |parts| &mut parts.password),
];

struct SourceKey<'a> {
    is_indexed: bool,
    /// The server or the index.
    owner: &'a str,
    part: PartSelector,
}

impl<'a> SourceKey<'a> {
    /// Parses a key. The layout per server takes precedence, as in the Go program.
    fn parse(key: &'a str) -> Option<Self> {
        let suffixed = SUFFIXES.iter().filter_map(|(suffix, part)| Some((false, key.strip_suffix(suffix)?, part)));
        let prefixed = PREFIXES.iter().filter_map(|(prefix, part)| Some((true, key.strip_prefix(prefix)?, part)));
        let (is_indexed, owner, part) = suffixed.chain(prefixed).find(|(_, owner, _)| !owner.is_empty())?;
        Some(Self { is_indexed, owner, part: *part })
    }
}

struct IndexedParts<'a> {
    id: &'a str,
    parts: LoginParts<'a>,
    /// Set if two indexes have different values for the server. The login of the server is then an error.
    contradiction: Option<String>,
}

impl StoredKeys {
    /// Parses keys and values into logins. A value of `None` means that the key could not be read; the caller reports
    /// this key.
    pub fn read<'a>(
        entries: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
        managers: &SessionManagers,
    ) -> StoredKeys {
        let mut problems = Vec::new();
        let (mut servers, mut indexes) = (BTreeMap::<_, LoginParts<'_>>::new(), BTreeMap::<_, LoginParts<'_>>::new());
        for (key, value) in entries {
            let Some(SourceKey { is_indexed, owner, part }) = SourceKey::parse(key) else {
                problems.push(unknown(key));
                continue;
            };
            let of_layout = if is_indexed { &mut indexes } else { &mut servers };
            *part(of_layout.entry(owner).or_default()) = value.and_then(|value| text(key, value, &mut problems));
        }
        let mut contradictions = Vec::new();
        for (server, IndexedParts { parts: indexed, contradiction, .. }) in by_server(indexes, &mut problems) {
            contradictions.extend(contradiction.map(|reason| (server.to_owned(), Err(reason))));
            let parts = servers.entry(server).or_default();
            if parts.user.is_some() || parts.password.is_some() {
                let which =
                    if indexed.is_pair() { "indexed one" } else { "other one, as the indexed one is incomplete," };
                problems.push(format!("server {:?} is there in both layouts; the {which} is used", cut("", server)));
            }
            if indexed.is_pair() || !parts.is_pair() {
                (parts.user, parts.password) = (indexed.user, indexed.password);
            }
        }
        let servers = servers.into_iter().map(|(server, parts)| (server.to_owned(), parts.login(managers)));
        StoredKeys { servers: servers.chain(contradictions).collect(), problems }
    }

    /// Parses the keys of [`KeyLayout::BasicAuth`] and ignores other keys. Values are not trimmed.
    pub fn read_basic_auth<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> StoredKeys {
        let [user_key, password_key] = BASIC_AUTH;
        let (mut user, mut password) = (None, None);
        for (key, value) in entries.into_iter().filter(|(_, value)| !value.is_empty()) {
            match key {
                _ if key == user_key => user = Some(value),
                _ if key == password_key => password = Some(value),
                _ => {}
            }
        }
        let mut problems = Vec::new();
        let login = match (user, password) {
            (Some(user), Some(password)) => basic_auth(user, password, &mut problems),
            (Some(_), None) => Err(format!("its key {password_key:?} is missing or empty")),
            (None, Some(_)) => Err(format!("its key {user_key:?} is missing or empty")),
            (None, None) => Err(format!("its keys {user_key:?} and {password_key:?} are missing or empty")),
        };
        StoredKeys { servers: BTreeMap::from([(ANY_SERVER.to_owned(), login)]), problems }
    }

    /// Returns true if the contents name no server.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }
}

impl LoginParts<'_> {
    fn is_pair(&self) -> bool {
        self.user.is_some() && self.password.is_some()
    }

    /// Builds the login of a server. A session manager's URL takes precedence, as in `connection.go:login`.
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

fn by_server<'a>(
    indexes: BTreeMap<&'a str, LoginParts<'a>>,
    problems: &mut Vec<String>,
) -> BTreeMap<&'a str, IndexedParts<'a>> {
    let mut servers = BTreeMap::<_, IndexedParts<'a>>::new();
    for (id, mut parts) in indexes {
        let Some(server) = parts.server.take().map(str::trim).filter(|server| !server.is_empty()) else {
            problems
                .push(format!("{:?} is missing or empty, so all keys of that index are ignored", cut("server_", id)));
            continue;
        };
        match servers.get_mut(server) {
            None => drop(servers.insert(server, IndexedParts { id, parts, contradiction: None })),
            Some(known) if known.parts == parts => {}
            Some(known) => {
                let (one, other) = (cut("", known.id), cut("", id));
                let reason = format!("the indexes {one:?} and {other:?} have different values for it");
                known.contradiction = Some(reason);
            }
        }
    }
    servers
}

/// Builds a login. A user name with a complete PEM block selects the login by certificate.
///
/// # Errors
/// Fails if the user name contains the beginning of a PEM block but no complete block. vCenter could only reject such a
/// name, and messages would show a private key that an operator entered as user name by mistake.
pub fn pair(user: &str, password: &str) -> Result<Login, String> {
    match pem::kind_of(user) {
        pem::PemKind::No => Ok(Login::Password { user: user.to_owned(), password: password.into() }),
        pem::PemKind::Complete => Ok(Login::Certificate { certificate: user.to_owned(), key: password.into() }),
        pem::PemKind::Broken => Err("its user name begins like a PEM certificate and is none".to_owned()),
    }
}

/// Builds a login from unchanged user name and password. Rejects a PEM text as user name; see [`pair`].
fn basic_auth(user: &[u8], password: &[u8], problems: &mut Vec<String>) -> Result<Login, String> {
    let [user, password] = [("username", user), ("password", password)].map(|(key, value)| {
        let text =
            std::str::from_utf8(value).map_err(|_| format!("the value of its key {key:?} is not text in UTF-8"))?;
        if text.ends_with(['\n', '\r']) {
            problems.push(format!("the value of {key:?} ends in a line break, which is kept as part of it"));
        }
        Ok::<_, String>(text)
    });
    let (user, password) = (user?, password?);
    match pem::kind_of(user) {
        pem::PemKind::No => Ok(Login::Password { user: user.to_owned(), password: password.into() }),
        pem::PemKind::Complete | pem::PemKind::Broken => {
            Err("its user name is a PEM text; expected is the name of an NSX user".to_owned())
        }
    }
}

/// Returns the value as text without one trailing newline; `None` if the value is empty or not UTF-8.
fn text<'a>(key: &str, value: &'a [u8], problems: &mut Vec<String>) -> Option<&'a str> {
    let Ok(text) = std::str::from_utf8(value) else {
        problems.push(format!("the value of {:?} is not text in UTF-8 and does not count", cut("", key)));
        return None;
    };
    let text = text.strip_suffix('\n').unwrap_or(text);
    if text.ends_with(['\n', '\r']) && pem::kind_of(text) == pem::PemKind::No {
        let odd = "ends in a line break, which is kept as part of it: only one newline is cut off";
        problems.push(format!("the value of {:?} {odd}", cut("", key)));
    }
    Some(text).filter(|text| !text.is_empty())
}

fn unknown(key: &str) -> String {
    let small = key.to_ascii_lowercase();
    let hint = match SourceKey::parse(&small) {
        Some(_) => " (upper and lower case count)",
        None => "",
    };
    format!(
        "{:?} is not known{hint}; expected <server>.username and <server>.password, or server_<id>, username_<id> and \
         password_<id>",
        cut("", key)
    )
}

/// Cuts a name for a message to `SHOWN` characters.
pub(super) fn cut(prefix: &str, name: &str) -> String {
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{prefix}{}…", name.get(..end).unwrap_or_default()),
        None => format!("{prefix}{name}"),
    }
}

#[cfg(test)]
mod tests;
