//! A cluster of managers behind one address: one store of objects, and sessions that belong to the manager that made them.

use std::collections::BTreeSet;

use super::refusal::Refusal;

/// Which manager the address gives requests to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Each request to the next one, without affinity.
    InTurn,
    /// All to this one, as a virtual address does that one manager has.
    To(usize),
}

/// One manager has all requests, unless the model says otherwise.
#[derive(Clone, Debug)]
pub(super) struct Managers {
    count: usize,
    balance: Balance,
    /// How many requests came so far.
    requests: usize,
    failing: BTreeSet<usize>,
}

impl Default for Managers {
    fn default() -> Self {
        Self { count: 1, balance: Balance::To(0), requests: 0, failing: BTreeSet::new() }
    }
}

impl Managers {
    /// So many, each with the next request.
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

    /// The manager of the next request.
    pub(super) fn next(&mut self) -> usize {
        self.requests += 1;
        match self.balance {
            Balance::InTurn => (self.requests - 1) % self.count,
            Balance::To(manager) => manager,
        }
    }

    /// Whether this manager serves requests.
    pub(super) fn serve(&self, manager: usize) -> Result<(), Refusal> {
        if self.failing.contains(&manager) { Err(Refusal::components_down()) } else { Ok(()) }
    }
}
