//! The audit log of an API server: the requests, their users and times.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// File name of the policy.
pub const POLICY: &str = "audit-policy.yaml";
/// File name of the log, which has a JSON object in each line.
pub const LOG: &str = "audit.log";

/// Logs each request once, when it is finished. For Leases it also logs the request object.
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

/// A finished request.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// User of the request.
    pub user: User,
    /// `User-Agent` of the client.
    #[serde(default)]
    pub user_agent: String,
    /// Object of the request. All fields are empty if the path is not a resource.
    #[serde(default)]
    pub object_ref: ObjectRef,
    /// Object in the request, for Leases only.
    #[serde(default)]
    pub request_object: Value,
    /// Status of the answer.
    #[serde(default)]
    pub response_status: ResponseStatus,
    /// Time of the request.
    #[serde(rename = "requestReceivedTimestamp")]
    pub received: Timestamp,
    /// Time when the answer was complete.
    #[serde(rename = "stageTimestamp")]
    pub answered: Timestamp,
}

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct User {
    /// User name. For a service account it is `system:serviceaccount:<namespace>:<name>`.
    pub username: String,
    /// Extra fields of the user.
    #[serde(default)]
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The object of a request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectRef {
    /// API group. Empty for the core group.
    pub api_group: String,
    /// Plural of the resource: `nodes`.
    pub resource: String,
    /// Subresource such as `status`, or empty.
    pub subresource: String,
    /// Namespace. Empty for cluster-wide resources.
    pub namespace: String,
    /// Name of the object. Empty for lists.
    pub name: String,
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct ResponseStatus {
    /// The HTTP status.
    #[serde(default)]
    pub code: u16,
}

impl AuditEvent {
    /// Returns true for a request that changes objects.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// Returns the id of the user's token or certificate: `JTI=` and an id for a service account token.
    #[must_use]
    pub fn credential(&self) -> Option<&str> {
        self.user.extra.get("authentication.kubernetes.io/credential-id")?.first().map(String::as_str)
    }

    /// Returns true if the status is 2xx.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }
}

/// Writes the policy. Returns the flags of kube-apiserver for it. A request is logged before its client has the whole
/// answer. The log rotates at 8 GB, which no test reaches.
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

/// Reads the finished requests after this position of the log, in the order of their ends. Returns the next position,
/// too. The log begins at 0.
pub(super) fn read(folder: &Path, from: u64) -> (Vec<AuditEvent>, u64) {
    let path = folder.join(LOG);
    let failed = |error: std::io::Error| -> ! { panic!("{}: {error}", path.display()) };
    let mut file = File::open(&path).unwrap_or_else(|error| failed(error));
    let mut bytes = Vec::new();
    let read = file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut bytes));
    read.unwrap_or_else(|error| failed(error));
    // The last line may be incomplete.
    let text = String::from_utf8_lossy(&bytes);
    let complete = text.rfind('\n').map_or("", |end| &text[..=end]);
    let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in audit line {line}"));
    (complete.lines().map(event).collect(), from + complete.len() as u64)
}

/// Like [`read`], for a server that is killed during the test: partial lines are skipped.
pub(super) fn read_broken(folder: &Path, from: u64) -> (Vec<AuditEvent>, u64) {
    let mut file = File::open(folder.join(LOG)).unwrap();
    let mut new = Vec::new();
    file.seek(SeekFrom::Start(from)).and_then(|_| file.read_to_end(&mut new)).unwrap();
    let complete = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let lines = new[..complete].split(|byte| *byte == b'\n');
    (lines.filter_map(|line| serde_json::from_slice(line).ok()).collect(), from + complete as u64)
}
