//! The announcement of each step of these tests: `plan` and `explain` name the step that comes next, its kind and its
//! changes, and applying the step does that and nothing else. The examples, the golden file and the properties are the
//! matrix of this comparison.

use super::super::super::families::FamilyLoadBalancer;
use super::super::super::ownership::ClassifiedResources;
use super::super::super::service_call::{CallObservation, FamilyTarget, PlannedStep, StepKind, planned};
use super::*;

/// Returns what the commands announce in this state.
pub(super) fn announced(all: &[(&DesiredLoadBalancer, CurrentState<'_>)]) -> PlannedStep {
    let Some((_, first)) = all.first() else { return planned(&[]) };
    let observation = CallObservation {
        classified: ClassifiedResources {
            owned: ServiceResources::default(),
            ambiguous: first.ambiguous.clone(),
            unresolved: Vec::new(),
        },
        lb_service: Ok(first.lb_service.cloned()),
        settled_paths: first.settled_paths.clone(),
        addresses_in_use: first.addresses_in_use.clone(),
    };
    let target = |(desired, current): &(&DesiredLoadBalancer, CurrentState<'_>)| FamilyTarget {
        observation: &observation,
        balancer: FamilyLoadBalancer {
            secondary: current.layout.secondary,
            family: current.layout.secondary.unwrap_or(IpFamily::V4),
            is_wanted: !desired.ports.is_empty(),
        },
        layout: current.layout.clone(),
        ours: current.ours.clone(),
        desired: (*desired).clone(),
        spec: None,
    };
    planned(&all.iter().map(target).collect::<Vec<_>>())
}

/// Checks that this step was announced, and that the objects differ as announced after it.
pub(super) fn check(announced: &PlannedStep, step: &Action<'_>, before: &ServiceResources, after: &ServiceResources) {
    assert_eq!(announced.step.as_deref(), Some(&*step.to_string()), "another step is announced");
    let of = |objects: &ServiceResources, other: &ServiceResources| -> Vec<Resource> {
        objects.iter().filter(|one| other.at(&one.tags.path).is_none()).cloned().collect()
    };
    let (gone, new) = (of(before, after), of(after, before));
    let changed: Vec<(&Resource, &Resource)> = before
        .iter()
        .filter_map(|one| Some((one, after.at(&one.tags.path)?)))
        .filter(|(before, after)| before != after)
        .collect();
    let kind = announced.kind.expect("a step has a kind");
    let text = format!("{announced:?}: gone {gone:?}, new {new:?}, changed {changed:?}");
    match (kind, gone.as_slice(), new.as_slice(), changed.as_slice()) {
        // A load balancer service is no object of one Service, and an object may be left of an earlier process.
        (StepKind::Create, [], [] | [_], []) => {
            assert!(new.is_empty() || is_named(announced, step, &new), "{text}");
            assert!(!new.is_empty() || may_create_nothing(step), "{text}");
        }
        (StepKind::Update | StepKind::Adopt, [], [], [(before, after)]) => {
            assert_eq!(kind == StepKind::Update, has_own_form(&before.tags.id) && !is_tag(step), "{text}");
            assert!(is_named_by_path(announced, before), "{text}");
            let names: BTreeSet<&str> = announced.changes.iter().map(|change| name_of(change)).collect();
            let expected = if is_tag(step) { BTreeSet::new() } else { differences(before, after) };
            assert_eq!(names, expected, "{text}");
        }
        (StepKind::Delete, [one], [], []) => assert!(is_named_by_path(announced, one), "{text}"),
        (StepKind::Read, [], [], []) | (StepKind::Hold, [], [], []) => {}
        // The address of the allocation is known after the read.
        (StepKind::Read, [], [], [(before, after)]) => {
            assert_eq!(Resource { address: after.address, ..(*before).clone() }, **after, "{text}");
        }
        _ => panic!("{text}"),
    }
}

fn is_tag(step: &Action<'_>) -> bool {
    matches!(step, Action::Tag { .. })
}

fn may_create_nothing(step: &Action<'_>) -> bool {
    let kind = match step {
        Action::Create(new) => new.kind,
        _ => return false,
    };
    kind == ObjectKind::LbService || kind.is_listed_rarely()
}

/// Whether the text names the kind and the port of the new object.
fn is_named(announced: &PlannedStep, step: &Action<'_>, new: &[Resource]) -> bool {
    let text = announced.step.as_deref().unwrap_or_default();
    new.iter().all(|one| match (step, one.tags.port) {
        (Action::Allocate(_) | Action::Reserve(_), _) => one.kind == Allocation && text.starts_with("reserve"),
        (_, Some(port)) => text == format!("create the {} of port {port}", one.kind.name()),
        (_, None) => text == format!("create the {}", one.kind.name()),
    })
}

fn is_named_by_path(announced: &PlannedStep, one: &Resource) -> bool {
    announced.step.as_deref().is_some_and(|text| text.split(' ').any(|word| *word == *one.tags.path))
}

/// Returns the name of the property in a change.
fn name_of(change: &str) -> &str {
    let members = ["lacks the members", "has besides the members"];
    match members.iter().any(|beginning| change.starts_with(beginning)) {
        true => "members",
        false => change.split(':').next().unwrap_or_default(),
    }
}

/// Returns the names of the properties in which an object differs.
fn differences(before: &Resource, after: &Resource) -> BTreeSet<&'static str> {
    let (present, wanted) = (&before.spec, &after.spec);
    let mut differences: BTreeSet<&'static str> = [
        ("port", before.tags.port != after.tags.port),
        ("address", before.address != after.address),
        ("number of the port", present.number != wanted.number),
        ("node port", present.node_port != wanted.node_port),
        ("application profile", present.profile != wanted.profile),
        ("restricted to source ranges", present.is_restricted != wanted.is_restricted),
        ("SNAT disabled", present.is_snat_disabled != wanted.is_snat_disabled),
        ("type", present.monitor_type != wanted.monitor_type),
        ("HTTP version", present.has_other_version != wanted.has_other_version),
        ("source ranges", present.ranges != wanted.ranges),
        ("timeout", present.timeout != wanted.timeout),
        ("members", present.members != wanted.members),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect();
    let kinds = [Pool, Monitor, Group, PersistenceProfile];
    differences.extend(
        kinds.into_iter().filter(|kind| before.reference(*kind) != after.reference(*kind)).map(ObjectKind::name),
    );
    differences
}
