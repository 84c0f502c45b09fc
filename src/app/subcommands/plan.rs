//! `plan`: what the controllers would write, delete, adopt or hold now.

use super::{CommandOutput, arguments, output, process_client};
use crate::app::inquiries::protocol::{Answer, Question};
use crate::app::reports::plan::PlanReport;
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

const NAME: &str = "plan";

const ABOUT: &str = "Prints what the controllers would create, update, delete, adopt or hold now, against what is \
                     there: for each Node and field, for each Service with its load balancer, and for each route. \
                     Objects that need nothing are counted.\n\n\
                     The command connects to the process in its own container, writes nothing, and makes no call to \
                     the API server, vCenter or NSX. With --detached, --compare or --cloud-config it needs no \
                     process, logs in once to each server, and plans as a new leader would: while the Go program \
                     runs, or with another vsphere.conf. Exit codes: 0 no change, 1 there are changes or holds, 2 \
                     wrong usage, no process or no such Node, 3 something is not known, for example because this \
                     process does not lead.";

const EXAMPLES: &str = "Examples:\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager plan\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager plan --node=worker-7\n  \
    vsphere-cloud-controller-manager plan --compare -- --cloud-config=/etc/cloud/vsphere.conf --cluster-name=blue\n  \
    vsphere-cloud-controller-manager plan --kubeconfig=admin.conf --cloud-config=new.conf";

/// Returns the command line.
pub(super) fn command() -> Command {
    let command = arguments::command(NAME, ABOUT, EXAMPLES).args([
        Arg::new("node").long("node").value_name("NAME").help("Plan only for this Node and its routes"),
        Arg::new("compare")
            .long("compare")
            .action(ArgAction::SetTrue)
            .conflicts_with("pid")
            .help("Compare with what another program, such as the Go program, has written; as --detached"),
    ]);
    arguments::detachable(command)
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
        Answer::Plan(report) => Some(*report),
        _ => None,
    })?;
    Ok(output::report(PlanReport::KIND, &report, &report.lines(), report.verdict(), &options))
}
