//! The searches in flight: many joining Nodes in parallel, with a limit per vCenter.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::resolution::{SearchAnswer, SearchKey};
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::vcenter::Vcenter;
use crate::providers::vsphere::vcenter::VcenterId;
use crate::providers::vsphere::vcenter::reads::{ReadAnswer, SearchRead, VmRead};

/// Maximum number of searches in flight per vCenter.
const IN_FLIGHT: usize = 16;

/// A search for the VM of one Node.
#[derive(Clone, Debug)]
pub(super) struct SearchRequest {
    pub(super) node: String,
    /// The Node's UID. A reply for an earlier Node of the same name is dropped.
    pub(super) uid: Arc<str>,
    /// The UUID to search by, in the byte order of the Node.
    pub(super) uuid: Option<BiosUuid>,
    /// Whether the UUID comes from the provider ID, which has vCenter's byte order.
    pub(super) is_provider_id: bool,
    /// Whether both byte orders are searched even if the first order has a match.
    pub(super) in_both_orders: bool,
    /// The last known VM of the Node in this vCenter. It is read by id if the UUID has no match, because a search does
    /// not find a VM that the account cannot read.
    pub(super) recorded: Option<Arc<str>>,
    /// A system UUID that contradicts the provider ID. A search for this UUID finds the VMs to name in the
    /// message.
    pub(super) contradicting: Option<BiosUuid>,
    /// Whether to search by name if UUID and recorded id have no match.
    pub(super) by_name: bool,
    /// Whether the search has priority, as for control-plane Nodes.
    pub(super) is_first: bool,
}

#[derive(Debug)]
pub(super) struct SearchReply {
    pub(super) request: SearchRequest,
    pub(super) vcenter: VcenterId,
    pub(super) answer: SearchAnswer,
    /// For a match by system UUID: whether the UUID matched with its bytes swapped.
    pub(super) hit_swapped: Option<bool>,
    number: u64,
}

pub(super) struct Searches {
    queues: BTreeMap<VcenterId, Queue>,
    running: FuturesUnordered<BoxFuture<'static, SearchReply>>,
    order: StartOrder,
    /// Whether system UUIDs are searched with swapped bytes first. True at the start, because guests usually report
    /// swapped UUIDs. Later the value follows the last match.
    swapped_first: bool,
}

struct Queue {
    vcenter: Arc<Vcenter>,
    waiting: WaitingSearches,
    in_flight: usize,
}

/// Waiting searches, at most one per Node: first those of the control plane, then in order of arrival.
#[derive(Default)]
struct WaitingSearches {
    requests: BTreeMap<QueuePosition, SearchRequest>,
    positions: HashMap<String, QueuePosition>,
    last: u64,
}

/// `false` for priority, then a sequence number.
type QueuePosition = (bool, u64);

impl WaitingSearches {
    /// Appends a search to its priority class, and replaces an earlier search for the same Node.
    fn push(&mut self, wanted: SearchRequest) {
        self.last = self.last.wrapping_add(1);
        let place = (!wanted.is_first, self.last);
        if let Some(before) = self.positions.insert(wanted.node.clone(), place) {
            self.requests.remove(&before);
        }
        self.requests.insert(place, wanted);
    }

    fn remove(&mut self, node: &str) -> Option<SearchRequest> {
        let place = self.positions.remove(node)?;
        self.requests.remove(&place)
    }

    fn pop(&mut self) -> Option<SearchRequest> {
        let node = self.requests.first_key_value()?.1.node.clone();
        self.remove(&node)
    }
}

/// Start order of the searches for a Node. A search may hang and end after a later search.
#[derive(Default)]
struct StartOrder {
    last: u64,
    /// By vCenter and Node: the number of the latest answered search, and the count of searches in flight.
    running: BTreeMap<(VcenterId, String), (u64, usize)>,
}

impl StartOrder {
    fn begin(&mut self, vcenter: VcenterId, node: &str) -> u64 {
        self.last += 1;
        let (_, running) = self.running.entry((vcenter, node.to_owned())).or_default();
        *running += 1;
        self.last
    }

    /// Ends a search. Returns true if its result counts, because no later search was answered before.
    fn end(&mut self, vcenter: VcenterId, node: &str, number: u64, is_answered: bool) -> bool {
        let key = (vcenter, node.to_owned());
        let Some((answered, running)) = self.running.get_mut(&key) else { return false };
        let counts = number > *answered;
        if counts && is_answered {
            *answered = number;
        }
        *running = running.saturating_sub(1);
        if *running == 0 {
            self.running.remove(&key);
        }
        counts
    }
}

impl Default for Searches {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            running: FuturesUnordered::new(),
            order: StartOrder::default(),
            swapped_first: true,
        }
    }
}

impl Searches {
    pub(super) fn add(&mut self, slot: VcenterId, vcenter: Arc<Vcenter>) {
        self.queues.insert(slot, Queue { vcenter, waiting: WaitingSearches::default(), in_flight: 0 });
    }

    /// Removes a vCenter. Searches in flight still finish.
    pub(super) fn remove(&mut self, vcenter: VcenterId) {
        self.queues.remove(&vcenter);
    }

