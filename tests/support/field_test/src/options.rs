//! Pure: the command line.

use std::path::PathBuf;

/// The text of `--help`.
pub const HELP: &str = "\
Runs what this project believes of vCenter and NSX against the servers of a vsphere.conf, and prints a table.

Usage: field-test [OPTIONS] VSPHERE.CONF

Options:
      --yes           Begins without a question
      --write PREFIX  Also makes objects in NSX whose ids begin with PREFIX, looks at them, and removes them
      --service ID    With --write: also makes a virtual server without members on this load balancer service
      --record FILE   Records each exchange without credentials and names in a new file
      --help          Prints this text

Exit codes: 0 everything that was tried holds, 1 something differs, 2 a server could not be tested, or something that
was made may be left
";

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// A run.
    Run(Options),
    /// The help text.
    Help,
}

/// Options of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Path of the `vsphere.conf`.
    pub file: PathBuf,
    /// Whether to start without confirmation.
    pub yes: bool,
    /// File for the recorded exchanges.
    pub record: Option<PathBuf>,
    /// The objects to create in NSX. `None` creates nothing.
    pub write: Option<WriteRequest>,
}

/// The objects to create in NSX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// Prefix of the ids of all objects.
    pub prefix: String,
    /// Id of the load balancer service that gets a virtual server.
    pub service: Option<String>,
}

/// Reads the arguments after the program name.
///
/// # Errors
/// The mistake, in one sentence.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Asked, String> {
    let (mut options, mut prefix, mut service) = (Options::default(), None, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--yes" => options.yes = true,
            "--write" => prefix = Some(prefix_of(arguments.next())?),
            "--service" => service = Some(service_of(arguments.next())?),
            record if record == "--record" || record.starts_with("--record=") => {
                let file = record.strip_prefix("--record=").map(str::to_owned).or_else(|| arguments.next());
                let file = file.filter(|file| !file.is_empty() && options.record.is_none());
                options.record = Some(file.ok_or("expected one file for --record: see --help")?.into());
            }
            unknown if unknown.starts_with('-') => return Err(format!("unknown option {unknown:?}: see --help")),
            _ if options.file.as_os_str().is_empty() => options.file = PathBuf::from(argument),
            _ => return Err("expected one vsphere.conf: see --help".to_owned()),
        }
    }
    options.write = match (prefix, service) {
        (Some(prefix), service) => Some(WriteRequest { prefix, service }),
        (None, None) => None,
        (None, Some(_)) => return Err("--service needs --write PREFIX: see --help".to_owned()),
    };
    match options.file.as_os_str().is_empty() {
        true => Err("expected the path of a vsphere.conf: see --help".to_owned()),
        false => Ok(Asked::Run(options)),
    }
}

fn prefix_of(value: Option<String>) -> Result<String, String> {
    let is_usable = |text: &String| {
        let is_plain = text.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '-' | '_'));
        is_plain && (3..=40).contains(&text.len()) && !text.starts_with('-')
    };
    let expected = "--write needs a PREFIX of 3 to 40 letters, digits, '-' and '_'";
    value.filter(is_usable).ok_or_else(|| expected.to_owned())
}

fn service_of(value: Option<String>) -> Result<String, String> {
    let is_usable = |text: &String| {
        let is_plain = text.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.' | ':'));
        is_plain && (1..=255).contains(&text.len()) && !text.starts_with(['-', '.'])
    };
    let expected = "--service needs the ID of a load balancer service, which is the last part of its path";
    value.filter(is_usable).ok_or_else(|| expected.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Asked, Options, WriteRequest, parse};

    fn parsed(line: &str) -> Result<Asked, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_line_has_one_file_and_known_options() {
        let run = |yes| Ok(Asked::Run(Options { file: "a.conf".into(), yes, ..Options::default() }));
        let write = |service: Option<&str>| {
            let request = WriteRequest { prefix: "ccm".to_owned(), service: service.map(str::to_owned) };
            Ok(Asked::Run(Options { file: "a.conf".into(), write: Some(request), ..Options::default() }))
        };
        let no_prefix = || Err("--write needs a PREFIX of 3 to 40 letters, digits, '-' and '_'".to_owned());
        let no_service =
            "--service needs the ID of a load balancer service, which is the last part of its path".to_owned();
        let record =
            || Ok(Asked::Run(Options { file: "a.conf".into(), record: Some("r.json".into()), ..Options::default() }));
        let no_record = || Err("expected one file for --record: see --help".to_owned());
        for (line, expected) in [
            ("a.conf", run(false)),
            ("--yes a.conf", run(true)),
            ("a.conf --yes", run(true)),
            ("--help nonsense", Ok(Asked::Help)),
            ("--write ccm a.conf", write(None)),
            ("--write ccm a.conf --service lbs-1", write(Some("lbs-1"))),
            ("--service lbs-1 a.conf", Err("--service needs --write PREFIX: see --help".to_owned())),
            ("a.conf --write", no_prefix()),
            ("--write a/b a.conf", no_prefix()),
            ("--write ab a.conf", no_prefix()),
            ("--write --yes a.conf", no_prefix()),
            ("--write ccm a.conf --service /infra/lb-services/a", Err(no_service.clone())),
            ("--write ccm a.conf --service ..", Err(no_service)),
            ("--record r.json a.conf", record()),
            ("a.conf --record=r.json", record()),
            ("a.conf --record", no_record()),
            ("a.conf --record=", no_record()),
            ("--record a --record b a.conf", no_record()),
            ("", Err("expected the path of a vsphere.conf: see --help".to_owned())),
            ("a.conf b.conf", Err("expected one vsphere.conf: see --help".to_owned())),
            ("--yess a.conf", Err("unknown option \"--yess\": see --help".to_owned())),
        ] {
            assert_eq!(parsed(line), expected, "{line}");
        }
    }
}
