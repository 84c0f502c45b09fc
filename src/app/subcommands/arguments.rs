//! Options that commands share.

use super::{CommandOutput, USAGE_ERROR};
use crate::app::options::PROGRAM;
use crate::app::reports::text::hanging;
use crate::base::go_duration::parse_duration;
use clap::builder::PossibleValuesParser;
use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::time::Duration;

/// Default of `--timeout`.
const TIMEOUT: &str = "60s";

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// Lines for a person.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The options that all commands have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonOptions {
    /// `--output`.
    pub form: OutputForm,
    /// `--timeout`: limit of the whole command.
    pub timeout: Duration,
    /// `--wait`: repeat until the exit code is 0.
    pub waits: bool,
    /// `--quiet`: print no report.
    pub is_quiet: bool,
    /// `--mask-users`: print no user names of credentials.
    pub masks_users: bool,
    /// `--pid`: id of the process to ask, if several run in this PID namespace.
    pub process: Option<i32>,
    /// Where the answer comes from.
    pub source: AnswerSource,
}

/// The source of the answer of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerSource {
    /// The running process, over its local socket.
    Process {
        /// Whether the command has `--detached`.
        may_detach: bool,
    },
    /// The API server, vCenter and NSX, with these flags of the daemon.
    Observer(Vec<OsString>),
}

/// Options that make a command read API server, vCenter and NSX itself. A command has some of them.
const DETACHING: [&str; 3] = ["detached", "preflight", "compare"];

/// The options that are also flags of the daemon.
const DAEMON_FLAGS: [&str; 2] = ["kubeconfig", "cloud-config"];

/// Returns a command with the options that all commands have. `examples` is the end of its help.
pub fn command(name: &'static str, about: &'static str, examples: &'static str) -> Command {
    Command::new(name)
        .bin_name(format!("{PROGRAM} {name}"))
        .about(about)
        .after_help(examples)
        .disable_version_flag(true)
        .args_override_self(true)
        .args([
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORM")
                .value_parser(PossibleValuesParser::new(["text", "json", "yaml"]))
                .default_value("text")
                .help("Form of the report"),
            Arg::new("timeout")
                .long("timeout")
                .value_name("DURATION")
                .default_value(TIMEOUT)
                .help("Limit of the whole command, such as 90s or 5m"),
            Arg::new("wait")
                .long("wait")
                .action(ArgAction::SetTrue)
                .help("Repeat until everything is as it should be, at most for --timeout"),
            Arg::new("quiet")
                .short('q')
                .long("quiet")
                .action(ArgAction::SetTrue)
                .help("Print no report; the exit code is the answer"),
            Arg::new("mask-users")
                .long("mask-users")
                .action(ArgAction::SetTrue)
                .help("Replace the user names of credentials by ***"),
            Arg::new("pid")
                .long("pid")
                .value_name("ID")
                .value_parser(clap::value_parser!(i32).range(1..))
                .help("Ask the process with this id, if several run in this PID namespace"),
        ])
}

/// Adds the options of a command that can read API server, vCenter and NSX itself.
pub fn detachable(command: Command) -> Command {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(clap::value_parser!(OsString)).help(help)
    };
    command.args([
        Arg::new("detached")
            .long("detached")
            .action(ArgAction::SetTrue)
            .conflicts_with("pid")
            .help("Ask no process: log in, and read the API server, vCenter and NSX"),
        file("kubeconfig", "Credentials for the API server; selects --detached").conflicts_with("pid"),
        file("cloud-config", "The vsphere.conf; selects --detached").conflicts_with("pid"),
        Arg::new("flags")
            .value_name("FLAGS OF THE DAEMON")
            .last(true)
            .num_args(1..)
            .value_parser(clap::value_parser!(OsString))
            .help("With --detached: flags as of the daemon, such as --cluster-name=NAME"),
    ])
}

