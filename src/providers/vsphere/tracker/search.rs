//! The searches under way: many joining nodes side by side, bounded per vCenter.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::resolve::{Answer, By};
use super::slots::Slot;
use crate::providers::vsphere::inventory::Vcenter;
use crate::providers::vsphere::provider_id::BiosUuid;

/// Searches under way at one vCenter at a time.
const IN_FLIGHT: usize = 16;

/// What to look for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The node's name.
    pub(super) node: String,
    /// The node's UID: an answer for an earlier node of the same name is dropped.
    pub(super) uid: String,
    /// The UUID as the node says it.
    pub(super) uuid: Option<BiosUuid>,
    /// Whether the UUID comes from the provider ID, which is in vCenter's byte order.
    pub(super) is_provider_id: bool,
    /// Whether to ask by name where the UUID gives nothing.
    pub(super) by_name: bool,
}

/// One vCenter's answer.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) node: String,
    pub(super) uid: String,
    /// What was searched for.
    pub(super) uuid: Option<BiosUuid>,
    pub(super) vcenter: Slot,
    pub(super) answer: Answer,
    /// For a hit on a system UUID: whether it was the other byte order.
    pub(super) hit_swapped: Option<bool>,
}

/// The queue of each vCenter, and what is running.
pub(super) struct Searches {
    queues: BTreeMap<Slot, Queue>,
    running: FuturesUnordered<BoxFuture<'static, Answered>>,
    /// Guests usually report their UUID in the other byte order; whichever hit last is asked first.
    swapped_first: bool,
}

struct Queue {
    vcenter: Arc<Vcenter>,
    waiting: VecDeque<Wanted>,
    in_flight: usize,
}

impl Default for Searches {
    fn default() -> Self {
        Self { queues: BTreeMap::new(), running: FuturesUnordered::new(), swapped_first: true }
    }
}

impl Searches {
    /// A vCenter that can be asked from now on.
    pub(super) fn add(&mut self, slot: Slot, vcenter: Arc<Vcenter>) {
        self.queues.insert(slot, Queue { vcenter, waiting: VecDeque::new(), in_flight: 0 });
    }

    /// A vCenter that is asked nothing more. What is under way ends by itself.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.queues.remove(&slot);
    }

    /// Asks `vcenter`. A search for the same node that is still waiting is replaced.
    pub(super) fn start(&mut self, vcenter: Slot, wanted: Wanted) {
        if let Some(queue) = self.queues.get_mut(&vcenter) {
            queue.waiting.retain(|earlier| earlier.node != wanted.node);
            queue.waiting.push_back(wanted);
        }
        self.fill(vcenter);
    }

    /// Lets others go first: the node's machine is found, and what still waits only looks for twins.
    pub(super) fn put_last(&mut self, node: &str) {
        for Queue { waiting, .. } in self.queues.values_mut() {
            if let Some(wanted) =
                waiting.iter().position(|wanted| wanted.node == node).and_then(|at| waiting.remove(at))
            {
                waiting.push_back(wanted);
            }
        }
    }

    /// The next answer; never comes when nothing is running.
    pub(super) async fn next(&mut self) -> Answered {
        let answered = match self.running.next().await {
            Some(answered) => answered,
            None => std::future::pending().await,
        };
        if let Some(swapped) = answered.hit_swapped {
            self.swapped_first = swapped;
        }
        if let Some(queue) = self.queues.get_mut(&answered.vcenter) {
            queue.in_flight = queue.in_flight.saturating_sub(1);
        }
        self.fill(answered.vcenter);
        answered
    }

    fn fill(&mut self, slot: Slot) {
        let Some(Queue { vcenter, waiting, in_flight }) = self.queues.get_mut(&slot) else { return };
        while *in_flight < IN_FLIGHT {
            let Some(wanted) = waiting.pop_front() else { break };
            *in_flight += 1;
            self.running.push(Box::pin(ask(slot, Arc::clone(vcenter), wanted, self.swapped_first)));
        }
    }
}

async fn ask(slot: Slot, vcenter: Arc<Vcenter>, wanted: Wanted, swapped_first: bool) -> Answered {
    let (answer, hit_swapped) = match search(&vcenter, &wanted, swapped_first).await {
        Ok((answer, hit_swapped)) => (answer, hit_swapped),
        Err(reason) => (Answer::Silent { reason }, None),
    };
    Answered { node: wanted.node, uid: wanted.uid, uuid: wanted.uuid, vcenter: slot, answer, hit_swapped }
}

async fn search(vcenter: &Vcenter, wanted: &Wanted, swapped_first: bool) -> Result<(Answer, Option<bool>), String> {
    if let Some(uuid) = &wanted.uuid {
        let first_is_swapped = swapped_first && !wanted.is_provider_id;
        for swapped in [first_is_swapped, !first_is_swapped] {
            let text = if swapped { uuid.byte_swapped().to_string() } else { uuid.to_string() };
            let ids = vcenter.find_all_by_uuid(&text).await?;
            if !ids.is_empty() {
                let hit = (!wanted.is_provider_id).then_some(swapped);
                return Ok((Answer::Matches { by: By::Uuid, ids }, hit));
            }
        }
    }
    if wanted.by_name {
        let ids = vcenter.find_all_by_name(&wanted.node).await?;
        return Ok((Answer::Matches { by: By::Name, ids }, None));
    }
    Ok((Answer::Matches { by: By::Uuid, ids: Vec::new() }, None))
}
