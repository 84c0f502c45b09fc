//! Pure: the checks of what the account sees of NSX: permissions, the objects that the configuration names, and what is
//! left of addresses and capacity.

use super::CheckResult;
use super::catalogue::CheckId;
use crate::app::reports::text::count;
use crate::providers::vsphere::nsx::inspection::{
    CapacityFacts, ConfiguredObjectFacts, ConfiguredObjectState, ListFacts, NsxInspection, PoolFacts, PoolUsage,
    ReadFailure,
};
use crate::providers::vsphere::nsx::load_balancer::backend::Usage;
use std::collections::BTreeSet;

/// The checks of this file.
const IDS: [CheckId; 3] = [CheckId::X03, CheckId::X04, CheckId::X05];

/// Number of free addresses of an IP pool up to which the check warns.
const FEW_ADDRESSES: u64 = 2;

/// Percentage of the capacity in use from which on the check warns.
const NEARLY_FULL: usize = 90;

/// What is known of NSX's objects.
#[derive(Clone, Debug, PartialEq)]
pub enum InspectionFacts {
    /// NSX is not configured.
    NotConfigured,
    /// Another process leads, and uses NSX.
    Standby,
    /// There is no login.
    NotLoggedIn,
    /// NSX was not read within the time limit, in seconds.
    Late(u64),
    /// What was read.
    Read(Box<NsxInspection>),
}

/// Runs the checks. `subject` is NSX, such as `NSX nsx.example.com:443`.
pub fn resources(subject: &str, facts: &InspectionFacts) -> Vec<CheckResult> {
    match facts {
        InspectionFacts::NotConfigured => IDS.map(|id| CheckResult::skipped(id, "", "NSX is not configured")).into(),
        InspectionFacts::Standby => {
            IDS.map(|id| CheckResult::incomplete(id, subject, "only the leader uses NSX")).into()
        }
        InspectionFacts::NotLoggedIn => IDS.map(|id| CheckResult::needs(id, subject, CheckId::X02)).into(),
        InspectionFacts::Late(seconds) => {
            IDS.map(|id| CheckResult::incomplete(id, subject, format!("NSX was not read within {seconds} s"))).into()
        }
        InspectionFacts::Read(inspection) => {
            let mut results = lists(subject, &inspection.lists);
            results.extend(configured(subject, &inspection.configured));
            results.extend(room(subject, &inspection.pools, inspection.capacity.as_ref()));
            results
        }
    }
}

fn lists(subject: &str, lists: &[ListFacts]) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::X03;
    if lists.is_empty() {
        return vec![CheckResult::skipped(ID, subject, "vsphere.conf has neither load balancers nor routes")];
    }
    let finding = |ListFacts { kind, path, result }: &ListFacts| match result {
        Ok(()) => None,
        Err(ReadFailure::NoPermission(reason)) => {
            let message = format!("the account may not list objects of the kind {kind} ({path}): {reason}");
            Some(CheckResult::failed(ID, subject, message).with_remedy(
                "give the account a role that may read and write these objects: NSX Manager > System > User Management",
            ))
        }
        Err(ReadFailure::Failed(reason)) => Some(CheckResult::incomplete(ID, subject, format!("{path}: {reason}"))),
    };
    let mut results: Vec<CheckResult> = lists.iter().filter_map(finding).collect();
    if results.is_empty() {
        // Each IP pool has a list of its own.
        let kinds: BTreeSet<&str> = lists.iter().map(|list| list.kind).collect();
        let message = format!(
            "the account lists each of {}; whether it may also write them shows only at the first change",
            count(kinds.len(), "kind")
        );
        results.push(CheckResult::passed(ID, subject, message));
    }
    results
}

fn configured(subject: &str, objects: &[ConfiguredObjectFacts]) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::X04;
    if objects.is_empty() {
        return vec![CheckResult::skipped(ID, subject, "vsphere.conf names no object of NSX")];
    }
    let mut results: Vec<CheckResult> = objects.iter().filter_map(|object| misconfigured(subject, object)).collect();
    if results.is_empty() {
        let message = format!("{} of vsphere.conf, each there once", count(objects.len(), "object"));
        results.push(CheckResult::passed(ID, subject, message));
    }
    results
}

