//! Two vCenters, one of which does not answer.

use std::time::{Duration, Instant};

use support::nodes::NodeView;
use support::{Daemon, Rule, Vcenter, eventually};

use crate::cluster::{Cluster, LIMIT, swapped, until_it_answers, uuid};

/// Nodes of the vCenter that answers.
const FIRST: std::ops::Range<usize> = 0..20;
/// Nodes of the vCenter that does not answer.
const SECOND: std::ops::Range<usize> = 20..23;
/// Time limit of a search or a read at a vCenter that hangs.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// A node without a machine in any vCenter.
const NOWHERE: usize = 99;

/// Ways in which a vCenter does not answer.
#[derive(Clone, Copy, Debug)]
enum Silence {
    /// Connections are refused.
    Down,
    /// Connections are accepted, and no call is answered.
    Hanging,
}

#[tokio::test]
async fn nodes_of_one_vcenter_do_not_wait_for_another_that_is_down() {
    one_silent(Silence::Down).await;
}

#[tokio::test]
async fn nodes_of_one_vcenter_do_not_wait_for_another_that_hangs() {
    one_silent(Silence::Hanging).await;
}

#[tokio::test]
async fn a_vcenter_that_begins_to_hang_delays_no_node_of_another() {
    let cluster = Cluster::new().await;
    let scenarios = [FIRST, SECOND].map(|numbers| cluster.scenario(numbers));
    let (first, second) = tokio::join!(Vcenter::start(&scenarios[0]), Vcenter::start(&scenarios[1]));
    let both = Cluster::zoned(&[first.ini_section("vc-1", "dc-1"), second.ini_section("vc-2", "dc-1")]);
    let mut daemon = cluster.start(&both, &[]);
    for vcenter in [&first, &second] {
        until_it_answers(&daemon, &format!("127.0.0.1:{}", vcenter.port())).await;
    }
    second.add_rule(&Rule::hang("*")).await;
    let joined = Instant::now();
    cluster.register(FIRST).await;
    cluster.register(SECOND).await;
    cluster.wait_until_initialized(FIRST, &daemon).await;
    let took = joined.elapsed();
    println!("{} nodes took {took:?} beside a vCenter that begins to hang", FIRST.len());
    assert!(took < CALL_LIMIT, "as long as a node takes that waits for the other one: {took:?}");
    let told = reason(&mut daemon, &cluster.name(SECOND.start)).await;
    println!("{:?} later it is told: {told}", joined.elapsed());
    assert!(told.contains(&format!("127.0.0.1:{}", second.port())), "{told}");
    second.clear_rules().await;
    let back = Instant::now();
    cluster.wait_until_initialized(SECOND, &daemon).await;
    println!("its own nodes are initialized {:?} after it is back", back.elapsed());
}

async fn one_silent(silence: Silence) {
    let cluster = Cluster::new().await;
    let scenarios = [FIRST, SECOND].map(|numbers| cluster.scenario(numbers));
    let (first, second) = tokio::join!(Vcenter::start(&scenarios[0]), Vcenter::start(&scenarios[1]));
    let alone = Cluster::zoned(&[first.ini_section("vc-1", "dc-1")]);
    let both = Cluster::zoned(&[first.ini_section("vc-1", "dc-1"), second.ini_section("vc-2", "dc-1")]);
    let (mut daemon, alone) = join(&cluster, &alone).await;
    daemon.kill().await;
    cluster.delete_nodes().await;

    match silence {
        Silence::Down => second.stop_listening().await,
        Silence::Hanging => second.add_rule(&Rule::hang("*")).await,
    }
    cluster.register(SECOND).await;
    cluster.kubelet(NOWHERE).register(&cluster.client).await;
    let (mut daemon, with_the_other) = join(&cluster, &both).await;
    println!(
        "{} nodes took {alone:?} with one vCenter, {with_the_other:?} beside one that is {silence:?}",
        FIRST.len()
    );
    // The machine may be busier now than during the first measurement. A wait for the other vCenter would add the time
    // limit of a call.
    let limit = alone + CALL_LIMIT - Duration::from_secs(1);
    assert!(with_the_other <= limit, "{with_the_other:?} instead of {alone:?}");

    let silent = format!("127.0.0.1:{}", second.port());
    for number in SECOND.chain([NOWHERE]) {
        let name = cluster.name(number);
        let told = reason(&mut daemon, &name).await;
        println!("{told}");
        assert!(told.contains(&format!("waiting for vCenter {silent}: ")), "{told}");
        let view = NodeView::of(&cluster.nodes().await[&name]);
        assert!(view.uninitialized && view.provider_id.is_none() && view.addresses.is_empty(), "{view:?}");
    }
    match silence {
        Silence::Down => second.resume_listening().await,
        Silence::Hanging => second.clear_rules().await,
    }
    let back = Instant::now();
    cluster.wait_until_initialized(SECOND, &daemon).await;
    println!("its own nodes are initialized {:?} after it is back", back.elapsed());
    let told = daemon.wait_for_line("no virtual machine with BIOS UUID", LIMIT).await;
    for part in [&cluster.name(NOWHERE), &uuid(NOWHERE), &swapped(&uuid(NOWHERE)), &silent] {
        assert!(told.contains(part.as_str()), "{part} is missing in {told}");
    }
    assert!(NodeView::of(&cluster.nodes().await[&cluster.name(NOWHERE)]).uninitialized);
}

/// Registers the nodes of the first vCenter and starts a daemon. Returns the time until they are initialized.
async fn join(cluster: &Cluster, config: &str) -> (Daemon, Duration) {
    cluster.register(FIRST).await;
    let started = Instant::now();
    let daemon = cluster.start(config, &[]);
    cluster.wait_until_initialized(FIRST, &daemon).await;
    (daemon, started.elapsed())
}

/// Returns the line with the reason why this node is not processed, after the daemon has observed that the vCenter does
/// not answer.
async fn reason(daemon: &mut Daemon, name: &str) -> String {
    let output = daemon.output().clone();
    eventually(&format!("the daemon says why {name} is left alone"), LIMIT, async || {
        let lines = output.lines();
        let told = lines.iter().rfind(|line| {
            line.contains("cannot initialize node") && line.contains(name) && line.contains("VCenterUnavailable")
        });
        told.cloned().ok_or_else(|| output.tail(30))
    })
    .await
}
