//! `make measure`: what a large cluster costs the daemon.
//!
//! Usage: `measure DAEMON`, the daemon's binary. `NODES` is the number of nodes (5000).

use std::path::PathBuf;
use std::process::ExitCode;

use support::measure::{self, Plan};

#[tokio::main]
async fn main() -> ExitCode {
    let Some(daemon) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: measure DAEMON (or: make measure)");
        return ExitCode::FAILURE;
    };
    let outcome = match Plan::from_environment(daemon) {
        Ok(plan) => measure::run(plan).await,
        Err(message) => Err(message),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
