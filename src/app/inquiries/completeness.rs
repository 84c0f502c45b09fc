//! Whether this process has read what a search needs. A name that is not found is unknown only after everything was read.

use crate::app::inquiries::Inquiries;
use crate::base::quoting::listed;
use crate::providers::vsphere::VcenterReport;
use std::time::Duration;

/// Returns the reason why the process does not know all Nodes; `None` if it does.
pub(super) fn nodes_gap(process: &Inquiries) -> Option<String> {
    (!process.nodes.is_ready()).then(|| "the Nodes were not read yet".to_owned())
}

/// Returns the reason why the process does not know all VMs of Nodes; `None` if it does.
pub(super) fn vms_gap(process: &Inquiries) -> Option<String> {
    nodes_gap(process).or_else(|| inventory_gap(&process.vsphere.vcenter_reports()))
}

/// Returns the reason why the inventories of these vCenters are not complete; `None` if they are.
fn inventory_gap(vcenters: &[VcenterReport]) -> Option<String> {
    if vcenters.is_empty() {
        return Some(NOT_CONNECTED.to_owned());
    }
    let behind = vcenters.iter().filter(|vcenter| vcenter.lag != Some(Duration::ZERO));
    let servers: Vec<&str> = behind.map(|vcenter| vcenter.server.as_str()).collect();
    (!servers.is_empty()).then(|| format!("the inventory of {} is not current", listed(&servers)))
}

/// The reason why a cold standby knows nothing of vCenters.
pub(super) const NOT_CONNECTED: &str = "this process connects to the vCenters when it leads";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inventories_are_complete_while_every_vcenter_reports_changes() {
        let vcenter = |server: &str, lag| VcenterReport { server: server.to_owned(), lag, ..VcenterReport::default() };
        let live = || vcenter("a:443", Some(Duration::ZERO));
        let late = vcenter("b:443", Some(Duration::from_secs(1)));
        assert_eq!(inventory_gap(&[live(), live()]), None);
        assert_eq!(inventory_gap(&[]).as_deref(), Some(NOT_CONNECTED));
        let gap = inventory_gap(&[live(), late, vcenter("c:443", None)]);
        assert_eq!(gap.as_deref(), Some("the inventory of b:443, c:443 is not current"));
    }
}
