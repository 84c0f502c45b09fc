//! Counts of the observed actions of daemons. A run with too few of them proves nothing.

/// Counts of observed actions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Versions that the daemon wrote.
    pub writes: usize,
    /// Nodes that the daemon initialized.
    pub initialized: usize,
    /// Nodes that the daemon deleted.
    pub deleted: usize,
    /// Deleted nodes of the control plane.
    pub control_plane: usize,
    /// Deletions that were checked from the start of their proofs.
    pub proofs: usize,
    /// Deletions whose daemon was killed before it could log the proof.
    pub lost_proofs: usize,
    /// Writes that changed addresses of an initialized node.
    pub readdressed: usize,
    /// Writes that added or removed a shutdown taint.
    pub shutdowns: usize,
}

impl Seen {
    /// Returns the counts that are less than in `least`.
    pub fn lacks(&self, least: &Seen) -> Vec<String> {
        let pairs = [
            ("writes", self.writes, least.writes),
            ("initialized", self.initialized, least.initialized),
            ("deleted", self.deleted, least.deleted),
            ("of the control plane deleted", self.control_plane, least.control_plane),
            ("deletions with their proof", self.proofs, least.proofs),
            ("readdressed", self.readdressed, least.readdressed),
            ("shutdown taints", self.shutdowns, least.shutdowns),
        ];
        let lacks = pairs.into_iter().filter(|(_, found, least)| found < least);
        lacks.map(|(what, found, least)| format!("{what}: {found} of at least {least}")).collect()
    }
}

#[test]
fn a_run_in_which_too_little_happened_is_told() {
    let least = Seen { writes: 3, deleted: 1, ..Seen::default() };
    assert_eq!(least.lacks(&least), [""; 0]);
    let few = Seen { writes: 2, deleted: 5, ..Seen::default() };
    assert_eq!(few.lacks(&least), ["writes: 2 of at least 3"]);
    let none = Seen::default();
    let all = Seen {
        writes: 1,
        initialized: 1,
        deleted: 1,
        control_plane: 1,
        proofs: 1,
        lost_proofs: 0,
        readdressed: 1,
        shutdowns: 1,
    };
    assert_eq!(none.lacks(&all).len(), 7);
}
