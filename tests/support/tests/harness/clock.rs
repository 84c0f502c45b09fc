//! Tests of the wall clock of one process.

use std::time::{SystemTime, UNIX_EPOCH};

use support::{Clock, Daemon, eventually, unique};

use crate::LIMIT;

/// Shell command that prints repeatedly its own clock and the clock of a child process.
const TELLS: &str = "while :; do printf '%(%s)T ' -1; date +%s; sleep 0.05; done";

/// Returns the difference to the clock of this process, from the last line.
fn ahead(daemon: &Daemon) -> Option<(i64, i64)> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let lines = daemon.output().lines();
    let (own, child) = lines.last()?.split_once(' ')?;
    Some((own.parse::<i64>().ok()? - now, child.parse::<i64>().ok()? - now))
}

#[tokio::test]
async fn the_clock_of_one_process_jumps_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new(folder.path());
    clock.set_ahead(600);
    let daemon = Daemon::start_with("/bin/bash", ["-c", TELLS], &clock.environment());
    let other = Daemon::start("/bin/bash", ["-c", TELLS]);
    for wanted in [600, -3600, 0, 86_400] {
        clock.set_ahead(wanted);
        eventually(&format!("its clock is {wanted} s ahead"), LIMIT, async || match ahead(&daemon) {
            // A line may have been read late.
            Some((own, child)) if (wanted - own).abs() < 30 && (wanted - child).abs() < 30 => Ok(()),
            told => Err(format!("{told:?}; its last lines:\n{}", daemon.output().tail(3))),
        })
        .await;
    }
    let told = eventually("the other one tells its clock", LIMIT, async || ahead(&other).ok_or("not yet")).await;
    assert!(told.0.abs() < 30 && told.1.abs() < 30, "its clock is right: {told:?}");
}

#[tokio::test]
async fn a_clock_whose_file_is_missing_ends_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new(folder.path());
    let [preload, (name, _)] = clock.environment();
    let mut daemon = Daemon::start_with("/bin/bash", ["-c", TELLS], &[preload, (name, &unique("/nowhere"))]);
    assert_eq!(daemon.wait(LIMIT).await.code(), Some(125), "{}", daemon.output().tail(3));
}
