//! Tests of the recorder against a scripted API server, on a paused clock.

use super::*;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::Value;
use std::sync::Mutex;
use tower::BoxError;

/// Methods and bodies of the requests so far.
type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers with these statuses in turn, 0 being a connection that breaks, and 200 when none are left.
fn server(statuses: &[u16]) -> (Client, Seen) {
    let seen = Seen::default();
    let (log, statuses) = (seen.clone(), statuses.to_vec());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, statuses) = (log.clone(), statuses.clone());
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await?;
            let object: Value = serde_json::from_slice(&bytes)?;
            let code = {
                let mut log = log.lock().unwrap();
                log.push((parts.method.to_string(), object));
                statuses.get(log.len() - 1).copied().unwrap_or(200)
            };
            if code == 0 {
                return Err::<_, BoxError>("broken".into());
            }
            let answer = if code < 300 {
                serde_json::json!({"metadata": {}, "involvedObject": {}})
            } else {
                serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"})
            };
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            Ok(response)
        }
    });
    (Client::new(service, "default"), seen)
}

fn node_reference() -> ObjectReference {
    ObjectReference { kind: Some("Node".into()), name: Some("a".into()), ..ObjectReference::default() }
}

/// Runs the writer until it has nothing left to do, and stops it.
async fn write_all(writer: EventWriter) {
    let stop = CancellationToken::new();
    let task = tokio::spawn(writer.run(stop.clone()));
    // On a paused clock this passes only once the writer waits for nothing nearer.
    tokio::time::sleep(Duration::from_secs(600)).await;
    stop.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_first_is_created_a_repetition_patched_and_an_expired_one_created_again() {
    let (client, seen) = server(&[201, 200, 404, 201]);
    let (recorder, writer) = recorder(client, "cloud-node-controller");
    for _ in 0..3 {
        recorder.event(&node_reference(), EventType::Warning, "Trouble", "text");
    }
    write_all(writer).await;
    let seen = seen.lock().unwrap();
    let methods: Vec<_> = seen.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["POST", "PATCH", "PATCH", "POST"]);
    let created = &seen[0].1;
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(created["type"], "Warning");
    assert_eq!(created["reason"], "Trouble");
    assert_eq!(created["count"], 1);
    assert_eq!(created["source"]["component"], "cloud-node-controller");
    assert_eq!(created["reportingComponent"], "cloud-node-controller");
    assert_eq!(seen[1].1["count"], 2);
    assert_eq!(seen[3].1["count"], 3);
    assert_eq!(seen[3].1["metadata"]["name"], created["metadata"]["name"]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_tried_again_and_a_refusal_is_not() {
    let (client, seen) = server(&[0, 0, 201, 403]);
    let (recorder, writer) = recorder(client, "c");
    recorder.event(&node_reference(), EventType::Normal, "A", "text");
    recorder.event(&node_reference(), EventType::Normal, "B", "text");
    write_all(writer).await;
    let seen = seen.lock().unwrap();
    let reasons: Vec<_> = seen.iter().map(|(_, event)| event["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["A", "A", "A", "B"]);
    assert_eq!(recorder.dropped.with_label_values(&["Forbidden"]).get(), 1);
}

#[tokio::test(start_paused = true)]
async fn recording_never_waits_and_counts_what_it_drops() {
    let (client, _) = server(&[]);
    let (recorder, _writer) = recorder(client, "c");
    for _ in 0..QUEUE + 7 {
        recorder.event(&node_reference(), EventType::Normal, "A", "text");
    }
    assert_eq!(recorder.dropped.with_label_values(&["QueueFull"]).get(), 7);
    let registry = prometheus::Registry::new();
    recorder.register(&registry).unwrap();
    assert_eq!(registry.gather().len(), 1);
}

#[test]
fn long_messages_are_cut_at_a_character() {
    let long = "ä".repeat(1000);
    let cut = truncated(&long);
    assert!(cut.len() + correlator::COMBINED.len() <= LONGEST_MESSAGE && cut.len() > 900, "{}", cut.len());
    assert_eq!(truncated("short"), "short");
}
