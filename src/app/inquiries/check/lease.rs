//! Reads the Lease for a command without a daemon.

use crate::app::inquiries::{DetachedSettings, Inquiries};
use crate::app::reports::check::observation::LeaseFacts;
use crate::app::settings::LeaseName;
use crate::kubernetes::leader_election::read_lease;

/// Returns the Lease of the election; `None` in a daemon, which knows the Lease, and without an election.
pub(super) async fn read(process: &Inquiries) -> Option<LeaseFacts> {
    let DetachedSettings { lease, .. } = process.detached.as_ref()?;
    let LeaseName { namespace, name } = lease.clone()?;
    let reading = read_lease(&process.api_server, &namespace, &name).await;
    let holder = reading.map(|reading| {
        let reading = reading?;
        Some((reading.status.holder?, reading.expiry))
    });
    Some(LeaseFacts { namespace, name, holder })
}
