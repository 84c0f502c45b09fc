//! Pure: the command line.

use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
Runs what this project believes of vCenter and NSX against the servers of a vsphere.conf, and prints a table.

Usage: field-test [OPTIONS] VSPHERE.CONF

Options:
      --yes   Begins without a question
      --help  Prints this text

Exit codes: 0 everything that was tried holds, 1 something differs, 2 a server could not be tested
";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// A run.
    Run(Options),
    /// The help text.
    Help,
}

/// How to run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The `vsphere.conf`.
    pub file: PathBuf,
    /// Whether to begin without a question.
    pub yes: bool,
}

/// Reads the arguments behind the name of the program.
///
/// # Errors
/// What is wrong, in one sentence.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Asked, String> {
    let mut options = Options::default();
    for argument in arguments {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--yes" => options.yes = true,
            unknown if unknown.starts_with('-') => return Err(format!("unknown option {unknown:?}: see --help")),
            _ if options.file.as_os_str().is_empty() => options.file = PathBuf::from(argument),
            _ => return Err("expected one vsphere.conf: see --help".to_owned()),
        }
    }
    match options.file.as_os_str().is_empty() {
        true => Err("expected the path of a vsphere.conf: see --help".to_owned()),
        false => Ok(Asked::Run(options)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Options, parse};

    fn parsed(line: &str) -> Result<Asked, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_line_has_one_file_and_known_options() {
        let run = |yes| Ok(Asked::Run(Options { file: "a.conf".into(), yes }));
        for (line, expected) in [
            ("a.conf", run(false)),
            ("--yes a.conf", run(true)),
            ("a.conf --yes", run(true)),
            ("--help nonsense", Ok(Asked::Help)),
            ("", Err("expected the path of a vsphere.conf: see --help".to_owned())),
            ("a.conf b.conf", Err("expected one vsphere.conf: see --help".to_owned())),
            ("--yess a.conf", Err("unknown option \"--yess\": see --help".to_owned())),
        ] {
            assert_eq!(parsed(line), expected, "{line}");
        }
    }
}
