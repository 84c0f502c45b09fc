//! The suites about sequences, crashes, safety, faults and adoption, on managers with other behaviours. A process has
//! one behaviour, so each run is a separate process.

use std::process::Command;

use support::fake_nsx::BEHAVIOUR_VARIABLE;

const SUITES: [&str; 5] = ["sequences::", "safety::", "faults::", "adoption::", CRASH];

/// This suite takes minutes with deletions that NSX refuses for five minutes.
const CRASH: &str = "crash::";

/// Tests to skip for each switch in an unusual position. They expect an exact number of requests, or a result that only
/// the usual position allows.
const LEFT_OUT: [(&str, &[&str]); 6] = [
    // A list takes one more request, for its last page.
    (
        "last_cursor",
        &[
            "sequences::seq_01",
            "sequences::seq_07",
            "sequences::seq_08",
            "sequences::seq_12",
            "sequences::seq_13",
            "safety::many_syncs_at_the_start",
            "safety::what_is_read_without_a",
            "faults::a_manager_without_requests_for_several_objects",
            "faults::a_stale_revision",
        ],
    ),
    // Pools are written one by one, after a rejected request for several pools.
    (
        "hierarchical_patch",
        &["sequences::seq_08", "faults::a_pool_that_the_account_may_not_write", "faults::a_stale_revision"],
    ),
    // A deletion is repeated until the purge, and its object exists until then.
    (
        "marked_objects_refer",
        &["sequences::seq_05", "sequences::seq_07", "sequences::many_deletions_at_once", "safety::l_04"],
    ),
    // The state of a changed virtual server takes one more request.
    ("shows_intent_version", &["sequences::seq_04"]),
    // The usage is stale, so that a full load balancer service is noticed only when NSX rejects a creation.
    ("usage_lag", &["sequences::a_full_load_balancer_service"]),
    (
        "usage_comes_late",
        &[
            "sequences::a_full_load_balancer_service",
            "sequences::each_port_needs_room",
            "safety::a_retry_does_not_count_the_room",
        ],
    ),
];

/// Switches of [`Behaviour::THIRD`](support::fake_nsx::Behaviour::THIRD) in an unusual position, as in [`LEFT_OUT`].
const OF_THIRD: [&str; 2] = ["hierarchical_patch", "marked_objects_refer"];

/// Runs suites with this behaviour. `switches` are its keys in [`LEFT_OUT`], and `least` is the minimum number of
/// tests.
fn hold(behaviour: &str, suites: &[&str], switches: &[&str], least: usize) {
    let mut run = Command::new(std::env::current_exe().unwrap());
    run.args(suites.iter().map(|suite| format!("load_balancers::{suite}"))).env(BEHAVIOUR_VARIABLE, behaviour);
    for test in LEFT_OUT.iter().filter(|(switch, _)| switches.contains(switch)).flat_map(|(_, tests)| *tests) {
        run.args(["--skip", &format!("load_balancers::{test}")]);
    }
    let output = run.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{behaviour}: {text}");
    let passed = text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ok")).count();
    assert!(passed >= least, "{behaviour}: {passed} tests ran");
    for suite in suites {
        assert!(text.contains(&format!("load_balancers::{suite}")), "{behaviour}: no test of {suite} ran");
    }
}

#[test]
fn the_suites_hold_with_the_opposite_behaviour() {
    hold("opposite", &SUITES, &LEFT_OUT.map(|(switch, _)| switch), 40);
}

#[test]
fn the_suites_hold_with_the_third_behaviour() {
    hold("third", &SUITES[..4], &OF_THIRD, 40);
}

/// Each test takes most of a minute, mainly for waits.
mod nightly {
    use support::fake_nsx::Behaviour;

    use super::{CRASH, OF_THIRD, SUITES, hold};

    #[test]
    fn an_end_at_any_write_leaves_nothing_with_the_third_behaviour() {
        hold("third", &[CRASH], &OF_THIRD, 4);
    }

    fn every_fourth_switch(from: usize) {
        let switches = Behaviour::each();
        assert!(switches.len() > 30);
        for (switch, _) in switches.iter().skip(from).step_by(4) {
            hold(switch, &SUITES, &[switch], 40);
        }
    }

    #[test]
    fn the_suites_hold_with_each_switch_alone_1() {
        every_fourth_switch(0);
    }

    #[test]
    fn the_suites_hold_with_each_switch_alone_2() {
        every_fourth_switch(1);
    }

    #[test]
    fn the_suites_hold_with_each_switch_alone_3() {
        every_fourth_switch(2);
    }

    #[test]
    fn the_suites_hold_with_each_switch_alone_4() {
        every_fourth_switch(3);
    }
}
