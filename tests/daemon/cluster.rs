//! A test's own part of the shared API server: nodes with the test's label, and the daemon that manages them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use support::nodes::NodeView;
use support::rbac;
use support::{ApiServer, Daemon, KubeletNode, Machine, Model, Object, Scenario, Vcenter, Vm, eventually, unique};

use crate::manifests::kustomize::form;

/// Much longer than any step takes, even on a machine that also compiles.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Log line for a vCenter whose inventory was read.
pub const ANSWERS: &str = "vCenter answers, its inventory is known";

/// Path of the daemon's binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_vsphere-cloud-controller-manager");
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// The BIOS UUID of the machine with this number, as vCenter writes it.
pub fn uuid(number: usize) -> String {
    format!("4211a1b2-c3d4-4e5f-8a9b-{number:012}")
}

/// Returns the UUID as most guests report it: the first three groups in the other byte order.
pub fn swapped(uuid: &str) -> String {
    let reversed = |group: &str| {
        let bytes: Vec<char> = group.chars().collect();
        bytes.chunks(2).rev().flatten().collect::<String>()
    };
    let groups = uuid.split('-').enumerate();
    groups
        .map(|(index, group)| if index < 3 { reversed(group) } else { group.to_owned() })
        .collect::<Vec<_>>()
        .join("-")
}

/// The address of the machine with this number.
pub fn ip(number: usize) -> String {
    format!("10.1.{}.{}", number / 200, number % 200 + 1)
}

/// A test's own nodes on an API server.
pub struct Cluster {
    /// Client with administrator rights.
    pub client: Client,
    kubeconfig: PathBuf,
    folder: PathBuf,
    pool: String,
}

impl Cluster {
    /// Uses the API server that all tests share. Only this test sees its nodes.
    pub async fn new() -> Self {
        Self::on(ApiServer::shared().await).await
    }

    /// Uses an API server that belongs to this test alone.
    pub async fn on(server: &ApiServer) -> Self {
        Self {
            client: server.client().await,
            kubeconfig: server.kubeconfig(),
            folder: server.folder().to_owned(),
            pool: unique("pool"),
        }
    }

    /// Returns a folder that exists as long as the API server.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The name of the node with this number, and of its machine.
    pub fn name(&self, number: usize) -> String {
        format!("{}-{number}", self.pool)
    }

    /// Returns a unique name for a Lease or an account.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Returns the machine of the node with this number. The guest's host name is the node's name.
    pub fn vm(&self, number: usize) -> Vm {
        Vm::new(&self.name(number), &uuid(number)).ip(&ip(number)).host(&format!("host-{}", number % 3 + 1))
    }

    /// Returns a vCenter with these machines, on three hosts. Each host is a zone of one region.
    pub fn scenario(&self, numbers: Range<usize>) -> Scenario {
        let zoned = ZONES.iter().enumerate().fold(Scenario::small(), |scenario, (index, zone)| {
            scenario.tag("k8s-zone", zone, [Object::host(&format!("host-{}", index + 1))])
        });
        let tagged = zoned.tag("k8s-region", "region-1", [Object::datacenter("dc-1")]);
        numbers.fold(tagged, |scenario, number| scenario.vm(self.vm(number)))
    }

    /// Same as [`Cluster::scenario`], in the form of a fake vCenter's model. The fake places its machines on the hosts
    /// in turn, from `host-2` on.
    pub fn model(&self, numbers: Range<usize>) -> Model {
        let zoned = ZONES.iter().enumerate().fold(Model::small(), |model, (index, zone)| {
            model.tag("k8s-zone", zone, &[("HostSystem", &format!("host-{}", (index + 1) % 3 + 1))])
        });
        let tagged = zoned.tag("k8s-region", "region-1", &[("Datacenter", "dc-1")]);
        let machine = |number| Machine::new(&self.name(number), &uuid(number)).ip(&ip(number));
        numbers.fold(tagged, |model, number| model.vm(machine(number)))
    }

    /// Returns a joining node that only this test's daemon manages. Its systemUUID is in the guests' byte order.
    pub fn kubelet(&self, number: usize) -> KubeletNode {
        self.marked(KubeletNode::new(&self.name(number), &swapped(&uuid(number))))
    }

    /// Adds the label of this test's daemon to a node.
    pub fn marked(&self, node: KubeletNode) -> KubeletNode {
        node.label("test.example/pool", &self.pool)
    }

    /// Registers these nodes concurrently.
    pub async fn register(&self, numbers: Range<usize>) {
        join_all(numbers.map(|number| self.kubelet(number).register(&self.client))).await;
    }

