//! Pure: a vCenter entry and what is known of its sources → what it has to log in with.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use secrecy::ExposeSecret;

use super::layout;
use super::source::{Answer, Place, Source};
use super::{Credential, Login, Offer, Origin};
use crate::providers::vsphere::config::{Credentials, Vcenter};

/// The sources that an entry asks for, most important first. An entry without a pair of its own also looks into
/// `default_directory`, where its other sources have nothing.
pub fn places(entry: &Vcenter, default_directory: &Path) -> Vec<Place> {
    let mut places: Vec<_> = stored(entry).cloned().collect();
    let default = Place::Directory(default_directory.to_owned());
    if inline(entry).is_none() && !places.contains(&default) {
        places.push(default);
    }
    places
}

/// What an entry has to log in with. The pair of the file first, as in `connectionmanager.go:Connect`; nothing before
/// every source that counts was looked at.
pub fn offer(entry: &Vcenter, default_directory: &Path, sources: &BTreeMap<Place, Source>) -> Offer {
    let mut ready: Vec<Arc<Credential>> = Vec::new();
    let mut missing = Vec::new();
    let mut failing = Vec::new();
    if let Some(pair) = inline(entry) {
        match pair {
            Ok(login) => ready.push(Arc::new(Credential { login, origin: Origin::Config })),
            Err(why) => missing.push(format!("the pair of the cloud config: {why}")),
        }
    }
    let default = Place::Directory(default_directory.to_owned());
    let is_configured = stored(entry).any(|place| *place == default);
    for place in places(entry, default_directory) {
        let is_default = place == default && !is_configured;
        if is_default && !ready.is_empty() {
            break;
        }
        let answer = sources.get(&place).map_or(Answer::Unread, |source| source.find(&entry.server, &place));
        match answer {
            Answer::Unread => return Offer::Pending { why: format!("{place} has not been read yet") },
            Answer::Found(credential) if ready.iter().any(|other| other.login == credential.login) => {}
            Answer::Found(credential) => ready.push(credential),
            Answer::Failing(why) => failing.push(why),
            // Nobody asked for the default directory, so nobody misses it.
            Answer::Missing(_) if is_default => {}
            Answer::Missing(why) => missing.push(why),
        }
    }
    match (ready.is_empty(), failing.is_empty()) {
        (false, _) => Offer::Ready(ready),
        (true, false) => Offer::Pending { why: failing.join("; ") },
        (true, true) => Offer::Missing { why: missing.join("; ") },
    }
}

fn configured(entry: &Vcenter) -> impl Iterator<Item = &Credentials> {
    [Some(&entry.credentials), entry.fallback_credentials.as_ref()].into_iter().flatten()
}

fn stored(entry: &Vcenter) -> impl Iterator<Item = &Place> {
    configured(entry).filter_map(|credentials| match credentials {
        Credentials::Inline { .. } => None,
        Credentials::Stored(place) => Some(place),
    })
}

fn inline(entry: &Vcenter) -> Option<Result<Login, String>> {
    configured(entry).find_map(|credentials| match credentials {
        Credentials::Inline { user, password } => Some(layout::pair(user, password.expose_secret())),
        Credentials::Stored(_) => None,
    })
}

#[cfg(test)]
mod tests;
