//! The daemon's answers about each node's machine. They distinguish "not deleted" from "not deleted yet".

use std::collections::BTreeMap;
use std::time::Duration;

use support::{ApiServer, Daemon, eventually};

use crate::admin::{Admin, token_of};

/// Log text for each answer of the provider.
const ANSWER: &str = "checked whether the VM exists";
/// Text of an answer that is a proof of absence.
pub const ABSENT: &str = "exists: absent,";
/// The daemon repeats an inconclusive proof after a pause that doubles. The proof itself may take 25 s.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the answers so far about the machine of the node with this name, each as a line of the log.
pub fn answers(daemon: &Daemon, name: &str) -> Vec<String> {
    let node = format!("node=\"{name}\"");
    let is_about = |line: &String| line.contains(ANSWER) && line.contains(&node);
    daemon.output().lines().into_iter().filter(is_about).collect()
}

/// Returns the name of the node in a line of the log.
fn node_of(line: &str) -> Option<&str> {
    line.split_once("node=\"")?.1.split('"').next()
}

/// Waits until the log has this many more answers about each of these nodes. Lines are counted as they arrive, because
/// the test drops the first lines of a long log.
pub async fn until_asked(daemon: &Daemon, names: &[String], more: usize) {
    let mut asked: BTreeMap<&str, usize> = names.iter().map(|name| (name.as_str(), 0)).collect();
    let mut position = 0;
    daemon.output().read_on(&mut position, |_| {});
    eventually(&format!("it is asked about each of {} nodes {more} times more", names.len()), LIMIT, async || {
        daemon.output().read_on(&mut position, |line| {
            let count = node_of(line).filter(|_| line.contains(ANSWER)).and_then(|name| asked.get_mut(name));
            count.into_iter().for_each(|count| *count += 1);
        });
        let left: Vec<_> = asked.iter().filter(|(_, count)| **count < more).take(5).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}\n{}", daemon.output().tail(40))) }
    })
    .await;
}

/// Reads the metrics of a daemon.
pub struct Metrics {
    admin: Admin,
    token: String,
}

impl Metrics {
    pub async fn new(server: &ApiServer) -> Self {
        Self { admin: Admin::new(), token: token_of(server).await }
    }

    /// Returns the flag for the daemon.
    pub fn flag(&self) -> String {
        self.admin.flag()
    }

    /// Returns the sum of a series, named with or without labels as in `/metrics`.
    pub async fn sum(&self, series: &str, daemon: &mut Daemon) -> f64 {
        self.admin.sum(series, &self.token, daemon).await
    }
}
