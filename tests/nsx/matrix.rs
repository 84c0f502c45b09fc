//! The fault matrix: every known fault of a manager, with each way to log in and through a proxy, during a list, a
//! read, a write, a deletion and a login.
//!
//! During the fault no existing object is treated as absent, and only requested changes happen. After the fault the
//! next calls succeed without a restart.

mod logins;
mod proxy;

use std::sync::Mutex;
use std::time::Duration;

use ccm::clients::nsx::{Kind, Scheme, Timeouts};
use support::fake_nsx::{Behaviour, Model, Sessions, Trouble, client_identity};

use crate::login::SHORT;
use crate::world::{GATEWAY, Proof, ROUTES, Road, World, advance};

const FOREIGN: &str = "/infra/tier-1s/t1/static-routes/foreign";

/// A path that no request here uses.
const ELSEWHERE: &str = "/infra/tier-1s/t2";

/// Number of concurrent rows. Rows mostly wait.
const AT_ONCE: usize = 48;

/// Short, so that hanging calls end.
pub const TIMEOUTS: Timeouts = Timeouts {
    call: Duration::from_secs(2),
    login: Duration::from_secs(2),
    logout: Duration::from_secs(1),
    turn: Duration::from_secs(30),
};

/// The way to log in, and the way to the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Session,
    /// A session, through a proxy.
    Proxied,
    /// A session of a vIDM user.
    Remote,
    /// User and password with each request.
    Basic,
    /// User and password with each request, with a prefix before all paths.
    Prefix,
    Token,
    Certificate,
}

impl Mode {
    const ALL: [Self; 7] =
        [Self::Session, Self::Proxied, Self::Remote, Self::Basic, Self::Prefix, Self::Token, Self::Certificate];

    fn is_basic(self) -> bool {
        matches!(self, Self::Basic | Self::Prefix)
    }

    fn has_session(self) -> bool {
        matches!(self, Self::Session | Self::Proxied | Self::Remote)
    }
}

/// An answer, with the expected result of each call.
#[derive(Clone)]
pub struct Row {
    pub name: &'static str,
    pub trouble: fn() -> Trouble,
    read: Option<Kind>,
    write: Option<Kind>,
    /// Whether the fake clearly answers that the object does not exist.
    pub says_gone: bool,
    /// Whether the fake answers that the object is marked for deletion.
    pub says_marked: bool,
}

fn row(name: &'static str, trouble: fn() -> Trouble, read: Option<Kind>, write: Option<Kind>) -> Row {
    Row { name, trouble, read, write, says_gone: false, says_marked: false }
}

fn html(status: u16) -> Trouble {
    Trouble::answer(status, "text/html", "<html><body>no</body></html>").into()
}

fn error(status: u16, code: Option<i64>) -> Trouble {
    Trouble::error(status, code).into()
}

/// Returns an error with the message that [`ELSEWHERE`] does not exist.
fn missing(code: i64) -> Trouble {
    let message = format!("The path=[{ELSEWHERE}] does not exist");
    let body = serde_json::json!({"httpStatus": "NOT_FOUND", "error_code": code, "error_message": message});
    Trouble::answer(404, "application/json", &body.to_string()).into()
}

