//! `status`: one screen about the running process.

use super::{CommandOutput, arguments, output, process_client};
use crate::app::inquiries::protocol::{Answer, Question};
use crate::app::reports::status::StatusReport;
use clap::{Arg, Command};
use std::ffi::OsString;

const NAME: &str = "status";

const ABOUT: &str = "Prints one screen about the running process: leader, vCenters, NSX, Nodes, deletions and \
                     logins.\n\n\
                     The command connects to the process in its own container, and makes no call to the API server, \
                     vCenter or NSX. With --detached it needs no process, logs in once to each server, and shows \
                     their answers; data that only the leader has is missing. Exit codes: 0 everything is as it \
                     should be, 1 it is not, 2 wrong usage or no process, 3 a part is not known, for example because \
                     this process does not lead.";

const EXAMPLES: &str = "Examples:\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager status\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager status --wait --timeout=5m\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager status -o json\n  \
    vsphere-cloud-controller-manager status --kubeconfig=admin.conf --cloud-config=vsphere.conf";

/// Returns the command line.
pub(super) fn command() -> Command {
    let command = arguments::command(NAME, ABOUT, EXAMPLES).args([
        Arg::new("node").long("node").value_name("NAME").help("Show only this Node"),
        Arg::new("vcenter").long("vcenter").value_name("SERVER").help("Show only this vCenter"),
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
    let selection = |name| arguments::text(&matches, name).map(str::to_owned);
    let question = Question::Status { vcenter: selection("vcenter"), node: selection("node") };
    let report = process_client::ask(&question, &options, |answer| match answer {
        Answer::Status(report) => Some(*report),
        _ => None,
    })?;
    Ok(output::report(StatusReport::KIND, &report, &report.lines(), report.verdict(), &options))
}
