//! The vectors of the Go program by id: Z1 to Z15.

use std::collections::HashMap;

use super::*;

/// A world with host → cluster → datacenter, pool → cluster → datacenter and VM → folder → datacenter. Tags are written
/// `object: category=name category=name`; an object written `object: !` cannot be read, one written `object: ?` was
/// not read yet.
fn resolve(categories: Option<(&str, &str)>, world: &[&str]) -> ZoneOutcome {
    let chain = |ids: &[&str]| Chain::Known(ids.iter().map(|id| MoRef::new("Object", *id)).collect());
    let chains = Chains {
        host: chain(&["host", "cluster", "datacenter"]),
        pool: chain(&["pool", "cluster", "datacenter"]),
        vm: chain(&["vm", "folder", "datacenter"]),
    };
    resolve_along(categories, &chains, world)
}

fn resolve_along(categories: Option<(&str, &str)>, chains: &Chains, world: &[&str]) -> ZoneOutcome {
    let mut tags: HashMap<String, Option<ObjectTags>> = ["host", "cluster", "datacenter", "pool", "vm", "folder"]
        .map(|id| (id.to_owned(), Some(ObjectTags::Read(Vec::new()))))
        .into();
    for line in world {
        let (object, text) = line.split_once(": ").unwrap();
        let known = match text {
            "!" => Some(ObjectTags::Unreadable("permission denied".to_owned())),
            "?" => None,
            text => Some(ObjectTags::Read(text.split(' ').map(tag).collect())),
        };
        tags.insert(object.to_owned(), known);
    }
    let categories =
        categories.map(|(zone, region)| ZoneCategories { zone: zone.to_owned(), region: region.to_owned() });
    resolve_zone(categories.as_ref(), chains, |object| tags.get(&object.id).and_then(Option::as_ref))
}

fn tag(text: &str) -> Tag {
    let (category, name) = text.split_once('=').unwrap();
    Tag { name: name.to_owned(), category: category.to_owned() }
}

/// `zone region`, or `!` and the reason.
fn told(outcome: ZoneOutcome) -> String {
    match outcome {
        ZoneOutcome::Found { zone, region } => format!("{zone} {region}"),
        ZoneOutcome::NotConfigured => "not configured".to_owned(),
        ZoneOutcome::Unresolved(problem) => format!("!{}", problem.reason()),
    }
}

#[test]
fn the_vectors_of_the_go_program_hold() {
    let rows: Vec<(&str, &[&str], &str)> = vec![
        ("Z1", &["host: other=x"], "!NoZoneTags"),
        ("Z2", &["host: region=US"], "!NoZoneTags"),
        ("Z3", &["host: region=k8s-region-US zone=k8s-zone-US-CA1"], "k8s-zone-US-CA1 k8s-region-US"),
        ("Z4", &[], "!NoZoneTags"),
        ("Z5", &["datacenter: region=US", "cluster: zone=east"], "east US"),
        ("Z6", &["datacenter: region=US zone=west", "host: region=US zone=east"], "east US"),
        ("Z8", &["host: zone=A", "cluster: zone=B", "datacenter: region=R"], "B R"),
        ("Z9 zone first", &["host: zone=A", "datacenter: zone=C region=R"], "C R"),
        ("Z9 region first", &["host: zone=A", "datacenter: region=R zone=C"], "A R"),
        ("Z10", &["host: Zone=A REGION=R"], "!NoZoneTags"),
        ("Z11", &["host: zone=A", "folder: region=R"], "!NoZoneTags"),
        ("Z12 pool", &["pool: zone=A region=R"], "A R"),
        ("Z12 VM", &["vm: zone=A region=R"], "A R"),
        ("Z12 folder", &["folder: zone=A region=R"], "A R"),
        // differs: Go skips the level and takes a farther tag, or gives up; here what was not read is unknown.
        ("Z13 nothing farther", &["cluster: !"], "!ZoneUnknown"),
        ("Z13 farther tag", &["cluster: !", "datacenter: zone=C region=R"], "!ZoneUnknown"),
        ("Z13 complete before", &["host: zone=A region=R", "cluster: !"], "A R"),
        // differs: Go goes on with the next way up; here what was not read is unknown.
        ("Z14", &["host: !", "pool: zone=A region=R"], "!ZoneUnknown"),
        ("Z14 not read yet", &["cluster: ?", "vm: zone=A region=R"], "!ZoneUnknown"),
        ("Z15 last wins", &["host: zone=A zone=B region=R"], "B R"),
        ("Z15 region known", &["host: region=R zone=A zone=B"], "A R"),
    ];
    for (id, world, want) in rows {
        assert_eq!(told(resolve(Some(("zone", "region")), world)), want, "{id}");
    }
    assert_eq!(told(resolve(None, &["host: !"])), "not configured", "Z7");
    assert_eq!(told(resolve(Some(("both", "both")), &["host: both=A both=B"])), "!NoZoneTags", "one category for both");
}

#[test]
fn a_way_up_that_is_not_known_is_unknown_and_one_that_is_not_there_is_skipped() {
    let known = Chain::Known(vec![MoRef::new("Object", "vm")]);
    let rows = [
        ("no host", Chain::Absent, Chain::Absent, "A R"),
        // differs: Go logs a warning when the pool cannot be read, and goes on with the VM.
        ("pool not read", Chain::Absent, Chain::Unknown("permission denied".to_owned()), "!ZoneUnknown"),
        ("host not read", Chain::Unknown("not read yet".to_owned()), Chain::Absent, "!ZoneUnknown"),
    ];
    for (id, host, pool, want) in rows {
        let chains = Chains { host, pool, vm: known.clone() };
        assert_eq!(told(resolve_along(Some(("zone", "region")), &chains, &["vm: zone=A region=R"])), want, "{id}");
    }
}

#[test]
fn names_that_are_no_label_values_are_not_passed_on() {
    let long = "a".repeat(64);
    for (name, valid) in [
        ("US-CA1", true),
        ("a_b.c-d", true),
        ("7", true),
        ("a".repeat(63).as_str(), true),
        (long.as_str(), false),
        ("-a", false),
        ("a.", false),
        ("Zürich", false),
        ("a/b", false),
    ] {
        let want = if valid { format!("{name} R") } else { "!InvalidTagName".to_owned() };
        assert_eq!(told(resolve(Some(("zone", "region")), &[&format!("host: zone={name} region=R")])), want, "{name}");
        let want = if valid { format!("Z {name}") } else { "!InvalidTagName".to_owned() };
        assert_eq!(told(resolve(Some(("zone", "region")), &[&format!("host: zone=Z region={name}")])), want, "{name}");
    }
    let ZoneOutcome::Unresolved(problem) = resolve(Some(("zone", "region")), &["host: zone=a/b region=R"]) else {
        panic!("a/b is no label value");
    };
    assert!(problem.to_string().contains("\"a/b\" of category \"zone\""), "{problem}");
}

#[test]
fn problems_say_what_was_looked_at() {
    let text = |world: &[&str]| match resolve(Some(("zone", "region")), world) {
        ZoneOutcome::Unresolved(problem) => problem.to_string(),
        other => panic!("{other:?}"),
    };
    let missing = text(&["host: zone=A"]);
    for part in [
        "none of category \"region\" on Object:host, Object:cluster, Object:datacenter",
        "none of category \"region\" and \"zone\" on Object:pool",
        "Object:vm, Object:folder",
    ] {
        assert!(missing.contains(part), "{part} in {missing}");
    }
    assert_eq!(
        text(&["cluster: !"]),
        "zone and region are unknown: the tags of Object:cluster could not be read: permission denied"
    );
}
