//! Implementations of the product's traits in memory: a cloud provider, and the store of the login ledger.
//!
//! A package of its own: the unit tests of the product cannot use it, because its traits are those of the library as
//! users build it. They include the store as a module.

pub mod login_store;
pub mod memory;
