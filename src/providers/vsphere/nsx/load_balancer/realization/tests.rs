//! Tests of the times of reads, and of their results.

use super::*;

const SERVER: &str = "/infra/lb-virtual-servers/a";
const OTHER: &str = "/infra/lb-virtual-servers/b";

fn after(began: Instant, seconds: u64) -> Instant {
    began + Duration::from_secs(seconds)
}

fn read(paths: &[&str]) -> NextCheck {
    NextCheck::Read(paths.iter().map(|path| (*path).into()).collect())
}

fn shown(effects: &[(&str, Effect)]) -> BTreeMap<Box<str>, Effect> {
    effects.iter().map(|(path, effect)| ((*path).into(), effect.clone())).collect()
}

#[test]
fn written_objects_are_read_four_times_within_thirty_seconds() {
    let began = Instant::now();
    let mut rollout = Rollout::new(began);
    assert_eq!(rollout.due(began), NextCheck::Complete);
    rollout.written(SERVER, None, began);
    for (seconds, pause) in [(1, 2), (3, 7), (10, 20)] {
        assert_eq!(rollout.due(after(began, seconds)), read(&[SERVER]));
        rollout.note(shown(&[(SERVER, Effect::Open)]), after(began, seconds));
        assert_eq!(rollout.due(after(began, seconds)), NextCheck::Wait(Duration::from_secs(pause)));
    }
    assert!(rollout.unconfirmed().is_empty());
    rollout.note(shown(&[(SERVER, Effect::Open)]), after(began, 30));
    assert_eq!(rollout.due(after(began, 30)), NextCheck::Complete, "NSX has not said otherwise");
    assert_eq!(rollout.unconfirmed().iter().map(AsRef::as_ref).collect::<Vec<&str>>(), [SERVER]);
    rollout.expect(SERVER);
    assert_eq!(rollout.due(after(began, 31)), NextCheck::Complete, "it is not read again");
    rollout.written(SERVER, None, after(began, 40));
    assert_eq!(rollout.due(after(began, 40)), NextCheck::Wait(Duration::from_secs(1)), "before the next write");
    assert!(rollout.unconfirmed().is_empty());
}

#[test]
fn a_rewritten_object_is_judged_by_its_revision() {
    let failed = || Realization::Failed("x".to_owned());
    let error = || Effect::Error("x".to_owned());
    let unversioned = RevisionStatus::Unversioned;
    for (status, seconds, expected) in [
        (RevisionStatus::Known(Realization::Realized), 1, Effect::Realized),
        (RevisionStatus::Known(Realization::Pending), 30, Effect::Open),
        (RevisionStatus::Known(failed()), 1, error()),
        (RevisionStatus::Older(2, Realization::Realized), 10, Effect::Open),
        (RevisionStatus::Older(2, Realization::Realized), 30, Effect::Open),
        (RevisionStatus::Older(2, failed()), 10, Effect::Open),
        (RevisionStatus::Older(2, failed()), 30, error()),
        (unversioned(Realization::Realized), 2, Effect::Open),
        (unversioned(Realization::Realized), 3, Effect::Realized),
        (unversioned(failed()), 2, Effect::Open),
        (unversioned(failed()), 3, error()),
    ] {
        let age = Duration::from_secs(seconds);
        assert_eq!(Effect::of(status.clone(), age, age), expected, "{status:?} after {seconds} s");
    }
    let late = Effect::of(unversioned(Realization::Realized), Duration::from_secs(1), Duration::from_secs(3));
    assert_eq!(late, Effect::Open, "a slow answer is about the moment at which it was asked for");
    let began = Instant::now();
    let mut rollout = Rollout::new(began);
    rollout.written(SERVER, Some(3), began);
    rollout.written(OTHER, None, began);
    assert_eq!((rollout.revision(SERVER), rollout.revision(OTHER)), (Some(3), None));
    rollout.written(SERVER, Some(4), began);
    assert_eq!(rollout.revision(SERVER), Some(4));
    rollout.removed(SERVER);
    assert_eq!((rollout.revision(SERVER), rollout.age(after(began, 7)).as_secs()), (None, 7));
}

#[test]
fn a_realized_object_is_not_read_again() {
    let began = Instant::now();
    let mut rollout = Rollout::new(began);
    [SERVER, OTHER].iter().for_each(|path| rollout.written(path, None, began));
    rollout.note(shown(&[(SERVER, Effect::Realized), (OTHER, Effect::Open)]), after(began, 1));
    rollout.expect(SERVER);
    assert_eq!(rollout.due(after(began, 3)), read(&[OTHER]));
    rollout.note(shown(&[(OTHER, Effect::Unreadable)]), after(began, 3));
    assert_eq!((rollout.due(after(began, 3)), rollout.is_over()), (NextCheck::Complete, false));
    rollout.removed(OTHER);
    assert!(rollout.is_over());
}

