//! Routes of the pod network on NSX: the daemon's binary between a fake vCenter and a fake NSX.

mod machines;

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use support::fake_nsx::{FakeNsx, Model, client_identity};
use support::fake_vcenter::FakeVcenter;
use support::{Daemon, eventually, replace_file};

use crate::admin::{Admin, token};
use crate::cluster::{ANSWERS, Cluster, LIMIT, ip};

pub const ROUTER: &str = "/infra/tier-1s/t1";
pub const CLUSTER_CIDR: &str = "--cluster-cidr=10.244.0.0/16,fd00:244::/48";
pub const ROUTE_SECTION: &str = "[Route]\nrouter-path = /infra/tier-1s/t1\n";
const BALANCER_SECTION: &str = "[LoadBalancer]\nip-pool-id = p1\nsize = SMALL\ntier1-gateway-path = /infra/tier-1s/t1\n\
    tcp-app-profile-path = /infra/lb-app-profiles/default-tcp-lb-app-profile\n\
    udp-app-profile-path = /infra/lb-app-profiles/default-udp-lb-app-profile\n";
/// Users of two replicas. They distinguish the replicas' requests.
pub const USERS: [(&str, &str); 2] = [("replica-1", "Correct-Horse-1"), ("replica-2", "Correct-Horse-2")];
/// User of the client certificate.
const PRINCIPAL: &str = "ccm-principal";
/// Log line for a removed condition.
const CONDITION_REMOVED: &str = "condition NetworkUnavailable removed";
/// Log line for a file that is used now.
const IN_FORCE: &str = "was read again and is in effect";

/// A cluster with one vCenter and one NSX Manager.
pub struct Site {
    pub cluster: Cluster,
    vcenter: FakeVcenter,
    pub nsx: FakeNsx,
    folder: tempfile::TempDir,
}

