//! One independent actor per vCenter: it owns that vCenter's session and a read-only snapshot that others look at
//! without waiting. A dead vCenter never delays a node of another.
//!
//! Data flows one way: the property collector's updates go through [`mirror`] into a [`snapshot`], which [`Vcenter`]
//! publishes. Nothing here knows nodes.

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
pub use tags::Settings;
pub use vcenter_id::{VcenterId, VmKey};
