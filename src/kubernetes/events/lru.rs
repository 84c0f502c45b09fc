//! A map that forgets what was used longest ago.

use std::collections::{BTreeMap, HashMap};

/// At most `limit` values by key.
#[derive(Debug)]
pub(super) struct Lru<V> {
    limit: usize,
    values: HashMap<String, (u64, V)>,
    order: BTreeMap<u64, String>,
    uses: u64,
}

impl<V> Lru<V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, values: HashMap::new(), order: BTreeMap::new(), uses: 0 }
    }

    /// The value of `key`, made when there is none, and most recently used from here on.
    pub(super) fn get_or_insert_with(&mut self, key: &str, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        if let Some((used, _)) = self.values.get(key) {
            self.order.remove(used);
        } else if self.values.len() >= self.limit
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.values.remove(&oldest);
        }
        self.order.insert(self.uses, key.to_owned());
        let (used, value) = self.values.entry(key.to_owned()).or_insert_with(|| (0, make()));
        *used = self.uses;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let mut lru = Lru::new(2);
        *lru.get_or_insert_with("a", || 0) += 1;
        *lru.get_or_insert_with("b", || 0) += 1;
        *lru.get_or_insert_with("a", || 0) += 1;
        *lru.get_or_insert_with("c", || 0) += 1;
        assert_eq!(*lru.get_or_insert_with("a", || 0), 2, "kept");
        assert_eq!(*lru.get_or_insert_with("b", || 0), 0, "forgotten");
        assert_eq!((lru.values.len(), lru.order.len()), (2, 2));
    }
}
