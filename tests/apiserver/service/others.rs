//! Objects of other owners, and objects that only seem to be deleted. The controller writes and deletes nothing.

use ccm::cloud::Error;
use ccm::controllers::driver::{CacheKind, Event, Reconciler, Requeue};
use doubles::memory::{ANNOTATION_DECLINED, Call, Memory};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use support::{ApiServer, eventually};

use super::harness::{FINALIZER, GROUP, LIMIT, Run, Start, has_finalizer, ingress, spec};

#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_another_programs_is_left_alone() {
    let run = Run::start(&Memory::default()).await;
    let class = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/custom", "ports": [{"port": 80}]});
    for name in ["class", "class-then-ip"] {
        run.create(name, json!({"finalizers": [FINALIZER]}), class.clone()).await;
    }
    run.create("declined", json!({"annotations": {ANNOTATION_DECLINED: ""}}), spec("TCP")).await;
    run.create("ip", json!({"finalizers": [FINALIZER]}), json!({"type": "ClusterIP", "ports": [{"port": 80}]})).await;
    run.delete("class").await;
    run.patch("class-then-ip", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await;
    // The controller asks for each of the three load balancers and keeps its finalizer.
    run.wait_for_calls(Call::GetLoadBalancer, 3).await;
    run.create_ensured(&["ours"]).await;
    for name in ["class", "class-then-ip", "ip"] {
        assert!(has_finalizer(&run.api().get(name).await.unwrap()), "{name}");
        assert_eq!(run.events(name).await, Vec::<String>::new(), "{name}: nobody is disturbed at first");
    }
    let declined = run.api().get("declined").await.unwrap();
    assert!(!has_finalizer(&declined) && run.events("declined").await.is_empty());
    assert_eq!(run.cloud.load_balancers().len(), 1);
    // The owner of these load balancers has a minute to remove them.
    for name in ["class", "class-then-ip", "ip"] {
        eventually(&format!("an Event on {name}"), LIMIT * 2, async || match run.events(name).await.as_slice() {
            [reason] if reason == "SyncLoadBalancerFailed" => Ok(()),
            events => Err(format!("{events:?}")),
        })
        .await;
        assert!(has_finalizer(&run.api().get(name).await.unwrap()), "{name}");
    }
}

