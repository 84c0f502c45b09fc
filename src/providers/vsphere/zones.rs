//! zones
