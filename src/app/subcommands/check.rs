//! `check`: numbered checks of what the program needs, each with its result and a remedy.

use super::{CommandOutput, arguments, output, process_client};
use crate::app::inquiries::protocol::{Answer, Question};
use crate::app::reports::check::CheckReport;
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;

const NAME: &str = "check";

const ABOUT: &str = "Checks what the program needs: Lease, kubelets, vsphere.conf, credentials, vCenters, \
                     permissions, the VM of each Node, deletion and NSX. Prints the result of each check and a \
                     remedy.\n\n\
                     The command connects to the process in its own container. With --detached it needs no process: \
                     it logs in once to each server, and network and TLS are checked from where it runs. Exit codes: \
                     0 no check failed, 1 a check failed, 2 wrong usage, no process, or no such Node or vCenter, 3 \
                     something is not known, for example because this process does not lead, or because logins are \
                     paused.";

const EXAMPLES: &str = "Examples:\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager check\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager check --node=worker-7\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager check --wait --timeout=5m -q\n  \
    vsphere-cloud-controller-manager check --preflight --kubeconfig=admin.conf --cloud-config=vsphere.conf\n  \
    vsphere-cloud-controller-manager check --detached -- --cloud-config=vsphere.conf --cluster-name=blue";

/// Returns the command line.
pub(super) fn command() -> Command {
    let command = arguments::command(NAME, ABOUT, EXAMPLES).args([
        Arg::new("node").long("node").value_name("NAME").help("Check only this Node"),
        Arg::new("vcenter").long("vcenter").value_name("SERVER").help("Check only this vCenter"),
        Arg::new("deep")
            .long("deep")
            .action(ArgAction::SetTrue)
            .help("Name up to 1000 findings of each check, and not only 50"),
        Arg::new("preflight")
            .long("preflight")
            .action(ArgAction::SetTrue)
            .conflicts_with("pid")
            .help("As --detached, before an installation: what needs a running daemon is skipped"),
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
    let (node, vcenter) = (selection("node"), selection("vcenter"));
    let (is_deep, is_preflight) = (matches.get_flag("deep"), matches.get_flag("preflight"));
    let question = Question::Check { node, vcenter, is_deep, is_preflight };
    let report = process_client::ask(&question, &options, |answer| match answer {
        Answer::Check(report) => Some(*report),
        _ => None,
    })?;
    Ok(output::report(CheckReport::KIND, &report, &report.lines(), report.verdict(), &options))
}
