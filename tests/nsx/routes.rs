//! Routes on NSX: the written objects, the owner of a route, and the effects of faults.

mod clusters;
mod faults;
mod machines;
mod realization;
mod rules;
mod vectors;
pub mod world;
