//! A complete provider in memory: the reference for the contract, used by tests.
