//! Requests and answers on the local socket. The protocol is private to one version of the program.

pub(super) mod masking;

use crate::app::reports::Verdict;
use crate::app::reports::bundle::{BundlePart, KnownName, PartPage};
use crate::app::reports::check::CheckReport;
use crate::app::reports::deletions::DeletionsReport;
use crate::app::reports::explain::{ExplainReport, nearest};
use crate::app::reports::plan::PlanReport;
use crate::app::reports::status::StatusReport;
use crate::kubernetes::client::COMMIT;
use masking::MaskedNames;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of characters of a message about an unreadable request.
const MESSAGE: usize = 200;

/// Maximum length of a text in a question, in bytes. Names of Kubernetes have at most 253 characters; a Service has two.
const MAX_TEXT: usize = 512;

/// The fields of reports that have messages. Other fields have no user names, and must stay as they are: a user may have
/// the name of a server or of a state.
const MESSAGES: [&str; 13] = [
    "Err",
    "cause",
    "commands",
    "failure",
    "listFailure",
    "message",
    "proof",
    "refused",
    "rejectedCredentials",
    "remedy",
    "summary",
    "tagFailure",
    "text",
];

/// A request of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`version`] of the command.
    pub version: String,
    /// The question.
    pub question: Question,
    /// Whether the answer must not contain the user names of the credentials.
    pub masks_users: bool,
}

/// A question to the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// The state of the process.
    Status {
        /// Show only this vCenter, by host or by host and port.
        vcenter: Option<String>,
        /// Show only this Node.
        node: Option<String>,
    },
    /// One subject.
    Explain {
        /// Kind of the subject.
        subject: ExplainSubject,
        /// Name of the subject.
        name: String,
        /// The time for reads of what the explanation depends on; `None` for what is known.
        fresh: Option<Duration>,
    },
    /// The checks.
    Check {
        /// The only Node to check.
        node: Option<String>,
        /// The only vCenter to check, by host or by host and port.
        vcenter: Option<String>,
        /// Whether more findings are named.
        is_deep: bool,
        /// Whether the checks of a running daemon do not apply, because nothing is installed yet.
        is_preflight: bool,
    },
    /// What the controllers would write.
    Plan {
        /// The only Node to plan for.
        node: Option<String>,
    },
    /// The deletion of Nodes.
    Deletions(DeletionsRequest),
    /// One page of a part of a bundle.
    BundlePart {
        /// The part.
        part: BundlePart,
        /// The place at which the page begins: [`PartPage::next`] of the page before, `None` for the first page.
        from: Option<String>,
    },
    /// The names that a bundle may contain.
    BundleNames,
}

/// A request about the deletion of Nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionsRequest {
    /// Show the Nodes that wait, the limit and the pause.
    List,
    /// Pause deletions, in place of an earlier pause.
    Pause {
        /// Length of the pause.
        seconds: u64,
        /// The operator's cause.
        cause: String,
    },
    /// End the pause.
    Resume,
    /// Show the rules and the proof about one Node.
    Proof {
        /// Name of the Node.
        node: String,
    },
    /// Allow the deletion of one Node.
    Allow {
        /// Name of the Node.
        node: String,
        /// UID of the Node whose proof was shown.
        uid: String,
    },
}

/// Kind of the subject of [`Question::Explain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExplainSubject {
    /// A vCenter, by host or by host and port.
    Vcenter,
    /// The deletion of a Node, by the name of the Node.
    Deletion,
    /// A Node, by name.
    Node,
    /// A VM, by managed object id or by name.
    Vm,
    /// An IP address.
    Ip,
    /// The routes of a Node, by the name of the Node.
    Route,
    /// A Service, by namespace and name.
    Service,
}

