//! Tests which logins are allowed, case by case.

use super::*;

/// The login policy of vSphere.
const POLICY: LoginPolicy = LoginPolicy { scope: "", window: Duration::from_secs(200), budget: 3, budget_alone: 1 };

fn version(number: &str) -> SecretVersion {
    SecretVersion { uid: "u-1".to_owned(), resource_version: number.to_owned() }
}

fn attempt() -> PlannedLogin {
    PlannedLogin {
        policy: POLICY,
        server: "vc:443".to_owned(),
        user: "ccm@vsphere.local".to_owned(),
        version: None,
        was_accepted: false,
        is_new: true,
    }
}

fn of_version(number: &str) -> PlannedLogin {
    PlannedLogin { version: Some(version(number)), ..attempt() }
}

/// One entry: age in seconds, state, whether it is of this server, and its attempt.
struct Case(u64, EntryState, bool, PlannedLogin);

fn decided(cases: &[Case], attempt: &PlannedLogin) -> Result<(), LoginRefusal> {
    decided_by(cases, attempt, true)
}

fn decided_by(cases: &[Case], attempt: &PlannedLogin, is_shared: bool) -> Result<(), LoginRefusal> {
    let entries: Vec<Entry> = cases
        .iter()
        .map(|Case(_, state, _, made)| Entry { state: *state, ..Entry::claim("id".to_owned(), 0, made) })
        .collect();
    let aged: Vec<AgedEntry<'_>> = cases
        .iter()
        .zip(&entries)
        .map(|(Case(age, _, is_here, _), entry)| {
            let age = Duration::from_secs(*age);
            let relation = if *is_here { ServerRelation::SameServer } else { ServerRelation::SameProduct };
            AgedEntry { entry, age, relation }
        })
        .collect();
    decide(&aged, is_shared, attempt, 0.0)
}

fn waits(decision: &Result<(), LoginRefusal>) -> u64 {
    decision.as_ref().map_or_else(|refused| refused.pause.as_secs(), |()| 0)
}

#[test]
fn three_that_count_in_the_window_make_the_next_one_wait_until_the_oldest_has_left_it() {
    use EntryState::{Claimed, Rejected, Unanswered};
    let other = || PlannedLogin { is_new: false, ..attempt() };
    let table: Vec<(&str, Vec<Case>, PlannedLogin, u64)> = vec![
        ("nothing happened", vec![], attempt(), 0),
        ("two rejections", vec![Case(1, Rejected, true, other()), Case(2, Rejected, true, other())], attempt(), 0),
        (
            "three rejections",
            vec![
                Case(150, Rejected, true, other()),
                Case(20, Rejected, true, other()),
                Case(90, Rejected, true, other()),
            ],
            attempt(),
            80,
        ),
        (
            "the same at other servers",
            vec![
                Case(20, Rejected, false, other()),
                Case(90, Rejected, false, other()),
                Case(150, Rejected, true, other()),
            ],
            attempt(),
            80,
        ),
        (
            "three lost answers here cannot be five rejections",
            vec![
                Case(120, Unanswered, true, other()),
                Case(130, Claimed, true, other()),
                Case(140, Unanswered, true, other()),
            ],
            attempt(),
            0,
        ),
        (
            "one of them was rejected",
            vec![
                Case(120, Unanswered, true, other()),
                Case(130, Claimed, true, other()),
                Case(140, Rejected, false, other()),
            ],
            attempt(),
            60,
        ),
        (
            "four lost answers here",
            vec![
                Case(120, Unanswered, true, other()),
                Case(130, Claimed, true, other()),
                Case(140, Unanswered, true, other()),
                Case(150, Unanswered, true, other()),
            ],
            attempt(),
            50,
        ),
        (
            "lost answers elsewhere",
            vec![
                Case(120, Unanswered, false, other()),
                Case(130, Claimed, false, other()),
                Case(140, Unanswered, false, other()),
            ],
            attempt(),
            0,
        ),
        (
            "logins under way elsewhere may still be rejected",
            vec![
                Case(12, Claimed, false, other()),
                Case(13, Claimed, false, other()),
                Case(14, Claimed, false, other()),
            ],
            attempt(),
            RECHECK_AFTER.as_secs(),
        ),
        (
            "one under way elsewhere beside three lost answers here",
            vec![
                Case(12, Claimed, false, other()),
                Case(80, Unanswered, true, other()),
                Case(81, Unanswered, true, other()),
                Case(82, Unanswered, true, other()),
            ],
            attempt(),
            RECHECK_AFTER.as_secs(),
        ),
        (
            "one under way here: it will tell whether the pair is right",
            vec![Case(3, Claimed, true, other())],
            attempt(),
            RECHECK_AFTER.as_secs(),
        ),
        ("one that takes long does not hold up the next", vec![Case(11, Claimed, true, other())], attempt(), 0),
    ];
    for (name, cases, attempt, expected) in table {
        assert_eq!(waits(&decided(&cases, &attempt)), expected, "{name}");
    }
}

