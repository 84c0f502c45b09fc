//! The suites about sequences, crashes, safety, faults and adoption on managers that behave in another way. A process has one
//! behaviour, so that each run is a process of its own.

mod nightly {
    use std::process::Command;

    use support::fake_nsx::BEHAVIOUR_VARIABLE;

    const SUITES: [&str; 5] = ["sequences::", "crash::", "safety::", "faults::", "adopted::"];

    /// Tests that say which requests there are in the usual way: pages, batches and deletions differ.
    const OF_REQUESTS: [&str; 6] = [
        "sequences::seq_07",
        "sequences::seq_08",
        "safety::a_pool_that_is_deleted_while_the_nodes_change",
        "safety::l_01",
        "faults::a_pool_that_the_account_may_not_write",
        "faults::a_stale_revision",
    ];

    /// With pages of 7 objects, no batches, usage that lags, and allocations that show their address.
    const NOT_OPPOSITE: [&str; 12] = [
        "sequences::seq_01",
        "sequences::seq_12",
        "sequences::seq_13",
        "sequences::each_port_needs_room",
        "sequences::a_full_load_balancer_service",
        "safety::many_syncs_at_the_start",
        "safety::a_retry_does_not_count_the_room",
        "safety::what_is_read_without_a",
        "faults::a_manager_without_requests_for_several_objects",
        "faults::one_fault_at_any_call",
        "adopted::an_allocation_of_ours_beside",
        "adopted::a_half_made_one",
    ];

    /// With deleted objects that keep others from being deleted until a purge after five minutes. A process that ends between
    /// two deletions of one sync leaves its successor a refusal that passes with the purge.
    const NOT_THIRD: [&str; 5] = [
        "sequences::seq_05",
        "sequences::many_deletions_at_once",
        "safety::l_04",
        "safety::one_listing_that_misses",
        "crash::",
    ];

    fn hold(behaviour: &str, left_out: &[&str]) {
        let mut run = Command::new(std::env::current_exe().unwrap());
        run.args(SUITES.map(|suite| format!("load_balancers::{suite}"))).env(BEHAVIOUR_VARIABLE, behaviour);
        for test in OF_REQUESTS.iter().chain(left_out) {
            run.args(["--skip", &format!("load_balancers::{test}")]);
        }
        let output = run.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{behaviour}: {text}");
        assert!(!text.contains(" 0 passed"), "{behaviour}: no test ran");
    }

    #[test]
    fn the_suites_hold_with_the_opposite_behaviour() {
        hold("opposite", &NOT_OPPOSITE);
    }

    #[test]
    fn the_suites_hold_with_the_third_behaviour() {
        hold("third", &NOT_THIRD);
    }
}
