//! NSX: the configuration of the connection, of load balancers and of routes, by the vectors of the Go program.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

mod config;
