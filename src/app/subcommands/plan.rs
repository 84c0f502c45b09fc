//! `plan`: what the controllers of the running process would write, delete, adopt or hold now.

use super::{CommandOutput, arguments, output, process_client};
use crate::app::inquiries::protocol::{Answer, Question};
use clap::{Arg, Command};
use std::ffi::OsString;

const NAME: &str = "plan";

const ABOUT: &str = "Prints what the controllers would create, update, delete, adopt or hold now, against what is there: \
                     for each Node and field, for each Service with its load balancer, and for each route. Objects \
                     that need nothing are counted.\n\n\
                     The command asks the process in whose container it runs, writes nothing, and makes no call to the \
                     API server, vCenter or NSX. Exit codes: 0 no change, 1 there are changes or holds, 2 wrong usage, \
                     no process or no such Node, 3 something is not known, for example because this process does not \
                     lead.";

const EXAMPLES: &str = "Examples:\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager plan\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager plan --node=worker-7\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager plan -o json";

/// Returns the command line.
pub(super) fn command() -> Command {
    let node = Arg::new("node").long("node").value_name("NAME").help("Plan only for this Node and its routes");
    arguments::command(NAME, ABOUT, EXAMPLES).arg(node)
}

pub(super) fn run(arguments: &[OsString]) -> CommandOutput {
    match report(arguments) {
        Ok(output) | Err(output) => output,
    }
}

fn report(arguments: &[OsString]) -> Result<CommandOutput, CommandOutput> {
    let (options, matches) = arguments::parse(command(), arguments)?;
    let question = Question::Plan { node: arguments::text(&matches, "node").map(str::to_owned) };
    let report = process_client::ask(&question, &options, |answer| match answer {
        Answer::Plan(report) => Some((report.verdict(), *report)),
        _ => None,
    })?;
    Ok(output::report("Plan", &report, &report.lines(), report.verdict(), &options))
}
