//! What is known of an instance, or of an object of the API server: it exists, it is absent (with proof), or it is unknown
//! (with the reason).
//!
//! This replaces upstream's `(bool, error)` of `cloud.go`. There is no conversion from an error to
//! [`Presence::Absent`]: whoever wants to say "absent" has to put together an [`AbsenceProof`].

use std::fmt;
use std::time::Duration;

use super::reason::Reason;

/// The answer to a question about one instance.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Presence<T = ()> {
    /// The instance exists, and this is what was asked for.
    Exists(T),
    /// The instance is gone, and this is the proof.
    Absent(AbsenceProof),
    /// Nothing may be concluded. Never a reason to delete anything.
    Unknown(Unknown),
}

impl<T> Presence<T> {
    /// Applies `transform` to what was found, and keeps the other two answers.
    pub fn map<U>(self, transform: impl FnOnce(T) -> U) -> Presence<U> {
        self.and_then(|value| Presence::Exists(transform(value)))
    }

    /// Goes on with what was found, and keeps the other two answers.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Presence<U>) -> Presence<U> {
        match self {
            Presence::Exists(value) => next(value),
            Presence::Absent(proof) => Presence::Absent(proof),
            Presence::Unknown(unknown) => Presence::Unknown(unknown),
        }
    }

    /// What was found, if it was.
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

/// Positive evidence that an instance is gone.
///
/// The evidence is text for people (events, logs). It is never empty, so that a proof cannot be made by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsenceProof {
    evidence: Vec<String>,
}

impl AbsenceProof {
    /// A proof that rests on `first` and `more`.
    pub fn new(first: impl Into<String>, more: impl IntoIterator<Item = String>) -> Self {
        let mut evidence = vec![first.into()];
        evidence.extend(more);
        Self { evidence }
    }

    /// The pieces of evidence, in the order they were gathered; at least one.
    pub fn evidence(&self) -> &[String] {
        &self.evidence
    }
}

impl fmt::Display for AbsenceProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.evidence.join("; "))
    }
}

/// Why nothing may be concluded about an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The word for metrics, Events and conditions.
    pub reason: Reason,
    /// What was looked at and what would help, for people.
    pub message: String,
    /// When asking again may give another answer even though no change was announced.
    pub retry_after: Option<Duration>,
    /// The answer is on its way and a change will announce it: nobody has to hear of this yet.
    pub is_passing: bool,
    /// The machine is another Node's, or may be: people have to hear of this on a Node that works, too.
    pub is_disputed: bool,
    /// Where the instance was until it was seen to leave, to be put on record in place of an older place.
    pub last_record: Option<String>,
}

impl Unknown {
    /// An answer that waits for an announced change.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            retry_after: None,
            is_passing: false,
            is_disputed: false,
            last_record: None,
        }
    }

    /// An answer that is on its way.
    pub fn passing(reason: Reason, message: impl Into<String>) -> Self {
        Self { is_passing: true, ..Self::new(reason, message) }
    }

    /// The same of a machine that is another Node's, or may be.
    pub fn disputed(reason: Reason, message: impl Into<String>) -> Self {
        Self { is_disputed: true, ..Self::new(reason, message) }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
