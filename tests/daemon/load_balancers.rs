//! Load balancers on NSX, with the built daemon: adoption, kills at every write, two clusters on one manager, a hand-over,
//! a restored cluster.

mod adopted;
mod clusters;
mod crash;
mod policy;
mod restored;
mod site;
mod take_over;
mod tenants;
