//! The vCenter connections: one independent actor (`connection`) per configured vCenter, so that a dead vCenter never
//! delays a Node of another one.
//!
//! Each actor owns one `session` (SOAP, and REST for tags) and on it one `subscription`: a ListView of the wanted VMs,
//! a property collector whose filter covers these VMs and their ancestors, and one outstanding `WaitForUpdatesEx`. Only
//! VMs that back Nodes are watched, so that cost grows with the cluster and not with the vCenter.
//!
//! Data flows one way: the property collector's updates go through [`mirror`] into a [`snapshot`], which [`Vcenter`]
//! publishes. Snapshots are immutable, and reading one never blocks. During an outage the last snapshot stays, marked
//! stale.
//!
//! A snapshot is a cache. Irreversible decisions (is the VM deleted, is it powered off?) use fresh reads
//! (`connection::reads`), and a new leader waits until `fence` has proven that the snapshot is current.
//!
//! Nothing here knows Nodes: `nodes` says which VMs to watch, and reads the snapshots.

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

pub use connection::{Vcenter, reads};
pub use session::{Session, VcenterNames};
pub use tags::TagSettings;
pub use vcenter_id::{VcenterId, VmKey};
