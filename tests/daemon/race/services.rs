//! Services that are created, changed and deleted during the race. The daemon has no load balancers and never writes
//! Services.

use std::time::{Duration, Instant};

use ccm::cloud::service::FINALIZER;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::interval;

/// Maximum number of Services.
const SERVICES: usize = 12;
/// Interval between two actions.
const PACE: Duration = Duration::from_millis(100);
/// Minimum number of actions in each second.
const LEAST: usize = 2;

/// Changes Services in a new namespace until `until`, and checks that the daemon wrote none of the remaining Services.
pub async fn churn(client: &Client, namespace: &str, seed: u64, until: Instant) {
    let (began, mut random) = (Instant::now(), fastrand::Rng::with_seed(seed));
    let metadata = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &metadata).await.unwrap();
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let (mut pace, mut actions) = (interval(PACE), 0);
    while Instant::now() < until {
        pace.tick().await;
        act(&services, &mut random).await;
        actions += 1;
    }
    let least = LEAST * usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(actions >= least, "{actions} actions with Services, {least} expected");
    let left = services.list(&ListParams::default()).await.unwrap().items;
    assert!(!left.is_empty(), "those with the finalizer stay");
    for service in left {
        let metadata = &service.metadata;
        let writers: Vec<_> =
            metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.clone()).collect();
        assert!(!writers.iter().any(|writer| writer == "vsphere-cloud-controller-manager"), "{service:?}");
        assert!(service.status.unwrap().load_balancer.unwrap().ingress.is_none(), "{metadata:?}");
    }
}

/// Executes one action on a Service. Success and a missing Service are both valid.
async fn act(services: &Api<Service>, random: &mut fastrand::Rng) {
    let name = format!("service-{}", random.usize(0..SERVICES));
    let patch =
        async |patch: Value| services.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop);
    let acted = match random.u8(0..6) {
        0 | 1 => {
            let finalizers: &[&str] = if random.bool() { &[FINALIZER] } else { &[] };
            let service = json!({
                "metadata": {"name": name, "finalizers": finalizers},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            });
            services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.map(drop)
        }
        2 => services.delete(&name, &DeleteParams::default()).await.map(drop),
        3 => patch(json!({"spec": {"type": "ClusterIP"}})).await,
        4 => patch(json!({"spec": {"type": "LoadBalancer"}})).await,
        _ => patch(json!({"metadata": {"annotations": {"example.com/any": random.u8(..).to_string()}}})).await,
    };
    match acted {
        Ok(()) => {}
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {}
        Err(error) => panic!("{name}: {error}"),
    }
}
