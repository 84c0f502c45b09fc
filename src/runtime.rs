//! General parts of a daemon. Another project could use this module unchanged.

mod accept_retry;
pub mod admin;
pub mod core_dumps;
pub mod local_socket;
pub mod logging;
pub mod metrics;
pub mod pulse;
pub mod queue;
pub mod shutdown;
pub mod tasks;
