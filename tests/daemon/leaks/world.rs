//! The cluster, NSX and two replicas, and the execution of actions.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ccm::controllers::service::node_set::LABEL_EXCLUDE;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use support::fake_nsx::FakeNsx;
use support::nodes::UNINITIALIZED_TAINT;
use support::{ApiServer, Clock, Daemon, FakeVcenter, eventually, replace_file, unique};

use super::action::{Action, CLASSES};
use super::nsx::{self, Operator};
use super::{LASTING_SERVICES, NODES, QUIET, RECOVERY, SERVICES, UNCHANGED_SERVICES};
use crate::admin::{Admin, token_of};
use crate::cluster::{ANSWERS, Cluster, LIMIT, ip};
use crate::invariants::audit::leaders_writes;
use crate::invariants::daemons::Ending;
use crate::invariants::nsx::leadership::{NsxWrite, assert_only_leaders_wrote};
use crate::invariants::nsx::load_balancers::SERVICE;
use crate::invariants::nsx::load_balancers::intents::intent;
use crate::invariants::nsx::routes::tag;
use crate::invariants::rules::{addresses, has_taint};
use crate::invariants::story::Story;
use crate::services::{ServiceChange, Services, done, story_of, writes_of};

/// Maximum number of processes. Each has its own account, so that the test can attribute its writes.
const PROCESSES: usize = 2000;
/// The renew deadline is early enough that a write in flight ends before another replica leads.
const FLAGS: [&str; 6] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
    "--node-monitor-period=1s",
    "--node-deletion=off",
];
/// Limit for a process to end after SIGTERM.
const STOP: Duration = Duration::from_secs(30);
/// Seconds after which the daemon lists groups and persistence profiles again.
const HALF_AN_HOUR: u32 = 1801;

struct Replica {
    daemon: Daemon,
    /// User at the API server and at NSX.
    user: String,
    config: PathBuf,
    is_frozen: bool,
    /// Whether the account's password has changed since the start. Rejected logins are limited to a few in 15 minutes.
    has_new_password: bool,
}

/// The parts of the test.
pub struct World {
    /// Services with the rules for their load balancers.
    pub services: Services,
    /// The actions and the processes so far.
    pub story: Story,
    /// Number of Services that were created and deleted in periods without faults.
    pub completed: usize,
    /// Times of the last minute at which a Node left the load balancers in periods without faults.
    pub departures: Vec<Instant>,
    server: ApiServer,
    cluster: Cluster,
    vcenter: FakeVcenter,
    /// Section of the vCenter. It is made once, because that writes a file which replicas read.
    vcenter_section: String,
    nsx: FakeNsx,
    ca_file: PathBuf,
    operator: Operator,
    nodes: Api<Node>,
    users: Vec<String>,
    started: usize,
    replicas: Vec<Replica>,
    ending: Ending,
    /// Kinds of objects that accounts may not write.
    denied: Vec<(String, &'static str)>,
    /// Number of checked object versions.
    judged_versions: usize,
    writes: Vec<NsxWrite>,
}

impl World {
    /// Starts two replicas, and waits until both lead or stand by, all Nodes exist, and the lasting Services have their
    /// load balancers.
    pub async fn start(server: ApiServer) -> Self {
        let cluster = Cluster::on(&server).await;
        let vcenter = FakeVcenter::start(cluster.model(0..NODES.end)).await;
        let users: Vec<String> = (0..PROCESSES).map(|number| format!("{}-{number:04}", unique("user"))).collect();
        let nsx = FakeNsx::start(nsx::model(users.iter().cloned())).await;
        let services = Services::new(&cluster, users.clone(), (0..NODES.start).map(ip).collect()).await;
        nsx::put_foreign(&nsx, &services.cluster, cluster.pool());
        let ca_file = cluster.folder().join("nsx-ca.pem");
        std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
        let mut world = Self {
            story: Story::new(),
            completed: 0,
            departures: Vec::new(),
            nodes: Api::all(cluster.client.clone()),
            operator: Operator::new(services.cluster.clone()),
            services,
            server,
            vcenter_section: Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1", cluster.folder())]),
            vcenter,
            cluster,
            nsx,
            ca_file,
            users,
            started: 0,
            replicas: Vec::new(),
            ending: Ending::default(),
            denied: Vec::new(),
            judged_versions: 0,
            writes: Vec::new(),
        };
        world.cluster.register(0..NODES.end).await;
        for _ in 0..2 {
            let replica = world.start_replica(&FLAGS);
            world.replicas.push(replica);
        }
        world.cluster.wait_until_initialized(0..NODES.end, &world.replicas[0].daemon).await;
        for number in 0..LASTING_SERVICES {
            // The first Service has no policies, and each has different ports.
            world.act(Action::Create(number, number + 1, number * 7)).await;
        }
        world.settle().await;
        world
    }

