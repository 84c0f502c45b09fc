//! Warns once about configured datacenters that do not exist in vCenter, after the VM of a Node was found outside of
//! the configured datacenters.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::Vcenter;
use crate::base::error_chain::chain;
use crate::base::quoting::listed;
use crate::providers::vsphere::vcenter::scope;
use crate::providers::vsphere::vcenter::snapshot::Datacenter;

/// Time limit for the list of datacenters.
pub(super) const LIST_LIMIT: Duration = Duration::from_secs(10);
/// Pause after a failed list before the next list.
const PAUSE: Duration = Duration::from_secs(60);

impl Vcenter {
    /// Reports that the VM of a Node is outside of the `configured` datacenters. vCenter's datacenters are listed
    /// again only if `configured` changes or the last list failed. The state of Nodes does not depend on the list.
    pub fn suspect_datacenters(&self, configured: &[String]) {
        self.suspected_datacenters.send_if_modified(|known| {
            let is_news = *known != *configured;
            if is_news {
                *known = configured.to_vec();
            }
            is_news
        });
    }

    /// Lists the datacenters after [`Vcenter::suspect_datacenters`], and warns about missing datacenters. Never
    /// returns.
    pub(super) async fn check_datacenters(&self) -> Infallible {
        let mut suspected = self.suspected_datacenters.subscribe();
        loop {
            let configured = suspected.borrow_and_update().clone();
            if !configured.is_empty() && !self.report_missing(&configured).await {
                sleep(PAUSE).await;
                // The next VM outside of the datacenters requests the list again.
                self.suspected_datacenters.send_if_modified(|known| {
                    if *known == configured {
                        known.clear();
                    }
                    false
                });
            }
            // Cannot fail, because `self` owns the sender.
            let _ = suspected.changed().await;
        }
    }

    /// Warns about missing datacenters. Returns whether vCenter answered.
    async fn report_missing(&self, configured: &[String]) -> bool {
        let (vcenter, soap) = (self.server(), self.session().soap());
        let objects = match timeout(LIST_LIMIT, soap.retrieve_datacenters()).await {
            Ok(Ok(Some(objects))) => objects,
            Ok(Ok(None)) => return true,
            Ok(Err(error)) => {
                debug!(vcenter, "the datacenters of vCenter are not known: {}", chain(&error));
                return false;
            }
            Err(_) => {
                debug!(vcenter, "the datacenters of vCenter are not known: no answer in time");
                return false;
            }
        };
        let present = scope::datacenters(&objects);
        if let Some(text) = missing(configured, &present) {
            warn!(vcenter, "{text} (`datacenters` in {})", self.session().spelling().place());
        }
        true
    }
}

/// Returns the warning about configured datacenters that are not `present`, or `None` if all are present.
pub(super) fn missing(configured: &[String], present: &[Datacenter]) -> Option<String> {
    let missing: Vec<String> =
        scope::without_datacenter(configured, present).into_iter().map(|item| format!("{item:?}")).collect();
    if missing.is_empty() {
        return None;
    }
    let names: Vec<String> = present.iter().map(|datacenter| format!("{:?}", datacenter.path.join("/"))).collect();
    let has = if names.is_empty() { "none that this account may see".to_owned() } else { listed(&names) };
    Some(format!("vCenter has no datacenter {}, or this account may not see it; it has: {has}", listed(&missing)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datacenter_that_vcenter_does_not_have_is_told_with_those_that_it_has() {
        let datacenter = |id: &str, path: &[&str]| Datacenter {
            id: id.to_owned(),
            path: path.iter().map(|name| (*name).to_owned()).collect(),
        };
        let present = [datacenter("datacenter-2", &["dc-1"]), datacenter("datacenter-7", &["F0", "dc-2"])];
        let of = |configured: &[&str], present: &[Datacenter]| {
            let configured: Vec<String> = configured.iter().map(|item| (*item).to_owned()).collect();
            missing(&configured, present)
        };
        for right in [vec![], vec!["dc-1"], vec!["dc-*"], vec!["/F0/dc-2", " dc-1 "], vec!["datacenter-7"], vec![""]] {
            assert_eq!(of(&right, &present), None, "{right:?}");
        }
        for (wrong, expected) in [
            (
                vec!["dc1"],
                "vCenter has no datacenter \"dc1\", or this account may not see it; it has: \"dc-1\", \"F0/dc-2\"",
            ),
            (
                vec!["dc-1", "DC-2", "/dc-2"],
                "vCenter has no datacenter \"DC-2\", \"/dc-2\", or this account may not see it; it has: \"dc-1\", \"F0/dc-2\"",
            ),
        ] {
            assert_eq!(of(&wrong, &present).as_deref(), Some(expected), "{wrong:?}");
        }
        let reported =
            of(&["dc"], &[datacenter("datacenter-9", &["east, west"]), datacenter("datacenter-8", &["dc 8"])]);
        assert!(reported.unwrap().ends_with("it has: \"east, west\", \"dc 8\""), "each name is in quotes");
        let none = of(&["dc"], &[]).unwrap();
        assert!(none.ends_with("it has: none that this account may see"), "{none}");
        let many: Vec<_> = (0..30).map(|number| datacenter("x", &[&format!("d{number}")])).collect();
        let told = of(&["dc"], &many).unwrap();
        assert!(told.ends_with("\"d8\", \"d9\" and 20 more"), "{told}");
    }
}
