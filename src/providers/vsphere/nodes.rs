//! The VMs behind Nodes: finds each Node's VM, derives the Node's metadata, and proves that a VM is gone.
//!
//! `lookup` is one task, the tracker. Its inputs are Node changes, the snapshots of every vCenter and search replies.
//! The tracker binds each Node to at most one VM and writes one entry per Node to the instance cache. `metadata` (pure)
//! turns the VM's record in the snapshot into addresses, zone, instance type and labels. `instances` implements
//! `InstancesV2` on the cache, so that no controller waits for vCenter. Only two checks call vCenter: the existence of
//! a VM that the cache cannot confirm, and a power state that must not be stale. `absence` evaluates the answers to the
//! existence check.
//!
//! Decisions consider all configured vCenters, because any vCenter may have the VM or a twin (a copy or replica with
//! the same BIOS UUID). Absence needs positive evidence from each vCenter. While a vCenter does not answer, the
//! existence of the VM stays unknown. Only VMs that a Node needs are watched, so the cost grows with the number of
//! Nodes and not with the inventory.

pub mod absence;
pub mod instances;
pub mod lookup;
pub mod metadata;
pub mod reports;
