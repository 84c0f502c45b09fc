//! The suite for the vSphere provider with load balancers on the fake NSX Manager.

use async_trait::async_trait;
use ccm::clients::http::{self, TlsSettings, TlsTrust};
use ccm::clients::nsx::{Scheme, Timeouts};
use ccm::cloud::{AbsenceProof, CloudProvider, ClusterEvents, LiveReads, Presence, Reason, Unknown, reason};
use ccm::kubernetes::login_ledger::Ledger;
use ccm::providers::vsphere::config::{NsxConfig, NsxLogin};
use ccm::providers::vsphere::login::credentials::{Credential, CredentialState, Login, Offers, Origin};
use ccm::providers::vsphere::nsx::load_balancer::RequestedAddresses;
use ccm::providers::vsphere::nsx::load_balancer::orphans::Policy;
use ccm::providers::vsphere::nsx::routes::Adoption;
use ccm::providers::vsphere::nsx::services::{ConnectNsx, NsxServicesContext};
use ccm::providers::vsphere::nsx::{AnyLeader, LoginSource};
use doubles::login_store::MemoryStore;
use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use support::fake_nsx::{self, FakeNsx, Trouble};
use support::{FakeVcenter, Model};
use tempfile::TempDir;
use tokio::sync::watch;

use super::load_balancers;
use super::suite::{self, World};
use super::vsphere::VsphereWorld;
use super::world::{Files, Running};

/// UID of the cluster.
const UID: &str = "0b7f1d4c-8f5e-4c65-9f5a-2c7f3ad4b001";
/// Interval between two complete passes.
const BETWEEN: Duration = Duration::from_secs(10);
/// Collections with the objects of load balancers.
const COLLECTIONS: [&str; 7] = [
    "lb-services",
    "lb-virtual-servers",
    "lb-pools",
    "lb-monitor-profiles",
    "lb-persistence-profiles",
    "groups",
    "ip-allocations",
];
/// All operations that load balancers need.
const OPERATIONS: [&str; 5] = ["LIST", "GET", "PUT", "PATCH", "DELETE"];

/// The sections of `vsphere.conf`, except the section of the manager.
const SECTIONS: &str = "[LoadBalancer]\nip-pool-id = p1\nsize = SMALL\ntier1-gateway-path = /infra/tier-1s/t1\n\
    tcp-app-profile-path = /infra/lb-app-profiles/default-tcp-lb-app-profile\n\
    udp-app-profile-path = /infra/lb-app-profiles/default-udp-lb-app-profile\n";

/// Machines on the fake vCenter, and load balancers on the fake NSX.
struct NsxWorld {
    vsphere: VsphereWorld,
    nsx: Arc<FakeNsx>,
}

/// User and password of the configuration, and trust in the fake's CA.
struct ToFake {
    ca_pem: String,
    offers: watch::Sender<Arc<CredentialState>>,
}

impl ToFake {
    fn new(nsx: &FakeNsx) -> Self {
        let (user, password) = (nsx.user().to_owned(), nsx.password().into());
        let credential = Credential { login: Login::Password { user, password }, origin: Origin::Config };
        let offers = watch::Sender::new(Arc::new(CredentialState::Ready(vec![Arc::new(credential)])));
        Self { ca_pem: nsx.ca_pem().to_owned(), offers }
    }
}

impl ConnectNsx for ToFake {
    fn http(&self, nsx: &NsxConfig) -> Result<http::Client, String> {
        let trust = TlsTrust::Ca { pem: self.ca_pem.clone().into_bytes(), path: "ca.pem".to_owned() };
        let tls = TlsSettings { trust, ..TlsSettings::default() };
        Ok(http::Client::new(http::Settings::new(&nsx.host, nsx.port, tls, "test")).unwrap())
    }

    fn source(&self, nsx: &NsxConfig) -> Result<LoginSource, String> {
        assert!(matches!(nsx.login, NsxLogin::Pair { .. }));
        let offers: Offers = self.offers.subscribe();
        Ok(LoginSource::Pairs { offers, scheme: Scheme::Basic })
    }
}

/// A cluster of which only the UID can be read.
struct Live;

#[async_trait]
impl LiveReads for Live {
    async fn node(&self, _name: &str) -> Presence<Node> {
        Presence::Unknown(Unknown::new(reason::NoPermission, "there is no API server"))
    }

    async fn service(&self, _namespace: &str, _name: &str) -> Presence<Service> {
        Presence::Absent(AbsenceProof::new("there is no API server", []))
    }

    async fn cluster_uid(&self) -> Result<String, Unknown> {
        Ok(UID.to_owned())
    }
}

#[async_trait]
impl ClusterEvents for Live {
    async fn warn(&self, _reason: Reason, _message: &str) {}
}