impl Site {
    /// Creates a site with the VMs of these numbers.
    pub async fn new(numbers: std::ops::Range<usize>) -> Self {
        let cluster = Cluster::new().await;
        let vcenter = FakeVcenter::start(cluster.model(numbers)).await;
        let model = USERS.iter().fold(Model::small().tier1("t2"), |model, (user, password)| model.user(user, password));
        let (certificate, key) = client_identity(PRINCIPAL);
        let nsx = FakeNsx::start(model.principal(PRINCIPAL, &certificate)).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("client.pem"), certificate).unwrap();
        std::fs::write(folder.path().join("client-key.pem"), key).unwrap();
        std::fs::write(folder.path().join("nsx-ca.pem"), nsx.ca_pem()).unwrap();
        Self { cluster, vcenter, nsx, folder }
    }

    /// Returns the configuration without NSX.
    fn vcenter_only(&self) -> String {
        Cluster::zoned(&[self.vcenter.ini_section("vc-1", "dc-1", self.folder.path())])
    }

    /// Returns the configuration with NSX for one of [`USERS`], without routes.
    pub fn with_nsx(&self, (user, password): (&str, &str)) -> String {
        self.with_login(&format!("user = {user}\npassword = {password}\n"))
    }

    fn with_login(&self, login: &str) -> String {
        let (host, ca) = (self.nsx.address(), self.folder.path().join("nsx-ca.pem"));
        format!("{}\n[NSXT]\nhost = {host}\nca-file = {}\n{login}", self.vcenter_only(), ca.display())
    }

    async fn write_secret(&self, (user, password): (&str, &str)) {
        let secrets = Api::<Secret>::namespaced(self.cluster.client.clone(), "kube-system");
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.cluster.pool()},
            "stringData": {"username": user, "password": password},
        });
        let apply = PatchParams::apply("test").force();
        secrets.patch(self.cluster.pool(), &apply, &Patch::Apply(secret)).await.unwrap();
    }

    /// Waits until this user has logged in this many times. The former session ends later, after its last call.
    async fn wait_for_login(&self, user: &str, logins: u32, daemon: &Daemon) {
        eventually(&format!("{user} has logged in"), LIMIT, async || {
            let counts = self.nsx.counts();
            match counts.of_user(user, "session create") {
                found if found == logins => Ok(()),
                _ => Err(format!("{:?}\n{}", counts.users, daemon.output().tail(30))),
            }
        })
        .await;
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        replace_file(&path, text);
        path
    }

    /// Starts a replica with leader election.
    pub fn start(&self, config: &std::path::Path, more: &[&str]) -> Daemon {
        let lease = format!("--leader-elect-resource-name={}", self.cluster.pool());
        let name = format!("--cluster-name={}", self.cluster.pool());
        self.cluster.start_on(config, &[&["--leader-elect=true", &lease, &name], more].concat())
    }

    /// Registers a node with the network of [`network`] and further ones.
    pub async fn join(&self, number: usize, more: &[&str]) {
        let own = network(number);
        let networks = [&[own.as_str()], more].concat();
        self.cluster.kubelet(number).pod_cidrs(&networks).register(&self.cluster.client).await;
    }

    /// Returns the next hops of all routes of the router, by network.
    fn routes(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let routes = self.nsx.objects_below(&format!("{ROUTER}/static-routes"));
        routes.iter().map(|route| (text(&route["network"]), text(&route["next_hops"][0]["ip_address"]))).collect()
    }

    /// Waits until the router has exactly these routes.
    async fn wait_for_routes(&self, expected: &[(String, String)], daemon: &Daemon) {
        let expected: BTreeMap<_, _> = expected.iter().cloned().collect();
        eventually("the router has the routes of the nodes", LIMIT, async || match self.routes() {
            routes if routes == expected => Ok(()),
            routes => Err(format!("{routes:?} instead of {expected:?}\n{}", daemon.output().tail(30))),
        })
        .await;
    }

    /// Returns status and reason of a node's condition `NetworkUnavailable`.
    async fn condition(&self, number: usize) -> Option<(String, String)> {
        let nodes = self.cluster.nodes().await;
        let status = nodes.get(&self.cluster.name(number))?.status.clone()?;
        let is_it = |condition: &NodeCondition| condition.type_ == "NetworkUnavailable";
        let found = status.conditions?.into_iter().find(is_it)?;
        Some((found.status, found.reason.unwrap_or_default()))
    }

    async fn wait_for_condition(&self, number: usize, expected: Option<(&str, &str)>, daemon: &Daemon) {
        let expected = expected.map(|(status, reason)| (status.to_owned(), reason.to_owned()));
        eventually(&format!("node {number} has the condition {expected:?}"), LIMIT, async || {
            match self.condition(number).await {
                found if found == expected => Ok(()),
                found => Err(format!("{found:?}\n{}", daemon.output().tail(30))),
            }
        })
        .await;
    }

    /// Writes the condition of a failed route, as an earlier leader left it.
    async fn leave_condition(&self, number: usize) {
        let condition = json!({"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"});
        self.put_condition(number, condition).await;
    }

    /// Creates route and condition of this node as the Go program leaves them.
    async fn leave_route_of_go(&self, number: usize) {
        let (name, network) = (self.cluster.name(number), network(number));
        let uid = self.cluster.nodes().await[&name].metadata.uid.clone().unwrap();
        put_route_of_go(&self.nsx, self.cluster.pool(), (&name, &uid), &network, &ip(number));
        self.put_condition(number, condition_of_go()).await;
    }

    async fn put_condition(&self, number: usize, condition: Value) {
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        let manager =
            PatchParams { field_manager: Some("vsphere-cloud-controller-manager".to_owned()), ..<_>::default() };
        let nodes = Api::<Node>::all(self.cluster.client.clone());
        nodes.patch_status(&self.cluster.name(number), &manager, &patch).await.unwrap();
    }

    /// Creates a route of another cluster, and a manual one.
    fn put_foreign_routes(&self) -> Vec<Value> {
        let tags = json!([{"scope": "vsphere.k8s.io/cluster-name", "tag": "another"},
            {"scope": "vsphere.k8s.io/node-name", "tag": self.cluster.name(0)}]);
        for (id, network, tags) in [("other", "10.250.0.0/24", tags), ("by-hand", "10.251.0.0/24", json!([]))] {
            let hops = json!([{"ip_address": "192.0.2.9", "admin_distance": 1}]);
            let body = json!({"resource_type": "StaticRoutes", "network": network, "next_hops": hops, "tags": tags});
            self.nsx.put_by_hand("somebody", &format!("{ROUTER}/static-routes/{id}"), body);
        }
        self.foreign_routes()
    }

    fn foreign_routes(&self) -> Vec<Value> {
        let read = |id: &str| self.nsx.object(&format!("{ROUTER}/static-routes/{id}")).unwrap();
        vec![read("other"), read("by-hand")]
    }

    /// Waits until NSX has no session.
    async fn wait_for_logout(&self, daemon: &Daemon) {
        eventually("NSX has no session", LIMIT, async || match self.nsx.counts().sessions {
            0 => Ok(()),
            count => Err(format!("{count} sessions\n{}", daemon.output().tail(30))),
        })
        .await;
    }
}

