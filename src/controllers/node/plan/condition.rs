//! Pure: the condition that says why a Node is not initialised, and when it is written.
//!
//! It is set only on Nodes that have waited for a while, and ended only on Nodes that carry it. All state is on the
//! Node, so that another process can continue.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

use super::NodeBlocked;

/// The condition's type.
pub const CONDITION: &str = "VSphereInitialized";

/// Reason and message of the condition once the node is initialised.
const DONE: (&str, &str) = ("Initialized", "The node has its addresses, provider ID and labels.");

/// The longest message, in bytes: every watcher receives the Node.
const LONGEST_MESSAGE: usize = 2048;

/// Shortest interval between two writes that change only the message.
const MESSAGE_PAUSE: Duration = Duration::from_secs(60);

/// A transient reason, such as a pending answer, is reported only after it lasted this long.
const PASSING: Duration = Duration::from_secs(60);

/// What to do about the condition of a waiting Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telling {
    /// The condition to write.
    pub write: Option<NodeCondition>,
    /// The reason differs from the one in the condition: one Event once it is written.
    pub is_news: bool,
    /// When the condition may be due although nothing else changes.
    pub again_after: Option<Duration>,
}

/// Returns the condition of the Node.
pub fn of(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == CONDITION)
}

/// Whether the condition says that the Node is not initialised.
pub fn stands_false(node: &Node) -> bool {
    of(node).is_some_and(|condition| condition.status == "False")
}

/// The report on a Node that `held` blocks and that has waited for `waited`. It is due from `after` on.
pub fn tell(node: &Node, held: &NodeBlocked, at: Timestamp, waited: Duration, after: Duration) -> Telling {
    let after = match held.is_quiet {
        // The existing condition says more than a pending answer.
        true if stands_false(node) => return Telling::default(),
        true => after.max(PASSING),
        false => after,
    };
    if waited < after {
        return Telling { again_after: Some(after - waited), ..Telling::default() };
    }
    let message = bounded(&held.message);
    let standing = of(node).filter(|condition| condition.status == "False");
    let same = standing.filter(|condition| condition.reason.as_deref() == Some(held.reason.as_str()));
    if let Some(condition) = same {
        if condition.message.as_deref().unwrap_or_default() == message {
            return Telling::default();
        }
        if let Some(rest) = pause_left(condition, at) {
            return Telling { again_after: Some(rest), ..Telling::default() };
        }
    }
    let since = standing.and_then(|condition| condition.last_transition_time.clone()).unwrap_or(Time(at));
    let write = condition("False", held.reason.as_str(), message, at, since);
    Telling { write: Some(write), is_news: same.is_none(), again_after: None }
}

/// The condition of an initialised Node; replaces one that says it is not.
pub fn done(at: Timestamp) -> NodeCondition {
    condition("True", DONE.0, DONE.1, at, Time(at))
}

/// Remaining time before the message may change. A timestamp in the future comes from another clock and is ignored.
fn pause_left(condition: &NodeCondition, at: Timestamp) -> Option<Duration> {
    let written = condition.last_heartbeat_time.as_ref()?.0;
    let since = Duration::try_from(at.duration_since(written)).ok()?;
    MESSAGE_PAUSE.checked_sub(since).filter(|rest| !rest.is_zero())
}

fn condition(status: &str, reason: &str, message: &str, at: Timestamp, since: Time) -> NodeCondition {
    NodeCondition {
        type_: CONDITION.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(at)),
        last_transition_time: Some(since),
    }
}

fn bounded(message: &str) -> &str {
    let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end)).unwrap_or_default();
    message.get(..end).unwrap_or_default()
}
