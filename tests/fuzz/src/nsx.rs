//! Fuzz targets for JSON answers of NSX and of the token service.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ccm::clients::http::{Method, Permit};
use ccm::clients::nsx::realization::Realization;
use ccm::clients::nsx::{AccessToken, Client, Error, Kind, LogIn, Login, NoLogin, Object, Pace, Scheme, Timeouts};
use ccm::providers::vsphere::nsx::routes::ownership;
use ccm::providers::vsphere::nsx::routes::ownership::{Cluster, Ownership};
use ccm::providers::vsphere::nsx::routes::static_route::{CLUSTER_NAME, ListedRoute, StaticRoute};
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::laws::{SECRET, is_in_proportion, is_told_well};
use crate::memory::{Answer, Read, client, run};

const ROUTES: &str = "/infra/tier-1s/t1/static-routes";
const ROUTE: &str = "/infra/tier-1s/t1/static-routes/r";

/// A login that needs no request.
struct Door;

#[async_trait]
impl LogIn for Door {
    async fn log_in(&self, client: &Client, _: Option<&Login>) -> Result<(), NoLogin> {
        client.adopt(Login::with_certificate());
        Ok(())
    }

    fn rejected(&self, _: &Login) {}
}

struct Always;

#[async_trait]
impl Permit for Always {
    fn is_valid(&self) -> bool {
        true
    }

    async fn ended(&self) {
        std::future::pending().await
    }
}

/// Makes a client of a manager that answers with a script. The script gets the method and the path. The client must be
/// made in the runtime that uses it, because its rate limit uses the clock of the runtime.
fn nsx(script: impl Fn(&Method, &str) -> Answer + Send + Sync + 'static) -> Client {
    let http = client(move |request| script(&request.method, &request.path));
    Client::new(http, "", Arc::new(Pace::new(80)), Arc::new(Door), Timeouts::default())
}

fn always(status: u16, body: &[u8]) -> Client {
    let body = body.to_vec();
    nsx(move |_, _| Answer::new(status, body.clone()))
}

fn object_of(bytes: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(bytes).ok()
}

/// The functions that read an answer, by name.
pub const READS: &[Read] = &[
    ("a list of NSX", |status, bytes| {
        drop(run(async { always(status, bytes).pages(ROUTES, "fuzz.list", 1).all().await }));
    }),
    ("an object of NSX", |status, bytes| {
        drop(run(async { always(status, bytes).get(ROUTE, "fuzz.get").await }));
    }),
    ("a state of NSX", |status, bytes| {
        drop(run(async { always(status, bytes).realization(ROUTE, "fuzz.realization").await }));
    }),
    ("an access token", |status, bytes| {
        let body = bytes.to_vec();
        let service = client(move |_| Answer::new(status, body.clone()));
        let password = SecretString::from(SECRET);
        drop(run(AccessToken::exchange(&service, "/authorize", &password, Duration::from_secs(30))));
    }),
];

/// Reads pages of lists: the first, the last, or all. An answer without a list of results never becomes an empty list.
pub fn list(bytes: &[u8]) {
    let answer = object_of(bytes);
    let expected = answer.as_ref().and_then(|answer| answer.get("results")?.as_array()).map(Vec::len);
    for status in [200, 302, 404, 500] {
        let (first, last, all) = run(async {
            let first = {
                let (body, was_asked) = (bytes.to_vec(), AtomicBool::new(false));
                nsx(move |_, _| match was_asked.swap(true, Ordering::SeqCst) {
                    false => Answer::new(status, body.clone()),
                    true => Answer::new(200, "{\"results\": []}"),
                })
            };
            let last = {
                let body = bytes.to_vec();
                nsx(move |_, path| match path.contains("cursor=") {
                    true => Answer::new(status, body.clone()),
                    false => Answer::new(200, "{\"results\": [{\"id\": \"1\"}], \"cursor\": \"1\"}"),
                })
            };
            let all = always(status, bytes);
            let pages = async |client: Client| client.pages(ROUTES, "fuzz.list", 1000).all().await;
            (pages(first).await, pages(last).await, pages(all).await)
        });
        let expected = expected.filter(|_| status == 200);
        for (listing, before) in [(first, 0), (last, 1), (all, 0)] {
            match listing {
                Ok(listing) => {
                    let count = listing.objects.len() + listing.skipped;
                    assert_eq!(Some(count), expected.map(|expected| expected + before), "HTTP status {status}");
                    is_in_proportion(&listing, bytes);
                }
                Err(error) => is_told_well(&error),
            }
        }
    }
}

/// Reads objects, routes, and realization states.
pub fn object(bytes: &[u8]) {
    let (got, realization) = run(async {
        let client = always(200, bytes);
        let got = client.get(ROUTE, "fuzz.get").await;
        (got, client.realization(ROUTE, "fuzz.realization").await)
    });
    match realization {
        Ok(Realization::Failed(alarm)) => assert!(alarm.chars().count() <= 300, "{alarm}"),
        Ok(Realization::Pending | Realization::Realized) => assert!(object_of(bytes).is_some(), "no answer is a state"),
        Err(error) => is_told_well(&error),
    }
    match got {
        Ok(object) => {
            assert_eq!(Some(&object.0), object_of(bytes).as_ref(), "another object than the one that came");
            judge(object);
        }
        Err(error) => {
            assert!(object_of(bytes).is_none(), "an object was refused: {error}");
            is_told_well(&error);
        }
    }
}