    /// Deletes this test's nodes, so that they can join again.
    pub async fn delete_nodes(&self) {
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.delete_collection(&DeleteParams::default(), &self.selected()).await.unwrap();
        eventually("all nodes are deleted", LIMIT, async || match self.nodes().await {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{:?}", left.keys())),
        })
        .await;
    }

    /// Returns this test's nodes by name.
    pub async fn nodes(&self) -> BTreeMap<String, Node> {
        let nodes = Api::<Node>::all(self.client.clone()).list(&self.selected()).await.unwrap();
        nodes.items.into_iter().map(|node| (node.metadata.name.clone().unwrap_or_default(), node)).collect()
    }

    /// Returns the resource version of each of this test's nodes.
    pub async fn versions(&self) -> BTreeMap<String, Option<String>> {
        self.nodes().await.into_iter().map(|(name, node)| (name, node.metadata.resource_version)).collect()
    }

    /// Returns the view of each of this test's nodes.
    pub async fn views(&self) -> BTreeMap<String, NodeView> {
        self.nodes().await.iter().map(|(name, node)| (name.clone(), NodeView::of(node))).collect()
    }

    /// Returns the label selector of this test's nodes.
    pub fn labels(&self) -> String {
        format!("test.example/pool={}", self.pool)
    }

    fn selected(&self) -> ListParams {
        ListParams::default().labels(&self.labels())
    }

    /// Returns the holder of this Lease, or an empty text if there is none.
    pub async fn holder(&self, lease: &str) -> String {
        let leases = Api::<Lease>::namespaced(self.client.clone(), "kube-system");
        let lease = leases.get_opt(lease).await.unwrap();
        lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
    }

    /// Grants the roles of `manifests/rbac` to each of these users, with the Lease of this cluster.
    pub async fn grant(&self, users: &[String]) {
        let roles: Vec<&Value> =
            form("rbac").await.objects.iter().filter(|object| object["kind"] != "ServiceAccount").collect();
        self.grant_roles(users, &roles).await;
    }

    /// Grants the roles of `manifests/components/nsx`, in addition to [`Cluster::grant`].
    pub async fn grant_nsx(&self, users: &[String]) {
        let known = &form("rbac").await.objects;
        let is_role = |object: &&Value| object["kind"].as_str().is_some_and(|kind| kind.contains("Role"));
        let is_new = |object: &&Value| {
            known.iter().all(|one| (&one["kind"], &one["metadata"]) != (&object["kind"], &object["metadata"]))
        };
        let roles: Vec<&Value> = form("base-with-nsx").await.objects.iter().filter(is_role).filter(is_new).collect();
        self.grant_roles(users, &roles).await;
    }

