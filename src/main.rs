//! Entry point: parses the flags, starts logging, calls `app::run`, and returns the exit code.

use ccm::app::options::{self, Invocation};
use ccm::app::{self, settings, subcommands};
use ccm::base::error_chain::chain;
use ccm::runtime::logging;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

/// Keeps fewer pages than the allocator of the C library; see `Cargo.toml`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Returns 0 after an orderly stop, `--help` or `--version`, the exit code of a subcommand, or else 1, as in Go.
fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(outcome) = subcommands::run(&arguments) {
        print(std::io::stdout(), &outcome.output);
        print(std::io::stderr(), &outcome.messages);
        return outcome.exit_code.into();
    }
    let options = match options::parse(arguments) {
        Ok(Invocation::Run(options)) => options,
        Ok(Invocation::Print(text)) => {
            print(std::io::stdout(), &text);
            return ExitCode::SUCCESS;
        }
        Err(misspelled) => return failed(&misspelled),
    };
    for deprecation in options.deprecations() {
        print(std::io::stderr(), &format!("{deprecation}\n"));
    }
    let (log, written) = match logging::start(&settings::of_the_log(&options)) {
        Ok(started) => started,
        Err(error) => return failed(&error),
    };
    let outcome = app::run(&options, log);
    match &outcome {
        Ok(()) | Err(app::Error::Settings(_)) => {}
        Err(error) => tracing::error!("{}", chain(error)),
    }
    drop(written);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Prints each error on its own line for the user at the terminal, instead of one log record.
        Err(error @ app::Error::Settings(_)) => failed(&error),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Writes the text. Ignores errors, since the reader may have closed the pipe.
fn print(mut to: impl Write, text: &str) {
    let _ = to.write_all(text.as_bytes());
}

fn failed(error: &dyn Error) -> ExitCode {
    print(std::io::stderr(), &format!("error: {}\n", chain(error)));
    ExitCode::FAILURE
}
