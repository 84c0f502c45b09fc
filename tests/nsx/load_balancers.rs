//! Load balancers on a fake NSX.

mod addresses;
mod adoption;
mod announcement;
mod behaviours;
mod clusters;
mod crash;
mod dual_stack;
mod explanation;
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