    async fn grant_roles(&self, users: &[String], roles: &[&Value]) {
        let subject = |user: &String| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user});
        let subjects: Vec<Value> = users.iter().map(subject).collect();
        let own: Vec<&Value> = roles.iter().map(|role| &role["metadata"]["name"]).collect();
        for role in roles {
            let mut role = (*role).clone();
            // The names differ from those of other tests on the same API server.
            let rename = |name: &mut Value| *name = json!(format!("{}:{}", self.pool, name.as_str().unwrap()));
            if own.contains(&&role["roleRef"]["name"]) {
                rename(&mut role["roleRef"]["name"]);
            }
            rename(&mut role["metadata"]["name"]);
            if role["subjects"].is_array() {
                role["subjects"] = json!(subjects);
            }
            // The rule names the Lease of this cluster in place of the usual Lease.
            for names in role["rules"].as_array_mut().into_iter().flatten().map(|rule| &mut rule["resourceNames"]) {
                let is_lease = names.as_array().is_some_and(|names| names.contains(&json!("cloud-controller-manager")));
                if is_lease {
                    *names = json!([self.pool]);
                }
            }
            self.create_role(role).await;
        }
    }

    /// Creates a role or a binding.
    pub async fn create_role(&self, role: Value) {
        rbac::create(&self.client, &role).await;
    }

    /// Returns a `vsphere.conf` with these sections, and zones.
    pub fn zoned(sections: &[String]) -> String {
        format!("{}\n[Labels]\nregion = k8s-region\nzone = k8s-zone\n", sections.join("\n"))
    }

    /// Starts the daemon with this `vsphere.conf`, without leader election and without a secure port unless `more` has
    /// these flags.
    pub fn start(&self, config: &str, more: &[&str]) -> Daemon {
        self.start_file(&[], &self.write(config), more)
    }

    /// As [`Cluster::start`], with environment variables.
    pub fn start_in(&self, variables: &[(&str, &str)], config: &str, more: &[&str]) -> Daemon {
        self.start_file(variables, &self.write(config), more)
    }

    /// As [`Cluster::start`], with the configuration file at this path.
    pub fn start_on(&self, config: &Path, more: &[&str]) -> Daemon {
        self.start_file(&[], config, more)
    }

    /// As [`Cluster::start_on`], with environment variables.
    pub fn start_file(&self, variables: &[(&str, &str)], config: &Path, more: &[&str]) -> Daemon {
        let flags = [
            format!("--cloud-config={}", config.display()),
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--node-selector={}", self.labels()),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            "--secure-port=0".to_owned(),
            "-v=4".to_owned(),
        ];
        Daemon::start_with(BINARY, flags.iter().map(String::as_str).chain(more.iter().copied()), variables)
    }

    fn write(&self, config: &str) -> PathBuf {
        let path = self.folder.join(format!("{}.conf", unique("vsphere")));
        std::fs::write(&path, config).unwrap();
        path
    }

    /// Starts the daemon for one vCenter with zones, and waits until it has read the inventory.
    pub async fn start_for(&self, vcenter: &Vcenter, more: &[&str]) -> Daemon {
        let mut daemon = self.start(&Self::zoned(&[vcenter.ini_section("vc-1", "dc-1")]), more);
        daemon.wait_for_line(ANSWERS, LIMIT).await;
        daemon
    }

    /// Waits until these nodes have all fields that initialization sets, with correct values.
    pub async fn wait_until_initialized(&self, numbers: Range<usize>, daemon: &Daemon) {
        let what = format!("nodes {numbers:?} are initialized");
        eventually(&what, LIMIT, async || {
            let views = self.views().await;
            let is_pending = |number: &usize| views.get(&self.name(*number)).is_none_or(|view| view.uninitialized);
            match numbers.clone().filter(is_pending).collect::<Vec<_>>() {
                pending if pending.is_empty() => Ok(()),
                pending => Err(format!("pending {pending:?}\n{}", daemon.output().tail(40))),
            }
        })
        .await;
        let views = self.views().await;
        for number in numbers {
            self.check(number, &views[&self.name(number)]);
        }
    }

    fn check(&self, number: usize, view: &NodeView) {
        let (name, ip) = (self.name(number), ip(number));
        assert_eq!(view.provider_id, Some(format!("vsphere://{}", uuid(number))), "{name}: {view:?}");
        let addresses = [format!("Hostname={name}"), format!("InternalIP={ip}"), format!("ExternalIP={ip}")];
        assert_eq!(view.addresses, addresses, "{name}: {view:?}");
        for (key, value) in labels(ZONES[number % 3]) {
            assert_eq!(view.label(key), value, "{name}: {key}: {view:?}");
        }
        assert!(!view.uninitialized, "{name}: {view:?}");
    }
}

/// Returns the labels of a node in this zone, in both forms.
pub fn labels(zone: &'static str) -> [(&'static str, &'static str); 6] {
    const INSTANCE_TYPE: &str = "vsphere-vm.cpu-2.mem-4gb.os-ubuntu";
    [
        ("node.kubernetes.io/instance-type", INSTANCE_TYPE),
        ("beta.kubernetes.io/instance-type", INSTANCE_TYPE),
        ("topology.kubernetes.io/region", "region-1"),
        ("failure-domain.beta.kubernetes.io/region", "region-1"),
        ("topology.kubernetes.io/zone", zone),
        ("failure-domain.beta.kubernetes.io/zone", zone),
    ]
}

/// Waits until the daemon logs that it has read the inventory of the vCenter at this address.
pub async fn until_it_answers(daemon: &Daemon, address: &str) {
    let vcenter = format!(" vcenter=\"{address}\"");
    eventually(&format!("{address} answers"), LIMIT, async || {
        let lines = daemon.output().lines();
        let is_told = lines.iter().any(|line| line.contains(ANSWERS) && line.contains(&vcenter));
        is_told.then_some(()).ok_or_else(|| daemon.output().tail(40))
    })
    .await;
}

/// Waits until this much time has passed since `start`, for tests of events that must not happen.
pub async fn until_passed(start: std::time::Instant, time: Duration) {
    eventually(&format!("{time:?} have passed"), time + LIMIT, async || match start.elapsed() {
        elapsed if elapsed >= time => Ok(()),
        elapsed => Err(format!("{elapsed:?}")),
    })
    .await;
}
