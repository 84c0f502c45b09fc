//! Two vCenters with a provider, and the rules while one of them has a fault.

mod observations;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ccm::clients::http::{self, TlsSettings, TlsTrust};
use ccm::clients::vim::Timeouts;
use ccm::cloud::{CloudProvider as _, FoundBy, InstanceMetadata, InstancesV2, Presence};
use ccm::providers::vsphere::config::{self, Credentials};
use ccm::providers::vsphere::login::credentials::{Credential, CredentialState, Login, Offers, Origin};
use ccm::providers::vsphere::nodes::metadata::topology::TopologyLabels;
use ccm::providers::vsphere::vcenter::Vcenter as Inventory;
use ccm::providers::vsphere::vcenter::snapshot::{Freshness, Snapshot};
use ccm::providers::vsphere::{Connect, Options};
use k8s_openapi::api::core::v1::{Node, NodeSpec};
use secrecy::SecretString;
use support::fake_vcenter::Certificate;
use support::{FakeVcenter, Machine, Model, Object, Scenario, Vcenter, VcenterServer, Vm, eventually};
use tempfile::TempDir;
use tokio::sync::watch;

use super::Felt;
use crate::world::{Running, node};

/// Time limit of the clients' calls in these tests.
const CALL_LIMIT: Duration = Duration::from_secs(3);
/// Limit until the healthy vCenter has shown a change and a new machine, with many rows on a small machine.
const OTHER_FOLLOWS: Duration = Duration::from_secs(15);
/// Limit until the fault is observed. A call that hangs takes the client's time limit.
const FELT: Duration = Duration::from_secs(30);
/// Limit until a new provider has read all objects.
const FROM_SCRATCH: Duration = Duration::from_secs(40);
/// Limit for a stop with a server that answers.
const STOP: Duration = Duration::from_secs(6);
const ZONES: &str = "[Labels]\nregion = k8s-region\nzone = k8s-zone\n";

/// Clients and credentials of the vCenters.
#[derive(Default)]
pub struct Doors {
    clients: Mutex<HashMap<u16, http::Client>>,
    offers: Mutex<HashMap<u16, watch::Sender<Arc<CredentialState>>>>,
}

fn trusting(pem: Vec<u8>) -> TlsSettings {
    TlsSettings { trust: TlsTrust::Ca { pem, path: "ca.pem".to_owned() }, ..TlsSettings::default() }
}

fn pair(user: &str, password: SecretString) -> Arc<CredentialState> {
    let login = Login::Password { user: user.to_owned(), password };
    Arc::new(CredentialState::Ready(vec![Arc::new(Credential { login, origin: Origin::Config })]))
}

impl Connect for Doors {
    fn http(&self, entry: &config::VcenterConfig) -> Result<http::Client, String> {
        let tls = trusting(std::fs::read(&entry.ca_files[0]).unwrap());
        let client = http::Client::new(http::Settings::new(&entry.server, entry.port, tls, "test")).unwrap();
        self.clients.lock().unwrap().insert(entry.port, client.clone());
        Ok(client)
    }

    fn offers(&self, entry: &config::VcenterConfig) -> Offers {
        let Credentials::Inline { user, password } = &entry.credentials else { panic!("not in the file") };
        let mut offers = self.offers.lock().unwrap();
        offers.entry(entry.port).or_insert_with(|| watch::Sender::new(pair(user, password.clone()))).subscribe()
    }
}

enum Server {
    Fake(FakeVcenter),
    Simulator(Box<Vcenter>),
}

impl Server {
    fn any(&self) -> &dyn VcenterServer {
        match self {
            Self::Fake(fake) => fake,
            Self::Simulator(simulator) => &**simulator,
        }
    }
}

/// States that were observed since the start of the fault.
#[derive(Default)]
struct Flags {
    was_stale: AtomicBool,
    had_no_tags: AtomicBool,
}

