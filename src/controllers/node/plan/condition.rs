//! Pure: the condition that says on a node why it is not initialised, and when it is written.
//!
//! It is made on nodes that wait only, once they waited for a while, and is taken back on those alone that carry it.
//! What stands on the node is all that is gone by, so that another process goes on where this one ends.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

use super::NodeBlocked;

/// The condition's type.
pub const CONDITION: &str = "VSphereInitialized";

/// Reason and message of the condition once the node is initialised.
const DONE: (&str, &str) = ("Initialized", "The node has its addresses, provider ID and labels.");

/// The longest message, in bytes: a Node is sent to every watcher.
const LONGEST_MESSAGE: usize = 2048;

/// A message that changes while the reason stays is written this often at most.
const MESSAGE_PAUSE: Duration = Duration::from_secs(60);

/// A reason that passes by itself, as one that waits for an answer, is told once it did not pass for this long.
const PASSING: Duration = Duration::from_secs(60);

/// What to do about the condition of a node that waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telling {
    /// The condition to write.
    pub write: Option<NodeCondition>,
    /// The reason is another one than stands there: one Event once it is written.
    pub is_news: bool,
    /// When there may be something to write although nothing else changes.
    pub again_after: Option<Duration>,
}

/// The condition of the node.
pub fn of(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == CONDITION)
}

/// Whether the node says of itself that it is not initialised.
pub fn stands_false(node: &Node) -> bool {
    of(node).is_some_and(|condition| condition.status == "False")
}

/// What to write on a node that `held` holds, that waits for `waited`, and is to say so from `after` on.
pub fn tell(node: &Node, held: &NodeBlocked, at: Timestamp, waited: Duration, after: Duration) -> Telling {
    let after = match held.is_quiet {
        // What stands there says more than that something is on its way.
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

/// What takes the place of a condition that says that the node is not initialised.
pub fn done(at: Timestamp) -> NodeCondition {
    condition("True", DONE.0, DONE.1, at, Time(at))
}

/// Until when the message stays as it is. A time that has yet to come is another clock's, and says nothing.
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
