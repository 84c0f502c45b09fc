//! The route controller with the memory provider, with a real API server and with one in memory on a paused clock. The
//! ids are those of the upstream vectors.

mod cloud;
mod condition;
mod crash;
mod deletion;
mod failures;
mod harness;
mod late;
mod pod_networks;
mod schedule;
mod vectors;
mod world;
