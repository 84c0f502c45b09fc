//! Load balancers on NSX, with the daemon's binary: adoption, kills, two clusters on one manager, a change of the
//! leader, a restored cluster.

mod adoption;
mod clusters;
mod crash;
mod policy;
mod restoration;
pub mod site;
mod takeover;
mod tenants;
