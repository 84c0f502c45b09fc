//! Tests with the upstream vectors by id, Z1 to Z15.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Resolves the zone with the ancestors host → cluster → datacenter, pool → cluster → datacenter and VM → folder →
/// datacenter. Tags are written as `object: category=name category=name`. `object: !` means that the tags of the object
/// cannot be read, and `object: ?` that they were not read yet.
fn resolve(categories: Option<(&str, &str)>, world: &[&str]) -> Result<Option<Zone>, ZoneProblem> {
    let chain = |ids: &[&str]| Ok(ids.iter().map(|id| MoRef::new("Object", *id)).collect());
    let chains = Chains {
        host: chain(&["host", "cluster", "datacenter"]),
        pool: chain(&["pool", "cluster", "datacenter"]),
        vm: chain(&["vm", "folder", "datacenter"]),
    };
    resolve_along(categories, &chains, world)
}

fn resolve_along(
    categories: Option<(&str, &str)>,
    chains: &Chains,
    world: &[&str],
) -> Result<Option<Zone>, ZoneProblem> {
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
    let found = resolve_zone(categories.as_ref(), chains, |object| tags.get(object.id()).and_then(Option::as_ref));
    found.map(|found| found.map(|found| found.zone))
}

#[test]
fn the_objects_with_the_tags_are_those_whose_names_count() {
    let chain = ["host", "cluster", "datacenter"].map(|id| MoRef::new("Object", id));
    let chains = Chains { host: Ok(chain.to_vec()), pool: Ok(Vec::new()), vm: Ok(Vec::new()) };
    let read = |tags: &[&str]| ObjectTags::Read(tags.iter().map(|text| tag(text)).collect());
    let tags = HashMap::from([
        ("host", read(&["zone=a"])),
        ("cluster", read(&["zone=b"])),
        ("datacenter", read(&["region=r"])),
    ]);
    let categories = ZoneCategories { zone: "zone".to_owned(), region: "region".to_owned() };
    let found = resolve_zone(Some(&categories), &chains, |object| tags.get(object.id())).unwrap().unwrap();
    assert_eq!((found.zone.failure_domain.as_str(), found.zone_object.id()), ("b", "cluster"));
    assert_eq!((found.zone.region.as_str(), found.region_object.id()), ("r", "datacenter"));
}

fn tag(text: &str) -> Tag {
    let (category, name) = text.split_once('=').unwrap();
    Tag { name: name.to_owned(), category: category.to_owned() }
}

/// Returns `zone region`, or `!` and the reason.
fn told(outcome: Result<Option<Zone>, ZoneProblem>) -> String {
    match outcome {
        Ok(Some(Zone { failure_domain, region })) => format!("{failure_domain} {region}"),
        Ok(None) => "not configured".to_owned(),
        Err(problem) => format!("!{}", problem.reason()),
    }
}

