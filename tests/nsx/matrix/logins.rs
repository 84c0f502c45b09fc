//! The same troubles during a login.

use std::time::Duration;

use ccm::clients::nsx::Kind;
use support::LoginOutcome;
use support::fake_nsx::{Behaviour, Trouble};

use super::{error, html, only_own_changes, prove_all, scene, works};
use crate::world::{GATEWAY, advance};

type LoginRow = (&'static str, fn() -> Trouble, Kind);

/// What calls come to while each login fails in this way.
fn rows() -> Vec<LoginRow> {
    use Kind::{Busy, Rejected, Unavailable, Unknown};
    vec![
        ("429", || Trouble::throttled().into(), Busy),
        ("503", || Trouble::overloaded().into(), Busy),
        ("500 with 607", || Trouble::aborted().into(), Busy),
        ("500", || error(500, None), Unavailable),
        ("502", || html(502), Unavailable),
        ("200 of a portal", || Trouble::portal().into(), Unavailable),
        ("401", || error(401, Some(401)), Rejected),
        ("403", || error(403, Some(403)), Rejected),
        ("closed without an answer", || Trouble::Drop, Unknown),
        ("answer lost", || Trouble::Lose, Unknown),
        ("no answer", || Trouble::Hang, Unknown),
        ("too late", || Trouble::Late(Duration::from_secs(4)), Unknown),
        ("no session in the answer", || Trouble::answer(200, "application/json", "").into(), Unavailable),
    ]
}

#[test]
fn a_login_that_fails_locks_no_account_and_succeeds_when_the_trouble_is_over() {
    prove_all(rows(), prove);
}

async fn prove((name, trouble, kind): LoginRow) {
    let world = scene(Behaviour::USUAL).await;
    let seen = world.nsx.history().len();
    world.nsx.kill_sessions();
    world.nsx.every("session create", trouble());
    let first = world.list().await.unwrap_err();
    assert_eq!(first.kind, kind, "{name}: {first}");
    // Calls come all the while.
    for _ in 0..10 {
        let result = world.get(GATEWAY).await.unwrap_err();
        let is_held = result.to_string().contains("login to NSX");
        assert!(result.kind == kind || is_held, "{name}: {result}");
        assert!(!matches!(result.kind, Kind::NotFound | Kind::MissingReference(_)), "{name}: {result}");
    }
    let attempts = world.nsx.login_attempts();
    assert!(attempts.len() <= 3, "{name}: one login succeeded, and calls do not make one each: {attempts:?}");
    let is_against = |outcome| matches!(outcome, LoginOutcome::Rejected | LoginOutcome::Unanswered);
    let against = attempts.iter().filter(|attempt| is_against(attempt.outcome)).count();
    assert!(against < 5, "{name}: {against} of {attempts:?}");
    assert!(!world.nsx.is_locked("admin"), "{name}");
    let is_rejected = attempts.iter().any(|attempt| attempt.outcome == LoginOutcome::Rejected);
    assert_eq!(is_rejected, kind == Kind::Rejected, "{name}");
    only_own_changes(&world, seen, name);
    world.nsx.clear();
    // The pause after a rejection, and what the ledger holds.
    advance(Duration::from_secs(20 * 60)).await;
    works(&world, name).await;
}
