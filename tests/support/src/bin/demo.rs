//! `make demo`: runs a whole cluster on this machine. The daemon initializes its nodes and serves a Service on NSX.
//!
//! Usage: `demo DAEMON`, the daemon's binary. `NODES` is the number of nodes (default 9). `ONCE=1` exits after the last
//! step. `ROUTES=1` adds routes. `NODE=1` adds a real node, for which the demo runs in a sandbox.

use std::path::PathBuf;
use std::process::ExitCode;

use support::demo::{self, Plan};
use support::sandbox;

#[tokio::main]
async fn main() -> ExitCode {
    let Some(daemon) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: demo DAEMON (or: make demo)");
        return ExitCode::FAILURE;
    };
    let plan = match Plan::from_environment(daemon) {
        Ok(plan) => plan,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let mut sandbox = None;
    if plan.node {
        let daemon = std::env::args().nth(1).unwrap_or_default();
        match sandbox::reexecute(&[&daemon]).await {
            Ok(inside) => sandbox = Some(inside),
            Err(code) => return code,
        }
    }
    match demo::run(plan, sandbox).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("\nThe demo failed: {message}");
            ExitCode::FAILURE
        }
    }
}