fn misconfigured(
    subject: &str,
    ConfiguredObjectFacts { object, state }: &ConfiguredObjectFacts,
) -> Option<CheckResult> {
    const ID: CheckId = CheckId::X04;
    match state {
        Ok(ConfiguredObjectState::Usable) => None,
        Ok(ConfiguredObjectState::Missing) => {
            let message = format!("{object} does not exist, or the account does not see it");
            Some(CheckResult::failed(ID, subject, message).with_remedy("correct the name, id or path in vsphere.conf"))
        }
        Ok(ConfiguredObjectState::Several(number)) => {
            let message = format!("{object} is the name of {number} objects");
            Some(
                CheckResult::failed(ID, subject, message).with_remedy("use the id or the path in vsphere.conf instead"),
            )
        }
        Ok(ConfiguredObjectState::NoEdgeCluster) => {
            let message = format!("{object} has no edge cluster, so no load balancer runs on it");
            let remedy = "NSX Manager > Networking > Tier-1 Gateways: select an edge cluster for the gateway";
            Some(CheckResult::failed(ID, subject, message).with_remedy(remedy))
        }
        Ok(ConfiguredObjectState::NotAdvertised) => {
            let message = format!("{object} does not advertise the addresses of load balancers");
            let remedy = "NSX Manager > Networking > Tier-1 Gateways > Route Advertisement: All LB VIP Routes";
            Some(CheckResult::warning(ID, subject, message).with_remedy(remedy))
        }
        Err(ReadFailure::NoPermission(reason) | ReadFailure::Failed(reason)) => {
            Some(CheckResult::incomplete(ID, subject, format!("{object}: {reason}")))
        }
    }
}

fn room(subject: &str, pools: &[PoolFacts], capacity: Option<&CapacityFacts>) -> Vec<CheckResult> {
    const ID: CheckId = CheckId::X05;
    if pools.is_empty() && capacity.is_none() {
        return vec![CheckResult::skipped(ID, subject, "there is no IP pool and no load balancer service to check")];
    }
    let mut results: Vec<CheckResult> = pools.iter().map(|pool| addresses(subject, pool)).collect();
    results.extend(capacity.map(|capacity| load_balancer_service(subject, capacity)));
    results
}

fn addresses(subject: &str, PoolFacts { pool, usage }: &PoolFacts) -> CheckResult {
    const ID: CheckId = CheckId::X05;
    let remedy = "NSX Manager > Networking > IP Address Pools: add a range, or delete Services that are not needed";
    match usage {
        Ok(Some(PoolUsage { total, available })) => {
            let message = format!("IP pool {pool}: {available} of {total} addresses are free");
            match available {
                0 => CheckResult::failed(ID, subject, message).with_remedy(remedy),
                available if *available <= FEW_ADDRESSES => {
                    CheckResult::warning(ID, subject, message).with_remedy(remedy)
                }
                _ => CheckResult::passed(ID, subject, message),
            }
        }
        Ok(None) => CheckResult::skipped(ID, subject, format!("this NSX does not report the usage of IP pool {pool}")),
        Err(ReadFailure::NoPermission(reason) | ReadFailure::Failed(reason)) => {
            CheckResult::incomplete(ID, subject, format!("IP pool {pool}: {reason}"))
        }
    }
}

