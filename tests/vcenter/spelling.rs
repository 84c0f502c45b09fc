//! The names of entries in messages after the file was rewritten in the other dialect.

use std::sync::Arc;

use ccm::clients::http::{self, TlsSettings};
use ccm::providers::vsphere::Connect;
use ccm::providers::vsphere::config;
use ccm::providers::vsphere::login::credentials::{CredentialState, Offers};
use tokio::sync::watch;

use crate::world::Running;

/// A connector whose entries never log in.
struct Nowhere;

impl Connect for Nowhere {
    fn http(&self, entry: &config::VcenterConfig) -> Result<http::Client, String> {
        let settings = http::Settings::new(&entry.server, entry.port, TlsSettings::default(), "test");
        http::Client::new(settings).map_err(|error| error.to_string())
    }

    fn offers(&self, _: &config::VcenterConfig) -> Offers {
        watch::Sender::new(Arc::new(CredentialState::Pending { reason: "not read".to_owned() })).subscribe()
    }
}

#[tokio::test]
async fn an_entry_is_named_as_the_file_in_force_writes_it_while_its_session_stays() {
    let ini = "[Global]\nuser = u\npassword = p\n[VirtualCenter \"vc\"]\nserver = ::1\nport = 1\n";
    let yaml = "vcenter:\n  vc:\n    server: ::1\n    port: 1\n    user: u\n    password: p\n";
    let running = Running::start_through(Arc::new(Nowhere), ini, Running::options());
    let inventory = Arc::clone(&running.provider.inventories()[0]);
    assert_eq!(inventory.server(), "[::1]:1");
    assert_eq!(inventory.session().spelling().place(), "[VirtualCenter \"vc\"] of the cloud config");
    let parsed = config::parse(yaml, "vsphere.conf").unwrap();
    assert!(running.provider.apply(&parsed.config).unwrap().is_empty(), "there is no other session");
    assert_eq!(inventory.session().spelling().place(), "vcenter.vc of the cloud config");
    running.stop().await;
}
