//! Tests of the order in which credentials are tried.

#![allow(clippy::cloned_ref_to_slice_refs, reason = "a list of one reads like a list of two")]

use secrecy::SecretString;

use super::*;
use crate::cloud::login_ledger::SecretVersion;
use crate::providers::vsphere::login::credentials::source::SourceLocation;
use crate::providers::vsphere::login::policy::LOGIN_POLICY;

fn pair(password: &str, origin: Origin) -> Arc<Credential> {
    let login = Login::Password { user: "ccm@vsphere.local".to_owned(), password: SecretString::from(password) };
    Arc::new(Credential { login, origin })
}

fn from_file(password: &str) -> Arc<Credential> {
    pair(password, Origin::Config)
}

fn from_secret(password: &str, resource_version: &str) -> Arc<Credential> {
    let location = SourceLocation::Secret { namespace: "kube-system".to_owned(), name: "vc".to_owned() };
    let version = SecretVersion { uid: "u-1".to_owned(), resource_version: resource_version.to_owned() };
    pair(password, Origin::Source { location, version: Some(version) })
}

const NOW: Duration = Duration::from_secs(1_000);
const MOMENT: Moment = Moment { since_start: NOW, wall: Timestamp::UNIX_EPOCH };

fn wrong() -> Rejection {
    Rejection { moment: MOMENT, reason: "wrong".to_owned(), min_pause: Duration::ZERO }
}

#[test]
fn a_process_that_counts_alone_pauses_for_as_long_as_it_is_told_at_least() {
    let (mut pairs, pair) = (LoginSchedule::new(LOGIN_POLICY), from_file("file"));
    let alone = || Rejection { min_pause: Duration::from_secs(200), ..wrong() };
    let pauses: Vec<u64> = (0..5).map(|_| pairs.rejected(&pair, Interface::Primary, alone(), 0.0).as_secs()).collect();
    assert_eq!(pauses, [200; 5], "the longest pause is the window");
    let (mut pairs, pause) = (LoginSchedule::new(LOGIN_POLICY), Duration::from_secs(250));
    assert_eq!(pairs.rejected(&pair, Interface::Primary, alone(), 1.0), pause, "with jitter");
    let blocked = pairs.blocked(&pair, Interface::Primary, NOW).unwrap();
    assert_eq!(
        blocked.what("vc"),
        "login to vc is paused until 1970-01-01T00:04:10Z, so that the account is not locked"
    );
}

#[test]
fn what_worked_is_tried_first_while_it_is_offered_and_last_when_it_is_not() {
    let (file, old, new) = (from_file("file"), from_secret("old", "1"), from_secret("new", "2"));
    assert_eq!(LoginSchedule::candidates(&[file.clone(), old.clone()], None), [file.clone(), old.clone()]);
    assert_eq!(LoginSchedule::candidates(&[file.clone(), old.clone()], Some(&old)), [old.clone(), file.clone()]);
    assert_eq!(LoginSchedule::candidates(&[file.clone(), new.clone()], Some(&old)), [file.clone(), new, old.clone()]);
    assert_eq!(
        LoginSchedule::candidates(&[], Some(&old)),
        [old.clone()],
        "a Secret that was deleted leaves what works"
    );
    let renamed = from_secret("old", "3");
    assert_eq!(
        LoginSchedule::candidates(&[renamed.clone()], Some(&old)),
        [renamed],
        "the same pair in a newer version"
    );
}

#[test]
fn a_new_offer_is_tried_and_the_same_pair_under_a_new_version_is_not() {
    let mut pairs = LoginSchedule::new(LOGIN_POLICY);
    let (old, new) = (from_secret("old", "1"), from_secret("new", "2"));
    assert_eq!(pairs.better(&[old.clone()], &old, NOW), Better::Nothing);
    assert_eq!(pairs.better(&[], &old, NOW), Better::Nothing);
    assert_eq!(pairs.better(&[new.clone()], &old, NOW), Better::Try(new));
    let renamed = from_secret("old", "3");
    assert_eq!(pairs.better(&[renamed.clone()], &old, NOW), Better::Same(renamed));
}

