//! Late writes of a leader whose leadership has ended.

use ccm::kubernetes::leader_election::{LeaderElector, LeaseConfig};
use doubles::memory::Call;
use std::time::Duration;
use support::{ApiServer, eventually, unique};
use tokio_util::sync::CancellationToken;

use super::cloud::Cloud;
use super::harness::{Form, LIMIT, Run, Start, condition, looping};

#[tokio::test(flavor = "multi_thread")]
async fn a_former_leader_writes_nothing() {
    let config = LeaseConfig {
        namespace: "kube-system".into(),
        name: unique("lease"),
        identity: "first".into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let (elector, leadership) = LeaderElector::new(ApiServer::shared().await.client().await, config).unwrap();
    let elected = tokio::spawn(elector.run(CancellationToken::new()));
    let cloud = Cloud::default();
    let first = Run::with(Start { leadership: leadership.clone(), ..Start::of(&cloud, looping()) }).await;
    let (before, gone) = (
        Form::new(&unique("n"), &["10.120.0.0/24"], "10.0.1.1"),
        Form::new(&unique("n"), &["10.120.1.0/24"], "10.0.2.1"),
    );
    for form in [&before, &gone] {
        first.register(form).await;
        first.wait_for_condition("the leader works", &form.name, "False RouteCreated").await;
    }
    // A creation and a deletion are in flight when the leadership ends.
    for call in [Call::CreateRoute, Call::DeleteRoute] {
        cloud.memory.hold(call);
    }
    let counts = |cloud: &Cloud| (cloud.memory.count(Call::CreateRoute), cloud.memory.count(Call::DeleteRoute));
    let (created, deleted) = counts(&cloud);
    let late = Form::new(&unique("n"), &["10.120.2.0/24"], "10.0.3.1");
    first.register(&late).await;
    first.delete(&gone.name).await;
    eventually("both are on their way", LIMIT, async || {
        let now = counts(&cloud);
        if now.0 > created && now.1 > deleted { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    let permit = cloud.permit();
    permit.check().unwrap();
    elected.abort();
    leadership.wait_until_lost().await;
    assert!(permit.check().is_err(), "a provider writes nothing more");
    let listings = cloud.listings().len();
    first.wait_for_metric("vsphere_ccm_routes{state=\"Ready\"}", 0).await;
    assert!(first.metric("running_managed_controllers{manager=\"cloud-controller-manager\",name=\"route\"}") == 0);
    // The next leader has another cloud in this test, so every change in this cloud comes from the former leader.
    let other = Cloud::default();
    let second = Run::with(Start { group: Some(first.group.clone()), ..Start::of(&other, looping()) }).await;
    let wanted = [before.routes(), late.routes()].concat();
    second.wait_for_routes("the next leader works", &other, &wanted).await;
    cloud.memory.release();
    second.several_passes(15).await;
    let kept = [before.routes(), gone.routes()].concat();
    first.wait_for_routes("nothing came of the calls", &cloud, &kept).await;
    assert!(cloud.listings().len() <= listings + 1, "a standby does not list; one listing may have been on its way");
    assert_eq!(condition(&second.get(&late.name).await), "False RouteCreated");
}
