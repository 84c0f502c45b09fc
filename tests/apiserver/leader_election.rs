//! Leader election between candidates that share a real Lease.

use std::time::Duration;

use ccm::kubernetes::call::{CALL_LIMIT, limited};
use ccm::kubernetes::client::{self, Identity, purpose};
use ccm::kubernetes::events;
use ccm::kubernetes::leader_election::{LeaderElector, LeaseConfig, identity};
use ccm::kubernetes::leadership::Leadership;
use ccm::runtime::tasks::BoxError;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use support::rbac::{self, Subject};
use support::{ApiServer, eventually, unique};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "kube-system";
const LONG: Duration = Duration::from_secs(60);

/// A candidate, with a client that may write only while the candidate leads.
struct Candidate {
    identity: String,
    leadership: Leadership,
    write: Client,
    metrics: ccm::runtime::metrics::Registry,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), BoxError>>,
}

struct Times {
    lease: u64,
    renew: u64,
    retry_ms: u64,
}

/// Renews often. A candidate that does not observe the release checks the Lease again only after its expiry, long after
/// the change of the leader.
const LONG_TIMES: Times = Times { lease: 60, renew: 40, retry_ms: 1000 };
/// Checks another holder's Lease only after its expiry. All earlier information comes from the watch.
const PATIENT_TIMES: Times = Times { lease: 60, renew: 40, retry_ms: 30_000 };
/// The lease duration is twice the renew deadline. The test can thus observe that a leader stops after the deadline and
/// before the expiry.
const QUICK_TIMES: Times = Times { lease: 6, renew: 3, retry_ms: 500 };