/// Returns all answers, with the expected results of calls.
pub fn rows() -> Vec<Row> {
    use Kind::{
        BadRequest, Busy, Conflict, MarkedForDeletion, MissingReference, NoPermission, NotFound, Referenced,
        SessionOver, Unavailable, Unknown,
    };
    let elsewhere = || MissingReference(ELSEWHERE.to_owned());
    let both = |name, trouble, kind: Kind| row(name, trouble, Some(kind.clone()), Some(kind));
    vec![
        both("429", || Trouble::throttled().into(), Busy),
        both("503", || Trouble::overloaded().into(), Busy),
        both("503 of a proxy", || Trouble::unavailable().into(), Busy),
        both("500 with 607", || Trouble::aborted().into(), Busy),
        both("503 with 101", || Trouble::components_down().into(), Busy),
        both("500 with 98", || Trouble::starting().into(), Unavailable),
        both("401", || Trouble::expired().into(), SessionOver),
        both("403 with 403", || Trouble::rejected().into(), SessionOver),
        both("403 with 98", || error(403, Some(98)), SessionOver),
        both("500", || error(500, None), Unavailable),
        both("502", || html(502), Unavailable),
        both("504", || html(504), Unavailable),
        both("403 of a proxy", || html(403), Unavailable),
        both("404 of a proxy", || html(404), Unavailable),
        both("405 of a proxy", || html(405), Unavailable),
        both("302", || html(302), Unavailable),
        both("302 to a login page", || Trouble::login_redirect().into(), Unavailable),
        row("200 of a portal", || Trouble::portal().into(), Some(Unavailable), Some(Unknown)),
        both("403 with 289", || error(403, Some(289)), NoPermission),
        both("403 with 401", || Trouble::not_permitted().into(), NoPermission),
        both("403 with 505", || Trouble::unlicensed().into(), NoPermission),
        both("404 without a code", || error(404, None), BadRequest),
        both("400", || error(400, Some(1)), BadRequest),
        both("400 with 500030", || error(400, Some(500_030)), Referenced),
        Row { says_marked: true, ..both("400 with 500045", || error(400, Some(500_045)), MarkedForDeletion) },
        both("409", || error(409, None), Conflict),
        both("412", || Trouble::conflict().into(), Conflict),
        both("400 with 500127", || error(400, Some(500_127)), Conflict),
        both("400 with 500087", || error(400, Some(500_087)), Conflict),
        both("400 with 500232", || error(400, Some(500_232)), Conflict),
        both("400 with 100148", || error(400, Some(100_148)), Conflict),
        Row { says_gone: true, ..both("404 with 600", || error(404, Some(600)), NotFound) },
        Row { says_gone: true, ..both("404 with 202", || error(404, Some(202)), NotFound) },
        Row { says_gone: true, ..both("404 with 500090", || error(404, Some(500_090)), NotFound) },
        both("404 with 600 that names another path", || missing(600), elsewhere()),
        both("404 with 500090 that names another path", || missing(500_090), elsewhere()),
        row("closed without an answer", || Trouble::Drop, Some(Unavailable), Some(Unknown)),
        row("answer lost", || Trouble::Lose, Some(Unavailable), Some(Unknown)),
        row("answer cut", || Trouble::Cut(5), Some(Unavailable), None),
        row("no answer", || Trouble::Hang, Some(Unavailable), Some(Unknown)),
        row("late", || Trouble::Late(Duration::from_millis(200)), None, None),
        row("too late", || Trouble::Late(Duration::from_secs(4)), Some(Unavailable), Some(Unknown)),
        row("slow bytes", || Trouble::Slow(Duration::from_millis(200)), Some(Unavailable), None),
        row("half an answer", || Trouble::Rewrite(|body| body.chars().take(9).collect()), Some(Unavailable), None),
    ]
}

/// Returns a world whose client has not logged in yet.
async fn unused(behaviour: Behaviour, mode: Mode) -> World {
    let body = serde_json::to_value(&crate::world::route().0).unwrap();
    let mut model = Model::small().behaviour(behaviour).object(FOREIGN, body.clone());
    for number in 0..3 {
        model = model.object(&format!("{ROUTES}/r{number}"), body.clone());
    }
    let password = Proof::Password(Scheme::Basic);
    let (model, proof) = match mode {
        Mode::Session | Mode::Proxied => (model, password),
        Mode::Remote => (model.remote_user("ccm@corp.local", "Correct-Horse-9"), Proof::Password(Scheme::Remote)),
        Mode::Basic => (model.sessions(Sessions::NotFound), password),
        Mode::Prefix => (model.prefix("/vmc/reverse-proxy/api"), password),
        Mode::Token => (model.cloud_user("ccm", "refresh"), Proof::Token("refresh")),
        Mode::Certificate => {
            let (certificate, key) = client_identity("ccm");
            (model.principal("ccm", &certificate), Proof::Certificate(certificate, key))
        }
    };
    let road = if mode == Mode::Proxied { Road::Proxy } else { Road::Direct };
    World::start_by(road, model, proof, TIMEOUTS).await
}

async fn scene(behaviour: Behaviour, mode: Mode) -> World {
    let world = unused(behaviour, mode).await;
    assert_eq!(world.list().await.unwrap().objects.len(), 4);
    world
}

