//! The open connections, and the choice of the connection that is closed when there are too many. A new connection is
//! always admitted, so that no client can block the probes. If there are then too many connections, the least advanced
//! connection of the peer with the most connections is closed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A connection is young until this time has passed since the last change of its phase. A young connection needs time
/// to send a request, so it is closed only if all connections to choose from are young.
const MIN_AGE: Duration = Duration::from_millis(500);

/// Progress of a connection, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// No bytes have arrived.
    Silent,
    /// The TLS handshake is in progress.
    Handshake,
    /// The handshake is complete, but no request has arrived.
    Unused,
    /// All requests are answered.
    Idle,
    /// A request is in progress.
    Busy,
}

/// The open connections. Clones share the set.
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

/// Slot of one connection. Dropping it frees the slot.
pub(super) struct ConnectionSlot {
    connections: Connections,
    id: u64,
    /// Cancelled when the connection must make room for another connection.
    pub(super) closed: CancellationToken,
}

/// Returns the IPv4 address of a client, or its IPv6 /64, because one client can have all addresses of a /64.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
        address => address,
    }
}

impl Connections {
    /// Creates an empty set that admits up to `most` connections.
    pub(super) fn new(most: usize) -> Self {
        Self { entries: Arc::default(), limit: most, next: Arc::default() }
    }

    /// Returns the slot of a new connection. If there are too many connections, closes another connection.
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

/// Selects a connection of the peer with the most connections, counting the new connection. Connections that are not
/// young come first, then the least advanced, then the connection that is in its phase for the longest time.
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
