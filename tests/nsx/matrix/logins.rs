//! The same faults during a login.

use std::time::Duration;

use ccm::clients::nsx::Kind;
use support::LoginOutcome;
use support::fake_nsx::{Behaviour, Trouble};

use super::{Mode, behaving, error, html, only_own_changes, prove_all, scene, unused, works};
use crate::world::{GATEWAY, advance};

type LoginRow = (&'static str, fn() -> Trouble, Kind, Count);

/// Effect of such a login on the manager's count of rejections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    /// No effect: the answer shows that the manager has not checked the credentials.
    Nothing,
    /// Possibly a rejection.
    Rejection,
}

/// Returns the results of calls while each login fails in this way.
fn rows() -> Vec<LoginRow> {
    use Count::{Nothing, Rejection};
    use Kind::{Busy, Rejected, Unavailable, Unknown};
    vec![
        ("429", || Trouble::throttled().into(), Busy, Nothing),
        ("503", || Trouble::overloaded().into(), Busy, Nothing),
        ("503 with 101", || Trouble::components_down().into(), Busy, Nothing),
        ("500 with 98", || Trouble::starting().into(), Unavailable, Nothing),
        ("302 to a login page", || Trouble::login_redirect().into(), Unavailable, Nothing),
        ("500 with 607", || Trouble::aborted().into(), Busy, Nothing),
        ("500", || error(500, None), Unavailable, Nothing),
        ("502", || html(502), Unavailable, Rejection),
        ("200 of a portal", || Trouble::portal().into(), Unavailable, Rejection),
        ("401", || error(401, Some(401)), Rejected, Rejection),
        ("403", || error(403, Some(403)), Rejected, Rejection),
        ("closed without an answer", || Trouble::Drop, Unknown, Rejection),
        ("answer lost", || Trouble::Lose, Unknown, Rejection),
        ("no answer", || Trouble::Hang, Unknown, Rejection),
        ("too late", || Trouble::Late(Duration::from_secs(4)), Unknown, Rejection),
        ("no session in the answer", || Trouble::answer(200, "application/json", "").into(), Unavailable, Rejection),
    ]
}

/// A certificate needs no login.
const MODES: [Mode; 6] = [Mode::Session, Mode::Proxied, Mode::Remote, Mode::Basic, Mode::Prefix, Mode::Token];

/// Returns the operation of a login at the manager.
fn operation(mode: Mode) -> &'static str {
    match mode {
        Mode::Session | Mode::Proxied | Mode::Remote | Mode::Certificate => "session create",
        Mode::Basic | Mode::Prefix => "LIST sites",
        Mode::Token => "token authorize",
    }
}

/// The exchange of a token cannot lock an account. Therefore a lost answer counts as no answer, and the token service
/// is not treated as an NSX Manager.
fn expected(kind: Kind, name: &str, mode: Mode) -> Kind {
    match (mode, kind) {
        (Mode::Token, Kind::Unknown) => Kind::Unavailable,
        (Mode::Token, Kind::Busy) if name == "500 with 607" => Kind::Unavailable,
        (_, kind) => kind,
    }
}

#[test]
fn a_login_that_fails_locks_no_account_and_succeeds_when_the_trouble_is_over() {
    let modes = |row: LoginRow| MODES.map(|mode| (row.clone(), mode));
    // The token service has a time limit of 30 s.
    let is_possible = |((name, ..), mode): &(LoginRow, Mode)| *mode != Mode::Token || *name != "too late";
    prove_all(behaving(rows().into_iter().flat_map(modes).filter(is_possible)), prove);
}

async fn prove((((name, trouble, kind, count), mode), (manager, behaviour)): ((LoginRow, Mode), (&str, Behaviour))) {
    let kind = expected(kind, name, mode);
    let name = format!("{name}, {mode:?}, {manager}");
    let name = name.as_str();
    // If each request is a login, the first one is tested. Otherwise a later login is tested, after a successful one.
    let world = if mode.is_basic() { unused(behaviour, mode).await } else { scene(behaviour, mode).await };
    let seen = world.nsx.history().len();
    world.nsx.kill_sessions();
    world.nsx.revoke_tokens();
    world.nsx.reset_counts();
    world.nsx.every(operation(mode), trouble());
    let Err(first) = world.list().await else { panic!("{name}: {:?}", world.nsx.counts()) };
    assert_eq!(first.kind, kind, "{name}: {first}");
    // Calls continue during the fault.
    for _ in 0..10 {
        let result = world.get(GATEWAY).await.unwrap_err();
        let is_held = ["login to NSX", "the next login is in"].iter().any(|text| result.to_string().contains(text));
        assert!(result.kind == kind || is_held, "{name}: {result}");
        assert!(!matches!(result.kind, Kind::NotFound | Kind::MissingReference(_)), "{name}: {result}");
    }
    let logins = world.nsx.counts().of(operation(mode));
    assert!((1..=2).contains(&logins), "{name}: calls do not make a login each: {:?}", world.nsx.counts());
    let attempts = world.nsx.login_attempts();
    let is_against = |outcome| matches!(outcome, LoginOutcome::Rejected | LoginOutcome::Unanswered);
    let against = attempts.iter().filter(|attempt| is_against(attempt.outcome)).count();
    assert!(against < 5, "{name}: {against} of {attempts:?}");
    assert!(!world.nsx.is_locked(world.nsx.user()), "{name}");
    let is_rejected = attempts.iter().any(|attempt| attempt.outcome == LoginOutcome::Rejected);
    assert_eq!(is_rejected, kind == Kind::Rejected && mode != Mode::Token, "{name}");
    only_own_changes(&world, seen, name);
    world.nsx.clear();
    // The ledger keeps a possible rejection for 15 minutes. A rejected password is tried again after a pause of up to
    // this time. The exchange of a token cannot lock an account.
    let is_counted = count == Count::Rejection && mode != Mode::Token;
    advance(Duration::from_secs(if is_counted { 20 * 60 } else { 60 })).await;
    works(&world, name).await;
}