    /// Starts a process with its own account.
    fn start_replica(&mut self, more: &[&str]) -> Replica {
        self.start_replica_in(&[], more)
    }

    /// As [`World::start_replica`], with environment variables.
    fn start_replica_in(&mut self, variables: &[(&str, &str)], more: &[&str]) -> Replica {
        let user = self.users[self.started].clone();
        self.started += 1;
        let kubeconfig = format!("--kubeconfig={}", self.server.kubeconfig_of_administrator(&user).display());
        let config = self.cluster.folder().join(format!("{user}.conf"));
        replace_file(&config, &self.config_of(&user, nsx::PASSWORD));
        let lease = format!("--leader-elect-resource-name={}", self.cluster.pool());
        let name = format!("--cluster-name={}", self.cluster.pool());
        let daemon =
            self.cluster.start_file(variables, &config, &[&[kubeconfig.as_str(), &lease, &name], more].concat());
        self.story.started(&user, &daemon);
        Replica { daemon, user, config, is_frozen: false, has_new_password: false }
    }

    fn config_of(&self, user: &str, password: &str) -> String {
        format!("{}\n{}", self.vcenter_section, nsx::sections(&self.nsx, &self.ca_file, user, password))
    }

    /// Executes the action, and then checks the replicas' writes so far.
    pub async fn act(&mut self, action: Action) {
        self.story.count += 1;
        let is_done = self.perform(&action).await;
        self.story.note(&action, is_done);
        self.check().await;
    }

    async fn perform(&mut self, action: &Action) -> bool {
        match *action {
            Action::Create(number, ports, policies) => {
                self.services.create(number, ports, policies, CLASSES[number % 2]).await
            }
            Action::Change(number, change) => {
                let first = match change {
                    ServiceChange::NodePort(_) | ServiceChange::Policies(_) | ServiceChange::Class(_) => {
                        UNCHANGED_SERVICES
                    }
                    ServiceChange::Ports(_) | ServiceChange::Type(_) | ServiceChange::Delete => LASTING_SERVICES,
                };
                number >= first && self.services.change(number, change).await
            }
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
            Action::Password(number) => {
                if std::mem::replace(&mut self.replicas[number].has_new_password, true) {
                    return false;
                }
                let Replica { user, config, .. } = &self.replicas[number];
                let password = format!("Changed-Horse-{}", self.story.count);
                self.nsx.set_password(user, &password);
                self.nsx.kill_sessions_of(user);
                replace_file(config, &self.config_of(user, &password));
                true
            }
            Action::Deny(number, what) => {
                let user = &self.replicas[number].user;
                self.nsx.deny_writes(user, what);
                self.denied.push((user.clone(), what));
                true
            }
            Action::Allow => {
                let denied = std::mem::take(&mut self.denied);
                denied.iter().for_each(|(user, what)| self.nsx.allow(user, what));
                !denied.is_empty()
            }
            _ => self.operator.act(&self.nsx, action).await,
        }
    }

