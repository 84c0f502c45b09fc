//! The composition root: builds everything, starts it, waits, stops it. The only module that sees all others.

pub mod go_duration;
pub mod options;
