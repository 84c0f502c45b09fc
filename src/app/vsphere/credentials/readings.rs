//! Follows sources of credentials, and parses their contents in each layout in use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::directory::{DirectoryReading, DirectoryWatcher};
use crate::cloud::login_ledger::SecretVersion;
use crate::kubernetes::secrets::SecretState;
use crate::providers::vsphere::login::credentials::Origin;
use crate::providers::vsphere::login::credentials::layout::{KeyLayout, SessionManagers, StoredKeys, is_basic_auth};
use crate::providers::vsphere::login::credentials::source::{Reading, SecretPlace, SourceLocation};

/// A message about one source.
pub(super) enum Observation {
    /// A Secret has changed. The newest state is in the watch of the Secret.
    Secret,
    /// The parsed outcome of a poll of a directory.
    Directory(Reading),
}

/// Sends a message at the start and for each change of a Secret, forever.
pub(super) async fn forward_changes(
    location: SourceLocation,
    mut state: watch::Receiver<SecretState>,
    observations: mpsc::Sender<(SourceLocation, Observation)>,
) {
    loop {
        state.mark_unchanged();
        hand_over(&location, Observation::Secret, &observations).await;
        if state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Polls a directory forever and sends each changed content.
pub(super) async fn follow_directory(
    path: PathBuf,
    managers: Arc<SessionManagers>,
    observations: mpsc::Sender<(SourceLocation, Observation)>,
) {
    let location = SourceLocation::Directory(path.clone());
    let mut directory = DirectoryWatcher::new(path.clone());
    loop {
        let reading = of_directory(&path, directory.next().await, &managers);
        hand_over(&location, Observation::Directory(reading), &observations).await;
    }
}

async fn hand_over(
    location: &SourceLocation,
    observation: Observation,
    observations: &mpsc::Sender<(SourceLocation, Observation)>,
) {
    // Cannot fail: the task that runs this future also owns the receiver.
    let _ = observations.send((location.clone(), observation)).await;
}

/// Parses a Secret in each layout in use; empty before the first read of the Secret.
pub(super) fn of_secret(
    secret: &SecretPlace,
    state: &SecretState,
    layouts: &BTreeSet<KeyLayout>,
    managers: &SessionManagers,
) -> Vec<(KeyLayout, Reading)> {
    let is_shared = layouts.contains(&KeyLayout::BasicAuth);
    let read = |layout| match state {
        SecretState::Pending => None,
        SecretState::Failing(reason) => Some(Reading::Failing(reason.clone())),
        SecretState::Absent(why) => Some(Reading::Absent(why.clone())),
        SecretState::Read(version) => {
            let stored = match layout {
                KeyLayout::Vcenter => of_vcenters(version.entries(), is_shared, managers),
                KeyLayout::BasicAuth => StoredKeys::read_basic_auth(version.entries()),
            };
            let location = SourceLocation::from(secret);
            let version =
                SecretVersion { uid: version.uid.clone(), resource_version: version.resource_version.clone() };
            Some(Reading::Read { stored, origin: Origin::Source { location, version: Some(version) } })
        }
    };
    layouts.iter().filter_map(|layout| Some((*layout, read(*layout)?))).collect()
}

/// Parses the keys for vCenters. If NSX uses the same Secret, the keys for NSX are not reported as unknown.
fn of_vcenters<'a>(
    entries: impl Iterator<Item = (&'a str, &'a [u8])>,
    is_shared: bool,
    managers: &SessionManagers,
) -> StoredKeys {
    let own = entries.filter(|(key, _)| !(is_shared && is_basic_auth(key)));
    StoredKeys::read(own.map(|(key, value)| (key, Some(value))), managers)
}

fn of_directory(path: &Path, observed: &DirectoryReading, managers: &SessionManagers) -> Reading {
    match observed {
        DirectoryReading::Failing(reason) => Reading::Failing(reason.clone()),
        DirectoryReading::Absent(why) => Reading::Absent(why.clone()),
        DirectoryReading::Files(files) => {
            let mut stored = StoredKeys::read(files.entries(), managers);
            stored.problems.extend(files.problems.iter().cloned());
            let location = SourceLocation::Directory(path.to_owned());
            Reading::Read { stored, origin: Origin::Source { location, version: None } }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the reports about unknown keys.

    use super::super::AccountToken;
    use super::*;

    #[test]
    fn the_keys_for_nsx_are_unknown_to_a_vcenter_unless_nsx_uses_the_same_secret() {
        let managers = SessionManagers { account: Arc::new(AccountToken(PathBuf::new())), hosts: BTreeSet::new() };
        let entries: [(&str, &[u8]); 5] =
            [("a.username", b"u"), ("a.password", b"p"), ("username", b"n"), ("password", b"p"), ("extra", b"x")];
        for (is_shared, expected) in [(false, 3), (true, 1)] {
            let stored = of_vcenters(entries.into_iter(), is_shared, &managers);
            assert_eq!(stored.problems.len(), expected, "{is_shared}: {:?}", stored.problems);
            assert!(stored.servers.values().all(Result::is_ok) && stored.servers.len() == 1, "{is_shared}");
        }
    }
}