// vectors: Z1–Z15
#[test]
fn z1_to_z15_hold() {
    let rows: Vec<(&str, &[&str], &str)> = vec![
        ("Z1", &["host: other=x"], "!NoZoneTags"),
        ("Z2", &["host: region=US"], "!NoZoneTags"),
        ("Z3", &["host: region=k8s-region-US zone=k8s-zone-US-CA1"], "k8s-zone-US-CA1 k8s-region-US"),
        ("Z4", &[], "!NoZoneTags"),
        ("Z5", &["datacenter: region=US", "cluster: zone=east"], "east US"),
        ("Z6", &["datacenter: region=US zone=west", "host: region=US zone=east"], "east US"),
        ("Z8", &["host: zone=A", "cluster: zone=B", "datacenter: region=R"], "B R"),
        // differs: in Go the order of vCenter's list decides between C and A; here the nearer zone stays.
        ("Z9 zone first", &["host: zone=A", "datacenter: zone=C region=R"], "A R"),
        ("Z9 region first", &["host: zone=A", "datacenter: region=R zone=C"], "A R"),
        ("Z10", &["host: Zone=A REGION=R"], "!NoZoneTags"),
        ("Z11", &["host: zone=A", "folder: region=R"], "!NoZoneTags"),
        ("Z12 pool", &["pool: zone=A region=R"], "A R"),
        ("Z12 VM", &["vm: zone=A region=R"], "A R"),
        ("Z12 folder", &["folder: zone=A region=R"], "A R"),
        // differs: Go skips the level and uses a tag farther up, or fails; here a tag that was not read is unknown.
        ("Z13 nothing farther", &["cluster: !"], "!ZoneUnknown"),
        ("Z13 farther tag", &["cluster: !", "datacenter: zone=C region=R"], "!ZoneUnknown"),
        ("Z13 complete before", &["host: zone=A region=R", "cluster: !"], "A R"),
        // differs: Go continues with the next chain of ancestors; here a tag that was not read is unknown.
        ("Z14", &["host: !", "pool: zone=A region=R"], "!ZoneUnknown"),
        ("Z14 not read yet", &["cluster: ?", "vm: zone=A region=R"], "!ZoneUnknown"),
        // differs: Go uses the last listed tag, or the first if the region is known; here it is the first by name.
        ("Z15 zones", &["host: zone=B zone=A region=R"], "A R"),
        ("Z15 region known", &["host: region=R zone=A zone=B"], "A R"),
        ("Z15 regions", &["host: region=S region=R zone=A"], "A R"),
        (
            "a farther region replaces a nearer one that stood alone",
            &["host: region=S", "cluster: region=R zone=A"],
            "A R",
        ),
    ];
    for (id, world, want) in rows {
        assert_eq!(told(resolve(Some(("zone", "region")), world)), want, "{id}");
    }
    let page = include_str!("../../../../../../docs/compatibility.md");
    for subject in [
        "zone and region on one object above a zone (Z9)",
        "several tags of one category on one object (Z15)",
        "tags whose reading fails, or an ancestor that cannot be read (Z13, Z14)",
    ] {
        assert!(page.contains(&format!("\n| {subject} |")), "no row {subject:?}");
    }
    assert_eq!(told(resolve(None, &["host: !"])), "not configured", "Z7");
    assert_eq!(told(resolve(Some(("both", "both")), &["host: both=A both=B"])), "!NoZoneTags", "one category for both");
}

