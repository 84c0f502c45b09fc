//! `deletions list | pause | resume | allow`: shows and controls the deletion of Nodes.

use super::arguments::{CommonOptions, OutputForm};
use super::{CommandOutput, USAGE_ERROR, arguments, output, process_client};
use crate::app::inquiries::protocol::{Answer, DeletionsRequest, Question};
use crate::app::reports::Verdict;
use crate::app::reports::deletions::DeletionsReport;
use crate::base::go_duration::parse_duration;
use crate::controllers::node_lifecycle::deletion_pause;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::time::Duration;

const NAME: &str = "deletions";

const ABOUT: &str = "Shows and controls the deletion of Nodes whose VMs are gone.\n\n\
                     list shows the Nodes that wait, the limit and the pause. pause keeps all replicas from deleting \
                     Nodes, and answers after 12 s, when no deletion is under way; the pause ends by itself. The Go \
                     program ignores it. resume ends the pause. allow shows the proof that the VM of a Node is gone \
                     and, after you confirm, exempts that Node from grace period, limit and mass hold; only the \
                     leader does that.\n\n\
                     The command connects to the process in its own container. Exit codes: 0 done, or as it should \
                     be; 1 refused, or not as it should be; 2 wrong usage, no process or no such Node; 3 not \
                     confirmed, or not known, for example because this process does not lead.";

const EXAMPLES: &str = "Examples:\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager deletions list\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager deletions pause \
    --for=4h --because='vCenter upgrade'\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager deletions resume\n  \
    kubectl -n kube-system exec -it POD -- /bin/vsphere-cloud-controller-manager deletions allow worker-7";

const ACTIONS: [&str; 4] = ["list", "pause", "resume", "allow"];

/// Shortest `--timeout` of `pause`, which answers after 12 s.
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum number of bytes that are read from a terminal.
const MAX_REPLY: u64 = 64;

/// Returns the command line.
pub(super) fn command() -> Command {
    arguments::command(NAME, ABOUT, EXAMPLES).args([
        Arg::new("action")
            .value_name("ACTION")
            .required(true)
            .value_parser(PossibleValuesParser::new(ACTIONS))
            .help("Action to take"),
        Arg::new("node").value_name("NODE").help("Name of the Node, for allow"),
        Arg::new("for").long("for").value_name("DURATION").help("Length of the pause, such as 4h; at most 168h"),
        Arg::new("because").long("because").value_name("TEXT").help("Cause of the pause, for status and Events"),
        Arg::new("yes").long("yes").action(ArgAction::SetTrue).help("Allow the deletion without asking"),
    ])
}

pub(super) fn run(arguments: &[OsString]) -> CommandOutput {
    match report(arguments) {
        Ok(output) | Err(output) => output,
    }
}

/// What the user typed.
#[derive(Debug, PartialEq, Eq)]
enum DeletionsAction {
    /// One request.
    Ask(DeletionsRequest),
    /// Show the proof, ask unless `is_confirmed`, and allow the deletion.
    Allow { node: String, is_confirmed: bool },
}

fn report(arguments: &[OsString]) -> Result<CommandOutput, CommandOutput> {
    let (options, matches) = arguments::parse(command(), arguments)?;
    let action = action(&matches, &options).map_err(|fault| CommandOutput::failure(&fault, USAGE_ERROR))?;
    match action {
        DeletionsAction::Ask(request) => Ok(printed(&ask(request, &options)?, &options)),
        DeletionsAction::Allow { node, is_confirmed } => allow(node, is_confirmed, &options),
    }
}

/// Checks the arguments.
///
/// # Errors
/// The fault, for the user.
fn action(matches: &ArgMatches, options: &CommonOptions) -> Result<DeletionsAction, String> {
    let action = arguments::text(matches, "action").unwrap_or_default();
    let node = arguments::text(matches, "node");
    let length = arguments::text(matches, "for");
    let cause = arguments::text(matches, "because");
    let is_confirmed = matches.get_flag("yes");
    if action != "allow" && (node.is_some() || is_confirmed) {
        return Err(format!("deletions {action} takes neither a Node nor --yes"));
    }
    if action != "pause" && (length.is_some() || cause.is_some()) {
        return Err(format!("deletions {action} takes neither --for nor --because"));
    }
    match (action, length, cause, node) {
        ("list", ..) => Ok(DeletionsAction::Ask(DeletionsRequest::List)),
        ("resume", ..) => Ok(DeletionsAction::Ask(DeletionsRequest::Resume)),
        ("pause", Some(length), Some(cause), _) => {
            if options.timeout < SHORTEST_TIMEOUT {
                return Err("deletions pause answers after 12 s; expected --timeout=15s or longer".to_owned());
            }
            let length =
                parse_duration(length).map_err(|_| format!("--for={length}: expected a duration such as 4h"))?;
            deletion_pause::check_order(length, cause)?;
            Ok(DeletionsAction::Ask(DeletionsRequest::Pause { seconds: length.as_secs(), cause: cause.to_owned() }))
        }
        ("pause", ..) => Err("deletions pause needs --for, such as --for=4h, and --because=TEXT".to_owned()),
        ("allow", ..) if options.is_quiet && !is_confirmed => {
            Err("deletions allow --quiet shows no proof to confirm; give --yes, too".to_owned())
        }
        ("allow", _, _, Some(node)) => Ok(DeletionsAction::Allow { node: node.to_owned(), is_confirmed }),
        _ => Err("deletions allow needs the name of a Node".to_owned()),
    }
}

