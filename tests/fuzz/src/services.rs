//! Fuzz target for Services from the API server: the planned action, and the patches.

use ccm::cloud::Handling;
use ccm::cloud::service::{self, FINALIZER};
use ccm::controllers::service::inputs::Inputs;
use ccm::controllers::service::plan::{self, ServicePlan, ServiceRecord, plan};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};
use serde_json::json;

/// Reads a Service in JSON. Nothing is deleted without the finalizer, and nothing is ensured for a Service that is
/// being deleted. An ensured Service is not ensured again. Every patch names the UID and the resource version of the
/// Service.
pub fn object(bytes: &[u8]) {
    let Ok(service) = serde_json::from_slice::<Service>(bytes) else { return };
    let inputs = Inputs::of(&service, &[""]);
    let decide = |handling: &Handling, record: &ServiceRecord| plan(&service, handling, &inputs, record);
    let first = decide(&Handling::Handled, &ServiceRecord::default());
    match first {
        ServicePlan::Delete => assert!(service::has_finalizer(&service), "deleted without the finalizer"),
        ServicePlan::Ensure { .. } => {
            assert!(service::wants_load_balancer(&service) && service.metadata.deletion_timestamp.is_none(), "ensured");
        }
        ServicePlan::LeaveAlone | ServicePlan::Hold { .. } => {}
    }
    assert!(!matches!(decide(&Handling::Declined, &ServiceRecord::default()), ServicePlan::Ensure { .. }), "declined");
    let ensured = ServiceRecord { ensured: Some(inputs.clone()), ..ServiceRecord::default() };
    if first == (ServicePlan::Ensure { adds_finalizer: false }) {
        assert_eq!(decide(&Handling::Handled, &ensured), ServicePlan::LeaveAlone, "ensured again");
    }
    let mut touched = service.clone();
    touched.metadata.resource_version = Some("another".to_owned());
    touched.metadata.labels = None;
    touched.status = None;
    assert_eq!(Inputs::of(&touched, &[""]), inputs, "what does not matter is noticed");

    let one = [LoadBalancerIngress { ip: Some("192.0.2.1".to_owned()), ..LoadBalancerIngress::default() }];
    let patches =
        [plan::status_patch(&service, &one), plan::status_patch(&service, &[]), plan::release_patch(&service)];
    for patch in patches.into_iter().flatten().chain([plan::finalizer_patch(&service)]) {
        let preconditions = (&patch["metadata"]["uid"], &patch["metadata"]["resourceVersion"]);
        let metadata = (json!(service.metadata.uid), json!(service.metadata.resource_version));
        assert_eq!(preconditions, (&metadata.0, &metadata.1), "a patch of another version");
        assert!(patch.get("spec").is_none(), "a patch of the spec: {patch}");
    }
    assert_eq!(plan::finalizer_patch(&service)["metadata"]["finalizers"], json!([FINALIZER]));
    let _ = (service::source_ranges(&service), service::health_check_port(&service));
}
