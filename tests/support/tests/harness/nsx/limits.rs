//! Tests of the request limits.

use std::time::Duration;

use futures::future::join_all;
use support::eventually;
use support::fake_nsx::Model;

use super::{Answer, Manager, assert_refused, refusal};
use crate::LIMIT;

const PROBE: &str = "/infra/tier-1s/t1";

#[tokio::test]
async fn a_client_sends_100_requests_a_second() {
    let manager = Manager::small().await;
    // At most 20 concurrent requests, so that only the rate limit is exceeded.
    let mut refused = Vec::new();
    for _ in 0..10 {
        let answers = join_all((0..20).map(|_| manager.get(PROBE))).await;
        refused.extend(answers.into_iter().filter(|answer| answer.0 != 200));
    }
    // A slow computer needs more than one second to send them, and each second allows 100.
    let taken = 200 - refused.len();
    let first = manager.fake.requests().first().unwrap().at;
    let seconds = manager.fake.requests().last().unwrap().at.duration_since(first).as_secs_f64();
    assert!(taken >= 100 && taken as f64 <= 100.0 * (seconds.floor() + 1.0), "{taken} in {seconds} s");
    for answer in &refused {
        assert_refused(answer, 429, 102, "Client 'admin' exceeded request rate of 100 per second.");
        assert_eq!(answer.1["error_code"], "102", "it is text");
    }
    manager.fake.set_limited(false);
    let answers = join_all((0..150).map(|_| manager.get(PROBE))).await;
    assert!(answers.iter().all(|answer| answer.0 == 200));
}

/// Sends all requests at once. None is answered before this many are rejected with this status.
async fn send_at_once(manager: &Manager, users: &[String], requests: usize, refused: (u16, u32)) -> Vec<Answer> {
    let delay = Duration::from_secs(3600);
    manager.fake.delay_calls(delay);
    let http = super::client(&manager.fake).timeout(2 * delay).build().unwrap();
    let url = format!("{}{PROBE}", manager.fake.url());
    let request = |number: usize| http.get(&url).basic_auth(&users[number % users.len()], Some("Correct-Horse-7"));
    let release = async {
        eventually("all requests have come", LIMIT, async || match manager.fake.counts() {
            counts if counts.answered(refused.0) == refused.1 && counts.total() as usize == requests => Ok(()),
            counts => Err(format!("{counts:?}")),
        })
        .await;
        tokio::time::pause();
        tokio::time::advance(delay).await;
        tokio::time::resume();
    };
    tokio::join!(join_all((0..requests).map(|number| super::answer(request(number)))), release).0
}

#[tokio::test]
async fn a_client_has_40_requests_at_once() {
    let manager = Manager::small().await;
    let answers = send_at_once(&manager, &["admin".to_owned()], 50, (503, 10)).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.0 != 200).collect();
    assert_eq!(refused.len(), 10);
    for answer in refused {
        assert_refused(answer, 503, None, "concurrent requests limit of 40");
    }
    let counts = manager.fake.counts();
    assert_eq!((counts.in_flight, counts.answered(503), counts.answered(200)), (0, 10, 40), "{counts:?}");
    assert!(counts.most_of_client > 40, "{counts:?}");
    assert_eq!(counts.delayed, Duration::from_secs(40 * 3600));
}

#[tokio::test]
async fn all_clients_have_199_requests_at_once() {
    let users: Vec<String> = (0..6).map(|number| format!("user-{number}")).collect();
    let model = users.iter().fold(Model::small(), |model, user| model.user(user, "Correct-Horse-7"));
    let manager = Manager::start(model).await;
    let answers = send_at_once(&manager, &users, 210, (503, 11)).await;
    let refused: Vec<&Answer> = answers.iter().filter(|answer| answer.0 != 200).collect();
    assert_eq!(refused.len(), 11);
    assert!(refused.iter().all(|answer| refusal(answer) == (503, None)), "{refused:?}");
}
