//! guest_metadata
