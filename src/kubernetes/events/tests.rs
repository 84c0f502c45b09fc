//! Tests of the recorder with a scripted API server and a paused clock.

use super::*;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::Value;
use std::sync::Mutex;
use tower::BoxError;

/// Methods and bodies of the received requests.
type RecordedRequests = Arc<Mutex<Vec<(String, Value)>>>;

/// Returns a server that answers with these statuses in order, and then with 200. Status 0 means a broken connection.
fn server(statuses: &[u16]) -> (Client, RecordedRequests) {
    let seen = RecordedRequests::default();
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
                let reason = if code == 404 { "NotFound" } else { "" };
                serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason})
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

/// Runs the writer until it is idle, and stops it.
async fn write_all(writer: EventWriter) {
    let stop = CancellationToken::new();
    let task = tokio::spawn(writer.run(stop.clone()));
    // The paused clock reaches this time only after all earlier timers of the writer.
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
    let registry = crate::runtime::metrics::Registry::default();
    recorder.register(&registry).unwrap();
    assert_eq!(registry.gather().len(), 1);
}

fn reference_to(name: &str) -> ObjectReference {
    ObjectReference { kind: Some("Node".into()), name: Some(name.into()), ..ObjectReference::default() }
}

/// Object name and reason of each received request.
type Arrivals = Arc<Mutex<Vec<(String, String)>>>;

/// Returns a server that answers each request after this time, and the requests in the order of their arrival.
fn slow_server(time: Duration) -> (Client, Arrivals) {
    let seen = Arrivals::default();
    let log = seen.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let object: Value = serde_json::from_slice(&request.into_body().collect_bytes().await?)?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            log.lock().unwrap().push((text(&object["involvedObject"]["name"]), text(&object["reason"])));
            tokio::time::sleep(time).await;
            let answer = serde_json::json!({"metadata": {}, "involvedObject": {}}).to_string();
            Ok::<_, BoxError>(Response::new(Body::from(answer.into_bytes())))
        }
    });
    (Client::new(service, "default"), seen)
}

/// 5,000 Nodes that join at the same time cause Events faster than the API server accepts them.
#[tokio::test(start_paused = true)]
async fn of_an_ordinary_storm_none_is_lost_and_several_are_on_the_wire_at_once() {
    const OBJECTS: usize = 5_000;
    let (client, seen) = slow_server(Duration::from_millis(100));
    let (recorder, writer) = recorder(client, "c");
    for index in 0..OBJECTS {
        recorder.event(&reference_to(&format!("node-{index}")), EventType::Normal, "Synced", "text");
    }
    let stop = CancellationToken::new();
    let began = Instant::now();
    let task = tokio::spawn(writer.run(stop.clone()));
    while seen.lock().unwrap().len() < OBJECTS {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // In sequence the requests would take 500 s.
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
    stop.cancel();
    task.await.unwrap().unwrap();
    let mut names: Vec<_> = seen.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), OBJECTS);
    assert_eq!(recorder.dropped.with_label_values(&["QueueFull"]).get(), 0);
}

#[tokio::test(start_paused = true)]
async fn events_about_one_object_stay_in_order_while_others_pass_by() {
    const REASONS: [&str; 4] = ["A", "B", "C", "D"];
    let (client, seen) = slow_server(Duration::from_secs(1));
    let (recorder, writer) = recorder(client, "c");
    let names: Vec<_> = (0..40).map(|index| format!("node-{index}")).collect();
    for reason in REASONS {
        recorder.event(&reference_to("first"), EventType::Normal, reason, "text");
    }
    for name in &names {
        for reason in REASONS {
            recorder.event(&reference_to(name), EventType::Normal, reason, "text");
        }
    }
    write_all(writer).await;
    let seen = seen.lock().unwrap();
    for name in names.iter().map(String::as_str).chain(["first"]) {
        let reasons: Vec<_> = seen.iter().filter(|(object, _)| object == name).map(|(_, reason)| reason).collect();
        assert_eq!(reasons, REASONS, "{name}");
    }
    let last_of_first = seen.iter().rposition(|(name, _)| name == "first").unwrap();
    assert!(seen[..last_of_first].iter().any(|(name, _)| name != "first"), "none passed by");
}

/// After the stop signal, waiting Events are still written until the time limit.
#[tokio::test(start_paused = true)]
async fn what_is_waiting_at_the_end_is_written_within_two_seconds() {
    let (client, seen) = slow_server(Duration::from_millis(100));
    let (recorder, writer) = recorder(client, "c");
    for index in 0..1_000 {
        recorder.event(&reference_to(&format!("node-{index}")), EventType::Normal, "Synced", "text");
    }
    let (stop, began) = (CancellationToken::new(), Instant::now());
    stop.cancel();
    writer.run(stop).await.unwrap();
    assert_eq!(began.elapsed(), FINAL_FLUSH);
    let written = seen.lock().unwrap().len();
    assert!((100..=LANES * 21).contains(&written), "{written}");
}

#[test]
fn long_messages_are_cut_at_a_character() {
    for (long, characters) in [("ä".repeat(1000), MAX_MESSAGE), ("🐧".repeat(1000), LONGEST_MESSAGE / 4)] {
        let cut = truncated(&long);
        assert_eq!(cut.chars().count(), characters);
        assert!(cut.len() <= LONGEST_MESSAGE, "{}", cut.len());
    }
    assert_eq!(truncated("short"), "short");
}