/// A Service of the Go program whose `managedFields` did not exist yet, or were removed.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_the_go_program_is_deleted() {
    let cloud = Memory::default();
    let run = Run::start(&cloud).await;
    run.create_ensured(&["deleted", "changed"]).await;
    let place = run.place();
    drop(run);
    let run = Run::prepare(ApiServer::shared().await, Start { place: place.clone(), ..Start::of(&cloud) }).await.0;
    for name in ["deleted", "changed"] {
        run.patch(name, json!({"metadata": {"managedFields": [{}]}})).await;
    }
    run.delete("deleted").await;
    run.patch("changed", json!({"spec": {"type": "ClusterIP"}})).await;
    drop(run);
    let run = Run::with(ApiServer::shared().await, Start { place, ..Start::of(&cloud) }).await;
    run.wait_until_gone("deleted").await;
    run.wait("it is let go", "changed", |service| !has_finalizer(service) && ingress(service).is_empty()).await;
    assert_eq!(cloud.load_balancer_objects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_leaves_the_selection_keeps_its_load_balancer_and_its_finalizer() {
    let run = Run::start(&Memory::default()).await;
    run.create_ensured(&["leaves", "leaves-and-goes", "stays"]).await;
    for name in ["leaves", "leaves-and-goes"] {
        run.patch(name, json!({"metadata": {"labels": {GROUP: "another"}}})).await;
    }
    run.delete("leaves-and-goes").await;
    run.delete("stays").await;
    run.wait_until_gone("stays").await;
    for name in ["leaves", "leaves-and-goes"] {
        let left = run.api().get(name).await.unwrap();
        assert!(has_finalizer(&left) && !ingress(&left).is_empty(), "{name}");
    }
    assert_eq!((run.cloud.load_balancers().len(), run.cloud.count(Call::DeleteLoadBalancer)), (2, 1));
}

/// A provider may need the address to find the leftovers of an interrupted deletion.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_address_is_written_before_a_deletion_where_the_provider_needs_it() {
    for needs_address in [true, false] {
        let cloud = Memory::default();
        cloud.set_needs_address(needs_address);
        let run = Run::start(&cloud).await;
        run.create_ensured(&["one"]).await;
        let none = json!({"status": {"loadBalancer": null}});
        run.api().patch_status("one", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
        cloud.set_deletes_by_half(true);
        run.delete("one").await;
        run.wait_for_calls(Call::DeleteLoadBalancer, 2).await;
        assert_eq!(!ingress(&run.api().get("one").await.unwrap()).is_empty(), needs_address);
        cloud.set_deletes_by_half(false);
        run.wait_until_gone("one").await;
        assert_eq!(cloud.load_balancer_objects(), 0);
    }
}

/// A term that the test reconciles step by step, without any concurrent work.
struct Steps<R> {
    run: Run,
    term: Arc<R>,
}

impl<R: Reconciler> Steps<R> {
    /// Waits until the cached Service meets `is_expected`, and passes its event to the controller.
    async fn see(&self, what: &str, name: &str, is_expected: impl Fn(Option<&Service>) -> bool) {
        self.wait_for_cache(what, name, is_expected).await;
        let key = self.run.key(name);
        assert_eq!(self.term.keys_of(Event::Object(CacheKind::Services, key.clone())), [key]);
    }

    async fn wait_for_cache(&self, what: &str, name: &str, is_expected: impl Fn(Option<&Service>) -> bool) {
        let key = self.run.key(name);
        eventually(what, LIMIT, async || {
            let cached = self.run.services.get(&key);
            if is_expected(cached.as_deref()) { Ok(()) } else { Err(format!("{cached:?}")) }
        })
        .await;
    }

    async fn reconcile(&self, name: &str) -> Requeue {
        let key = self.run.key(name);
        let outcome = Arc::clone(&self.term).reconcile(key.clone()).await;
        let next = self.term.conclude(&key, Ok(outcome)).await;
        // A Service that waits for its own change is reconciled with the period, too.
        assert!(next != Requeue::PERIOD || self.run.held() == 0.0, "{name} is not up to date");
        next
    }

    async fn ensure(&self, name: &str) {
        self.run.create(name, json!({}), spec("TCP")).await;
        self.see("it is there", name, |cached| cached.is_some()).await;
        assert_eq!(self.reconcile(name).await, Requeue::PERIOD);
        self.see("it is ensured", name, |cached| cached.is_some_and(|cached| !ingress(cached).is_empty())).await;
    }

    /// Removes the finalizer manually.
    async fn unguard(&self, name: &str) {
        self.run.patch(name, json!({"metadata": {"finalizers": null}})).await;
        self.see("it has no finalizer", name, |cached| cached.is_some_and(|cached| !has_finalizer(cached))).await;
    }

    async fn remove(&self, name: &str) {
        self.run.delete(name).await;
        self.see("it is gone", name, |cached| cached.is_none()).await;
    }
}

async fn steps() -> Steps<impl Reconciler> {
    let (run, controller) = Run::prepare(ApiServer::shared().await, Start::of(&Memory::default())).await;
    let term = Arc::new(controller.begin_term());
    Steps { run, term }
}

// vectors: S-115–S-118
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_vanishes_without_the_finalizer_loses_its_load_balancer() {
    let steps = steps().await;
    let cloud = &steps.run.cloud;
    assert_eq!(steps.reconcile("unknown").await, Requeue::PERIOD, "S-117");
    // No cache returns such a key. The Service is unknown, and there is no retry.
    assert_eq!(steps.reconcile("invalid/key/string").await, Requeue::PERIOD, "S-115");
    steps.ensure("a").await;
    steps.unguard("a").await;
    steps.remove("a").await;
    cloud.fail(Call::DeleteLoadBalancer, || Error::other("error Deleting the Loadbalancer"));
    let again = Requeue { after: Some(Duration::from_secs(5)), counts_as_failure: true };
    assert_eq!(steps.reconcile("a").await, again, "S-118: it is tried again");
    steps.run.wait_for_event("a", "DeleteLoadBalancerFailed").await;
    let next = steps.reconcile("a").await;
    assert!(next.after.is_some() && !next.counts_as_failure, "not before its time");
    cloud.end_failures(Call::DeleteLoadBalancer);
    eventually("S-116: it is deleted", LIMIT, async || {
        let next = steps.reconcile("a").await;
        if next == Requeue::PERIOD { Ok(()) } else { Err(format!("{next:?}")) }
    })
    .await;
    assert_eq!(cloud.load_balancer_objects(), 0);
    let calls = cloud.count(Call::DeleteLoadBalancer);
    assert_eq!(steps.reconcile("a").await, Requeue::PERIOD, "S-116: it is forgotten");
    assert_eq!(cloud.count(Call::DeleteLoadBalancer), calls);
}

/// Otherwise the deletion would be repeated without a pause, because the request would stay new.
#[tokio::test(flavor = "multi_thread")]
async fn the_deletion_of_a_vanished_service_covers_a_requested_resync() {
    let steps = steps().await;
    steps.ensure("a").await;
    steps.unguard("a").await;
    steps.remove("a").await;
    let key = steps.run.key("a");
    assert_eq!(steps.term.keys_of(Event::Object(CacheKind::ProviderResyncs, key.clone())), [key]);
    steps.run.cloud.fail(Call::DeleteLoadBalancer, || Error::other("error Deleting the Loadbalancer"));
    let again = Requeue { after: Some(Duration::from_secs(5)), counts_as_failure: true };
    assert_eq!(steps.reconcile("a").await, again);
}

/// For example a list of existing objects. This is no error, so there is no Event.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_waits_for_is_no_failure() {
    let steps = steps().await;
    let (cloud, after) = (&steps.run.cloud, Duration::from_millis(50));
    for (name, vanishes) in [("vanished", true), ("deleted", false)] {
        steps.ensure(name).await;
        if vanishes {
            steps.unguard(name).await;
            steps.remove(name).await;
        } else {
            steps.run.delete(name).await;
            let is_leaving = |cached: &Service| cached.metadata.deletion_timestamp.is_some();
            steps.see("it is being deleted", name, |cached| cached.is_some_and(is_leaving)).await;
        }
        cloud.fail(Call::DeleteLoadBalancer, move || Error::Pending { message: "a list".to_owned(), after });
        assert_eq!(steps.reconcile(name).await, Requeue::after(after), "{name}");
        cloud.end_failures(Call::DeleteLoadBalancer);
        assert_eq!(steps.reconcile(name).await, Requeue::PERIOD, "{name}");
        steps.run.wait_for_event(name, "DeletedLoadBalancer").await;
        // Events are written in order.
        let events = steps.run.events(name).await;
        assert!(events.iter().all(|event| !event.ends_with("Failed")), "{name}: {events:?}");
    }
    assert_eq!(cloud.load_balancer_objects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_only_seems_to_be_gone_loses_nothing() {
    let steps = steps().await;
    let cloud = &steps.run.cloud;
    // A deletion despite the finalizer is irregular, as after a restored backup. The provider's clean-up decides.
    steps.ensure("guarded").await;
    steps.run.patch("guarded", json!({"metadata": {"finalizers": null}})).await;
    steps.run.delete("guarded").await;
    steps.see("it is gone", "guarded", |cached| cached.is_none()).await;
    assert_eq!(steps.reconcile("guarded").await, Requeue::PERIOD);
    // The same at a relist, which has no event for each Service.
    steps.ensure("relisted").await;
    steps.run.patch("relisted", json!({"metadata": {"finalizers": null}})).await;
    steps.run.delete("relisted").await;
    steps.wait_for_cache("it is gone", "relisted", |cached| cached.is_none()).await;
    let keys = steps.term.keys_of(Event::AllObjects(CacheKind::Services));
    assert_eq!(keys, [steps.run.key("relisted")], "no event said so");
    assert_eq!(steps.reconcile("relisted").await, Requeue::PERIOD);
    // The Service left the selection without the finalizer.
    steps.ensure("leaves").await;
    steps.unguard("leaves").await;
    steps.run.patch("leaves", json!({"metadata": {"labels": {GROUP: "another"}}})).await;
    steps.see("it is not in the cache", "leaves", |cached| cached.is_none()).await;
    assert_eq!(steps.reconcile("leaves").await, Requeue::PERIOD);
    assert_eq!((cloud.load_balancers().len(), cloud.count(Call::DeleteLoadBalancer)), (3, 0));
    // Another Service with the same name: the load balancer of the first one is deleted, and the second one gets a new
    // one.
    steps.ensure("again").await;
    let first = cloud.load_balancers().len();
    steps.unguard("again").await;
    steps.run.delete("again").await;
    steps.run.create("again", json!({}), spec("TCP")).await;
    let old = steps.run.api().get("again").await.unwrap().metadata.uid;
    steps
        .see("the cache has the new one", "again", |cached| cached.is_some_and(|cached| cached.metadata.uid == old))
        .await;
    assert_eq!(steps.reconcile("again").await, Requeue::PERIOD);
    assert_eq!((cloud.load_balancers().len(), cloud.count(Call::DeleteLoadBalancer)), (first, 1));
}

/// In the cache the Service has another type or is being deleted. The API server has a different state.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_cache_deletes_nothing() {
    let steps = steps().await;
    steps.ensure("a").await;
    steps.run.patch("a", json!({"spec": {"type": "ClusterIP"}})).await;
    let is_other = |cached: Option<&Service>| {
        cached.is_some_and(|cached| cached.spec.as_ref().unwrap().type_.as_deref() == Some("ClusterIP"))
    };
    steps.see("the type is another one", "a", is_other).await;
    // The cache does not change from now on.
    let Steps { mut run, term } = steps;
    run.freeze().await;
    run.patch("a", json!({"spec": {"type": "LoadBalancer"}})).await;
    let key = run.key("a");
    assert!(is_other(run.services.get(&key).as_deref()));
    let outcome = Arc::clone(&term).reconcile(key.clone()).await;
    assert_eq!(term.conclude(&key, Ok(outcome)).await, Requeue::PERIOD);
    assert_eq!((run.cloud.load_balancers().len(), run.cloud.count(Call::DeleteLoadBalancer)), (1, 0));
    assert!(has_finalizer(&run.api().get("a").await.unwrap()));
}

/// In the cache the Service needs a load balancer. In the API server it is being deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_cache_does_not_have_a_load_balancer_made_again_and_again() {
    let steps = steps().await;
    steps.run.create("a", json!({"finalizers": [FINALIZER]}), spec("TCP")).await;
    steps.see("it is there", "a", |cached| cached.is_some()).await;
    // The cache does not change from now on.
    let Steps { mut run, term } = steps;
    run.freeze().await;
    run.delete("a").await;
    let (key, after) = (run.key("a"), Duration::from_millis(50));
    let reconcile = async || {
        let outcome = Arc::clone(&term).reconcile(key.clone()).await;
        term.conclude(&key, Ok(outcome)).await
    };
    run.cloud.fail(Call::DeleteLoadBalancer, move || Error::Pending { message: "a list".to_owned(), after });
    for _ in 0..3 {
        assert_eq!(reconcile().await, Requeue::after(after));
        assert_eq!(run.cloud.count(Call::EnsureLoadBalancer), 1);
    }
    run.cloud.end_failures(Call::DeleteLoadBalancer);
    for _ in 0..3 {
        assert_eq!(reconcile().await, Requeue::PERIOD);
        assert_eq!((run.cloud.load_balancer_objects(), run.cloud.count(Call::EnsureLoadBalancer)), (0, 1));
    }
    assert!(run.api().get_opt("a").await.unwrap().is_none());
}

