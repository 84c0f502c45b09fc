//! A cluster with load balancers on a fake NSX: its Nodes, its Services, and daemons with their own accounts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ccm::cloud::service::FINALIZER;
use ccm::controllers::service::node_set::LABEL_EXCLUDE;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Service};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use support::fake_nsx::go::{GoBalancer, PROGRAM};
use support::fake_nsx::go_rules::GoProgram;
use support::fake_nsx::{FakeNsx, Model, ObjectVersion};
use support::{ApiServer, Daemon, FakeVcenter, eventually, unique};
use tokio::sync::OnceCell;

use crate::admin::{Admin, token_of};
use crate::cluster::{Cluster, ip};
use crate::invariants::nsx::load_balancers::SERVICE;
use crate::invariants::nsx::load_balancers::results::{addresses, key};
use crate::invariants::nsx::routes::tag;

/// Much longer than any step takes while all other tests run. A deletion ends with a list, which happens at most every
/// 10 s, and many processes start at once.
pub const LIMIT: Duration = Duration::from_secs(180);
/// Password of every account in NSX.
const PASSWORD: &str = "Correct-Horse-7";
/// Maximum number of processes of a site.
const PROCESSES: usize = 4;
/// Size of load balancer services, with room for all Services of a test.
const SIZE: &str = "XLARGE";
/// All Services are reconciled concurrently, also if each of them waits for NSX.
const SYNCS: &str = "--concurrent-service-syncs=32";
/// User that creates the objects of the Go program.
pub const GO: &str = "go-program";

/// Returns the API server of these tests. On the shared API server the daemons of other tests would manage their
/// Services.
pub async fn server() -> &'static ApiServer {
    static SERVER: OnceCell<ApiServer> = OnceCell::const_new();
    SERVER.get_or_init(ApiServer::start).await
}

/// Returns a manager with two gateways, and with the accounts of the sites with these names.
pub async fn manager(sites: &[&str]) -> Arc<FakeNsx> {
    let accounts = sites.iter().flat_map(|site| (0..PROCESSES).map(move |number| account(site, number)));
    let existing = json!({"size": SIZE, "connectivity_path": "/infra/tier-1s/t2"});
    let model = Model::small().tier1("t2").object("/infra/lb-services/existing", existing);
    Arc::new(FakeNsx::start(accounts.fold(model, |model, account| model.user(&account, PASSWORD))).await)
}

fn account(site: &str, number: usize) -> String {
    format!("{site}-{number}")
}

/// Returns the load balancer sections of `vsphere.conf`, for this gateway.
pub fn on_gateway(tier1: &str) -> String {
    format!(
        "[LoadBalancer]\nsize = {SIZE}\ntier1-gateway-path = /infra/tier-1s/{tier1}\nip-pool-id = p1\n\
         tcp-app-profile-path = /infra/lb-app-profiles/default-tcp-lb-app-profile\n\
         udp-app-profile-path = /infra/lb-app-profiles/default-udp-lb-app-profile\n"
    )
}

/// Returns the load balancer sections of `vsphere.conf`, for a load balancer service of an administrator, with names in
/// place of paths.
pub fn on_existing() -> String {
    format!(
        "[LoadBalancer]\nsize = {SIZE}\nlb-service-id = existing\nip-pool-name = pool1\n\
         tcp-app-profile-name = default-tcp-lb-app-profile\nudp-app-profile-name = default-udp-lb-app-profile\n"
    )
}

/// Properties of a site.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Prefix of the site's accounts in NSX.
    pub account: &'static str,
    /// Value of `--cluster-name`. `None` creates a unique name.
    pub cluster: Option<String>,
    /// Namespace of the Services. `None` creates a unique namespace.
    pub namespace: Option<String>,
    /// Whether the processes may read the UID of the cluster.
    pub knows_uid: bool,
    /// Load balancer sections of `vsphere.conf`.
    pub sections: String,
}

impl Setup {
    /// Returns the setup of a single site on its manager, on the gateway `t1`.
    pub fn alone(knows_uid: bool) -> Self {
        Self { account: "site", cluster: None, namespace: None, knows_uid, sections: on_gateway("t1") }
    }
}

/// A cluster with load balancers.
pub struct Site {
    pub cluster: Cluster,
    pub nsx: Arc<FakeNsx>,
    pub services: Api<Service>,
    /// Namespace of the Services.
    pub namespace: String,
    /// Value of `--cluster-name`.
    pub name: String,
    setup: Setup,
    token: String,
    /// Flag with the kubeconfig of a user that has only the permissions of the manifests.
    kubeconfig: Option<String>,
    vcenter: FakeVcenter,
    folder: tempfile::TempDir,
    started: usize,
}