#[test]
fn what_was_rejected_waits_its_time_and_for_good_while_something_else_on_offer_works() {
    let mut pairs = LoginSchedule::new(LOGIN_POLICY);
    let (file, old, new) = (from_file("file"), from_secret("old", "1"), from_secret("new", "2"));
    let pause = pairs.rejected(&file, Interface::Primary, wrong(), 0.0);
    assert_eq!(pause, Duration::from_secs(70));
    assert_eq!(pairs.better(&[file.clone(), old.clone()], &old, NOW * 9), Better::Nothing);
    assert_eq!(pairs.better(&[file.clone(), new.clone()], &old, NOW), Better::Try(new));
    assert_eq!(pairs.better(&[file.clone()], &old, NOW), Better::NotBefore(NOW + pause));
    assert_eq!(pairs.better(&[file.clone()], &old, NOW + pause), Better::Try(file.clone()));
    // A newer version of a Secret with the same wrong pair has the same pause.
    let again = pairs.rejected(&file, Interface::Primary, wrong(), 0.0);
    assert_eq!(again, Duration::from_secs(140));
    assert!(pairs.blocked(&from_secret("file", "8"), Interface::Primary, NOW).is_some());
    assert!(pairs.blocked(&file, Interface::Rest, NOW).is_none());
    pairs.forget_others(&[old.clone()], Some(&old));
    assert!(pairs.blocked(&file, Interface::Primary, NOW).is_none());
}

#[test]
fn pairs_that_are_offered_no_longer_are_forgotten_while_a_session_lasts() {
    let mut pairs = LoginSchedule::new(LOGIN_POLICY);
    let mut in_use = from_secret("0", "0");
    for number in 1..100 {
        let new = from_secret(&number.to_string(), &number.to_string());
        assert_eq!(pairs.better(&[new.clone()], &in_use, NOW), Better::Try(new.clone()));
        pairs.accepted(&new, Interface::Primary);
        in_use = new;
        assert!(pairs.credentials.len() <= 2, "{}", pairs.credentials.len());
    }
    assert!(pairs.planned_login(&in_use, "vc:443").was_accepted);
}

#[test]
fn the_ledger_hears_what_is_known_of_a_pair() {
    let mut pairs = LoginSchedule::new(LOGIN_POLICY);
    let pair = from_secret("old", "1");
    let attempt = pairs.planned_login(&pair, "vc:443");
    assert_eq!((attempt.is_new, attempt.was_accepted, attempt.user.as_str()), (true, false, "ccm@vsphere.local"));
    assert_eq!(attempt.version.map(|version| version.resource_version).as_deref(), Some("1"));
    pairs.accepted(&pair, Interface::Primary);
    assert!(pairs.planned_login(&pair, "vc:443").was_accepted);
    pairs.rejected(&pair, Interface::Rest, wrong(), 0.0);
    let attempt = pairs.planned_login(&pair, "vc:443");
    assert_eq!((attempt.is_new, attempt.was_accepted), (false, false), "refused anywhere is refused");
    pairs.accepted(&pair, Interface::Primary);
    pairs.unanswered(&pair);
    assert!(!pairs.planned_login(&pair, "vc:443").was_accepted, "once without the budget, not more");
}

#[test]
fn what_is_offered_no_longer_is_tried_once_all_that_is_was_refused() {
    let mut pairs = LoginSchedule::new(LOGIN_POLICY);
    let [old, new, other] = ["old", "new", "other"].map(|password| from_secret(password, password));
    let offered = [new.clone(), other.clone()];
    pairs.accepted(&old, Interface::Primary);
    assert!(pairs.may_be_tried(&new, &offered) && pairs.may_be_tried(&old, std::slice::from_ref(&old)));
    assert!(pairs.may_be_tried(&old, &[]), "nothing is offered");
    let blocked = MOMENT.lockout(Duration::from_secs(190), "others were refused".to_owned());
    pairs.block(&new, Interface::Primary, blocked);
    assert!(!pairs.may_be_tried(&old, &offered), "the new one has to wait and may be right");
    pairs.rejected(&new, Interface::Primary, wrong(), 0.0);
    assert!(!pairs.may_be_tried(&old, &offered), "one more is offered");
    pairs.rejected(&other, Interface::Primary, wrong(), 0.0);
    assert!(pairs.may_be_tried(&old, &offered));
}

