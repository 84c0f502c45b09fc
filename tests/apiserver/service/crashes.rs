//! A sync that is dropped at any await, as in a crash. The next leader reaches the same state as without the
//! interruption. Also a process that has lost the leadership.

use ccm::controllers::driver::{CacheKind, Event, Reconciler, Requeue};
use ccm::kubernetes::client::{self, purpose};
use ccm::kubernetes::leader_election::{LeaderElector, LeaseConfig, identity};
use ccm::kubernetes::leadership::Leadership;
use doubles::memory::{Call, Memory};
use k8s_openapi::api::core::v1::Service;
use serde_json::json;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use support::{ApiServer, eventually, unique};
use tokio_util::sync::CancellationToken;

use super::harness::{LIMIT, Run, Start, has_finalizer, ingress, spec};

/// Change of a Service before the sync that crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Created,
    Changed,
    Deleted,
    OtherType,
}

/// Polls the future this many times. Returns its output if it is complete by then.
async fn begin<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Reconciles the key until no work is left.
async fn settle<R: Reconciler>(term: &Arc<R>, key: &str) {
    eventually("it settles", LIMIT, async || {
        let outcome = Arc::clone(term).reconcile(key.to_owned()).await;
        let next = term.conclude(key, Ok(outcome)).await;
        if next == Requeue::PERIOD { Ok(()) } else { Err(format!("{next:?}")) }
    })
    .await;
}

impl Run {
    /// Waits until the cached Service equals the Service in the API server.
    async fn wait_for_cache(&self, name: &str) {
        eventually("the cache is up to date", LIMIT, async || {
            let live = self.api().get_opt(name).await.unwrap();
            let version = live.filter(|live| !ingress(live).is_empty() || has_finalizer(live) || is_balanced(live));
            let version = version.and_then(|live| live.metadata.resource_version);
            let cached = self.services.get(&self.key(name)).and_then(|cached| cached.metadata.resource_version.clone());
            if cached == version { Ok(()) } else { Err(format!("{cached:?} {version:?}")) }
        })
        .await;
    }

    /// Counts the objects in the cloud for the Service.
    fn objects(&self, uid: &str) -> usize {
        self.cloud.load_balancer_objects_of(uid)
    }
}

