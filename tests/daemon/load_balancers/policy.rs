//! The manifests of `docs/nsx/tenants.md` for several tenants, on a real API server.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::{ApiServer, eventually};

use crate::manifests::apply;

const LIMIT: Duration = Duration::from_secs(60);
const POLICY: &str = "load-balancers-of-tenants";

/// Returns the YAML blocks of a page below a heading.
fn manifests_below(page: &str, heading: &str) -> Vec<String> {
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    section.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The policy of the page is enforced by a real API server.
#[tokio::test]
async fn the_policy_for_several_tenants_limits_classes_and_addresses() {
    let server = ApiServer::start().await;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/nsx/tenants.md");
    let page = std::fs::read_to_string(page).unwrap();
    for manifest in manifests_below(&page, "Several tenants") {
        let is_quota = manifest.contains("kind: ResourceQuota");
        let manifest = if is_quota { manifest.replace("namespace: team-a", "namespace: default") } else { manifest };
        apply(&server, "a manifest of the page", &manifest).await;
    }
    let client = server.client().await;
    let namespaces = Api::<Namespace>::all(client.clone());
    let annotated = json!({
        "load-balancers.example.com/classes": "default,dmz", "load-balancers.example.com/addresses": "192.0.2.7,192.0.2.8",
    });
    for (name, annotations) in [("plain", json!({})), ("dmz", annotated)] {
        let namespace = json!({"metadata": {"name": name, "annotations": annotations}});
        namespaces.create(&PostParams::default(), &serde_json::from_value(namespace).unwrap()).await.unwrap();
    }
    let object = |kind: &str, class: Option<&str>, address: Option<&str>| {
        let annotations = json!({"loadbalancer.vmware.io/class": class});
        let annotations = if class.is_some() { annotations } else { json!({}) };
        json!({
            "metadata": {"name": "web", "annotations": annotations},
            "spec": {"type": kind, "ports": [{"port": 80}], "loadBalancerIP": address},
        })
    };
    let services = |namespace: &str| Api::<Service>::namespaced(client.clone(), namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let tried = async |namespace: &str, object: Value| {
        let created = services(namespace).create(&dry, &serde_json::from_value(object).unwrap()).await;
        created.map(drop).map_err(|error| error.to_string())
    };
    eventually("the policy is in force", LIMIT, async || {
        tried("plain", object("LoadBalancer", Some("dmz"), None)).await.err().ok_or("it is created")
    })
    .await;
    for (namespace, kind, class, address, refused) in [
        ("plain", "LoadBalancer", None, None, None),
        ("plain", "LoadBalancer", Some("default"), None, None),
        ("plain", "LoadBalancer", Some(" "), None, None),
        ("plain", "ClusterIP", Some("dmz"), None, None),
        ("plain", "LoadBalancer", Some(" dmz "), None, Some("the load balancer class dmz")),
        ("plain", "LoadBalancer", None, Some("192.0.2.7"), Some("the address 192.0.2.7")),
        ("dmz", "LoadBalancer", Some("dmz"), Some("192.0.2.8"), None),
        ("dmz", "LoadBalancer", Some("web"), None, Some("the load balancer class web")),
        ("dmz", "LoadBalancer", None, Some("192.0.2.9"), Some("the address 192.0.2.9")),
    ] {
        let told = tried(namespace, object(kind, class, address)).await;
        let is_as_expected = match (&told, refused) {
            (Ok(()), None) => true,
            (Err(told), Some(refused)) => told.contains("the namespace may not") && told.contains(refused),
            _ => false,
        };
        assert!(is_as_expected, "{namespace} {kind} {class:?} {address:?}: {told:?}");
    }

    // Another Service type does not bypass the policy, and existing Services stay editable in other fields.
    let plain = services("plain");
    let created = serde_json::from_value(object("ClusterIP", Some("dmz"), None)).unwrap();
    plain.create(&PostParams::default(), &created).await.unwrap();
    let patch = async |patch: Value| {
        plain.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.map_err(|error| error.to_string())
    };
    let told = patch(json!({"spec": {"type": "LoadBalancer"}})).await.unwrap_err();
    assert!(told.contains("the load balancer class dmz"), "{told}");
    let policies = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    let binding = policies.get(POLICY).await.unwrap();
    policies.delete(POLICY, &DeleteParams::default()).await.unwrap();
    eventually("the policy is out of force", LIMIT, async || patch(json!({"spec": {"type": "LoadBalancer"}})).await)
        .await;
    let binding = ValidatingAdmissionPolicyBinding {
        metadata: ObjectMeta { resource_version: None, uid: None, ..binding.metadata },
        ..binding
    };
    policies.create(&PostParams::default(), &binding).await.unwrap();
    eventually("the policy is in force again", LIMIT, async || {
        tried("default", object("LoadBalancer", Some("web"), None)).await.err().ok_or("it is created")
    })
    .await;
    patch(json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})).await.unwrap();
    patch(json!({"metadata": {"annotations": {"loadbalancer.vmware.io/class": "web"}}})).await.unwrap_err();
    plain.delete("web", &DeleteParams::default()).await.unwrap();
    patch(json!({"metadata": {"finalizers": null}})).await.unwrap();
}
