//! A map that forgets what was used longest ago.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// Stands for a text of any length: half of its SHA-256, of which no two texts have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Digest([u8; 16]);

impl Digest {
    pub(super) fn of(text: &str) -> Self {
        let mut half = [0; 16];
        half.iter_mut().zip(Sha256::digest(text.as_bytes())).for_each(|(to, from)| *to = from);
        Self(half)
    }
}

/// At most `limit` values by key. When it is full, a new key costs a look at all of them: an index by age
/// would take more memory than most values.
#[derive(Debug)]
pub(super) struct Lru<V> {
    limit: usize,
    /// With the number of the last use. No hash table, as half of one with 4,096 entries is empty.
    values: BTreeMap<Digest, (u64, V)>,
    uses: u64,
}

impl<V> Lru<V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, values: BTreeMap::new(), uses: 0 }
    }

    /// The value of `key`, made when there is none, and most recently used from here on.
    pub(super) fn get_or_insert_with(&mut self, key: Digest, make: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        if self.values.len() >= self.limit && !self.values.contains_key(&key) {
            let oldest = self.values.iter().min_by_key(|(_, (used, _))| *used).map(|(oldest, _)| *oldest);
            if let Some(oldest) = oldest {
                self.values.remove(&oldest);
            }
        }
        let (used, value) = self.values.entry(key).or_insert_with(|| (0, make()));
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
        let [a, b, c] = ["a", "b", "c"].map(Digest::of);
        *lru.get_or_insert_with(a, || 0) += 1;
        *lru.get_or_insert_with(b, || 0) += 1;
        *lru.get_or_insert_with(a, || 0) += 1;
        *lru.get_or_insert_with(c, || 0) += 1;
        assert_eq!(*lru.get_or_insert_with(a, || 0), 2, "kept");
        assert_eq!(*lru.get_or_insert_with(b, || 0), 0, "forgotten");
        assert_eq!(lru.values.len(), 2);
    }
}
