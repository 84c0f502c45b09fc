//! The cluster, NSX and two replicas, and how actions happen to them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ccm::controllers::service::node_set::{LABEL_EXCLUDE, is_target};
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use support::fake_nsx::{FakeNsx, ObjectVersion};
use support::nodes::UNINITIALIZED_TAINT;
use support::supervisor::Output;
use support::{ApiServer, Daemon, FakeVcenter, eventually, unique};

use super::action::{Action, PORTS, Ports};
use super::nsx::{self, Operator};
use super::{LASTING_SERVICES, NODES, QUIET, RECOVERY, SERVICES};
use crate::admin::{Admin, token_of};
use crate::cluster::{ANSWERS, Cluster, LIMIT, ip};
use crate::judge::audit::{leaders_writes, terms};
use crate::judge::nsx::leadership::{NsxWrite, breaches};
use crate::judge::nsx::load_balancers::addresses::Reported;
use crate::judge::nsx::load_balancers::intents::{Intent, intent};
use crate::judge::nsx::load_balancers::results::{Results, addresses, key};
use crate::judge::nsx::load_balancers::{self, Rules, SERVICE};
use crate::judge::nsx::routes::tag;
use crate::judge::rules::{addresses as node_addresses, has_taint};

/// Processes at most, each with an account of its own, so that their writes can be told apart.
const PROCESSES: usize = 2000;
/// The Lease is given up early enough that a write on its way ends before another replica leads.
const FLAGS: [&str; 6] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
    "--node-monitor-period=1s",
    "--node-deletion=off",
];
/// A process that gets SIGTERM has so long.
const STOP: Duration = Duration::from_secs(30);
/// Actions, versions and processes that a failed run prints.
const SHOWN_ACTIONS: usize = 60;
const SHOWN_VERSIONS: usize = 25;
const SHOWN_PROCESSES: usize = 4;

struct Replica {
    daemon: Daemon,
    is_frozen: bool,
}

/// See the file's header. A failure prints the last actions and log lines.
pub struct World {
    /// What replicas did in NSX.
    pub rules: Rules,
    /// Actions so far.
    pub count: usize,
    server: ApiServer,
    cluster: Cluster,
    vcenter: FakeVcenter,
    /// Made once: it writes a file that replicas read.
    vcenter_section: String,
    nsx: FakeNsx,
    ca_file: PathBuf,
    operator: Operator,
    judged: load_balancers::Cluster,
    services: Api<Service>,
    nodes: Api<Node>,
    users: Vec<String>,
    started: usize,
    replicas: Vec<Replica>,
    ending: Vec<Daemon>,
    outputs: VecDeque<(String, Output)>,
    reported: Reported,
    /// Versions of objects that were judged.
    judged_versions: usize,
    writes: Vec<NsxWrite>,
    began: Instant,
    recent: VecDeque<String>,
}

