//! A daemon is killed at the write of the load balancer service, before NSX executes it or before the answer arrives.
//! The next daemon ends the work. A request of the dead daemon that arrives later changes nothing.
//!
//! An end at any other write is shown in `tests/nsx`, and an end at any await of a sync in `tests/apiserver`.

use std::collections::BTreeSet;

use futures::future::join_all;
use kube::api::DeleteParams;
use serde_json::Value;
use support::fake_nsx::Side;

use super::site::{Process, Site};

const NODES: usize = 2;

/// Kills the process, and returns its account.
async fn kill(process: &mut Process) -> String {
    process.daemon.kill().await;
    process.account.clone()
}

/// The load balancer service belongs to no single Service. It is created with the first Service and deleted with the
/// last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_at_the_write_of_the_load_balancer_service_leaves_one_or_none() {
    let cases = [true, false].into_iter().flat_map(|uid| [Side::Request, Side::Answer].map(|side| (uid, side)));
    join_all(cases.map(|(knows_uid, side)| first_and_last(knows_uid, side))).await;
}

async fn first_and_last(knows_uid: bool, side: Side) {
    let what = format!("{knows_uid} {side:?}");
    let mut site = Site::alone(knows_uid, 0..NODES).await;
    let hold = site.nsx.hold_operation("PUT lb-services", 1, side);
    let mut process = site.start(&[]);
    site.create("s", &[("TCP", 80)]).await;
    site.select("s").await;
    hold.wait().await;
    let dead = kill(&mut process).await;
    process = site.start(&[]);
    let address = site.wait_for_address("s", &process).await;
    process.wait_until_ensured(1).await;
    hold.release();
    site.wait_for_requests_of(&dead).await;
    assert_eq!(site.lb_services().len(), 1, "{what}");
    assert_eq!(site.handed_back(&BTreeSet::new()).await, Vec::<String>::new(), "{what}");
    assert_eq!(site.wait_for_address("s", &process).await, address, "{what}");

    let hold = knows_uid.then(|| site.nsx.hold_operation("DELETE lb-services", 1, side));
    site.services.delete("s", &DeleteParams::default()).await.unwrap();
    if let Some(hold) = hold {
        hold.wait().await;
        let dead = kill(&mut process).await;
        process = site.start(&[]);
        site.wait_until_gone("s", &process).await;
        hold.release();
        site.wait_for_requests_of(&dead).await;
    }
    site.wait_until_gone("s", &process).await;
    // Without the UID the daemon has no evidence that it may delete the load balancer service.
    assert_eq!(site.lb_services().len(), usize::from(!knows_uid), "{what}");
    assert_eq!(site.objects_of("s"), Vec::<Value>::new(), "{what}");
    process.stop().await;
}
