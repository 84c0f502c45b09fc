//! What the probes are told of a controller: whether its task runs, and whether its cache is filled.

use crate::kubernetes::stores::Nodes;
use crate::runtime::admin::{Checks, Health};
use crate::runtime::pulse::Pulse;
use std::time::Duration;

/// A task that was not given its turn for this long is stuck: it beats every 5 s.
const STUCK: Duration = Duration::from_secs(60);

/// Adds the checks of a controller under its name. Its work is to be done with the pulse.
///
/// In `/healthz` it fails when its task is stuck, where a restart helps, and in `/readyz` also while the Nodes have not
/// been listed. A controller that waits, for its leadership or for work, is well.
pub fn watch(checks: &Checks, name: &'static str, nodes: &Nodes) -> Pulse {
    let pulse = Pulse::default();
    let (running, nodes) = (pulse.clone(), nodes.clone());
    checks.add_health(name, move || of_task(running.silence()));
    let running = pulse.clone();
    checks.add_readiness(name, move || match of_task(running.silence()) {
        Health::Ok if !nodes.is_ready() => Health::Failed("the nodes have not been listed yet".to_owned()),
        health => health,
    });
    pulse
}

fn of_task(silence: Option<Duration>) -> Health {
    match silence {
        // Without the seconds: a reason that changes is told anew.
        Some(silence) if silence > STUCK => Health::Failed("the controller loop made no progress for 60 s".to_owned()),
        _ => Health::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w_83_a_task_that_is_stuck_fails_and_one_that_has_not_begun_does_not() {
        let failed = Health::Failed("the controller loop made no progress for 60 s".to_owned());
        for (silence, expected) in [(None, Health::Ok), (Some(60), Health::Ok), (Some(61), failed)] {
            assert_eq!(of_task(silence.map(Duration::from_secs)), expected, "{silence:?}");
        }
    }
}
