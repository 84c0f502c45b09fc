//! The VMs behind Nodes: how they are found, what follows from them, and how their absence is proved.

pub mod absence;
pub mod instances;
pub mod lookup;
pub mod metadata;
