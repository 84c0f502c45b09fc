//! Wire clients. They take values and return values of their own types, and know no node, service or cluster.

pub mod http;
pub mod object;
pub mod vapi;
pub mod vim;
