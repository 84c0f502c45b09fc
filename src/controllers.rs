//! The control loops, and what is common to them.

pub mod node;
