//! The mutants, by the part of the code they break.

mod lifecycle;
mod vsphere;

use crate::Mutant;

/// All of them.
pub fn all() -> Vec<Mutant> {
    [lifecycle::all(), vsphere::all()].into_iter().flatten().collect()
}
