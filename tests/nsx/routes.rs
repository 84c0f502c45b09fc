//! Routes on NSX: what is written, whose a route is, and what becomes of faults.

mod clusters;
mod faults;
mod machines;
mod realization;
mod rules;
mod vectors;
pub mod world;
