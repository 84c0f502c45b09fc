//! Reads the workloads that run cloud controller managers, for a command without a daemon.

use super::permissions::TOTAL_LIMIT;
use crate::app::inquiries::Inquiries;
use crate::app::reports::check::CheckResult;
use crate::app::reports::check::workloads::{of_process, workloads};
use crate::kubernetes::workloads::{WorkloadsError, read_workloads};
use tokio::time::timeout;

/// Checks the workloads. In a daemon, whose role does not allow to read them, makes no call.
pub(super) async fn check(process: &Inquiries, is_preflight: bool) -> Vec<CheckResult> {
    if process.detached.is_none() {
        return of_process();
    }
    let found = timeout(TOTAL_LIMIT, read_workloads(&process.api_server)).await.unwrap_or_else(|_| {
        let reason = format!("the API server did not answer within {} s", TOTAL_LIMIT.as_secs());
        Err(WorkloadsError::Unavailable(reason))
    });
    workloads(found.as_deref(), is_preflight)
}