#[test]
fn logins_that_wait_for_the_sake_of_the_account_are_listed_and_can_be_released() {
    let mut pairs = LoginSchedule::new(LOGIN_POLICY);
    let (one, other) = (from_file("one"), from_file("other"));
    pairs.rejected(&one, Interface::Primary, wrong(), 0.0);
    pairs.block(&other, Interface::Rest, MOMENT.lockout(Duration::from_secs(190), "others were refused".to_owned()));
    pairs.block(&other, Interface::Primary, MOMENT.wait(Duration::from_secs(1), "one is under way".to_owned()));
    let listed = |pairs: &LoginSchedule, at| -> Vec<(bool, Interface, bool)> {
        let of = |paused: PausedLogin| (paused.credential == one, paused.interface, paused.is_of_rejection);
        pairs.paused(at).into_iter().map(of).collect()
    };
    assert_eq!(listed(&pairs, NOW), [(true, Interface::Primary, true), (false, Interface::Rest, false)]);
    assert_eq!(listed(&pairs, NOW + Duration::from_secs(70)), [(false, Interface::Rest, false)], "the first is over");
    let pause = |seconds| pairs.lockout(NOW + Duration::from_secs(seconds)).map(|pause| (pause.until, pause.cause));
    let until = Timestamp::from_second(190).unwrap();
    assert_eq!(pause(0), Some((until, "others were refused".to_owned())), "the one that ends last");
    assert_eq!((pause(189).is_some(), pause(190)), (true, None));
    pairs.release(&one, Interface::Primary);
    assert_eq!((pairs.blocked(&one, Interface::Primary, NOW), pairs.was_rejected(&one)), (None, false));
    assert_eq!(pairs.rejected(&one, Interface::Primary, wrong(), 0.0).as_secs(), 70, "it begins anew");
}

#[test]
fn a_lockout_says_until_when_and_how_to_end_it_and_a_wait_says_neither() {
    let pause = Duration::from_millis(200_400);
    let blocked = MOMENT.lockout(pause, "three logins failed".to_owned());
    let what = "login to vc as \"u\" is paused until 1970-01-01T00:03:20Z, so that the account is not locked";
    assert_eq!(blocked.what("vc as \"u\""), what);
    let reset = "kubectl -n kube-system delete lease x";
    for (is_of_secret, reset, expected) in [
        (
            true,
            Some(reset),
            "three logins failed. Another version of the Secret is tried at once, unless 3 logins have failed within 200 \
             s. To retry before that, after you have corrected the credentials or unlocked the account: run `kubectl \
             -n kube-system delete lease x`; every replica notices it within a minute",
        ),
        (
            false,
            None,
            "three logins failed. To retry before that, after you have corrected the credentials or unlocked the account: \
             restart this process",
        ),
    ] {
        assert_eq!(blocked.why(LOGIN_POLICY, is_of_secret, reset), expected);
    }
    // Replicas that start together wait for each other several times, 1 s each. The message is always the same.
    let waits = [MOMENT, Moment { since_start: NOW * 2, ..MOMENT }]
        .map(|moment| moment.wait(Duration::from_secs(1), "another login is under way".to_owned()))
        .map(|blocked| (blocked.what("vc"), blocked.why(LOGIN_POLICY, true, Some(reset))));
    assert_eq!(waits[0], ("login to vc waits".to_owned(), "another login is under way".to_owned()));
    assert_eq!(waits[0], waits[1]);
}