async fn config_from(path: &std::path::Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

async fn compete(server: &ApiServer, user: &std::path::Path, lease: &str, times: &Times) -> Candidate {
    let identity = identity("host");
    let lease = LeaseConfig {
        namespace: NAMESPACE.to_owned(),
        name: lease.to_owned(),
        identity: identity.clone(),
        lease_duration: Duration::from_secs(times.lease),
        renew_deadline: Duration::from_secs(times.renew),
        retry_period: Duration::from_millis(times.retry_ms),
    };
    let config = config_from(user).await;
    let client = |purpose| client::unguarded(&config, purpose).unwrap();
    let (recorder, writer) = events::recorder(client(purpose::PROCESS), "cloud-controller-manager");
    let (elector, leadership) = LeaderElector::new(client(purpose::LEADER_ELECTION), lease).unwrap();
    let metrics = ccm::runtime::metrics::Registry::default();
    elector.register(&metrics).unwrap();
    let admin = config_from(&server.kubeconfig()).await;
    let write = client::writer(&admin, None, leadership.clone(), Identity::Process(purpose::PROCESS)).unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(writer.run(CancellationToken::new()));
    let task = tokio::spawn(elector.with_recorder(recorder).run(stop.clone()));
    Candidate { identity, leadership, write, metrics, stop, task }
}

impl Candidate {
    async fn leads(&self) {
        timeout(LONG, self.leadership.wait_until_leader()).await.expect("it leads within a minute");
    }

    fn status(&self) -> f64 {
        self.metrics.gather()[0].get_metric()[0].get_gauge().get_value()
    }

    /// Makes a write that needs leadership.
    async fn write(&self) -> Result<(), ccm::kubernetes::call::CallError> {
        let api: Api<ConfigMap> = Api::namespaced(self.write.clone(), NAMESPACE);
        let mut map = ConfigMap::default();
        map.metadata.name = Some(unique("written"));
        limited("create a config map", CALL_LIMIT, api.create(&PostParams::default(), &map)).await.map(drop)
    }
}

async fn lease(client: &Client, name: &str) -> Lease {
    Api::<Lease>::namespaced(client.clone(), NAMESPACE).get(name).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_candidates_one_works_and_a_clean_stop_hands_over_at_once() {
    let server = ApiServer::shared().await;
    let admin = server.client().await;
    let name = unique("election");
    let mut first = compete(server, &server.kubeconfig(), &name, &LONG_TIMES).await;
    first.leads().await;
    first.write().await.unwrap();
    let acquired = lease(&admin, &name).await.spec.unwrap();
    assert_eq!(acquired.holder_identity.as_deref(), Some(first.identity.as_str()));
    assert_eq!((acquired.lease_duration_seconds, acquired.lease_transitions), (Some(60), Some(0)));

    let looked = Instant::now();
    let second = compete(server, &server.kubeconfig(), &name, &PATIENT_TIMES).await;
    eventually("two renewals", LONG, async || {
        let spec = lease(&admin, &name).await.spec.unwrap();
        let renewed = spec.renew_time.unwrap().0.duration_since(acquired.renew_time.as_ref().unwrap().0);
        if renewed.as_secs() >= 2 { Ok(()) } else { Err(format!("{renewed:?}")) }
    })
    .await;
    assert!(first.leadership.is_leader() && !second.leadership.is_leader());
    assert!(second.write().await.unwrap_err().is_not_leader());
    assert_eq!((first.status(), second.status()), (1.0, 0.0));

    let start = Instant::now();
    first.stop.cancel();
    second.leads().await;
    // Without the event of the release, the next check would come only at the expiry of the Lease that the candidate
    // saw at its start.
    let (took, next_look) = (start.elapsed(), Duration::from_secs(LONG_TIMES.lease));
    assert!(looked.elapsed() < next_look, "handed over in {took:?}, {:?} after it looked", looked.elapsed());
    timeout(LONG, &mut first.task).await.unwrap().unwrap().unwrap();
    assert!(first.write().await.unwrap_err().is_not_leader());
    second.write().await.unwrap();
    assert_eq!(second.status(), 1.0);
    let handed = lease(&admin, &name).await.spec.unwrap();
    assert_eq!(handed.holder_identity.as_deref(), Some(second.identity.as_str()));
    assert_eq!(handed.lease_transitions, Some(1));

    let events: Api<Event> = Api::namespaced(admin.clone(), NAMESPACE);
    let of_lease = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let expected = format!("{} became leader", second.identity);
    eventually("the event of the new leader", LONG, async || {
        let listed = events.list(&of_lease).await.map_err(|error| error.to_string())?;
        let texts: Vec<_> = listed.items.into_iter().filter_map(|event| event.message).collect();
        if texts.contains(&expected) { Ok(()) } else { Err(format!("{texts:?}")) }
    })
    .await;
    second.stop.cancel();
    timeout(LONG, second.task).await.unwrap().unwrap().unwrap();
    let released = lease(&admin, &name).await.spec.unwrap();
    assert_eq!((released.holder_identity.as_deref(), released.lease_duration_seconds), (Some(""), Some(1)));
}

/// Grants a user the rights on Leases from the Go program's manifests, except the watch.
async fn grant(admin: &Client, user: &str) {
    let verbs = ["get", "create", "update"];
    let rule = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs});
    rbac::grant(admin, Some(NAMESPACE), user, Subject::User(user), json!([rule])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_renew_stops_writing_and_stands_by() {
    let server = ApiServer::shared().await;
    let admin = server.client().await;
    let (name, user) = (unique("election"), unique("candidate"));
    grant(&admin, &user).await;
    let first = compete(server, &server.kubeconfig_of(&user), &name, &QUICK_TIMES).await;
    first.leads().await;
    first.write().await.unwrap();

    let bindings = Api::<RoleBinding>::namespaced(admin.clone(), NAMESPACE);
    bindings.delete(&user, &DeleteParams::default()).await.unwrap();
    // Renewals succeed until the API server applies the removed right. The candidate must stop before other candidates
    // may start.
    timeout(LONG, first.leadership.wait_until_lost()).await.expect("its leadership ends");
    let lost = Timestamp::now();
    let renewed = lease(&admin, &name).await.spec.unwrap().renew_time.unwrap().0;
    let unrenewed = lost.duration_since(renewed).unsigned_abs();
    assert!(unrenewed < Duration::from_secs(QUICK_TIMES.lease), "it led for {unrenewed:?} without a renewal");
    assert!(first.write().await.unwrap_err().is_not_leader());
    assert!(!first.task.is_finished(), "it stays in the race");

    let second = compete(server, &server.kubeconfig(), &name, &QUICK_TIMES).await;
    second.leads().await;
    rbac::bind(&admin, Some(NAMESPACE), &user, Subject::User(&user), &user).await;
    second.write().await.unwrap();
    assert!(first.write().await.unwrap_err().is_not_leader());
    second.stop.cancel();
    // Without the right to watch, the candidate polls.
    first.leads().await;
    first.write().await.unwrap();
    first.stop.cancel();
    timeout(LONG, first.task).await.unwrap().unwrap().unwrap();
}
