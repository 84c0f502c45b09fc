//! The node controller (`cloud-node-controller`): initialises nodes and keeps their addresses true.
