//! Pure: the condition that reports why a Node is not initialized, and the time of its writes.
//!
//! The condition becomes `False` only on Nodes that have waited for a while, and `True` only on Nodes where it is
//! `False`. The Node has the last written reason and message, so that the next leader does not repeat the Event.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::time::Duration;

use super::{NodeBlocked, OwnNode};
use crate::base::abbreviation::{MAX_MESSAGE, abbreviated};
use crate::cloud::node;

/// The condition's type.
pub const CONDITION: &str = node::cache_filter::INITIALIZED;

/// Reason and message of the condition once the Node is initialized.
const DONE: (&str, &str) = ("Initialized", "The node has its addresses, provider ID and labels.");

/// Shortest interval between two writes that change only the message.
const MESSAGE_PAUSE: Duration = Duration::from_secs(60);

/// Minimum time for which a Node waits before a transient reason, such as a pending answer, is reported.
const PASSING: Duration = Duration::from_secs(60);

/// The decision about the condition of a Node that waits for initialization.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConditionUpdate {
    /// The condition to write, if a write is due.
    pub write: Option<NodeCondition>,
    /// Whether `write` has a new reason: the Node has no `False` condition with this reason. If true, an Event is
    /// recorded after the write.
    pub is_new_reason: bool,
    /// Time after which the condition may have to be written even if no event arrives.
    pub again_after: Option<Duration>,
}

/// Whether the condition reports that the Node is not initialized.
pub fn is_false(node: &Node) -> bool {
    node::condition(node, CONDITION).is_some_and(|condition| condition.status == "False")
}

/// Decides about the condition of a Node that `blocked` blocks. No write comes before the Node has waited for `after`.
pub fn plan_condition(ours: &OwnNode, blocked: &NodeBlocked, after: Duration) -> ConditionUpdate {
    let node = &*ours.node;
    let (at, waited) = (ours.observed_at, ours.waiting_time);
    let after = match blocked.is_quiet {
        // An existing `False` stays, because its message has more information than a pending answer.
        true if is_false(node) => return ConditionUpdate::default(),
        true => after.max(PASSING),
        false => after,
    };
    if waited < after {
        return ConditionUpdate { again_after: Some(after - waited), ..ConditionUpdate::default() };
    }
    let message = abbreviated(&blocked.message, MAX_MESSAGE);
    let standing = node::condition(node, CONDITION).filter(|condition| condition.status == "False");
    let same = standing.filter(|condition| condition.reason.as_deref() == Some(blocked.reason.as_str()));
    if let Some(condition) = same {
        if condition.message.as_deref().unwrap_or_default() == message {
            return ConditionUpdate::default();
        }
        if let Some(rest) = pause_left(condition, at) {
            return ConditionUpdate { again_after: Some(rest), ..ConditionUpdate::default() };
        }
    }
    let since = standing.and_then(|condition| condition.last_transition_time.clone()).unwrap_or(Time(at));
    let write = condition("False", blocked.reason.as_str(), &message, at, since);
    ConditionUpdate { write: Some(write), is_new_reason: same.is_none(), again_after: None }
}

/// Returns the condition of an initialized Node. This condition replaces a condition with the status `False`.
pub fn done(at: Timestamp) -> NodeCondition {
    condition("True", DONE.0, DONE.1, at, Time(at))
}

/// Returns the rest of `MESSAGE_PAUSE`, or `None` if no pause is in progress. A timestamp in the future comes from
/// another clock and is ignored.
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
