//! Reads the command line and the file, asks, runs the checks, prints the table, and ends with its exit code.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it does")]

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use field_test::options::{Asked, HELP, parse};
use field_test::{Options, Servers, announcement, block_on, run};

/// Nothing was tested.
const NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    match parse(arguments) {
        Ok(Asked::Help) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Ok(Asked::Run(options)) => field_test(&options).unwrap_or_else(failed).into(),
        Err(why) => failed(why).into(),
    }
}

fn field_test(options: &Options) -> Result<u8, String> {
    let servers = Servers::read(&options.file)?;
    for warning in &servers.warnings {
        eprintln!("warning: {warning}");
    }
    eprintln!("{}", announcement::announcement(&servers));
    if !options.yes && !is_agreed()? {
        return Err("nothing was sent".to_owned());
    }
    let report = block_on(run(servers)).map_err(|error| format!("cannot start: {error}"))?;
    print!("{}", report.table());
    Ok(report.exit_code())
}

fn is_agreed() -> Result<bool, String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err("nothing was sent: there is no terminal to ask; --yes begins without a question".to_owned());
    }
    eprint!("Begin? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    input.lock().read_line(&mut answer).map_err(|error| format!("the answer cannot be read: {error}"))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn failed(why: String) -> u8 {
    eprintln!("error: {why}");
    NOT_RUN
}