    /// Searches in `vcenter`. Replaces a waiting search for the same Node.
    pub(super) fn start(&mut self, vcenter: VcenterId, wanted: SearchRequest) {
        if let Some(queue) = self.queues.get_mut(&vcenter) {
            queue.waiting.push(wanted);
        }
        self.fill(vcenter);
    }

    /// Drops the priority of a Node. Its VM is bound, so its waiting searches only look for twins.
    pub(super) fn put_last(&mut self, node: &str) {
        for Queue { waiting, .. } in self.queues.values_mut() {
            if let Some(wanted) = waiting.remove(node) {
                waiting.push(SearchRequest { is_first: false, ..wanted });
            }
        }
    }

    /// Returns the next reply; pending while no search is in flight. Skips outdated replies.
    pub(super) async fn next(&mut self) -> SearchReply {
        loop {
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
            let SearchReply { vcenter, request: wanted, number, answer, .. } = &answered;
            let counts = self.order.end(*vcenter, &wanted.node, *number, answer.is_answered());
            self.fill(answered.vcenter);
            if counts {
                return answered;
            }
        }
    }

    fn fill(&mut self, slot: VcenterId) {
        let Some(Queue { vcenter, waiting, in_flight }) = self.queues.get_mut(&slot) else { return };
        while *in_flight < IN_FLIGHT {
            let Some(wanted) = waiting.pop() else { break };
            *in_flight += 1;
            let number = self.order.begin(slot, &wanted.node);
            let (queried, swapped_first) = (Arc::clone(vcenter), self.swapped_first);
            self.running.push(Box::pin(async move {
                let (answer, hit_swapped) = search(&queried, &wanted, swapped_first).await;
                SearchReply { request: wanted, vcenter: slot, answer, hit_swapped, number }
            }));
        }
    }
}

/// Searches by UUID, then by the recorded id, then by a contradicting UUID, then by name. A later step runs only if the
/// earlier steps found nothing.
async fn search(vcenter: &Vcenter, wanted: &SearchRequest, swapped_first: bool) -> (SearchAnswer, Option<bool>) {
    if let Some(uuid) = &wanted.uuid {
        let first_is_swapped = swapped_first && !wanted.is_provider_id;
        let (mut all, mut hit) = (Vec::new(), None);
        for swapped in [first_is_swapped, !first_is_swapped] {
            let queried = if swapped { uuid.byte_swapped() } else { uuid.clone() };
            match answer_to_search(SearchKey::Uuid, vcenter.search_by_uuid(&queried).await) {
                SearchAnswer::Matches { ids, .. } => {
                    if !ids.is_empty() && hit.is_none() && !wanted.is_provider_id {
                        hit = Some(swapped);
                    }
                    all.extend(ids);
                }
                other => return (other, None),
            }
            if !all.is_empty() && !wanted.in_both_orders {
                break;
            }
        }
        if !all.is_empty() {
            all.sort();
            all.dedup();
            return (SearchAnswer::Matches { query: SearchKey::Uuid, ids: all }, hit);
        }
    }
    let mut answer = SearchAnswer::Matches { query: SearchKey::Uuid, ids: Vec::new() };
    if let Some(id) = &wanted.recorded {
        answer = answer_to_read(id, wanted.uuid.as_ref(), vcenter.read_vm(id).await);
    }
    let is_nowhere = matches!(&answer, SearchAnswer::Gone(_))
        || matches!(&answer, SearchAnswer::Matches { ids, .. } if ids.is_empty());
    if let Some(uuid) = wanted.contradicting.as_ref().filter(|_| is_nowhere) {
        for asked in [uuid.clone(), uuid.byte_swapped()] {
            // A failure here proves nothing about the VM of the provider ID.
            if let ReadAnswer::Found(ids) = vcenter.search_by_uuid(&asked).await
                && !ids.is_empty()
            {
                return (SearchAnswer::Elsewhere(ids), None);
            }
        }
    }
    if is_nowhere && wanted.by_name {
        answer = answer_to_search(SearchKey::Name, vcenter.search_by_name(&wanted.node).await);
    }
    (answer, None)
}

fn answer_to_search(by: SearchKey, read: SearchRead) -> SearchAnswer {
    match read {
        ReadAnswer::Found(ids) => SearchAnswer::Matches { query: by, ids },
        ReadAnswer::Denied(denial) => {
            let what = if by == SearchKey::Uuid { "BIOS UUID" } else { "name" };
            SearchAnswer::Denied(format!("searching by {what}: {denial}"))
        }
        ReadAnswer::Silent(trouble) => SearchAnswer::Silent(trouble.summary),
        ReadAnswer::Gone => SearchAnswer::Silent("the search reports that the searched object is gone".to_string()),
    }
}

