//! How many requests are taken.

use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use support::fake_nsx::Model;

use super::{Manager, assert_refused, refusal};

const PROBE: &str = "/infra/tier-1s/t1";

#[tokio::test]
async fn a_client_sends_100_requests_a_second() {
    let manager = Manager::small().await;
    // At most 20 at once, so that only the rate is exceeded.
    let mut refused = Vec::new();
    for _ in 0..10 {
        let answers = join_all((0..20).map(|_| manager.get(PROBE))).await;
        refused.extend(answers.into_iter().filter(|answer| answer.0 != 200));
    }
    // A slow computer sends them in more than one second; each second takes 100.
    let taken = 200 - refused.len();
    let first = manager.fake.requests().first().unwrap().at;
    let seconds = manager.fake.requests().last().unwrap().at.duration_since(first).as_secs_f64();
    assert!(taken >= 100 && taken as f64 <= 100.0 * (seconds.floor() + 1.0), "{taken} in {seconds} s");
    for answer in &refused {
        assert_refused(answer, 429, None, "Client 'admin' exceeded request rate of 100 per second.");
    }
    manager.fake.set_limited(false);
    let answers = join_all((0..150).map(|_| manager.get(PROBE))).await;
    assert!(answers.iter().all(|answer| answer.0 == 200));
}

#[tokio::test]
async fn a_client_has_40_requests_at_once() {
    let manager = Manager::small().await;
    manager.fake.delay_calls(Duration::from_secs(2));
    let answers = join_all((0..50).map(|_| manager.get(PROBE))).await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.0 != 200).collect();
    assert_eq!(refused.len(), 10);
    for answer in refused {
        assert_refused(answer, 429, None, "concurrent requests limit of 40");
    }
    let counts = manager.fake.counts();
    assert_eq!((counts.most_of_client, counts.in_flight, counts.answered(429)), (50, 0, 10), "{counts:?}");
    assert_eq!(counts.delayed, Duration::from_secs(100));
}

#[tokio::test]
async fn all_clients_have_199_requests_at_once() {
    let users: Vec<String> = (0..6).map(|number| format!("user-{number}")).collect();
    let model = users.iter().fold(Model::small(), |model, user| model.user(user, "Correct-Horse-7"));
    let manager = Manager::start(model).await;
    manager.fake.delay_calls(Duration::from_secs(4));
    let url = format!("{}{PROBE}", manager.fake.url());
    let requests =
        (0..210).map(|number| manager.http.get(&url).basic_auth(&users[number % users.len()], Some("Correct-Horse-7")));
    let answers = join_all(requests.map(super::answer)).await;
    let refused: Vec<&(u16, Value)> = answers.iter().filter(|answer| answer.0 != 200).collect();
    assert_eq!(refused.len(), 11);
    assert!(refused.iter().all(|answer| refusal(answer) == (503, None)), "{refused:?}");
}
