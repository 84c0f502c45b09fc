//! Several entries of `vsphere.conf` for the same vCenter.

use std::time::Duration;

use support::{Vcenter, eventually};

use super::scenario;
use super::world::Running;

/// C4, W13: the vCenter in Global is also the vCenter of an entry.
#[tokio::test]
async fn entries_of_one_vcenter_share_one_session() {
    let vcenter = Vcenter::start(&scenario()).await;
    let text = format!("{}{}", vcenter.ini_section("one", "dc-1"), vcenter.ini_section("two", "dc-1"));
    let running = Running::start_with(&text, Duration::from_secs(60));
    eventually("it waits for changes", Duration::from_secs(30), async || match vcenter.counts().await {
        counts if counts.pending_waits == 1 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    assert_eq!(running.provider.inventories().len(), 1);
    assert_eq!(vcenter.counts().await.soap_logins, 1);
    running.stop().await;
}
