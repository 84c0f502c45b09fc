//! General parts of any daemon; could be moved into another project unchanged.

pub mod admin;
pub mod core_dumps;
pub mod logging;
pub mod metrics;
pub mod pulse;
pub mod queue;
pub mod shutdown;
pub mod tasks;
