//! The client's requests, and its reading of lists.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ccm::clients::nsx::realization::Realization;
use ccm::clients::nsx::{Error, Kind, Listing};
use serde_json::json;
use support::fake_nsx::{Behaviour, HierarchicalPatch, Model, Trouble};
use tokio::time::Instant;

use crate::memory::{Arrival, Door, Memory, Reply};
use crate::world::{GATEWAY, ROUTES, Term, World, advance};

// vectors: W-04
#[tokio::test]
async fn w_04_an_intent_is_escaped_in_the_query_for_its_realization() {
    let world = World::start(Model::small()).await;
    let path = "/infra/ip-pools/p1/ip-allocations/a1";
    assert_eq!(world.client.realization(path, "test.realization").await.unwrap(), Realization::Pending);
    let request = world.nsx.requests().pop().unwrap();
    assert_eq!(request.method, "GET");
    let (_, query) = request.path.split_once('?').unwrap();
    assert_eq!(query, "intent_path=%2Finfra%2Fip-pools%2Fp1%2Fip-allocations%2Fa1");
}

/// The Go program searches for the routes of its cluster. This program lists the router, with any name of the cluster.
// vectors: W-05
#[tokio::test]
async fn w_05_routes_are_listed_on_their_router_and_never_searched() {
    let world = World::start(Model::small()).await;
    world.list().await.unwrap();
    let request = world.nsx.requests().pop().unwrap();
    assert_eq!(request.path, format!("/policy/api/v1{ROUTES}?page_size=1000"));
    assert_eq!((request.body.as_str(), request.header("x-allow-overwrite")), ("", None));
}

#[tokio::test]
async fn what_is_odd_in_an_id_is_escaped_and_what_the_client_does_not_know_survives() {
    let world = World::start(Model::small()).await;
    let id = "62d347a4_2001:db8::_64 %?#&=+ü";
    world.patch(id).await.unwrap();
    let path = format!("{ROUTES}/{id}");
    let stored = world.get(&path).await.unwrap();
    assert_eq!((stored.id(), stored.path()), (id, path.as_str()));
    assert_eq!(world.list().await.unwrap().objects.len(), 1);
    world.delete(id).await.unwrap();
    assert_eq!(world.get(&path).await.unwrap_err().kind, Kind::NotFound);
    world.delete(id).await.expect("what is not there is deleted");
}

