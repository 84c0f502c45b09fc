//! Tags, while the REST part of vCenter misbehaves.

use std::time::Duration;

use ccm::clients::vim::MoRef;
use ccm::providers::vsphere::vcenter::TagSettings;
use ccm::providers::vsphere::vcenter::snapshot::Snapshot;
use ccm::providers::vsphere::vcenter::zone_tags::{ObjectTags, ZoneCategories};
use futures::future::join_all;
use support::{FakeVcenter, Model, Trouble};

use super::{Watched, address, ids, is_live};

fn model() -> Model {
    Model::small()
        .vms(2)
        .tag("k8s-region", "region-1", &[("Datacenter", "dc-1")])
        .tag("k8s-zone", "zone-a", &[("ClusterComputeResource", "cluster-1")])
        .tag("k8s-zone", "zone-b", &[])
        .tag("unrelated", "gold", &[("ClusterComputeResource", "cluster-1")])
}

pub(super) async fn prepare() -> (FakeVcenter, std::sync::Arc<ccm::providers::vsphere::vcenter::Vcenter>) {
    let categories = ZoneCategories { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() };
    Watched::prepare(model(), ids(1..=2), Some(categories)).await
}

/// Returns the name of the only relevant tag on an object.
fn tag<'a>(now: &'a Snapshot, kind: &str, id: &str) -> Option<&'a str> {
    match now.tags.objects.get(&MoRef::new(kind, id))? {
        ObjectTags::Read(tags) => tags.first().map(|tag| tag.name.as_str()),
        ObjectTags::Unreadable(_) => None,
    }
}

pub(super) fn has_zones(now: &Snapshot) -> bool {
    tag(now, "ClusterComputeResource", "domain-c1") == Some("zone-a")
        && tag(now, "Datacenter", "datacenter-1") == Some("region-1")
}

async fn zoned() -> Watched {
    let (fake, vcenter) = prepare().await;
    let watched = Watched::run(fake, vcenter);
    let now = watched.until("zone and region", |now| is_live(now) && has_zones(now)).await;
    assert_eq!(now.tags.error, None);
    watched
}

/// Waits for this many more polls of tags.
async fn polled(watched: &Watched, times: u32) {
    let poll = "REST:list-attached-objects-on-tags";
    let until = watched.fake.counts().of(poll) + times;
    watched.until_counted("more polls of tags", |counts| counts.of(poll) >= until).await;
}

#[tokio::test]
async fn polls_go_on_over_one_session_and_cost_three_calls() {
    let watched = zoned().await;
    polled(&watched, 1).await;
    let before = watched.fake.counts();
    polled(&watched, 4).await;
    let after = watched.fake.counts();
    let calls = |counts: &support::fake_vcenter::FakeCounts| -> u32 {
        counts.operations.iter().filter(|(name, _)| name.starts_with("REST:")).map(|(_, count)| count).sum()
    };
    let cost = calls(&after) - calls(&before);
    assert!((12..=15).contains(&cost), "{cost} calls for 4 polls: {after:?}");
    assert_eq!((after.rest_logins, after.soap_logins), (1, 1));
    watched.stop().await;
}

#[tokio::test]
async fn a_rest_session_that_ended_is_replaced_once_and_nobody_notices() {
    let watched = zoned().await;
    for logins in [2, 3] {
        watched.fake.kill_rest_sessions();
        polled(&watched, 3).await;
        let counts = watched.fake.counts();
        assert_eq!((counts.rest_logins, counts.most_rest_sessions), (logins, 1), "{counts:?}");
        let now = watched.vcenter.snapshot();
        assert!(has_zones(&now) && now.tags.error.is_none() && is_live(&now));
    }
    watched.stop().await;
}

#[tokio::test]
async fn sessions_that_end_between_two_polls_do_not_add_up() {
    let categories = ZoneCategories { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() };
    let (fake, vcenter) = Watched::prepare(model(), ids(1..=1), Some(categories)).await;
    let settings = vcenter.settings();
    vcenter.reconfigure(TagSettings { tag_poll: Duration::from_secs(3600), ..TagSettings::clone(&settings) });
    let watched = Watched::run(fake, vcenter);
    watched.until("zone and region", |now| is_live(now) && has_zones(now)).await;
    // Only this machine is watched, so each host is new when the machine moves to it.
    for (moved, host) in ["host-3", "host-1", "host-2", "host-3"].into_iter().enumerate() {
        watched.fake.kill_rest_sessions();
        watched.fake.migrate_vm("n-1", host);
        let is_read = |now: &Snapshot| now.tags.objects.contains_key(&MoRef::new("HostSystem", host));
        watched.until_always(host, |now| now.tags.error.is_none(), is_read).await;
        assert_eq!(watched.fake.counts().rest_logins, 2 + u32::try_from(moved).unwrap(), "one more after each move");
    }
    watched.stop().await;
}