#[test]
fn a_process_that_counts_alone_makes_one_attempt_in_the_window_and_one_at_a_time() {
    use EntryState::{Claimed, Rejected, Unanswered};
    let known = || PlannedLogin { was_accepted: true, is_new: false, ..attempt() };
    let look_again = RECHECK_AFTER.as_secs();
    for (case, cases, made, expected) in [
        ("nothing happened", vec![], attempt(), 0),
        ("one was rejected", vec![Case(30, Rejected, true, attempt())], attempt(), 170),
        ("elsewhere", vec![Case(30, Rejected, false, attempt())], attempt(), 170),
        ("of another version", vec![Case(30, Rejected, true, of_version("7"))], of_version("8"), 170),
        ("not answered", vec![Case(30, Unanswered, true, attempt())], attempt(), 170),
        ("not answered elsewhere", vec![Case(30, Unanswered, false, attempt())], attempt(), 0),
        ("long ago", vec![Case(200, Rejected, true, attempt())], attempt(), 0),
        ("one under way", vec![Case(60, Claimed, true, attempt())], attempt(), look_again),
        ("one whose answer was lost", vec![Case(80, Claimed, true, attempt())], attempt(), 120),
        ("a known pair, and nothing happened", vec![], known(), 0),
        ("a known pair after a rejection", vec![Case(30, Rejected, true, attempt())], known(), 170),
        ("a known pair beside one under way", vec![Case(1, Claimed, false, known())], known(), look_again),
        ("a known pair beside one that hangs", vec![Case(11, Claimed, false, known())], known(), look_again),
        ("again and again", (0..5).map(|n| Case(250 + 300 * n, Rejected, true, attempt())).collect(), attempt(), 50),
    ] {
        assert_eq!(waits(&decided_by(&cases, &made, false)), expected, "{case}");
    }
}

#[test]
fn a_version_of_a_secret_that_was_rejected_is_not_repeated_early_and_a_new_one_is_not_held_for_it() {
    let rejected = |age, number| Case(age, EntryState::Rejected, false, of_version(number));
    assert_eq!(waits(&decided(&[rejected(10, "7")], &of_version("7"))), 60);
    assert_eq!(waits(&decided(&[rejected(10, "7"), rejected(90, "7")], &of_version("7"))), 130);
    assert_eq!(waits(&decided(&[rejected(10, "7"), rejected(90, "7")], &of_version("8"))), 0);
    let many: Vec<Case> = (0..9).map(|number| rejected(250 + 300 * number, "7")).collect();
    assert_eq!(waits(&decided(&many, &of_version("7"))), 30 * 60 - 250);
    assert_eq!(waits(&decided(&many, &of_version("8"))), 0);
}

#[test]
fn without_a_version_the_pauses_grow_and_a_pair_that_may_be_another_one_waits_five_minutes_at_most() {
    let rejections = |count: u64| -> Vec<Case> {
        (0..count).map(|number| Case(250 + 300 * number, EntryState::Rejected, true, attempt())).collect()
    };
    let again = PlannedLogin { is_new: false, ..attempt() };
    let pauses: Vec<u64> = (3..9).map(|count| waits(&decided(&rejections(count), &again))).collect();
    assert_eq!(pauses, [0, 0, 150, 550, 1350, 1550]);
    assert_eq!(waits(&decided(&rejections(9), &attempt())), 50);
    let lost: Vec<Case> =
        (0..9).map(|number| Case(250 + 300 * number, EntryState::Unanswered, true, attempt())).collect();
    assert_eq!(waits(&decided(&lost, &again)), 50, "a server that only loses answers is asked every five minutes");
}

