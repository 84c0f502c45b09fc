//! What a request may show, in every combination that matters.

use super::*;
use crate::kubernetes::access::authority::{Authority, client};
use crate::kubernetes::access::scripted::server;
use crate::kubernetes::access::{ProxySettings, RequestHeaders};
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use std::time::Duration;

struct World {
    clients: Authority,
    proxies: Authority,
    strangers: Authority,
    delegated: Delegated,
}

/// Knows client certificates, the proxy `front`, and the token `good`.
fn world() -> World {
    let (api, _) = server(|spec, _| {
        Ok(match spec["token"].as_str() {
            Some("good") => json!({"authenticated": true, "user": {"username": "token user"}}),
            Some("anonymous") => json!({"authenticated": true, "user": {"username": "system:anonymous"}}),
            Some("known") => {
                let user = json!({"username": "token user", "groups": ["system:authenticated", "a"]});
                json!({"authenticated": true, "user": user})
            }
            _ => json!({"authenticated": false}),
        })
    });
    let (clients, proxies, strangers) = (Authority::new("clients"), Authority::new("proxies"), Authority::new("else"));
    let trust = Trust::default();
    trust.believe_clients(clients.pem.as_bytes()).unwrap();
    let headers = RequestHeaders {
        username: vec!["x-remote-user".to_owned()],
        group: vec!["x-remote-group".to_owned()],
        ..RequestHeaders::default()
    };
    let settings = ProxySettings { allowed_names: vec!["front".to_owned()], headers };
    trust.believe_proxies(proxies.pem.as_bytes(), settings).unwrap();
    let metrics = Metrics::default();
    let tokens = TokenReviews::new(api, Duration::from_secs(10), &metrics);
    World { clients, proxies, strangers, delegated: Delegated::new(trust, tokens, metrics) }
}

fn headers(entries: &[(&'static str, &str)]) -> HeaderMap {
    let parse =
        |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    entries.iter().map(parse).collect()
}

async fn who(world: &World, certificates: &[CertificateDer<'static>], entries: &[(&'static str, &str)]) -> String {
    let headers = headers(entries);
    match world.delegated.authenticate(Shown { headers: &headers, certificates }).await {
        Ok(Some(user)) => format!("{} in {}", user.name, user.groups.join(",")),
        Ok(None) => "nobody".to_owned(),
        Err(NotAuthenticated::Invalid) => "wrong".to_owned(),
        Err(NotAuthenticated::Unknown(error)) => format!("unknown: {error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_that_names_somebody_counts_and_something_wrong_only_if_nobody_is_named() {
    let world = world();
    let jane = world.clients.sign(&client("jane", &["a"]));
    let nameless = world.clients.sign(&client("", &["a"]));
    let front = world.proxies.sign(&client("front", &[]));
    let back = world.proxies.sign(&client("back", &[]));
    let stranger = world.strangers.sign(&client("front", &["system:masters"]));
    let says: &[(&str, &str)] = &[("x-remote-user", "john"), ("x-remote-group", "b")];
    let good: &[(&str, &str)] = &[("authorization", "Bearer good")];
    let bad: &[(&str, &str)] = &[("authorization", "Bearer bad")];
    let both: &[(&str, &str)] = &[("x-remote-user", "john"), ("authorization", "Bearer bad")];
    let cases = [
        ("nothing", None, &[][..], "nobody"),
        ("a token", None, good, "token user in system:authenticated"),
        ("a bad token", None, bad, "wrong"),
        ("a certificate", Some(&jane), &[], "jane in a,system:authenticated"),
        ("a certificate and a bad token", Some(&jane), bad, "jane in a,system:authenticated"),
        ("a certificate and a proxy's headers", Some(&jane), says, "jane in a,system:authenticated"),
        ("a certificate without a name", Some(&nameless), &[], "wrong"),
        ("a proxy", Some(&front), says, "john in b,system:authenticated"),
        ("a proxy and a bad token", Some(&front), both, "john in system:authenticated"),
        ("a proxy that names nobody", Some(&front), &[], "wrong"),
        ("a proxy that names nobody, and a token", Some(&front), good, "token user in system:authenticated"),
        ("another client of the proxies' authority", Some(&back), says, "wrong"),
        ("a stranger", Some(&stranger), says, "wrong"),
        ("a stranger with a token", Some(&stranger), good, "token user in system:authenticated"),
        ("a proxy's headers alone", None, says, "nobody"),
    ];
    for (name, certificate, entries, expected) in cases {
        let chain: Vec<_> = certificate.into_iter().cloned().collect();
        assert_eq!(who(&world, &chain, entries).await, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_group_of_the_known_is_added_once_and_not_to_the_anonymous() {
    let world = world();
    let asked = async |token: &str| who(&world, &[], &[("authorization", token)]).await;
    assert_eq!(asked("Bearer known").await, "token user in system:authenticated,a");
    assert_eq!(asked("Bearer anonymous").await, "system:anonymous in ");
}

#[tokio::test(start_paused = true)]
async fn without_authorities_certificates_say_nothing() {
    let world = world();
    let jane = world.clients.sign(&client("jane", &[]));
    let (api, _) = server(|_, _| Ok(json!({"authenticated": false})));
    let metrics = Metrics::default();
    let tokens = TokenReviews::new(api, Duration::from_secs(10), &metrics);
    let bare = World { delegated: Delegated::new(Trust::default(), tokens, metrics), ..world };
    assert_eq!(who(&bare, &[jane], &[("x-remote-user", "john")]).await, "nobody");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_bundle_changes_nothing() {
    let world = world();
    let jane = world.clients.sign(&client("jane", &[]));
    assert!(world.delegated.trust.believe_clients(b"nothing").is_err());
    assert!(world.delegated.trust.believe_proxies(b"nothing", ProxySettings::default()).is_err());
    assert_eq!(who(&world, &[jane], &[]).await, "jane in system:authenticated");
    let newer = Authority::new("newer");
    world.delegated.trust.believe_clients(newer.pem.as_bytes()).unwrap();
    let john = newer.sign(&client("john", &[]));
    assert_eq!(who(&world, &[john], &[]).await, "john in system:authenticated");
    let jane = world.clients.sign(&client("jane", &[]));
    assert_eq!(who(&world, &[jane], &[]).await, "wrong", "her authority is not believed any more");
}
