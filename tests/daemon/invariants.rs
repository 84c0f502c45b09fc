//! What daemons did, held to what they may do: of every version of every Node, of the audit log, and in the end of what
//! a fresh daemon would write.

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
pub mod versions;
pub mod world;