#[tokio::test]
async fn too_many_rest_sessions_are_told_and_leave_the_inventory_alone() {
    let (fake, vcenter) = prepare().await;
    let limit = "com.vmware.vapi.endpoint.failedToLoginMaxUserSessionCountReached";
    fake.every("REST:session-login", Trouble::rest(503, "service_unavailable", limit));
    let watched = Watched::run(fake, vcenter);
    let told = |trouble: &String| trouble.contains("tags cannot be read") && trouble.contains("503");
    let now = watched.until("the limit is told", |now| now.tags.error.as_ref().is_some_and(told)).await;
    assert!(now.tags.objects.is_empty(), "nothing is made up");
    watched.until("the inventory is live", |now| is_live(now) && now.vms.len() == 2).await;
    watched.fake.change_vm("n-1", |vm| vm.ip("192.0.2.1"));
    watched
        .until_always(
            "and follows",
            |now| now.vms.len() == 2,
            |now| address(now.vms.get("vm-1").unwrap()) == "192.0.2.1",
        )
        .await;
    watched.fake.clear();
    watched.until("tags, when there is room again", |now| has_zones(now) && now.tags.error.is_none()).await;
    assert_eq!(watched.fake.counts().soap_logins, 1);
    watched.stop().await;
}

#[tokio::test]
async fn a_failing_poll_is_told_and_takes_no_zone_away() {
    let cases = [
        ("500", Trouble::rest(500, "internal_server_error", "x")),
        ("503 page", Trouble::unavailable()),
        ("403", Trouble::rest(403, "unauthorized", "x")),
        ("portal", Trouble::portal()),
        ("cut", Trouble::Cut(12)),
        ("empty", Trouble::Status(200, "application/json", String::new())),
    ];
    join_all(cases.into_iter().map(|(name, trouble)| async move {
        let watched = zoned().await;
        watched.fake.every("REST:list-attached-objects-on-tags", trouble);
        watched.until_always(name, has_zones, |now| now.tags.error.is_some()).await;
        watched.fake.clear();
        watched.until_always(name, has_zones, |now| now.tags.error.is_none()).await;
        let counts = watched.fake.counts();
        assert_eq!((counts.rest_logins, counts.most_rest_sessions, counts.soap_logins), (1, 1, 1), "{name}");
        watched.stop().await;
    }))
    .await;
}

#[tokio::test]
async fn a_lost_right_is_told_and_takes_no_zone_away() {
    type Change = fn(&FakeVcenter, bool);
    let cases: [(&str, Change); 2] = [
        ("may have lost its global permission", |fake, is_readable| fake.set_attachments_readable(is_readable)),
        ("k8s-zone", |fake, is_readable| fake.set_category_readable("k8s-zone", is_readable)),
    ];
    for (text, set_readable) in cases {
        let watched = zoned().await;
        set_readable(&watched.fake, false);
        let told = |trouble: &String| trouble.contains(text);
        watched.until_always(text, has_zones, |now| now.tags.error.as_ref().is_some_and(told)).await;
        polled(&watched, 12).await;
        assert!(has_zones(&watched.vcenter.snapshot()), "{text}: not after many polls either");
        set_readable(&watched.fake, true);
        watched.until_always(text, has_zones, |now| now.tags.error.is_none()).await;
        watched.stop().await;
    }
}

#[tokio::test]
async fn a_lost_right_stays_a_lost_right_over_a_new_session() {
    let watched = zoned().await;
    watched.fake.set_attachments_readable(false);
    watched.fake.kill_rest_sessions();
    watched.fake.kill_soap_sessions(support::Fault::not_authenticated());
    watched.until_always("stale", has_zones, |now| !is_live(now)).await;
    watched.until_always("live again", has_zones, is_live).await;
    let told = |trouble: &String| trouble.contains("may have lost its global permission");
    watched.until_always("told", has_zones, |now| now.tags.error.as_ref().is_some_and(told)).await;
    polled(&watched, 3).await;
    assert!(has_zones(&watched.vcenter.snapshot()));
    watched.stop().await;
}

#[tokio::test]
async fn a_category_that_could_never_be_read_is_told() {
    let (fake, vcenter) = prepare().await;
    fake.set_category_readable("k8s-region", false);
    let watched = Watched::run(fake, vcenter);
    let told = |trouble: &String| trouble.contains("tag category k8s-region is not visible");
    let now = watched.until("told", |now| is_live(now) && now.tags.error.as_ref().is_some_and(told)).await;
    assert_eq!(now.vms.len(), 2);
    watched.stop().await;
}

#[tokio::test]
async fn a_category_of_which_no_tag_is_seen_is_told_with_what_reading_tags_needs() {
    let model = Model::small().vms(1).tag("k8s-region", "region-1", &[]).tag(
        "k8s-zone",
        "zone-a",
        &[("ClusterComputeResource", "cluster-1")],
    );
    let categories = ZoneCategories { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() };
    let (fake, vcenter) = Watched::prepare(model, ids(1..=1), Some(categories)).await;
    let watched = Watched::run(fake, vcenter);
    let told = |trouble: &String| {
        ["no tag of category k8s-region is visible", "global permission"].iter().all(|part| trouble.contains(part))
    };
    let now = watched.until("told", |now| is_live(now) && now.tags.error.as_ref().is_some_and(told)).await;
    assert!(!now.tags.error.as_ref().is_some_and(|trouble| trouble.contains("k8s-zone")), "{:?}", now.tags.error);
    watched.stop().await;
}
