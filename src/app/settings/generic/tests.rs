//! Tests of the general flags: their settings, and the values that are rejected.

use super::super::tests::settled;
use super::*;
use crate::app::pages;

fn generic(arguments: &[&str]) -> Generic {
    settled(arguments).unwrap_or_else(|errors| panic!("{arguments:?}: {errors}")).generic
}

// vectors: O-20, O-21
#[test]
fn o_20_o_21_status_updates_default_to_the_number_of_syncs() {
    let cases: [(&str, &[&str], usize); 4] = [
        ("O-20", &["--concurrent-node-syncs=1"], 1),
        ("O-21", &["--concurrent-node-syncs=1", "--concurrent-node-status-updates=2"], 2),
        ("0 is not given", &["--concurrent-node-syncs=5", "--concurrent-node-status-updates=0"], 5),
        ("ours", &[], 16),
    ];
    for (case, arguments, expected) in cases {
        assert_eq!(generic(arguments).concurrent_node_status_updates.get(), expected, "{case}");
    }
}

// vectors: O-25
#[test]
fn o_25_numbers_of_workers_are_checked() {
    let positive = "concurrent-node-syncs must be a positive number";
    let negative = "concurrent-node-status-updates cannot be a negative number";
    let cases: [(&[&str], Option<&str>); 6] = [
        (&[], None),
        (&["--concurrent-node-syncs=-5"], Some(positive)),
        (&["--concurrent-node-syncs=0"], Some(positive)),
        (&["--concurrent-node-syncs=5", "--concurrent-node-status-updates=0"], None),
        (&["--concurrent-node-syncs=5", "--concurrent-node-status-updates=5"], None),
        (&["--concurrent-node-syncs=5", "--concurrent-node-status-updates=-1"], Some(negative)),
    ];
    for (arguments, expected) in cases {
        let messages = settled(arguments).err().map(|errors| errors.to_string());
        assert_eq!(messages.is_some(), expected.is_some(), "{arguments:?}: {messages:?}");
        let reported = messages.unwrap_or_default();
        assert!(reported.ends_with(expected.unwrap_or_default()), "{arguments:?}: {reported}");
    }
}

/// This program has no webhooks. Names of webhooks are rejected (O-22). The webhook port is accepted, without effect.
// vectors: O-22, O-23
#[test]
fn o_22_o_23_webhooks_are_unknown_and_nothing_listens_for_them() {
    let messages =
        settled(&["--webhooks=webhook-a,-webhook-b", "--webhook-secure-port=10300"]).unwrap_err().to_string();
    for name in ["webhook-a", "webhook-b"] {
        assert!(
            messages.contains(&format!("--webhooks={name}: \"{name}\" is not in the list of known webhooks")),
            "{messages}"
        );
    }
    for arguments in [&[][..], &["--webhooks=*"], &["--webhook-secure-port=10300"], &["--webhook-secure-port=0"]] {
        assert!(settled(arguments).is_ok(), "{arguments:?}");
    }
}

#[test]
fn the_ports_differ_unless_there_is_no_webhook_port() {
    let same = "--webhook-secure-port=10260: --webhook-secure-port cannot be the same value as --secure-port";
    let messages = settled(&["--secure-port=10260"]).unwrap_err().to_string();
    assert!(messages.contains(same), "{messages}");
    assert!(settled(&["--secure-port=0", "--webhook-secure-port=0"]).is_ok());
    assert!(settled(&["--secure-port=10260", "--webhook-secure-port=10258"]).is_ok());
}

#[test]
fn pod_networks_are_one_or_one_of_each_family() {
    for value in ["", "1.2.3.4/24", "10.0.0.0/8,fd00::/64", "fd00::/64,10.0.0.0/8"] {
        assert!(settled(&[&format!("--cluster-cidr={value}")]).is_ok(), "{value}");
    }
    for value in ["10.0.0.0", "10.0.0.0/8,10.1.0.0/16", "10.0.0.0/8,fd00::/64,10.1.0.0/16", "10.0.0.0/33", "pods"] {
        let messages = settled(&[&format!("--cluster-cidr={value}")]).unwrap_err().to_string();
        assert!(messages.contains(&format!("--cluster-cidr={value}: expected ")), "{messages}");
    }
}

#[test]
fn gates_are_read_and_unlock_flags_of_the_log() {
    let [buffers, streams] = ["info-buffer-size", "split-stream"];
    for flag in [buffers, streams].map(|name| ["json", "text"].map(|format| format!("log-{format}-{name}"))).concat() {
        let value = if flag.ends_with("stream") { "true" } else { "1Ki" };
        let flag = format!("--{flag}={value}");
        let messages = settled(&[&flag]).unwrap_err().to_string();
        assert!(messages.contains(&format!("{flag}: Feature LoggingAlphaOptions is disabled")), "{messages}");
        // The flag may not fit the log format. That causes another mistake, which this test ignores.
        let reported = settled(&[&flag, "--feature-gates=LoggingAlphaOptions=true"]).err();
        let told = reported.map(|errors| errors.to_string()).unwrap_or_default();
        assert!(!told.contains("LoggingAlphaOptions"), "{told}");
    }
    assert!(settled(&["--log-text-split-stream=false", "--log-text-info-buffer-size=0"]).is_ok());
    assert!(settled(&["--feature-gates=NoSuchGate=true,WatchBookmark=false"]).is_ok());
    let told = settled(&["--feature-gates=NoSuchGate,WatchList=maybe"]).unwrap_err().to_string();
    assert!(told.contains("--feature-gates=NoSuchGate: missing bool value for NoSuchGate"), "{told}");
    assert!(told.contains("--feature-gates=WatchList=maybe: invalid value"), "{told}");
}

// vectors: O-14
#[test]
fn o_14_durations_are_taken_over() {
    let settings = settled(&[
        "--min-resync-period=100m",
        "--controller-start-interval=2m",
        "--leader-elect-lease-duration=30s",
        "--leader-elect-renew-deadline=15s",
        "--leader-elect-retry-period=5s",
    ])
    .unwrap();
    let page = (pages::all(&settings)[0].write)();
    assert!(page.contains("\"MinResyncPeriod\":\"1h40m0s\""), "{page}");
    assert_eq!(settings.generic.controller_start_interval, Duration::from_secs(120));
    let election = settings.election.unwrap();
    let times = [election.lease_duration, election.renew_deadline, election.retry_period];
    assert_eq!(times.map(|time| time.as_secs()), [30, 15, 5]);
}