/// A daemon of the site.
pub struct Process {
    pub daemon: Daemon,
    /// Account of the daemon in NSX.
    pub account: String,
    admin: Admin,
    token: String,
}

impl Process {
    /// Returns the series whose names have this prefix, with their values.
    pub async fn series(&mut self, beginning: &str) -> Vec<String> {
        let (_, text) = self.admin.get("/metrics", Some(&self.token), &mut self.daemon).await;
        text.lines().filter(|line| line.starts_with(beginning)).map(str::to_owned).collect()
    }

    /// Returns the sum over all labels of this metric.
    pub async fn sum(&mut self, metric: &str) -> f64 {
        self.admin.sum(metric, &self.token, &mut self.daemon).await
    }

    /// Waits until exactly this many Services have the load balancers that they request.
    pub async fn wait_until_ensured(&mut self, count: usize) {
        eventually(&format!("{count} load balancers are ensured"), LIMIT, async || {
            let (ensured, held) =
                (self.sum("vsphere_ccm_load_balancers ").await, self.sum("vsphere_ccm_load_balancers_held{").await);
            match ensured == count as f64 && held == 0.0 {
                true => Ok(()),
                false => Err(format!("{ensured}, held {held}\n{}", self.daemon.output().tail(30))),
            }
        })
        .await;
    }

    /// Waits until the metric counts this many objects of unclear owner.
    pub async fn wait_until_held(&mut self, count: usize) {
        let wanted = format!(",state=\"held\"}} {count}");
        eventually(&format!("{count} objects are held"), LIMIT, async || {
            let (_, text) = self.admin.get("/metrics", Some(&self.token), &mut self.daemon).await;
            let mut lines = text.lines().filter(|line| line.starts_with("vsphere_ccm_load_balancer_objects{"));
            match lines.any(|line| line.ends_with(&wanted)) {
                true => Ok(()),
                false => Err(format!("{:?}\n{}", lines.collect::<Vec<_>>(), self.daemon.output().tail(30))),
            }
        })
        .await;
    }

    /// Opens a connection, so that the daemon reads its clock.
    pub async fn wake(&self) {
        drop(tokio::net::TcpStream::connect(("127.0.0.1", self.admin.port())).await);
    }

    /// Stops the daemon with SIGTERM.
    pub async fn stop(mut self) {
        assert_eq!(self.daemon.stop(LIMIT).await.code(), Some(0), "{}", self.daemon.output().tail(40));
    }
}

impl Site {
    /// Creates a single site on its own manager, with the Nodes of these numbers.
    pub async fn alone(knows_uid: bool, nodes: Range<usize>) -> Self {
        Self::new(server().await, manager(&["site"]).await, Setup::alone(knows_uid), nodes).await
    }

