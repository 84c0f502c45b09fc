//! Tests with stale data of a VM, while the cloud does not answer. The previous leader may have written newer data.

use super::*;
use crate::controllers::node::LabelMode;

fn old(metadata: InstanceMetadata) -> Presence<InstanceMetadata> {
    doubted(Unknown::new(reason::CloudUnavailable, "vc does not answer"), metadata)
}

fn doubted(doubt: Unknown, metadata: InstanceMetadata) -> Presence<InstanceMetadata> {
    Presence::Exists(InstanceMetadata { stale: Some(doubt), ..metadata })
}

fn adopted() -> Policy {
    Policy { adopts_untainted_nodes: true, ..Policy::default() }
}

#[test]
fn an_old_view_is_written_to_no_node() {
    let id = "fake://1";
    let other = "InternalIP 10.0.0.7";
    let follow = || Policy { zone_labels: LabelMode::Follow, instance_type: LabelMode::Follow, ..Policy::default() };
    let fill = || Policy { zone_labels: LabelMode::Fill, ..Policy::default() };
    let machine = || metadata(id, A3);
    let elsewhere = || InstanceMetadata { zone: "z".into(), ..machine() };
    let recorded = || InstanceMetadata { record: "vm-1 a".into(), ..machine() };
    let placed =
        || InstanceMetadata { topology_labels: BTreeMap::from([("p/host".into(), Some("h".into()))]), ..machine() };
    let by_uuid = || InstanceMetadata { found_by: FoundBy::SystemUuid, ..machine() };
    let cases = [
        ("to be initialized", tainted("U", "", ""), machine(), Policy::default(), true),
        ("half initialized", tainted("U", "", other), machine(), Policy::default(), true),
        ("to be adopted", tainted("", "", other), by_uuid(), adopted(), true),
        ("other addresses", tainted("", id, other), machine(), Policy::default(), true),
        ("no zone", tainted("", id, A3), zoned(machine()), fill(), true),
        (
            "a zone that differs",
            Form { labels: map(ZONES), ..tainted("", id, A3) },
            elsewhere(),
            Policy::default(),
            true,
        ),
        (
            "another zone",
            Form { labels: map(ZONES), ..tainted("", id, A3) },
            InstanceMetadata { zone: "z".into(), ..machine() },
            follow(),
            true,
        ),
        ("a place", tainted("", id, A3), placed(), Policy::default(), true),
        ("no record", tainted("", id, A3), recorded(), Policy::default(), true),
        ("all is as known", Form { labels: map(ZONES), ..tainted("", id, A3) }, zoned(machine()), follow(), false),
    ];
    for (case, form, machine, policy, is_held) in cases {
        let (plan, after) = run_on(form.node(), old(machine.clone()), &policy);
        assert_eq!(after, form.node(), "{case}");
        let expected = is_held.then_some((reason::CloudUnavailable, "vc does not answer"));
        let found = held(&plan).map(|blocked| (blocked.reason, blocked.message.as_str()));
        assert_eq!(found, expected, "{case}: {:?}", plan.outcome);
        let (_, live) = run_on(form.node(), Presence::Exists(machine), &policy);
        assert_eq!(live != form.node(), is_held, "{case}: a view that is live is another thing");
    }
}

#[test]
fn only_a_node_that_waits_makes_it_heard() {
    let id = "fake://1";
    let is_quiet =
        |form: Form| held(&run_on(form.node(), old(metadata(id, A3)), &Policy::default()).0).unwrap().is_quiet;
    assert!(is_quiet(tainted("", id, "InternalIP 10.0.0.7")), "alarms are of the vCenter itself");
    assert!(!is_quiet(tainted("U", "", "")));
}

#[test]
fn a_doubt_that_passes_by_itself_is_not_told_at_once_and_looked_at_again() {
    let passing = || Unknown::transient(reason::LookupPending, "being taken in");
    for form in [tainted("U", "", ""), tainted("", "fake://1", "InternalIP 10.0.0.7")] {
        let (plan, after) = run_on(form.node(), doubted(passing(), metadata("fake://1", A3)), &Policy::default());
        assert_eq!(after, form.node());
        let blocked = held(&plan).unwrap();
        assert!(blocked.is_quiet && blocked.next.after.is_some() && !blocked.next.counts_as_failure, "{blocked:?}");
    }
}

#[test]
fn what_a_node_says_of_itself_is_kept_in_order_all_the_same() {
    let beta = map(&[("failure-domain.beta.kubernetes.io/zone", "us-west-1a")]);
    let form = Form { labels: beta, ..tainted("", "fake://1", "InternalIP 10.0.0.7") };
    let (plan, after) = run_on(form.node(), old(zoned(metadata("fake://1", A3))), &Policy::default());
    let labels =
        map(&[("failure-domain.beta.kubernetes.io/zone", "us-west-1a"), ("topology.kubernetes.io/zone", "us-west-1a")]);
    assert_eq!(after, Form { labels, ..form }.node());
    assert_eq!(held(&plan).map(|blocked| blocked.reason), Some(reason::CloudUnavailable));
}
