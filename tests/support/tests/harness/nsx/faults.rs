//! Tests of faults, holds, restarts, and the record of all requests (S15, S16).

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::eventually;
use support::fake_nsx::{Behaviour, Side, Trouble};

use super::{Manager, assert_refused, refusal, route};
use crate::LIMIT;

const ROUTE: &str = "/infra/tier-1s/t1/static-routes/r";
const ROUTES: &str = "/infra/tier-1s/t1/static-routes";

fn body() -> Value {
    route("100.96.0.0/24", "172.50.0.13")
}

#[tokio::test]
async fn calls_are_troubled_by_operation() {
    let manager = Manager::small().await;
    let fake = &manager.fake;
    for (trouble, status, code) in [
        (Trouble::throttled(), 429, Some(102)),
        (Trouble::overloaded(), 503, None),
        (Trouble::components_down(), 503, Some(101)),
        (Trouble::starting(), 500, Some(98)),
        (Trouble::aborted(), 500, Some(607)),
        (Trouble::conflict(), 412, Some(206)),
        (Trouble::expired(), 401, Some(401)),
        (Trouble::rejected(), 403, Some(403)),
        (Trouble::not_permitted(), 403, Some(401)),
        (Trouble::unlicensed(), 403, Some(505)),
        (Trouble::error(403, None), 403, None),
    ] {
        fake.next("PATCH static-routes", trouble);
        assert_eq!(manager.get(ROUTES).await.0, 200, "another operation");
        assert_eq!(refusal(&manager.patch(ROUTE, &body()).await), (status, code));
        assert_eq!(manager.get(ROUTE).await.0, 404, "the call did nothing");
    }
    fake.next("LIST static-routes", Trouble::throttled().header("Retry-After", "7"));
    let answer = manager.request(reqwest::Method::GET, ROUTES).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"7".parse().unwrap()));
    fake.next_after("*", 1, Trouble::portal());
    assert!(manager.get(ROUTES).await.1.is_object());
    assert!(manager.get(ROUTES).await.1.is_string());
    fake.next("LIST static-routes", Trouble::Rewrite(|body| body.replace("results", "rows")));
    assert_eq!(manager.get(ROUTES).await.1.get("results"), None);
    for (trouble, takes_effect) in [(Trouble::Drop, false), (Trouble::Lose, true), (Trouble::Cut(4), true)] {
        fake.delete_by_hand("test", ROUTE);
        fake.next("PUT static-routes", trouble.clone());
        let sent = manager.request(reqwest::Method::PUT, ROUTE).json(&body()).send().await;
        let is_whole = match sent {
            Ok(answer) => answer.text().await.is_ok(),
            Err(_) => false,
        };
        assert_eq!((is_whole, fake.object(ROUTE).is_some()), (false, takes_effect), "{trouble:?}");
    }
    fake.next("GET static-routes", Trouble::Late(Duration::from_millis(100)));
    let begun = Instant::now();
    assert_eq!(manager.get(ROUTE).await.0, 200);
    assert!(begun.elapsed() >= Duration::from_millis(100));
    fake.next("GET health", Trouble::Slow(Duration::from_micros(1)));
    fake.every("*", Trouble::overloaded());
    assert_eq!((manager.get(ROUTE).await.0, manager.get(ROUTES).await.0), (503, 503));
    fake.clear();
    assert_eq!(manager.get(ROUTE).await.0, 200);
}

#[tokio::test]
async fn a_call_that_hangs_takes_no_place_and_ends_with_its_connection() {
    let manager = Manager::small().await;
    manager.fake.every("LIST static-routes", Trouble::Hang);
    let sever = async {
        eventually("the call hangs", LIMIT, async || match manager.fake.counts() {
            counts if counts.of("LIST static-routes") == 1 && counts.in_flight == 0 => Ok(()),
            counts => Err(format!("{counts:?}")),
        })
        .await;
        manager.fake.sever();
    };
    let (sent, ()) = tokio::join!(manager.request(reqwest::Method::GET, ROUTES).send(), sever);
    assert!(sent.is_err());
    assert_eq!(manager.fake.requests()[0].status, None);
    manager.fake.clear();
    assert_eq!(manager.get(ROUTES).await.0, 200);
}

#[tokio::test]
async fn a_write_is_held_before_or_after_its_work() {
    let manager = Manager::small().await;
    let path = |number: u32| format!("{ROUTES}/r{number}");
    for (number, side, is_done) in [(1, Side::Request, false), (3, Side::Answer, true)] {
        let hold = manager.fake.hold(2, side);
        assert_eq!(manager.patch(&path(number), &body()).await.0, 200, "the first write passes");
        let held = path(number + 1);
        let during = async {
            hold.wait().await;
            assert!(hold.is_held());
            assert_eq!(manager.get(ROUTES).await.0, 200, "reads pass");
            assert_eq!(manager.fake.object(&held).is_some(), is_done);
            hold.release();
        };
        let body = body();
        let ((status, _), ()) = tokio::join!(manager.patch(&held, &body), during);
        assert_eq!((status, manager.fake.object(&held).is_some()), (200, true));
    }
    // A dropped hold has no effect.
    drop(manager.fake.hold_operation("DELETE static-routes", 1, Side::Request));
    assert_eq!(manager.delete(&path(1)).await.0, 200);
}

