//! Load balancers on a fake NSX.

mod addresses;
mod adopted;
mod behaviours;
mod clusters;
mod crash;
mod dual_stack;
mod faults;
mod features;
mod handover;
mod orphans;
mod realized;
mod references;
mod refusals;
mod removed;
mod safety;
mod sequences;
mod unread;
mod unread_pools;
mod world;
