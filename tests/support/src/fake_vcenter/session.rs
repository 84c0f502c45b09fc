//! SOAP sessions and the objects that belong to them: views, collectors, pages.

use std::collections::{BTreeMap, BTreeSet};

use super::collector::Collector;
use super::inventory::{Inventory, Ref};

#[derive(Debug, Default)]
pub(super) struct Session {
    /// Session key, which is not the cookie.
    pub(super) key: String,
    pub(super) views: BTreeMap<Ref, View>,
    pub(super) collectors: BTreeMap<String, Collector>,
    /// Remaining pages of reads, by token.
    pub(super) pages: BTreeMap<String, Vec<String>>,
}

/// A `ListView`: a set of objects.
#[derive(Debug)]
pub(super) struct View(pub(super) BTreeSet<Ref>);

impl View {
    pub(super) fn members(&self, inventory: &Inventory) -> Vec<Ref> {
        self.0.iter().filter(|member| inventory.objects.contains_key(member)).cloned().collect()
    }
}