    /// Creates a site with the Nodes of these numbers.
    pub async fn new(server: &ApiServer, nsx: Arc<FakeNsx>, setup: Setup, nodes: Range<usize>) -> Self {
        let cluster = Cluster::on(server).await;
        let namespace = setup.namespace.clone().unwrap_or_else(|| cluster.pool().to_owned());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(cluster.client.clone()).create(&PostParams::default(), &object).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("nsx-ca.pem"), nsx.ca_pem()).unwrap();
        let site = Self {
            services: Api::namespaced(cluster.client.clone(), &namespace),
            name: setup.cluster.clone().unwrap_or_else(|| cluster.pool().to_owned()),
            kubeconfig: if setup.knows_uid { None } else { Some(limited(&cluster, server).await) },
            token: token_of(server).await,
            vcenter: FakeVcenter::start(support::Model::small()).await,
            started: 0,
            cluster,
            nsx,
            namespace,
            setup,
            folder,
        };
        for number in nodes {
            site.join(number).await;
        }
        site
    }

    /// Registers a Node that already has its address.
    pub async fn join(&self, number: usize) {
        self.cluster.kubelet(number).provided_ip(&ip(number)).ready().register(&self.cluster.client).await;
    }

    /// Excludes a Node from all load balancers, or includes it again.
    pub async fn exclude(&self, number: usize, is_excluded: bool) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL_EXCLUDE: is_excluded.then_some("true")}}}));
        let nodes = Api::<Node>::all(self.cluster.client.clone());
        nodes.patch(&self.cluster.name(number), &PatchParams::default(), &patch).await.unwrap();
    }

    /// Starts a daemon with its own account, without leader election unless `more` has that flag.
    pub fn start(&mut self, more: &[&str]) -> Process {
        self.start_in(&[], more)
    }

    /// As [`Site::start`], with environment variables.
    pub fn start_in(&mut self, variables: &[(&str, &str)], more: &[&str]) -> Process {
        let account = account(self.setup.account, self.started);
        self.started += 1;
        let vcenter = Cluster::zoned(&[self.vcenter.ini_section("vc-1", "dc-1", self.folder.path())]);
        let (host, ca) = (self.nsx.address(), self.folder.path().join("nsx-ca.pem"));
        let config = format!(
            "{vcenter}\n[NSXT]\nhost = {host}\nca-file = {}\nuser = {account}\npassword = {PASSWORD}\n{}",
            ca.display(),
            self.setup.sections
        );
        let admin = Admin::new();
        let flags = [
            format!("--cluster-name={}", self.name),
            format!("--service-selector={}", self.cluster.labels()),
            admin.flag(),
        ];
        let flags = flags.iter().map(String::as_str).chain(["--controllers=service", SYNCS]);
        let flags: Vec<&str> = flags.chain(self.kubeconfig.as_deref()).chain(more.iter().copied()).collect();
        let daemon = self.cluster.start_in(variables, &config, &flags);
        Process { daemon, account, admin, token: self.token.clone() }
    }

    /// Returns namespace and name of a Service in the form of tags.
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// Creates a Service with these ports. Processes do not see it before [`Site::select`].
    pub async fn create(&self, name: &str, ports: &[(&str, u16)]) -> Service {
        self.create_with(name, ports, json!({})).await
    }

    /// As [`Site::create`], with further fields of the spec.
    pub async fn create_with(&self, name: &str, ports: &[(&str, u16)], mut spec: Value) -> Service {
        let port = |(protocol, port): &(&str, u16)| json!({"name": format!("{protocol}-{port}").to_lowercase(), "protocol": protocol, "port": port});
        spec["type"] = json!("LoadBalancer");
        spec["ports"] = ports.iter().map(port).collect();
        let service = json!({"metadata": {"name": name}, "spec": spec});
        self.services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap()
    }

    /// Makes a Service visible for processes.
    pub async fn select(&self, name: &str) {
        let (label, value) = self.label();
        self.patch(name, json!({"metadata": {"labels": {label: value}}})).await;
    }

    /// Returns the labels of the Services that processes see.
    pub fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([self.label()])
    }

    fn label(&self) -> (String, String) {
        let labels = self.cluster.labels();
        let (label, value) = labels.split_once('=').unwrap();
        (label.to_owned(), value.to_owned())
    }

    /// Changes a Service.
    pub async fn patch(&self, name: &str, change: Value) {
        self.services.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }

    /// Gives a Service these ports. Existing ports keep their node ports.
    pub async fn set_ports(&self, name: &str, ports: &[(&str, u16, Option<i32>)]) {
        let port = |(protocol, port, node_port): &(&str, u16, Option<i32>)| {
            let name = format!("{protocol}-{port}").to_lowercase();
            json!({"name": name, "protocol": protocol, "port": port, "nodePort": node_port})
        };
        self.patch(name, json!({"spec": {"ports": ports.iter().map(port).collect::<Vec<_>>()}})).await;
    }

    /// Returns the load balancer of the Go program for a Service with this address, without creating it in NSX.
    pub fn of_go(&self, service: &Service, address: IpAddr, nodes: Range<usize>) -> GoBalancer {
        let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).unwrap();
        let ports: Vec<(&str, u16, u16)> = ports
            .iter()
            .map(|port| {
                let number = |number: i32| u16::try_from(number).unwrap();
                (port.protocol.as_deref().unwrap(), number(port.port), number(port.node_port.unwrap()))
            })
            .collect();
        let nodes: Vec<(String, IpAddr)> =
            nodes.map(|number| (self.cluster.name(number), ip(number).parse().unwrap())).collect();
        let nodes: Vec<(&str, IpAddr)> = nodes.iter().map(|(name, address)| (name.as_str(), *address)).collect();
        let mut balancer = GoBalancer::new(&self.name, &key(service), address).ports(&ports).nodes(&nodes);
        SIZE.clone_into(&mut balancer.size);
        balancer
    }

    /// Makes the Service equal to the result of the Go program: with its finalizer, and with this address in the status
    /// if there is one.
    pub async fn leave_by_go(&self, name: &str, address: Option<IpAddr>) {
        let manager = PatchParams { field_manager: Some(PROGRAM.to_owned()), ..PatchParams::default() };
        let finalizer = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
        self.services.patch(name, &manager, &finalizer).await.unwrap();
        if let Some(address) = address {
            let status = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}));
            self.services.patch_status(name, &manager, &status).await.unwrap();
        }
    }

    /// Returns the Services that processes see, by name.
    pub async fn selected(&self) -> BTreeMap<String, Service> {
        let selected = ListParams::default().labels(&self.cluster.labels());
        let services = self.services.list(&selected).await.unwrap().items;
        services.into_iter().map(|service| (service.name_any(), service)).collect()
    }

    /// Waits until a Service reports exactly one address.
    pub async fn wait_for_address(&self, name: &str, process: &Process) -> IpAddr {
        eventually(&format!("Service {name} has an address"), LIMIT, async || {
            let service = self.services.get(name).await.unwrap();
            match addresses(&service)[..] {
                [address] => Ok(address.parse().unwrap()),
                ref other => Err(format!("{other:?}\n{}", process.daemon.output().tail(30))),
            }
        })
        .await
    }

    /// Waits until a Service is deleted.
    pub async fn wait_until_gone(&self, name: &str, process: &Process) {
        eventually(&format!("Service {name} is gone"), LIMIT, async || {
            match self.services.get_opt(name).await.unwrap() {
                None => Ok(()),
                Some(service) => Err(format!("{:?}\n{}", service.metadata, process.daemon.output().tail(30))),
            }
        })
        .await;
    }

    /// Returns the objects in NSX with the tag of this Service that are not marked for deletion.
    pub fn objects_of(&self, name: &str) -> Vec<Value> {
        let key = self.key(name);
        let is_one =
            |object: &Value| tag(object, SERVICE).as_ref() == Some(&key) && object["marked_for_delete"] != json!(true);
        self.nsx.objects().into_iter().filter(is_one).collect()
    }

    /// Returns the load balancer services of clusters.
    pub fn lb_services(&self) -> Vec<Value> {
        let services = self.nsx.objects_below("/infra/lb-services");
        let is_one =
            |service: &Value| service["id"] != json!("existing") && service["marked_for_delete"] != json!(true);
        services.into_iter().filter(is_one).collect()
    }

    /// Returns the versions after the first `seen` ones that requests wrote.
    pub fn written_since(&self, seen: usize) -> Vec<ObjectVersion> {
        let versions = self.nsx.history_from(seen);
        versions.into_iter().filter(|version| version.request.is_some()).collect()
    }

    /// Waits until no request of an account is in flight, including requests of dead processes.
    pub async fn wait_for_requests_of(&self, account: &str) {
        eventually(&format!("the requests of {account} are over"), LIMIT, async || {
            let requests = self.nsx.requests();
            let mut open = requests.iter().filter(|request| request.user == account && request.status.is_none());
            match open.next() {
                None => Ok(()),
                Some(open) => Err(format!("{} {}", open.method, open.path)),
            }
        })
        .await;
    }

    /// Returns the Events about Services, as pairs of Service and reason.
    pub async fn events(&self) -> Vec<(String, String)> {
        let events = Api::<Event>::namespaced(self.cluster.client.clone(), &self.namespace);
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let event = |event: Event| (event.involved_object.name.unwrap_or_default(), event.reason.unwrap_or_default());
        let mut events: Vec<_> = events.into_iter().map(event).collect();
        events.sort();
        events
    }

    /// Returns the objects that the Go program would reject or write, except lines about these Services.
    pub async fn handed_back(&self, but: &BTreeSet<String>) -> Vec<String> {
        let mut program = GoProgram::new(&self.name);
        if self.setup.sections == on_existing() {
            (program.lb_service_id, program.tier1_path) = (Some("existing".to_owned()), None);
        }
        let services: Vec<Service> = self.selected().await.into_values().collect();
        let nodes: Vec<Node> = self.cluster.nodes().await.into_values().collect();
        let wrong = program.hand_back(&self.nsx.objects(), |path| self.nsx.allocated_address(path), &services, &nodes);
        let is_of = |line: &String, name: &String| line.split([' ', ':']).any(|word| *word == self.key(name));
        wrong.into_iter().filter(|line| !but.iter().any(|name| is_of(line, name))).collect()
    }
}

/// Returns the flag for a user with the permissions of the manifests, except the permission of the component `nsx` to
/// read the UID.
async fn limited(cluster: &Cluster, server: &ApiServer) -> String {
    let user = unique("limited");
    cluster.grant(std::slice::from_ref(&user)).await;
    let name = format!("{}:load-balancers", cluster.pool());
    let rules = json!([
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    ]);
    cluster.create_role(json!({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})).await;
    let binding = json!({
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
    });
    cluster.create_role(binding).await;
    format!("--kubeconfig={}", server.kubeconfig_of(&user).display())
}