#[tokio::test]
async fn a_manager_goes_down_and_comes_back_without_sessions() {
    let manager = Manager::small().await;
    // A new connection for each request, because a client notices a closed connection only at its next use.
    let http = super::client(&manager.fake).pool_max_idle_per_host(0).build().unwrap();
    let manager = Manager { http, ..manager };
    manager.create(ROUTE, body()).await;
    manager.fake.stop_listening().await;
    assert!(manager.request(reqwest::Method::GET, ROUTE).send().await.unwrap_err().is_connect());
    manager.fake.resume_listening().await;
    assert_eq!(manager.get(ROUTE).await.0, 200);
    manager.fake.restart().await;
    assert_eq!((manager.get(ROUTE).await.0, manager.fake.counts().sessions), (200, 0));
    let first = manager.fake.certificate();
    let other = manager.fake.change_certificate();
    assert_ne!(other, manager.fake.ca_pem());
    assert!(manager.request(reqwest::Method::GET, ROUTE).send().await.is_err(), "the certificate is unknown");
    manager.fake.use_certificate(first);
    assert_eq!(manager.get(ROUTE).await.0, 200);
}

#[tokio::test]
async fn requests_and_versions_are_taken_down_in_their_order() {
    let manager = Manager::small().await;
    let before = manager.fake.history().len();
    manager.patch(ROUTE, &body()).await;
    manager.get(ROUTES).await;
    manager.patch(ROUTE, &route("100.96.0.0/24", "172.50.0.14")).await;
    assert_refused(&manager.put(ROUTE, &json!({})).await, 400, 255, "network");
    manager.delete(ROUTE).await;
    let requests = manager.fake.requests();
    let summary: Vec<_> =
        requests.iter().map(|one| (one.operation.as_str(), one.method.as_str(), one.status)).collect();
    let expected = [
        ("PATCH static-routes", "PATCH", Some(200)),
        ("LIST static-routes", "GET", Some(200)),
        ("PATCH static-routes", "PATCH", Some(200)),
        ("PUT static-routes", "PUT", Some(400)),
        ("DELETE static-routes", "DELETE", Some(200)),
    ];
    assert_eq!(summary, expected);
    assert!(requests.iter().all(|one| one.user == "admin" && one.busy > Duration::ZERO), "{requests:?}");
    assert_eq!((requests[0].json(), requests[1].body.as_str()), (body(), ""));
    assert_eq!(requests[0].header("authorization"), Some("Basic YWRtaW46Q29ycmVjdC1Ib3JzZS03"));
    assert_eq!(manager.fake.requests_from(requests[3].number).len(), 2);
    assert!(requests.windows(2).all(|two| two[0].at <= two[1].at && two[0].number < two[1].number));
    let versions = manager.fake.history_from(before);
    let hops: Vec<_> = versions
        .iter()
        .map(|one| (one.request, one.object.as_ref().map(|object| object["next_hops"][0]["ip_address"].clone())))
        .collect();
    let number = |index: usize| Some(requests[index].number);
    let hop = |address: &str| Some(json!(address));
    let marked = (number(4), hop("172.50.0.14"));
    assert_eq!(hops, [(number(0), hop("172.50.0.13")), (number(2), hop("172.50.0.14")), marked]);
    assert_eq!(versions[2].object.as_ref().map(|object| object["marked_for_delete"].clone()), Some(json!(true)));
    assert!(versions.iter().all(|one| one.user == "admin" && one.path == ROUTE));
    let counts = manager.fake.counts();
    assert_eq!((counts.total(), counts.of_user("admin", "PATCH static-routes"), counts.answered(400)), (5, 2, 1));
    assert!(counts.busy > Duration::ZERO && counts.bytes_received > 0 && counts.bytes_sent > 0, "{counts:?}");
    manager.fake.reset_counts();
    assert_eq!((manager.fake.counts().total(), manager.fake.requests().len()), (0, 0));
    manager.get(ROUTES).await;
    let requests = manager.fake.requests();
    assert_eq!((requests[0].number, requests[0].status), (5, Some(200)));
}

#[tokio::test]
async fn every_set_of_switches_creates_reads_and_deletes() {
    for (name, behaviour) in Behaviour::ALL.into_iter().chain(Behaviour::each()) {
        let manager = Manager::behaving(behaviour).await;
        manager.create_load_balancer().await;
        let (status, _) = manager.patch(ROUTE, &body()).await;
        assert!(status == 200 || status == 204, "{name}: {status}");
        let (_, list) = manager.get(ROUTES).await;
        assert_eq!(list["results"][0]["id"], "r", "{name}");
        let deleted = manager.delete(ROUTE).await;
        assert_eq!(deleted.0, status, "{name}");
        assert_refused(&manager.get(ROUTE).await, 404, 600, ROUTE);
    }
}

#[tokio::test]
async fn the_program_prints_where_it_is_and_ends_with_its_input() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fake-nsx"));
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(program.stdout.take().unwrap()));
    let mut value = |key: &str| {
        let line = lines.next().unwrap().unwrap();
        line.strip_prefix(&format!("{key}=")).unwrap_or_else(|| panic!("{line} has no {key}")).to_owned()
    };
    let (address, ca_file, user, password) = (value("address"), value("ca-file"), value("user"), value("password"));
    support::api_server::install_crypto();
    let ca = reqwest::Certificate::from_pem(&std::fs::read(ca_file).unwrap()).unwrap();
    let http = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().timeout(LIMIT).build().unwrap();
    let request = http.get(format!("https://{address}/policy/api/v1/infra/ip-pools")).basic_auth(user, Some(password));
    assert_eq!(super::answer(request).await.1["results"][0]["display_name"], "pool1");
    drop(program.stdin.take());
    let ended = eventually("the program ends", LIMIT, async || program.try_wait().unwrap().ok_or("it runs")).await;
    assert!(ended.success());
}
