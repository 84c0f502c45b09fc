//! Request limits of a manager: 100 per second and 40 concurrent requests of a client, 199 concurrent requests of all
//! clients. Requests above the rate are rejected with 429, those above the concurrency with 503.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::refusal::Refusal;

const A_SECOND: usize = 100;
const AT_ONCE: u32 = 40;
const OVERALL: u32 = 199;

#[derive(Debug)]
pub(super) struct Limits {
    pub(super) are_on: bool,
    /// Times of the requests in the last second, by client.
    recent: BTreeMap<String, VecDeque<Instant>>,
    in_flight: BTreeMap<String, u32>,
    pub(super) all_in_flight: u32,
    pub(super) most_in_flight: u32,
    /// Highest number of concurrent requests of one client.
    pub(super) most_of_client: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            are_on: true,
            recent: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            all_in_flight: 0,
            most_in_flight: 0,
            most_of_client: 0,
        }
    }
}

impl Limits {
    /// Counts a request. It must [`Self::leave`] even if it is rejected.
    pub(super) fn enter(&mut self, client: &str) -> Result<(), Refusal> {
        let now = Instant::now();
        let of_client = self.in_flight.entry(client.to_owned()).or_default();
        *of_client += 1;
        self.all_in_flight += 1;
        self.most_of_client = self.most_of_client.max(*of_client);
        self.most_in_flight = self.most_in_flight.max(self.all_in_flight);
        let recent = self.recent.entry(client.to_owned()).or_default();
        while recent.front().is_some_and(|at| now - *at >= Duration::from_secs(1)) {
            recent.pop_front();
        }
        if self.are_on && self.all_in_flight > OVERALL {
            return Err(Refusal::new(503, None, format!("The system exceeded {OVERALL} concurrent requests.")));
        }
        if self.are_on && *of_client > AT_ONCE {
            let message = format!("Client '{client}' exceeded concurrent requests limit of {AT_ONCE}.");
            return Err(Refusal::new(503, None, message));
        }
        if self.are_on && recent.len() >= A_SECOND {
            let message = format!("Client '{client}' exceeded request rate of {A_SECOND} per second.");
            return Err(Refusal::throttled(message));
        }
        recent.push_back(now);
        Ok(())
    }

    pub(super) fn leave(&mut self, client: &str) {
        self.all_in_flight = self.all_in_flight.saturating_sub(1);
        if let Some(of_client) = self.in_flight.get_mut(client) {
            *of_client = of_client.saturating_sub(1);
        }
    }
}
