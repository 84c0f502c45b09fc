//! The node-lifecycle controller with the memory provider against a real API server. Ids are those of the upstream
//! vectors.

mod guarded;
mod harness;
mod vectors;
