//! Follows sources of credentials, and parses their contents in each layout in use.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};

use super::directory::{DirectoryReading, DirectoryWatcher};
use crate::cloud::login_ledger::SecretVersion;
use crate::kubernetes::secrets::{SecretState, watch_secret};
use crate::providers::vsphere::login::credentials::Origin;
use crate::providers::vsphere::login::credentials::layout::{KeyLayout, SessionManagers, StoredKeys, is_basic_auth};
use crate::providers::vsphere::login::credentials::source::{SourceLocation, SourceReading};

/// The new contents of a source.
pub(super) enum Observation {
    /// The state of a Secret.
    Secret(SecretState),
    /// The parsed outcome of a poll of a directory.
    Directory(SourceReading),
}

/// Watches a Secret or polls a directory, and yields each change.
pub(super) fn observe(
    location: &SourceLocation,
    secrets: &kube::Client,
    managers: &Arc<SessionManagers>,
) -> BoxStream<'static, Observation> {
    match location {
        SourceLocation::Secret { namespace, name } => {
            let (state, work) = watch_secret(secrets.clone(), namespace, name);
            stream::unfold((state, Box::pin(work)), async |(mut state, mut work)| {
                tokio::select! {
                    never = &mut work => match never {},
                    Ok(()) = state.changed() => {}
                }
                let newest = state.borrow_and_update().clone();
                Some((Observation::Secret(newest), (state, work)))
            })
            .boxed()
        }
        SourceLocation::Directory(path) => {
            let watcher = DirectoryWatcher::new(path.clone());
            let followed = (watcher, location.clone(), Arc::clone(managers));
            stream::unfold(followed, async |(mut watcher, location, managers)| {
                let reading = of_directory(&location, watcher.next().await, &managers);
                Some((Observation::Directory(reading), (watcher, location, managers)))
            })
            .boxed()
        }
    }
}

/// Parses a Secret in each layout in use; empty before the first read of the Secret.
pub(super) fn of_secret(
    location: &SourceLocation,
    state: &SecretState,
    layouts: &BTreeSet<KeyLayout>,
    managers: &SessionManagers,
) -> Vec<(KeyLayout, SourceReading)> {
    let is_shared = layouts.contains(&KeyLayout::BasicAuth);
    let read = |layout| match state {
        SecretState::Pending => None,
        SecretState::Failing(reason) => Some(SourceReading::Failing(reason.clone())),
        SecretState::Absent(why) => Some(SourceReading::Absent(why.clone())),
        SecretState::Read(version) => {
            let stored = match layout {
                KeyLayout::Vcenter => of_vcenters(version.entries(), is_shared, managers),
                KeyLayout::BasicAuth => StoredKeys::read_basic_auth(version.entries()),
            };
            let location = location.clone();
            let version =
                SecretVersion { uid: version.uid.clone(), resource_version: version.resource_version.clone() };
            Some(SourceReading::Read { stored, origin: Origin::Source { location, version: Some(version) } })
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

fn of_directory(location: &SourceLocation, observed: &DirectoryReading, managers: &SessionManagers) -> SourceReading {
    match observed {
        DirectoryReading::Failing(reason) => SourceReading::Failing(reason.clone()),
        DirectoryReading::Absent(why) => SourceReading::Absent(why.clone()),
        DirectoryReading::Files(files) => {
            let mut stored = StoredKeys::read(files.entries(), managers);
            stored.problems.extend(files.problems.iter().cloned());
            SourceReading::Read { stored, origin: Origin::Source { location: location.clone(), version: None } }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Tests of the reports about unknown keys.

    use super::super::AccountToken;
    use super::*;
    use std::path::PathBuf;

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