impl ExplainSubject {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Vcenter, Self::Deletion, Self::Node, Self::Vm, Self::Ip, Self::Route, Self::Service];

    /// Returns the word on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vcenter => "vcenter",
            Self::Deletion => "deletion",
            Self::Node => "node",
            Self::Vm => "vm",
            Self::Ip => "ip",
            Self::Route => "route",
            Self::Service => "service",
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// [`version`] of the process.
    pub version: String,
    /// The answer, or the reason why there is none.
    pub answer: Result<Answer, String>,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Status`].
    Status(Box<StatusReport>),
    /// To [`Question::Explain`].
    Explain(Box<ExplainReport>),
    /// To [`Question::Check`].
    Check(Box<CheckReport>),
    /// To [`Question::Deletions`].
    Deletions(Box<DeletionsReport>),
    /// To [`Question::Plan`].
    Plan(Box<PlanReport>),
    /// To [`Question::BundlePart`].
    BundlePart(Box<PartPage>),
    /// To [`Question::BundleNames`].
    BundleNames(Vec<KnownName>),
    /// The process does not know the subject of [`Question::Explain`], or the selection of [`Question::Status`],
    /// [`Question::Check`] or [`Question::Plan`].
    NotFound {
        /// The kind of the subject, such as `vcenter`.
        kind: String,
        /// The name that is not known.
        name: String,
        /// The most similar names.
        nearest: Vec<String>,
    },
}

impl Answer {
    /// Returns the answer about a name that the process does not know. `names` are those that it knows.
    pub fn not_found(kind: &str, name: &str, names: Vec<String>) -> Self {
        Self::NotFound { kind: kind.to_owned(), name: name.to_owned(), nearest: nearest(name, names) }
    }

    /// Returns the verdict of the report. An answer without a report has nothing to find.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Status(report) => report.verdict(),
            Self::Explain(report) => report.verdict(),
            Self::Check(report) => report.verdict(),
            Self::Deletions(report) => report.verdict(),
            Self::Plan(report) => report.verdict(),
            Self::BundlePart(_) | Self::BundleNames(_) | Self::NotFound { .. } => Verdict::Ok,
        }
    }
}

/// Returns version and commit of this program. Command and process must have the same.
pub fn version() -> String {
    match COMMIT {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Parses a request.
///
/// # Errors
/// The bytes are no request, or the command has another version. The text is for the command's user.
pub fn parse(bytes: &[u8]) -> Result<Request, String> {
    // Reads the version first, because another version may have other questions.
    let fields: Value = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
    let theirs = fields.get("version").and_then(Value::as_str).unwrap_or_default();
    if theirs != version() {
        let theirs: String = theirs.chars().filter(|char| !char.is_control()).take(MESSAGE).collect();
        return Err(format!(
            "the command has version {theirs:?}, and the process has version {:?}: run the command in the container of \
             the process",
            version()
        ));
    }
    if let Some(length) = fields.get("question").map(longest_text).filter(|length| *length > MAX_TEXT) {
        return Err(format!("a text of the question has {length} bytes, at most {MAX_TEXT} are allowed"));
    }
    serde_json::from_value(fields).map_err(|error| unreadable(&error))
}

/// Parses the response of a process.
///
/// # Errors
/// The bytes are no response, or the process has another version. The text is for the command's user.
pub fn parse_response(bytes: &[u8]) -> Result<Response, ResponseError> {
    // Reads the version first, because another version may have other answers.
    let fields: Value = serde_json::from_slice(bytes).map_err(ResponseError::Unreadable)?;
    let theirs = fields.get("version").and_then(Value::as_str).unwrap_or_default().to_owned();
    if theirs != version() {
        return Err(ResponseError::OtherVersion(theirs.chars().take(MESSAGE).collect()));
    }
    serde_json::from_value(fields).map_err(ResponseError::Unreadable)
}

/// Reason why a response cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// The process has this version, which may be empty.
    #[error(
        "the command has version {own:?}, and the process has version {0:?}: run the command in the container of the \
         process",
        own = version()
    )]
    OtherVersion(String),
    /// The bytes are no response.
    #[error("the answer of the process cannot be read")]
    Unreadable(#[source] serde_json::Error),
}

/// Returns the length of the longest text in the value, in bytes.
fn longest_text(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(longest_text).max().unwrap_or_default(),
        Value::Object(fields) => fields.values().map(longest_text).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn unreadable(error: &serde_json::Error) -> String {
    let text: String = error.to_string().chars().take(MESSAGE).collect();
    format!("the request cannot be read: {text}")
}

/// Serializes an answer, without the names in `users`.
pub fn encode(answer: Result<Answer, String>, users: &BTreeSet<String>) -> Vec<u8> {
    let response = Response { version: version(), answer };
    let names = MaskedNames::new(users);
    let encoded = serde_json::to_value(response).map(|mut response| {
        mask(&mut response, &names, false);
        response.to_string().into_bytes()
    });
    encoded.unwrap_or_default()
}

/// Replaces the names in all messages of the value. `is_message` says whether the value itself is one.
fn mask(value: &mut Value, names: &MaskedNames, is_message: bool) {
    match value {
        Value::String(text) if is_message => *text = names.masked(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, names, is_message)),
        Value::Object(fields) => {
            for (name, field) in fields {
                mask(field, names, MESSAGES.contains(&name.as_str()));
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Question {
        Question::Status { vcenter: None, node: None }
    }

    fn request(version: &str) -> Vec<u8> {
        let request = Request { version: version.to_owned(), question: status(), masks_users: false };
        serde_json::to_vec(&request).unwrap()
    }

    #[test]
    fn a_request_of_the_same_version_is_read() {
        let expected = Request { version: version(), question: status(), masks_users: false };
        assert_eq!(parse(&request(&version())), Ok(expected));
    }

    #[test]
    fn other_versions_and_other_bytes_get_a_reason() {
        let error = parse(&request("0.0.7 (abc)")).unwrap_err();
        assert!(error.contains("\"0.0.7 (abc)\"") && error.contains(&version()), "{error}");
        let unknown = format!("{{\"version\":\"{}\",\"question\":\"Fly\",\"masks_users\":true}}", version());
        for bytes in [b"".as_slice(), b"{", b"\xff\xfe", unknown.as_bytes(), b"[]", b"{\"version\": 7}"] {
            let error = parse(bytes).unwrap_err();
            assert!(error.len() < 400, "{error}");
        }
        let long = format!("{{\"version\":\"{}\"}}", "v".repeat(9000));
        assert!(parse(long.as_bytes()).unwrap_err().len() < 500);
    }

    #[test]
    fn a_response_of_another_version_is_recognized_whatever_its_answer_is() {
        let own = encode(Err("why".to_owned()), &BTreeSet::new());
        assert_eq!(parse_response(&own).unwrap().answer, Err("why".to_owned()));
        for other in ["{\"version\":\"9.9.9\",\"answer\":{\"Ok\":{\"Weather\":7}}}", "{\"version\":\"9.9.9\"}"] {
            let error = parse_response(other.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("\"9.9.9\"") && error.contains(&version()), "{error}");
        }
        let unknown = format!("{{\"version\":{:?},\"answer\":{{\"Ok\":{{\"Weather\":7}}}}}}", version());
        for bytes in [b"".as_slice(), b"\xff", unknown.as_bytes()] {
            let error = parse_response(bytes).unwrap_err();
            assert!(matches!(error, ResponseError::Unreadable(_)), "{error}");
        }
    }

    #[test]
    fn a_long_text_in_any_question_is_refused() {
        let long = || Some("x".repeat(MAX_TEXT + 1));
        let subject = ExplainSubject::Node;
        for question in [
            Question::Status { vcenter: long(), node: None },
            Question::Status { vcenter: None, node: long() },
            Question::Check { node: long(), vcenter: None, is_deep: false, is_preflight: false },
            Question::Check { node: None, vcenter: long(), is_deep: false, is_preflight: false },
            Question::Explain { subject, name: "x".repeat(MAX_TEXT + 1), fresh: None },
        ] {
            let request = Request { version: version(), question, masks_users: false };
            let error = parse(&serde_json::to_vec(&request).unwrap()).unwrap_err();
            assert_eq!(error, "a text of the question has 513 bytes, at most 512 are allowed");
        }
        let question = Question::Explain { subject, name: "x".repeat(MAX_TEXT), fresh: Some(Duration::from_secs(7)) };
        let request = Request { version: version(), question, masks_users: false };
        assert_eq!(parse(&serde_json::to_vec(&request).unwrap()), Ok(request));
    }

    #[test]
    fn user_names_are_masked_wherever_they_are() {
        let why = "login of \"ccm@vsphere.local\" is rejected, ccm may not, and \"DOMAIN\\\\ccm\"".to_owned();
        let names = ["ccm", "ccm@vsphere.local", "DOMAIN\\ccm", "answer", ""];
        let users = BTreeSet::from(names.map(str::to_owned));
        let shown = |users: &BTreeSet<String>| String::from_utf8(encode(Err(why.clone()), users)).unwrap();
        assert!(shown(&BTreeSet::new()).contains("ccm@vsphere.local"));
        let masked = "{\"Err\":\"login of \\\"***\\\" is rejected, *** may not, and \\\"***\\\"\"}";
        assert!(shown(&users).contains(&format!("\"answer\":{masked}")), "{}", shown(&users));
    }
}