#[tokio::test]
async fn a_list_is_whole_however_the_manager_pages() {
    for (name, behaviour) in Behaviour::ALL {
        let model = (0..25).fold(Model::small().behaviour(behaviour), |model, number| {
            let body = json!({
                "display_name": "equal", "network": format!("10.0.{number}.0/24"), "next_hops": [{"ip_address": "192.0.2.1"}],
            });
            model.object(&format!("{ROUTES}/r{number}"), body)
        });
        let world = World::start(model).await;
        for page_size in [1000, 10, 25, 1] {
            let listing = world.client.pages(ROUTES, "test.list", page_size).all().await.unwrap();
            let ids: BTreeSet<&str> = listing.objects.iter().map(|object| object.id()).collect();
            let all = if name == "third" { 20 } else { 25 };
            // Equal names without a stable order may move from page to page.
            assert!(ids.len() >= all || (name == "third" && page_size < 25), "{name}, {page_size}: {ids:?}");
            assert_eq!(listing.skipped, 0);
        }
        assert!(world.nsx.object(&format!("{ROUTES}/r0")).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_has_too_much_to_do_gets_half_as_many_calls() {
    let cases = [
        (200, "{}", 80.0),
        (429, "{}", 40.0),
        (429, "<html>", 40.0),
        (503, "{}", 40.0),
        (503, "<html>", 40.0),
        (500, "{\"error_code\": 607}", 80.0),
        (500, "{}", 80.0),
    ];
    for (status, body, expected) in cases {
        let count = AtomicUsize::new(0);
        let server = Memory::new(Duration::ZERO, move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::new(status, body),
            _ => Reply::new(200, "{}"),
        });
        let client = server.client(Door::new(true));
        // Uses up the burst of the rate limit.
        for _ in 0..10 {
            let _ = client.get(GATEWAY, "test.get").await;
        }
        let (seen, began) = (server.arrivals().len(), Instant::now());
        // Within a second. Each second without throttling permits two more calls.
        while began.elapsed() < Duration::from_millis(800) {
            client.get(GATEWAY, "test.get").await.unwrap();
        }
        let rate = (server.arrivals().len() - seen) as f64 / began.elapsed().as_secs_f64();
        assert!((rate - expected).abs() < 4.0, "{status} {body}: {rate} calls a second");
    }
}

/// Reads a list from pages in memory.
async fn list(
    script: impl Fn(usize, &Arrival) -> Reply + Send + Sync + 'static,
) -> (Result<Listing, Error>, Arc<Memory>) {
    let count = AtomicUsize::new(0);
    let server = Memory::new(Duration::ZERO, move |arrival| script(count.fetch_add(1, Ordering::SeqCst), arrival));
    let client = server.client(Door::new(true));
    (client.pages(ROUTES, "test.list", 1000).all().await, server)
}

fn page(cursor: Option<&str>, ids: &[&str]) -> Reply {
    let results: Vec<_> = ids.iter().map(|id| json!({"id": id})).collect();
    let mut page = json!({"results": results});
    if let Some(cursor) = cursor {
        page["cursor"] = cursor.into();
    }
    Reply::new(200, page.to_string())
}

fn ids(listing: &Listing) -> Vec<&str> {
    listing.objects.iter().map(|object| object.id()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_ends_without_a_cursor_or_with_an_empty_page() {
    let (listing, server) = list(|number, _| match number {
        0 => page(Some("a b/c"), &["1", "2"]),
        1 => page(Some("b"), &["3"]),
        _ => page(None, &["4"]),
    })
    .await;
    assert_eq!(ids(&listing.unwrap()), ["1", "2", "3", "4"]);
    let cursors: Vec<_> =
        server.arrivals().iter().map(|arrival| arrival.parameter("cursor").map(str::to_owned)).collect();
    assert_eq!(cursors, [None, Some("a%20b%2Fc".to_owned()), Some("b".to_owned())]);
    for last in [Some("other"), Some("a"), Some(""), None] {
        let (listing, _) =
            list(move |number, _| if number == 0 { page(Some("a"), &["1"]) } else { page(last, &[]) }).await;
        assert_eq!(ids(&listing.unwrap()), ["1"], "{last:?}");
    }
    let (listing, _) = list(|_, _| Reply::new(200, "{\"results\": [], \"cursor\": \"1\", \"result_count\": 7}")).await;
    assert_eq!(ids(&listing.unwrap()), [""; 0]);
    let (listing, _) = list(|number, _| match number {
        0 => Reply::new(200, "{\"results\": [{\"id\": \"1\"}, 7, null, []], \"cursor\": 1}"),
        _ => page(None, &["2"]),
    })
    .await;
    let listing = listing.unwrap();
    assert_eq!((ids(&listing), listing.skipped), (vec!["1", "2"], 3));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_end_or_is_none_is_an_error_and_never_short() {
    let (listing, server) = list(|number, _| page(Some(["a", "b"][number % 2]), &["1"])).await;
    assert_eq!(listing.unwrap_err().kind, Kind::Unavailable);
    assert_eq!(server.arrivals().len(), 3);
    let (listing, server) = list(|number, _| page(Some(&number.to_string()), &["1"])).await;
    assert!(listing.unwrap_err().to_string().contains("500 pages"));
    assert_eq!(server.arrivals().len(), 500);
    let odd = [
        "",
        "{}",
        "[]",
        "null",
        "{\"results\": null}",
        "{\"results\": {}}",
        "{\"result_count\": 0}",
        "<html>",
        "{\"re",
    ];
    for body in odd {
        for good_pages in [0, 1] {
            let (listing, _) = list(move |number, _| match number {
                number if number < good_pages => page(Some("a"), &["1"]),
                _ => Reply::new(200, body),
            })
            .await;
            assert_eq!(listing.unwrap_err().kind, Kind::Unavailable, "{body} after {good_pages}");
        }
    }
    // A failure of one page fails the whole list.
    for (status, body, kind) in [
        (404, "{\"error_code\": 600}", Kind::NotFound),
        (500, "{}", Kind::Unavailable),
        (404, "<html>", Kind::Unavailable),
        (403, "{\"error_code\": 289}", Kind::NoPermission),
    ] {
        let (listing, _) =
            list(move |number, _| if number == 0 { page(Some("a"), &["1"]) } else { Reply::new(status, body) }).await;
        assert_eq!(listing.unwrap_err().kind, kind, "{status} {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_asked_for_in_halves() {
    const LIMIT: usize = 4 << 20;
    let large = || Reply::new(200, vec![b' '; LIMIT + 1]);
    let (listing, server) =
        list(move |_, arrival| match arrival.parameter("page_size").unwrap().parse::<usize>().unwrap() {
            size if size > 300 => large(),
            _ if arrival.parameter("cursor").is_none() => page(Some("a"), &["1"]),
            _ => page(None, &["2"]),
        })
        .await;
    assert_eq!(ids(&listing.unwrap()), ["1", "2"]);
    let sizes: Vec<_> =
        server.arrivals().iter().map(|arrival| arrival.parameter("page_size").unwrap().to_owned()).collect();
    assert_eq!(sizes, ["1000", "500", "250", "250"]);
    let (listing, server) = list(move |_, _| large()).await;
    assert_eq!(listing.unwrap_err().kind, Kind::Unavailable);
    assert_eq!(server.arrivals().len(), 10, "one object alone is too large");
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_many_values_is_not_read_however_short_it_is() {
    let many = |count: usize| Reply::new(200, format!("{{\"results\": [{}0]}}", "0,".repeat(count)));
    let (listing, server) =
        list(move |_, arrival| match arrival.parameter("page_size").unwrap().parse::<usize>().unwrap() {
            size if size > 300 => many(300_000),
            _ => many(299_996),
        })
        .await;
    assert_eq!(listing.unwrap().skipped, 299_997);
    assert_eq!(server.arrivals().len(), 3, "smaller pages");
    let server = Memory::new(Duration::ZERO, move |_| many(300_000));
    let client = server.client(Door::new(true));
    let error = client.get(GATEWAY, "test.get").await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.to_string().ends_with("the answer has more than 60000 values"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_kept_whole_has_a_limit() {
    let objects =
        |count: usize| Reply::new(200, format!("{{\"results\": [{}{{\"a\": 0}}]}}", "{\"a\":0},".repeat(count)));
    let (listing, _) = list(move |_, _| objects(100_000)).await;
    assert_eq!(listing.unwrap().objects.len(), 100_001);
    let (listing, _) = list(move |_, _| objects(110_000)).await;
    let error = listing.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.to_string().ends_with("the list takes more than 64 MiB of memory"), "{error}");
    // Removed members do not count towards the limit, and empty objects do.
    let server = Memory::new(Duration::ZERO, move |arrival| {
        let number: usize = arrival.parameter("cursor").map_or(0, |cursor| cursor.parse().unwrap());
        let long = format!("{{\"id\": \"r{number}\", \"a\": \"{}\"}}", "x".repeat(2 << 20));
        let cursor = if number < 40 { format!(", \"cursor\": \"{}\"", number + 1) } else { String::new() };
        Reply::new(200, format!("{{\"results\": [{long}]{cursor}}}"))
    });
    let client = server.client(Door::new(true));
    let kept = client.pages(ROUTES, "test.list", 1000).keeping(&["id"]).all().await.unwrap();
    assert!(kept.objects.len() == 41 && kept.objects.iter().all(|object| object.0.len() == 1));
    let server = Memory::new(Duration::ZERO, move |arrival| {
        let number: usize = arrival.parameter("cursor").map_or(0, |cursor| cursor.parse().unwrap());
        Reply::new(
            200,
            format!("{{\"results\": [{}{{}}], \"cursor\": \"{}\"}}", "{\"\":0},".repeat(50_000), number + 1),
        )
    });
    let client = server.client(Door::new(true));
    let kept = client.pages(ROUTES, "test.list", 1000).keeping(&["id"]).all().await;
    assert!(kept.unwrap_err().to_string().ends_with("the list takes more than 64 MiB of memory"));
    assert_eq!(server.arrivals().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_path_that_leads_elsewhere_is_not_sent() {
    let server = Memory::new(Duration::ZERO, move |_| Reply::new(200, "{}"));
    let client = server.client(Door::new(true));
    let (_term, permit) = Term::begin();
    for path in ["/infra/tier-1s/..", "/infra/../api/v1/x", "/infra/./tier-1s/t1", ".."] {
        let got = client.get(path, "test.get").await.map(drop);
        let deleted = client.delete(&permit, path, "test.delete").await;
        for error in [got.unwrap_err(), deleted.unwrap_err()] {
            assert!(error.kind == Kind::BadRequest && error.to_string().contains("not sent"), "{path}: {error}");
        }
    }
    assert_eq!(server.arrivals().len(), 0);
    // Segments that contain more than dots are accepted.
    client.get("/infra/tier-1s/a..b/...", "test.get").await.unwrap();
    assert_eq!(server.arrivals().len(), 1);
}

#[tokio::test]
async fn the_page_of_a_portal_is_no_successful_call_and_no_accepted_login() {
    let world = World::start(Model::small()).await;
    world.nsx.every("session create", Trouble::portal());
    assert_eq!(world.get(GATEWAY).await.unwrap_err().kind, Kind::Unavailable);
    assert_eq!(world.outcomes.of("session.create"), ["Unavailable"]);
    world.nsx.clear();
    advance(Duration::from_secs(20)).await;
    world.get(GATEWAY).await.unwrap();
    world.nsx.every("*", Trouble::portal());
    world.get(GATEWAY).await.unwrap_err();
    world.patch("r").await.unwrap_err();
    assert_eq!(world.outcomes.of("test.get"), ["ok", "Unavailable"]);
    assert_eq!(world.outcomes.of("test.patch"), ["Unknown"]);
}

#[tokio::test]
async fn objects_are_replaced_together_or_not_at_all() {
    let world = World::start(Model::small()).await;
    let path = |number: u8| format!("/infra/lb-pools/pool-{number}");
    let mut pools = Vec::new();
    for number in 0..3 {
        world.nsx.put_by_hand("admin", &path(number), json!({"display_name": "before"}));
        let mut pool = world.get(&path(number)).await.unwrap();
        pool.0.insert("display_name".to_owned(), "after".into());
        pools.push(pool);
    }
    let patch = || world.client.patch_together(world.write(), "LBPool", "test.together", &pools);
    let names = || (0..3).map(|number| world.nsx.object(&path(number)).unwrap()["display_name"].clone());
    world.nsx.change_by_hand("admin", &path(1), |pool| pool["display_name"] = json!("by hand"));
    assert_eq!(patch().await.unwrap_err().kind, Kind::Conflict);
    assert_eq!(names().collect::<Vec<_>>(), ["before", "by hand", "before"]);
    pools[1] = world.get(&path(1)).await.unwrap();
    pools[1].0.insert("display_name".to_owned(), "after".into());
    let patch = || world.client.patch_together(world.write(), "LBPool", "test.together", &pools);
    for (refusal, kind) in [
        (HierarchicalPatch::Forbidden, Kind::NoPermission),
        (HierarchicalPatch::NotFound, Kind::Unavailable),
        (HierarchicalPatch::NotAllowed, Kind::BadRequest),
    ] {
        world.nsx.set_behaviour(Behaviour { hierarchical_patch: refusal, ..Behaviour::USUAL });
        let error = patch().await.unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
    }
    world.nsx.set_behaviour(Behaviour::USUAL);
    world.nsx.reset_counts();
    patch().await.unwrap();
    assert_eq!(names().collect::<Vec<_>>(), ["after", "after", "after"]);
    assert_eq!((world.nsx.counts().of("PATCH infra"), world.nsx.counts().total()), (1, 1));
}
