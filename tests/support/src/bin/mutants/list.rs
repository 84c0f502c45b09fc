//! The mutants, by the part of the code they break.

mod addresses;
mod leader_election;
mod lifecycle;
mod nsx_login;
mod routes;
mod vsphere;

use crate::Mutant;

/// All of them.
pub fn all() -> Vec<Mutant> {
    let all = [lifecycle::all(), vsphere::all(), leader_election::all(), nsx_login::all(), routes::all(), addresses::all()];
    all.into_iter().flatten().collect()
}