fn load_balancer_service(subject: &str, CapacityFacts { lb_service, usage }: &CapacityFacts) -> CheckResult {
    const ID: CheckId = CheckId::X05;
    let remedy = "NSX Manager > Networking > Load Balancing: use a larger size; docs/nsx/use.md has the limits";
    match usage {
        Ok(Some(usage)) => {
            let parts: Vec<String> = Usage::parts(usage)
                .into_iter()
                .filter(|(_, _, allowed)| *allowed > 0)
                .map(|(kind, used, allowed)| format!("{used} of {allowed} {kind}"))
                .collect();
            let message = format!("{lb_service}: {}", parts.join(", "));
            let fullest = Usage::parts(usage).into_iter().filter(|(_, _, allowed)| *allowed > 0);
            let fullest =
                fullest.map(|(_, used, allowed)| used.saturating_mul(100) / allowed).max().unwrap_or_default();
            match fullest {
                100.. => CheckResult::failed(ID, subject, message).with_remedy(remedy),
                NEARLY_FULL.. => CheckResult::warning(ID, subject, message).with_remedy(remedy),
                _ => CheckResult::passed(ID, subject, message),
            }
        }
        Ok(None) => CheckResult::skipped(ID, subject, format!("NSX does not report the usage of {lb_service}")),
        Err(ReadFailure::NoPermission(reason) | ReadFailure::Failed(reason)) => {
            CheckResult::incomplete(ID, subject, format!("{lb_service}: {reason}"))
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::app::reports::check::CheckStatus::{self, Failed, Incomplete, Passed, Skipped, Warning};

    const NSX: &str = "NSX nsx:443";

    fn statuses(id: CheckId, inspection: NsxInspection) -> Vec<CheckStatus> {
        let results = resources(NSX, &InspectionFacts::Read(Box::new(inspection)));
        results.into_iter().filter(|result| result.id == id).map(|result| result.status).collect()
    }

    /// Returns the results about what was read, after this change of an empty inspection.
    pub(in crate::app::reports::check) fn read(change: impl FnOnce(&mut NsxInspection)) -> Vec<CheckResult> {
        let mut inspection = NsxInspection::default();
        change(&mut inspection);
        resources(NSX, &InspectionFacts::Read(Box::new(inspection)))
    }

    fn denied<T>() -> Result<T, ReadFailure> {
        Err(ReadFailure::NoPermission("403".to_owned()))
    }

    fn silent<T>() -> Result<T, ReadFailure> {
        Err(ReadFailure::Failed("no answer".to_owned()))
    }

    #[test]
    fn each_kind_of_objects_has_to_be_listed() {
        let list = |result| ListFacts { kind: "pool", path: "/infra/lb-pools".to_owned(), result };
        for (lists, expected) in [
            (vec![], vec![Skipped]),
            (vec![list(Ok(())), list(Ok(()))], vec![Passed]),
            (vec![list(Ok(())), list(denied())], vec![Failed]),
            (vec![list(silent()), list(denied())], vec![Incomplete, Failed]),
        ] {
            let inspection = NsxInspection { lists: lists.clone(), ..NsxInspection::default() };
            assert_eq!(statuses(CheckId::X03, inspection), expected, "{lists:?}");
        }
        let passed = super::lists(NSX, &[list(Ok(())), list(Ok(()))]);
        assert!(passed[0].message.starts_with("the account lists each of 1 kind;"), "{passed:?}");
        assert!(passed[0].message.contains("shows only at the first change"), "what is not tested is said");
    }

    #[test]
    fn each_configured_object_has_to_exist_once_and_be_usable() {
        let of = |state| ConfiguredObjectFacts { object: "IP pool \"k8s\" (by name)".to_owned(), state };
        for (objects, expected) in [
            (vec![], vec![Skipped]),
            (vec![of(Ok(ConfiguredObjectState::Usable)), of(Ok(ConfiguredObjectState::Usable))], vec![Passed]),
            (vec![of(Ok(ConfiguredObjectState::Usable)), of(Ok(ConfiguredObjectState::Missing))], vec![Failed]),
            (vec![of(Ok(ConfiguredObjectState::Several(2)))], vec![Failed]),
            (vec![of(Ok(ConfiguredObjectState::NoEdgeCluster))], vec![Failed]),
            (vec![of(Ok(ConfiguredObjectState::NotAdvertised))], vec![Warning]),
            (vec![of(denied()), of(silent())], vec![Incomplete, Incomplete]),
        ] {
            let inspection = NsxInspection { configured: objects.clone(), ..NsxInspection::default() };
            assert_eq!(statuses(CheckId::X04, inspection), expected, "{objects:?}");
        }
    }

    #[test]
    fn addresses_and_capacity_warn_before_they_are_used_up() {
        let pool = |usage| PoolFacts { pool: "p".to_owned(), usage };
        let free = |available| pool(Ok(Some(PoolUsage { total: 10, available })));
        for (pools, expected) in [
            (vec![], vec![Skipped]),
            (vec![free(3)], vec![Passed]),
            (vec![free(2), free(0)], vec![Warning, Failed]),
            (vec![pool(Ok(None)), pool(silent())], vec![Skipped, Incomplete]),
        ] {
            let inspection = NsxInspection { pools: pools.clone(), ..NsxInspection::default() };
            assert_eq!(statuses(CheckId::X05, inspection), expected, "{pools:?}");
        }
        let lb_service = || "/infra/lb-services/a".to_owned();
        for (usage, expected) in [
            (Ok(Some(Usage::new((17, 20), (10, 60), (0, 300)))), Passed),
            (Ok(Some(Usage::new((18, 20), (10, 60), (0, 300)))), Warning),
            (Ok(Some(Usage::new((1, 20), (60, 60), (0, 300)))), Failed),
            (Ok(Some(Usage::new((1, 0), (60, 0), (0, 0)))), Passed),
            (Ok(None), Skipped),
            (denied(), Incomplete),
        ] {
            let capacity = Some(CapacityFacts { lb_service: lb_service(), usage: usage.clone() });
            let inspection = NsxInspection { capacity, ..NsxInspection::default() };
            assert_eq!(statuses(CheckId::X05, inspection), [expected], "{usage:?}");
        }
    }

    #[test]
    fn what_was_not_read_is_never_passed() {
        for (facts, expected) in [
            (InspectionFacts::NotConfigured, Skipped),
            (InspectionFacts::Standby, Incomplete),
            (InspectionFacts::NotLoggedIn, Skipped),
            (InspectionFacts::Late(20), Incomplete),
        ] {
            let found: Vec<CheckStatus> = resources(NSX, &facts).into_iter().map(|result| result.status).collect();
            assert_eq!(found, [expected; 3], "{facts:?}");
        }
    }
}
