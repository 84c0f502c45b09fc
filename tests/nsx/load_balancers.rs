//! Load balancers on a fake NSX.

mod crash;
mod sequences;
mod world;
