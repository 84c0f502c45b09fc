//! Every way in which a subscription breaks. It recovers without help, without lost changes, without an empty inventory
//! and with one session.

use std::time::Duration;

use ccm::providers::vsphere::vcenter::snapshot::Snapshot;
use futures::future::join_all;
use support::{Fault, Model, Trouble, Unreadable};

use super::{ReadAnswer, SOON, VmRecord, Watched, address, found, ids, is_live, search, told};

/// Returns the ways in which a pending wait ends.
fn breaks() -> [(&'static str, Trouble); 12] {
    let fault = |kind: &str| Trouble::Fault(Fault::new(kind));
    let gone = Fault::managed_object_not_found("PropertyCollector", "session[52]52");
    [
        ("the connection is cut", Trouble::Drop),
        ("503 with a proxy's page", Trouble::unavailable()),
        ("502 with nothing", Trouble::Status(502, "text/plain", String::new())),
        ("an empty answer", Trouble::empty()),
        ("a portal's page", Trouble::portal()),
        ("half an envelope", Trouble::Status(200, "text/xml", "<soapenv:Envelope><soapenv:Body><Wait".to_owned())),
        ("InvalidCollectorVersion", fault("InvalidCollectorVersion")),
        ("RequestCanceled", fault("RequestCanceled")),
        ("SystemError", Trouble::Fault(Fault::new("SystemError").field("reason", "no memory"))),
        ("NoPermission", Trouble::Fault(Fault::no_permission("Folder", "group-d1"))),
        ("the collector is unknown", Trouble::Fault(gone)),
        ("a fault of the future", Trouble::Fault(Fault::new("QuantumDecoherence").field("qubit", "7"))),
    ]
}

fn has_both(now: &Snapshot) -> bool {
    now.vms.len() == 2 && now.entities.len() >= 8
}

#[tokio::test]
async fn a_broken_wait_recovers_alone_on_the_same_session_and_nothing_is_emptied() {
    let cases = breaks().into_iter().map(|(name, trouble)| async move {
        let watched = Watched::synced(2).await;
        watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
        watched.fake.interrupt_waits(trouble);
        let stale = watched.until_always(name, has_both, |now| !is_live(now)).await;
        assert!(stale.freshness.failure().unwrap().contains("WaitForUpdatesEx"), "{name}: {}", told(&stale));
        // Nothing changes in vCenter. The client must notice the end of the fault without an event.
        watched.until_always(name, has_both, is_live).await;
        watched.fake.change_vm("n-2", |vm| vm.ip("192.0.2.2"));
        watched
            .until_always(name, has_both, |now| is_live(now) && address(now.vms.get("vm-2").unwrap()) == "192.0.2.2")
            .await;
        let counts = watched.fake.counts();
        assert_eq!((counts.soap_logins, counts.most_soap_sessions), (1, 1), "{name}: {counts:?}");
        watched.stop().await;
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_session_that_ends_during_a_wait_is_replaced_by_one_other() {
    let cases = [("NotAuthenticated", Fault::not_authenticated()), ("RequestCanceled", Fault::new("RequestCanceled"))];
    let cases = cases.into_iter().map(|(name, fault)| async move {
        let watched = Watched::synced(2).await;
        watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
        watched.fake.kill_soap_sessions(fault);
        watched.fake.change_vm("n-1", |vm| vm.ip("192.0.2.1"));
        watched.until_always(name, has_both, |now| !is_live(now)).await;
        watched
            .until_always(name, has_both, |now| is_live(now) && address(now.vms.get("vm-1").unwrap()) == "192.0.2.1")
            .await;
        let counts = watched.fake.counts();
        assert_eq!((counts.soap_logins, counts.soap_sessions, counts.most_soap_sessions), (2, 1, 1), "{name}");
        watched.stop().await;
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_session_check_without_an_answer_is_no_reason_for_a_second_session() {
    join_all(
        [("503", Trouble::unavailable()), ("cut", Trouble::Cut(200)), ("portal", Trouble::portal())].into_iter().map(
            |(name, trouble)| async move {
                let watched = Watched::synced(2).await;
                watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
                watched.fake.next("RetrievePropertiesEx", trouble);
                watched.fake.interrupt_waits(Trouble::Fault(Fault::new("InvalidCollectorVersion")));
                watched.until_always(name, has_both, |now| !is_live(now)).await;
                watched.until_always(name, has_both, is_live).await;
                let counts = watched.fake.counts();
                assert_eq!((counts.soap_logins, counts.most_soap_sessions), (1, 1), "{name}: {counts:?}");
                watched.stop().await;
            },
        ),
    )
    .await;
}

#[tokio::test]
async fn an_answer_that_is_lost_cut_or_too_slow_is_asked_for_again_and_nothing_is_missed() {
    let cases = [
        ("lost", Trouble::Lose),
        ("cut in the envelope", Trouble::Cut(60)),
        ("cut in the middle", Trouble::Cut(700)),
        ("cut before the last byte", Trouble::Cut(1_000)),
    ];
    let cases = cases.into_iter().map(|(name, trouble)| async move {
        let watched = Watched::synced(2).await;
        watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
        watched.fake.next("WaitForUpdatesEx", trouble);
        watched.fake.change_vm("n-1", |vm| vm.ip("192.0.2.1"));
        watched.until_always(name, has_both, |now| !is_live(now)).await;
        watched.fake.change_vm("n-2", |vm| vm.power("poweredOff").ip("192.0.2.2"));
        let has_all = |now: &Snapshot| {
            is_live(now)
                && address(now.vms.get("vm-1").unwrap()) == "192.0.2.1"
                && address(now.vms.get("vm-2").unwrap()) == "192.0.2.2"
        };
        watched.until_always(name, has_both, has_all).await;
        let counts = watched.fake.counts();
        let cost = (counts.of("CreatePropertyCollector"), counts.soap_logins);
        assert_eq!(cost, (1, 1), "{name}: the same version is enough: {counts:?}");
        watched.stop().await;
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_truncated_answer_that_is_lost_means_a_full_resync_and_an_earlier_one_does_not() {
    join_all([("the first page", 0, 1), ("the second page", 1, 2), ("the last page", 2, 2)].into_iter().map(
        |(name, skip, collectors)| async move {
            let watched = Watched::start(Model::small().vms(6).page_size(2), ids(1..=6)).await;
            watched.until(name, |now| is_live(now) && now.vms.len() == 6).await;
            watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
            watched.fake.next_after("WaitForUpdatesEx", skip, Trouble::Lose);
            watched.fake.change_vms(|vm| vm.ip("192.0.2.6"));
            let has_all = |now: &Snapshot| is_live(now) && now.vms.values().all(|vm| address(vm) == "192.0.2.6");
            watched.until_always(name, |now| now.vms.len() == 6, has_all).await;
            let counts = watched.fake.counts();
            let cost = (counts.of("CreatePropertyCollector"), counts.soap_logins);
            assert_eq!(cost, (collectors, 1), "{name}: {counts:?}");
            watched.stop().await;
        },
    ))
    .await;
}

#[tokio::test]
async fn a_part_of_an_answer_is_a_report_although_it_is_not_published() {
    let watched = Watched::start(Model::small().vms(6).page_size(2), ids(1..=6)).await;
    watched.until("live", |now| is_live(now) && now.vms.len() == 6).await;
    watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
    let before = watched.vcenter.last_report();
    watched.fake.next_after("WaitForUpdatesEx", 1, Trouble::Hang);
    watched.fake.change_vms(|vm| vm.ip("192.0.2.6"));
    support::eventually("the first part is noted", SOON, async || {
        let now = watched.vcenter.snapshot();
        let is_old = now.vms.values().all(|vm| address(vm) != "192.0.2.6");
        if is_old && watched.vcenter.last_report() > before { Ok(()) } else { Err(told(&now)) }
    })
    .await;
    watched.stop().await;
}

#[tokio::test]
async fn a_truncated_answer_without_its_rest_is_not_published_and_everything_is_read_again() {
    let is_new = |vm: &VmRecord| address(vm) == "192.0.2.6";
    join_all([("the first answer", false), ("a later answer", true)].into_iter().map(|(name, is_later)| async move {
        let (fake, vcenter) = Watched::prepare(Model::small().vms(6).page_size(2), ids(1..=6), None).await;
        if !is_later {
            fake.change_vms(|vm| vm.ip("192.0.2.6"));
            fake.next_after("WaitForUpdatesEx", 1, Trouble::nothing_yet());
        }
        let watched = Watched::run(fake, vcenter);
        if is_later {
            watched.until(name, |now| is_live(now) && now.vms.len() == 6).await;
            watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
            watched.fake.next_after("WaitForUpdatesEx", 1, Trouble::nothing_yet());
            watched.fake.change_vms(|vm| vm.ip("192.0.2.6"));
        }
        let is_whole = |now: &Snapshot| {
            let count = now.vms.values().filter(|vm| is_new(vm)).count();
            !is_live(now) || now.vms.len() == 6 && (count == 6 || is_later && count == 0)
        };
        watched.until_always(name, is_whole, |now| is_live(now) && now.vms.values().all(|vm| is_new(vm))).await;
        let counts = watched.fake.counts();
        assert_eq!((counts.of("CreatePropertyCollector"), counts.soap_logins), (2, 1), "{name}: {counts:?}");
        watched.stop().await;
    }))
    .await;
}

#[tokio::test]
async fn connections_that_die_leave_no_wait_behind_that_holds_up_the_next() {
    let watched = Watched::synced(2).await;
    watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
    // On the server the wait continues, because the server does not notice the closed connection.
    watched.fake.sever();
    watched.until_always("stale", has_both, |now| !is_live(now)).await;
    watched.until_always("live again", has_both, is_live).await;
    let counts = watched.fake.counts();
    assert_eq!((counts.soap_logins, counts.most_soap_sessions), (1, 1), "{counts:?}");
    watched.stop().await;
}

#[tokio::test]
async fn an_outage_is_survived_and_what_happened_in_it_is_seen() {
    let watched = Watched::synced(3).await;
    watched.fake.stop_listening().await;
    let stale = watched.until_always("stale", |now| now.vms.len() == 3, |now| !is_live(now)).await;
    let trouble = stale.freshness.check().unwrap_err();
    assert_eq!(search(&watched.vcenter, 1).await, ReadAnswer::Silent(trouble));
    watched.fake.destroy_vm("n-3");
    watched.fake.change_vm("n-1", |vm| vm.ip("192.0.2.1"));
    watched.fake.resume_listening().await;
    let now = watched.until("live again", is_live).await;
    assert_eq!((now.vms.len(), address(now.vms.get("vm-1").unwrap())), (2, "192.0.2.1"), "{}", told(&now));
    watched.until("the destroyed one is told as unknown", |now| now.unresolved.contains(&"vm-3".into())).await;
    let counts = watched.fake.counts();
    assert_eq!((counts.soap_logins, counts.most_soap_sessions), (1, 1), "the session outlived it: {counts:?}");
    watched.stop().await;
}

#[tokio::test]
async fn a_server_that_comes_back_with_other_ids_is_read_anew() {
    let watched = Watched::synced(2).await;
    watched.fake.restart_with_other_ids().await;
    let is_old_gone = |now: &Snapshot| is_live(now) && now.vms.is_empty() && now.unresolved.len() == 2;
    watched.until("the old ids are told as unknown", is_old_gone).await;
    let found = found(&watched.vcenter, 1).await;
    assert_eq!(found, ["vm-1-9".into()]);
    watched.vcenter.want(found);
    let now = watched.until("the machine under its new id", |now| now.vms.contains_key("vm-1-9")).await;
    assert_eq!(now.vms.get("vm-1-9").unwrap().name, "n-1");
    assert_eq!(now.datacenter_of(now.vms.get("vm-1-9").unwrap()).unwrap().id, "datacenter-1-9");
    assert!(now.entities.keys().all(|object| object.id().ends_with('9') || object.id() == "group-d1"), "nothing old");
    assert_eq!(watched.fake.counts().soap_logins, 2);
    watched.stop().await;
}

#[tokio::test]
async fn a_first_answer_that_holds_nothing_yet_is_not_an_empty_inventory() {
    let watched = Watched::synced(2).await;
    watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;
    watched.fake.next("WaitForUpdatesEx", Trouble::nothing_yet());
    watched.fake.next("WaitForUpdatesEx", Trouble::nothing_yet());
    watched.fake.kill_soap_sessions(Fault::not_authenticated());
    watched.until_always("stale", has_both, |now| !is_live(now)).await;
    watched.until_always("live again", has_both, is_live).await;
    watched.stop().await;
}

#[tokio::test]
async fn a_vcenter_with_nothing_to_tell_is_live_all_the_same() {
    join_all(
        [
            ("nothing is wanted", Model::small().vms(1), Vec::new()),
            ("nothing of it is known", Model::small(), ids(7..=8)),
            ("nothing of it may be read", Model::small().unreadable(Unreadable::Kept).vms(2), ids(1..=2)),
        ]
        .into_iter()
        .map(|(name, model, wanted)| async move {
            let (fake, vcenter) = Watched::prepare(model, wanted, None).await;
            if name.contains("read") {
                fake.set_readable("VirtualMachine", "n-1", false);
                fake.set_readable("VirtualMachine", "n-2", false);
            }
            let watched = Watched::run(fake, vcenter);
            let now = watched.until(name, is_live).await;
            assert!(now.vms.is_empty(), "{name}");
            watched.stop().await;
        }),
    )
    .await;
}

#[tokio::test]
async fn silence_and_dribbling_are_bounded_by_the_clients_limits() {
    let cases = [
        ("a wait that hangs", "WaitForUpdatesEx", Trouble::Hang, "no complete answer within 5 s"),
        (
            "a page that dribbles",
            "WaitForUpdatesEx",
            Trouble::Slow(Duration::from_millis(50)),
            "no complete answer within 5 s",
        ),
        ("a filter that hangs", "CreateFilter", Trouble::Hang, "no complete answer within 2 s"),
        (
            "a login page that dribbles",
            "Login",
            Trouble::Slow(Duration::from_millis(50)),
            "no complete answer within 2 s",
        ),
        ("a version list that hangs", "vimServiceVersions.xml", Trouble::Hang, ""),
    ];
    let cases = cases.into_iter().map(|(name, operation, trouble, reason)| async move {
        let (fake, vcenter) = Watched::prepare(Model::small().vms(2), ids(1..=2), None).await;
        fake.next(operation, trouble);
        let watched = Watched::run(fake, vcenter);
        if !reason.is_empty() {
            let why = |now: &Snapshot| now.freshness.failure().is_some_and(|trouble| trouble.contains(reason));
            watched.until(name, why).await;
        }
        watched.until(name, |now| is_live(now) && has_both(now)).await;
        watched.stop.cancel();
        watched.task.await.unwrap();
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_view_that_cannot_be_changed_is_made_anew() {
    join_all(
        [
            ("hangs", Trouble::Hang),
            ("lost", Trouble::Lose),
            ("503", Trouble::unavailable()),
            ("unknown view", Trouble::Fault(Fault::managed_object_not_found("ListView", "gone"))),
        ]
        .into_iter()
        .map(|(name, trouble)| async move {
            let watched = Watched::start(Model::small().vms(3), ids(1..=2)).await;
            watched.until(name, |now| is_live(now) && has_both(now)).await;
            watched.fake.next("ModifyListView", trouble);
            watched.vcenter.want(ids(3..=3));
            let has_all = |now: &Snapshot| is_live(now) && now.vms.len() == 3;
            watched.until_always(name, |now| now.vms.len() >= 2, has_all).await;
            assert_eq!(watched.fake.counts().soap_logins, 1, "{name}");
            watched.stop().await;
        }),
    )
    .await;
}

#[tokio::test]
async fn a_machine_of_another_datacenter_or_in_upper_case_is_found_where_it_is() {
    let watched = Watched::synced(2).await;
    let ids = |ids: &[&str]| ReadAnswer::Found(ids.iter().map(|id| (*id).into()).collect());
    let upper = Model::uuid(2).to_uppercase().parse().unwrap();
    assert_eq!(watched.vcenter.search_by_uuid(&upper).await, ids(&["vm-2"]));
    for (name, expected) in [("n-1", ids(&["vm-1"])), ("10.0.0.3", ids(&["vm-2"])), ("n-3", ids(&[]))] {
        assert_eq!(watched.vcenter.search_by_name(name).await, expected, "{name}");
    }
    for trouble in [Trouble::empty(), Trouble::portal(), Trouble::Cut(300), Trouble::unavailable()] {
        for operation in ["FindAllByUuid", "FindAllByDnsName"] {
            watched.fake.next(operation, trouble.clone());
            let found = match operation {
                "FindAllByUuid" => search(&watched.vcenter, 2).await,
                _ => watched.vcenter.search_by_name("n-1").await,
            };
            assert!(matches!(found, ReadAnswer::Silent(_)), "{operation}: {trouble:?} is no proof of none: {found:?}");
        }
    }
    watched.stop().await;
}
