//! `bundle`: an archive for a bug report, with everything that the running process knows about itself.

mod collector;

use super::arguments::{self, CommonOptions};
use super::{CommandOutput, USAGE_ERROR, output};
use crate::app::reports::Verdict;
use crate::app::reports::bundle::BundleManifest;
use clap::{Arg, ArgAction, ArgMatches, Command};
use collector::{BundleCollector, BundleFailure};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;

const NAME: &str = "bundle";

const ABOUT: &str = "Writes an archive (tar.gz) for a bug report to standard output, and its manifest to standard \
                     error: status, checks, configuration, flags, decisions, the end of the log, metrics, Leases, \
                     Events, the VMs behind Nodes, and Nodes. Secrets are masked. --anonymise replaces names and \
                     addresses.\n\n\
                     The command connects to the process in its own container. Exit codes: 0 complete as far as the \
                     permissions of the process go, 2 wrong usage, no process, or standard output is a terminal, 3 a \
                     part could not be read or did not fit.";

const EXAMPLES: &str = "Examples:\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager bundle > bundle.tar.gz\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager bundle --anonymise --map=- \
    > bundle.tar.gz 2> names.txt";

/// Value of `--map` for standard error.
const STANDARD_ERROR: &str = "-";

/// Default of `--max-size`.
const MAX_SIZE: &str = "16Mi";

/// Smallest value of `--max-size`, in bytes: the manifest and some parts fit.
const LEAST_SIZE: usize = 64 << 10;

/// Returns the command line.
pub(super) fn command() -> Command {
    let command = arguments::command(NAME, ABOUT, EXAMPLES).mut_arg("wait", |wait| wait.hide(true));
    command.args([
        Arg::new("anonymise")
            .long("anonymise")
            .action(ArgAction::SetTrue)
            .help("Replace names of hosts, Nodes, VMs and users, addresses and UUIDs by tokens"),
        Arg::new("map")
            .long("map")
            .value_name("FILE")
            .requires("anonymise")
            .help("Write the name of each token to this new file, or with - to standard error; never into the archive"),
        Arg::new("max-size")
            .long("max-size")
            .value_name("SIZE")
            .default_value(MAX_SIZE)
            .help("Maximum size of the archive, such as 512Ki or 16Mi; the last parts are cut or left out"),
    ])
}

pub(super) fn run(arguments: &[OsString]) -> CommandOutput {
    match bundle(arguments) {
        Ok(output) | Err(output) => output,
    }
}

/// The options of the command.
struct BundleOptions {
    common: CommonOptions,
    is_anonymised: bool,
    /// Maximum size of the archive, in bytes.
    max_size: usize,
}

/// Where the names of the tokens go.
enum MapOutput {
    Nowhere,
    StandardError,
    File(File),
}

fn bundle(arguments: &[OsString]) -> Result<CommandOutput, CommandOutput> {
    let (common, matches) = arguments::parse(command(), arguments)?;
    if common.waits {
        return Err(CommandOutput::failure("--wait does not apply to bundle", USAGE_ERROR));
    }
    let options = BundleOptions {
        common,
        is_anonymised: matches.get_flag("anonymise"),
        max_size: max_size(arguments::text(&matches, "max-size").unwrap_or(MAX_SIZE))?,
    };
    if io::stdout().is_terminal() {
        let message = "standard output is a terminal: redirect it to a file, such as bundle > bundle.tar.gz";
        return Err(CommandOutput::failure(message, USAGE_ERROR));
    }
    let mut collector = BundleCollector::new(&options)?;
    // Before the first byte of the archive, because the file may exist; and not without a process to ask.
    let mut map = MapOutput::new(&matches)?;
    let manifest = collector.write(io::stdout().lock()).map_err(BundleFailure::output)?;
    let text = map.write(collector.map()).map_err(|error| {
        CommandOutput::failure(&format!("--map: cannot write the names: {error}"), Verdict::Incomplete.exit_code())
    })?;
    let mut output = output_of(&manifest, &options.common);
    output.messages += &text;
    Ok(output)
}

