//! Reads the command line and the file, asks for confirmation, runs the checks, prints the table, and exits with its
//! code.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing is what it does")]

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use field_test::options::{Asked, HELP, parse};
use field_test::recording::Recorder;
use field_test::{Interrupts, Limits, Options, Report, RunSettings, Server, Servers, announcement, block_on, run};

/// Exit code if nothing was tested.
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
    let mut servers = Servers::read(&options.file)?;
    for warning in &servers.warnings {
        eprintln!("warning: {warning}");
    }
    let write = options.write.as_ref();
    if write.is_some() && !servers.all.iter().any(|server| matches!(server, Server::Nsx(_))) {
        return Err("--write needs a section NSXT in the file".to_owned());
    }
    eprintln!("{}", announcement::announcement(&servers, write));
    if let Some(file) = &options.record {
        eprintln!("It records each exchange, without credentials and names, in {}.\n", file.display());
    }
    let question = if write.is_some() { "Begin, and write to NSX?" } else { "Begin?" };
    if !options.yes && !is_agreed(question)? {
        return Err("nothing was sent".to_owned());
    }
    let recorder = options.record.as_deref().map(Recorder::create).transpose()?;
    if let Some(recorder) = &recorder {
        recorder.attach(&mut servers);
    }
    let report = block_on(tested(servers, options)).and_then(|report| report);
    let report = report.map_err(|error| format!("cannot start: {error}"))?;
    let recorded = recorder.map(|recorder| recorder.finish(&report));
    // The reader of standard output or of standard error may have ended. The other one is written anyway.
    let _ = std::io::stdout().write_all(report.table().as_bytes());
    let mut errors = std::io::stderr();
    let _ = errors.write_all(report.cleanup().as_bytes());
    let _ = match recorded {
        Some(Ok(done)) => writeln!(errors, "{done}"),
        Some(Err(why)) => writeln!(errors, "warning: {why}"),
        None => Ok(()),
    };
    Ok(report.exit_code())
}

async fn tested(servers: Servers, options: &Options) -> std::io::Result<Report> {
    let interrupts = Interrupts::install()?;
    Ok(run(servers, &RunSettings { write: options.write.clone(), limits: Limits::default(), interrupts }).await)
}

fn is_agreed(question: &str) -> Result<bool, String> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err("nothing was sent: there is no terminal to ask; --yes begins without a question".to_owned());
    }
    eprint!("{question} [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    input.lock().read_line(&mut answer).map_err(|error| format!("the answer cannot be read: {error}"))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn failed(why: String) -> u8 {
    eprintln!("error: {why}");
    NOT_RUN
}
