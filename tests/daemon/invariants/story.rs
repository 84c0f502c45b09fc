//! The last actions and processes of a random campaign, which a failed run prints.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use support::Daemon;
use support::supervisor::Output;

/// Numbers of actions, of processes, and of lines of each process that a failed run prints. All running processes are
/// printed, because the leader may be the oldest one.
const ACTIONS: usize = 60;
const PROCESSES: usize = 4;
const LINES: usize = 60;

/// The story of a campaign. It is printed if it is dropped by a failure.
pub struct Story {
    /// Number of actions so far.
    pub count: usize,
    began: Instant,
    actions: VecDeque<String>,
    outputs: VecDeque<(String, Output)>,
}

impl Story {
    /// Creates a story that begins now.
    pub fn new() -> Self {
        Self { count: 0, began: Instant::now(), actions: VecDeque::new(), outputs: VecDeque::new() }
    }

    /// Returns the time since the begin.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records the last action. `is_done` is false if the action did not apply.
    pub fn note(&mut self, action: &impl Debug, is_done: bool) {
        let outcome = if is_done { "" } else { " (nothing to do)" };
        let at = self.began.elapsed().as_secs_f32();
        self.actions.push_back(format!("{at:>7.2} s  #{} {action:?}{outcome}", self.count));
        self.actions.drain(..self.actions.len().saturating_sub(ACTIONS));
    }

    /// Records the start of a process.
    pub fn started(&mut self, name: &str, daemon: &Daemon) {
        self.outputs.push_back((name.to_owned(), daemon.output().clone()));
        let mut excess = self.outputs.len().saturating_sub(PROCESSES);
        self.outputs.retain(|(_, output)| {
            let is_dropped = excess > 0 && output.is_last();
            excess -= usize::from(is_dropped);
            !is_dropped
        });
    }

    /// Whether one of the last processes has logged this text.
    pub fn has_logged(&self, text: &str) -> bool {
        self.outputs.iter().any(|(_, output)| output.find(text).is_some())
    }

    /// Returns the last lines of the last processes.
    pub fn output(&self) -> String {
        let lines = |(name, output): &(String, Output)| format!("--- {name}\n{}", output.tail(LINES));
        self.outputs.iter().map(lines).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the last actions:\n{}", self.actions.make_contiguous().join("\n"));
            println!("the last lines of the last processes:\n{}", self.output());
        }
    }
}
