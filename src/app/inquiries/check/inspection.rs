//! Reads what the account sees of NSX, with the login in use.

use super::permissions::TOTAL_LIMIT;
use crate::app::inquiries::Inquiries;
use crate::app::reports::check::nsx_resources::InspectionFacts;
use tokio::time::timeout;

/// Reads NSX. Makes no login, and no call unless this process uses NSX.
pub(super) async fn read(process: &Inquiries) -> InspectionFacts {
    let Some(report) = process.vsphere.nsx_report() else { return InspectionFacts::NotConfigured };
    if !report.is_in_use {
        return InspectionFacts::Standby;
    }
    let Some(provider) = process.vsphere.provider().filter(|_| report.login.is_logged_in) else {
        return InspectionFacts::NotLoggedIn;
    };
    let cloud_config = process.vsphere.cloud_config();
    let inspection = async {
        // The semaphore is never closed.
        let _turn = process.calls.acquire().await;
        provider.inspect_nsx(&cloud_config.config).await
    };
    match timeout(TOTAL_LIMIT, inspection).await {
        Ok(Some(inspection)) => InspectionFacts::Read(Box::new(inspection)),
        Ok(None) => InspectionFacts::NotLoggedIn,
        Err(_) => InspectionFacts::Late(TOTAL_LIMIT.as_secs()),
    }
}
