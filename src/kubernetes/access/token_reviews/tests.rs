//! Tests of token reviews with a scripted API server and a paused clock.

use super::*;
use crate::kubernetes::access::review_client::MAX_CACHED;
use crate::kubernetes::access::scripted_server::{server, silent_server};
use futures::future::join_all;
use http::HeaderValue;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const BELIEVED: Duration = Duration::from_secs(10);

fn prometheus() -> User {
    User {
        name: "prometheus".to_owned(),
        uid: "7".to_owned(),
        groups: vec!["monitoring".to_owned(), "system:serviceaccounts".to_owned()],
        extra: BTreeMap::from([("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])]),
    }
}

/// Returns reviews of an API server that accepts `good`, rejects `bad`, returns an error for `doubtful`, and answers
/// 403 for `forbidden`.
fn reviews() -> (TokenReviews, Arc<AtomicUsize>) {
    let (client, count) = server(|spec, _| {
        assert_eq!(spec.get("audiences"), None, "tokens are for the API server's own audiences");
        Ok(match spec["token"].as_str() {
            Some("good") => json!({"authenticated": true, "user": {
                "username": "prometheus", "uid": "7", "groups": ["monitoring", "system:serviceaccounts"],
                "extra": {"scopes": ["a", "b"]},
            }}),
            Some("nameless") => json!({"authenticated": true, "user": {"uid": "7"}}),
            Some("doubtful") => json!({"authenticated": false, "error": "the issuer does not answer"}),
            Some("forbidden") => return Err(403),
            Some("odd") => json!({}),
            _ => json!({"authenticated": false}),
        })
    });
    (TokenReviews::new(client, BELIEVED, &Metrics::default()), count)
}

#[tokio::test(start_paused = true)]
async fn answers_are_believed_for_their_time_and_failures_not_at_all() {
    let (reviews, count) = reviews();
    for round in 1..=2 {
        assert_eq!(reviews.user_of("good").await.unwrap(), Some(prometheus()));
        assert_eq!(reviews.user_of("bad").await.unwrap(), None);
        assert_eq!(reviews.user_of("doubtful").await.unwrap(), None);
        assert!(reviews.user_of("forbidden").await.unwrap_err().is_forbidden());
        assert_eq!(count.load(Ordering::SeqCst), 2 + 2 * round, "round {round}");
    }
    tokio::time::advance(BELIEVED).await;
    assert_eq!(reviews.user_of("good").await.unwrap(), Some(prometheus()));
    assert_eq!(count.load(Ordering::SeqCst), 7);
}

#[tokio::test(start_paused = true)]
async fn who_has_no_name_is_nobody() {
    let (reviews, _) = reviews();
    for token in ["nameless", "odd"] {
        assert_eq!(reviews.user_of(token).await.unwrap(), None, "{token}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_shows_a_token_as_in_the_go_program() {
    let (reviews, count) = reviews();
    let user_of = async |header: &str| {
        let header = HeaderValue::from_str(header).unwrap();
        reviews.user_of_request(&HeaderMap::from_iter([(AUTHORIZATION, header)])).await
    };
    for (header, is_known) in [
        ("Bearer good", true),
        ("bearer good", true),
        ("  BEARER good and more", true),
        ("Bearer", false),
        ("Bearer ", false),
        ("Bearer  good", false),
        ("Basic good", false),
        ("good", false),
        ("", false),
    ] {
        assert_eq!(user_of(header).await.unwrap().is_some(), is_known, "{header:?}");
    }
    assert!(reviews.user_of_request(&HeaderMap::new()).await.unwrap().is_none());
    let asked = count.load(Ordering::SeqCst);
    let long = format!("Bearer {}", "x".repeat(LONGEST_TOKEN + 1));
    assert!(matches!(user_of(&long).await, Err(NotAuthenticated::Invalid)));
    assert_eq!(count.load(Ordering::SeqCst), asked, "too long to be asked about");
    assert!(matches!(user_of("Bearer bad").await, Err(NotAuthenticated::Invalid)));
    assert!(matches!(user_of("Bearer forbidden").await, Err(NotAuthenticated::Unknown(_))));
}

#[tokio::test(start_paused = true)]
async fn one_token_is_asked_about_once_however_many_show_it() {
    let (reviews, count) = reviews();
    let users = join_all((0..50).map(|_| reviews.user_of("good"))).await;
    assert!(users.into_iter().all(|user| user.unwrap() == Some(prometheus())));
    // Before the first answer arrives, the maximum number of concurrent reviews may have started.
    assert!(count.load(Ordering::SeqCst) <= 8, "{count:?}");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_answer_is_waited_for_ten_seconds_by_a_few_at_once() {
    let (client, count) = silent_server();
    let reviews = TokenReviews::new(client, BELIEVED, &Metrics::default());
    let begin = tokio::time::Instant::now();
    let tokens: Vec<_> = (0..50).map(|number| format!("token {number}")).collect();
    let outcomes = join_all(tokens.iter().map(|token| reviews.user_of(token))).await;
    assert!(outcomes.iter().all(Result::is_err));
    assert_eq!(begin.elapsed(), Duration::from_secs(10));
    assert_eq!(count.load(Ordering::SeqCst), 8, "the others had no turn");
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_five_times_and_what_will_not_once() {
    for (code, attempts) in [(500, 5), (504, 5), (429, 5), (0, 5), (403, 1), (401, 1), (400, 1), (503, 1)] {
        let (client, count) = server(move |_, _| Err(code));
        let reviews = TokenReviews::new(client, BELIEVED, &Metrics::default());
        assert!(reviews.user_of("good").await.is_err(), "{code}");
        assert_eq!(count.load(Ordering::SeqCst), attempts, "{code}");
    }
    let (client, _) = server(|_, number| match number {
        3 => Ok(json!({"authenticated": true, "user": {"username": "jane"}})),
        _ => Err(500),
    });
    let reviews = TokenReviews::new(client, BELIEVED, &Metrics::default());
    let begin = tokio::time::Instant::now();
    assert_eq!(reviews.user_of("good").await.unwrap().unwrap().name, "jane");
    // Pauses of 500 ms and 750 ms, each with up to 20 % of jitter.
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(1250) && took <= Duration::from_millis(1502), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_answers_is_bounded() {
    let (reviews, count) = reviews();
    for _ in 1..=2 {
        for index in 0..MAX_CACHED + 10 {
            reviews.user_of(&format!("token{index}")).await.unwrap();
        }
    }
    // The cache has room for all but ten answers, so at least ten tokens are reviewed again.
    assert!(count.load(Ordering::SeqCst) >= MAX_CACHED + 20, "{count:?}");
}
