//! A restart and a change of the leader write nothing to load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::future::join_all;
use kube::ResourceExt as _;

use super::site::{GO, LIMIT, Site};

const NODES: usize = 3;
/// Numbers of Services with a load balancer of this program, and of the Go program.
const HERE: usize = 12;
const BY_GO: usize = 4;

async fn versions(site: &Site) -> BTreeMap<String, Option<String>> {
    site.selected().await.into_iter().map(|(name, service)| (name, service.resource_version())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_and_a_restart_write_nothing_to_nsx_and_services() {
    join_all([true, false].map(nothing_is_written)).await;
}

async fn nothing_is_written(knows_uid: bool) {
    let mut site = Site::alone(knows_uid, 0..NODES).await;
    for number in 0..BY_GO {
        let (name, address): (_, IpAddr) =
            (format!("by-go-{number}"), [192, 0, 2, 60 + u8::try_from(number).unwrap()].into());
        let service = site.create(&name, &[("TCP", 80)]).await;
        site.of_go(&service, address, 0..NODES).put(&site.nsx, GO);
        site.leave_by_go(&name, Some(address)).await;
        site.select(&name).await;
    }
    let lease = format!("--leader-elect-resource-name={}", site.cluster.pool());
    let flags = ["--leader-elect=true", &lease];
    let mut first = site.start(&flags);
    first.daemon.wait_for_line("became leader", LIMIT).await;
    for number in 0..HERE {
        let name = format!("here-{number}");
        site.create(&name, &[("TCP", 80), ("UDP", 53)]).await;
        site.select(&name).await;
    }
    first.wait_until_ensured(HERE + BY_GO).await;
    let mut second = site.start(&flags);
    second.daemon.wait_for_line("standing by", LIMIT).await;
    second.daemon.wait_for_line(" started", LIMIT).await;
    let (seen, services) = (site.nsx.history().len(), versions(&site).await);

    // A standby succeeds a leader that shuts down cleanly. Then a newly started process succeeds the standby.
    for _ in 0..2 {
        first.stop().await;
        second.daemon.wait_for_line("became leader", LIMIT).await;
        second.wait_until_ensured(HERE + BY_GO).await;
        let counts = site.nsx.counts();
        assert_eq!(counts.of_user(&second.account, "LIST lb-virtual-servers"), 1, "{:?}", counts.users);
        assert_eq!(site.nsx.written_from(seen), [], "{knows_uid}");
        assert_eq!(versions(&site).await, services, "{knows_uid}");
        first = std::mem::replace(&mut second, site.start(&flags));
    }
    // SIGTERM during the start would end the process at once.
    second.daemon.wait_for_line(" started", LIMIT).await;
    first.stop().await;
    second.stop().await;
    assert_eq!(site.handed_back(&BTreeSet::new()).await, Vec::<String>::new(), "{knows_uid}");
}
