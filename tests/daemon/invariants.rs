//! Rules for the actions of daemons: for every version of every Node, for the audit log, and for the final state, which
//! must be equal to the result of a fresh daemon.

pub mod audit;
pub mod daemons;
mod histories;
pub mod limits;
pub mod machine;
pub mod nsx;
pub mod observations;
pub mod proofs;
pub mod results;
pub mod rules;
pub mod story;
pub mod versions;
pub mod world;