#[test]
fn what_was_accepted_waits_within_the_window_and_for_no_growing_pause() {
    use EntryState::{Claimed, Rejected, Unanswered};
    let known = PlannedLogin { was_accepted: true, is_new: false, ..attempt() };
    let known_of = |number| PlannedLogin { was_accepted: true, ..of_version(number) };
    let of = |state, ages: &[u64], made: &PlannedLogin| -> Vec<Case> {
        ages.iter().map(|age| Case(*age, state, true, made.clone())).collect()
    };
    let an_hour = [10, 610, 1_210, 1_810, 2_410, 3_010];
    for (case, cases, made, expected) in [
        ("two were rejected", of(Rejected, &[9, 10], &attempt()), &known, 0),
        ("three were rejected", of(Rejected, &[9, 10, 150], &attempt()), &known, 50),
        ("the oldest has left the window", of(Rejected, &[9, 10, 200], &attempt()), &known, 0),
        ("three were not answered", of(Unanswered, &[9, 10, 150], &attempt()), &known, 0),
        ("four were not answered", of(Unanswered, &[9, 10, 11, 150], &attempt()), &known, 50),
        ("another login is under way", of(Claimed, &[1], &attempt()), &known, RECHECK_AFTER.as_secs()),
        ("rejected for an hour", of(Rejected, &an_hour, &attempt()), &known, 0),
        ("its version was rejected", of(Rejected, &[9], &of_version("7")), &known_of("7"), 61),
        ("its version was rejected for an hour", of(Rejected, &an_hour, &of_version("7")), &known_of("7"), 190),
        ("its version was rejected before", of(Rejected, &[200, 800], &of_version("7")), &known_of("7"), 0),
    ] {
        assert_eq!(waits(&decided(&cases, made)), expected, "{case}");
    }
}

#[test]
fn an_accepted_login_forgets_lost_answers_and_old_rejections_of_its_version() {
    const NOW: i64 = 1_000;
    let clock = Clock { time: NOW, margin: Duration::from_secs(30) };
    let entry =
        |id: &str, age, state, made: &PlannedLogin| Entry { state, ..Entry::claim(id.to_owned(), NOW - age, made) };
    let all = || Record {
        entries: vec![
            entry("unanswered", 5, EntryState::Unanswered, &attempt()),
            entry("unanswered of 7", 5, EntryState::Unanswered, &of_version("7")),
            entry("lost", 105, EntryState::Claimed, &attempt()),
            entry("lost of 7", 105, EntryState::Claimed, &of_version("7")),
            entry("under way of 7", 104, EntryState::Claimed, &of_version("7")),
            entry("rejected", 229, EntryState::Rejected, &attempt()),
            entry("rejected of 7", 229, EntryState::Rejected, &of_version("7")),
            entry("rejected long ago", 230, EntryState::Rejected, &attempt()),
            entry("rejected of 7 long ago", 230, EntryState::Rejected, &of_version("7")),
        ],
    };
    let left = |version: Option<SecretVersion>| -> Vec<String> {
        let mut record = all();
        record.accept(version.as_ref(), clock, POLICY.window);
        record.entries.into_iter().map(|entry| entry.id).collect()
    };
    let rejections = ["rejected", "rejected of 7"];
    assert_eq!(
        left(None),
        [&["under way of 7"], &rejections[..], &["rejected of 7 long ago"]].concat(),
        "the server's answers were lost whatever pair it was, and a rejection is of its pair"
    );
    let others = ["unanswered", "lost", "under way of 7"];
    assert_eq!(left(Some(version("7"))), [&others[..], &rejections[..], &["rejected long ago"]].concat());
    assert_eq!(left(Some(version("8"))).len(), 9);
}

#[test]
fn attempts_that_are_gone_from_a_record_were_deleted_unless_it_is_full() {
    let entries = |count| (0..count).map(|n| Entry::claim(format!("id-{n}"), 0, &attempt())).collect();
    let record = |count| Record { entries: entries(count) };
    let ids = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
    assert!(record(0).has_lost(&ids(&["gone"])) && record(3).has_lost(&ids(&["gone", "too"])));
    assert!(!record(3).has_lost(&ids(&["gone", "id-1"])) && !record(3).has_lost(&[]));
    assert!(!record(MAX_ENTRIES).has_lost(&ids(&["gone"])));
    assert!(!record(16).has_lost(&ids(&["gone"])), "the version before kept sixteen");
}

#[test]
fn jitter_makes_a_pause_longer_and_never_shorter() {
    let entry = Entry { state: EntryState::Rejected, ..Entry::claim("id".to_owned(), 0, &of_version("7")) };
    let aged = [AgedEntry { entry: &entry, age: Duration::ZERO, relation: ServerRelation::SameServer }];
    for (random, expected) in [(0.0, 70_000), (0.5, 78_750), (1.0, 87_500)] {
        let refused = decide(&aged, true, &of_version("7"), random).unwrap_err();
        assert!(refused.is_lockout);
        assert_eq!(refused.pause.as_millis(), expected);
    }
}

