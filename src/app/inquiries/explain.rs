//! Collects the report of `explain`: dispatches the subjects.

mod actors;
pub(super) mod deletion;
pub(super) mod fresh;
mod history;
mod ip;
mod node;
mod outside_text;
mod route;
mod service;
mod vcenter;
mod vm;

pub(super) use node::zone_command;

use super::protocol::{Answer, ExplainSubject};
use super::{DetachedSettings, Inquiries};
use crate::app::reports::explain::{ExplainReport, Section, SubjectState};
#[cfg(test)]
use crate::app::reports::header::ReportHeader;

/// What is known of a subject, without the facts about this process.
struct Explanation {
    /// The subject, such as `Node worker-7`.
    subject: String,
    /// The state of the subject in one sentence.
    summary: String,
    state: SubjectState,
    sections: Vec<Section>,
}

#[cfg(test)]
impl Explanation {
    /// Returns the report of a leader with this explanation, for tests.
    fn report_of_test(self) -> ExplainReport {
        let Self { subject, summary, state, sections } = self;
        ExplainReport { header: ReportHeader::of_test(), subject, summary, state, sections, fresh: None }
    }
}

/// Returns the explanation of a subject that this process may not have read yet, with the reason.
fn not_known(subject: String, why: &str) -> Explanation {
    Explanation { subject, summary: format!("not known: {why}"), state: SubjectState::Unknown, sections: Vec::new() }
}

/// Returns the explanation of the subject with this name, or the nearest names.
pub(super) fn answer(process: &Inquiries, subject: ExplainSubject, name: &str) -> Answer {
    let explained = match subject {
        ExplainSubject::Vcenter => vcenter::explain(process, name),
        ExplainSubject::Deletion => deletion::explain(process, name),
        ExplainSubject::Node => node::explain(process, name),
        ExplainSubject::Vm => vm::explain(process, name),
        ExplainSubject::Ip => ip::explain(process, name),
        ExplainSubject::Route => route::explain(process, name),
        ExplainSubject::Service => service::explain(process, name),
    };
    answer_of(process, subject, name, explained)
}

/// As [`answer`], by a command without a daemon: reads what a new leader reads before it decides.
pub(super) async fn first_answer(
    process: &Inquiries,
    settings: &DetachedSettings,
    subject: ExplainSubject,
    name: &str,
) -> Answer {
    let explained = match subject {
        ExplainSubject::Deletion => deletion::explain_without_term(process, &settings.plan, name).await,
        ExplainSubject::Route => route::explain_without_term(process, &settings.plan, name).await,
        // The others are explained from what the command has read before.
        ExplainSubject::Vcenter
        | ExplainSubject::Node
        | ExplainSubject::Vm
        | ExplainSubject::Ip
        | ExplainSubject::Service => return answer(process, subject, name),
    };
    answer_of(process, subject, name, explained)
}

fn answer_of(
    process: &Inquiries,
    subject: ExplainSubject,
    name: &str,
    explained: Result<Explanation, Vec<String>>,
) -> Answer {
    // `explain deletion` has the deletion in its own answer.
    let past = (subject == ExplainSubject::Node).then(|| deletion::past_deletion(process, name)).flatten();
    let history = history::section(process, subject, name);
    match explained {
        Ok(mut explanation) => {
            explanation.sections.extend(past.as_ref().map(deletion::past_section));
            explanation.sections.extend(history);
            Answer::Explain(Box::new(report(process, explanation)))
        }
        // The object is gone, and its end is what the user asks about.
        Err(names) if past.is_some() || history.is_some() => {
            let explanation = history::of_deleted(subject, name, past.as_ref(), history, names);
            Answer::Explain(Box::new(report(process, explanation)))
        }
        Err(names) => Answer::not_found(subject.as_str(), name, names),
    }
}

fn report(process: &Inquiries, explanation: Explanation) -> ExplainReport {
    let Explanation { subject, summary, state, sections } = explanation;
    ExplainReport { header: process.report_header(), subject, summary, state, sections, fresh: None }
}
