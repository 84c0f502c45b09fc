//! vCenter over SOAP (`vim25`).

pub mod types;

pub use types::{GuestNic, MoRef};
