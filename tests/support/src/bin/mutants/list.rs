//! The mutants, by the part of the code that they break.

mod addresses;
mod bundles;
mod leader_election;
mod lifecycle;
mod load_balancers;
mod local_socket;
mod login_ledger;
mod machines;
mod nsx_login;
mod previews;
mod routes;
mod tenants;
mod vsphere;

use crate::Mutant;

/// Returns all mutants.
pub fn all() -> Vec<Mutant> {
    let of_nsx = [nsx_login::all(), routes::all(), addresses::all(), load_balancers::all(), tenants::all()];
    [lifecycle::all(), vsphere::all(), machines::all(), leader_election::all(), login_ledger::all()]
        .into_iter()
        .chain(of_nsx)
        .chain([local_socket::all(), bundles::all(), previews::all()])
        .flatten()
        .collect()
}
