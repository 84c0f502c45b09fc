//! Reads the workloads that run cloud controller managers, for a command without a daemon.

use super::permissions::TOTAL_LIMIT;
use crate::app::inquiries::Inquiries;
use crate::app::reports::check::CheckResult;
use crate::app::reports::check::workloads::{PodFaultFacts, WorkloadFacts, WorkloadsFacts, of_process, workloads};
use crate::kubernetes::workloads::{PodFault, Workload, WorkloadsError, read_workloads};
use tokio::time::timeout;

/// Checks the workloads. In a daemon, whose role does not allow to read them, makes no call.
pub(super) async fn check(process: &Inquiries, is_preflight: bool) -> Vec<CheckResult> {
    if process.detached.is_none() {
        return of_process();
    }
    let facts = match timeout(TOTAL_LIMIT, read_workloads(&process.api_server)).await {
        Ok(Ok(found)) => WorkloadsFacts::Read(found.into_iter().map(facts_of).collect()),
        Ok(Err(WorkloadsError::Forbidden(reason))) => WorkloadsFacts::Forbidden(reason),
        Ok(Err(WorkloadsError::Unavailable(reason))) => WorkloadsFacts::Unavailable(reason),
        Err(_) => {
            WorkloadsFacts::Unavailable(format!("the API server did not answer within {} s", TOTAL_LIMIT.as_secs()))
        }
    };
    workloads(&facts, is_preflight)
}

fn facts_of(workload: Workload) -> WorkloadFacts {
    let Workload { kind, namespace, name, images, arguments, desired, ready, faults } = workload;
    let fault = |PodFault { pod, reason, message }: PodFault| PodFaultFacts { pod, reason, message };
    let faults = faults.into_iter().map(fault).collect();
    WorkloadFacts { kind, namespace, name, images, arguments, desired, ready, faults }
}
