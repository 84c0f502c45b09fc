//! The route controller with the memory provider: against a real API server, and against one in memory on a paused clock. Ids
//! are those of the upstream vectors.

mod cloud;
mod condition;
mod crash;
mod deletion;
mod events;
mod failures;
mod harness;
mod late;
mod pod_networks;
mod schedule;
mod vectors;
mod world;
