//! The mutants, by the part of the code they break.

mod leader_election;
mod lifecycle;
mod nsx_login;
mod vsphere;

use crate::Mutant;

/// All of them.
pub fn all() -> Vec<Mutant> {
    [lifecycle::all(), vsphere::all(), leader_election::all(), nsx_login::all()].into_iter().flatten().collect()
}