/// Creates the route to the pod network of a Node, given by name and UID, as the Go program leaves it.
pub fn put_route_of_go(nsx: &FakeNsx, cluster: &str, (name, uid): (&str, &str), network: &str, hop: &str) {
    let body = json!({
        "display_name": format!("{cluster}_{name}_{network}"),
        "network": network,
        "next_hops": [{"ip_address": hop}],
        "tags": [
            {"scope": "vsphere.k8s.io/cluster-name", "tag": cluster},
            {"scope": "vsphere.k8s.io/node-name", "tag": name},
        ],
    });
    let id = format!("{uid}_{}", network.replace('/', "_"));
    nsx.put_by_hand("go-program", &format!("{ROUTER}/static-routes/{id}"), body);
}

/// Returns the condition of a Node whose route the Go program has created.
pub fn condition_of_go() -> Value {
    let at = "2026-01-02T03:04:05Z";
    json!({
        "type": "NetworkUnavailable",
        "status": "False",
        "reason": "RouteCreated",
        "message": "RouteController created a route",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    })
}

/// Returns the resource versions of these nodes.
async fn node_versions(site: &Site, numbers: std::ops::Range<usize>) -> Vec<Option<String>> {
    let nodes = site.cluster.nodes().await;
    numbers.map(|number| nodes[&site.cluster.name(number)].metadata.resource_version.clone()).collect()
}

/// Returns the pod network of the node with this number.
fn network(number: usize) -> String {
    format!("10.244.{number}.0/24")
}

/// Returns the route of the node with this number.
fn route(number: usize) -> (String, String) {
    (network(number), ip(number))
}

/// Returns the routes of [`Site::put_foreign_routes`].
fn foreign() -> [(String, String); 2] {
    ["10.250.0.0/24", "10.251.0.0/24"].map(|network| (network.to_owned(), "192.0.2.9".to_owned()))
}

const CREATED: Option<(&str, &str)> = Some(("False", "RouteCreated"));
const NOT_CREATED: Option<(&str, &str)> = Some(("True", "NoRouteCreated"));