/// Returns the source of the answer.
///
/// # Errors
/// There are flags of the daemon, and no option that needs them.
fn source_of(matches: &ArgMatches, may_detach: bool) -> Result<AnswerSource, CommandOutput> {
    // A command without the option has none of these.
    let has = |name: &&str| matches.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or_default();
    let file = |name: &str| matches.try_get_one::<OsString>(name).ok().flatten();
    let mut flags: Vec<OsString> =
        matches.try_get_many::<OsString>("flags").ok().flatten().into_iter().flatten().cloned().collect();
    let has_flags = !flags.is_empty();
    // After the others: of a flag that is given twice, the last value counts.
    for name in DAEMON_FLAGS {
        if let Some(value) = file(name) {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(value);
            flags.push(flag);
        }
    }
    if DETACHING.iter().any(has) || DAEMON_FLAGS.iter().any(|name| file(name).is_some()) {
        return Ok(AnswerSource::Observer(flags));
    }
    if has_flags {
        let message =
            "the flags after -- are those of the daemon, which need --detached: a running process has its own";
        return Err(CommandOutput::failure(message, USAGE_ERROR));
    }
    Ok(AnswerSource::Process { may_detach })
}

/// Parses the arguments after the name of the command.
///
/// # Errors
/// The output with the help text, or with the error and the exit code for wrong usage.
pub fn parse(command: Command, arguments: &[OsString]) -> Result<(CommonOptions, ArgMatches), CommandOutput> {
    let name = command.get_name().to_owned();
    let may_detach = command.get_arguments().any(|argument| argument.get_id() == "detached");
    let typed = std::iter::once(OsString::from(&name)).chain(arguments.iter().cloned());
    let matches = match command.try_get_matches_from(typed) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return Err(CommandOutput::success(fitted(&error.render().to_string())));
        }
        Err(mut error) => {
            if error.kind() == ErrorKind::UnknownArgument {
                // Recommends to write the option after --, where it is a flag of the daemon or the name of a Node.
                error.remove(ContextKind::Suggested);
            }
            let text = error.render().to_string();
            let text = text.trim_start_matches("error: ").trim_end();
            return Err(CommandOutput::failure(text, USAGE_ERROR));
        }
    };
    let form = match text(&matches, "output") {
        Some("json") => OutputForm::Json,
        Some("yaml") => OutputForm::Yaml,
        _ => OutputForm::Text,
    };
    let typed = text(&matches, "timeout").unwrap_or(TIMEOUT);
    let timeout = parse_duration(typed).ok().filter(|timeout| !timeout.is_zero()).ok_or_else(|| {
        let message = format!("--timeout={typed}: expected a duration above zero, such as 90s or 5m");
        CommandOutput::failure(&message, USAGE_ERROR)
    })?;
    let common = CommonOptions {
        form,
        timeout,
        waits: matches.get_flag("wait"),
        is_quiet: matches.get_flag("quiet"),
        masks_users: matches.get_flag("mask-users"),
        process: matches.get_one::<i32>("pid").copied(),
        source: source_of(&matches, may_detach)?,
    };
    Ok((common, matches))
}

/// Start of the examples in a help text, which have commands to copy.
const EXAMPLES: &str = "Examples:";

/// Breaks the lines of a help text that are too wide for a terminal. The further lines about an option begin below its
/// description.
fn fitted(help: &str) -> String {
    let mut text = String::new();
    let mut is_example = false;
    for line in help.lines() {
        is_example |= line == EXAMPLES;
        let lines = if is_example { vec![line.to_owned()] } else { fitted_line(line) };
        for line in lines {
            text.extend([&line, "\n"]);
        }
    }
    text
}

fn fitted_line(line: &str) -> Vec<String> {
    let name = line.trim_start();
    let margin = line.len() - name.len();
    // Two spaces separate an option from its description.
    let column = name.find("  ").map(|end| {
        let rest = name.get(end..).unwrap_or_default();
        margin + end + rest.len() - rest.trim_start().len()
    });
    let (first, description) = line.split_at_checked(column.unwrap_or(margin)).unwrap_or(("", line));
    hanging(first, description, first.chars().count())
}

