//! The field test: checks the product's assumptions about vCenter and NSX on the servers of a `vsphere.conf`.
//!
//! Data flows one way:
//!
//! ```text
//! arguments ─▶ options ─┐                                   interrupts
//!                       │                                     │
//! vsphere.conf ─▶ servers ─▶ announcement, a question ─▶ vcenter, nsx ─▶ sheet ─▶ report ─▶ table, exit code
//!                                                          │ the product's clients
//!                                                          ▼
//!                                                         wire ─▶ network, with a recording on the way
//! ```
//!
//! The checks call the product's clients, not copies of them. [`wire`] replaces the transport of the clients: it counts
//! calls, rejects those above the announced number, measures them, and gives the unchanged answers to the checks.
//! Standard output contains no text of a server except for its product name, so a result can be published unchanged.
//! Names of servers and objects go to standard error only.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it does")]

pub mod announcement;
pub mod belief;
pub mod interrupts;
pub mod nsx;
pub mod options;
pub mod recording;
pub mod report;
pub mod servers;
pub mod vcenter;
pub mod wire;

use std::future::Future;
use std::time::Duration;

pub use belief::{Belief, Outcome, Sheet};
pub use interrupts::Interrupts;
pub use options::{Options, WriteRequest};
pub use report::{Cleanup, Report, ServerReport};
use servers::VcenterServer;
pub use servers::{Server, Servers};

/// Reason why a test ended by Ctrl-C or SIGTERM. The servers after it are not tested.
pub(crate) const INTERRUPTED: &str = "it was interrupted";

/// Reason why a server is not tested. The announcement names the missing credentials.
pub(crate) const NO_LOGIN: &str = "there are no credentials for it that this test can use";

/// Reason why a server is not tested although its settings were read without a mistake.
pub(crate) const UNUSABLE_SETTINGS: &str = "no client can be made with its settings of TLS or of the proxy";

/// Reason why the test of a server ended after it rejected the login.
pub(crate) const REJECTED: &str = "the login was rejected; it is not tried again";

/// Reason why a vCenter is not tested if another vCenter rejected the same credentials. Both may use one account, and a
/// few rejections lock an account.
const REJECTED_BEFORE: &str = "another vCenter rejected the same credentials";

/// Settings of a run.
pub struct RunSettings {
    /// The objects to create in NSX. `None` creates nothing.
    pub write: Option<WriteRequest>,
    /// Limits of time and of calls.
    pub limits: Limits,
    /// Ctrl-C and SIGTERM.
    pub interrupts: Interrupts,
}

impl Default for RunSettings {
    /// Settings of a run that only reads and is never interrupted.
    fn default() -> Self {
        Self { write: None, limits: Limits::default(), interrupts: Interrupts::never() }
    }
}

/// Limits of time and of calls.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Limit of calls for the checks of a server, if it is lower than the announced limit.
    pub calls: usize,
    /// Longest wait for a state of an object in NSX.
    pub state: Duration,
    /// Longest time for the removal of what was created.
    pub removal: Duration,
    /// Time after a write without an answer until its object is looked up again.
    pub late: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // NSX purges objects that are marked for deletion every five minutes.
        let (state, removal, late) = (Duration::from_secs(240), Duration::from_secs(600), Duration::from_secs(10));
        Self { calls: usize::MAX, state, removal, late }
    }
}

/// Runs the checks of all servers, one server after the other.
pub async fn run(servers: Servers, settings: &RunSettings) -> Report {
    let (mut reports, mut rejected) = (Vec::new(), Vec::<VcenterServer>::new());
    for server in servers.all {
        let mut report = match server {
            Server::Vcenter(vcenter) if rejected.iter().any(|other| other.has_account_of(&vcenter)) => {
                vcenter::untested(&vcenter, REJECTED_BEFORE)
            }
            Server::Vcenter(vcenter) => {
                let report = vcenter::check(&vcenter, settings).await;
                if report.ended_early.as_deref() == Some(REJECTED) {
                    rejected.push(vcenter);
                }
                report
            }
            Server::Nsx(nsx) => nsx::check(&nsx, settings).await,
        };
        let is_interrupted = settings.interrupts.is_interrupted();
        if is_interrupted {
            report.ended_early.get_or_insert_with(|| INTERRUPTED.to_owned());
        }
        reports.push(report);
        if is_interrupted {
            break;
        }
    }
    Report { servers: reports }
}

/// Runs this on a new runtime. Tasks that are still running do not delay its end.
///
/// # Errors
/// The system provides no threads or sockets.
pub fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(outcome)
}
