//! The clients and the provider with the vCenter simulator.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failure of a test's own step is a failed test; what was measured is printed"
)]

mod certificates;
mod duplicates;
mod faults;
mod govc;
mod inventory;
mod login_counts;
mod matrix;
mod outcomes;
mod recordings;
mod rotation;
mod scale;
mod session;
mod spelling;
mod tagging;
mod tokens;
mod watch;
mod world;

use std::time::Duration;

use ccm::clients::http::{self, Settings, Thumbprint, TlsSettings, TlsTrust};
use ccm::clients::{vapi, vim};
use secrecy::SecretString;
use support::{Nic, Object, Scenario, Vcenter, Vm};

const UUID: &str = "4211a1b2-0000-4000-8000-000000000001";

/// Two machines in a cluster, tagged with a zone.
fn scenario() -> Scenario {
    Scenario::small()
        .vm(Vm::new("node-1", UUID)
            .folder("prod/nodes")
            .host("host-2")
            .guest_host_name("node-1.example.com")
            .nic(Nic::new("VM Network", &["10.0.0.11", "fd00::11"]))
            .extra_config("guestinfo.metadata", "eA=="))
        .vm(Vm::new("node-2", "4211a1b2-0000-4000-8000-000000000002").host("host-1").ip("10.0.0.12"))
        .category("k8s-zone", "SINGLE")
        .tag("k8s-zone", "zone-a", [Object::cluster("cluster-1")])
        .tag("k8s-zone", "zone-b", [])
}

/// Trusts the CA that issued the simulator's certificate.
fn https(vcenter: &Vcenter) -> http::Client {
    let trust = TlsTrust::Ca { pem: vcenter.ca_pem().as_bytes().to_vec(), path: "ca.pem".to_owned() };
    https_with(vcenter, TlsSettings { trust, ..TlsSettings::default() })
}

fn https_with(vcenter: &Vcenter, tls: TlsSettings) -> http::Client {
    http::Client::new(Settings::new(vcenter.host(), vcenter.port(), tls, vim::user_agent(None))).unwrap()
}

fn pinned(vcenter: &Vcenter, thumbprint: &str) -> http::Client {
    let thumbprints = vec![Thumbprint::parse(thumbprint).unwrap()];
    https_with(vcenter, TlsSettings { thumbprints, can_be_pinned: true, ..TlsSettings::default() })
}

fn password(vcenter: &Vcenter) -> SecretString {
    SecretString::from(vcenter.password().to_owned())
}

/// Returns a connected SOAP client with a session and short time limits.
async fn soap(vcenter: &Vcenter) -> vim::Client {
    let limit = Duration::from_secs(20);
    let timeouts = vim::Timeouts { call: limit, wait_margin: limit, ..vim::Timeouts::default() };
    let client = vim::Client::with_timeouts(https(vcenter), timeouts);
    client.connect().await.unwrap();
    client.login(vcenter.user(), &password(vcenter)).await.unwrap();
    client
}

/// Returns the user of the session, as the server spells the name.
async fn user_of(client: &vim::Client) -> String {
    let path = "currentSession.userName";
    let spec = vim::FilterSpec::of_object(&vim::MoRef::new("SessionManager", "SessionManager"), &[path]);
    let objects = client.retrieve_properties(&spec).await.unwrap();
    objects[0].property(path).and_then(vim::Value::as_str).unwrap().to_owned()
}

/// Returns a REST client with a session.
async fn rest(vcenter: &Vcenter) -> vapi::Client {
    let client = vapi::Client::new(https(vcenter));
    client.login(vcenter.user(), &password(vcenter)).await.unwrap();
    client
}

/// Returns the reference of a machine from a search by UUID.
async fn machine(client: &vim::Client, uuid: &str) -> vim::MoRef {
    let found = client.find_all_by_uuid(uuid).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}
