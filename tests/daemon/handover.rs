//! Three replicas whose leader is stopped, killed and frozen while nodes join or while load balancers are created.
//! Every node is initialized, and every Service gets its load balancer. The audit log shows no write of a replica while
//! another one leads.
//!
//! `SOAK_HITS` is the number of hits on the leader. The default is three, each of another kind.

mod load_balancers;
mod world;

use std::time::Instant;

use k8s_openapi::jiff::SignedDuration;
use support::{ApiServer, AuditEvent, Heavy, environment};

use crate::invariants::audit::{Term, breaches, leaders_writes, terms};
use load_balancers::Balanced;
use world::{Hit, World};

/// The hits, in turn.
const HITS: [Hit; 3] = [Hit::Terminate, Hit::Kill, Hit::Freeze];
/// Total number of nodes, and minimum for each hit.
const NODES: usize = 100;
const NODES_PER_HIT: usize = 33;
/// Services of type LoadBalancer.
const SERVICES: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_leaders_end_all_nodes_are_initialized_and_nobody_writes_beside_the_next_one() {
    let _alone = Heavy::alone();
    let hits = environment::number("SOAK_HITS").map_or(HITS.len(), |hits| usize::try_from(hits).unwrap());
    let nodes = NODES.max(hits * NODES_PER_HIT);
    let server = ApiServer::audited().await;
    let mut world = World::start(&server, nodes).await;
    let began = Instant::now();
    for (index, hit) in HITS.into_iter().cycle().take(hits).enumerate() {
        // The last wave has the remaining nodes.
        let until = if index + 1 == hits { nodes } else { (index + 1) * nodes / hits };
        world.hit(hit, until).await;
    }
    world.until_all_are_initialized().await;
    println!("{hits} hits, {nodes} nodes, {:.1?} from the first hit to the last node", began.elapsed());
    world.stop().await;

    let log = server.audit();
    let (lease, users) = (world.lease(), world.users());
    let terms = terms(&log, lease);
    let writes: Vec<&AuditEvent> = leaders_writes(&log, users).collect();
    println!("{} terms, {} accepted writes to Nodes", terms.len(), writes.len());
    assert!(terms.len() > hits, "{terms:?}");
    assert!(writes.len() >= 2 * nodes, "each node takes two: {}", writes.len());
    assert_eq!(breaches(&log, lease, users), []);
    // Each leader that was hit has written, and so has its successor.
    let working = terms.iter().filter(|term| writes.iter().any(|write| is_in(write, term, &terms))).count();
    assert!(working > hits, "{working} of {} terms had a write: {terms:?}", terms.len());
    let late = late_writes(writes[0], &terms);
    assert!(late.len() >= hits, "{terms:?}");
    assert_eq!(breaches(&[&log[..], &late].concat(), lease, users).len(), late.len(), "the check sees breaches");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leads_next_completes_load_balancers_and_writes_nothing_where_all_is_done() {
    let _alone = Heavy::alone();
    let mut world = Balanced::start().await;
    for (index, hit) in HITS.into_iter().enumerate() {
        world.hit(hit, index * SERVICES / HITS.len(), (index + 1) * SERVICES / HITS.len()).await;
    }
    for hit in HITS {
        world.hit_in_quiet(hit).await;
    }
    let (terms, writes) = world.stop().await;
    println!("{terms} terms, {writes} writes to NSX");
    assert!(terms > 2 * HITS.len() && writes > 4 * SERVICES, "{terms} terms, {writes} writes");
}

/// Whether a write arrived in this term.
fn is_in(write: &AuditEvent, term: &Term, terms: &[Term]) -> bool {
    let next = terms.iter().map(|term| term.began).find(|began| *began > term.began);
    write.received > term.began && next.is_none_or(|next| write.received <= next)
}

/// Returns forbidden writes: by each former leader, a microsecond after the next leader's term begins.
fn late_writes(model: &AuditEvent, terms: &[Term]) -> Vec<AuditEvent> {
    let pairs = terms.iter().zip(terms.iter().skip(1)).filter(|(before, after)| before.user != after.user);
    let late = |(before, after): (&Term, &Term)| {
        let mut write = model.clone();
        before.user.clone_into(&mut write.user.username);
        write.received = after.began + SignedDuration::from_micros(1);
        write
    };
    pairs.map(late).collect()
}