// vectors: S-114
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_goes_while_it_is_ensured_is_no_error() {
    let steps = steps().await;
    steps.run.create("a", json!({}), spec("TCP")).await;
    steps.see("it is there", "a", |cached| cached.is_some()).await;
    steps.run.cloud.hold(Call::EnsureLoadBalancer);
    let vanish = async {
        steps.run.wait_for_calls(Call::EnsureLoadBalancer, 1).await;
        steps.run.patch("a", json!({"metadata": {"finalizers": null}})).await;
        steps.run.delete("a").await;
        steps.run.cloud.release();
    };
    let (next, ()) = tokio::join!(steps.reconcile("a"), vanish);
    assert_eq!(next, Requeue::PERIOD, "S-114");
    steps.see("it is gone", "a", |cached| cached.is_none()).await;
    assert_eq!(steps.reconcile("a").await, Requeue::PERIOD);
    assert_eq!(steps.run.cloud.load_balancer_objects(), 0, "what was ensured too late goes, too");
}

/// After an incomplete change the former state of the Service does not count as the state of the cloud.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_taken_back_half_way_is_ensured_again() {
    let steps = steps().await;
    let cloud = &steps.run.cloud;
    // Without node ports the final Service is equal to the first one.
    let of_type = |kind: &str| json!({"type": kind, "ports": [{"port": 80}], "allocateLoadBalancerNodePorts": false});
    steps.run.create("a", json!({}), of_type("LoadBalancer")).await;
    steps.see("it is there", "a", |cached| cached.is_some()).await;
    assert_eq!(steps.reconcile("a").await, Requeue::PERIOD);
    steps.see("it is ensured", "a", |cached| cached.is_some_and(|cached| !ingress(cached).is_empty())).await;
    cloud.set_deletes_by_half(true);
    steps.run.patch("a", json!({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": null}})).await;
    let is_of = |kind: &'static str| {
        move |cached: Option<&Service>| {
            cached.is_some_and(|cached| cached.spec.as_ref().unwrap().type_.as_deref() == Some(kind))
        }
    };
    steps.see("it has another type", "a", is_of("ClusterIP")).await;
    let next = steps.reconcile("a").await;
    assert!(next.after.is_some() && next.counts_as_failure, "{next:?}");
    assert_eq!(cloud.load_balancers().len(), 0, "half of it is gone");
    steps.run.patch("a", json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}})).await;
    steps.see("it has its type again", "a", is_of("LoadBalancer")).await;
    assert_eq!(steps.reconcile("a").await, Requeue::PERIOD);
    assert_eq!(cloud.load_balancers().len(), 1);
    assert_eq!(cloud.count(Call::EnsureLoadBalancer), 2);
}
