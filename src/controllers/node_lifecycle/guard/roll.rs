//! Pure: the Nodes that the guard knows, and how many of them are its own and how many are gone. That is asked at every
//! event of every Node, so it is kept rather than counted.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Known;

/// See the file's header.
#[derive(Debug, Default)]
pub(super) struct Roll {
    nodes: BTreeMap<String, Known>,
    own: usize,
    absent: usize,
    /// Nodes absent since this time are newcomers; all absent Nodes if it is none.
    from: Option<Instant>,
    newcomers: usize,
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

    /// The nodes whose machines are gone since the time of [`Roll::count_from`].
    pub(super) fn newcomers(&self) -> usize {
        self.newcomers
    }

    /// From when on a machine that is gone is a newcomer. Goes through all of them if that is another time.
    pub(super) fn count_from(&mut self, from: Option<Instant>) {
        if self.from != from {
            self.from = from;
            self.newcomers = self.all().filter(|known| Counted::of(known, from).newcomer).count();
        }
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
        let before = Counted::of(known, self.from);
        change(known);
        let after = Counted::of(known, self.from);
        self.own = self.own + usize::from(after.own) - usize::from(before.own);
        self.absent = self.absent + usize::from(after.absent) - usize::from(before.absent);
        self.newcomers = self.newcomers + usize::from(after.newcomer) - usize::from(before.newcomer);
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(known) = self.nodes.remove(name) {
            let counted = Counted::of(&known, self.from);
            self.own -= usize::from(counted.own);
            self.absent -= usize::from(counted.absent);
            self.newcomers -= usize::from(counted.newcomer);
        }
    }

    fn add(&mut self, known: &Known) {
        let counted = Counted::of(known, self.from);
        self.own += usize::from(counted.own);
        self.absent += usize::from(counted.absent);
        self.newcomers += usize::from(counted.newcomer);
    }
}

/// Where a Node counts. One of which a dry run said that it is deleted counts nowhere.
struct Counted {
    own: bool,
    absent: bool,
    newcomer: bool,
}

impl Counted {
    fn of(known: &Known, from: Option<Instant>) -> Self {
        let since = known.suspected_since().filter(|_| !known.is_told);
        Self {
            own: known.facts.is_own && !known.is_told,
            absent: since.is_some(),
            newcomer: since.is_some_and(|since| from.is_none_or(|from| since >= from)),
        }
    }
}
