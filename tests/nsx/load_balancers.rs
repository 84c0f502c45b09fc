//! Load balancers on a fake NSX.

mod addresses;
mod adoption;
mod behaviours;
mod clusters;
mod crash;
mod dual_stack;
mod faults;
mod features;
mod handover;
mod orphans;
mod realization;
mod references;
mod refusals;
mod removal;
mod safety;
mod sequences;
mod unread;
mod unread_pools;
mod world;
