//! Tests of permissions with a scripted API server and a paused clock.

use super::*;
use crate::kubernetes::access::review_client::MAX_CACHED;
use crate::kubernetes::access::scripted_server::server;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const ALLOWED: Duration = Duration::from_secs(20);
const REFUSED: Duration = Duration::from_secs(5);

fn settings() -> Authorization {
    let always_allow = OpenPaths::parse(&["/healthz".to_owned(), "/open/*".to_owned()]).unwrap();
    Authorization { kubeconfig: None, always_allow, allowed_cache: ALLOWED, refused_cache: REFUSED }
}

/// Returns permissions of an API server that decides by the path.
fn permissions() -> (Permissions, Arc<AtomicUsize>, Metrics) {
    let (client, count) = server(|spec, _| {
        Ok(match spec["nonResourceAttributes"]["path"].as_str() {
            Some("/metrics") => json!({"allowed": true, "evaluationError": "some role is missing"}),
            Some("/denied") => json!({"allowed": false, "denied": true}),
            Some("/both") => json!({"allowed": true, "denied": true}),
            Some("/broken") => return Err(403),
            _ => json!({"allowed": false}),
        })
    });
    let metrics = Metrics::default();
    (Permissions::new(client, &settings(), metrics.clone()), count, metrics)
}

fn user(name: &str) -> User {
    User { name: name.to_owned(), ..User::default() }
}

#[tokio::test(start_paused = true)]
async fn decisions_are_believed_for_their_time_and_failures_not_at_all() {
    let (permissions, count, _) = permissions();
    let jane = user("jane");
    for round in 1..=2 {
        assert!(permissions.is_allowed(&jane, "get", "/metrics").await.unwrap());
        assert!(!permissions.is_allowed(&jane, "get", "/denied").await.unwrap());
        assert!(!permissions.is_allowed(&jane, "get", "/other").await.unwrap());
        assert!(permissions.is_allowed(&jane, "get", "/broken").await.is_err());
        assert!(permissions.is_allowed(&jane, "get", "/both").await.is_err());
        assert_eq!(count.load(Ordering::SeqCst), 3 + 2 * round, "round {round}");
    }
    tokio::time::advance(REFUSED).await;
    assert!(permissions.is_allowed(&jane, "get", "/metrics").await.unwrap());
    assert_eq!(count.load(Ordering::SeqCst), 7, "a permission is believed for longer");
    assert!(!permissions.is_allowed(&jane, "get", "/other").await.unwrap());
    assert_eq!(count.load(Ordering::SeqCst), 8);
    tokio::time::advance(ALLOWED).await;
    assert!(permissions.is_allowed(&jane, "get", "/metrics").await.unwrap());
    assert_eq!(count.load(Ordering::SeqCst), 9);
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_for_one_user_with_its_groups_one_verb_and_one_path() {
    let (permissions, count, _) = permissions();
    let grouped = User { groups: vec!["monitoring".to_owned()], ..user("jane") };
    let known = User { uid: "7".to_owned(), ..user("jane") };
    let questions =
        [(user("jane"), "get"), (user("john"), "get"), (grouped, "get"), (known, "get"), (user("jane"), "put")];
    for (user, verb) in &questions {
        assert!(permissions.is_allowed(user, verb, "/metrics").await.unwrap());
    }
    assert_eq!(count.load(Ordering::SeqCst), questions.len());
}

#[tokio::test(start_paused = true)]
async fn masters_and_open_paths_are_not_asked_about() {
    let (permissions, count, _) = permissions();
    let admin = User { groups: vec!["a".to_owned(), MASTERS.to_owned()], ..user("admin") };
    assert!(permissions.is_allowed(&admin, "delete", "/broken").await.unwrap());
    for (path, is_open) in [("/healthz", true), ("/open/", true), ("/healthz/", false), ("/metrics", false)] {
        assert_eq!(permissions.is_open(path), is_open, "{path}");
    }
    assert!(permissions.is_allowed(&User::anonymous(), "get", "/open/door").await.unwrap());
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn all_that_is_known_of_the_user_is_told() {
    let (client, count) = server(|spec, _| {
        let expected = json!({
            "user": "jane", "uid": "7", "groups": ["a", "system:authenticated"], "extra": {"scopes": ["x", "y"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        });
        assert_eq!(*spec, expected);
        Ok(json!({"allowed": true}))
    });
    let permissions = Permissions::new(client, &settings(), Metrics::default());
    let jane = User {
        uid: "7".to_owned(),
        groups: vec!["a".to_owned(), "system:authenticated".to_owned()],
        extra: BTreeMap::from([("scopes".to_owned(), vec!["x".to_owned(), "y".to_owned()])]),
        ..user("jane")
    };
    assert!(permissions.is_allowed(&jane, "get", "/metrics").await.unwrap());
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_decisions_is_bounded() {
    let (permissions, count, _) = permissions();
    for _ in 1..=2 {
        for index in 0..MAX_CACHED + 10 {
            assert!(!permissions.is_allowed(&user("jane"), "get", &format!("/{index}")).await.unwrap());
        }
    }
    // The cache has room for all but ten decisions, so at least ten are requested again.
    assert!(count.load(Ordering::SeqCst) >= MAX_CACHED + 20, "{count:?}");
}

#[tokio::test(start_paused = true)]
async fn every_outcome_is_counted() {
    let (permissions, _, metrics) = permissions();
    permissions.is_open("/healthz");
    for path in ["/metrics", "/metrics", "/denied", "/other", "/broken"] {
        let _ = permissions.is_allowed(&user("jane"), "get", path).await;
    }
    let registry = crate::runtime::metrics::Registry::default();
    metrics.register(&registry).unwrap();
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    for line in [
        r#"authorization_attempts_total{result="allowed"} 3"#,
        r#"authorization_attempts_total{result="denied"} 1"#,
        r#"authorization_attempts_total{result="no-opinion"} 1"#,
        r#"authorization_attempts_total{result="error"} 1"#,
        r#"apiserver_delegated_authz_request_total{code="201"} 3"#,
        r#"apiserver_delegated_authz_request_total{code="403"} 1"#,
    ] {
        assert!(text.lines().any(|have| have == line), "{line} in {text}");
    }
}
