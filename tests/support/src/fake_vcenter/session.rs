//! SOAP sessions and what hangs on them: views, collectors, pages.

use std::collections::{BTreeMap, BTreeSet};

use super::collector::Collector;
use super::inventory::{Inventory, Ref};

/// A session that is logged in.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// The key, which is not the cookie.
    pub(super) key: String,
    pub(super) views: BTreeMap<Ref, View>,
    pub(super) collectors: BTreeMap<String, Collector>,
    /// What is left of reads, by token.
    pub(super) pages: BTreeMap<String, Vec<String>>,
}

/// A set of objects.
#[derive(Debug)]
pub(super) enum View {
    List(BTreeSet<Ref>),
    /// Everything of these classes below the container; no class means all.
    Container(Ref, Vec<String>),
}

impl View {
    /// The members that are there.
    pub(super) fn members(&self, inventory: &Inventory) -> Vec<Ref> {
        match self {
            View::List(members) => {
                members.iter().filter(|member| inventory.objects.contains_key(member)).cloned().collect()
            }
            View::Container(container, classes) => {
                let fits = |one: &&Ref| classes.is_empty() || classes.iter().any(|class| one.is_a(class));
                let all = inventory.objects.keys().filter(fits);
                all.filter(|one| inventory.is_below(one, container)).cloned().collect()
            }
        }
    }
}