#[test]
fn a_record_is_bounded_survives_a_round_trip_and_holds_nothing_of_a_password() {
    let mut record = Record::default();
    for number in 0..100 {
        record.put(Entry::claim(format!("id-{number}"), number, &of_version("7")));
    }
    assert_eq!(record.entries.len(), MAX_ENTRIES);
    assert_eq!(record.entries.first().map(|entry| entry.at), Some(76), "the youngest stay");
    assert_eq!(Record::from_text(&record.to_text()), record);
    for text in ["", "{", "null", "[]", "{\"entries\":3}", "{\"entries\":[{\"id\":1}]}"] {
        assert_eq!(Record::from_text(text), Record::default(), "{text}");
    }
    let one = Record { entries: vec![Entry::claim("id-1".to_owned(), 5, &attempt())] };
    assert_eq!(one.to_text(), r#"{"entries":[{"id":"id-1","at":5,"state":"claimed"}]}"#);
    // Other replicas read these field names. Their version of this program may be different.
    let one = Record { entries: vec![Entry::claim("id-1".to_owned(), 5, &of_version("7"))] };
    assert_eq!(
        one.to_text(),
        r#"{"entries":[{"id":"id-1","at":5,"state":"claimed","uid":"u-1","resourceVersion":"7"}]}"#
    );
}

/// A record in the form that the version before writes.
const RECORD_BEFORE: &str = concat!(
    r#"{"entries":[{"id":"8ec7","at":1900000000,"state":"rejected","known":true,"uid":"u-1","resourceVersion":"7"},"#,
    r#"{"id":"91b2","at":1900000012,"state":"unanswered"},"#,
    r#"{"id":"c04f","at":1900000031,"state":"claimed","known":true,"pod":"ccm-0","start":"5e1f"}],"#,
    r#""accepted":{"at":1899999400,"uid":"u-1","resourceVersion":"7"}}"#
);

#[test]
fn a_record_of_the_version_before_is_read_with_all_its_entries() {
    let entry = |id: &str, at, state, made: &PlannedLogin| Entry { state, ..Entry::claim(id.to_owned(), at, made) };
    let claimed = entry("c04f", 1_900_000_031, EntryState::Claimed, &attempt());
    let entries = vec![
        entry("8ec7", 1_900_000_000, EntryState::Rejected, &of_version("7")),
        entry("91b2", 1_900_000_012, EntryState::Unanswered, &attempt()),
        Entry { pod: Some("ccm-0".to_owned()), start: Some("5e1f".to_owned()), ..claimed },
    ];
    assert_eq!(Record::from_text(RECORD_BEFORE), Record { entries });
}

#[test]
fn a_date_in_the_far_future_is_replaced_and_a_plausible_one_is_kept() {
    let dates = [1_000, 1_000 + MAX_AHEAD, 1_001 + MAX_AHEAD, i64::MAX];
    let entries = dates.iter().map(|at| Entry::claim(at.to_string(), *at, &attempt())).collect();
    let mut record = Record { entries };
    record.correct_dates(1_000);
    let corrected: Vec<i64> = record.entries.iter().map(|entry| entry.at).collect();
    assert_eq!(corrected, [1_000, 1_000 + MAX_AHEAD, 1_000, 1_000]);
}

#[test]
fn the_age_of_an_entry_is_shorter_by_the_margin_and_never_negative() {
    let clock = Clock { time: 1_000, margin: Duration::from_secs(30) };
    for (at, age) in [(1_000, 0), (971, 0), (970, 0), (960, 10), (1_200, 0), (i64::MAX, 0), (0, 970)] {
        assert_eq!(clock.age(&Entry::claim("id".to_owned(), at, &attempt())).as_secs(), age, "{at}");
    }
    assert_eq!(clock.date(Duration::from_millis(2_900)), 998);
}

#[test]
fn another_product_has_its_own_budget_and_pauses() {
    let policy = LoginPolicy { scope: "nsx", window: Duration::from_secs(15 * 60), budget: 2, budget_alone: 1 };
    let of = |made: PlannedLogin| PlannedLogin { policy, is_new: false, ..made };
    let rejected = |ages: &[u64], made: &PlannedLogin| -> Vec<Case> {
        ages.iter().map(|age| Case(*age, EntryState::Rejected, true, made.clone())).collect()
    };
    let (any, seventh) = (of(attempt()), of(of_version("7")));
    assert_eq!(waits(&decided(&rejected(&[800], &any), &any)), 0);
    let LoginRefusal { pause, reason: why, is_lockout } = decided(&rejected(&[700, 800], &any), &any).unwrap_err();
    assert!(is_lockout);
    assert_eq!((pause.as_secs(), why.as_str()), (100, "logins were rejected or not answered 2 times within 900 s"));
    assert_eq!(
        waits(&decided(&rejected(&[700, 800], &any), &PlannedLogin { was_accepted: true, ..any.clone() })),
        100,
        "within the window also with a pair that was accepted"
    );
    assert_eq!(waits(&decided(&rejected(&[10], &seventh), &seventh)), 305, "7/20 of the window");
    assert_eq!(waits(&decided_by(&rejected(&[300], &any), &any, false)), 600, "alone: one in the window");
    let two = PlannedLogin { policy: LoginPolicy { budget_alone: 2, ..policy }, ..any.clone() };
    assert_eq!(waits(&decided_by(&rejected(&[300], &any), &two, false)), 0, "alone: two in the window");
    let LoginRefusal { pause, reason: why, .. } = decided_by(&rejected(&[300, 500], &any), &two, false).unwrap_err();
    let expected = "logins were rejected or not answered 2 times within 900 s, and the replicas cannot count together";
    assert_eq!((pause.as_secs(), why.as_str()), (400, expected));
}

/// Decides about `attempt` after attempts with these ages and states at another product.
fn decided_for_sum(cases: &[(u64, EntryState)], attempt: &PlannedLogin, is_shared: bool) -> Result<(), LoginRefusal> {
    let entries: Vec<Entry> =
        cases.iter().map(|(_, state)| Entry { state: *state, ..Entry::claim("id".to_owned(), 0, attempt) }).collect();
    let aged: Vec<AgedEntry<'_>> = cases
        .iter()
        .zip(&entries)
        .map(|((age, _), entry)| {
            let age = Duration::from_secs(*age);
            AgedEntry { entry, age, relation: ServerRelation::OtherProduct }
        })
        .collect();
    decide(&aged, is_shared, attempt, 0.0)
}

#[test]
fn of_another_product_rejections_count_within_the_products_own_window_and_lost_answers_do_not() {
    use EntryState::{Claimed, Rejected, Unanswered};
    let vcenter = PlannedLogin { is_new: false, ..attempt() };
    let policy = LoginPolicy { scope: "nsx", window: Duration::from_secs(15 * 60), budget: 3, budget_alone: 1 };
    let nsx = PlannedLogin { policy, ..vcenter.clone() };
    let of_secret = |made: &PlannedLogin| PlannedLogin { version: Some(version("7")), ..made.clone() };
    let rejected = |ages: &[u64]| -> Vec<(u64, EntryState)> { ages.iter().map(|age| (*age, Rejected)).collect() };
    let look_again = RECHECK_AFTER.as_secs();
    for (case, cases, [at_nsx, at_vcenter]) in [
        ("two", rejected(&[10, 20]), [0, 0]),
        ("three", rejected(&[10, 20, 150]), [750, 50]),
        ("one is older than the shorter window", rejected(&[10, 20, 200]), [700, 0]),
        ("older than both", rejected(&[900, 901, 902, 903, 904, 905, 906]), [0, 0]),
        ("in the longer window", rejected(&[300, 400, 500, 600, 700, 800, 890]), [400, 0]),
        ("lost answers", vec![(80, Unanswered), (81, Unanswered), (82, Unanswered), (83, Claimed)], [0, 0]),
        ("under way", vec![(12, Claimed), (13, Claimed), (14, Claimed)], [look_again, look_again]),
        (
            "one under way beside lost answers",
            vec![(80, Unanswered), (81, Unanswered), (82, Unanswered), (12, Claimed)],
            [0, 0],
        ),
        ("two under way", vec![(12, Claimed), (13, Claimed)], [0, 0]),
    ] {
        for (product, made, expected) in [("nsx", &nsx, at_nsx), ("vcenter", &vcenter, at_vcenter)] {
            assert_eq!(waits(&decided_for_sum(&cases, made, true)), expected, "{case}: {product}");
            // The same pause applies to a version of a Secret, which may hold other credentials for this product.
            assert_eq!(waits(&decided_for_sum(&cases, &of_secret(made), true)), expected, "{case}: {product}: secret");
        }
    }
    let LoginRefusal { reason: why, .. } = decided_for_sum(&rejected(&[10, 20, 150]), &vcenter, true).unwrap_err();
    assert_eq!(
        why,
        "logins were rejected or not answered three times within 200 s, those of the same user name at another product included"
    );
    assert_eq!(waits(&decided_for_sum(&rejected(&[300]), &nsx, false)), 600, "alone");
    assert_eq!(waits(&decided_for_sum(&rejected(&[300]), &vcenter, false)), 0, "alone");
}