fn ask(request: DeletionsRequest, options: &CommonOptions) -> Result<DeletionsReport, CommandOutput> {
    process_client::ask(&Question::Deletions(request), options, |answer| match answer {
        Answer::Deletions(report) => Some(*report),
        _ => None,
    })
}

fn printed(report: &DeletionsReport, options: &CommonOptions) -> CommandOutput {
    output::report(DeletionsReport::KIND, report, &report.lines(), report.verdict(), options)
}

/// Shows the proof, asks unless `is_confirmed`, and allows the deletion of the Node that was shown.
fn allow(node: String, is_confirmed: bool, options: &CommonOptions) -> Result<CommandOutput, CommandOutput> {
    if !is_confirmed && !std::io::stdin().is_terminal() {
        let fault = "deletions allow needs a terminal to confirm the deletion (kubectl exec -it), and there is none; \
                     to confirm without a terminal, give --yes";
        return Err(CommandOutput::failure(fault, USAGE_ERROR));
    }
    // `--wait` is for the change, which comes afterwards.
    let once = CommonOptions { waits: false, ..options.clone() };
    let shown = ask(DeletionsRequest::Proof { node: node.clone() }, &once)?;
    let Some(uid) = shown.uid.clone() else { return Ok(printed(&shown, options)) };
    if !is_confirmed && !confirms(&node, &shown) {
        let exit_code = Verdict::Findings.exit_code();
        return Ok(CommandOutput::failure("the answer was not `yes`, so nothing was changed", exit_code));
    }
    let mut changed = ask(DeletionsRequest::Allow { node, uid }, options)?;
    // Text has the explanation already, unless nobody was asked.
    if is_confirmed || options.form != OutputForm::Text {
        changed.explanation = shown.explanation;
    }
    Ok(printed(&changed, options))
}

/// Shows the proof on standard error, and returns whether the user agrees.
fn confirms(node: &str, shown: &DeletionsReport) -> bool {
    let mut text: String = shown.lines().iter().map(|line| format!("{}\n", line.text())).collect();
    text += &format!("\nAllow the deletion of Node {node}? Type yes to allow it: ");
    let mut terminal = std::io::stderr();
    // Without a question, there is no answer.
    if terminal.write_all(text.as_bytes()).and_then(|()| terminal.flush()).is_err() {
        return false;
    }
    let mut reply = String::new();
    let is_read = std::io::stdin().lock().take(MAX_REPLY).read_line(&mut reply).is_ok();
    if !reply.ends_with('\n') {
        // Without a line break of the user, the next message would begin behind the question.
        let _ = terminal.write_all(b"\n");
    }
    is_read && reply.trim() == "yes"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str]) -> Result<DeletionsAction, String> {
        let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        let (options, matches) = arguments::parse(command(), &arguments).map_err(|output| output.messages)?;
        action(&matches, &options)
    }

    #[test]
    fn each_action_has_its_arguments() {
        let pause = DeletionsRequest::Pause { seconds: 14_400, cause: "vCenter upgrade".to_owned() };
        let allow = |is_confirmed| DeletionsAction::Allow { node: "worker-7".to_owned(), is_confirmed };
        let table: [(&[&str], DeletionsAction); 6] = [
            (&["list"], DeletionsAction::Ask(DeletionsRequest::List)),
            (&["pause", "--for", "4h", "--because", "vCenter upgrade"], DeletionsAction::Ask(pause)),
            (&["resume"], DeletionsAction::Ask(DeletionsRequest::Resume)),
            (&["allow", "worker-7"], allow(false)),
            (&["allow", "worker-7", "--yes"], allow(true)),
            (&["allow", "worker-7", "--yes", "-q"], allow(true)),
        ];
        for (words, expected) in table {
            assert_eq!(typed(words), Ok(expected), "{words:?}");
        }
    }

    #[test]
    fn other_arguments_are_wrong_usage() {
        let wrong: [&[&str]; 17] = [
            &[],
            &["stop"],
            &["list", "worker-7"],
            &["list", "--yes"],
            &["resume", "--for=4h"],
            &["resume", "worker-7"],
            &["pause"],
            &["pause", "--for=4h"],
            &["pause", "--because=x"],
            &["pause", "--for=soon", "--because=x"],
            &["pause", "--for=-4h", "--because=x"],
            &["pause", "--for=169h", "--because=x"],
            &["pause", "--for=4h", "--because="],
            &["pause", "--for=4h", "--because=x", "--timeout=14s"],
            &["allow"],
            &["allow", "worker-7", "--because=x"],
            &["allow", "worker-7", "--quiet"],
        ];
        for words in wrong {
            assert!(typed(words).is_err(), "{words:?}");
            let output = run(&words.iter().map(OsString::from).collect::<Vec<_>>());
            assert_eq!((output.exit_code, output.output.as_str()), (2, ""), "{words:?} {output:?}");
        }
    }
}
