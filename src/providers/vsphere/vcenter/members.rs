//! Pure: which virtual machines are wanted, and which of them the view of the subscription holds.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The members of the view, as they are and as they have to become.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// To be watched.
    wanted: BTreeSet<Arc<str>>,
    /// What the view on the server holds, as far as calls have told.
    in_view: BTreeSet<Arc<str>>,
    /// Those of it that are wanted and may be shown.
    shown: BTreeSet<Arc<str>>,
    /// Those that have to be taken out of the view, and put in again if they are still wanted.
    renew: BTreeSet<Arc<str>>,
}

/// A change of the view. What is in both parts is taken out and put in again.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ViewChange {
    pub(super) add: BTreeSet<Arc<str>>,
    pub(super) remove: BTreeSet<Arc<str>>,
}

impl ViewChange {
    pub(super) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.remove.is_empty()
    }
}

impl Members {
    /// These are to be watched, too. Returns whether the view may need a change for it.
    pub(super) fn want(&mut self, ids: impl IntoIterator<Item = Arc<str>>) -> bool {
        let mut is_news = false;
        for id in ids {
            // One that is just being taken out of the view is still shown; that it is wanted is new then.
            is_news |= !self.shown.contains(&id);
            is_news |= self.wanted.insert(id);
        }
        is_news
    }

    /// This one is not to be watched any more. Returns whether it was.
    pub(super) fn unwant(&mut self, id: &str) -> bool {
        self.wanted.remove(id)
    }

    /// Takes these out of the view with the next change, and puts them in again if they are wanted.
    pub(super) fn renew<'a>(&mut self, ids: impl IntoIterator<Item = &'a Arc<str>>) {
        self.renew.extend(ids.into_iter().cloned());
    }

    /// What is to be watched.
    pub(super) fn wanted(&self) -> &BTreeSet<Arc<str>> {
        &self.wanted
    }

    /// Whether what is known of this one is shown.
    pub(super) fn shows(&self, id: &str) -> bool {
        self.shown.contains(id)
    }

    /// Whether this one is to be watched and is no member.
    pub(super) fn lacks(&self, id: &str) -> bool {
        self.wanted.contains(id) && !self.shown.contains(id)
    }

    /// Whether nothing is watched.
    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// The server reported that these left the view: they are no members any more. The next change takes them out of the
    /// view and, if they are still wanted, puts them in again, so that the server says whether it knows them.
    pub(super) fn leave(&mut self, ids: &BTreeSet<Arc<str>>) {
        for id in ids {
            self.shown.remove(id);
        }
        self.renew(ids);
    }

    /// What the view lacks, and what it holds without need.
    pub(super) fn next_change(&mut self) -> ViewChange {
        let renew = std::mem::take(&mut self.renew);
        let is_out = |id: &&Arc<str>| !self.wanted.contains(*id) || renew.contains(*id);
        let remove: BTreeSet<Arc<str>> = self.in_view.iter().filter(is_out).cloned().collect();
        let is_in = |id: &&Arc<str>| !self.in_view.contains(*id) || remove.contains(*id);
        let add: BTreeSet<Arc<str>> = self.wanted.iter().filter(is_in).cloned().collect();
        // Members from now on, because updates may come before the call returns.
        self.shown.extend(add.iter().cloned());
        ViewChange { add, remove }
    }

    /// A change of the view was made; the server does not know the `unresolved`.
    pub(super) fn made(&mut self, change: &ViewChange, unresolved: &[Arc<str>]) {
        self.in_view.extend(change.add.iter().cloned());
        self.shown.extend(change.add.iter().cloned());
        for id in change.remove.difference(&change.add).chain(unresolved) {
            self.in_view.remove(id);
            self.shown.remove(id);
        }
    }

    /// There is another view, with these members but for the `unresolved`, which the server does not know.
    pub(super) fn restart(&mut self, members: BTreeSet<Arc<str>>, unresolved: &[Arc<str>]) {
        *self = Self { wanted: std::mem::take(&mut self.wanted), ..Self::default() };
        self.made(&ViewChange { add: members, remove: BTreeSet::new() }, unresolved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> BTreeSet<Arc<str>> {
        ids.iter().map(|id| Arc::from(*id)).collect()
    }

    fn change(add: &[&str], remove: &[&str]) -> ViewChange {
        ViewChange { add: ids(add), remove: ids(remove) }
    }

    /// Wants these and has them in the view.
    fn settled(wanted: &[&str]) -> Members {
        let mut members = Members::default();
        members.want(ids(wanted));
        let change = members.next_change();
        members.made(&change, &[]);
        assert!(members.next_change().is_empty());
        members
    }

    #[test]
    fn the_next_change_makes_the_view_what_is_wanted() {
        let mut members = settled(&["a", "b"]);
        assert!(!members.want(ids(&["a"])), "it is watched already");
        assert!(members.unwant("b") && !members.unwant("b"));
        assert!(members.want(ids(&["c"])));
        let next = members.next_change();
        assert_eq!(next, change(&["c"], &["b"]));
        assert!(members.shows("c"), "updates may come before the call returns");
        assert!(members.want(ids(&["b"])), "it is being taken out");
        members.made(&next, &[]);
        assert_eq!(members.next_change(), change(&["b"], &[]), "it was wanted again while it was taken out");
    }

    #[test]
    fn what_left_is_no_member_and_is_put_in_again_while_it_is_wanted() {
        let mut members = settled(&["a", "b"]);
        members.leave(&ids(&["a", "b"]));
        members.unwant("b");
        assert!(!members.shows("a") && members.is_empty());
        let next = members.next_change();
        assert_eq!(next, change(&["a"], &["a", "b"]));
        members.made(&next, &[Arc::from("a")]);
        assert!(members.lacks("a"), "the server does not know it");
        assert_eq!(members.next_change(), change(&["a"], &[]), "it is tried with the next change");
    }

    #[test]
    fn another_view_has_what_it_was_made_with() {
        let mut members = settled(&["a", "b"]);
        members.leave(&ids(&["a"]));
        members.want(ids(&["c"]));
        members.restart(ids(&["a", "b"]), &[Arc::from("b")]);
        assert!(members.shows("a") && !members.shows("b"));
        assert_eq!(members.next_change(), change(&["b", "c"], &[]));
    }
}
