//! Live periods: during such a period vCenter reports every change.

use std::sync::Arc;

use ccm::providers::vsphere::login::credentials::CredentialState;
use support::{Model, Trouble};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{SOON, Watched, ids, is_live, pair, told};

fn offer(password: &str) -> Arc<CredentialState> {
    Arc::new(CredentialState::Ready(vec![pair(password)]))
}

/// A VM is destroyed while the session changes. The old subscription has ended, and the new one never had the VM, so
/// neither reports the destruction. In every published snapshot, the VM does not disappear within a live period, and no
/// later period has it.
#[tokio::test]
async fn a_vm_that_goes_between_two_subscriptions_leaves_in_no_live_period() {
    for is_filled in [false, true] {
        let offers = watch::Sender::new(offer("Correct-Horse-7"));
        let (fake, vcenter) = Watched::prepare_for(Model::small().vms(2), ids(1..=2), None, offers.subscribe()).await;
        let watched = Watched::run(fake, vcenter);
        let before = watched.until("the first sync", |now| is_live(now) && now.vms.len() == 2).await.live_period;
        assert!(before.is_some());
        watched.until_counted("a pending wait", |counts| counts.pending_waits == 1).await;

        if !is_filled {
            watched.fake.destroy_vm_unnoticed("n-1");
        }
        watched.fake.every("WaitForUpdatesEx", Trouble::nothing_yet());
        watched.fake.set_password("Correct-Horse-8");
        offers.send_replace(offer("Correct-Horse-8"));
        watched.until_counted("the next subscription", |counts| counts.of("CreateFilter") == 2).await;
        if is_filled {
            watched.fake.destroy_vm_unnoticed("n-1");
        }
        let began = Instant::now();
        for number in 0.. {
            // Each change of the view publishes a snapshot.
            watched.vcenter.want([format!("vm-9{number}").into()]);
            let now = watched.vcenter.snapshot();
            let is_there = now.vms.contains_key("vm-1");
            let is_right = now.live_period.is_none() || is_there == (now.live_period == before);
            assert!(is_right, "filled {is_filled}, {before:?}, then {:?}: {}", now.live_period, told(&now));
            if now.live_period.is_some() && !is_there {
                break;
            }
            assert!(began.elapsed() < SOON, "{}", told(&now));
            tokio::task::yield_now().await;
        }
        watched.fake.clear();
        watched.until("the other VM", |now| is_live(now) && now.vms.len() == 1).await;
        watched.stop().await;
    }
}
