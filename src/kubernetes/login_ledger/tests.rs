//! The ledger over a store in memory.

use super::*;

#[test]
fn the_name_of_a_record_tells_servers_and_users_apart_and_shows_neither() {
    let name = record_name("vc.example.com:443", "ccm@vsphere.local");
    assert_eq!(name.len(), "vsphere-ccm-logins-".len() + 32);
    assert_eq!(name, record_name("VC.example.com:443", "CCM@vsphere.local"), "as vCenter compares them");
    assert_ne!(name, record_name("vc.example.com:444", "ccm@vsphere.local"));
    assert_ne!(name, record_name("vc.example.com:443", "ccm@vsphere.loca"));
    assert_ne!(record_name("a", "bc"), record_name("ab", "c"));
}
