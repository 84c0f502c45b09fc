//! The requests in their order, and their counts (rule S16).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::fake_server::http::Request;

/// Number of requests that are kept. Of older ones only the counts are kept.
const KEPT: usize = 100_000;

/// Number of requests that are kept with headers and body.
const KEPT_WHOLE: usize = 10_000;

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its number in the order of all requests.
    pub number: u64,
    /// Time of its arrival.
    pub at: Instant,
    /// The user of its credentials, or its source address.
    pub user: String,
    /// Operation, such as `PATCH static-routes`, `LIST lb-pools` or `session create`.
    pub operation: String,
    /// The manager of the cluster that received it.
    pub manager: usize,
    /// Port of the client, which distinguishes its connections.
    pub client_port: u16,
    /// The HTTP method.
    pub method: String,
    /// Path and query as received.
    pub path: String,
    /// Status of its answer. `None` if there is no answer yet, or the answer was not sent.
    pub status: Option<u16>,
    /// Time that the manager itself worked on it.
    pub busy: Duration,
    /// Headers with lower-case names, of the last 10,000 requests only.
    pub headers: Vec<(String, String)>,
    /// Body, of the last 10,000 requests only.
    pub body: String,
}

impl Recorded {
    /// Returns the value of a header, named in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns its body as JSON, or `null`.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// Counts of operations and of their results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NsxCounts {
    /// Requests by operation.
    pub operations: BTreeMap<String, u32>,
    /// Requests by user and operation.
    pub users: BTreeMap<String, BTreeMap<String, u32>>,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u32>,
    /// Sessions that are currently open.
    pub sessions: usize,
    /// Highest number of sessions that were open at the same time.
    pub most_sessions: usize,
    /// Requests that are currently in flight.
    pub in_flight: u32,
    /// Highest number of concurrent requests of all clients.
    pub most_in_flight: u32,
    /// Highest number of concurrent requests of one client.
    pub most_of_client: u32,
    /// Bytes of request bodies.
    pub bytes_received: u64,
    /// Bytes of answer bodies.
    pub bytes_sent: u64,
    /// Total delay of requests by `FakeNsx::delay_calls`.
    pub delayed: Duration,
    /// Total time that the manager itself worked on requests.
    pub busy: Duration,
}

impl NsxCounts {
    /// Returns the number of requests of this operation.
    #[must_use]
    pub fn of(&self, operation: &str) -> u32 {
        self.operations.get(operation).copied().unwrap_or(0)
    }

    /// Returns the number of requests of this operation by this user.
    #[must_use]
    pub fn of_user(&self, user: &str, operation: &str) -> u32 {
        self.users.get(user).and_then(|operations| operations.get(operation)).copied().unwrap_or(0)
    }

    /// Returns the number of all requests.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.operations.values().sum()
    }

    /// Returns the number of answers with this status.
    #[must_use]
    pub fn answered(&self, status: u16) -> u32 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }
}

/// The requests so far. Each has a number that does not change when older requests are dropped.
#[derive(Debug, Default)]
pub(super) struct Records {
    requests: VecDeque<Recorded>,
    next: u64,
    pub(super) counts: NsxCounts,
}

impl Records {
    /// Returns the requests with this number or a later one.
    pub(super) fn from(&self, number: u64) -> Vec<Recorded> {
        let first = self.requests.partition_point(|request| request.number < number);
        self.requests.range(first..).cloned().collect()
    }

    /// Counts a request, and returns its number.
    pub(super) fn begin(&mut self, user: &str, operation: &str, manager: usize, request: &Request) -> u64 {
        *self.counts.operations.entry(operation.to_owned()).or_default() += 1;
        let of_user = self.counts.users.entry(user.to_owned()).or_default();
        *of_user.entry(operation.to_owned()).or_default() += 1;
        if self.requests.len() == KEPT {
            self.requests.pop_front();
        }
        let number = self.next;
        self.next += 1;
        self.requests.push_back(Recorded {
            number,
            at: tokio::time::Instant::now().into_std(),
            user: user.to_owned(),
            operation: operation.to_owned(),
            manager,
            client_port: request.client_port,
            method: request.method.clone(),
            path: request.path.clone(),
            status: None,
            busy: Duration::ZERO,
            headers: request.headers.clone(),
            body: request.body.clone(),
        });
        self.counts.bytes_received += request.body.len() as u64;
        if let Some(index) = self.requests.len().checked_sub(KEPT_WHOLE + 1) {
            let old = &mut self.requests[index];
            (old.headers, old.body) = (Vec::new(), String::new());
        }
        number
    }

    pub(super) fn end(&mut self, number: u64, status: Option<u16>, busy: Duration) {
        self.counts.busy += busy;
        if let Some(status) = status {
            *self.counts.statuses.entry(status).or_default() += 1;
        }
        let oldest = self.next - self.requests.len() as u64;
        let index = number.checked_sub(oldest).and_then(|index| usize::try_from(index).ok());
        if let Some(request) = index.and_then(|index| self.requests.get_mut(index)) {
            (request.status, request.busy) = (status, busy);
        }
    }

    /// Resets the counts. Requests keep their numbers.
    pub(super) fn reset(&mut self) {
        self.requests.clear();
        self.counts = NsxCounts::default();
    }
}
