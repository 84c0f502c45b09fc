//! Tests of the limits for deletions, and of the evidence for an orphan.

use super::*;
use crate::cloud::{AbsenceProof, Unknown, reason};
use serde_json::{Value, json};

fn names(count: usize) -> BTreeSet<Box<str>> {
    (0..count).map(|number| format!("ns/{number:04}").into()).collect()
}

fn listed(count: usize) -> Vec<Box<str>> {
    names(count).into_iter().collect()
}

#[test]
fn a_suspect_is_due_when_a_reading_ten_minutes_later_has_it_too() {
    let (mut orphans, now) = (Orphans::default(), Instant::now());
    assert_eq!((orphans.update(names(0), now), orphans.next_list()), (vec![], None));
    assert_eq!(orphans.update(names(2), now), listed(0));
    assert_eq!(orphans.next_list(), Some(now + CONFIRM_INTERVAL));
    // One suspect is absent in the next reading, so its time starts again.
    assert_eq!(orphans.update(names(1), now + CONFIRM_INTERVAL / 2), listed(0));
    assert_eq!(orphans.update(names(2), now + CONFIRM_INTERVAL), listed(1));
    assert_eq!(orphans.update(names(2), now + CONFIRM_INTERVAL * 2), listed(2));
    assert_eq!(orphans.update(names(0), now + CONFIRM_INTERVAL * 2), listed(0));
    assert_eq!(orphans.next_list(), None);
}

#[test]
fn few_are_deleted_in_ten_minutes() {
    for (all, most) in [(1, 5), (50, 5), (100, 10), (1000, 100)] {
        let (mut orphans, now) = (Orphans::default(), Instant::now());
        let Some(first) = orphans.decide(listed(most), all, now) else { panic!("{all}") };
        assert_eq!(first.len(), most, "{all}");
        first.iter().for_each(|_| orphans.deleted(now));
        let later = now + WINDOW - Duration::from_secs(1);
        assert_eq!(orphans.decide(listed(3), all, later), Some(vec![]), "{all}");
        assert_eq!(orphans.decide(listed(3), all, now + WINDOW), Some(listed(3)), "{all}");
    }
}

#[test]
fn when_many_are_found_at_once_none_is_deleted_for_a_while() {
    for (all, few) in [(5, 5), (25, 5), (100, 20)] {
        let (mut orphans, now) = (Orphans::default(), Instant::now());
        assert!(orphans.decide(listed(few), all, now).is_some(), "{all}");
        let many = listed(few + 1);
        assert_eq!(orphans.decide(many.clone(), all, now), None, "{all}");
        let later = now + HOLD - Duration::from_secs(1);
        assert_eq!(orphans.decide(many.clone(), all, later), None, "{all}");
        assert!(orphans.decide(many.clone(), all, now + HOLD).is_some(), "{all}");
        // A reading with fewer suspects ends the hold.
        assert!(orphans.decide(listed(1), all, now + HOLD).is_some(), "{all}");
        assert_eq!(orphans.decide(many, all, now + HOLD), None, "{all}");
    }
}

#[test]
fn many_suspects_of_one_reading_are_news_once_in_a_term() {
    for (suspects, all, expected) in
        [(5, 5, false), (6, 6, true), (6, 59, true), (6, 60, false), (10, 100, false), (11, 100, true), (0, 0, false)]
    {
        let mut orphans = Orphans::default();
        assert_eq!(orphans.are_many(suspects, all), expected, "{suspects} of {all}");
        assert!(!orphans.are_many(suspects, all), "{suspects} of {all}: once");
        orphans.begin_term();
        assert_eq!(orphans.are_many(suspects, all), expected, "{suspects} of {all}: another term");
    }
}

#[test]
fn what_is_not_deleted_at_once_is_looked_at_again() {
    let (mut orphans, now) = (Orphans::default(), Instant::now());
    orphans.update(names(8), now);
    orphans.update(names(8), now + CONFIRM_INTERVAL);
    let (of_few, later) = (listed(7), now + CONFIRM_INTERVAL);
    assert!(matches!(orphans.decide(of_few.clone(), 40, later), Some(some) if some.len() == 5));
    assert_eq!(orphans.next_list(), Some(later + WINDOW));
    assert_eq!(orphans.decide(of_few, 5, later), None);
    assert_eq!(orphans.next_list(), Some(later + HOLD));
    orphans.update(names(0), later);
    assert_eq!(orphans.next_list(), None);
}

#[test]
fn one_that_is_found_later_does_not_defer_the_first() {
    let (mut orphans, now) = (Orphans::default(), Instant::now());
    orphans.update(names(1), now);
    orphans.update(names(2), now + CONFIRM_INTERVAL / 2);
    assert_eq!(orphans.next_list(), Some(now + CONFIRM_INTERVAL));
    assert_eq!(orphans.update(names(2), now + CONFIRM_INTERVAL), listed(1));
    assert_eq!(orphans.next_list(), Some(now + CONFIRM_INTERVAL / 2 + CONFIRM_INTERVAL));
}

#[test]
fn what_fails_comes_last_and_waits_longer_each_time() {
    let (mut orphans, now) = (Orphans::default(), Instant::now());
    orphans.update(names(7), now);
    orphans.update(names(7), now + CONFIRM_INTERVAL);
    let mut at = now + CONFIRM_INTERVAL;
    for pause in [1, 2, 4, 8, 16, 30, 30] {
        listed(5).iter().for_each(|service| orphans.failed(service, at));
        let next = at + Duration::from_secs(pause * 60);
        assert_eq!(orphans.next_list(), Some(next));
        let before = next - Duration::from_secs(1);
        assert_eq!(orphans.decide(listed(5), 100, before), Some(vec![]));
        let Some(services) = orphans.decide(listed(7), 50, next) else { panic!("they are few") };
        let expected: Vec<Box<str>> = [5, 6, 0, 1, 2].map(|number| listed(7)[number].clone()).into();
        assert_eq!(services, expected);
        at = next;
        orphans.update(names(7), at);
        orphans.decide(listed(1), 100, at);
    }
    orphans.begin_term();
    assert_eq!(orphans.next_list(), None);
    assert_eq!(orphans.update(names(7), at), listed(0), "another term begins anew");
}

#[test]
fn only_a_live_answer_is_a_proof() {
    let service = |value: Value| Presence::Exists(serde_json::from_value(value).unwrap());
    let finalizer = json!({"finalizers": [service::FINALIZER]});
    for (live, expected) in [
        (Presence::Absent(AbsenceProof::new("no Service of this name", [])), true),
        (Presence::Unknown(Unknown::new(reason::APIServerUnavailable, "no answer")), false),
        (service(json!({"spec": {"type": "LoadBalancer"}})), false),
        (service(json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "x/y"}})), false),
        (service(json!({"metadata": finalizer, "spec": {"type": "ClusterIP"}})), false),
        (service(json!({"spec": {"type": "ClusterIP"}})), true),
    ] {
        assert_eq!(is_certain(&live), expected, "{live:?}");
    }
}
