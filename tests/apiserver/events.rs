//! Events on a real API server, with the rights of the existing manifests.

use std::time::Duration;

use ccm::kubernetes::events::{EventType, recorder};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use support::rbac::{Subject, grant};
use support::{ApiServer, eventually, unique};
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn events_are_created_and_counted_with_create_and_patch_alone() {
    let server = ApiServer::shared().await;
    let admin = server.client().await;
    let user = unique("recorder");
    let rule = json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]});
    grant(&admin, Some("default"), &user, Subject::User(&user), json!([rule])).await;

    let (recorder, writer) = recorder(server.client_of(&user).await, "cloud-node-controller");
    let stop = CancellationToken::new();
    let task = tokio::spawn(writer.run(stop.clone()));
    let name = unique("node");
    let node = ObjectReference {
        kind: Some("Node".to_owned()),
        api_version: Some("v1".to_owned()),
        name: Some(name.clone()),
        uid: Some(name.clone()),
        ..ObjectReference::default()
    };
    for _ in 0..3 {
        recorder.event(&node, EventType::Warning, "Unresolved", "no virtual machine has this UUID");
    }
    recorder.event(&node, EventType::Normal, "Initialized", "done");

    let events: Api<Event> = Api::namespaced(admin, "default");
    let of_node = ListParams::default().fields(&format!("involvedObject.name={name}"));
    let listed = eventually("both events, one of them counted", LONG, async || {
        let mut listed = events.list(&of_node).await.map_err(|error| error.to_string())?.items;
        listed.sort_by_key(|event| event.reason.clone());
        let seen: Vec<_> = listed.iter().map(|event| (event.reason.clone(), event.count)).collect();
        let expected = [(Some("Initialized".to_owned()), Some(1)), (Some("Unresolved".to_owned()), Some(3))];
        if seen == expected { Ok(listed) } else { Err(format!("{seen:?}")) }
    })
    .await;
    let trouble = &listed[1];
    assert_eq!(trouble.type_.as_deref(), Some("Warning"));
    assert_eq!(trouble.reporting_component.as_deref(), Some("cloud-node-controller"));
    assert_eq!(trouble.source.as_ref().unwrap().component.as_deref(), Some("cloud-node-controller"));
    assert_eq!(trouble.involved_object.uid.as_deref(), Some(name.as_str()));
    assert!(trouble.first_timestamp <= trouble.last_timestamp);
    stop.cancel();
    task.await.unwrap().unwrap();
}
