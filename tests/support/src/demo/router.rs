//! The router of NSX on which each node of the demo gets a route.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::cluster::Machine;
use crate::fake_nsx::{FakeNsx, Model, NsxCounts};

/// Its path in NSX.
pub const PATH: &str = "/infra/tier-1s/t1";
/// All networks of pods are in it.
pub const CLUSTER_CIDR: &str = "10.240.0.0/12";

/// A fake NSX Manager with one router.
pub struct Router(FakeNsx);

impl Router {
    /// Without routes.
    pub async fn start() -> Self {
        Self(FakeNsx::start(Model::small()).await)
    }

    /// The address of the NSX Manager.
    pub fn address(&self) -> String {
        self.0.address()
    }

    /// The sections of the daemon's configuration. The CA is written into `folder`.
    pub fn sections(&self, folder: &Path) -> String {
        let ca_file = folder.join("nsx-ca.pem");
        std::fs::write(&ca_file, self.0.ca_pem()).unwrap();
        format!(
            "\n[NSXT]\nhost = \"{}\"\nuser = \"{}\"\npassword = \"{}\"\nca-file = \"{}\"\n\n[Route]\nrouter-path = \"{PATH}\"\n",
            self.0.address(),
            self.0.user(),
            self.0.password(),
            ca_file.display()
        )
    }

    /// The next hop of each network.
    pub fn next_hops(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let routes = self.0.objects_below(&format!("{PATH}/static-routes"));
        routes.iter().map(|route| (text(&route["network"]), text(&route["next_hops"][0]["ip_address"]))).collect()
    }

    /// Whether it has exactly the routes of these machines.
    pub fn leads_to(&self, machines: &[Machine]) -> bool {
        let wanted = machines.iter().map(|machine| (machine.pod_network(), machine.address.clone()));
        self.next_hops() == wanted.collect()
    }

    /// The requests so far.
    pub fn counts(&self) -> NsxCounts {
        self.0.counts()
    }
}
