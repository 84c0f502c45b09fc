//! Foundation: pure code that every module may use and that uses no other module.

pub mod abbreviation;
pub mod addresses;
pub mod backoff;
pub mod error_chain;
pub mod glob;
pub mod go_duration;
pub mod go_flags;
pub mod limited_read;
pub mod names;
pub mod pem;
pub mod quoting;
pub mod x509;
pub mod yaml;