#[test]
fn an_error_is_read_again_with_pauses_up_to_five_minutes() {
    let began = Instant::now();
    let mut rollout = Rollout::new(began);
    rollout.written(SERVER, None, began);
    let (mut now, mut pauses) = (after(began, 1), Vec::new());
    for _ in 0..7 {
        rollout.note(shown(&[(SERVER, Effect::Error("no edge cluster".to_owned()))]), now);
        let NextCheck::Errors(errors, pause) = rollout.due(now) else { panic!("{rollout:?}") };
        assert_eq!(errors, BTreeMap::from([(SERVER.into(), "no edge cluster".to_owned())]));
        pauses.push(pause.as_secs());
        now += pause;
        assert_eq!(rollout.due(now), read(&[SERVER]));
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300]);
    rollout.note(shown(&[(SERVER, Effect::Realized)]), now);
    assert_eq!((rollout.due(now), rollout.is_over()), (NextCheck::Complete, true));
}

#[test]
fn deleted_servers_are_read_every_two_seconds_at_first_and_five_minutes_at_most() {
    let began = Instant::now();
    let mut teardown = PendingTeardown::new(began);
    assert_eq!((teardown.due(began), teardown.until_purge(began)), (NextCheck::Complete, None));
    teardown.deleted(SERVER, began);
    teardown.deleted_any(began);
    let realized = || BTreeSet::from([SERVER.into()]);
    let (mut now, mut times) = (began, Vec::new());
    loop {
        match teardown.due(now) {
            NextCheck::Wait(pause) => now += pause,
            NextCheck::Read(paths) => {
                assert_eq!(paths, [SERVER.into()]);
                times.push(now.saturating_duration_since(began).as_secs());
                teardown.note(realized(), now);
            }
            due => break assert_eq!(due, NextCheck::Complete),
        }
    }
    let first: Vec<u64> = (1..=10).map(|number| 2 * number).collect();
    let later: Vec<u64> = (0..=18).map(|number| 35 + 15 * number).take_while(|seconds| *seconds < 320).collect();
    assert_eq!(times, [first, later].concat());
    assert_eq!(teardown.left(), realized());
    assert_eq!(teardown.until_purge(after(began, 359)), Some(TEARDOWN_PAUSE));
    assert_eq!(teardown.until_purge(after(began, 360)), None);
}

#[test]
fn what_another_process_may_have_deleted_is_read_at_once_and_once() {
    let began = Instant::now();
    let mut teardown = PendingTeardown::new(began);
    teardown.expect(SERVER);
    assert_eq!(teardown.due(began), read(&[SERVER]));
    teardown.note(BTreeSet::new(), began);
    teardown.expect(SERVER);
    assert_eq!(teardown.due(began), NextCheck::Complete);
    teardown.expect(OTHER);
    teardown.give_up();
    teardown.expect(OTHER);
    assert_eq!((teardown.due(after(began, 2)), teardown.left().len()), (NextCheck::Complete, 1));
    teardown.deleted(SERVER, after(began, 2));
    assert_eq!(
        teardown.due(after(began, 2)),
        NextCheck::Wait(FIRST_TEARDOWN_PAUSE),
        "it was made again, and deleted again"
    );
}

#[test]
fn an_error_of_one_object_is_reported_when_the_others_are_decided() {
    let began = Instant::now();
    let mut rollout = Rollout::new(began);
    [SERVER, OTHER].iter().for_each(|path| rollout.written(path, None, began));
    let failed = || (SERVER, Effect::Error("no".to_owned()));
    rollout.note(shown(&[failed(), (OTHER, Effect::Open)]), after(began, 1));
    assert_eq!(
        rollout.due(after(began, 1)),
        NextCheck::Wait(Duration::from_secs(2)),
        "the other address is not in effect yet"
    );
    rollout.note(shown(&[failed(), (OTHER, Effect::Open)]), after(began, 3));
    rollout.note(shown(&[failed(), (OTHER, Effect::Realized)]), after(began, 10));
    let errors = BTreeMap::from([(SERVER.into(), "no".to_owned())]);
    assert_eq!(rollout.due(after(began, 10)), NextCheck::Errors(errors, FIRST_ERROR_PAUSE));
    // The errors of the previous state do not apply to the new write.
    rollout.written(SERVER, None, after(began, 12));
    assert_eq!(rollout.due(after(began, 12)), NextCheck::Wait(Duration::from_secs(1)));
}