/// Checks that all calls work as without a fault.
async fn works(world: &World, name: &str) {
    let listing = world.list().await.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(listing.objects.iter().any(|object| object.path() == FOREIGN), "{name}");
    world.get(GATEWAY).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    let id = format!("w{}", world.nsx.history().len());
    world.patch(&id).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(world.nsx.object(&format!("{ROUTES}/{id}")).is_some(), "{name}");
    world.delete(&id).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(world.nsx.object(&format!("{ROUTES}/{id}")).is_none(), "{name}");
}

/// Checks that only the requested routes were changed.
fn only_own_changes(world: &World, seen: usize, name: &str) {
    let changed: Vec<String> = world.nsx.history_from(seen).into_iter().map(|version| version.path).collect();
    let is_own = |path: &String| *path == format!("{ROUTES}/r0") || path.starts_with(&format!("{ROUTES}/w"));
    assert!(changed.iter().all(is_own), "{name}: {changed:?}");
}

fn same<T: std::fmt::Debug>(
    name: &str,
    what: &str,
    result: Result<T, ccm::clients::nsx::Error>,
    expected: Option<&Kind>,
) {
    match (result, expected) {
        (Ok(_), None) => {}
        (Err(error), Some(kind)) => assert_eq!(&error.kind, kind, "{name}, {what}: {error}"),
        (Ok(value), Some(kind)) => panic!("{name}, {what}: {value:?} instead of {kind:?}"),
        (Err(error), None) => panic!("{name}, {what}: {error}"),
    }
}

/// Returns the expected result of a row with this login. If each request has the password, 401 and code 403 mean a
/// rejected password. The same applies after two sessions that ended immediately. The second of them is the session of
/// the first call. A certificate has no session that could expire. A token is always exchanged for the call.
fn expected(kind: Option<&Kind>, row: &Row, mode: Mode, is_first: bool) -> Option<Kind> {
    let has_password = mode.is_basic() || mode.has_session() && !is_first;
    let is_rejected = has_password && ["401", "403 with 403"].contains(&row.name)
        || matches!(mode, Mode::Certificate | Mode::Token) && kind == Some(&Kind::SessionOver);
    if is_rejected { Some(Kind::Rejected) } else { kind.cloned() }
}

async fn prove((row, mode, (manager, behaviour)): (Row, Mode, (&str, Behaviour))) {
    let name = format!("{}, {mode:?}, {manager}", row.name);
    let name = name.as_str();
    let world = scene(behaviour, mode).await;
    let seen = world.nsx.history().len();
    // The session has been valid for a while.
    advance(SHORT).await;
    for operation in ["LIST static-routes", "GET static-routes", "PATCH static-routes", "DELETE static-routes"] {
        world.nsx.every(operation, (row.trouble)());
    }
    let expected = |kind: &Option<Kind>, is_first| expected(kind.as_ref(), &row, mode, is_first);
    let (first, read, write) = (expected(&row.read, true), expected(&row.read, false), expected(&row.write, false));
    let (read, write) = (read.as_ref(), write.as_ref());
    match (world.list().await, first.as_ref()) {
        (Ok(listing), None) => assert_eq!(listing.objects.len(), 4, "{name}: an object is called gone"),
        (result, expected) => same(name, "list", result, expected),
    }
    let got = world.get(&format!("{ROUTES}/r1")).await;
    let is_gone = got.as_ref().is_err_and(|error| match &error.kind {
        Kind::NotFound => true,
        Kind::MissingReference(path) => path != ELSEWHERE,
        _ => false,
    });
    assert!(!is_gone || row.says_gone, "{name}: an object is called gone");
    same(name, "get", got, read);
    // A new route, because some managers reject a PATCH of an existing object without the revision.
    same(name, "write", world.patch("w").await, write);
    let is_there = || world.nsx.object(&format!("{ROUTES}/r0")).is_some();
    match world.delete("r0").await {
        Ok(()) => assert!(!is_there() || row.says_gone || row.says_marked, "{name}: it is there"),
        Err(error) => assert_eq!(Some(&error.kind), write, "{name}, deletion: {error}"),
    }
    only_own_changes(&world, seen, name);
    world.nsx.clear();
    // The pause that a manager requested with 429 or 503 is over, or after a rejection the time that the ledger
    // requires.
    let is_rejected = read == Some(&Kind::Rejected);
    advance(if is_rejected { Duration::from_secs(20 * 60) } else { Duration::from_secs(5) }).await;
    works(&world, name).await;
    only_own_changes(&world, seen, name);
    // A session that the manager wrongly reported as expired stays open there until it has been idle for long.
    let is_ended = row.read != Some(Kind::SessionOver);
    assert!(world.stop().await.counts().sessions == 0 || !is_ended, "{name}");
}

