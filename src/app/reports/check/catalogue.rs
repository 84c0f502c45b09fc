//! Pure: the table of all checks. Each check has a section in `docs/checks.md`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The page with a section for each check.
const PAGE: &str = "docs/checks.md";

/// A check. The letter names the subject, the number never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "CHECKS has the title of each check")]
pub enum CheckId {
    K02,
    K04,
    K05,
    K07,
    K09,
    K10,
    C01,
    C02,
    C03,
    C05,
    C07,
    C08,
    N01,
    N02,
    N03,
    N04,
    N05,
    A02,
    A03,
    P01,
    P02,
    P04,
    V01,
    V02,
    V05,
    V06,
    Z02,
    D01,
    X01,
    X02,
    X03,
    X04,
    X05,
    X06,
    X07,
}

/// A group of checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckGroup {
    /// The API server, the election, and the kubelets of the Nodes.
    Kubernetes,
    /// `vsphere.conf` and the sources of credentials.
    Configuration,
    /// Network and TLS, from the place where the process runs.
    Network,
    /// The accounts, and their permissions in vCenter.
    Account,
    /// Nodes, zones and deletion.
    Nodes,
    /// NSX.
    Nsx,
}

/// All checks in the order of the report, each with its group and title.
pub const CHECKS: [(CheckId, CheckGroup, &str); 35] = [
    (CheckId::K02, CheckGroup::Kubernetes, "the service account has all permissions"),
    (CheckId::K04, CheckGroup::Kubernetes, "one process holds the Lease and renews it"),
    (CheckId::K05, CheckGroup::Kubernetes, "no second cloud controller manager runs"),
    (CheckId::K07, CheckGroup::Kubernetes, "the Pods of the program run"),
    (CheckId::K09, CheckGroup::Kubernetes, "kubelets run with --cloud-provider=external"),
    (CheckId::K10, CheckGroup::Kubernetes, "no Node belongs to another cloud provider"),
    (CheckId::C01, CheckGroup::Configuration, "vsphere.conf has no errors"),
    (CheckId::C02, CheckGroup::Configuration, "the configuration in effect is that of the file"),
    (CheckId::C03, CheckGroup::Configuration, "each key of vsphere.conf has an effect"),
    (CheckId::C05, CheckGroup::Configuration, "there are credentials for each server"),
    (CheckId::C07, CheckGroup::Configuration, "the configured datacenters exist"),
    (CheckId::C08, CheckGroup::Configuration, "the configured networks and subnets are those of VMs"),
    (CheckId::N01, CheckGroup::Network, "the host name of each vCenter is resolved"),
    (CheckId::N02, CheckGroup::Network, "each vCenter answers"),
    (CheckId::N03, CheckGroup::Network, "the certificate of each server is verified"),
    (CheckId::N04, CheckGroup::Network, "no certificate expires soon"),
    (CheckId::N05, CheckGroup::Network, "each configured server is a vCenter"),
    (CheckId::A02, CheckGroup::Account, "logins are not paused"),
    (CheckId::A03, CheckGroup::Account, "each vCenter accepts the login"),
    (CheckId::P01, CheckGroup::Account, "the account reads the root folder and the datacenters"),
    (CheckId::P02, CheckGroup::Account, "the account reads the VM of each Node and the objects above it"),
    (CheckId::P04, CheckGroup::Account, "the account reads the tags of zones and regions"),
    (CheckId::V01, CheckGroup::Nodes, "the VM of each Node is found"),
    (CheckId::V02, CheckGroup::Nodes, "the provider ID of each Node names the VM on which the Node runs"),
    (CheckId::V05, CheckGroup::Nodes, "VMware Tools runs in each VM"),
    (CheckId::V06, CheckGroup::Nodes, "each VM reports addresses that the rules allow"),
    (CheckId::Z02, CheckGroup::Nodes, "each VM has a zone and a region"),
    (CheckId::D01, CheckGroup::Nodes, "Nodes whose VMs are gone are deleted, within the limits"),
    (CheckId::X01, CheckGroup::Nsx, "NSX answers, and its certificate is verified"),
    (CheckId::X02, CheckGroup::Nsx, "NSX accepts the login"),
    (CheckId::X03, CheckGroup::Nsx, "the account lists each kind of object in NSX"),
    (CheckId::X04, CheckGroup::Nsx, "each object of NSX that vsphere.conf names exists once"),
    (CheckId::X05, CheckGroup::Nsx, "addresses and capacity are left"),
    (CheckId::X06, CheckGroup::Nsx, "the cluster has a name of its own in NSX"),
    (CheckId::X07, CheckGroup::Nsx, "no load balancer or route is held, and none is left over"),
];

impl CheckGroup {
    /// Returns the title.
    pub fn title(self) -> &'static str {
        match self {
            CheckGroup::Kubernetes => "Kubernetes",
            CheckGroup::Configuration => "configuration",
            CheckGroup::Network => "network and TLS",
            CheckGroup::Account => "accounts and permissions",
            CheckGroup::Nodes => "Nodes, zones and deletion",
            CheckGroup::Nsx => "NSX",
        }
    }
}

impl CheckId {
    fn row(self) -> Option<(CheckGroup, &'static str)> {
        let row = CHECKS.iter().find(|(id, ..)| *id == self);
        row.map(|(_, group, title)| (*group, *title))
    }

    /// Returns the title.
    pub fn title(self) -> &'static str {
        self.row().map_or("", |(_, title)| title)
    }

    /// Returns the group.
    pub fn group(self) -> CheckGroup {
        self.row().map_or(CheckGroup::Kubernetes, |(group, _)| group)
    }

    /// Returns the page and the anchor of the section about the check.
    pub fn page(self) -> String {
        format!("{PAGE}#{}", self.to_string().to_lowercase())
    }
}

impl fmt::Display for CheckId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const TEXT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/checks.md"));

    #[test]
    fn the_page_has_a_section_for_each_check_and_no_other() {
        let ids: Vec<String> = CHECKS.iter().map(|(id, ..)| id.to_string()).collect();
        let sections: Vec<&str> = TEXT.split("\n## ").skip(1).collect();
        let headings: Vec<&str> = sections.iter().filter_map(|section| section.lines().next()).collect();
        assert_eq!(headings, ids, "in the order of the report");
        for (section, (id, _, title)) in sections.iter().zip(CHECKS) {
            let text = section.to_lowercase().replace('`', "");
            let title = title.to_lowercase();
            assert!(text.contains(&title), "{id}: the section does not contain {title:?}");
            assert!(section.contains("Remedy"), "{id}: the section has no remedy");
        }
        assert_eq!(CheckId::K04.page(), "docs/checks.md#k04");
    }

    #[test]
    fn each_check_is_once_in_the_table_and_the_table_is_ordered_by_groups() {
        let ids: BTreeSet<CheckId> = CHECKS.iter().map(|(id, ..)| *id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        assert!(CHECKS.is_sorted_by_key(|(id, ..)| *id), "the order of the enumeration is the order of the report");
        let mut groups: Vec<CheckGroup> = CHECKS.iter().map(|(_, group, _)| *group).collect();
        groups.dedup();
        assert_eq!(groups.len(), 6, "each group is in one place: {groups:?}");
        // The serialized id is the text of the id.
        assert_eq!(serde_json::to_value(CheckId::X07).unwrap(), CheckId::X07.to_string());
    }
}
