//! The node-lifecycle controller with the memory provider against a real API server. Ids are those of the upstream
//! vectors.

mod changes;
mod harness;
pub mod in_memory;
mod late;
mod out_of_service;
mod vectors;
