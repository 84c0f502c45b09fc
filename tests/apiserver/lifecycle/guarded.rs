//! The guard, from Nodes to deletions: what is held, what is told, and what lets it go.

use ccm::cloud::Unknown;
use ccm::controllers::node_lifecycle::plan::ANNOTATION_ALLOW_DELETION;
use ccm::controllers::node_lifecycle::{Deletion, Limit, Settings};
use ccm::providers::memory::Memory;
use futures::future::join_all;
use std::time::Duration;
use support::eventually;

use super::harness::{Form, LIMIT, Run, instance, settings};
use ccm::providers::vsphere::reason;

/// Long enough that no test sees its end.
const NEVER: Duration = Duration::from_secs(3600);

/// Registers a Node whose machine is gone.
async fn lost(run: &Run, cloud: &Memory, form: &Form) {
    cloud.put(instance(form, &form.provider_id));
    assert!(cloud.remove(&form.provider_id));
    run.register(form).await;
}

async fn lost_many(run: &Run, cloud: &Memory, count: usize) -> Vec<String> {
    let forms: Vec<Form> = (0..count).map(|_| Form::new("Unknown")).collect();
    join_all(forms.iter().map(|form| lost(run, cloud, form))).await;
    forms.into_iter().map(|form| form.name).collect()
}

async fn ready_many(run: &Run, count: usize) {
    for _ in 0..count {
        run.register(&Form::new("True")).await;
    }
}

/// The controller has looked at every node several times since.
async fn several_passes(cloud: &Memory) {
    let asked = cloud.calls();
    eventually("several passes", LIMIT, async || {
        if cloud.calls() > asked + 20 { Ok(()) } else { Err(cloud.calls().to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_holds_what_is_more_than_it_and_a_new_leader_starts_with_one() {
    let cloud = Memory::default();
    let limit = Limit { nodes: 5, percent: 10, window: NEVER };
    let run = Run::start(&cloud, Settings { limit, ..settings() }).await;
    ready_many(&run, 10).await;
    let names = lost_many(&run, &cloud, 4).await;
    run.wait_for_metric("one goes", "vsphere_ccm_node_deletions_total", 1).await;
    run.wait_for_held("the others wait", "DeletionLimitReached", 3).await;
    several_passes(&cloud).await;
    assert_eq!(run.count().await, 13);
    assert_eq!(run.metric("vsphere_ccm_node_deletion_allowance"), 0);
    // They are written when the nodes are held already.
    let told = eventually("an Event each", LIMIT, async || {
        let mut told = 0;
        for name in &names {
            let events = run.events(name).await;
            told += events.iter().filter(|event| event.reason.as_deref() == Some("DeletionLimitReached")).count();
        }
        if told >= 3 { Ok(told) } else { Err(told) }
    })
    .await;
    assert_eq!(told, 3, "one Event each");

    // Another leader knows nothing of it, and begins with one of its own.
    drop(run);
    let limit = Limit { nodes: 5, percent: 10, window: Duration::from_secs(4) };
    let second = Run::start(&cloud, Settings { limit, ..settings() }).await;
    let names = lost_many(&second, &cloud, 3).await;
    for name in names {
        second.wait_for_deletion("under the limit all go", &name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_are_held_told_and_then_deleted() {
    let cloud = Memory::default();
    // The grace period is long enough for all of them to be registered.
    let grace = Duration::from_secs(6);
    let run = Run::start(&cloud, Settings { grace, mass_hold: 2 * grace, ..settings() }).await;
    ready_many(&run, 4).await;
    let names = lost_many(&run, &cloud, 8).await;
    run.wait_for_held("all are held", "DeletionMassHold", 8).await;
    assert_eq!(run.metric("vsphere_ccm_node_deletion_mass_hold"), 1);
    assert_eq!(run.metric("vsphere_ccm_node_deletions_total"), 0, "not even the first ones");
    let event = run.wait_for_event(&names[0], "DeletionMassHold").await;
    let message = event.message.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(message.contains("of 12 nodes are gone at once; deletions begin at 20"), "{message}");
    assert!(message.contains("was removed"), "with the proof: {message}");
    for name in &names {
        run.wait_for_deletion("the pause is over", name).await;
    }
    run.wait_for_metric("it is over", "vsphere_ccm_node_deletion_mass_hold", 0).await;
    assert_eq!(run.metric("vsphere_ccm_node_deletions_total"), 8);
    assert_eq!(run.held("DeletionMassHold"), 0);
    assert_eq!(run.count().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_it_would_do_and_off_says_that_it_does_nothing() {
    for (deletion, reason) in
        [(Deletion::DryRun, "DeletionDryRun"), (Deletion::Off { because: "--node-deletion=off" }, "DeletionOff")]
    {
        let cloud = Memory::default();
        let is_dry = deletion == Deletion::DryRun;
        let run = Run::start(&cloud, Settings { deletion, ..settings() }).await;
        let form =
            Form { annotations: vec![(ANNOTATION_ALLOW_DELETION.into(), "true".into())], ..Form::new("Unknown") };
        lost(&run, &cloud, &form).await;
        let event = run.wait_for_event(&form.name, reason).await;
        let message = event.message.unwrap();
        assert!(message.contains(if is_dry { "was removed" } else { "--node-deletion=off" }), "{message}");
        run.wait_for_held("and it is held", reason, 1).await;
        several_passes(&cloud).await;
        assert_eq!(run.count().await, 1, "{reason}");
        assert_eq!(run.metric("vsphere_ccm_node_deletions_total"), 0);
        assert_eq!(run.metric("vsphere_ccm_node_deletions_dry_run_total"), u64::from(is_dry), "said once");
        assert_eq!(run.events(&form.name).await.len(), 1, "{reason}: one Event");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_human_may_let_one_node_go_at_once() {
    let cloud = Memory::default();
    let limit = Limit { nodes: 0, percent: 0, window: NEVER };
    let run = Run::start(&cloud, Settings { grace: NEVER, limit, mass_hold: NEVER, ..settings() }).await;
    let names = lost_many(&run, &cloud, 7).await;
    run.wait_for_held("the grace period runs", "DeletionGracePeriod", 7).await;
    run.annotate(&names[3], ANNOTATION_ALLOW_DELETION, Some("yes")).await;
    run.annotate(&names[4], ANNOTATION_ALLOW_DELETION, Some("true")).await;
    run.wait_for_deletion("it is allowed", &names[4]).await;
    several_passes(&cloud).await;
    assert_eq!(run.count().await, 6);

    // Not without a proof, not while Ready, and not a majority of the control plane.
    let allowed = vec![(ANNOTATION_ALLOW_DELETION.to_owned(), "true".to_owned())];
    let unknown = Form { annotations: allowed.clone(), ..Form::new("Unknown") };
    cloud.set_unknown(&unknown.provider_id, Some(Unknown::new(reason::VCenterUnavailable, "down")));
    run.register(&unknown).await;
    let ready = Form { annotations: allowed.clone(), ..Form::new("True") };
    lost(&run, &cloud, &ready).await;
    let control = Form { annotations: allowed, is_control_plane: true, ..Form::new("Unknown") };
    lost(&run, &cloud, &control).await;
    run.wait_for_held("unknown", "VCenterUnavailable", 1).await;
    run.wait_for_held("the control plane", "DeletionControlPlaneMajority", 1).await;
    several_passes(&cloud).await;
    assert_eq!(run.count().await, 9);
}
