//! Pure: a persistent map by id. Copies share their unchanged parts, so a change of a copy allocates only a small part.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Number of branches at each of the two levels of the tree. With 5,000 entries a leaf has about five entries, and a
/// change of a copy touches about 70 allocations.
const WIDTH: usize = 32;

/// A map whose copies share their unchanged parts.
#[derive(Clone, PartialEq)]
pub struct SharedMap<V> {
    /// Indexed by the hash of the id.
    branches: Arc<Vec<Arc<Vec<Leaf<V>>>>>,
}

/// The entries of a leaf, sorted by id.
type Leaf<V> = Arc<Vec<(Arc<str>, V)>>;

impl<V> Default for SharedMap<V> {
    fn default() -> Self {
        // Empty parts share one allocation until they are changed.
        let leaf = Leaf::default();
        let branch = Arc::new(vec![leaf; WIDTH]);
        Self { branches: Arc::new(vec![branch; WIDTH]) }
    }
}

impl<V> SharedMap<V> {
    /// Returns the entry of this id.
    pub fn get(&self, id: &str) -> Option<&V> {
        let (branch, leaf) = place(id);
        let leaf = self.branches.get(branch)?.get(leaf)?;
        let at = find(leaf, id).ok()?;
        leaf.get(at).map(|(_, value)| value)
    }

    /// Whether both are the same allocation.
    #[cfg(test)]
    pub fn shares_all(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.branches, &other.branches)
    }

    /// Whether the map has an entry of this id.
    pub fn contains_key(&self, id: &str) -> bool {
        self.get(id).is_some()
    }

    /// Returns all entries, unsorted.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.leaves().flat_map(|leaf| leaf.iter().map(|(id, value)| (id, value)))
    }

    /// Returns all ids, unsorted.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.iter().map(|(id, _)| id)
    }

    /// Returns all values, unsorted.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.leaves().map(|leaf| leaf.len()).sum()
    }

    /// Whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn leaves(&self) -> impl Iterator<Item = &Leaf<V>> {
        self.branches.iter().flat_map(|branch| branch.iter())
    }
}

impl<V: Clone> SharedMap<V> {
    /// Sets an entry, or removes it if `value` is `None`. Returns the previous entry.
    pub fn set(&mut self, id: &Arc<str>, value: Option<V>) -> Option<V> {
        if value.is_none() && !self.contains_key(id) {
            return None;
        }
        let (branch, leaf) = place(id);
        let branch = Arc::make_mut(Arc::make_mut(&mut self.branches).get_mut(branch)?);
        let leaf = Arc::make_mut(branch.get_mut(leaf)?);
        match (find(leaf, id), value) {
            (Ok(at), Some(value)) => leaf.get_mut(at).map(|(_, known)| std::mem::replace(known, value)),
            (Ok(at), None) => Some(leaf.remove(at).1),
            (Err(at), value) => {
                leaf.reserve_exact(1);
                leaf.insert(at, (Arc::clone(id), value?));
                None
            }
        }
    }
}

impl<V: Clone> FromIterator<(Arc<str>, V)> for SharedMap<V> {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, V)>>(entries: T) -> Self {
        let mut map = Self::default();
        for (id, value) in entries {
            map.set(&id, Some(value));
        }
        map
    }
}

impl<V: fmt::Debug> fmt::Debug for SharedMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns the position of an id in a leaf, or the position at which to insert the id.
fn find<V>(leaf: &[(Arc<str>, V)], id: &str) -> Result<usize, usize> {
    leaf.binary_search_by(|(known, _)| (**known).cmp(id))
}

/// Returns the branch and the leaf of an id. All maps use the same hash, so that equal maps have equal leaves.
fn place(id: &str) -> (usize, usize) {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let hash = usize::try_from(hasher.finish() % (WIDTH * WIDTH) as u64).unwrap_or_default();
    (hash / WIDTH, hash % WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> SharedMap<usize> {
        (0..5_000).map(|number| (format!("vm-{number}").into(), number)).collect()
    }

    #[test]
    fn a_change_of_a_copy_leaves_the_original_and_shares_all_other_leaves() {
        let original = filled();
        let own = |copy: &SharedMap<usize>| {
            let pairs = original.leaves().zip(copy.leaves());
            pairs.filter(|(original, copy)| !Arc::ptr_eq(original, copy)).count()
        };
        let mut copy = original.clone();
        assert_eq!(copy.set(&"vm-7".into(), Some(0)), Some(7));
        assert_eq!((original.get("vm-7"), copy.get("vm-7"), own(&copy)), (Some(&7), Some(&0), 1));
        let mut copy = original.clone();
        assert_eq!(copy.set(&"vm-7".into(), None), Some(7));
        assert_eq!((original.len(), copy.len(), own(&copy)), (5_000, 4_999, 1));
        let mut copy = original.clone();
        assert_eq!(copy.set(&"vm-none".into(), None), None);
        assert!(Arc::ptr_eq(&copy.branches, &original.branches), "nothing to remove");
    }

    #[test]
    fn an_entry_is_set_changed_and_removed() {
        let mut map = SharedMap::default();
        let mut before = None;
        for value in [Some(1), Some(2), None, None, Some(3)] {
            assert_eq!(map.set(&"vm-1".into(), value), before);
            assert_eq!((map.get("vm-1").copied(), map.len()), (value, usize::from(value.is_some())));
            before = value;
        }
    }

    #[test]
    fn equal_entries_are_equal_maps_whatever_their_history() {
        let mut other: SharedMap<usize> = (0..5_000).rev().map(|number| (format!("vm-{number}").into(), 0)).collect();
        assert_ne!(other, filled());
        for (id, number) in filled().iter() {
            assert_eq!(other.set(id, Some(*number)), Some(0), "{id}");
        }
        assert_eq!(other, filled());
        for (id, number) in filled().iter() {
            assert_eq!(other.set(id, None), Some(*number), "{id}");
        }
        assert!(other.is_empty() && other == SharedMap::default());
    }
}