fn judge(mut object: Object) {
    let (nodes, addresses) = (BTreeSet::from(["u-1".to_owned()]), |_: &str| Vec::new());
    let cluster =
        Cluster { name: "kubernetes", uid: Some("u"), is_node: &|uid| nodes.contains(uid), addresses: &addresses };
    if let Some(listed) = ListedRoute::read(&object) {
        let ownership = ownership::ownership_of(&object, &listed, &cluster);
        let is_named = object.tag(CLUSTER_NAME) == Some("kubernetes");
        assert!(is_named || ownership == Ownership::Foreign, "{ownership:?} without our name");
    }
    let _ = (object.revision(), object.is_marked_for_delete(), object.created_by().len());
    let before = object.clone();
    let next_hop = std::net::Ipv4Addr::new(192, 0, 2, 1).into();
    let (cluster_name, cluster_uid, node, network) = ("kubernetes", Some("u"), "node1", "10.0.0.0/24");
    let route = StaticRoute { cluster_name, cluster_uid, node, network, next_hop };
    route.write_into(&mut object);
    assert!(route.tags().are_on(&object), "not all tags are there");
    if !object.id().is_empty() {
        assert!(ListedRoute::read(&object).is_some_and(|listed| route.is_led_by(&listed)), "it leads elsewhere");
    }
    for (member, value) in &before.0 {
        let is_ours = ["network", "next_hops", "tags"].contains(&member.as_str());
        assert!(is_ours || object.0.get(member) == Some(value), "{member} is lost");
    }
    let again = object.clone();
    route.write_into(&mut object);
    assert!(object == again, "what was written is changed again");
}

/// Reads error answers with each status in the table of answers.
pub fn error(bytes: &[u8]) {
    // Text of the server in an error may be reported.
    let text = String::from_utf8_lossy(bytes).replace(SECRET, "");
    let bytes = text.as_bytes();
    let code = object_of(bytes).and_then(|error| {
        let code = error.get("error_code")?;
        code.as_i64().or_else(|| code.as_str()?.parse().ok())
    });
    for status in [302, 400, 401, 403, 404, 405, 409, 412, 429, 500, 503] {
        let permit: Arc<dyn Permit> = Arc::new(Always);
        let (got, listed, patched, deleted) = run(async {
            let client = always(status, bytes);
            (
                client.get(ROUTE, "fuzz.get").await.map(drop),
                client.pages(ROUTES, "fuzz.list", 1000).all().await.map(drop),
                client.patch(&permit, ROUTE, "fuzz.patch", &Object::default()).await,
                client.delete(&permit, ROUTE, "fuzz.delete").await,
            )
        });
        let may_be_gone = status == 404 && matches!(code, Some(600 | 202 | 500_090));
        let may_be_missing = may_be_gone || (status == 400 && code == Some(500_012));
        for (result, is_delete) in [(got, false), (listed, false), (patched, false), (deleted, true)] {
            match result {
                Ok(()) => assert!(is_delete && may_be_gone, "HTTP status {status} is taken for a success"),
                Err(error) => is_judged(&error, status, may_be_gone, may_be_missing),
            }
        }
    }
}

fn is_judged(error: &Error, status: u16, may_be_gone: bool, may_be_missing: bool) {
    is_told_well(error);
    let is_missing = matches!(error.kind, Kind::MissingReference(_));
    assert!(
        (error.kind != Kind::NotFound || may_be_gone) && (!is_missing || may_be_missing),
        "HTTP status {status} says that something is not there: {error}"
    );
    assert!(error.kind != Kind::Rejected && error.kind != Kind::NotPermitted, "nothing was presented: {error}");
}

/// Reads answers to logins: the cookie in the first line, the token in the second, then the body. Also reads the body
/// as the answer of the token service.
pub fn session(bytes: &[u8]) {
    let mut lines = bytes.splitn(3, |&byte| byte == b'\n');
    let [cookie, xsrf, body] = [(); 3].map(|()| lines.next().unwrap_or_default().to_vec());
    let password = SecretString::from(SECRET);
    for status in [200, 201, 302, 401, 403, 404, 405, 500] {
        let (cookie, xsrf, body) = (cookie.clone(), xsrf.clone(), body.clone());
        let (opened, tried, token) = run(async {
            let answer =
                move || Answer::new(status, body.clone()).with_cookie(&cookie).with_header("x-xsrf-token", &xsrf);
            let service = {
                let answer = answer.clone();
                client(move |_| answer())
            };
            let client = nsx(move |_, _| answer());
            (
                client.open_session(Scheme::Remote, "user", &password).await,
                client.try_basic(Scheme::Basic, "user", &password).await,
                AccessToken::exchange(&service, "/authorize", &password, Duration::from_secs(30)).await,
            )
        });
        match opened {
            Ok(Some(login)) => {
                assert!(status < 300, "HTTP status {status} is taken for a session");
                assert_eq!(format!("{login:?}"), "session");
            }
            Ok(None) => assert!(matches!(status, 404 | 405), "HTTP status {status} says that there are no sessions"),
            Err(error) => is_told_without_password(&error, bytes),
        }
        match tried {
            Ok(_) => assert!(object_of(&bytes_of_body(bytes)).is_some(), "a page proves a password"),
            Err(error) => is_told_without_password(&error, bytes),
        }
        match token {
            Ok(token) => assert!(status < 300 && token.lifetime > Duration::ZERO, "{token:?}"),
            Err(error) => is_told_well(&error),
        }
    }
}

fn bytes_of_body(bytes: &[u8]) -> Vec<u8> {
    bytes.splitn(3, |&byte| byte == b'\n').nth(2).unwrap_or_default().to_vec()
}

/// Checks that the error does not contain the password. If the answer contains it, the check is skipped, because text
/// of the server is reported.
fn is_told_without_password(error: &Error, bytes: &[u8]) {
    if !String::from_utf8_lossy(bytes).contains(SECRET) {
        is_told_well(error);
    }
}
