//! instance_type