/// All parts of one row.
pub struct Scene {
    troubled: Server,
    other: FakeVcenter,
    folder: TempDir,
    doors: Arc<Doors>,
    running: Mutex<Option<Running>>,
    instances: Arc<dyn InstancesV2>,
    zones: &'static [&'static str],
    tag_poll: Duration,
    /// Nodes by name, as in the cluster.
    nodes: Mutex<BTreeMap<String, Node>>,
    /// All addresses that machines had.
    addresses: Mutex<BTreeSet<String>>,
    /// Current CA file of the vCenter with the fault, if it is not the first.
    ca: Mutex<Option<String>>,
    kept: Mutex<Option<(Certificate, String)>>,
    felt: Arc<Flags>,
    counted: Mutex<BTreeMap<String, u32>>,
    looks: AtomicU32,
}

fn number(name: &str) -> usize {
    let (prefix, number) = name.split_once('-').unwrap();
    number.parse::<usize>().unwrap() + if prefix == "m" { 100 } else { 0 }
}

fn uuid(name: &str) -> String {
    Model::uuid(number(name))
}

fn first_address(name: &str) -> String {
    format!("10.1.0.{}", number(name))
}

fn machine(name: &str) -> Machine {
    Machine::new(name, &uuid(name)).ip(&first_address(name))
}

fn simulated(name: &str) -> Vm {
    Vm::new(name, &uuid(name)).ip(&first_address(name))
}

fn model(names: &[&str], zone: &str) -> Model {
    let small = Model::small().page_size(3);
    let model = small.tag("k8s-region", "region-1", &[("Datacenter", "dc-1")]);
    let model = model.tag("k8s-zone", zone, &[("ClusterComputeResource", "cluster-1")]).tag("k8s-zone", "spare", &[]);
    names.iter().fold(model, |model, name| model.vm(machine(name)))
}

fn scenario(names: &[&str]) -> Scenario {
    let scenario = Scenario::small()
        .category("k8s-region", "SINGLE")
        .category("k8s-zone", "SINGLE")
        .tag("k8s-region", "region-1", [Object::datacenter("dc-1")])
        .tag("k8s-zone", "zone-a", [Object::cluster("cluster-1")])
        .tag("k8s-zone", "spare", []);
    names.iter().fold(scenario, |scenario, name| scenario.vm(simulated(name)))
}

fn options(tag_poll: Duration) -> Options {
    Options {
        file: "vsphere.conf".to_owned(),
        tag_poll,
        allow_name_match: false,
        trusts_unseen: false,
        topology: TopologyLabels::default(),
        demotes_virtual_ips: true,
        trusts_guest_interfaces: false,
        api_server: Vec::new(),
        family_wait: Duration::from_secs(120),
        timeouts: Timeouts { call: CALL_LIMIT, login: CALL_LIMIT, wait_margin: CALL_LIMIT, ..Timeouts::default() },
    }
}

fn with_record(name: &str, metadata: &InstanceMetadata) -> Node {
    let mut node = node(name, &uuid(name));
    node.spec = Some(NodeSpec { provider_id: Some(metadata.provider_id.clone()), ..NodeSpec::default() });
    node.metadata.annotations = Some([("vsphere-ccm.dev/vm".to_owned(), metadata.record.clone())].into());
    node
}

fn internal(metadata: &InstanceMetadata) -> Vec<&str> {
    metadata.node_addresses.iter().filter(|one| one.type_ == "InternalIP").map(|one| one.address.as_str()).collect()
}

fn is_of_other(name: &str) -> bool {
    name.starts_with('m')
}

