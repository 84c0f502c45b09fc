//! Pure: the table of all checks. Each check has a section in `docs/checks.md`.

use super::CheckStatus;
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

/// The findings of a check that warns and fails.
const BOTH: &[CheckStatus] = &[CheckStatus::Warning, CheckStatus::Failed];

/// The findings of a check that never warns.
const FAILURES: &[CheckStatus] = &[CheckStatus::Failed];

/// The findings of a check that never fails.
const WARNINGS: &[CheckStatus] = &[CheckStatus::Warning];

/// All checks in the order of the report, each with its group, its possible findings and its title. Each check can
/// pass, does not apply in some cluster, or is not known to some process.
pub const CHECKS: [(CheckId, CheckGroup, &[CheckStatus], &str); 35] = [
    (CheckId::K02, CheckGroup::Kubernetes, BOTH, "the service account has all permissions"),
    (CheckId::K04, CheckGroup::Kubernetes, BOTH, "one process holds the Lease and renews it"),
    (CheckId::K05, CheckGroup::Kubernetes, BOTH, "no second cloud controller manager runs"),
    (CheckId::K07, CheckGroup::Kubernetes, BOTH, "the Pods of the program run"),
    (CheckId::K09, CheckGroup::Kubernetes, BOTH, "kubelets run with --cloud-provider=external"),
    (CheckId::K10, CheckGroup::Kubernetes, BOTH, "no Node belongs to another cloud provider"),
    (CheckId::C01, CheckGroup::Configuration, FAILURES, "vsphere.conf has no errors"),
    (CheckId::C02, CheckGroup::Configuration, FAILURES, "the configuration in effect is that of the file"),
    (CheckId::C03, CheckGroup::Configuration, WARNINGS, "each key of vsphere.conf has an effect"),
    (CheckId::C05, CheckGroup::Configuration, FAILURES, "there are credentials for each server"),
    (CheckId::C07, CheckGroup::Configuration, FAILURES, "the configured datacenters exist"),
    (CheckId::C08, CheckGroup::Configuration, BOTH, "the configured networks and subnets are those of VMs"),
    (CheckId::N01, CheckGroup::Network, FAILURES, "the host name of each vCenter is resolved"),
    (CheckId::N02, CheckGroup::Network, FAILURES, "each vCenter answers"),
    (CheckId::N03, CheckGroup::Network, BOTH, "the certificate of each server is verified"),
    (CheckId::N04, CheckGroup::Network, BOTH, "no certificate expires soon"),
    (CheckId::N05, CheckGroup::Network, FAILURES, "each configured server is a vCenter"),
    (CheckId::A02, CheckGroup::Account, FAILURES, "logins are not paused"),
    (CheckId::A03, CheckGroup::Account, BOTH, "each vCenter accepts the login"),
    (CheckId::P01, CheckGroup::Account, BOTH, "the account reads the root folder and the datacenters"),
    (CheckId::P02, CheckGroup::Account, FAILURES, "the account reads the VM of each Node and the objects above it"),
    (CheckId::P04, CheckGroup::Account, FAILURES, "the account reads the tags of zones and regions"),
    (CheckId::V01, CheckGroup::Nodes, FAILURES, "the VM of each Node is found"),
    (CheckId::V02, CheckGroup::Nodes, BOTH, "the provider ID of each Node names the VM on which the Node runs"),
    (CheckId::V05, CheckGroup::Nodes, BOTH, "VMware Tools runs in each VM"),
    (CheckId::V06, CheckGroup::Nodes, BOTH, "each VM reports addresses that the rules allow"),
    (CheckId::Z02, CheckGroup::Nodes, BOTH, "each VM has a zone and a region"),
    (CheckId::D01, CheckGroup::Nodes, BOTH, "Nodes whose VMs are gone are deleted, within the limits"),
    (CheckId::X01, CheckGroup::Nsx, BOTH, "NSX answers, and its certificate is verified"),
    (CheckId::X02, CheckGroup::Nsx, BOTH, "NSX accepts the login"),
    (CheckId::X03, CheckGroup::Nsx, FAILURES, "the account lists each kind of object in NSX"),
    (CheckId::X04, CheckGroup::Nsx, BOTH, "each object of NSX that vsphere.conf names exists once"),
    (CheckId::X05, CheckGroup::Nsx, BOTH, "addresses and capacity are left"),
    (CheckId::X06, CheckGroup::Nsx, BOTH, "the cluster has a name of its own in NSX"),
    (CheckId::X07, CheckGroup::Nsx, BOTH, "no load balancer or route is held, and none is left over"),
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
    fn row(self) -> Option<&'static (CheckId, CheckGroup, &'static [CheckStatus], &'static str)> {
        CHECKS.iter().find(|(id, ..)| *id == self)
    }

    /// Returns the title.
    pub fn title(self) -> &'static str {
        self.row().map_or("", |(.., title)| title)
    }

    /// Returns the group.
    pub fn group(self) -> CheckGroup {
        self.row().map_or(CheckGroup::Kubernetes, |(_, group, ..)| *group)
    }

    /// Returns the findings that the check can have.
    pub fn findings(self) -> &'static [CheckStatus] {
        self.row().map_or(BOTH, |(_, _, findings, _)| findings)
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
        for (section, (id, _, findings, title)) in sections.iter().zip(CHECKS) {
            let text = section.to_lowercase().replace('`', "");
            let title = title.to_lowercase();
            assert!(text.contains(&title), "{id}: the section does not contain {title:?}");
            assert!(section.contains("Remedy"), "{id}: the section has no remedy");
            for (status, told) in [(CheckStatus::Warning, "never warns"), (CheckStatus::Failed, "never fails")] {
                assert_eq!(section.contains(told), !findings.contains(&status), "{id}: {told}");
            }
        }
        assert_eq!(CheckId::K04.page(), "docs/checks.md#k04");
    }

    #[test]
    fn each_check_is_once_in_the_table_and_the_table_is_ordered_by_groups() {
        let ids: BTreeSet<CheckId> = CHECKS.iter().map(|(id, ..)| *id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        assert!(CHECKS.is_sorted_by_key(|(id, ..)| *id), "the order of the enumeration is the order of the report");
        let mut groups: Vec<CheckGroup> = CHECKS.iter().map(|(_, group, ..)| *group).collect();
        groups.dedup();
        assert_eq!(groups.len(), 6, "each group is in one place: {groups:?}");
        // The serialized id is the text of the id.
        assert_eq!(serde_json::to_value(CheckId::X07).unwrap(), CheckId::X07.to_string());
    }
}