impl World {
    /// Two replicas lead or stand by, all Nodes are there, and the lasting Services have their load balancers.
    pub async fn start(server: ApiServer) -> Self {
        let cluster = Cluster::on(&server).await;
        let vcenter = FakeVcenter::start(cluster.model(0..NODES.end)).await;
        let users: Vec<String> = (0..PROCESSES).map(|number| format!("{}-{number:04}", unique("user"))).collect();
        let nsx = FakeNsx::start(nsx::model(users.iter().cloned())).await;
        let namespaces = Api::<Namespace>::all(cluster.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": cluster.pool()}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let uid = namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap();
        let judged = load_balancers::Cluster { name: cluster.pool().to_owned(), uid };
        nsx::put_foreign(&nsx, &judged, cluster.pool());
        let ca_file = cluster.folder().join("nsx-ca.pem");
        std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
        let lasting = (0..NODES.start).map(ip).collect();
        let mut world = Self {
            rules: Rules::new(users.clone(), judged.clone(), lasting),
            count: 0,
            services: Api::namespaced(cluster.client.clone(), cluster.pool()),
            nodes: Api::all(cluster.client.clone()),
            operator: Operator::new(judged.clone()),
            server,
            vcenter_section: Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1", cluster.folder())]),
            vcenter,
            cluster,
            nsx,
            ca_file,
            judged,
            users,
            started: 0,
            replicas: Vec::new(),
            ending: Vec::new(),
            outputs: VecDeque::new(),
            reported: Reported::default(),
            judged_versions: 0,
            writes: Vec::new(),
            began: Instant::now(),
            recent: VecDeque::new(),
        };
        world.cluster.register(0..NODES.end).await;
        for _ in 0..2 {
            let daemon = world.start_daemon(&FLAGS);
            world.replicas.push(Replica { daemon, is_frozen: false });
        }
        world.cluster.wait_until_initialised(0..NODES.end, &world.replicas[0].daemon).await;
        for number in 0..LASTING_SERVICES {
            world.act(Action::Create(number, number + 1)).await;
        }
        world.settle().await;
        world
    }

    /// A process with an account of its own.
    fn start_daemon(&mut self, more: &[&str]) -> Daemon {
        let user = self.users[self.started].clone();
        self.started += 1;
        let kubeconfig = format!("--kubeconfig={}", self.server.kubeconfig_of_administrator(&user).display());
        let config = format!("{}\n{}", self.vcenter_section, nsx::sections(&self.nsx, &self.ca_file, &user));
        let lease = format!("--leader-elect-resource-name={}", self.cluster.pool());
        let name = format!("--cluster-name={}", self.cluster.pool());
        let daemon = self.cluster.start(&config, &[&[kubeconfig.as_str(), &lease, &name], more].concat());
        self.outputs.push_back((user, daemon.output().clone()));
        self.outputs.drain(..self.outputs.len().saturating_sub(SHOWN_PROCESSES));
        daemon
    }

    /// Does it, and then judges what replicas have done so far.
    pub async fn act(&mut self, action: Action) {
        self.count += 1;
        let is_done = self.perform(&action).await;
        let outcome = if is_done { "" } else { " (nothing to do)" };
        let at = self.began.elapsed().as_secs_f32();
        self.recent.push_back(format!("{at:>7.2} s  #{} {action:?}{outcome}", self.count));
        self.recent.drain(..self.recent.len().saturating_sub(SHOWN_ACTIONS));
        self.check().await;
    }

    async fn perform(&mut self, action: &Action) -> bool {
        match *action {
            Action::Create(number, ports) => self.create(number, ports).await,
            Action::Ports(number, _)
            | Action::NodePort(number, _)
            | Action::Type(number, _)
            | Action::Delete(number) => number >= LASTING_SERVICES && self.change(number, action).await,
            Action::Register(number) => {
                let node = self.cluster.kubelet(number).ready().build();
                done(self.nodes.create(&PostParams::default(), &node).await)
            }
            Action::DeleteNode(number) => {
                done(self.nodes.delete(&self.cluster.name(number), &DeleteParams::default()).await)
            }
            Action::Exclude(number, is_excluded) => {
                let value = is_excluded.then_some("true");
                let patch = Patch::Merge(json!({"metadata": {"labels": {LABEL_EXCLUDE: value}}}));
                done(self.nodes.patch(&self.cluster.name(number), &PatchParams::default(), &patch).await)
            }
            Action::Address(number, last) => {
                let address = format!("10.2.{number}.{last}");
                self.vcenter.change_vm(&self.cluster.name(number), |vm| vm.ip(&address));
                true
            }
            Action::Kill(_) | Action::Restart(_) | Action::Freeze(_) | Action::Thaw => self.replica(action).await,
            _ => self.operator.act(&self.nsx, action).await,
        }
    }

    fn name(number: usize) -> String {
        format!("s-{number}")
    }

    fn intend(&mut self, number: usize, intent: Intent) {
        let service = format!("{}/{}", self.cluster.pool(), Self::name(number));
        self.rules.intend(Instant::now(), &service, intent);
    }

    async fn create(&mut self, number: usize, ports: Ports) -> bool {
        let service = json!({
            "metadata": {"name": Self::name(number)},
            "spec": {"type": "LoadBalancer", "ports": ports_of(ports, None)},
        });
        let service = serde_json::from_value(service).unwrap();
        match self.services.create(&PostParams::default(), &service).await {
            Ok(service) => self.intend(number, intent(&service)),
            created => return done(created),
        }
        true
    }

    /// Changes or deletes a Service that is there. What it asks for next is noted before a replica can know it.
    async fn change(&mut self, number: usize, action: &Action) -> bool {
        let name = Self::name(number);
        let Some(before) = self.services.get_opt(&name).await.unwrap() else { return false };
        let patch = match *action {
            Action::Ports(_, ports) => {
                let next = ports_of(ports, Some(&before));
                let tags: BTreeSet<String> =
                    numbers(ports).map(|(protocol, port)| format!("{protocol}/{port}")).collect();
                self.intend(number, intent(&before).map(|_| tags));
                json!({"spec": {"ports": next}})
            }
            Action::NodePort(_, node_port) => {
                let mut ports = json!(before.spec.as_ref().unwrap().ports);
                ports[0]["nodePort"] = json!(node_port);
                json!({"spec": {"ports": ports}})
            }
            Action::Type(_, true) => json!({"spec": {"type": "LoadBalancer"}}),
            Action::Type(_, false) => {
                self.intend(number, None);
                json!({"spec": {"type": "ClusterIP"}})
            }
            _ => {
                self.intend(number, None);
                return done(self.services.delete(&name, &DeleteParams::default()).await);
            }
        };
        let changed = self.services.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        match changed {
            Ok(after) => self.intend(number, intent(&after)),
            changed => {
                self.intend(number, intent(&before));
                return done(changed);
            }
        }
        true
    }

    async fn replica(&mut self, action: &Action) -> bool {
        match *action {
            // A login to vCenter that is lost with its process would keep the next one waiting, by design.
            Action::Kill(number) if self.replicas[number].daemon.output().find(ANSWERS).is_some() => {
                self.replicas[number].daemon.kill().await;
                let daemon = self.start_daemon(&FLAGS);
                self.replicas[number] = Replica { daemon, is_frozen: false };
            }
            Action::Restart(number) => {
                let daemon = self.start_daemon(&FLAGS);
                let before = std::mem::replace(&mut self.replicas[number], Replica { daemon, is_frozen: false });
                self.end(before.daemon).await;
            }
            Action::Freeze(number) => {
                self.thaw(1 - number).await;
                self.replicas[number].daemon.signal("STOP").await;
                self.replicas[number].is_frozen = true;
            }
            Action::Thaw => {
                self.thaw(0).await;
                self.thaw(1).await;
            }
            _ => return false,
        }
        true
    }

    async fn thaw(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        if std::mem::take(&mut replica.is_frozen) {
            replica.daemon.signal("CONT").await;
        }
    }

    async fn end(&mut self, mut daemon: Daemon) {
        assert!(daemon.ended().is_none(), "a replica ended by itself:\n{}", daemon.output().tail(40));
        daemon.signal("CONT").await;
        daemon.signal("TERM").await;
        self.ending.push(daemon);
        self.ending.retain_mut(|daemon| daemon.ended().is_none_or(|status| status.code() != Some(0)));
    }

    /// Judges the versions of objects that have come since the last call, and what the lasting Services report.
    async fn check(&mut self) {
        for path in self.rules.unknown_allocations() {
            if let Some(address) = self.nsx.allocated_address(&path) {
                self.rules.allocated(&path, address);
            }
        }
        let new = self.nsx.history_from(self.judged_versions);
        self.judged_versions += new.len();
        let first = new.iter().filter_map(|version| version.request).min();
        let requests = first.map(|first| self.nsx.requests_from(first)).unwrap_or_default();
        for version in new {
            if let Err(broken) = self.rules.take(&version) {
                panic!("{broken}\n{}", self.story(&version));
            }
            let Some(request) = version.request.filter(|_| self.users.contains(&version.user)) else { continue };
            let request = &requests[requests.binary_search_by_key(&request, |request| request.number).unwrap()];
            let received = Timestamp::now() - SignedDuration::try_from(request.at.elapsed()).unwrap();
            self.writes.push(NsxWrite { user: version.user, path: version.path, received });
        }
        for service in self.services.list(&ListParams::default()).await.unwrap().items {
            if (0..LASTING_SERVICES).any(|number| service.name_any() == Self::name(number)) {
                let uid = service.metadata.uid.clone().unwrap();
                if let Err(broken) = self.reported.take(&uid, true, addresses(&service).first().copied()) {
                    panic!("Service {}: {broken}", service.name_any());
                }
            }
        }
    }

    /// The last versions of the objects of the same Service.
    fn story(&self, broken: &ObjectVersion) -> String {
        let history = self.nsx.history();
        let service_of = |version: &ObjectVersion| version.object.as_ref().and_then(|object| tag(object, SERVICE));
        let same_path = |version: &&ObjectVersion| version.path == broken.path;
        let service = history.iter().rev().filter(same_path).find_map(service_of);
        let paths: BTreeSet<&str> = history
            .iter()
            .filter(|version| service.is_some() && service_of(version) == service)
            .map(|version| version.path.as_str())
            .collect();
        let own: Vec<&ObjectVersion> = history.iter().filter(|version| paths.contains(version.path.as_str())).collect();
        let line = |version: &&ObjectVersion| {
            let ago = version.at.elapsed().as_secs_f32();
            let ObjectVersion { user, path, object, .. } = version;
            match object {
                None => format!("{ago:.2} s ago {user} deleted {path}"),
                Some(object) => {
                    let brief = ["ip_address", "ports", "pool_path", "members", "active_monitor_paths", "monitor_port"];
                    let brief: Vec<String> = brief
                        .iter()
                        .filter(|member| !object[**member].is_null())
                        .map(|member| format!("{member}={}", object[*member]))
                        .collect();
                    format!("{ago:.2} s ago {user} wrote {path} {}", brief.join(" "))
                }
            }
        };
        let lines = own.iter().skip(own.len().saturating_sub(SHOWN_VERSIONS)).map(line);
        format!("history of {service:?}:\n{}", lines.collect::<Vec<_>>().join("\n"))
    }

    /// Ends all faults, brings all Nodes back, and starts other replicas, which read everything.
    pub async fn repair(&mut self) {
        self.act(Action::Thaw).await;
        self.operator.repair(&self.nsx).await;
        for number in NODES {
            self.act(Action::Register(number)).await;
            self.act(Action::Exclude(number, false)).await;
        }
        for number in 0..2 {
            self.act(Action::Restart(number)).await;
        }
    }

    /// Waits until NSX has what the Services ask for, and nothing else.
    pub async fn settle(&mut self) {
        eventually("every Service has what it asks for", RECOVERY, async || {
            self.check().await;
            let differences = self.differences().await;
            let quiet = self.nsx.history().last().map(|version| version.at.elapsed()).unwrap_or_default();
            match differences.is_empty() && quiet > QUIET {
                true => Ok(()),
                false => Err(format!("no write for {quiet:.1?}, and {differences:#?}")),
            }
        })
        .await;
    }

    async fn differences(&self) -> Vec<String> {
        let nodes = self.cluster.nodes().await;
        let pending = nodes.values().filter(|node| has_taint(node, UNINITIALIZED_TAINT));
        let pending: Vec<String> = pending.map(|node| format!("{} is not initialised", node.name_any())).collect();
        let internal = |node: &Node| {
            let address = node_addresses(node).iter().find(|address| address.type_ == "InternalIP");
            address.map(|address| address.address.clone())
        };
        let nodes: BTreeSet<String> = nodes.values().filter(|node| is_target(node)).filter_map(internal).collect();
        let services = self.services.list(&ListParams::default()).await.unwrap().items;
        let objects = self.nsx.objects();
        let allocated: BTreeMap<_, _> = nsx::allocated(&self.nsx, &objects);
        let (cluster, services) = (&self.judged, services.as_slice());
        let results = Results { cluster, services, nodes: &nodes, objects: &objects, allocated: &allocated };
        [pending, results.differences()].concat()
    }

    /// Stops all replicas in order.
    pub async fn stop(&mut self) {
        for replica in std::mem::take(&mut self.replicas) {
            self.end(replica.daemon).await;
        }
        for mut daemon in std::mem::take(&mut self.ending) {
            let status = daemon.wait(STOP).await;
            assert_eq!(status.code(), Some(0), "{}", daemon.output().tail(40));
        }
        self.check().await;
    }

    /// No replica wrote to NSX, a Node or a Service while it did not lead. Returns the number of terms.
    pub async fn check_leadership(&self) -> usize {
        let lease = self.cluster.pool();
        let log = eventually("the audit log has the end of the last term", LIMIT, async || {
            let log = self.server.audit();
            match terms(&log, lease).last() {
                Some(term) if term.given_up.is_some() => Ok(log),
                term => Err(format!("{term:?}")),
            }
        })
        .await;
        let terms = terms(&log, lease);
        assert_eq!(breaches(&self.writes, &terms), [], "a replica that did not lead wrote to NSX: {terms:#?}");
        assert_eq!(crate::judge::audit::breaches(&log, lease, &self.users), []);
        let writes = leaders_writes(&log, &self.users).filter(|event| event.object_ref.resource == "services").count();
        assert!(writes >= 2 * SERVICES, "{writes} writes to Services");
        terms.len()
    }

    /// A daemon that knows nothing writes nothing to NSX, a Service or a Node.
    pub async fn assert_settled_for_a_fresh_daemon(&mut self) {
        let services = self.services.list(&ListParams::default()).await.unwrap().items;
        let wanted = services.iter().filter(|service| intent(service).is_some()).count();
        let (admin, token, versions) = (Admin::new(), token_of(&self.server).await, self.nsx.history().len());
        let user = self.users[self.started].clone();
        let mut daemon = self.start_daemon(&[&admin.flag(), "--node-deletion=off"]);
        eventually("a fresh daemon has ensured every load balancer", LIMIT, async || {
            let ensured = admin.sum("vsphere_ccm_load_balancers ", &token, &mut daemon).await;
            let settled = admin.sum("vsphere_ccm_node_syncs_total{result=\"Settled\"}", &token, &mut daemon).await;
            match ensured >= wanted as f64 && settled >= NODES.end as f64 {
                true => Ok(()),
                false => Err(format!("{ensured} of {wanted}, {settled} nodes\n{}", daemon.output().tail(20))),
            }
        })
        .await;
        assert_eq!(daemon.stop(STOP).await.code(), Some(0), "{}", daemon.output().tail(40));
        let written = self.nsx.history_from(versions);
        assert!(written.is_empty(), "a fresh daemon wrote {written:#?}\n{}", daemon.output().tail(60));
        let is_other =
            |resource: &str| !["leases", "events", "tokenreviews", "subjectaccessreviews"].contains(&resource);
        let log = self.server.audit();
        let own = log.iter().filter(|event| event.user.username == user && event.is_write());
        let written: Vec<_> = own.filter(|event| is_other(&event.object_ref.resource)).collect();
        assert!(written.is_empty(), "a fresh daemon wrote {written:#?}\n{}", daemon.output().tail(60));
        let keys: Vec<String> = services.iter().map(key).collect();
        println!("in the end {} Services, {wanted} of them with a load balancer", keys.len());
    }
}

/// Whether a request was carried out. It may come too late for what it is about.
fn done<T>(answer: kube::Result<T>) -> bool {
    match answer {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => false,
        Err(error) => panic!("the API server does not answer: {error}"),
    }
}

fn numbers(ports: Ports) -> impl Iterator<Item = (&'static str, u16)> {
    PORTS.into_iter().enumerate().filter(move |(index, _)| ports & (1 << index) != 0).map(|(_, port)| port)
}

/// The ports for a spec. Those that a Service has already keep their ports of the nodes.
fn ports_of(ports: Ports, before: Option<&Service>) -> Vec<Value> {
    let known = before.and_then(|service| service.spec.as_ref()?.ports.clone()).unwrap_or_default();
    let port = |(protocol, number): (&str, u16)| {
        let name = format!("{protocol}-{number}").to_lowercase();
        let before = known.iter().find(|port| port.name.as_ref() == Some(&name));
        json!({"name": name, "protocol": protocol, "port": number, "nodePort": before.and_then(|port| port.node_port)})
    };
    numbers(ports).map(port).collect()
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the last actions:\n{}", self.recent.make_contiguous().join("\n"));
            for (user, output) in &self.outputs {
                println!("--- the last lines of {user}:\n{}", output.tail(60));
            }
        }
    }
}
