//! The field test: what this project believes of vCenter and NSX, run against the servers of a `vsphere.conf`.
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
//! The checks call the product's clients, not copies of them. [`wire`] is below the clients, in the place of their
//! transport: it counts calls, refuses those beyond the announced number, measures them, and shows the checks the answers
//! as they came. Standard output has no text of a server, apart from its product name: a result can be sent as it is. Names of
//! servers and objects go to standard error only.

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

/// Why a test ended that Ctrl-C or SIGTERM ended. The servers after it are not tested.
pub(crate) const INTERRUPTED: &str = "it was interrupted";

/// Why a server is not tested; the announcement says what is missing, with its names.
pub(crate) const NO_LOGIN: &str = "there are no credentials for it that this test can use";

/// The same; the settings were read without a mistake.
pub(crate) const UNUSABLE_SETTINGS: &str = "no client can be made with its settings of TLS or of the proxy";

/// Why the test of a server ended that rejected the login.
pub(crate) const REJECTED: &str = "the login was rejected; it is not tried again";

/// Why a vCenter is not tested that has the account of another one which rejected it: it may be one account for both, and
/// a few rejections lock it.
const REJECTED_BEFORE: &str = "another vCenter rejected the same credentials";

/// How to run the checks.
pub struct RunSettings {
    /// What to make in NSX; nothing where it is none.
    pub write: Option<WriteRequest>,
    /// How long, and with how many calls.
    pub limits: Limits,
    /// Ctrl-C and SIGTERM.
    pub interrupts: Interrupts,
}

impl Default for RunSettings {
    /// Reads only, and is never interrupted.
    fn default() -> Self {
        Self { write: None, limits: Limits::default(), interrupts: Interrupts::never() }
    }
}

/// How long, and with how many calls.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Calls of the checks of a server, if that is less than announced.
    pub calls: usize,
    /// The wait for a state of an object in NSX.
    pub state: Duration,
    /// The removal of what was made.
    pub removal: Duration,
    /// How long after a write without an answer its object is looked for once more.
    pub late: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // NSX purges what is marked for deletion every five minutes.
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

/// Runs this on a new runtime, which ends without waiting for what is still under way in it.
///
/// # Errors
/// The system refuses threads or sockets.
pub fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(outcome)
}