/// Converts the read of the recorded VM to an answer, if no VM was found by UUID.
fn answer_to_read(id: &str, wanted: Option<&BiosUuid>, read: VmRead) -> SearchAnswer {
    match read {
        ReadAnswer::Gone => SearchAnswer::Gone(id.into()),
        ReadAnswer::Denied(denial) => SearchAnswer::Denied(format!("reading VM {id}, which backed the Node: {denial}")),
        ReadAnswer::Silent(trouble) => SearchAnswer::Silent(trouble.summary),
        ReadAnswer::Found(identity) => match (identity.bios_uuid, wanted) {
            (Some(own), Some(wanted)) if !own.is_same(wanted) => SearchAnswer::Changed { id: id.into(), uuid: own },
            // The UUID is unreadable, or the permission returned after the search. The properties that the watch
            // reports decide.
            _ => SearchAnswer::Matches { query: SearchKey::Uuid, ids: vec![id.into()] },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::vsphere::vcenter::reads::{Denial, VmIdentity};
    use crate::providers::vsphere::vcenter::snapshot::VcenterFailure;

    #[test]
    fn a_search_counts_unless_a_later_one_was_answered() {
        let mut order = StartOrder::default();
        let [first, second] = [order.begin(0.into(), "n"), order.begin(0.into(), "n")];
        let (other, elsewhere) = (order.begin(0.into(), "m"), order.begin(1.into(), "n"));
        assert!(order.end(0.into(), "n", second, true));
        assert!(!order.end(0.into(), "n", first, true), "it was overtaken");
        assert!(
            order.end(0.into(), "m", other, true) && order.end(1.into(), "n", elsewhere, true),
            "another node, another vCenter"
        );
        assert!(order.running.is_empty());
        let [first, second, third] =
            [order.begin(0.into(), "n"), order.begin(0.into(), "n"), order.begin(0.into(), "n")];
        assert!(order.end(0.into(), "n", first, true), "what comes later is not known yet");
        assert!(order.end(0.into(), "n", third, false), "a search without an answer is reported");
        assert!(order.end(0.into(), "n", second, true), "and is no answer");
        assert!(order.running.is_empty());
    }

    #[test]
    fn the_read_of_a_recorded_machine_tells_what_a_search_cannot() {
        let uuid: BiosUuid = "422e4956-ad22-1139-6d72-59cc8f26bc90".parse().unwrap();
        let other: BiosUuid = "01234567-89ab-cdef-4444-555555555555".parse().unwrap();
        let found =
            |uuid: Option<&BiosUuid>| ReadAnswer::Found(VmIdentity { name: "n".into(), bios_uuid: uuid.cloned() });
        let denial = Denial { object: "Folder:group-v3".into(), privilege: "System.Read".into(), is_logged: true };
        let matched = || SearchAnswer::Matches { query: SearchKey::Uuid, ids: vec!["vm-3".into()] };
        let denied =
            "reading VM vm-3, which backed the Node: NoPermission on Folder:group-v3: privilege System.Read is missing";
        for (case, read, expected) in [
            ("gone", ReadAnswer::Gone, SearchAnswer::Gone("vm-3".into())),
            ("denied", ReadAnswer::Denied(denial), SearchAnswer::Denied(denied.into())),
            ("silent", ReadAnswer::Silent(VcenterFailure::unavailable("down")), SearchAnswer::Silent("down".into())),
            ("the same UUID", found(Some(&uuid)), matched()),
            ("the same UUID in the other order", found(Some(&uuid.byte_swapped())), matched()),
            ("a UUID that may not be read", found(None), matched()),
            ("another UUID", found(Some(&other)), SearchAnswer::Changed { id: "vm-3".into(), uuid: other.clone() }),
        ] {
            assert_eq!(answer_to_read("vm-3", Some(&uuid), read), expected, "{case}");
        }
        assert_eq!(answer_to_read("vm-3", None, found(Some(&other))), matched(), "a node that says no UUID");
    }

    fn wanted(node: &str, uid: &str) -> SearchRequest {
        SearchRequest {
            node: node.into(),
            uid: uid.into(),
            uuid: None,
            recorded: None,
            is_provider_id: false,
            contradicting: None,
            in_both_orders: false,
            by_name: false,
            is_first: false,
        }
    }

    #[test]
    fn nodes_of_the_control_plane_are_looked_for_first() {
        let mut waiting = WaitingSearches::default();
        for node in ["a", "cp-1", "b", "cp-2"] {
            waiting.push(SearchRequest { is_first: node.starts_with("cp"), ..wanted(node, "1") });
        }
        let order: Vec<String> = std::iter::from_fn(|| waiting.pop()).map(|wanted| wanted.node).collect();
        assert_eq!(order, ["cp-1", "cp-2", "a", "b"]);
    }

    #[test]
    fn a_node_waits_once_and_in_its_last_place() {
        let mut waiting = WaitingSearches::default();
        for (node, uid) in [("a", "1"), ("b", "1"), ("c", "1"), ("a", "2")] {
            waiting.push(wanted(node, uid));
        }
        let moved = waiting.remove("b").unwrap();
        waiting.push(moved);
        let order: Vec<String> =
            std::iter::from_fn(|| waiting.pop()).map(|wanted| wanted.node + &*wanted.uid).collect();
        assert_eq!(order, ["c1", "a2", "b1"]);
        assert!(waiting.positions.is_empty() && waiting.remove("a").is_none());
    }
}