#[test]
fn a_way_up_that_is_not_known_is_unknown_and_one_that_is_not_there_is_skipped() {
    let known: Chain = Ok(vec![MoRef::new("Object", "vm")]);
    let rows = [
        ("no host", Ok(Vec::new()), Ok(Vec::new()), "A R"),
        // differs: if the pool cannot be read, Go logs a warning and continues with the VM.
        ("pool not read", Ok(Vec::new()), Err("permission denied".to_owned()), "!ZoneUnknown"),
        ("host not read", Err("not read yet".to_owned()), Ok(Vec::new()), "!ZoneUnknown"),
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
    let Err(problem) = resolve(Some(("zone", "region")), &["host: zone=a/b region=R"]) else {
        panic!("a/b is no label value");
    };
    assert!(problem.to_string().contains("\"a/b\" of category \"zone\""), "{problem}");
}

#[test]
fn problems_say_what_was_looked_at() {
    let text = |world: &[&str]| match resolve(Some(("zone", "region")), world) {
        Err(problem) => problem.to_string(),
        other => panic!("{other:?}"),
    };
    let missing = text(&["host: zone=A"]);
    for part in [
        "none of category \"region\" on Object:host [\"A\" of \"zone\"], Object:cluster, Object:datacenter",
        "none of category \"region\" and \"zone\" on Object:pool",
        "Object:vm, Object:folder",
    ] {
        assert!(missing.contains(part), "{part} in {missing}");
    }
    let many: Vec<String> = (0..9).map(|number| format!("zone=A{number}")).collect();
    let crowded = text(&[&format!("host: other=x {}", many.join(" "))]);
    assert!(crowded.contains("\"A4\" of \"zone\"], Object:cluster") && !crowded.contains("\"x\""), "{crowded}");
    assert_eq!(text(&["host: zone=B zone=A"]), text(&["host: zone=A zone=B"]), "the order of tags has no meaning");
    let Err(problem) = resolve(Some(("zone", "region")), &["host: zone=A"]) else {
        panic!("there is no region");
    };
    let name = |object: &MoRef| if object.id() == "host" { "host-1".to_owned() } else { String::new() };
    let named = problem.named(name).to_string();
    assert!(named.contains("on host-1 (Object:host) [\"A\" of \"zone\"], Object:cluster"), "{named}");
    assert_eq!(
        text(&["cluster: !"]),
        "zone and region are unknown: the tags of Object:cluster could not be read: permission denied"
    );
}

// vectors: Z15
#[test]
fn z15_several_tags_of_one_category_are_told_with_the_object_and_both() {
    let categories = ZoneCategories { zone: "zone".to_owned(), region: "region".to_owned() };
    let host = MoRef::new("HostSystem", "host-1");
    let reported = |tags: &[&str]| categories.notices(&host, &tags.iter().map(|text| tag(text)).collect::<Vec<_>>());
    assert_eq!(reported(&["zone=A", "region=R", "other=x", "other=y"]), Vec::<String>::new());
    assert_eq!(reported(&["zone=A", "zone=A"]), Vec::<String>::new(), "the same twice");
    assert_eq!(
        reported(&["zone=B", "region=R", "zone=A"]),
        ["HostSystem:host-1 has several tags of category \"zone\": \"A\", \"B\"; \"A\" is taken, the first by name; \
             detach the others"]
    );
    assert_eq!(reported(&["zone=B", "region=R", "zone=A", "region=S"]).len(), 2);
}

/// A second implementation of the rules of Kubernetes for label values.
fn is_valid_label(text: &str) -> bool {
    let alphanumeric = |c: &char| c.is_ascii_alphanumeric();
    let chars: Vec<char> = text.chars().collect();
    matches!(chars.as_slice(), [first, .., last] if alphanumeric(first) && alphanumeric(last))
        && chars.len() < 64
        && chars.iter().all(|c| alphanumeric(c) || "-_.".contains(*c))
        || matches!(chars.as_slice(), [only] if alphanumeric(only))
}

proptest! {
    #[test]
    fn only_label_values_become_zone_or_region(zone in "[a-zA-Z0-9._ /é-]{1,70}|\\PC{1,40}", region in "[a-z.]{1,4}|\\PC{1,9}") {
        let tags = ObjectTags::Read(vec![
            Tag { name: zone.clone(), category: "zone".to_owned() },
            Tag { name: region.clone(), category: "region".to_owned() },
        ]);
        let categories = ZoneCategories { zone: "zone".to_owned(), region: "region".to_owned() };
        let object = MoRef::new("VirtualMachine", "vm-1");
        let chains = Chains { host: Ok(Vec::new()), pool: Ok(Vec::new()), vm: Ok(vec![object]) };
        let expected = match (is_valid_label(&zone), is_valid_label(&region)) {
            (true, true) => Ok(Some(Zone { failure_domain: zone, region })),
            (false, _) => Err(ZoneProblem::InvalidTagName { category: "zone".to_owned(), name: zone }),
            (_, false) => {
                Err(ZoneProblem::InvalidTagName { category: "region".to_owned(), name: region })
            }
        };
        let found = resolve_zone(Some(&categories), &chains, |_| Some(&tags)).map(|found| found.map(|found| found.zone));
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn the_order_in_which_tags_are_listed_has_no_meaning(
        tags in proptest::collection::vec(
            (proptest::sample::select(vec!["zone", "region", "other"]), "[AB]"), 0..5,
        ).prop_flat_map(|tags| (Just(tags.clone()), Just(tags).prop_shuffle())),
        above in proptest::collection::vec(
            (proptest::sample::select(vec!["zone", "region", "other"]), "[CD]"), 0..5,
        ).prop_flat_map(|tags| (Just(tags.clone()), Just(tags).prop_shuffle())),
    ) {
        let lines = |tags: &[(&str, String)], object: &str| {
            let tags: Vec<String> = tags.iter().map(|(category, name)| format!("{category}={name}")).collect();
            if tags.is_empty() { format!("{object}: other=x") } else { format!("{object}: {}", tags.join(" ")) }
        };
        let world = |near: &[(&str, String)], far: &[(&str, String)]| {
            let (near, far) = (lines(near, "host"), lines(far, "cluster"));
            resolve(Some(("zone", "region")), &[near.as_str(), far.as_str()])
        };
        prop_assert_eq!(world(&tags.0, &above.0), world(&tags.1, &above.1));
    }
}
