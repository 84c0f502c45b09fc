//! Presence of an instance or an API object: it exists, is absent (with proof) or is unknown (with reason). Replaces
//! the `(bool, error)` of `cloud.go`. An error never becomes [`Presence::Absent`], because an [`AbsenceProof`] must be
//! built explicitly.

use std::fmt;
use std::time::Duration;

use super::reason::Reason;

/// Presence of an instance or an object.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Presence<T = ()> {
    /// The instance exists. Contains the requested data.
    Exists(T),
    /// The instance does not exist. Contains the proof.
    Absent(AbsenceProof),
    /// It is unknown whether the instance exists. Never justifies a deletion.
    Unknown(Unknown),
}

impl<T> Presence<T> {
    /// Applies `transform` to the data, and keeps the other two variants.
    pub fn map<U>(self, transform: impl FnOnce(T) -> U) -> Presence<U> {
        self.and_then(|value| Presence::Exists(transform(value)))
    }

    /// Applies `next` to the data, and keeps the other two variants.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Presence<U>) -> Presence<U> {
        match self {
            Presence::Exists(value) => next(value),
            Presence::Absent(proof) => Presence::Absent(proof),
            Presence::Unknown(unknown) => Presence::Unknown(unknown),
        }
    }

    /// Returns the data, if the instance exists.
    pub fn found(self) -> Option<T> {
        match self {
            Presence::Exists(value) => Some(value),
            Presence::Absent(_) | Presence::Unknown(_) => None,
        }
    }
}

impl<T> From<Result<T, Unknown>> for Presence<T> {
    fn from(result: Result<T, Unknown>) -> Self {
        result.map_or_else(Presence::Unknown, Presence::Exists)
    }
}

/// Positive evidence that an instance does not exist: texts for Events and logs, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsenceProof {
    evidence: Vec<String>,
}

impl AbsenceProof {
    /// Creates a proof whose evidence is `first`, followed by `more`.
    pub fn new(first: impl Into<String>, more: impl IntoIterator<Item = String>) -> Self {
        let mut evidence = vec![first.into()];
        evidence.extend(more);
        Self { evidence }
    }

    /// Returns the evidence in the order of gathering. There is at least one piece.
    pub fn evidence(&self) -> &[String] {
        &self.evidence
    }
}

impl fmt::Display for AbsenceProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.evidence.join("; "))
    }
}

/// The reason why the presence of an instance is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The reason for metrics, Events and conditions.
    pub reason: Reason,
    /// The checks that were made, and a remedy, for operators.
    pub message: String,
    /// Time until the retry, if the answer may change without an announcement.
    pub retry_after: Option<Duration>,
    /// Whether the answer is in progress and will be announced. If true, the reason is not reported yet.
    pub is_transient: bool,
    /// Whether the VM belongs or may belong to another Node. Such a dispute is reported even on an initialized Node.
    pub is_disputed: bool,
    /// Record of the location from which the instance disappeared. Replaces an older record on the Node.
    pub last_record: Option<String>,
}

impl Unknown {
    /// Creates an answer that stays valid until an announced change.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
            is_transient: false,
            is_disputed: false,
            last_record: None,
        }
    }

    /// Creates an answer that is in progress.
    pub fn transient(reason: Reason, message: impl Into<String>) -> Self {
        Self { is_transient: true, ..Self::new(reason, message) }
    }

    /// Creates an answer about a VM that belongs or may belong to another Node.
    pub fn disputed(reason: Reason, message: impl Into<String>) -> Self {
        Self { is_disputed: true, ..Self::new(reason, message) }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
