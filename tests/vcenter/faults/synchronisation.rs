//! The first synchronization, its pages, and large numbers of objects.

use std::sync::Arc;

use support::{Machine, Model, Trouble};

use super::{Watched, address, found, ids, is_live, told};

#[tokio::test]
async fn the_first_sync_comes_in_pages_and_is_shown_whole_or_not_at_all() {
    let watched = Watched::start(Model::small().vms(25).page_size(7), ids(1..=25)).await;
    let is_all_or_nothing =
        |now: &ccm::providers::vsphere::vcenter::snapshot::Snapshot| [0, 25].contains(&now.vms.len());
    let now = watched.until_always("25 machines", is_all_or_nothing, |now| is_live(now) && now.vms.len() == 25).await;
    // 25 machines, 3 hosts, cluster, pool, 2 folders, datacenter, root folder: 34 objects in pages of 7.
    assert_eq!(now.entities.len(), 9, "{:?}", now.entities);
    let datacenter = now.datacenter_of(now.vms.get("vm-1").unwrap()).unwrap();
    assert_eq!((datacenter.id.as_str(), datacenter.path), ("datacenter-1", vec!["dc-1".to_owned()]));
    watched.until_counted("the last page and the next wait", |counts| counts.pending_waits == 1).await;
    assert_eq!(watched.fake.counts().of("WaitForUpdatesEx"), 5 + 1);
    watched.stop().await;
}

#[tokio::test]
async fn five_thousand_machines_cost_pages_and_portions_and_not_a_call_each() {
    let watched = Watched::start(Model::small().vms(5_000), ids(1..=5_000)).await;
    let now = watched.until("5,000 machines", |now| is_live(now) && now.vms.len() == 5_000).await;
    assert_eq!(address(now.vms.get("vm-4999").unwrap()), "10.0.19.250", "{}", told(&now));
    watched.until_counted("the next wait", |counts| counts.pending_waits == 1).await;
    let counts = watched.fake.counts();
    assert_eq!(counts.of("WaitForUpdatesEx"), 51 + 1, "pages of 100 objects, and the wait: {counts:?}");
    assert!(counts.of("CreateListView") + counts.of("ModifyListView") <= 6, "portions of 1,000: {counts:?}");
    assert!(counts.operations.values().sum::<u32>() < 70, "{counts:?}");

    // A later change takes one answer, with any number of other objects.
    watched.fake.change_vm("n-17", |vm| vm.ip("192.0.2.17"));
    watched.until("the change", |now| address(now.vms.get("vm-17").unwrap()) == "192.0.2.17").await;
    watched.until_counted("the wait after it", |counts| counts.pending_waits == 1).await;
    assert_eq!(watched.fake.counts().of("WaitForUpdatesEx"), 51 + 2);
    watched.stop().await;
}

#[tokio::test]
async fn machines_that_are_wanted_later_are_added_in_few_calls() {
    let watched = Watched::start(Model::small().vms(2_500), ids(1..=1)).await;
    watched.until("one machine", |now| is_live(now) && now.vms.len() == 1).await;
    let before = watched.fake.counts();
    for id in ids(2..=2_500) {
        watched.vcenter.want([id]);
    }
    watched.until("2,500 machines", |now| now.vms.len() == 2_500).await;
    let modified = watched.fake.counts().of("ModifyListView") - before.of("ModifyListView");
    assert!((3..=6).contains(&modified), "{modified} changes of the view");
    watched.vcenter.unwant("vm-2");
    watched.until("it is not watched any more", |now| !now.vms.contains_key("vm-2")).await;
    watched.stop().await;
}

#[tokio::test]
async fn a_machine_is_created_changed_moved_and_destroyed_under_the_eyes_of_one_wait() {
    let watched = Watched::synced(2).await;
    let id: Arc<str> =
        watched.fake.create_vm(Machine::new("late", &Model::uuid(99)).ip("10.9.9.9").metadata("e30=")).into();
    assert_eq!(found(&watched.vcenter, 99).await, std::slice::from_ref(&id));
    watched.vcenter.want([id.clone()]);
    let now = watched.until("it is known", |now| now.vms.contains_key(&id)).await;
    assert_eq!((now.vms.get(&id).unwrap().metadata.as_str(), address(now.vms.get(&id).unwrap())), ("e30=", "10.9.9.9"));

    watched.fake.change_vm("late", |vm| vm.power("poweredOff").without("guest.net").without("guest.hostName"));
    let now = watched.until("it is off", |now| now.vms.get(&id).unwrap().nics.is_empty()).await;
    assert_eq!(now.vms.get(&id).unwrap().host_name, "", "what is unset is not kept");

    watched.fake.migrate_vm("late", "host-2");
    let is_on = |now: &ccm::providers::vsphere::vcenter::snapshot::Snapshot| {
        now.vms
            .get(&id)
            .unwrap()
            .host
            .as_ref()
            .is_some_and(|host| host.id() == "host-2" && now.entities.contains_key(host))
    };
    watched.until("it is on its new host, and the host is known", is_on).await;

    watched.fake.destroy_vm("late");
    watched
        .until("it is gone, and told as unknown", |now| !now.vms.contains_key(&id) && now.unresolved.contains(&id))
        .await;
    assert_eq!(watched.fake.counts().of("CreatePropertyCollector"), 1, "all that over one subscription");
    watched.stop().await;
}

#[tokio::test]
async fn a_page_of_the_first_sync_that_is_lost_means_a_new_one() {
    let model = Model::small().vms(25).page_size(7);
    let (fake, vcenter) = Watched::prepare(model, ids(1..=25), None).await;
    fake.next_after("WaitForUpdatesEx", 1, Trouble::Lose);
    let watched = Watched::run(fake, vcenter);
    let is_all_or_nothing =
        |now: &ccm::providers::vsphere::vcenter::snapshot::Snapshot| [0, 25].contains(&now.vms.len());
    watched.until_always("25 machines", is_all_or_nothing, |now| is_live(now) && now.vms.len() == 25).await;
    let counts = watched.fake.counts();
    assert_eq!((counts.of("CreatePropertyCollector"), counts.soap_logins), (2, 1), "{counts:?}");
    watched.stop().await;
}
