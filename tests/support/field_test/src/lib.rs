//! The field test: what this project believes of vCenter and NSX, run against the servers of a `vsphere.conf`.
//!
//! Data flows one way:
//!
//! ```text
//! arguments ─▶ options ─┐
//! vsphere.conf ─▶ servers ─▶ announcement, a question ─▶ vcenter, nsx ─▶ sheet ─▶ report ─▶ table, exit code
//!                                                          │ the product's clients
//!                                                          ▼
//!                                                         wire ─▶ network
//! ```
//!
//! The checks call the product's clients, not copies of them. [`wire`] is below the clients, in the place of their
//! transport: it counts calls, refuses those beyond the announced number, measures them, and shows the checks the answers
//! as they came. Neither the table nor anything else that is printed holds a text of a server, apart from its product name:
//! a result can be sent as it is.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it does")]

pub mod announcement;
pub mod belief;
pub mod nsx;
pub mod options;
pub mod report;
pub mod servers;
pub mod vcenter;
pub mod wire;

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

pub use belief::{Belief, Outcome, Sheet};
pub use options::Options;
pub use report::{Report, ServerReport};
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

/// Runs the checks of all servers, one server after the other.
pub async fn run(servers: Servers) -> Report {
    let (mut reports, mut rejected) = (Vec::new(), Vec::<VcenterServer>::new());
    for server in servers.all {
        let report = match server {
            Server::Vcenter(vcenter) if rejected.iter().any(|other| other.has_account_of(&vcenter)) => {
                vcenter::untested(&vcenter, REJECTED_BEFORE)
            }
            Server::Vcenter(vcenter) => {
                let report = vcenter::check(&vcenter).await;
                if report.ended_early.as_deref() == Some(REJECTED) {
                    rejected.push(vcenter);
                }
                report
            }
            Server::Nsx(nsx) => nsx::check(&nsx).await,
        };
        let is_interrupted = report.ended_early.as_deref() == Some(INTERRUPTED);
        reports.push(report);
        if is_interrupted {
            break;
        }
    }
    Report { servers: reports }
}

/// The outcome of this work; none where Ctrl-C or SIGTERM came first. The work is dropped then, and its caller tidies up.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = T>) -> Option<T> {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = work => Some(outcome),
        Ok(()) = tokio::signal::ctrl_c() => None,
        _ = terminated => None,
    }
}

/// Runs this on a runtime of its own.
///
/// # Errors
/// The system refuses threads or sockets.
pub fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(work))
}
