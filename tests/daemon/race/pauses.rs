//! Pauses of deletions during the race: a command asks a random replica for each, also one that is frozen or killed
//! meanwhile. From the acknowledgement to the end, no replica may send a deletion of a Node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use support::AuditEvent;
use tokio::time::interval;

use crate::commands::{CommandResult, ask_process};

/// Interval between two commands, and unit of the times between them.
const PACE: Duration = Duration::from_secs(1);
/// Longest time without a pause, and longest time between an acknowledgement and the end by a command, in seconds.
const LONGEST: u64 = 5;
/// The shortest length of a pause.
const LENGTH: Duration = Duration::from_secs(60);
/// A pause that ends by itself needs this much time, with its acknowledgement.
const EXPIRY: Duration = Duration::from_secs(90);
/// The limit of a command. An acknowledgement takes 12 s.
const COMMAND_LIMIT: &str = "--timeout=25s";
/// Limit for the end of the last pause.
const LAST_RESUME: Duration = Duration::from_secs(120);
/// Start of the `User-Agent` of each replica.
const PROGRAM: &str = "vsphere-cloud-controller-manager/";
/// The annotation with the end of a pause.
const UNTIL: &str = "vsphere-ccm.dev/deletions-paused-until";

/// The process ids of the replicas, which change during the race.
#[derive(Clone, Default)]
pub struct ReplicaProcesses(Arc<Mutex<Vec<u32>>>);

impl ReplicaProcesses {
    /// Sets the process ids.
    pub fn set(&self, processes: Vec<u32>) {
        *self.lock() = processes;
    }

    fn any(&self, random: &mut Rng) -> Option<u32> {
        let processes = self.lock();
        (!processes.is_empty()).then(|| processes[random.usize(..processes.len())])
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An acknowledged pause.
#[derive(Clone, Copy, Debug)]
pub struct PauseWindow {
    /// Time after the acknowledgement.
    pub acknowledged: Timestamp,
    /// Time before the command that ended it, or the time at which it ended by itself.
    pub ended: Timestamp,
}

/// The pauses of a race.
#[derive(Debug, Default)]
pub struct Pauses {
    /// The acknowledged pauses.
    pub windows: Vec<PauseWindow>,
    /// Number of pauses without an acknowledgement, because the replica was frozen or killed. Nothing was promised.
    pub unacknowledged: usize,
    /// Number of pauses that ended by themselves.
    pub expired: usize,
}

/// Pauses deletions again and again until `until`. In the end, deletions are not paused.
pub async fn campaign(leases: Api<Lease>, replicas: &ReplicaProcesses, seed: u64, until: Instant) -> Pauses {
    let mut random = Rng::with_seed(seed);
    let mut pauses = Pauses::default();
    while Instant::now() < until {
        wait(random.u64(1..=LONGEST)).await;
        let Some(process) = replicas.any(&mut random) else { continue };
        let order = ["deletions", "pause", "--for=1m", "--because=the race", COMMAND_LIMIT];
        let CommandResult { code, .. } = ask_process(process, &order).await;
        let acknowledged = Timestamp::now();
        if code != Some(0) {
            pauses.unacknowledged += 1;
            resume(replicas, &mut random, until).await;
            continue;
        }
        let left = until.saturating_duration_since(Instant::now());
        let end = end_of_pause(&leases).await.expect("an acknowledged pause is on the Lease");
        let ended = if left > EXPIRY && random.u8(..3) == 0 {
            pauses.expired += 1;
            wait(LENGTH.as_secs()).await;
            end
        } else {
            wait(random.u64(1..=LONGEST)).await;
            let ended = Timestamp::now().min(end);
            resume(replicas, &mut random, until).await;
            ended
        };
        pauses.windows.push(PauseWindow { acknowledged, ended });
    }
    pauses
}

/// Ends the pause through any replica that answers.
async fn resume(replicas: &ReplicaProcesses, random: &mut Rng, until: Instant) {
    let limit = until.max(Instant::now()) + LAST_RESUME;
    let mut pace = interval(PACE);
    loop {
        pace.tick().await;
        let process = replicas.any(random).expect("there are replicas");
        let CommandResult { code, output, messages } =
            ask_process(process, &["deletions", "resume", "--timeout=5s"]).await;
        if code == Some(0) {
            return;
        }
        assert!(Instant::now() < limit, "no replica ends the pause: {code:?} {output}{messages}");
    }
}

async fn end_of_pause(leases: &Api<Lease>) -> Option<Timestamp> {
    let lease = leases.get("vsphere-ccm-deletions").await.unwrap();
    lease.metadata.annotations?.get(UNTIL)?.parse().ok()
}

/// Waits for this many seconds.
async fn wait(seconds: u64) {
    let mut pace = interval(PACE);
    for _ in 0..=seconds {
        pace.tick().await;
    }
}

impl Pauses {
    /// Checks that no deletion of a Node by a replica arrived within an acknowledged pause. Returns the number of
    /// deletions that arrived at other times.
    pub fn check(&self, log: &[AuditEvent]) -> usize {
        let deletions: Vec<&AuditEvent> = log.iter().filter(|event| is_deletion_by_replica(event)).collect();
        for window in &self.windows {
            let is_late = |event: &&&AuditEvent| event.received > window.acknowledged && event.received < window.ended;
            let late: Vec<_> = deletions.iter().filter(is_late).collect();
            assert!(late.is_empty(), "deletions in an acknowledged pause, {window:?}: {late:#?}");
        }
        deletions.len()
    }
}

fn is_deletion_by_replica(event: &AuditEvent) -> bool {
    let is_node = event.object_ref.resource == "nodes" && event.object_ref.api_group.is_empty();
    is_node && event.verb.starts_with("delete") && event.user_agent.starts_with(PROGRAM)
}
