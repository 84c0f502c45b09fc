//! The connections to the vCenters. Each configured vCenter has an independent actor (`connection`), so that an
//! unreachable vCenter never delays the Nodes of another vCenter.
//!
//! Each actor owns one `session` (SOAP, and REST for tags) with one `subscription`: a ListView of the wanted VMs, a
//! property collector whose filter covers these VMs and their ancestors, and one outstanding `WaitForUpdatesEx`. Only
//! VMs that back Nodes are watched, so the cost grows with the cluster and not with the vCenter.
//!
//! The updates of the property collector change the [`mirror`]. Each change results in a [`snapshot`], which
//! [`Vcenter`] publishes. Snapshots are immutable, and reading a snapshot never blocks. During an outage, the last
//! snapshot stays and is marked stale.
//!
//! A snapshot is a cache. Irreversible decisions about deleted or powered-off VMs use fresh reads
//! (`connection::reads`). A new leader waits up to a few seconds until `fence` proves that the snapshot is current.
//!
//! This module does not depend on Nodes. The module `nodes` selects the VMs to watch, and reads the snapshots.

mod connection;
mod fence;
mod members;
pub mod mirror;
mod outage;
mod publisher;
pub mod scope;
pub mod session;
pub mod shared_map;
pub mod snapshot;
pub mod spelling;
mod stale_subscriptions;
mod subscription;
mod tags;
mod vcenter_id;
pub mod zone_tags;

pub use connection::account::AccountReads;
pub use connection::{Vcenter, reads};
pub use session::Session;
pub use tags::{TagReads, TagSettings};
pub use vcenter_id::{VcenterId, VmKey};
