//! Reads what the accounts may see in the vCenters, with the sessions in use.

use super::permissions::{CALLS, TOTAL_LIMIT};
use crate::app::inquiries::Inquiries;
use crate::app::reports::status::is_same_server;
use crate::base::addresses::host_and_port;
use crate::providers::vsphere::vcenter::snapshot::Freshness;
use crate::providers::vsphere::vcenter::{AccountReads, Vcenter};
use futures::StreamExt as _;
use futures::stream;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the account of each connected vCenter may see, by server.
pub(super) type Accounts = BTreeMap<String, AccountReads>;

/// Reads the account of each connected vCenter, or of the one with this host, or host and port.
pub(super) async fn read(process: &Inquiries, server: Option<&str>) -> Accounts {
    let Some(provider) = process.vsphere.provider() else { return Accounts::new() };
    let is_selected = |vcenter: &Arc<Vcenter>| server.is_none_or(|server| is_same_server(vcenter.server(), server));
    // A vCenter that does not answer is reported from its last connection.
    let connected = provider.inventories().into_iter().filter(is_selected);
    let connected: Vec<Arc<Vcenter>> =
        connected.filter(|vcenter| vcenter.snapshot().freshness == Freshness::Live).collect();
    let reads = stream::iter(connected).map(|vcenter| async move {
        // The semaphore is never closed.
        let _turn = process.calls.acquire().await;
        (vcenter.server().to_owned(), of_vcenter(process, &vcenter).await)
    });
    // A vCenter that was not read in time has no entry.
    let mut accounts = Accounts::new();
    let reads = reads.buffered(CALLS).for_each(|(server, account)| {
        accounts.insert(server, account);
        std::future::ready(())
    });
    if tokio::time::timeout(TOTAL_LIMIT, reads).await.is_err() {
        tracing::debug!("the accounts of some vCenters were not read within {} s", TOTAL_LIMIT.as_secs());
    }
    accounts
}

/// Reads the account of this vCenter. The caller waits for its turn before.
pub(in crate::app::inquiries) async fn of_vcenter(process: &Inquiries, vcenter: &Vcenter) -> AccountReads {
    let cloud_config = process.vsphere.cloud_config();
    let config = cloud_config.config.vcenters.iter();
    let config = config.filter(|config| vcenter.server() == host_and_port(&config.server, config.port));
    let configured: Vec<String> = config.flat_map(|config| config.datacenters.clone()).collect();
    vcenter.read_account(&configured).await
}