impl Scene {
    /// Starts both vCenters and the provider, with initialized nodes.
    pub async fn start(is_simulator: bool, zones: &'static [&'static str], tag_poll: Duration) -> Rc<Self> {
        let names = ["n-1", "n-2", "n-3", "n-4"];
        let others = ["m-1", "m-2"];
        let troubled = if is_simulator {
            Server::Simulator(Box::new(Vcenter::start(&scenario(&names)).await))
        } else {
            Server::Fake(FakeVcenter::start(model(&names, "zone-a")).await)
        };
        let other = FakeVcenter::start(model(&others, "zone-m")).await;
        let folder = TempDir::new().unwrap();
        let doors = Arc::new(Doors::default());
        let text = text(&troubled, &other, &folder, None);
        let running = Running::start_through(Arc::clone(&doors) as Arc<dyn Connect>, &text, options(tag_poll));
        let instances = running.provider.instances_v2().unwrap();
        let scene = Rc::new(Self {
            troubled,
            other,
            folder,
            doors,
            running: Mutex::new(Some(running)),
            instances,
            zones,
            tag_poll,
            nodes: Mutex::default(),
            addresses: Mutex::default(),
            ca: Mutex::default(),
            kept: Mutex::default(),
            felt: Arc::default(),
            counted: Mutex::default(),
            looks: AtomicU32::new(0),
        });
        for name in names.iter().chain(&others) {
            scene.put(name, node(name, &uuid(name)));
        }
        for name in names.iter().chain(&others) {
            let metadata = scene.known(name, FROM_SCRATCH, |found| !found.zone.is_empty()).await;
            scene.put(name, with_record(name, &metadata));
            scene.known(name, FROM_SCRATCH, |found| !found.zone.is_empty()).await;
        }
        scene
    }

    /// Returns the fake vCenter with the fault.
    pub fn fake(&self) -> &FakeVcenter {
        match &self.troubled {
            Server::Fake(fake) => fake,
            Server::Simulator(_) => panic!("this row has no fake"),
        }
    }

    /// Returns the simulator with the fault.
    pub fn simulator(&self) -> &Vcenter {
        match &self.troubled {
            Server::Simulator(simulator) => simulator,
            Server::Fake(_) => panic!("this row has no simulator"),
        }
    }

    fn port(&self) -> u16 {
        self.troubled.any().port()
    }

    /// Makes the vCenter with the fault show another certificate.
    pub fn change_certificate(&self) {
        let first = self.fake().certificate();
        *self.kept.lock().unwrap() = Some((first, self.fake().change_certificate()));
    }

    /// Makes the vCenter with the fault show its first certificate again.
    pub fn show_first_certificate(&self) {
        let (first, _) = self.kept.lock().unwrap().clone().unwrap();
        self.fake().use_certificate(first);
    }

    /// Trusts the other certificate, as when the CA file changes.
    pub fn trust_other_certificate(&self) {
        let (_, pem) = self.kept.lock().unwrap().clone().unwrap();
        let client = self.doors.clients.lock().unwrap()[&self.port()].clone();
        client.set_tls(trusting(pem.as_bytes().to_vec())).unwrap();
        *self.ca.lock().unwrap() = Some(pem);
    }

    /// Offers this password from now on, as when the Secret changes.
    pub fn offer(&self, password: &str) {
        let offer = pair(&self.fake().user(), SecretString::from(password));
        self.doors.offers.lock().unwrap()[&self.port()].send_replace(offer);
    }

    fn put(&self, name: &str, node: Node) {
        self.addresses.lock().unwrap().insert(first_address(name));
        self.nodes.lock().unwrap().insert(name.to_owned(), node.clone());
        self.running.lock().unwrap().as_ref().unwrap().cluster.put(node);
    }

    fn node(&self, name: &str) -> Node {
        self.nodes.lock().unwrap()[name].clone()
    }

    fn snapshot_at(&self, port: u16) -> Arc<Snapshot> {
        let running = self.running.lock().unwrap();
        snapshot_of(running.as_ref().unwrap(), port)
    }

    async fn known(&self, name: &str, limit: Duration, accept: impl Fn(&InstanceMetadata) -> bool) -> InstanceMetadata {
        eventually(&format!("{name} is known"), limit, async || {
            match self.instances.instance_metadata(&self.node(name)).await {
                Presence::Exists(metadata) if accept(&metadata) => Ok(metadata),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    /// Changes both vCenters: one address each, and in every odd round a new machine each. In the first round the fake
    /// with the fault also loses a machine.
    pub async fn change(&self, round: usize) {
        let (own, others) = (format!("10.2.0.{round}"), format!("10.3.0.{round}"));
        self.addresses.lock().unwrap().extend([own.clone(), others.clone()]);
        let (new, new_other) = (format!("n-{}", 4 + round), format!("m-{}", 2 + round));
        let (is_first, is_odd) = (round == 1, round % 2 == 1);
        if is_first && matches!(self.troubled, Server::Fake(_)) {
            // Before the machine is destroyed. From now on every answer about it is permitted.
            self.nodes.lock().unwrap().remove("n-4").unwrap();
        }
        let troubled = self.troubled.any();
        troubled.set_ip("n-1", &own).await;
        // On the simulator no machine is destroyed. Its next answers sometimes do not report that a machine left, so
        // the machine stays known as existing. The cause is not known.
        if is_first && matches!(self.troubled, Server::Fake(_)) {
            troubled.destroy_vm("n-4").await;
        }
        if is_odd {
            troubled.create_vm(&new, &uuid(&new), &first_address(&new)).await;
        }
        self.other.change_vm("m-1", |vm| vm.ip(&others));
        if is_odd {
            self.other.create_vm(machine(&new_other));
            for name in [new, new_other] {
                self.put(&name, node(&name, &uuid(&name)));
            }
        }
    }

    /// Waits until the healthy vCenter shows its changes and its new machine.
    pub async fn other_follows(&self, round: usize) {
        let address = format!("10.3.0.{round}");
        self.known("m-1", OTHER_FOLLOWS, |found| internal(found) == [address.as_str()]).await;
        let new = format!("m-{}", 3 + (round - 1) / 2 * 2);
        self.known(&new, OTHER_FOLLOWS, |found| found.zone == "zone-m").await;
    }

    async fn count(&self, operation: &str) -> u32 {
        self.troubled.any().counts().await.of(operation)
    }

    /// Waits for a pending `WaitForUpdatesEx`, so that no other call is in flight. Later observations belong to the
    /// next fault.
    pub async fn settle(&self) {
        eventually("a wait is pending", FELT, async || {
            let pending = self.troubled.any().counts().await.pending_waits;
            if pending > 0 { Ok(()) } else { Err("none") }
        })
        .await;
        for operation in ["FindAllByUuid", "Login", "WaitForUpdatesEx", "REST:session-login"] {
            let count = self.count(operation).await;
            self.counted.lock().unwrap().insert(operation.to_owned(), count);
        }
        self.felt.was_stale.store(false, Ordering::Relaxed);
        self.felt.had_no_tags.store(false, Ordering::Relaxed);
    }

    /// Waits until the fault has reached the daemon.
    pub async fn feel(&self, felt: Felt, round: usize) {
        match felt {
            Felt::Stale => self.flagged("it is stale", &self.felt.was_stale).await,
            Felt::Tags => self.flagged("tags cannot be read", &self.felt.had_no_tags).await,
            Felt::Counted(operation, times) => {
                let before = self.counted.lock().unwrap()[operation];
                eventually(operation, FELT, async || {
                    let now = self.count(operation).await;
                    if now >= before + times { Ok(()) } else { Err(now.to_string()) }
                })
                .await;
            }
            Felt::Follows => self.follow(round, FELT).await,
        }
    }

    async fn flagged(&self, what: &str, flag: &AtomicBool) {
        eventually(what, FELT, async || if flag.load(Ordering::Relaxed) { Ok(()) } else { Err(self.told()) }).await;
    }

    async fn follow(&self, round: usize, limit: Duration) {
        let address = format!("10.2.0.{round}");
        let began = Instant::now();
        let left = || limit.saturating_sub(began.elapsed());
        self.known("n-1", left(), |found| internal(found) == [address.as_str()] && found.stale.is_none()).await;
        let new = format!("n-{}", 5 + (round - 1) / 2 * 2);
        for name in ["n-2", "n-3", &new] {
            self.known(name, left(), |found| !found.zone.is_empty() && found.stale.is_none()).await;
        }
    }

    /// Waits until all is as before the fault, with the changes in the meantime.
    pub async fn recover(&self, round: usize, limit: Duration) {
        let began = Instant::now();
        self.follow(round, limit).await;
        eventually("the inventory is live", limit.saturating_sub(began.elapsed()), async || {
            let now = self.snapshot_at(self.port());
            let is_well = now.freshness == Freshness::Live && now.tags.error.is_none();
            if is_well { Ok(()) } else { Err(self.told()) }
        })
        .await;
    }

    fn told(&self) -> String {
        let now = self.snapshot_at(self.port());
        let mut vms: Vec<&str> = now.vms.keys().map(|id| &**id).collect();
        vms.sort();
        let trouble = now.tags.error.as_ref();
        format!("{:?}; machines {vms:?}; unresolved {:?}; tags {trouble:?}", now.freshness, now.unresolved)
    }

    /// Checks that the state of the vCenter with the fault equals that of a new provider, by provider IDs.
    pub async fn equals_one_built_from_scratch(&self) {
        let ca = self.ca.lock().unwrap().clone();
        let text = text(&self.troubled, &self.other, &self.folder, ca);
        let fresh = Running::start_through(Arc::new(Doors::default()), &text, options(self.tag_poll));
        for node in self.nodes.lock().unwrap().values() {
            fresh.cluster.put(node.clone());
        }
        let instances = fresh.provider.instances_v2().unwrap();
        let names: Vec<String> = self.nodes.lock().unwrap().keys().cloned().collect();
        eventually("it is as one built from scratch", FROM_SCRATCH, async || {
            let (own, other) = (self.snapshot_at(self.port()), snapshot_of(&fresh, self.port()));
            let pairs = [
                ("machines", own.vms == other.vms),
                ("entities", own.entities == other.entities),
                ("tags", own.tags == other.tags),
                ("identity", own.instance_uuid == other.instance_uuid),
                ("freshness", own.freshness == other.freshness),
            ];
            if let Some((what, _)) = pairs.iter().find(|(_, is_same)| !is_same) {
                return Err(format!("{what}: {own:?} and {other:?}"));
            }
            for name in &names {
                let node = self.node(name);
                let found = |metadata| InstanceMetadata { found_by: FoundBy::ProviderId, ..metadata };
                let own = self.instances.instance_metadata(&node).await.map(found);
                let other = instances.instance_metadata(&node).await.map(found);
                if own != other || !matches!(own, Presence::Exists(_)) {
                    return Err(format!("{name}: {own:?} and {other:?}"));
                }
            }
            Ok(())
        })
        .await;
        fresh.stop().await;
    }

    /// Stops with pending waits. Checks that all sessions are logged out in time, except the lost sessions at the
    /// vCenter with the fault.
    pub async fn stop(&self, lost_sessions: u32) -> Result<(), String> {
        let running = self.running.lock().unwrap().take().unwrap();
        let began = Instant::now();
        running.stop().await;
        let took = began.elapsed();
        if took > STOP {
            return Err(format!("the stop took {took:?}"));
        }
        let mut open = Vec::new();
        for server in [self.troubled.any(), &self.other] {
            let counts = server.counts().await;
            open.push((counts.soap_sessions, counts.rest_sessions));
        }
        if open == [(lost_sessions, 0), (0, 0)] { Ok(()) } else { Err(format!("sessions are left open: {open:?}")) }
    }
}

fn snapshot_of(running: &Running, port: u16) -> Arc<Snapshot> {
    inventory_of(running, port).snapshot()
}

fn inventory_of(running: &Running, port: u16) -> Arc<Inventory> {
    let server = format!("127.0.0.1:{port}");
    running.provider.inventories().into_iter().find(|one| one.server() == server).unwrap()
}

/// Returns the current `vsphere.conf`.
fn text(troubled: &Server, other: &FakeVcenter, folder: &TempDir, ca: Option<String>) -> String {
    let section = troubled.any().ini_section("a", "", folder.path());
    if let (Server::Fake(fake), Some(pem)) = (troubled, ca) {
        std::fs::write(folder.path().join(format!("{}.pem", fake.port())), pem).unwrap();
    }
    format!("{section}{}{ZONES}", other.ini_section("b", "", folder.path()))
}
