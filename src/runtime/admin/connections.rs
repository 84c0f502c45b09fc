//! The open connections, and which one is closed when there are too many.
//!
//! No client can keep the probes out: a new connection is always accepted. If there are then too many, one connection
//! of the peer with the most connections is closed, the least advanced first.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A connection younger than this is closed only if its peer has no older one, since it needs time to send a request.
const MIN_AGE: Duration = Duration::from_millis(500);

/// How far a connection has advanced, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// No bytes have arrived.
    Silent,
    /// The TLS handshake is in progress.
    Handshake,
    /// No request has arrived.
    Unused,
    /// All requests are answered.
    Idle,
    /// A request is in progress.
    Busy,
}

/// The open connections. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Connections {
    entries: Arc<Mutex<HashMap<u64, ConnectionEntry>>>,
    limit: usize,
    next: Arc<AtomicU64>,
}

struct ConnectionEntry {
    peer: IpAddr,
    phase: Phase,
    since: Instant,
    closed: CancellationToken,
}

/// The slot of one connection; dropping it frees the slot.
pub(super) struct ConnectionSlot {
    connections: Connections,
    id: u64,
    /// Cancelled when the connection must make room for another one.
    pub(super) closed: CancellationToken,
}

/// The client of a connection: its IPv4 address, or its IPv6 /64, since one client may have all addresses of a /64.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
        address => address,
    }
}

impl Connections {
    /// An empty set that admits `most` connections at once.
    pub(super) fn new(most: usize) -> Self {
        Self { entries: Arc::default(), limit: most, next: Arc::default() }
    }

    /// Returns the slot of a new connection; another one may be closed for it.
    pub(super) fn admit(&self, address: IpAddr) -> ConnectionSlot {
        let (peer, now) = (peer(address), Instant::now());
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let closed = CancellationToken::new();
        let mut entries = self.entries.lock();
        while entries.len() >= self.limit.max(1) {
            let Some(victim) = connection_to_close(&entries, peer, now) else { break };
            if let Some(entry) = entries.remove(&victim) {
                tracing::debug!(peer = %entry.peer, phase = ?entry.phase, "a connection makes room for another");
                entry.closed.cancel();
            }
        }
        entries.insert(id, ConnectionEntry { peer, phase: Phase::Silent, since: now, closed: closed.clone() });
        ConnectionSlot { connections: self.clone(), id, closed }
    }
}

/// Selects from the peer with the most connections, including the new one: connections older than `YOUNG` first, then
/// the least advanced, then the oldest.
fn connection_to_close(entries: &HashMap<u64, ConnectionEntry>, newcomer: IpAddr, now: Instant) -> Option<u64> {
    let mut counts = HashMap::from([(newcomer, 1_usize)]);
    for entry in entries.values() {
        *counts.entry(entry.peer).or_default() += 1;
    }
    let count = |entry: &ConnectionEntry| counts.get(&entry.peer).copied().unwrap_or_default();
    let most = entries.values().map(count).max()?;
    let candidates = entries.iter().filter(|(_, entry)| count(entry) == most);
    let order = |entry: &ConnectionEntry| (now.duration_since(entry.since) < MIN_AGE, entry.phase, entry.since);
    candidates.min_by_key(|(id, entry)| (order(entry), **id)).map(|(id, _)| *id)
}

impl ConnectionSlot {
    /// Records how far the connection has advanced.
    pub(super) fn reached(&self, phase: Phase) {
        if let Some(entry) = self.connections.entries.lock().get_mut(&self.id)
            && entry.phase != phase
        {
            entry.phase = phase;
            entry.since = Instant::now();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.entries.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_has_the_most_makes_room_with_what_came_least_far() {
        let connections = Connections::new(4);
        let quiet = connections.admit(address("192.0.2.1"));
        let loud: Vec<_> = (0..3).map(|_| connections.admit(address("192.0.2.9"))).collect();
        loud[0].reached(Phase::Busy);
        loud[1].reached(Phase::Handshake);
        loud[2].reached(Phase::Unused);
        tokio::time::advance(MIN_AGE).await;
        let probe = connections.admit(address("192.0.2.1"));
        let closed = |slot: &ConnectionSlot| slot.closed.is_cancelled();
        assert!(closed(&loud[1]), "what came least far");
        assert!(!closed(&loud[0]) && !closed(&loud[2]) && !closed(&quiet) && !closed(&probe));
        assert_eq!(connections.entries.lock().len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_young_connection_has_the_time_to_ask() {
        let connections = Connections::new(2);
        let idle = connections.admit(address("192.0.2.9"));
        idle.reached(Phase::Idle);
        tokio::time::advance(MIN_AGE).await;
        let young = connections.admit(address("192.0.2.9"));
        let third = connections.admit(address("192.0.2.9"));
        assert!(idle.closed.is_cancelled() && !young.closed.is_cancelled());
        let fourth = connections.admit(address("192.0.2.9"));
        assert!(young.closed.is_cancelled(), "all are young: the oldest");
        drop((third, fourth));
        assert_eq!(connections.entries.lock().len(), 0, "places are given back, also those that were taken");
    }

    #[test]
    fn peers_are_addresses_and_networks() {
        let same = [("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8::1", "2001:db8::ffff:1")];
        for (one, other) in same {
            assert_eq!(peer(address(one)), peer(address(other)), "{one} {other}");
        }
        assert_ne!(peer(address("2001:db8:0:1::1")), peer(address("2001:db8::1")));
        assert_ne!(peer(address("192.0.2.1")), peer(address("192.0.2.2")));
    }
}
