//! The section with the last decisions about a subject.

use super::outside_text::clipped;
use super::{Explanation, deletion};
use crate::app::inquiries::protocol::ExplainSubject;
use crate::app::inquiries::{Inquiries, whole};
use crate::app::reports::explain::{Section, SubjectState, nearest};
use crate::controllers::decisions::{ALL_ROUTES, Decision, SubjectKind};
use crate::controllers::node_lifecycle::deletion_history::PastDeletion;

/// Maximum number of decisions in an explanation.
const MAX_SHOWN: usize = 20;

/// Returns the last decisions about the subject of this name, the newest one first; `None` without any.
pub(super) fn section(process: &Inquiries, subject: ExplainSubject, name: &str) -> Option<Section> {
    let (kind, networks) = match subject {
        ExplainSubject::Node => (SubjectKind::Node, Vec::new()),
        ExplainSubject::Deletion => (SubjectKind::Deletion, Vec::new()),
        ExplainSubject::Service => (SubjectKind::Service, Vec::new()),
        ExplainSubject::Route => (SubjectKind::Route, networks(process, name)),
        ExplainSubject::Vcenter | ExplainSubject::Vm | ExplainSubject::Ip => return None,
    };
    let is_about = |decision: &Decision| decision.kind == kind && is_named(&decision.name, name, &networks);
    let decisions = process.decisions.last(MAX_SHOWN, is_about);
    // Decisions about all routes say nothing about a Node that is not known.
    let is_own = decisions.iter().any(|decision| &*decision.name != ALL_ROUTES);
    (is_own || (!decisions.is_empty() && process.nodes.contains(name))).then(|| of(&decisions))
}

/// Explains a subject that was deleted: a Node whose last deletion is on the Lease, or a subject about which decisions
/// are known. `names` are those of the subjects that exist.
pub(super) fn of_deleted(
    subject: ExplainSubject,
    name: &str,
    past: Option<&PastDeletion>,
    history: Option<Section>,
    names: Vec<String>,
) -> Explanation {
    let mut similar = Section::new("Similar names");
    for name in nearest(name, names) {
        similar.add("", name);
    }
    Explanation {
        subject: title(subject, &clipped(name)),
        summary: past.map_or_else(
            || "does not exist: see its last decisions".to_owned(),
            |past| format!("does not exist: {}", deletion::past_summary(past)),
        ),
        state: SubjectState::Gone,
        sections: past.map(deletion::past_section).into_iter().chain(history).chain([similar]).collect(),
    }
}

/// Returns the subject as the explanation of an object that exists has it.
fn title(subject: ExplainSubject, name: &str) -> String {
    match subject {
        ExplainSubject::Node => format!("Node {name}"),
        ExplainSubject::Deletion => format!("deletion of Node {name}"),
        ExplainSubject::Service => format!("Service {name}"),
        ExplainSubject::Route => format!("routes of Node {name}"),
        ExplainSubject::Vcenter | ExplainSubject::Vm | ExplainSubject::Ip => format!("{} {name}", subject.as_str()),
    }
}

fn networks(process: &Inquiries, name: &str) -> Vec<String> {
    let node = process.nodes.get(name);
    let networks = node.as_ref().and_then(|node| node.spec.as_ref()?.pod_cidrs.clone());
    let mut networks = networks.unwrap_or_default();
    networks.push(ALL_ROUTES.to_owned());
    networks
}

fn is_named(subject: &str, name: &str, others: &[String]) -> bool {
    subject == name || others.iter().any(|other| other == subject)
}

fn of(decisions: &[Decision]) -> Section {
    let mut section = Section::new("History");
    for decision in decisions {
        let text = clipped(&decision.text);
        let separator = if text.is_empty() { "" } else { ": " };
        section.add("", format!("{} {}{separator}{text}", whole(decision.time), decision.word));
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::explain::Fact;

    #[test]
    fn the_history_of_a_subject_has_one_fact_for_each_decision() {
        let decision = |time: &str, word, text: &str| Decision {
            time: time.parse().unwrap(),
            term: 1,
            kind: SubjectKind::Deletion,
            name: "worker-2".into(),
            word,
            text: text.into(),
        };
        let decisions = [
            decision("2026-11-24T03:12:40.123Z", "Deleted", "UID 5a0f: the VM is gone"),
            decision("2026-11-24T03:12:10Z", "Settled", ""),
        ];
        let fact = |text: &str| Fact { label: String::new(), text: text.to_owned(), is_finding: false };
        let expected =
            [fact("2026-11-24T03:12:40Z Deleted: UID 5a0f: the VM is gone"), fact("2026-11-24T03:12:10Z Settled")];
        assert_eq!(of(&decisions).facts, expected);
    }

    #[test]
    fn a_subject_that_is_gone_has_its_history_and_similar_names() {
        let mut history = Section::new("History");
        history.add("", "Deleted");
        let names = ["worker-1", "worker-3", "storage"].map(str::to_owned).to_vec();
        let past = PastDeletion {
            node: "worker-2".to_owned(),
            uid: "u-2".to_owned(),
            time: "2026-11-20T02:10:04Z".parse().unwrap(),
            replica: "cp-2".to_owned(),
            proof: "no VM with the UUID".to_owned(),
            is_unanswered: false,
        };
        let by_another_replica = of_deleted(ExplainSubject::Node, "worker-2", Some(&past), None, Vec::new());
        let summary = "does not exist: deleted by the replica on cp-2 at 2026-11-20T02:10:04Z";
        assert_eq!((by_another_replica.state, by_another_replica.summary.as_str()), (SubjectState::Gone, summary));
        assert!(by_another_replica.sections[0].facts.iter().any(|fact| fact.text == past.proof));
        let gone = of_deleted(ExplainSubject::Node, "worker-2", None, Some(history.clone()), names);
        assert_eq!((gone.state, gone.subject.as_str()), (SubjectState::Gone, "Node worker-2"));
        let similar: Vec<&str> = gone.sections[1].facts.iter().map(|fact| fact.text.as_str()).collect();
        assert_eq!((&gone.sections[0], similar.as_slice()), (&history, ["worker-1", "worker-3"].as_slice()));
    }

    #[test]
    fn decisions_about_the_networks_of_a_node_are_about_its_routes() {
        let networks = ["10.244.1.0/24".to_owned(), ALL_ROUTES.to_owned()];
        for (subject, expected) in
            [("worker-1", true), ("10.244.1.0/24", true), ("*", true), ("worker-10", false), ("10.244.2.0/24", false)]
        {
            assert_eq!(is_named(subject, "worker-1", &networks), expected, "{subject}");
        }
    }
}
