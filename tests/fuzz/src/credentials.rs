//! Fuzz targets for Secrets and directories of credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use ccm::providers::vsphere::login::credentials::layout::{SessionManagers, StoredKeys};
use ccm::providers::vsphere::login::credentials::{Login, ReadToken};
use secrecy::SecretString;

use crate::laws::{SECRET, hides_secret};

/// A service account whose token is never read.
struct Account;

#[async_trait]
impl ReadToken for Account {
    async fn read(&self) -> Result<SecretString, String> {
        Err("nobody is asked".to_owned())
    }
}

/// Parses a Secret: lines of `key=value`, where `\n` in a value is a line break. The reported text contains no value.
pub fn secret(bytes: &[u8]) {
    let lines = bytes.split(|&byte| byte == b'\n');
    let entries: BTreeMap<String, Vec<u8>> = lines.filter_map(entry).collect();
    let managers = SessionManagers { account: Arc::new(Account), hosts: BTreeSet::new() };
    let pairs: Vec<(&str, Option<&[u8]>)> =
        entries.iter().map(|(key, value)| (key.as_str(), Some(value.as_slice()))).collect();
    let stored = StoredKeys::read(pairs.iter().copied(), &managers);
    assert!(stored.servers.len() <= entries.len(), "there are more servers than keys");
    assert!(stored.problems.len() <= 3 * entries.len(), "there are {} problems", stored.problems.len());
    let is_value = !entries.iter().any(|(key, value)| {
        // The server of the indexed layout is a value that may be reported.
        key.contains(SECRET) || (key.starts_with("server_") && String::from_utf8_lossy(value).contains(SECRET))
    });
    let wrong = stored.servers.values().filter_map(|login| login.as_ref().err());
    for told in stored.problems.iter().chain(wrong) {
        assert!(told.len() < 1024, "{} bytes are told: {told}", told.len());
        if is_value {
            hides_secret(told);
        }
    }
    let for_nsx = StoredKeys::read_basic_auth(entries.iter().map(|(key, value)| (key.as_str(), value.as_slice())));
    let wrong = for_nsx.servers.values().filter_map(|login| login.as_ref().err());
    for_nsx.problems.iter().chain(wrong).for_each(|told| hides_secret(told));
    for (server, login) in &stored.servers {
        assert!(!server.is_empty(), "a server has a name");
        if let Ok(Login::Password { user, .. }) = login {
            assert!(!user.is_empty() && !user.contains("-----BEGIN CERTIFICATE-----"), "that is no user: {user}");
        }
    }
    // A Secret is a map, so the order of its keys must not matter.
    let other = StoredKeys::read(pairs.iter().rev().copied(), &managers);
    let servers = |stored: &StoredKeys| format!("{:?}", stored.servers);
    assert_eq!(servers(&stored), servers(&other), "the order of the keys changes what is read");
}

fn entry(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let at = line.iter().position(|&byte| byte == b'=')?;
    let (key, value) = (line.get(..at)?, line.get(at + 1..)?);
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte == b'\\' && rest.next_if_eq(&b'n').is_some() {
            bytes.push(b'\n');
        } else {
            bytes.push(byte);
        }
    }
    Some((String::from_utf8(key.to_vec()).ok()?, bytes))
}
