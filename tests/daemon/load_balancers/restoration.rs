//! The Event for a cluster that was restored to a state before the creation of its Services.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use support::eventually;

use super::site::{LIMIT, Site};

/// Number of Services that the restored cluster lacks. It is more than five.
const LOST: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_misses_many_services_has_an_event_on_the_lease() {
    let mut site = Site::alone(true, 0..1).await;
    let lease = format!("--leader-elect-resource-name={}", site.cluster.pool());
    let flags = ["--leader-elect=true", &lease];
    let mut before = site.start(&flags);
    let names: Vec<String> = (0..=LOST).map(|number| format!("s-{number}")).collect();
    for name in &names {
        site.create(name, &[("TCP", 80)]).await;
        site.select(name).await;
    }
    before.wait_until_ensured(names.len()).await;
    before.stop().await;
    // No process runs that could observe the deletion.
    for name in &names[..LOST] {
        site.patch(name, json!({"metadata": {"finalizers": null}})).await;
        site.services.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let after = site.start(&flags);
    let events = Api::<Event>::namespaced(site.cluster.client.clone(), "kube-system");
    let about = format!(
        "involvedObject.kind=Lease,involvedObject.name={},reason=ManyOrphanedLoadBalancers",
        site.cluster.pool()
    );
    let event = eventually("the Lease has the Event", LIMIT, async || {
        let mut found = events.list(&ListParams::default().fields(&about)).await.unwrap().items;
        match found.len() {
            1 => Ok(found.remove(0)),
            _ => Err(format!("{found:?}\n{}", after.daemon.output().tail(30))),
        }
    })
    .await;
    let lease = Api::<Lease>::namespaced(site.cluster.client.clone(), "kube-system").get(site.cluster.pool()).await;
    assert_eq!((event.involved_object.uid.clone(), event.type_.as_deref()), (lease.unwrap().uid(), Some("Warning")));
    let message = event.message.unwrap();
    let counts = ["load balancers of 7 Services", "does not show 6 of these", "--nsx-orphans=report"];
    assert!(counts.iter().all(|part| message.contains(part)), "{message}");
    after.stop().await;
}