/// Returns the value of an option.
pub fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<CommonOptions, CommandOutput> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        parse(command("probe", "About.", "Examples:\n  probe"), &arguments).map(|(common, _)| common)
    }

    #[test]
    fn the_options_have_defaults_and_short_forms() {
        let defaults = CommonOptions {
            form: OutputForm::Text,
            timeout: Duration::from_secs(60),
            waits: false,
            is_quiet: false,
            masks_users: false,
            process: None,
            source: AnswerSource::Process { may_detach: false },
        };
        assert_eq!(parsed(&[]), Ok(defaults.clone()));
        assert_eq!(
            parsed(&["-o", "json", "-q", "--wait", "--mask-users", "--timeout=5m", "--pid=7"]),
            Ok(CommonOptions {
                form: OutputForm::Json,
                timeout: Duration::from_secs(300),
                waits: true,
                is_quiet: true,
                masks_users: true,
                process: Some(7),
                source: AnswerSource::Process { may_detach: false },
            })
        );
        assert_eq!(parsed(&["-oyaml", "-otext"]), Ok(defaults));
    }

    #[test]
    fn each_detaching_option_selects_the_observer_and_the_files_are_flags_of_the_daemon() {
        let preflight = Arg::new("preflight").long("preflight").action(ArgAction::SetTrue);
        let source = |arguments: &[&str]| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            let command = detachable(command("probe", "About.", "Examples:")).arg(preflight.clone());
            parse(command, &arguments).map(|(common, _)| common.source)
        };
        let observer = |flags: &[&str]| Ok(AnswerSource::Observer(flags.iter().map(OsString::from).collect()));
        assert_eq!(source(&["-q"]), Ok(AnswerSource::Process { may_detach: true }));
        assert_eq!(source(&["--detached"]), observer(&[]));
        assert_eq!(source(&["--preflight"]), observer(&[]));
        assert_eq!(source(&["--kubeconfig=k"]), observer(&["--kubeconfig=k"]));
        assert_eq!(
            source(&["--detached", "--cloud-config", "c", "--", "--cluster-name=a", "--v=4", "--cloud-config=d"]),
            observer(&["--cluster-name=a", "--v=4", "--cloud-config=d", "--cloud-config=c"])
        );
        let unused = source(&["--", "--v=4"]).unwrap_err();
        assert!(unused.exit_code == 2 && unused.messages.contains("--detached"), "{unused:?}");
        assert_eq!(source(&["--detached", "--pid=7"]).unwrap_err().exit_code, 2);
    }

    #[test]
    fn the_lines_of_a_help_text_fit_into_100_columns_except_for_the_examples() {
        let about: &'static str = "Prints a very long sentence, which has more than one hundred characters, so that \
                                   it needs two lines.";
        let help = "A description that is far too long for one line of the terminal, and for one hundred columns";
        let examples: &'static str = "Examples:\n  a command that is much longer than one hundred columns, and that a \
                                      reader copies and pastes as a whole";
        let option = Arg::new("long").long("long-option").value_name("VALUE").help(help);
        let command = command("probe", about, examples).arg(option);
        let output = parse(command, &[OsString::from("--help")]).unwrap_err().output;
        let (text, examples) = output.split_once("Examples:").unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(examples.lines().any(|line| line.chars().count() > 100), "{examples}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert!(words(text).contains(about) && words(text).contains(help), "{text}");
        let column = text.lines().find_map(|line| line.find("A description")).unwrap();
        let next = text.lines().skip_while(|line| !line.contains("A description")).nth(1).unwrap();
        assert_eq!(next.len() - next.trim_start().len(), column, "{text}");
    }

    #[test]
    fn an_unknown_option_is_not_recommended_as_the_value_of_an_argument() {
        let command = command("probe", "About.", "Examples:").arg(Arg::new("node"));
        let output = parse(command, &[OsString::from("--detached")]).unwrap_err();
        assert!(output.messages.contains("'--detached'") && !output.messages.contains("-- --"), "{output:?}");
    }

    #[test]
    fn wrong_usage_is_exit_code_2_and_help_is_0() {
        for arguments in
            [&["--timeout=0"][..], &["--timeout=soon"], &["-o", "xml"], &["extra"], &["--pid=0"], &["--kubeconfig=x"]]
        {
            let output = parsed(arguments).unwrap_err();
            assert_eq!((output.exit_code, output.output.as_str()), (2, ""), "{output:?}");
            assert!(output.messages.starts_with("error: "), "{output:?}");
        }
        let help = parsed(&["--help"]).unwrap_err();
        assert_eq!((help.exit_code, help.messages.as_str()), (0, ""));
        for text in ["About.", "Usage: vsphere-cloud-controller-manager probe", "--mask-users", "Examples:\n  probe"] {
            assert!(help.output.contains(text), "{text} in {}", help.output);
        }
    }
}
