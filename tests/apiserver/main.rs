//! apiserver tests.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

mod admin;