#[tokio::test]
async fn routes_follow_the_nodes_and_only_the_leader_has_a_session() {
    let site = Site::new(0..4).await;
    let foreign_before = site.put_foreign_routes();
    let files = USERS.map(|user| site.file(user.0, &format!("{}{ROUTE_SECTION}", site.with_nsx(user))));
    let mut first = site.start(&files[0], &[CLUSTER_CIDR]);
    first.wait_for_line("became leader", LIMIT).await;
    for number in 0..3 {
        site.join(number, &[]).await;
    }
    site.cluster.wait_until_initialized(0..3, &first).await;
    let others = foreign();
    let expected = |own: &[(String, String)]| [own, &others[..]].concat();
    site.wait_for_routes(&expected(&[route(0), route(1), route(2)]), &first).await;
    for number in 0..3 {
        site.wait_for_condition(number, CREATED, &first).await;
    }

    let mut second = site.start(&files[1], &[CLUSTER_CIDR]);
    second.wait_for_line("standing by", LIMIT).await;
    second.wait_for_line(" started", LIMIT).await;

    // A changed address is updated in the existing route.
    let versions = site.nsx.history().len();
    site.vcenter.change_vm(&site.cluster.name(1), |vm| vm.ip("10.1.9.9"));
    site.wait_for_routes(&expected(&[route(0), (network(1), "10.1.9.9".to_owned()), route(2)]), &first).await;
    let changed = site.nsx.written_from(versions);
    assert!(changed.iter().all(|version| version.user == USERS[0].0 && version.object.is_some()), "{changed:?}");
    site.wait_for_condition(1, CREATED, &first).await;

    // The route of a deleted Node is deleted.
    let nodes = Api::<Node>::all(site.cluster.client.clone());
    nodes.delete(&site.cluster.name(2), &DeleteParams::default()).await.unwrap();
    let last = expected(&[route(0), (network(1), "10.1.9.9".to_owned())]);
    site.wait_for_routes(&last, &first).await;

    // The standby has sent nothing so far. It becomes the leader without a write to NSX.
    let requests = site.nsx.requests();
    assert!(requests.iter().all(|request| request.user == USERS[0].0), "{requests:#?}");
    let versions = site.nsx.history().len();
    assert_eq!(first.stop(LIMIT).await.code(), Some(0), "{}", first.output().tail(40));
    second.wait_for_line("became leader", LIMIT).await;
    eventually("the new leader lists the routes", LIMIT, async || {
        match site.nsx.counts().of_user(USERS[1].0, "LIST static-routes") {
            0 => Err(format!("{:?}\n{}", site.nsx.counts().users, second.output().tail(30))),
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(site.nsx.counts().sessions, 1, "the first one logged out");
    site.join(3, &[]).await;
    site.wait_for_routes(&[&last[..], &[route(3)]].concat(), &second).await;
    let written = site.nsx.written_from(versions);
    assert!(written.iter().all(|version| version.path.ends_with("_10.244.3.0_24")), "{written:?}");
    assert_eq!(second.stop(LIMIT).await.code(), Some(0), "{}", second.output().tail(40));
    assert_eq!(site.nsx.counts().sessions, 0);
    assert_eq!(site.foreign_routes(), foreign_before);
}

#[tokio::test]
async fn a_start_on_routes_of_the_go_program_writes_nothing_to_nsx_and_to_nodes() {
    let site = Site::new(0..3).await;
    // Without NSX the nodes get all fields that the node controller writes.
    let mut without_nsx = site.start(&site.file("before.conf", &site.vcenter_only()), &[CLUSTER_CIDR]);
    for number in 0..2 {
        site.join(number, &[]).await;
    }
    site.cluster.wait_until_initialized(0..2, &without_nsx).await;
    assert_eq!(without_nsx.stop(LIMIT).await.code(), Some(0), "{}", without_nsx.output().tail(40));
    for number in 0..2 {
        site.leave_route_of_go(number).await;
    }
    let (nodes, versions) = (node_versions(&site, 0..2).await, site.nsx.history().len());

    let path = site.file("vsphere.conf", &format!("{}{ROUTE_SECTION}", site.with_nsx(USERS[0])));
    let mut daemon = site.start(&path, &[CLUSTER_CIDR]);
    daemon.wait_for_line("became leader", LIMIT).await;
    // Once a node that joins now has a route and the condition, the daemon has processed the earlier nodes.
    site.join(2, &[]).await;
    site.wait_for_routes(&[route(0), route(1), route(2)], &daemon).await;
    site.wait_for_condition(2, CREATED, &daemon).await;
    assert_eq!(node_versions(&site, 0..2).await, nodes, "{}", daemon.output().tail(40));
    let written = site.nsx.written_from(versions);
    assert!(written.iter().all(|version| version.path.ends_with("_10.244.2.0_24")), "{written:#?}");

    // The routes belong to this cluster: with another address the daemon updates the existing route.
    site.vcenter.change_vm(&site.cluster.name(0), |vm| vm.ip("10.1.9.9"));
    let moved = (network(0), "10.1.9.9".to_owned());
    site.wait_for_routes(&[moved, route(1), route(2)], &daemon).await;
    assert_eq!(node_versions(&site, 1..2).await, nodes[1..], "{}", daemon.output().tail(40));
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn a_default_name_of_the_cluster_is_a_warning_where_nsx_is_in_use() {
    let site = Site::new(0..0).await;
    let (with, without) = (site.with_nsx(USERS[0]), site.vcenter_only());
    let cases: [(&str, &[&str], bool); 4] = [
        (&with, &[], true),
        (&with, &["--cluster-name=kubernetes"], true),
        (&with, &["--cluster-name=own"], false),
        (&without, &[], false),
    ];
    for (config, flags, is_warned) in cases {
        let (admin, token) = (Admin::new(), token(&site.cluster).await);
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).chain([admin.flag()]).collect();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut daemon = site.cluster.start(config, &flags);
        daemon.wait_for_line(ANSWERS, LIMIT).await;
        let (_, checks) = admin.get("/readyz?verbose", Some(&token), &mut daemon).await;
        assert_eq!(checks.contains("[+]cluster-name --cluster-name=kubernetes is the default"), is_warned, "{checks}");
        let lines = daemon.output().lines();
        let warnings = lines.iter().filter(|line| line.contains("--cluster-name=kubernetes is the default"));
        assert_eq!(warnings.count(), usize::from(is_warned), "{flags:?}: {lines:#?}");
        assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    }
}

#[tokio::test]
async fn an_error_in_the_section_of_routes_at_the_start_changes_no_condition_and_no_route() {
    let site = Site::new(0..2).await;
    site.put_foreign_routes();
    let nsx = site.with_nsx(USERS[0]);
    // An earlier leader left the route of an existing Node, and the condition of the other Node.
    let (admin, token) = (Admin::new(), token(&site.cluster).await);
    let path = site.file("vsphere.conf", &format!("{nsx}{}", ROUTE_SECTION.replace("tier-1s", "tier-2s")));
    site.join(0, &[]).await;
    site.leave_condition(0).await;
    let versions = site.nsx.history().len();
    let mut daemon = site.start(&path, &[CLUSTER_CIDR, &admin.flag()]);
    daemon.wait_for_line("routes is turned off", LIMIT).await;
    daemon.wait_for_line("became leader", LIMIT).await;
    site.join(1, &[]).await;
    site.cluster.wait_until_initialized(0..2, &daemon).await;
    let (_, text) = admin.get("/metrics", Some(&token), &mut daemon).await;
    let gauge = "vsphere_ccm_config_part_refused{part=\"routes\"} 1";
    assert!(text.contains(gauge), "{gauge} is missing in {text}");
    site.wait_for_condition(0, NOT_CREATED, &daemon).await;
    site.wait_for_condition(1, None, &daemon).await;

    let lines = daemon.output().lines();
    assert!(!lines.iter().any(|line| line.contains(CONDITION_REMOVED)), "{lines:#?}");

    // After a reload of a file without routes the daemon removes the condition.
    replace_file(&path, &nsx);
    daemon.wait_for_line(IN_FORCE, LIMIT).await;
    site.wait_for_condition(0, None, &daemon).await;
    daemon.wait_for_line(CONDITION_REMOVED, LIMIT).await;
    assert!(site.nsx.written_from(versions).is_empty(), "{:?}", site.nsx.written_from(versions));
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn a_reload_that_adds_routes_is_refused_without_networks_of_the_pods() {
    let site = Site::new(0..1).await;
    let nsx = site.with_nsx(USERS[0]);
    let path = site.file("vsphere.conf", &nsx);
    let mut daemon = site.start(&path, &[]);
    daemon.wait_for_line("became leader", LIMIT).await;
    replace_file(&path, &format!("{nsx}{ROUTE_SECTION}"));
    let refused = daemon.wait_for_line("is invalid, and the previous one stays in effect", LIMIT).await;
    assert!(refused.contains("routes") && refused.contains("--cluster-cidr"), "{refused}");
    site.join(0, &[]).await;
    site.cluster.wait_until_initialized(0..1, &daemon).await;
    assert_eq!(site.condition(0).await, None);
    assert_eq!(site.routes(), BTreeMap::new());
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn routes_come_and_go_with_the_sections_of_the_file() {
    let site = Site::new(0..2).await;
    let path = site.file("vsphere.conf", &site.vcenter_only());
    let (admin, token) = (Admin::new(), token(&site.cluster).await);
    let mut daemon = site.start(&path, &[CLUSTER_CIDR, &admin.flag()]);
    site.join(0, &[]).await;
    // No Node has an address of the second family.
    site.join(1, &["fd00:244::/64"]).await;
    site.cluster.wait_until_initialized(0..2, &daemon).await;
    let (nsx, routes) = (site.with_nsx(USERS[0]), [route(0), route(1)]);

    replace_file(&path, &format!("{nsx}{ROUTE_SECTION}"));
    let applied = daemon.wait_for_line(IN_FORCE, LIMIT).await;
    assert!(applied.contains("routes added") && !applied.contains(USERS[0].1), "{applied}");
    site.wait_for_routes(&routes, &daemon).await;
    site.wait_for_condition(0, CREATED, &daemon).await;
    site.wait_for_condition(1, NOT_CREATED, &daemon).await;

    // Without routes the daemon removes the condition that blocks pods. The routes stay.
    replace_file(&path, &nsx);
    site.wait_for_condition(1, None, &daemon).await;
    assert_eq!(site.condition(0).await, CREATED.map(|(status, reason)| (status.to_owned(), reason.to_owned())));
    site.wait_for_routes(&routes, &daemon).await;

    // Without NSX there is no session, and no metric about its certificate.
    let verified = "vsphere_ccm_nsx_tls_verified{";
    let (_, text) = admin.get("/metrics", Some(&token), &mut daemon).await;
    assert!(text.contains(verified), "{text}");
    replace_file(&path, &site.vcenter_only());
    site.wait_for_logout(&daemon).await;
    daemon.wait_for_line("task ended", LIMIT).await;
    let (_, text) = admin.get("/metrics", Some(&token), &mut daemon).await;
    assert!(!text.contains(verified), "{text}");

    // With routes again, the daemon keeps the existing routes.
    let versions = site.nsx.history().len();
    replace_file(&path, &format!("{nsx}{ROUTE_SECTION}"));
    site.wait_for_condition(1, NOT_CREATED, &daemon).await;
    assert!(site.nsx.written_from(versions).is_empty(), "{:?}", site.nsx.written_from(versions));
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    assert_eq!(site.nsx.counts().sessions, 0);
}

#[tokio::test]
async fn load_balancers_come_and_go_with_the_section_of_the_file() {
    let site = Site::new(0..1).await;
    let nsx = site.with_nsx(USERS[0]);
    let path = site.file("vsphere.conf", &nsx);
    let (admin, token) = (Admin::new(), token(&site.cluster).await);
    let mut daemon = site.start(&path, &[&admin.flag()]);
    daemon.wait_for_line("became leader", LIMIT).await;
    // The same section twice: load balancers are served again although the section has not changed.
    let with = format!("{nsx}{BALANCER_SECTION}");
    for (config, expected) in [(&with, 1), (&nsx, 0), (&with, 1), (&nsx, 0)] {
        replace_file(&path, config);
        let line = format!("vsphere_ccm_load_balancer_configured {expected}\n");
        eventually("the gauge says so", LIMIT, async || {
            let (_, text) = admin.get("/metrics", Some(&token), &mut daemon).await;
            if text.contains(&line) { Ok(()) } else { Err(line.clone()) }
        })
        .await;
        if expected == 0 {
            daemon.wait_for_line("task ended", LIMIT).await;
        }
    }
    assert!(site.nsx.requests().is_empty(), "there is no Service");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn changed_credentials_are_used_beside_the_session_and_rejected_ones_are_not() {
    let site = Site::new(0..2).await;
    site.write_secret(USERS[0]).await;
    let of_secret =
        site.with_login(&format!("secret-name = {}\nsecret-namespace = kube-system\n", site.cluster.pool()));
    let path = site.file("vsphere.conf", &format!("{of_secret}{ROUTE_SECTION}"));
    let mut daemon = site.start(&path, &[CLUSTER_CIDR]);
    site.join(0, &[]).await;
    site.wait_for_routes(&[route(0)], &daemon).await;
    site.wait_for_login(USERS[0].0, 1, &daemon).await;

    // Another account in the Secret: its session replaces the current session.
    site.write_secret(USERS[1]).await;
    site.wait_for_login(USERS[1].0, 1, &daemon).await;

    // A wrong password: the current session stays and works.
    site.write_secret((USERS[0].0, "Wrong-Horse-3")).await;
    daemon.wait_for_line("new credentials are not used, and the login stays", LIMIT).await;
    site.join(1, &[]).await;
    site.wait_for_routes(&[route(0), route(1)], &daemon).await;
    let counts = site.nsx.counts();
    assert_eq!(counts.of_user(USERS[1].0, "session create"), 1, "{:?}", counts.users);
    let versions = site.nsx.history();
    let last = versions.iter().rfind(|version| version.path.ends_with("_10.244.1.0_24")).unwrap();
    assert_eq!(last.user, USERS[1].0, "{versions:#?}");

    // The file has its own login. The change needs no restart either.
    let before = counts.of_user(USERS[0].0, "session create");
    replace_file(&path, &format!("{}{ROUTE_SECTION}", site.with_nsx(USERS[0])));
    daemon.wait_for_line("is in effect", LIMIT).await;
    site.wait_for_login(USERS[0].0, before + 1, &daemon).await;
    let secrets = [USERS[0].1, USERS[1].1, "Wrong-Horse-3"];
    let lines = daemon.output().lines();
    assert!(!lines.iter().any(|line| secrets.iter().any(|secret| line.contains(secret))), "{lines:#?}");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    assert_eq!(site.nsx.counts().sessions, 0);
}

#[tokio::test]
async fn a_client_certificate_is_the_login_until_the_file_has_another_one() {
    let site = Site::new(0..2).await;
    let [certificate, key] = ["client.pem", "client-key.pem"].map(|name| site.folder.path().join(name));
    let login =
        format!("client-auth-cert-file = {}\nclient-auth-key-file = {}\n", certificate.display(), key.display());
    let path = site.file("vsphere.conf", &format!("{}{ROUTE_SECTION}", site.with_login(&login)));
    let mut daemon = site.start(&path, &[CLUSTER_CIDR]);
    site.join(0, &[]).await;
    site.wait_for_routes(&[route(0)], &daemon).await;
    let requests = site.nsx.requests();
    assert!(requests.iter().all(|request| request.user == PRINCIPAL), "{requests:#?}");
    assert_eq!(site.nsx.counts().sessions, 0);

    replace_file(&path, &format!("{}{ROUTE_SECTION}", site.with_nsx(USERS[0])));
    daemon.wait_for_line("is in effect", LIMIT).await;
    site.join(1, &[]).await;
    site.wait_for_routes(&[route(0), route(1)], &daemon).await;
    let versions = site.nsx.history();
    let last = versions.iter().rfind(|version| version.path.ends_with("_10.244.1.0_24")).unwrap();
    assert_eq!(last.user, USERS[0].0, "{versions:#?}");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    assert_eq!(site.nsx.counts().sessions, 0);
}

#[tokio::test]
async fn the_token_service_is_trusted_by_a_ca_file_that_changes_while_the_daemon_runs() {
    let cluster = Cluster::new().await;
    let vcenter = FakeVcenter::start(cluster.model(0..1)).await;
    let nsx = FakeNsx::start(Model::small().cloud_user(PRINCIPAL, "refresh-token")).await;
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("nsx-ca.pem");
    std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
    let site = Site { cluster, vcenter, nsx, folder };
    let service = site.nsx.token_address();
    let login = format!("vmc-access-token = refresh-token\nvmc-auth-host = {service}\n");
    let path = site.file("vsphere.conf", &format!("{}{ROUTE_SECTION}", site.with_login(&login)));
    let mut daemon = site.start(&path, &[CLUSTER_CIDR]);
    site.join(0, &[]).await;
    daemon.wait_for_line("no token of VMware Cloud", LIMIT).await;
    assert_eq!(site.nsx.counts().of("token authorize"), 0);
    replace_file(&ca_file, &format!("{}{}", site.nsx.ca_pem(), site.nsx.token_ca_pem()));
    daemon.wait_for_line(IN_FORCE, LIMIT).await;
    site.wait_for_routes(&[route(0)], &daemon).await;
    assert_eq!(site.nsx.counts().of("token authorize"), 1);
}

#[tokio::test]
async fn another_router_gets_the_routes_at_once() {
    let site = Site::new(0..1).await;
    let path = site.file("vsphere.conf", &format!("{}{ROUTE_SECTION}", site.with_nsx(USERS[0])));
    let mut daemon = site.start(&path, &[CLUSTER_CIDR]);
    site.join(0, &[]).await;
    site.wait_for_routes(&[route(0)], &daemon).await;
    let section = ROUTE_SECTION.replace("t1", "t2");
    replace_file(&path, &format!("{}{section}", site.with_nsx(USERS[0])));
    daemon.wait_for_line(IN_FORCE, LIMIT).await;
    eventually("the other router has the route", LIMIT, async || {
        match site.nsx.objects_below("/infra/tier-1s/t2/static-routes").len() {
            1 => Ok(()),
            found => Err(format!("{found} routes\n{}", daemon.output().tail(30))),
        }
    })
    .await;
    assert_eq!(site.nsx.counts().sessions, 1, "the session is that of before");
}