/// Returns the manifest as a message, because the archive is the output.
fn output_of(manifest: &BundleManifest, options: &CommonOptions) -> CommandOutput {
    let report = output::report(BundleManifest::KIND, manifest, &manifest.lines(), manifest.verdict(), options);
    CommandOutput { output: String::new(), messages: report.output, exit_code: report.exit_code }
}

impl MapOutput {
    /// Creates the file, which only its owner may read. A file that exists stays as it is.
    fn new(matches: &ArgMatches) -> Result<Self, CommandOutput> {
        match arguments::text(matches, "map") {
            None => Ok(Self::Nowhere),
            Some(STANDARD_ERROR) => Ok(Self::StandardError),
            Some(path) => {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
                file.map(Self::File).map_err(|error| {
                    let message = format!("--map={path}: expected a file that can be created: {error}");
                    CommandOutput::failure(&message, USAGE_ERROR)
                })
            }
        }
    }

    /// Writes the names to the file, or returns them for standard error.
    fn write(&mut self, map: &BTreeMap<String, String>) -> io::Result<String> {
        let text = format!("{:#}\n", serde_json::json!(map));
        match self {
            Self::Nowhere => Ok(String::new()),
            Self::StandardError => Ok(text),
            Self::File(file) => {
                file.write_all(text.as_bytes())?;
                file.sync_all()?;
                Ok(String::new())
            }
        }
    }
}

/// Parses a number of bytes with an optional unit.
fn max_size(text: &str) -> Result<usize, CommandOutput> {
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or_default().trim_end_matches(['b', 'B']) {
        "" => Some(0),
        "K" | "Ki" => Some(10),
        "M" | "Mi" => Some(20),
        "G" | "Gi" => Some(30),
        _ => None,
    };
    let bytes = shift.zip(digits.parse::<usize>().ok()).and_then(|(shift, number)| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes >= LEAST_SIZE).ok_or_else(|| {
        let message = format!("--max-size={text}: expected a size of at least 64Ki, such as 512Ki or 16Mi");
        CommandOutput::failure(&message, USAGE_ERROR)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_of_1024() {
        for (text, expected) in [
            ("65536", Some(64 << 10)),
            ("64Ki", Some(64 << 10)),
            ("512K", Some(512 << 10)),
            ("16Mi", Some(16 << 20)),
            ("16MiB", Some(16 << 20)),
            ("1G", Some(1 << 30)),
            ("63Ki", None),
            ("0", None),
            ("16Ti", None),
            ("-1Mi", None),
            ("", None),
            ("Mi", None),
            ("99999999999999999999G", None),
            ("99999999999999G", None),
        ] {
            assert_eq!(max_size(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn wrong_usage_is_exit_code_2_before_anything_is_asked() {
        for arguments in [&["--map=x"][..], &["--max-size=1"], &["--wait"], &["extra"]] {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let CommandOutput { output, messages, exit_code } = run(&arguments);
            assert_eq!((exit_code, output.as_str()), (2, ""), "{arguments:?}: {messages}");
            assert!(messages.starts_with("error: "), "{messages}");
        }
    }

    #[test]
    fn only_the_owner_may_read_the_map_and_a_file_that_exists_stays() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.json");
        let arguments = |path: &str| {
            let arguments = ["bundle", "--anonymise", &format!("--map={path}")].map(str::to_owned);
            command().try_get_matches_from(arguments).unwrap()
        };
        let matches = arguments(path.to_str().unwrap());
        let map = BTreeMap::from([("node_1".to_owned(), "worker-7".to_owned())]);
        assert_eq!(MapOutput::new(&matches).ok().unwrap().write(&map).unwrap(), "");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\n  \"node_1\": \"worker-7\"\n}\n");
        let refused = MapOutput::new(&matches).err().unwrap();
        assert!(refused.exit_code == 2 && refused.messages.contains("--map="), "{refused:?}");
        let shown = MapOutput::new(&arguments("-")).ok().unwrap().write(&map).unwrap();
        assert_eq!(shown, "{\n  \"node_1\": \"worker-7\"\n}\n");
    }
}
