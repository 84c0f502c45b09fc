//! Access to the resources of a Service by kind and position, for tests.

use std::ops::{Index, IndexMut};

use super::*;

impl ServiceResources {
    /// Takes the resources of a kind.
    pub fn take(&mut self, kind: ObjectKind) -> Self {
        let taken = self.only(kind);
        self.0.retain(|one| one.kind != kind);
        taken
    }

    /// Returns the resources of a kind.
    pub fn only(&self, kind: ObjectKind) -> Self {
        Self(self.of_kind(kind).cloned().collect())
    }

    /// Returns a resource of a kind.
    pub fn get_mut(&mut self, kind: ObjectKind, at: usize) -> Option<&mut Resource> {
        self.0.iter_mut().filter(|one| one.kind == kind).nth(at)
    }
}

impl Index<(ObjectKind, usize)> for ServiceResources {
    type Output = Resource;

    fn index(&self, (kind, at): (ObjectKind, usize)) -> &Resource {
        self.of_kind(kind).nth(at).unwrap()
    }
}

impl IndexMut<(ObjectKind, usize)> for ServiceResources {
    fn index_mut(&mut self, (kind, at): (ObjectKind, usize)) -> &mut Resource {
        self.get_mut(kind, at).unwrap()
    }
}
