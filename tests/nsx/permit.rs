//! When leadership ends, a waiting write of the former leader is not sent, at any stage. A logout is sent.

use std::sync::Arc;
use std::time::Duration;

use ccm::clients::http::{Method, Permit};
use ccm::clients::nsx::{Client, Error, Kind};
use support::fake_nsx::{Behaviour, Model, Sessions, Side};
use tokio::task::JoinHandle;

use crate::memory::{Door, Memory, Reply};
use crate::world::{ROUTES, SOON, Term, World, patch, route};

fn write(client: &Client, permit: &Arc<dyn Permit>) -> JoinHandle<Result<(), Error>> {
    write_to("r", client, permit)
}

fn write_to(id: &'static str, client: &Client, permit: &Arc<dyn Permit>) -> JoinHandle<Result<(), Error>> {
    let (client, permit) = (client.clone(), Arc::clone(permit));
    tokio::spawn(async move { patch(&client, &permit, id).await })
}

fn writes(server: &Memory) -> usize {
    server.arrivals().iter().filter(|arrival| arrival.method != Method::GET).count()
}

async fn is_refused(write: JoinHandle<Result<(), Error>>) {
    let error = tokio::time::timeout(SOON, write).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(error.kind, Kind::NotPermitted, "{error}");
}

fn accepting() -> Arc<Memory> {
    Memory::new(Duration::ZERO, |arrival| match arrival.method {
        Method::GET => Reply::new(200, "{}"),
        _ => Reply::new(200, ""),
    })
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_a_valid_permit() {
    let server = accepting();
    let client = server.client(Door::new(true));
    let (term, permit) = Term::begin();
    patch(&client, &permit, "r").await.unwrap();
    term.end();
    let path = format!("{ROUTES}/r");
    let results = [
        client.patch(&permit, &path, "test.patch", &route()).await,
        client.put(&permit, &path, "test.put", &route()).await.map(drop),
        client.delete(&permit, &path, "test.delete").await,
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind, Kind::NotPermitted);
    }
    assert_eq!(writes(&server), 1);
    client.get(&path, "test.get").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_the_login_is_not_sent() {
    let (server, door) = (accepting(), Door::new(false));
    let client = server.client(Arc::clone(&door) as _);
    let (term, permit) = Term::begin();
    let write = write(&client, &permit);
    door.logins.subscribe().wait_for(|count| *count == 1).await.unwrap();
    term.end();
    door.open.send_replace(true);
    is_refused(write).await;
    assert_eq!(writes(&server), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_its_turn_is_not_sent() {
    let server = accepting();
    let client = server.client(Door::new(true));
    server.answers.send_replace(false);
    let reads: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get(ROUTES, "test.get").await.map(drop) })
        })
        .collect();
    while server.arrivals().len() < 20 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (term, permit) = Term::begin();
    let write = write(&client, &permit);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(writes(&server), 0);
    term.end();
    server.answers.send_replace(true);
    is_refused(write).await;
    for read in reads {
        read.await.unwrap().unwrap();
    }
    assert_eq!(writes(&server), 0);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_a_busy_manager_refused_is_not_sent_again() {
    let server = Memory::new(Duration::ZERO, |_| Reply::new(429, "{}").header("retry-after", "10"));
    let client = server.client(Door::new(true));
    let (term, permit) = Term::begin();
    let write = write(&client, &permit);
    while writes(&server) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    term.end();
    is_refused(write).await;
    assert_eq!(writes(&server), 1);
}

/// NSX answers 429 before it executes anything. A request with the answer 503 may have been executed.
#[tokio::test(start_paused = true)]
async fn a_write_is_repeated_after_429_and_not_after_503() {
    for (status, sent) in [(429, 4), (503, 1)] {
        let server = Memory::new(Duration::ZERO, move |_| Reply::new(status, "{}"));
        let client = server.client(Door::new(true));
        let (_term, permit) = Term::begin();
        assert_eq!(patch(&client, &permit, "r").await.unwrap_err().kind, Kind::Busy, "{status}");
        assert_eq!(writes(&server), sent, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_session_was_over_is_not_sent_again() {
    let server = Memory::new(Duration::ZERO, |arrival| match arrival.method {
        Method::GET => Reply::new(200, "{}"),
        _ => Reply::new(401, "{}"),
    });
    let door = Door::new(true);
    let client = server.client(Arc::clone(&door) as _);
    client.get(ROUTES, "test.get").await.unwrap();
    let before = *door.logins.borrow();
    let (term, permit) = Term::begin();
    door.open.send_replace(false);
    let write = write(&client, &permit);
    door.logins.subscribe().wait_for(|count| *count > before).await.unwrap();
    assert_eq!(writes(&server), 1);
    term.end();
    door.open.send_replace(true);
    is_refused(write).await;
    assert_eq!(writes(&server), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_is_given_up() {
    let server = accepting();
    let client = server.client(Door::new(true));
    server.answers.send_replace(false);
    let (term, permit) = Term::begin();
    let write = write(&client, &permit);
    while writes(&server) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    term.end();
    is_refused(write).await;
    assert_eq!(writes(&server), 1);
}

#[tokio::test]
async fn a_write_that_waits_behind_others_with_basic_is_not_sent() {
    for (name, behaviour) in Behaviour::ALL {
        let world = World::start(Model::small().sessions(Sessions::NotFound).behaviour(behaviour)).await;
        world.list().await.unwrap();
        let (first, second) = (world.nsx.hold(1, Side::Request), world.nsx.hold(2, Side::Request));
        let (term, permit) = Term::begin();
        let (other, others_permit) = Term::begin();
        let under_way = ["r1", "r2"].map(|id| write_to(id, &world.client, &others_permit));
        first.wait().await;
        second.wait().await;
        let waits = write(&world.client, &permit);
        tokio::task::yield_now().await;
        term.end();
        first.release();
        second.release();
        is_refused(waits).await;
        for write in under_way {
            write.await.unwrap().unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert_eq!(world.nsx.counts().of("PATCH static-routes"), 2, "{name}");
        other.end();
    }
}

#[tokio::test]
async fn a_former_leader_writes_nothing_more_and_still_logs_out() {
    for (name, behaviour) in Behaviour::ALL {
        for side in [Side::Request, Side::Answer] {
            let mut world = World::start(Model::small().behaviour(behaviour)).await;
            world.patch("before").await.unwrap();
            let before = world.nsx.history().len();
            let (term, permit) = Term::begin();
            let hold = world.nsx.hold(1, side);
            let under_way = write(&world.client, &permit);
            hold.wait().await;
            term.end();
            world.leads.send_replace(false);
            // The client cancels the request while the manager has not answered it.
            is_refused(under_way).await;
            assert!(hold.is_held(), "{name}");
            hold.release();
            for _ in 0..3 {
                let error = patch(&world.client, &permit, "r").await.unwrap_err();
                assert_eq!(error.kind, Kind::NotPermitted, "{name}: {error}");
            }
            world.until("the session is ended", |world| world.sessions() == 0).await;
            // Only requests that arrived before the end may have been executed.
            assert_eq!(world.nsx.counts().of("PATCH static-routes"), 2, "{name}");
            assert!(world.nsx.history_from(before).len() <= 1, "{name}");
            assert_eq!(world.nsx.counts().of("session destroy"), 1, "{name}");
            world.end().await;
        }
    }
}
