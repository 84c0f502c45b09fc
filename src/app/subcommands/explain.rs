//! `explain`: what the process knows of one subject, and what follows from that.

use super::{CommandOutput, USAGE_ERROR, arguments, output, process_client};
use crate::app::inquiries::protocol::{Answer, ExplainSubject, Question};
use crate::app::reports::explain::ExplainReport;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use std::ffi::OsString;
use std::time::Duration;

const NAME: &str = "explain";

const ABOUT: &str = "Prints the facts that the running process has about one subject, its decision, and the \
                     reason.\n\n\
                     The command connects to the process in its own container, and makes no call to the API server, \
                     vCenter or NSX. With --fresh the process reads again what the explanation depends on, with its \
                     own sessions and without a login, and the command prints the differences and the number of \
                     calls. With --detached it needs no process, logs in once to each vCenter, for a Service or a \
                     route also to NSX, and explains the answers; clocks and limits are known to the leader only. Exit \
                     codes: 0 as it should be, 1 held, or what was read again differs, 2 wrong usage, no process or \
                     no such subject, 3 not known.";

const EXAMPLES: &str = "Examples:\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager explain vcenter vc.example.com\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager explain node worker-7\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager explain service shop/web\n  \
    kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager explain node worker-7 --fresh\n  \
    vsphere-cloud-controller-manager explain vm worker-7 --kubeconfig=admin.conf --cloud-config=vsphere.conf";

const NAME_HELP: &str = "Name of the vCenter or Node, name, id or path of the VM, IP address, or NAMESPACE/NAME of the \
                         Service";

/// Returns the command line.
pub(super) fn command() -> Command {
    let command = arguments::command(NAME, ABOUT, EXAMPLES).args([
        Arg::new("subject")
            .value_name("SUBJECT")
            .required(true)
            .value_parser(PossibleValuesParser::new(ExplainSubject::ALL.map(ExplainSubject::as_str)))
            .help("Kind of the subject"),
        Arg::new("name").value_name("NAME").required(true).help(NAME_HELP),
        Arg::new("fresh")
            .long("fresh")
            .action(ArgAction::SetTrue)
            .conflicts_with_all(["detached", "kubeconfig", "cloud-config"])
            .help("Let the process read again what it knows, and print the differences and the number of calls"),
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
    let kind = arguments::text(&matches, "subject").unwrap_or_default();
    let name = arguments::text(&matches, "name").unwrap_or_default();
    let subject = ExplainSubject::ALL.into_iter().find(|subject| subject.as_str() == kind);
    let subject = subject.ok_or_else(|| CommandOutput::failure("no such kind of subject", USAGE_ERROR))?;
    let fresh = matches.get_flag("fresh").then(|| time_of_reads(options.timeout));
    let question = Question::Explain { subject, name: name.to_owned(), fresh };
    let report = process_client::ask(&question, &options, |answer| match answer {
        Answer::Explain(report) => Some(*report),
        _ => None,
    })?;
    Ok(output::report(ExplainReport::KIND, &report, &report.lines(), report.verdict(), &options))
}

/// Returns the part of `--timeout` for reads, so that what is known arrives in time also if they are not answered.
fn time_of_reads(timeout: Duration) -> Duration {
    timeout.mul_f64(0.8)
}
