//! Load balancers of two programs: this daemon creates some, the peer leads and creates more, then this daemon leads
//! again. A new leader must write nothing, neither to NSX nor to a Service.

use support::report::{Limit, Measure, OURS};

use super::Size;
use super::services::Watched;
use super::world::{Process, World};
use crate::Bench;
use crate::cluster::LIMIT;
use crate::subject::Subject;

const CHAPTER: &str = "load-balancers-handed-over";
/// Number of Services that each program creates, and number of nodes.
const SERVICES: usize = 20;
const NODES: usize = 5;

/// Measures the writes of the next leader. Without a peer there is no measurement.
pub async fn measure(bench: &mut Bench) {
    let Some(peer) = bench.peers.first().cloned() else {
        println!("  nothing is measured: {CHAPTER} needs another program, PEER");
        return;
    };
    let ours = bench.ours.clone();
    bench.attempt(CHAPTER, &ours, async |bench| measure_both(bench, &ours, &peer).await).await;
}

async fn measure_both(bench: &mut Bench, ours: &Subject, peer: &Subject) {
    let size = Size { services: SERVICES, nodes: bench.sizes(&[NODES])[0] };
    let world = World::new(bench, CHAPTER, peer.clone(), size).await;
    let mut watched = Watched::start(&world.cluster.client).await;
    let first = world.start_as(ours, 0, &[]).await;
    world.create(1..=SERVICES).await;
    world.until_served(&mut watched, SERVICES).await;
    world.until_quiet().await;
    let before = watched.addresses();
    let second = world.hand_over(bench, (first, peer), "what ours has made").await;
    world.create(SERVICES + 1..=2 * SERVICES).await;
    world.until_served(&mut watched, 2 * SERVICES).await;
    world.until_quiet().await;
    let third = world.hand_over(bench, (second, ours), "what the other has led and made").await;
    let fourth = world.hand_over(bench, (third, peer), "what both have made").await;
    let fifth = world.hand_over(bench, (fourth, ours), "what both have led").await;
    let after = Watched::start(&world.cluster.client).await.addresses();
    assert!(before.iter().all(|(name, address)| after.get(name) == Some(address)), "{before:?}, then {after:?}");
    drop(fifth);
}

impl World {
    /// Stops the process, starts this program, and reports its writes.
    async fn hand_over(&self, bench: &mut Bench, (mut before, next): (Process, &Subject), of: &str) -> Process {
        before.running.daemon.stop(LIMIT).await;
        self.cluster.clear_lease().await;
        let (seen, place) = (self.nsx.versions(), self.place());
        self.nsx.reset_counts();
        let mut process = self.start_as(next, before.number + 1, &[]).await;
        process.running.until_leading(&self.cluster.client).await;
        self.until_called().await;
        self.until_quiet().await;
        self.print_calls(&format!("{} takes over {of}", next.name));
        let (nsx, services) = (self.nsx_writes(seen), self.service_writes(place, &[process.user()]));
        nsx.iter().for_each(|version| println!("  written to NSX: {} by {}", version.path, version.user));
        services.iter().for_each(|event| println!("  written to a Service: {} {}", event.verb, event.uri));
        for (what, count) in [("NSX", nsx.len()), ("Services", services.len())] {
            let limit = (next.name == OURS).then_some(Limit::Below(0.5));
            let (name, samples) = (format!("takes over {of}: writes to {what}"), vec![count as f64]);
            bench.report(Measure { chapter: CHAPTER, subject: next.name, name, unit: "writes", samples, limit });
        }
        process
    }
}
