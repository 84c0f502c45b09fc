//! Upstream test vectors of the leader migration.

use super::*;

fn written(version: &str, fields: &str) -> String {
    format!("apiVersion: controllermanager.config.k8s.io/{version}\nkind: LeaderMigrationConfiguration\n{fields}")
}

fn leader(name: &str, component: &str) -> ControllerLeader {
    ControllerLeader { name: name.to_owned(), component: component.to_owned() }
}

fn migration(leaders: &[(&str, &str)]) -> LeaderMigration {
    let controller_leaders = leaders.iter().map(|(name, component)| leader(name, component)).collect();
    let (leader_name, resource_lock) = ("migration-120-to-121".to_owned(), LEASES.to_owned());
    LeaderMigration { leader_name, resource_lock, controller_leaders }
}

// vectors: O-50, O-54
#[test]
fn o_50_and_o_54_files_that_are_refused() {
    let name = "leaderName: a\nresourceLock: leases\n";
    let cases = [
        ("O-50 an empty file", String::new(), "line 1: the file is empty"),
        (
            "O-50 another kind",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n".to_owned(),
            "line 1: kind \"KubeletConfiguration\"",
        ),
        ("O-50 an unknown field", written("v1alpha1", &format!("{name}foo: bar\n")), "line 5: unknown field \"foo\""),
        (
            "O-50 a field twice",
            written("v1alpha1", &format!("{name}resourceLock: endpoints\n")),
            "line 5: field \"resourceLock\" is there twice",
        ),
        ("O-52 v1 has no resourceLock", written("v1", name), "line 4: unknown field \"resourceLock\""),
        ("O-54 no name", written("v1beta1", "resourceLock: leases\n"), "leaderName must be set"),
        ("O-54 an empty name", written("v1", "leaderName: ''\n"), "leaderName must be set"),
        (
            "O-54 another lock",
            written("v1beta1", "leaderName: a\nresourceLock: invalid\n"),
            "resourceLock \"invalid\": expected leases",
        ),
        ("no lock", written("v1alpha1", "leaderName: a\n"), "resourceLock \"\": expected leases"),
        ("another version", written("v2", name), "line 1: kind \"LeaderMigrationConfiguration\", apiVersion"),
        ("no YAML", "a: [".to_owned(), "line "),
        ("a list", "[a]".to_owned(), "line 1: expected a mapping"),
        ("letter case", written("v1", "LeaderName: a\n"), "line 3: unknown field \"LeaderName\""),
        ("a number", written("v1", "leaderName: 5\n"), "line 3: leaderName: expected a text"),
        (
            "a leader without a component",
            written("v1", "leaderName: a\ncontrollerLeaders:\n- name: b\n"),
            "line 5: controllerLeaders: component must be set",
        ),
        (
            "an unknown field of a leader",
            written("v1", "leaderName: a\ncontrollerLeaders: [{name: b, component: c, lock: d}]\n"),
            "line 4: controllerLeaders: unknown field \"lock\"",
        ),
        (
            "leaders that are no list",
            written("v1", "leaderName: a\ncontrollerLeaders: b\n"),
            "line 4: controllerLeaders",
        ),
    ];
    for (case, text, expected) in cases {
        let errors = parse(&text).unwrap_err();
        assert!(errors[0].starts_with(expected), "{case}: {errors:?}");
    }
}

// vectors: O-51–O-54
#[test]
fn o_51_to_o_54_files_that_are_read() {
    let two = "leaderName: migration-120-to-121\nresourceLock: leases\ncontrollerLeaders:\n\
               - name: route-controller\n  component: kube-controller-manager\n\
               - {name: service-controller, component: kube-controller-manager}\n";
    let moved = [("route-controller", "kube-controller-manager"), ("service-controller", "kube-controller-manager")];
    let json = r#"{"apiVersion": "controllermanager.config.k8s.io/v1", "kind": "LeaderMigrationConfiguration",
                   "leaderName": "migration-120-to-121", "controllerLeaders": []}"#;
    let named = "leaderName: migration-120-to-121\n";
    let endpoints = LeaderMigration { resource_lock: ENDPOINTS.to_owned(), ..migration(&[]) };
    let cases = [
        (
            "O-51 leases",
            written("v1alpha1", &format!("{named}resourceLock: leases\ncontrollerLeaders: []\n")),
            migration(&[]),
        ),
        (
            "O-51, O-54 endpoints",
            written("v1alpha1", &format!("{named}resourceLock: endpoints\ncontrollerLeaders: []\n")),
            endpoints,
        ),
        ("O-52 v1beta1", written("v1beta1", &format!("{named}resourceLock: leases\n")), migration(&[])),
        ("O-52, O-54 v1 without the field", written("v1", named), migration(&[])),
        ("O-53 two leaders, in order", written("v1alpha1", two), migration(&moved)),
        ("JSON", json.to_owned(), migration(&[])),
        ("a null", written("v1", &format!("{named}controllerLeaders: null\n")), migration(&[])),
    ];
    for (case, text, expected) in cases {
        assert_eq!(parse(&text), Ok(expected), "{case}");
    }
}

// vectors: O-55–O-59
#[test]
fn o_55_to_o_59_controllers_are_told_apart() {
    use Placement::{Main, Migrated, Unowned};
    let (ours, theirs) = ("cloud-controller-manager", "kube-controller-manager");
    let listed = ["route-controller", "service-controller", "cloud-node-lifecycle-controller"];
    let all = |component: &str| migration(&listed.map(|name| (name, component)));
    let cases = [
        ("O-56", all(theirs), listed[0], theirs, Migrated),
        ("O-56", all(theirs), listed[1], ours, Unowned),
        ("O-56 not listed", all(theirs), "cloud-node-controller", theirs, Main),
        ("O-56 not listed", all(theirs), "cloud-node-controller", ours, Main),
        ("O-57", all(ours), listed[2], theirs, Unowned),
        ("O-57", all(ours), listed[2], ours, Migrated),
        ("O-58", all("*"), listed[0], theirs, Migrated),
        ("O-58", all("*"), listed[0], ours, Migrated),
        ("the last entry counts", migration(&[("a", theirs), ("a", ours)]), "a", ours, Migrated),
        ("the last entry counts", migration(&[("a", ours), ("a", theirs)]), "a", ours, Unowned),
    ];
    for (case, migration, name, component, expected) in cases {
        assert_eq!(migration.placement_in(name, component), expected, "{case}: {name} in {component}");
    }
    let builtin = LeaderMigration::default();
    assert_eq!(builtin.leader_name, "cloud-provider-extraction-migration", "O-55");
    let names: Vec<_> = builtin.controller_leaders.iter().map(|leader| leader.name.as_str()).collect();
    assert_eq!((names, builtin.resource_lock.as_str()), (listed.to_vec(), "leases"), "O-55");
    assert!(builtin.controller_leaders.iter().all(|leader| leader.component == "*"), "O-55");
    assert_eq!(builtin.placement("service-lb-controller"), Main, "O-59: the names are older than the controllers");
    assert_eq!(builtin.placement("node-route-controller"), Main, "O-59");
    assert_eq!(builtin.placement("cloud-node-lifecycle-controller"), Migrated);
}
