//! Pure: the parties that act because of a reason, in the words of all explanations.

use crate::cloud::Reason;
use crate::controllers::node::reason as controller;
use crate::providers::vsphere::reason;

/// The VMware administrator.
pub(super) const VSPHERE: &str = "the administrator of vSphere";
/// The administrator of NSX.
pub(super) const NSX: &str = "the administrator of NSX";
/// The Kubernetes administrator, who also configures this program.
pub(super) const CLUSTER: &str = "the administrator of the cluster";
/// The administrator of the VM's operating system.
pub(super) const GUEST: &str = "the administrator of the VM's operating system";
/// The user who created a Service.
pub(super) const SERVICE_OWNER: &str = "the owner of the Service";
/// No person, because the reason ends without one.
pub(super) const NOBODY: &str = "no one: it passes by itself";

/// The actors by reason of a Node, also of one that is not deleted. Further reasons are for [`CLUSTER`].
const OF_NODES: &[(Reason, &str)] = &[
    (reason::LookupPending, NOBODY),
    (reason::CloudUnavailable, NOBODY),
    (controller::ProviderTimeout, NOBODY),
    (controller::WriteConflict, NOBODY),
    (reason::VMNotFound, VSPHERE),
    (reason::InstanceNotFound, VSPHERE),
    (reason::SeveralVMsMatch, VSPHERE),
    (reason::VMNotReadable, VSPHERE),
    (reason::NoPermission, VSPHERE),
    (reason::PowerStateUnknown, VSPHERE),
    (reason::VMPoweredOff, VSPHERE),
    (reason::NoZoneTags, VSPHERE),
    (reason::ZoneUnknown, VSPHERE),
    (reason::InvalidTagName, VSPHERE),
    (reason::HostGone, VSPHERE),
    (reason::HostNotConnected, VSPHERE),
    (reason::LocationUnknown, VSPHERE),
    (reason::ToolsNotRunning, GUEST),
    (reason::NoGuestNics, GUEST),
    (reason::NoUsableAddress, GUEST),
    (reason::NoAddressOfFamily, GUEST),
    (reason::NoNetworkMatches, GUEST),
    (controller::NoAddresses, GUEST),
];

/// Returns the actor for a reason of a Node, also of one that is not deleted.
pub(super) fn of_node(reason: Reason) -> &'static str {
    OF_NODES.iter().find(|(of, _)| *of == reason).map_or(CLUSTER, |(_, actor)| *actor)
}

/// Returns the actors of the table of `docs/reasons.md`, as (reason, actors, group). Guests and Services are the cluster's
/// there.
#[cfg(test)]
pub(super) fn documented() -> Vec<(&'static str, Vec<&'static str>, &'static str)> {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reasons.md"));
    let mut group = "";
    let mut rows = Vec::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, reason, _, actors, _, _] = cells[..] else { continue };
        if let Some(title) = reason.strip_prefix("**") {
            group = title.trim_end_matches('*');
        } else if let Some((word, _)) = reason.strip_prefix('[').and_then(|link| link.split_once(']')) {
            rows.push((word, actors.split(", ").collect(), group));
        }
    }
    assert!(rows.len() > 60, "the table has only {} rows", rows.len());
    rows
}

/// Panics if the table of `docs/reasons.md` names other actors for the reason.
#[cfg(test)]
pub(super) fn assert_documented(reason: &str, actor: &str) {
    let rows = documented();
    let (_, actors, _) = rows.iter().find(|(word, ..)| *word == reason).unwrap();
    let word = match actor {
        VSPHERE => "vSphere",
        NSX => "NSX",
        NOBODY => "no one",
        _ => "cluster",
    };
    assert!(actors.contains(&word), "{reason}: {actor:?} in the explanation, {actors:?} in docs/reasons.md");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_acts_for_nodes_is_the_same_as_in_the_table_of_the_reasons() {
        let groups = [
            "Searching for the VM",
            "Reaching vCenter",
            "Guest and addresses",
            "Zones and labels",
            "API server and this program",
        ];
        let rows = documented();
        let of_nodes: Vec<&str> =
            rows.iter().filter(|(_, _, group)| groups.contains(group)).map(|(word, ..)| *word).collect();
        assert!(of_nodes.len() > 35, "{of_nodes:?}");
        let further = OF_NODES.iter().map(|(reason, _)| reason.as_str());
        for word in of_nodes.into_iter().chain(further) {
            let actor = OF_NODES.iter().find(|(of, _)| *of == word).map_or(CLUSTER, |(_, actor)| *actor);
            assert_documented(word, actor);
        }
    }
}
