//! What an API server was asked, by whom and when: its audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// File of the policy.
pub const POLICY: &str = "audit-policy.yaml";
/// File of the log, a JSON object in each line.
pub const LOG: &str = "audit.log";

/// Each request once, when it is over; of Leases also what they were to become.
const RULES: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Request
  verbs: [create, update, patch]
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
"#;

/// A request that is over.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// Who asked.
    pub user: User,
    /// The program that asked.
    #[serde(default)]
    pub user_agent: String,
    /// What it was about; all empty for a path that is no resource.
    #[serde(default)]
    pub object_ref: ObjectRef,
    /// The object that was sent; of Leases only.
    #[serde(default)]
    pub request_object: Value,
    /// The answer.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// When the request came.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    /// When the answer was complete.
    #[serde(rename = "stageTimestamp")]
    pub answered: Timestamp,
}

/// Who asked.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct User {
    /// The user's name; that of a service account is `system:serviceaccount:<namespace>:<name>`.
    pub username: String,
    /// What else the API server knows of the user.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a request was about.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// Empty for the core group.
    pub api_group: String,
    /// The plural: `nodes`.
    pub resource: String,
    /// As `status`, or empty.
    pub subresource: String,
    /// Empty for what is in no namespace.
    pub namespace: String,
    /// Empty for lists.
    pub name: String,
}

/// The answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct ResponseStatus {
    /// The HTTP status.
    #[serde(default)]
    pub code: u16,
}

impl AuditEvent {
    /// Whether it was to change something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// The token or certificate that the user showed: `JTI=` and the id of a service account token.
    #[must_use]
    pub fn credential(&self) -> Option<&str> {
        self.user.extra.get("authentication.kubernetes.io/credential-id")?.first().map(String::as_str)
    }

    /// Whether the answer was 2xx.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }
}

/// Writes the policy, and gives the flags that make kube-apiserver follow it. Each request is in the log before its
/// client has the whole answer. A file takes 8 GB, and then a new one is begun: far more than a test asks for.
pub(super) fn flags(folder: &Path) -> [String; 4] {
    let policy = folder.join(POLICY);
    std::fs::write(&policy, RULES).unwrap();
    [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", folder.join(LOG).display()),
        "--audit-log-mode=blocking".to_owned(),
        "--audit-log-maxsize=8000".to_owned(),
    ]
}

/// The requests that are over and stand behind this place of the log, in the order of their ends, and the place behind
/// them. The log begins at 0.
pub(super) fn read(folder: &Path, from: u64) -> (Vec<AuditEvent>, u64) {
    let path = folder.join(LOG);
    let failed = |error: std::io::Error| -> ! { panic!("{}: {error}", path.display()) };
    let mut file = File::open(&path).unwrap_or_else(|error| failed(error));
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut bytes));
    read.unwrap_or_else(|error| failed(error));
    // The last line may be half-written.
    let text = String::from_utf8_lossy(&bytes);
    let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
    let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in audit line {line}"));
    (complete.lines().map(event).collect(), from + complete.len() as u64)
}

/// As [`read`], of a server that is killed now and then: lines that it left half-written are left out.
pub(super) fn read_broken(folder: &Path, from: u64) -> (Vec<AuditEvent>, u64) {
    let mut file = File::open(folder.join(LOG)).unwrap();
    let mut new = Vec::new();
    file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut new)).unwrap();
    let complete = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let lines = new[..complete].split(|byte| *byte == b'\n');
    (lines.filter_map(|line| serde_json::from_slice(line).ok()).collect(), from + complete as u64)
}
