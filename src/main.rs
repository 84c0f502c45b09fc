//! Reads flags, starts logging, calls `app::run`, turns its outcome into an exit code.

use ccm::app::options::{self, Asked};
use ccm::app::{self, settings};
use ccm::base::error_chain::chain;
use ccm::runtime::logging;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

/// For one that gives memory back, see `Cargo.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// 0 after an orderly stop, `--help` and `--version`; 1 for everything else, as in the Go program.
fn main() -> ExitCode {
    let asked = match options::parse(std::env::args_os()) {
        Ok(asked) => asked,
        Err(misspelled) => return failed(&misspelled),
    };
    let options = match asked {
        Asked::Print(text) => return printed(&text),
        Asked::Run(options) => options,
    };
    for told in options.deprecations() {
        // With standard error closed there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "{told}");
    }
    let (verbosity, written) = match logging::start(&settings::of_the_log(&options)) {
        Ok(started) => started,
        Err(error) => return failed(&error),
    };
    let outcome = app::run(&options, verbosity);
    match &outcome {
        Ok(()) | Err(app::Error::Settings(_)) => {}
        Err(error) => tracing::error!("{}", chain(error)),
    }
    drop(written);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // For whoever typed it, in words and lines of its own.
        Err(error @ app::Error::Settings(_)) => failed(&error),
        Err(_) => ExitCode::FAILURE,
    }
}

fn printed(text: &str) -> ExitCode {
    // A closed pipe behind `--help` is nothing to complain about.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

fn failed(error: &dyn Error) -> ExitCode {
    // With standard error closed there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "error: {}", chain(error));
    ExitCode::FAILURE
}
