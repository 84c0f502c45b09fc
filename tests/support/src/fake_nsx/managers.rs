//! A cluster of managers behind one address. They share one store of objects. A session belongs to the manager that
//! created it.

use std::collections::BTreeSet;

use super::refusal::Refusal;

/// The manager to which the address sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Each request goes to the next manager, without affinity.
    InTurn,
    /// All requests go to this manager, as with a virtual IP on one manager.
    To(usize),
}

/// The managers. One manager receives all requests, unless the model changes that.
#[derive(Clone, Debug)]
pub(super) struct Managers {
    count: usize,
    balance: Balance,
    /// Number of requests so far.
    requests: usize,
    failing: BTreeSet<usize>,
}

impl Default for Managers {
    fn default() -> Self {
        Self { count: 1, balance: Balance::To(0), requests: 0, failing: BTreeSet::new() }
    }
}

impl Managers {
    /// Makes this many managers, which receive requests in turn.
    pub(super) fn in_turn(count: usize) -> Self {
        Self { count: count.max(1), balance: Balance::InTurn, ..Self::default() }
    }

    pub(super) fn set_balance(&mut self, balance: Balance) {
        self.balance = balance;
    }

    pub(super) fn set_failing(&mut self, manager: usize, is_failing: bool) {
        if is_failing {
            self.failing.insert(manager);
        } else {
            self.failing.remove(&manager);
        }
    }

    pub(super) fn next(&mut self) -> usize {
        self.requests += 1;
        match self.balance {
            Balance::InTurn => (self.requests - 1) % self.count,
            Balance::To(manager) => manager,
        }
    }

    /// Returns an error if this manager serves no requests.
    pub(super) fn serve(&self, manager: usize) -> Result<(), Refusal> {
        if self.failing.contains(&manager) { Err(Refusal::components_down()) } else { Ok(()) }
    }
}