fn is_balanced(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_is_dropped_anywhere_is_completed_by_the_next_leader() {
    let server = ApiServer::shared().await;
    let (run, controller) = Run::prepare(server, Start::of(&Memory::default())).await;
    // Makes the calls of the cloud awaits, too.
    run.cloud.set_call_latency(Duration::from_millis(1));
    let begin_term = || {
        let term = Arc::new(controller.begin_term());
        for cache in [CacheKind::Nodes, CacheKind::Services] {
            term.keys_of(Event::AllObjects(cache));
        }
        term
    };
    for change in [Change::Created, Change::Changed, Change::Deleted, Change::OtherType] {
        for polls in 0.. {
            assert!(polls < 200, "{change:?}: it never ends");
            let name = unique("a");
            let key = run.key(&name);
            run.create(&name, json!({}), spec("TCP")).await;
            run.wait_for_cache(&name).await;
            let uid = run.api().get(&name).await.unwrap().metadata.uid.unwrap();
            let term = begin_term();
            if change != Change::Created {
                settle(&term, &key).await;
            }
            match change {
                Change::Created => {}
                Change::Changed => {
                    run.patch(&name, json!({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})).await;
                }
                Change::Deleted => run.delete(&name).await,
                Change::OtherType => run.patch(&name, json!({"spec": {"type": "ClusterIP"}})).await,
            }
            run.wait_for_cache(&name).await;
            let ended = begin(Arc::clone(&term).reconcile(key.clone()), polls).await;
            let is_guarded = run.api().get_opt(&name).await.unwrap().is_some_and(|live| has_finalizer(&live));
            assert!(is_guarded || run.objects(&uid) == 0, "{change:?} {polls}: the finalizer is gone too early");
            drop(term);
            run.wait_for_cache(&name).await;
            settle(&begin_term(), &key).await;
            assert_eq!(run.held(), 0.0, "{change:?} {polls}: it settles, and waits for no change of the Service");
            let service = run.api().get_opt(&name).await.unwrap();
            match (change, service) {
                (Change::Created | Change::Changed, Some(service)) => {
                    assert_eq!((ingress(&service).len(), run.objects(&uid)), (1, 2), "{change:?} {polls}");
                    assert!(has_finalizer(&service), "{change:?} {polls}");
                    let balancer = run
                        .cloud
                        .load_balancers()
                        .into_iter()
                        .find(|one| one.service.metadata.uid == service.metadata.uid);
                    let ranges = |service: Service| service.spec.unwrap().load_balancer_source_ranges;
                    assert_eq!(ranges(balancer.unwrap().service), ranges(service), "{change:?} {polls}");
                }
                (Change::OtherType, Some(service)) => {
                    assert!(!has_finalizer(&service) && ingress(&service).is_empty(), "{change:?} {polls}");
                    assert_eq!(run.objects(&uid), 0, "{change:?} {polls}");
                }
                (Change::Deleted, None) => assert_eq!(run.objects(&uid), 0, "{change:?} {polls}"),
                (change, service) => panic!("{change:?} {polls}: {service:?}"),
            }
            if ended.is_some() {
                assert!(polls > 1, "{change:?}: {polls} polls are no sync");
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_leads_no_more_writes_neither_to_the_cloud_nor_to_the_service() {
    let server = ApiServer::shared().await;
    let access = client::Settings { kubeconfig: Some(server.kubeconfig()), ..client::Settings::default() };
    let config = client::read_config(&access).await.unwrap();
    let client = client::unguarded(&config, purpose::LEADER_ELECTION).unwrap();
    let lease = LeaseConfig {
        namespace: "kube-system".to_owned(),
        name: unique("election"),
        identity: identity("host"),
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(40),
        retry_period: Duration::from_secs(1),
    };
    let (elector, leadership) = LeaderElector::new(client, lease).unwrap();
    let stop = CancellationToken::new();
    let election = tokio::spawn(elector.run(stop.clone()));
    leadership.wait_until_leader().await;
    let (run, controller) =
        Run::prepare(server, Start { leadership: leadership.clone(), ..Start::of(&Memory::default()) }).await;
    let term = Arc::new(controller.begin_term());
    for name in ["new", "deleted"] {
        run.create(name, json!({}), spec("TCP")).await;
        run.wait_for_cache(name).await;
    }
    settle(&term, &run.key("deleted")).await;
    run.delete("deleted").await;
    run.wait_for_cache("deleted").await;
    let calls = || (run.cloud.count(Call::EnsureLoadBalancer), run.cloud.count(Call::DeleteLoadBalancer));
    run.cloud.hold(Call::EnsureLoadBalancer);
    run.cloud.hold(Call::DeleteLoadBalancer);
    let syncs = ["new", "deleted"].map(|name| tokio::spawn(Arc::clone(&term).reconcile(run.key(name))));
    eventually("both calls are under way", LIMIT, async || {
        if calls() == (2, 1) { Ok(()) } else { Err(format!("{:?}", calls())) }
    })
    .await;
    stop.cancel();
    leadership.wait_until_lost().await;
    run.cloud.release();
    for (name, sync) in ["new", "deleted"].into_iter().zip(syncs) {
        let outcome = sync.await.unwrap();
        assert_eq!(term.conclude(&run.key(name), Ok(outcome)).await, Requeue::PERIOD, "{name}");
    }
    election.await.unwrap().unwrap();
    let (new, deleted) = (run.api().get("new").await.unwrap(), run.api().get("deleted").await.unwrap());
    assert!(ingress(&new).is_empty() && has_finalizer(&deleted));
    assert_eq!(run.cloud.load_balancers().len(), 1);
    // The same for a process that never led.
    let (run, controller) =
        Run::prepare(server, Start { place: run.place(), leadership: Leadership::never(), ..Start::of(&run.cloud) })
            .await;
    let term = Arc::new(controller.begin_term());
    run.create("other", json!({}), spec("TCP")).await;
    run.wait_for_cache("other").await;
    drop(Arc::clone(&term).reconcile(run.key("other")).await);
    assert!(!has_finalizer(&run.api().get("other").await.unwrap()));
}
