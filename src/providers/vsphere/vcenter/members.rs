//! Pure: the wanted VMs, and the VMs in the ListView of the subscription.

use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Members {
    wanted: BTreeSet<Arc<str>>,
    /// The contents of the view on the server, as confirmed by calls.
    in_view: BTreeSet<Arc<str>>,
    /// VMs whose state the snapshot shows.
    visible: BTreeSet<Arc<str>>,
    /// VMs to remove from the view, and to add again if they are still wanted.
    renew: BTreeSet<Arc<str>>,
}

/// A change of the view. An id in both sets is removed and then added again.
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
    /// Adds VMs to watch. Returns whether the view may need a change.
    pub(super) fn want(&mut self, ids: impl IntoIterator<Item = Arc<str>>) -> bool {
        let mut is_news = false;
        for id in ids {
            // A VM that is being removed from the view is still in `visible`, so `visible` alone does not decide.
            is_news |= !self.visible.contains(&id);
            is_news |= self.wanted.insert(id);
        }
        is_news
    }

    /// Stops watching a VM. Returns whether it was watched.
    pub(super) fn unwant(&mut self, id: &str) -> bool {
        self.wanted.remove(id)
    }

    /// Removes these VMs from the view with the next change, and adds the wanted VMs among them again.
    pub(super) fn renew<'a>(&mut self, ids: impl IntoIterator<Item = &'a Arc<str>>) {
        self.renew.extend(ids.into_iter().cloned());
    }

    pub(super) fn wanted(&self) -> &BTreeSet<Arc<str>> {
        &self.wanted
    }

    pub(super) fn shows(&self, id: &str) -> bool {
        self.visible.contains(id)
    }

    pub(super) fn lacks(&self, id: &str) -> bool {
        self.wanted.contains(id) && !self.visible.contains(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.visible.is_empty()
    }

    /// Records that vCenter sent `leave` for these VMs, so the snapshot does not show them. The next change removes
    /// these VMs and adds the wanted VMs among them again, so that the server reports whether they exist.
    pub(super) fn remove(&mut self, ids: &BTreeSet<Arc<str>>) {
        for id in ids {
            self.visible.remove(id);
        }
        self.renew(ids);
    }

    /// Computes the next change: adds the wanted VMs that are not in the view, removes the unwanted VMs, and renews the
    /// VMs in `renew`.
    pub(super) fn next_change(&mut self) -> ViewChange {
        let renew = std::mem::take(&mut self.renew);
        let is_out = |id: &&Arc<str>| !self.wanted.contains(*id) || renew.contains(*id);
        let remove: BTreeSet<Arc<str>> = self.in_view.iter().filter(is_out).cloned().collect();
        let is_in = |id: &&Arc<str>| !self.in_view.contains(*id) || remove.contains(*id);
        let add: BTreeSet<Arc<str>> = self.wanted.iter().filter(is_in).cloned().collect();
        // The snapshot shows the added VMs from now on, because updates may arrive before the call returns.
        self.visible.extend(add.iter().cloned());
        ViewChange { add, remove }
    }

    /// Records a completed change of the view. The server did not resolve the `unresolved` VMs.
    pub(super) fn made(&mut self, change: &ViewChange, unresolved: &[Arc<str>]) {
        self.in_view.extend(change.add.iter().cloned());
        self.visible.extend(change.add.iter().cloned());
        for id in change.remove.difference(&change.add).chain(unresolved) {
            self.in_view.remove(id);
            self.visible.remove(id);
        }
    }

    /// Records a new view with these members, except the `unresolved` VMs.
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

    /// Returns members that are wanted and already in the view.
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
        members.remove(&ids(&["a", "b"]));
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
        members.remove(&ids(&["a"]));
        members.want(ids(&["c"]));
        members.restart(ids(&["a", "b"]), &[Arc::from("b")]);
        assert!(members.shows("a") && !members.shows("b"));
        assert_eq!(members.next_change(), change(&["b", "c"], &[]));
    }
}
