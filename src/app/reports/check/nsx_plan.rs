//! Pure: the check of held objects and orphans by a command without a daemon, from the plan of a new leader.

use super::CheckResult;
use super::catalogue::CheckId;
use crate::app::reports::plan::{ChangeKind, ObjectPlan, PartState, PlanPart, PlannedChange};
use crate::app::reports::text::count;

/// The check of this file.
const ID: CheckId = CheckId::X07;

/// The field of the plan for a load balancer whose Service does not exist.
pub const ORPHAN: &str = "orphan";

/// What a new leader would do in NSX, and what it would leave alone.
#[derive(Clone, Debug, PartialEq)]
pub struct NsxPlanFacts {
    /// The plan for the load balancers.
    pub load_balancers: PlanPart,
    /// The plan for the routes.
    pub routes: PlanPart,
    /// Number of objects that name this cluster and are not known to be its objects; `None` before the first list.
    pub ambiguous_objects: Option<usize>,
    /// Number of deleted Services that still have load balancers; `None` before the first list.
    pub orphans: Option<usize>,
}

/// Returns what holds load balancers and routes, and what was not read. `subject` is NSX, such as
/// `NSX nsx.example.com:443`.
pub fn findings(subject: &str, facts: &NsxPlanFacts) -> Vec<CheckResult> {
    let parts = [("Service", &facts.load_balancers), ("route", &facts.routes)];
    parts.into_iter().flat_map(|(kind, part)| of_part(subject, kind, part)).collect()
}

fn of_part(subject: &str, kind: &str, part: &PlanPart) -> Vec<CheckResult> {
    match part.state {
        PartState::Off => return Vec::new(),
        PartState::Unknown => {
            return vec![CheckResult::incomplete(ID, subject, part.message.clone().unwrap_or_default())];
        }
        PartState::Planned => {}
    }
    let mut found: Vec<CheckResult> = part.objects.iter().filter_map(|object| of_object(kind, object)).collect();
    if part.omitted > 0 {
        let message = format!("{} more need something, and are not in the plan", count(part.omitted, kind));
        found.push(CheckResult::incomplete(ID, subject, message));
    }
    found
}

fn of_object(kind: &str, object: &ObjectPlan) -> Option<CheckResult> {
    let subject = format!("{kind} {}", object.name);
    let first = |wanted: ChangeKind| object.changes.iter().find(|change| change.kind == wanted);
    match (first(ChangeKind::Hold), first(ChangeKind::Unknown)) {
        // Orphans are counted.
        (Some(hold), _) if hold.field == ORPHAN => None,
        (Some(hold), _) => {
            let result = CheckResult::failed(ID, &subject, format!("held: {}", why(hold)));
            Some(match &hold.reason {
                Some(reason) => result.with_remedy(format!("see docs/reasons.md#{}", reason.to_lowercase())),
                None => result,
            })
        }
        (None, Some(unknown)) => Some(CheckResult::incomplete(ID, &subject, why(unknown))),
        (None, None) => None,
    }
}

/// Returns reason and message of a change.
fn why(change: &PlannedChange) -> String {
    let parts: Vec<&str> = [&change.reason, &change.message].into_iter().flatten().map(String::as_str).collect();
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::check::CheckStatus::{self, Failed, Incomplete};
    use crate::app::reports::plan::PlanPartBuilder;

    fn part(changes: Vec<(&str, PlannedChange)>) -> PlanPart {
        let mut part = PlanPartBuilder::default();
        for (name, change) in changes {
            let mut object = ObjectPlan::new(name);
            object.add(change);
            part.add(object);
        }
        part.build()
    }

    fn statuses(load_balancers: PlanPart, routes: PlanPart) -> Vec<(String, CheckStatus)> {
        let facts = NsxPlanFacts { load_balancers, routes, ambiguous_objects: Some(0), orphans: Some(0) };
        findings("NSX nsx:443", &facts).into_iter().map(|result| (result.subject, result.status)).collect()
    }

    #[test]
    fn held_objects_fail_and_changes_are_no_finding() {
        let hold = |field: &str| PlannedChange::new(ChangeKind::Hold, field).with_reason("NSXRefused");
        let balancers = part(vec![
            ("shop/held", hold("load balancer")),
            ("shop/gone", hold(ORPHAN)),
            ("shop/read", PlannedChange::new(ChangeKind::Unknown, "next step")),
            ("shop/changed", PlannedChange::new(ChangeKind::Update, "next step")),
        ]);
        let routes = part(vec![("10.244.7.0/24", hold("route to worker-7"))]);
        let expected =
            [("Service shop/held", Failed), ("Service shop/read", Incomplete), ("route 10.244.7.0/24", Failed)];
        assert_eq!(statuses(balancers, routes), expected.map(|(subject, status)| (subject.to_owned(), status)));
    }

    #[test]
    fn a_part_that_was_not_read_is_not_known_and_one_that_is_off_is_no_finding() {
        let found = statuses(PlanPart::unknown("the objects in NSX could not be listed"), PlanPart::off("no routes"));
        assert_eq!(found, [("NSX nsx:443".to_owned(), Incomplete)]);
    }
}