/// Combines each case with each behaviour.
fn behaving<T: Clone>(cases: impl IntoIterator<Item = T>) -> Vec<(T, (&'static str, Behaviour))> {
    cases.into_iter().flat_map(|case| Behaviour::ALL.map(|behaviour| (case.clone(), behaviour))).collect()
}

/// Runs this on the current thread, with a separate clock.
pub fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Tests the rows concurrently, each with a separate clock.
pub fn prove_all<T: Send, F: Future<Output = ()>>(rows: Vec<T>, prove: fn(T) -> F) {
    let rows = Mutex::new(rows);
    let prove_some = || {
        loop {
            let Some(row) = rows.lock().unwrap().pop() else { return };
            block_on(prove(row));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(prove_some)).collect();
        for worker in workers {
            worker.join().expect("every row holds");
        }
    });
}

#[test]
fn every_answer_means_what_the_table_says_and_passes() {
    let modes = rows().into_iter().flat_map(|row| Mode::ALL.map(|mode| (row.clone(), mode)));
    let cases = behaving(modes).into_iter().map(|((row, mode), behaviour)| (row, mode, behaviour));
    prove_all(cases.collect(), prove);
}

#[test]
fn a_restart_that_loses_the_sessions_costs_no_call() {
    prove_all(behaving(Mode::ALL), |(mode, (manager, behaviour))| async move {
        let name = format!("{mode:?}, {manager}");
        let world = scene(behaviour, mode).await;
        for _ in 0..3 {
            let seen = world.nsx.history().len();
            world.nsx.restart().await;
            // The wait is longer than the life of a session that counts as unusable.
            advance(SHORT).await;
            works(&world, &name).await;
            only_own_changes(&world, seen, &name);
        }
        assert_eq!(world.sessions(), usize::from(mode.has_session()), "{name}");
    });
}

#[test]
fn a_manager_that_is_down_is_unavailable_and_back() {
    prove_all(behaving(Mode::ALL), |(mode, (manager, behaviour))| async move {
        let name = format!("{mode:?}, {manager}");
        let world = scene(behaviour, mode).await;
        let seen = world.nsx.history().len();
        world.nsx.stop_listening().await;
        assert_eq!(world.list().await.unwrap_err().kind, Kind::Unavailable, "{name}");
        assert_eq!(world.get(FOREIGN).await.unwrap_err().kind, Kind::Unavailable, "{name}");
        for kind in [world.patch("w").await.unwrap_err().kind, world.delete("r0").await.unwrap_err().kind] {
            assert!(matches!(kind, Kind::Unavailable | Kind::Unknown), "{name}: {kind:?}");
        }
        only_own_changes(&world, seen, &name);
        world.nsx.resume_listening().await;
        works(&world, &name).await;
    });
}

#[test]
fn a_certificate_that_was_replaced_sees_no_credentials_until_it_is_trusted() {
    prove_all(behaving(Mode::ALL), |(mode, (manager, behaviour))| async move {
        let name = format!("{mode:?}, {manager}");
        let world = scene(behaviour, mode).await;
        let pem = world.nsx.change_certificate();
        world.nsx.kill_sessions();
        world.nsx.reset_counts();
        assert_eq!(world.list().await.unwrap_err().kind, Kind::Unavailable, "{name}");
        assert_eq!(world.get(FOREIGN).await.unwrap_err().kind, Kind::Unavailable, "{name}");
        assert_eq!(world.patch("w").await.unwrap_err().kind, Kind::Unavailable, "{name}");
        assert_eq!(world.nsx.counts().total(), 0, "{name}");
        world.trust(&pem);
        works(&world, &name).await;
        assert_eq!(world.logins(), u32::from(mode.has_session()), "{name}");
    });
}
