//! How one vCenter is used.

use std::time::Duration;

use crate::providers::vsphere::zones::ZoneCategories;

/// How one vCenter is used. May change while it is: see [`Vcenter::reconfigure`](super::Vcenter::reconfigure).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The configuration's name for it, for messages.
    pub key: String,
    /// Host and port, for messages.
    pub server: String,
    /// The configured datacenters; none means all.
    pub datacenters: Vec<String>,
    /// The tag categories of zone and region, where zones are on.
    pub categories: Option<ZoneCategories>,
    /// How often tags are polled.
    pub tag_poll: Duration,
}