impl NsxWorld {
    async fn start(folder: &TempDir) -> Self {
        let vcenter = FakeVcenter::start(Model::small()).await;
        let nsx = Arc::new(FakeNsx::start(fake_nsx::Model::small()).await);
        let vcenter: Box<dyn support::VcenterServer> = Box::new(vcenter);
        let text =
            format!("{}{}{SECTIONS}", vcenter.ini_section("vc", "", folder.path()), nsx.ini_section(folder.path()));
        let running = Running::start_as(Arc::new(Files), &text, Running::options(), |provider, nodes| {
            provider.with_nsx(NsxServicesContext {
                connect: Arc::new(ToFake::new(&nsx)),
                throttle: Arc::new(Ledger::new(MemoryStore::default())),
                nodes,
                live: Arc::new(Live),
                events: Arc::new(Live),
                leads: AnyLeader::new(vec![watch::Sender::new(true).subscribe()]),
                may_log_in: AnyLeader::always(),
                calls_per_second: 80,
                adoption: Adoption::AsIs,
                // The suite's Services do not exist in a cluster.
                orphans: Policy::Off,
                requested_addresses: RequestedAddresses::Honored,
                cluster: "c".to_owned(),
                batches: true,
                timeouts: Timeouts::default(),
            })
        });
        Self { vsphere: VsphereWorld { vcenter, running }, nsx }
    }
}

#[async_trait]
impl World for NsxWorld {
    fn provider(&self) -> Arc<dyn CloudProvider> {
        self.vsphere.provider()
    }

    async fn add(&self, name: &str, address: &str) -> String {
        self.vsphere.add(name, address).await
    }

    async fn set_address(&self, name: &str, address: &str) {
        self.vsphere.set_address(name, address).await;
    }

    async fn set_power(&self, name: &str, on: bool) {
        self.vsphere.set_power(name, on).await;
    }

    async fn destroy(&self, name: &str) -> bool {
        self.vsphere.destroy(name).await
    }

    async fn set_unreachable(&self, name: &str, unreachable: bool) {
        self.vsphere.set_unreachable(name, unreachable).await;
    }

    async fn flood(&self, name: &str) -> bool {
        self.vsphere.flood(name).await
    }

    async fn set_network_fails(&self, fails: bool) -> bool {
        self.nsx.clear();
        for (operation, collection) in
            OPERATIONS.iter().flat_map(|operation| COLLECTIONS.map(|collection| (operation, collection)))
        {
            if fails {
                self.nsx.every(&format!("{operation} {collection}"), Trouble::overloaded());
            }
        }
        true
    }

    async fn load_balancer_objects(&self) -> usize {
        let is_part = |object: &serde_json::Value| {
            let path = object["path"].as_str().unwrap_or_default();
            let collection = path.rsplit('/').nth(1).unwrap_or_default();
            COLLECTIONS.contains(&collection) && object["marked_for_delete"] != json!(true)
        };
        self.nsx.objects().iter().filter(|object| is_part(object)).count()
    }

    async fn nodes_behind(&self, service: &Service) -> Option<Vec<String>> {
        let key = format!("default/{}", service.metadata.name.as_deref().unwrap());
        let pools = self.nsx.objects_below("/infra/lb-pools");
        let is_of = |pool: &&serde_json::Value| {
            let mut tags = pool["tags"].as_array().into_iter().flatten();
            tags.any(|tag| tag["scope"] == "service" && tag["tag"] == json!(key))
        };
        let names = |pool: &serde_json::Value| -> Vec<String> {
            let members = pool["members"].as_array().into_iter().flatten();
            let mut names: Vec<String> = members
                .map(|member| member["display_name"].as_str().unwrap().trim_start_matches("c:").to_owned())
                .collect();
            names.sort();
            names
        };
        let mut all: Vec<Vec<String>> = pools.iter().filter(is_of).map(names).collect();
        let count = all.len();
        all.dedup();
        assert!(count == 2 && all.len() == 1, "both ports have the same nodes: {all:?}");
        all.pop()
    }

    async fn pass(&self) {
        tokio::time::pause();
        tokio::time::advance(BETWEEN).await;
        tokio::time::resume();
    }

    fn declined_service(&self) -> Option<Service> {
        let mut service = load_balancers::service("elsewhere");
        service.spec.as_mut().unwrap().load_balancer_class = Some("example.com/other".to_owned());
        Some(service)
    }
}

#[tokio::test]
async fn the_vsphere_provider_keeps_the_contract_with_load_balancers_on_nsx() {
    support::api_server::install_crypto();
    let folder = TempDir::new().unwrap();
    let world = NsxWorld::start(&folder).await;
    assert!(world.provider().load_balancer().is_some());
    suite::all(&world).await;
    assert!(world.nsx.counts().of("PUT lb-virtual-servers") > 0);
    let NsxWorld { vsphere, nsx } = world;
    vsphere.running.cluster.clear();
    vsphere.running.stop().await;
    assert_eq!(nsx.counts().sessions, 0, "logged out");
}
