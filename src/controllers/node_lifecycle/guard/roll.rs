//! Pure: the Nodes that the guard knows, and how many of them are its own and how many are gone. That is asked at every
//! event of every Node, so it is kept rather than counted.

use std::collections::BTreeMap;

use super::Known;

/// See the file's header.
#[derive(Debug, Default)]
pub(super) struct Roll {
    nodes: BTreeMap<String, Known>,
    own: usize,
    absent: usize,
}

impl Roll {
    /// The nodes of this provider.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// The nodes whose machines are gone.
    pub(super) fn absent(&self) -> usize {
        self.absent
    }

    pub(super) fn get(&self, name: &str) -> Option<&Known> {
        self.nodes.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    /// Goes through all of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Known> {
        self.nodes.values()
    }

    /// Takes the place of what was known under this name.
    pub(super) fn put(&mut self, name: &str, known: Known) {
        self.remove(name);
        self.add(&known);
        self.nodes.insert(name.to_owned(), known);
    }

    /// Changes what is known under this name, if anything is.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Known)) {
        let Some(known) = self.nodes.get_mut(name) else { return };
        let before = Counted::of(known);
        change(known);
        let after = Counted::of(known);
        self.own = self.own + usize::from(after.own) - usize::from(before.own);
        self.absent = self.absent + usize::from(after.absent) - usize::from(before.absent);
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(known) = self.nodes.remove(name) {
            let counted = Counted::of(&known);
            self.own -= usize::from(counted.own);
            self.absent -= usize::from(counted.absent);
        }
    }

    fn add(&mut self, known: &Known) {
        let counted = Counted::of(known);
        self.own += usize::from(counted.own);
        self.absent += usize::from(counted.absent);
    }
}

/// Where a Node counts. One of which a dry run said that it is deleted counts nowhere.
struct Counted {
    own: bool,
    absent: bool,
}

impl Counted {
    fn of(known: &Known) -> Self {
        Self { own: known.facts.is_own && !known.is_told, absent: known.suspected_since().is_some() && !known.is_told }
    }
}
