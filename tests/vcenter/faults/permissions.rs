//! Rights that the account loses and gets back.

use support::{Model, Trouble, Unreadable};

use super::{Watched, address, found, ids, is_live};

#[tokio::test]
async fn a_machine_that_may_not_be_read_any_more_leaves_and_comes_back_with_the_right() {
    // Number of unresolved ids, and whether the machine comes back without a new request. Only a view that contains it
    // again can report it.
    let cases = [(Unreadable::Dropped, 1, false), (Unreadable::Refused, 1, false), (Unreadable::Kept, 0, true)];
    for (name, refused, by_itself) in cases {
        let watched = Watched::start(Model::small().unreadable(name).vms(2), ids(1..=2)).await;
        let name = &format!("{name:?}");
        watched.until(name, |now| is_live(now) && now.vms.len() == 2).await;
        watched.fake.set_readable("VirtualMachine", "n-1", false);
        let now = watched.until(name, |now| !now.vms.contains_key("vm-1")).await;
        assert!(now.vms.contains_key("vm-2") && is_live(&now), "{name}: the other one stays");
        assert!(found(&watched.vcenter, 1).await.is_empty(), "{name}: not found either");
        // One change of the view at the start, and two that remove the machine and try to add it again.
        watched.until_counted(name, |counts| counts.of("ModifyListView") == 3).await;
        watched.until(name, |now| now.unresolved.len() == refused).await;

        watched.fake.set_readable("VirtualMachine", "n-1", true);
        if !by_itself {
            // As a search for the machine does: the machine is found again, and requested as before.
            watched.vcenter.want(found(&watched.vcenter, 1).await);
        }
        watched.until(name, |now| now.vms.contains_key("vm-1") && now.unresolved.is_empty()).await;
        watched.fake.change_vm("n-1", |vm| vm.ip("192.0.2.1"));
        watched.until(name, |now| now.vms.get("vm-1").is_some_and(|vm| address(vm) == "192.0.2.1")).await;
        assert_eq!(watched.fake.counts().of("CreatePropertyCollector"), 1, "{name}: over the same subscription");
        watched.stop().await;
    }
}

#[tokio::test]
async fn a_property_that_may_not_be_read_is_named_and_comes_back() {
    let watched = Watched::synced(2).await;
    watched.fake.set_path_readable("VirtualMachine", "n-1", "guest.net", false);
    let now = watched.until("it is named", |now| now.vms.get("vm-1").unwrap().unreadable == ["guest.net"]).await;
    assert!(now.vms.get("vm-2").unwrap().unreadable.is_empty());
    watched.fake.set_path_readable("VirtualMachine", "n-1", "guest.net", true);
    let is_back = |vm: &ccm::providers::vsphere::vcenter::snapshot::VmRecord| {
        vm.unreadable.is_empty() && address(vm) == "10.0.0.2"
    };
    watched.until("it is back", |now| is_back(now.vms.get("vm-1").unwrap())).await;
    watched.stop().await;
}

#[tokio::test]
async fn a_property_that_could_never_be_read_is_named_from_the_start() {
    let (fake, vcenter) = Watched::prepare(Model::small().vms(1), ids(1..=1), None).await;
    fake.set_path_readable("VirtualMachine", "n-1", "guest.net", false);
    let watched = Watched::run(fake, vcenter);
    let now = watched.until("the first sync", |now| is_live(now) && now.vms.len() == 1).await;
    assert_eq!(now.vms.get("vm-1").unwrap().unreadable, ["guest.net"]);
    assert_eq!(now.vms.get("vm-1").unwrap().name, "n-1", "the rest is known");
    watched.stop().await;
}

#[tokio::test]
async fn a_folder_that_may_not_be_read_ends_the_way_up_and_takes_no_machine_away() {
    let watched = Watched::synced(2).await;
    watched.fake.set_readable("ClusterComputeResource", "cluster-1", false);
    let has_cluster = |now: &ccm::providers::vsphere::vcenter::snapshot::Snapshot| {
        now.entities.keys().any(|object| object.kind() == "ClusterComputeResource")
    };
    let now = watched.until_always("it leaves", |now| now.vms.len() == 2, |now| !has_cluster(now)).await;
    assert!(now.entities.keys().any(|object| object.kind() == "HostSystem"), "what is below stays");
    watched.fake.set_readable("ClusterComputeResource", "cluster-1", true);
    watched.until_always("it is back", |now| now.vms.len() == 2, has_cluster).await;
    watched.stop().await;
}

#[tokio::test]
async fn losing_every_right_for_a_moment_costs_no_session() {
    let watched = Watched::synced(1).await;
    watched.fake.next("ModifyListView", Trouble::Fault(support::Fault::no_permission("Folder", "group-d1")));
    watched.vcenter.want(ids(2..=2));
    let told = |reason: &str| {
        reason.contains("changing the list of watched virtual machines") && reason.contains("Folder:group-d1")
    };
    watched.until_always("told", |now| now.vms.len() == 1, |now| now.freshness.failure().is_some_and(told)).await;
    watched.until("vm-2 is told as unknown", |now| is_live(now) && now.unresolved.contains(&"vm-2".into())).await;
    assert_eq!(watched.fake.counts().soap_logins, 1);
    watched.stop().await;
}