    async fn replica(&mut self, action: &Action) -> bool {
        match *action {
            // A login to vCenter without an answer, because its process was killed, would delay the next login by
            // design.
            Action::Kill(number) if self.replicas[number].daemon.output().find(ANSWERS).is_some() => {
                self.replicas[number].daemon.kill().await;
                self.replicas[number] = self.start_replica(&FLAGS);
            }
            Action::Restart(number) => {
                let replica = self.start_replica(&FLAGS);
                let before = std::mem::replace(&mut self.replicas[number], replica);
                self.ending.add(before.daemon).await;
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

    /// Checks the object versions since the last call, and the addresses that Services report.
    pub async fn check(&mut self) {
        let new = self.nsx.history_from(self.judged_versions);
        self.judged_versions += new.len();
        self.services.judge(&self.nsx, &new);
        self.writes.extend(writes_of(&self.nsx, &new, &self.users).into_iter().map(|(_, write)| write));
        self.services.judge_addresses().await;
    }

    /// Ends all faults of NSX.
    pub async fn end_faults(&mut self) {
        self.act(Action::Allow).await;
        self.operator.repair(&self.nsx).await;
        self.operator.until_addresses_are_free(&self.nsx).await;
    }

    /// Returns the objects of a Service in NSX.
    pub fn objects_of(&self, number: usize) -> Vec<Value> {
        let key = format!("{}/{}", self.services.cluster.name, Services::name(number));
        let mut objects = self.nsx.objects();
        objects.retain(|object| {
            let is_marked = object["marked_for_delete"] == json!(true);
            !is_marked && self.services.cluster.owns(object) && tag(object, SERVICE).as_ref() == Some(&key)
        });
        objects
    }

    /// Returns the internal address of a Node, if it has one.
    pub async fn internal_ip(&self, number: usize) -> Option<String> {
        let node = self.nodes.get_opt(&self.cluster.name(number)).await.unwrap()?;
        let mut all = addresses(&node).iter();
        all.find(|address| address.type_ == "InternalIP").map(|address| address.address.clone())
    }

    /// Ends all faults, brings all Nodes back, and starts new replicas, which read all objects.
    pub async fn repair(&mut self) {
        self.act(Action::Thaw).await;
        self.end_faults().await;
        for number in NODES {
            self.act(Action::Register(number)).await;
            self.act(Action::Exclude(number, false)).await;
        }
        for number in 0..2 {
            self.act(Action::Restart(number)).await;
        }
    }

    /// Waits until NSX has exactly the objects that the Services ask for.
    pub async fn settle(&mut self) {
        eventually("every Service has what it asks for", RECOVERY, async || {
            self.check().await;
            self.services.set_classes_back(&self.nsx, &CLASSES[..2]).await;
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
        let pending: Vec<String> = pending.map(|node| format!("{} is not initialized", node.name_any())).collect();
        [pending, self.services.differences(&self.nsx, nodes.values()).await].concat()
    }

    /// Stops all replicas with SIGTERM.
    pub async fn stop(&mut self) {
        for replica in std::mem::take(&mut self.replicas) {
            self.ending.add(replica.daemon).await;
        }
        self.ending.finish().await;
        self.check().await;
    }

    /// Checks that no replica wrote to NSX, a Node or a Service while it did not lead.
    pub async fn check_leadership(&self) {
        let lease = self.cluster.pool();
        let (terms, log) = assert_only_leaders_wrote(&self.server, lease, &self.users, &self.writes, LIMIT).await;
        let writes = leaders_writes(&log, &self.users).filter(|event| event.object_ref.resource == "services").count();
        assert!(writes >= SERVICES, "{writes} writes to Services");
        println!("{} terms", terms.len());
    }

    /// Checks that a fresh daemon writes nothing to NSX, a Service or a Node.
    pub async fn assert_settled_for_a_fresh_daemon(&mut self) {
        let versions = self.nsx.history().len();
        let (mut daemon, user, _) = self.start_fresh(&[]).await;
        assert_eq!(daemon.stop(STOP).await.code(), Some(0), "{}", daemon.output().tail(40));
        let written = self.nsx.written_from(versions);
        assert!(written.is_empty(), "a fresh daemon wrote {written:#?}\n{}", daemon.output().tail(60));
        let others = ["leases", "events", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"];
        let is_other = |resource: &str| !others.contains(&resource);
        let log = self.server.audit();
        let own = log.iter().filter(|event| event.user.username == user && event.is_write());
        let written: Vec<_> = own.filter(|event| is_other(&event.object_ref.resource)).collect();
        assert!(written.is_empty(), "a fresh daemon wrote {written:#?}\n{}", daemon.output().tail(60));
    }

    /// Checks that an hour later no unused object exists. The half-hourly list finds a group or persistence profile
    /// whose process ended after the write. The second such list deletes the objects of deleted Services.
    pub async fn assert_nothing_is_left_after_an_hour(&mut self) {
        let unused = self.services.unused(&self.nsx);
        println!("{} groups and persistence profiles wait for their list", unused.len());
        let clock = Clock::new(self.cluster.folder());
        let (mut daemon, user, admin) = self.start_fresh(&clock.environment()).await;
        let lists = || self.nsx.counts().of_user(&user, "LIST groups");
        // The last lists of a pass, one for the pool of each class.
        let last = || self.nsx.counts().of_user(&user, "LIST ip-allocations");
        for time in [HALF_AN_HOUR, 2 * HALF_AN_HOUR] {
            let (before, last_before) = (lists(), last());
            clock.pass(time);
            eventually("groups and persistence profiles are listed", LIMIT, async || {
                // The daemon reads its clock when an event arrives, such as this connection.
                drop(tokio::net::TcpStream::connect(("127.0.0.1", admin.port())).await);
                match lists() > before && last() - last_before >= u32::try_from(CLASSES.len()).unwrap() {
                    true => Ok(()),
                    false => Err(daemon.output().tail(20)),
                }
            })
            .await;
        }
        eventually("every object belongs to a Service that needs it", LIMIT, async || {
            let unused = self.services.unused(&self.nsx);
            let stories: Vec<String> = unused.iter().map(|path| story_of(&self.nsx, path)).collect();
            let left = [unused, self.differences().await].concat();
            match left.is_empty() {
                true => Ok(()),
                false => Err(format!("{left:#?}\n{}\n{}", stories.join("\n"), daemon.output().tail(20))),
            }
        })
        .await;
        assert_eq!(daemon.stop(STOP).await.code(), Some(0), "{}", daemon.output().tail(40));
    }

    /// Starts a daemon, waits until it has ensured every load balancer, and returns it with its account and its port.
    async fn start_fresh(&mut self, variables: &[(&str, &str)]) -> (Daemon, String, Admin) {
        let services = self.services.list().await;
        let wanted = services.iter().filter(|service| intent(service).is_some()).count();
        println!("{} Services, {wanted} of them with a load balancer", services.len());
        let (admin, token) = (Admin::new(), token_of(&self.server).await);
        let Replica { mut daemon, user, .. } =
            self.start_replica_in(variables, &[&admin.flag(), "--node-deletion=off"]);
        eventually("a fresh daemon has ensured every load balancer", LIMIT, async || {
            let ensured = admin.sum("vsphere_ccm_load_balancers ", &token, &mut daemon).await;
            let settled = admin.sum("vsphere_ccm_node_syncs_total{result=\"Settled\"}", &token, &mut daemon).await;
            match ensured >= wanted as f64 && settled >= NODES.end as f64 {
                true => Ok(()),
                false => Err(format!("{ensured} of {wanted}, {settled} nodes\n{}", daemon.output().tail(20))),
            }
        })
        .await;
        (daemon, user, admin)
    }
}
