//! Implementations of the product's traits in memory: a cloud provider and the store of the login ledger.
//!
//! They are a package of their own, and implement the traits of the library as its users build it. The unit tests of
//! the product see other traits, so they include the store as a module.

pub mod login_store;
pub mod memory;
