//! Load balancers on NSX, with the built daemon: adoption, kills at every write, two clusters on one manager, a hand-over,
//! a restored cluster.

mod adoption;
mod clusters;
mod crash;
mod policy;
mod restoration;
mod site;
mod takeover;
mod tenants;
