//! The node-lifecycle controller with the memory provider and a real API server. The ids are those of the upstream
//! vectors.

mod changes;
mod harness;
pub mod in_memory;
mod out_of_service;
mod pause;
mod vectors;
