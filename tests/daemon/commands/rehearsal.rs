//! `plan --compare` beside the Go program, on a cluster as that program leaves it: Nodes, load balancers and routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm::cloud::service::FINALIZER;
use k8s_openapi::api::core::v1::{Namespace, Node, NodeCondition, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::fake_nsx::go::{GoBalancer, GoPort, PROGRAM};
use support::fake_nsx::{FakeNsx, Model};
use support::nodes::ready_condition;
use support::{ApiServer, Vcenter, eventually};

use super::observer::{self, writes};
use crate::adoption::fixtures::{Fixture, fixtures};
use crate::cluster::{Cluster, LIMIT, ip, labels, uuid};
use crate::nsx::{condition_of_go, put_route_of_go};

/// User that creates the objects of the Go program.
const GO: &str = "go-program";
/// User and password of the command in NSX.
const LOGIN: (&str, &str) = ("ccm", "Correct-Horse-1");
/// Number of the Node whose kubelet does not report, and whose VM is gone.
const SILENT: usize = 15;
/// Number of the Node whose address has changed since the Go program made its route.
const MOVED: usize = 2;
/// Number of the Node that the Go program has not added to one of the pools.
const LACKING: usize = 14;
/// The address of the moved Node in its route.
const FORMER_ADDRESS: &str = "10.1.99.99";

/// A cluster as the Go program leaves it.
struct Site {
    server: ApiServer,
    cluster: Cluster,
    vcenter: Vcenter,
    nsx: FakeNsx,
    fixtures: Vec<Fixture>,
}

impl Site {
    async fn new() -> Self {
        let server = ApiServer::audited().await;
        let cluster = Cluster::on(&server).await;
        let mut fixtures = fixtures(&cluster, true);
        let silent = Fixture::new("not heard of, and its machine is gone", SILENT, &cluster).labelled(labels("zone-a"));
        fixtures.push(Fixture { vm: None, is_ready: false, ..silent });
        let vcenter = Vcenter::start(&cluster.scenario(0..fixtures.len())).await;
        let nsx = FakeNsx::start(Model::small().user(LOGIN.0, LOGIN.1)).await;
        let site = Self { server, cluster, vcenter, nsx, fixtures };
        site.leave_nodes().await;
        site.leave_services().await;
        site
    }

    /// Creates the Nodes with their machines, their routes and the condition of the route controller.
    async fn leave_nodes(&self) {
        let nodes = Api::<Node>::all(self.cluster.client.clone());
        for fixture in &self.fixtures {
            match &fixture.vm {
                Some(change) => self.vcenter.change_vm(&uuid(fixture.number), change).await,
                None => self.vcenter.destroy_vm(&uuid(fixture.number)).await,
            }
            let mut node = fixture.build(&self.cluster);
            let network = network(fixture.number);
            let spec = node.spec.get_or_insert_default();
            (spec.pod_cidr, spec.pod_cidrs) = (Some(network.clone()), Some(vec![network.clone()]));
            let of_route: NodeCondition = serde_json::from_value(condition_of_go()).unwrap();
            let now = k8s_openapi::jiff::Timestamp::now();
            let silent = (fixture.number == SILENT).then(|| ready_condition(&node, "Unknown", now));
            let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
            if let Some(silent) = silent {
                *conditions = vec![silent];
            }
            conditions.push(of_route);
            let created = nodes.create(&PostParams::default(), &node).await.unwrap();
            let name = self.cluster.name(fixture.number);
            let hop = if fixture.number == MOVED { FORMER_ADDRESS.to_owned() } else { address_of(fixture) };
            let uid = created.metadata.uid.unwrap();
            put_route_of_go(&self.nsx, self.cluster.pool(), (&name, &uid), &network, &hop);
        }
    }

    /// Creates the Services with their load balancers, and one load balancer whose Service is gone.
    async fn leave_services(&self) {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": self.cluster.pool()}})).unwrap();
        let namespaces = Api::<Namespace>::all(self.cluster.client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        for (index, (name, ports, spec)) in service_rows().into_iter().enumerate() {
            let address = [192, 0, 2, 60 + u8::try_from(index).unwrap()].into();
            let mut nodes = self.members();
            let lacking = self.cluster.name(LACKING);
            nodes.retain(|(node, _)| name != "stale" || *node != lacking);
            self.leave_service(name, ports, spec, address, &nodes).await;
        }
        self.services().delete("gone", &DeleteParams::default()).await.unwrap();
    }

    async fn leave_service(
        &self,
        name: &str,
        ports: &[(&str, u16)],
        mut spec: Value,
        address: IpAddr,
        nodes: &[(String, IpAddr)],
    ) {
        let of_port = |(protocol, port): &(&str, u16)| json!({"name": format!("{protocol}-{port}").to_lowercase(), "protocol": protocol, "port": port});
        spec["type"] = json!("LoadBalancer");
        spec["ports"] = ports.iter().map(of_port).collect();
        let service = json!({"metadata": {"name": name}, "spec": spec});
        let services = self.services();
        let created = services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        let mut balancer = self.balancer(name, address, nodes);
        balancer.ports = go_ports(&created);
        balancer.put(&self.nsx, GO);
        if name == "gone" {
            return;
        }
        let manager = PatchParams { field_manager: Some(PROGRAM.to_owned()), ..PatchParams::default() };
        let finalizer = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
        services.patch(name, &manager, &finalizer).await.unwrap();
        let status = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}));
        services.patch_status(name, &manager, &status).await.unwrap();
    }

    fn balancer(&self, name: &str, address: IpAddr, nodes: &[(String, IpAddr)]) -> GoBalancer {
        let pool = self.cluster.pool();
        let nodes: Vec<(&str, IpAddr)> = nodes.iter().map(|(name, address)| (name.as_str(), *address)).collect();
        let mut balancer = GoBalancer::new(pool, &format!("{pool}/{name}"), address).nodes(&nodes);
        "XLARGE".clone_into(&mut balancer.size);
        balancer
    }

    /// Returns names and addresses of the Nodes that the Go program takes as members: all, ready or not.
    fn members(&self) -> Vec<(String, IpAddr)> {
        let member = |one: &Fixture| (self.cluster.name(one.number), address_of(one).parse().unwrap());
        self.fixtures.iter().map(member).collect()
    }

    /// Returns the id of the route of the Node with this number.
    async fn route_id(&self, number: usize) -> String {
        let nodes = self.cluster.nodes().await;
        let uid = nodes[&self.cluster.name(number)].metadata.uid.clone().unwrap();
        format!("{uid}_{}", network(number).replace('/', "_"))
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.cluster.client.clone(), self.cluster.pool())
    }

    /// Returns the resource versions of the Services.
    async fn service_versions(&self) -> Vec<Option<String>> {
        let services = self.services().list(&<_>::default()).await.unwrap().items;
        services.into_iter().map(|service| service.metadata.resource_version).collect()
    }

    /// Returns the command with the flags and files that this program will have.
    fn command(&self) -> observer::Site {
        let ca_file = self.cluster.folder().join("nsx-ca.pem");
        std::fs::write(&ca_file, self.nsx.ca_pem()).unwrap();
        let vcenter = Cluster::zoned(&[self.vcenter.ini_section("vc-1", "dc-1")]);
        let (host, ca_file, (user, password)) = (self.nsx.address(), ca_file.display(), LOGIN);
        let config = format!(
            "{vcenter}\n[NSXT]\nhost = {host}\nca-file = {ca_file}\nuser = {user}\npassword = {password}\n\
             [LoadBalancer]\nip-pool-name = pool1\nsize = XLARGE\ntier1-gateway-path = /infra/tier-1s/t1\n\
             tcp-app-profile-name = default-tcp-lb-app-profile\n\
             udp-app-profile-path = /infra/lb-app-profiles/default-udp-lb-app-profile\n\
             [Route]\nrouter-path = /infra/tier-1s/t1\n"
        );
        let mut command = observer::Site::new(&self.cluster, &self.server, &config);
        command.flags.push(format!("--cluster-name={}", self.cluster.pool()));
        command.flags.push("--cluster-cidr=10.244.0.0/16".to_owned());
        command
    }
}

/// A Service: name, ports and further fields of the spec.
type ServiceRow = (&'static str, &'static [(&'static str, u16)], Value);

fn service_rows() -> Vec<ServiceRow> {
    vec![
        ("tcp", &[("TCP", 80)], json!({})),
        ("several", &[("TCP", 80), ("UDP", 80), ("TCP", 443)], json!({})),
        // The Go program ignores these fields.
        ("ranges", &[("TCP", 80)], json!({"loadBalancerSourceRanges": ["10.0.0.0/8"], "sessionAffinity": "ClientIP"})),
        // A Node that the Go program has not added to the pool.
        ("stale", &[("TCP", 80)], json!({})),
        // Deleted, and its load balancer was left behind.
        ("gone", &[("TCP", 80)], json!({})),
    ]
}

fn go_ports(service: &Service) -> Vec<GoPort> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).unwrap();
    let number = |number: i32| u16::try_from(number).unwrap();
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| GoPort {
        protocol: port.protocol.clone().unwrap(),
        port: number(port.port),
        node_port: number(port.node_port.unwrap()),
    };
    ports.iter().map(port).collect()
}

/// Returns the address that the Go program gave the Node.
fn address_of(fixture: &Fixture) -> String {
    let internal = fixture.addresses.iter().find(|(kind, _)| *kind == "InternalIP");
    internal.map(|(_, address)| address.clone()).unwrap()
}

/// Returns the pod network of the Node with this number.
fn network(number: usize) -> String {
    format!("10.244.{number}.0/24")
}

/// Returns the changes of each object of a part as texts: kind, field and reason.
fn changes(part: &Value) -> BTreeMap<String, Vec<String>> {
    let text = |change: &Value| {
        let words = ["kind", "field", "reason"].into_iter().filter_map(|word| change[word].as_str());
        words.collect::<Vec<_>>().join(" ")
    };
    let objects = part["objects"].as_array().unwrap().iter();
    let entry = |object: &Value| {
        let changes = object["changes"].as_array().unwrap().iter().map(text).collect();
        (object["name"].as_str().unwrap().to_owned(), changes)
    };
    objects.map(entry).collect()
}

/// Returns the first change of an object of a part.
fn first_change<'a>(part: &'a Value, name: &str) -> &'a Value {
    let objects = part["objects"].as_array().unwrap();
    &objects.iter().find(|object| object["name"] == name).unwrap()["changes"][0]
}

fn numbers(part: &Value) -> [u64; 7] {
    let kinds = ["created", "updated", "deleted", "adopted", "held", "unknown", "unchanged"];
    kinds.map(|kind| part["counts"][kind].as_u64().unwrap())
}

impl Site {
    /// Returns the differences of Nodes that `docs/compatibility.md` names.
    fn expected_nodes(&self) -> BTreeMap<String, Vec<String>> {
        const RECORD: &str = "update annotation vsphere-ccm.dev/vm";
        const UNKNOWN: &str = "unknown VM VMNotFound";
        let changes = |number: usize| -> &[&str] {
            match number {
                // Moved and grown since: told once, and not written.
                8 => &[
                    "update annotation vsphere-ccm.dev/reported",
                    RECORD,
                    "keep label node.kubernetes.io/instance-type InstanceTypeDiffers",
                    "keep label topology.kubernetes.io/zone ZoneLabelsDiffer",
                ],
                // VMware Tools report nothing: the addresses stay.
                11 => &[RECORD, "hold update NoGuestNics"],
                // The VM was never seen, so its absence is not proved.
                13 => &[UNKNOWN],
                SILENT => &[UNKNOWN, "unknown deletion NeverSeen"],
                _ => &[RECORD],
            }
        };
        let owned = |number: usize| changes(number).iter().map(|change| (*change).to_owned()).collect();
        self.fixtures.iter().map(|fixture| (self.cluster.name(fixture.number), owned(fixture.number))).collect()
    }

    /// Asserts that the plan has the documented differences, and no other.
    fn check(&self, plan: &Value) {
        let (nodes, balancers, routes) = (&plan["nodes"], &plan["loadBalancers"], &plan["routes"]);
        assert_eq!(changes(nodes), self.expected_nodes());
        assert_eq!(numbers(nodes), [0, 14, 0, 0, 1, 2, 0]);
        let record = first_change(nodes, &self.cluster.name(0));
        assert!(record["present"].is_null(), "{record}");
        assert!(record["planned"].as_str().unwrap().contains(self.vcenter.instance_uuid()), "{record}");

        // What the Go program ignores stays so; a missing member is added. What is left of the deleted Service stays.
        let key = |name: &str| format!("{}/{name}", self.cluster.pool());
        let as_is = "keep load balancer LoadBalancerAdoptedAsIs";
        let expected = [("ranges", as_is), ("stale", "adopt next step")];
        let expected: BTreeMap<String, Vec<String>> =
            expected.into_iter().map(|(name, change)| (key(name), vec![change.to_owned()])).collect();
        assert_eq!(changes(balancers), expected);
        assert_eq!(numbers(balancers), [0, 0, 0, 1, 0, 0, 3]);
        let adopted = first_change(balancers, &key("stale"))["message"].as_str().unwrap();
        let lacking = format!("lacks the members {}", ip(LACKING));
        assert!(adopted.starts_with("change /infra/lb-pools/") && adopted.ends_with(&lacking), "{adopted}");
        let ignored = first_change(balancers, &key("ranges"))["message"].as_str().unwrap();
        assert!(ignored.contains("spec.loadBalancerSourceRanges, spec.sessionAffinity"), "{ignored}");

        let (network, node) = (network(MOVED), self.cluster.name(MOVED));
        assert_eq!(changes(routes), BTreeMap::from([(network.clone(), vec![format!("update route to {node}")])]));
        assert_eq!(numbers(routes), [0, 1, 0, 0, 0, 0, 15]);
        let rewritten = format!("rewritten in place with the next hop {}", ip(MOVED));
        assert_eq!(first_change(routes, &network)["message"], rewritten);
    }

    /// Asserts one login for each account and interface, and no session that is left.
    async fn check_logins(&self) {
        let counts = self.vcenter.counts().await;
        assert_eq!((counts.soap_logins, counts.of("Login"), counts.soap_sessions), (1, 1, 0), "{counts:?}");
        assert!(counts.rest_logins <= 1 && counts.rest_sessions == 0, "{counts:?}");
        assert_eq!(self.nsx.login_attempts().len(), 1, "{:?}", self.nsx.login_attempts());
        assert_eq!(self.nsx.counts().sessions, 0, "logged out");
    }

    /// Returns the path of the pool of a Service.
    fn pool_of(&self, name: &str) -> String {
        let service = json!({"scope": "service", "tag": format!("{}/{name}", self.cluster.pool())});
        let pools = self.nsx.objects_below("/infra/lb-pools");
        let pool = pools.iter().find(|pool| pool["tags"].as_array().unwrap().contains(&service)).unwrap();
        pool["path"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn beside_the_go_program_only_the_documented_differences_are_planned_and_then_written() {
    let site = Site::new().await;
    let command = site.command();
    let (nodes, services) = (site.cluster.versions().await, site.service_versions().await);
    let (objects, seen) = (site.nsx.objects(), site.nsx.versions());
    let (code, plan) = command.json(&["plan", "--compare"]).await;
    assert_eq!((code, &plan["isDetached"]), (Some(1), &json!(true)), "{plan:#}");
    site.check(&plan);
    assert_eq!(site.cluster.versions().await, nodes, "no Node was written");
    assert_eq!(site.service_versions().await, services, "no Service was written");
    assert_eq!((site.nsx.objects(), site.nsx.versions()), (objects, seen), "nothing was written to NSX");
    let is_of_throttle = |name: &str| name.starts_with("vsphere-ccm-logins-");
    for event in writes(&site.server) {
        let created = event.request_object["metadata"]["name"].as_str().unwrap_or_default();
        assert_eq!(event.object_ref.resource, "leases", "{event:?}");
        assert!(is_of_throttle(&event.object_ref.name) || is_of_throttle(created), "{event:?}");
    }
    site.check_logins().await;

    // The daemon writes what was announced, and nothing else in NSX.
    let pool = site.pool_of("stale");
    // A pass before vCenter has answered leaves the route as it is, so that the next pass is not awaited for minutes.
    let period = "--route-reconciliation-period=10s";
    let flags: Vec<&str> = command.flags.iter().map(String::as_str).chain([period]).collect();
    let daemon = site.cluster.start_on(command.config(), &flags);
    // A failed attempt is repeated after a minute at most.
    eventually("what was announced is written", 3 * LIMIT, async || {
        let (_, plan) = command.json(&["plan", "--compare"]).await;
        let left = ["created", "updated", "deleted", "adopted"].map(|kind| plan["counts"][kind].as_u64());
        if left == [Some(0); 4] { Ok(()) } else { Err(format!("{plan:#}\n{}", daemon.output().tail(30))) }
    })
    .await;
    let route = format!("/infra/tier-1s/t1/static-routes/{}", site.route_id(MOVED).await);
    let written: BTreeSet<String> = site.nsx.written_from(seen).into_iter().map(|version| version.path).collect();
    assert_eq!(written, BTreeSet::from([pool, route]));
}

#[tokio::test]
async fn beside_the_go_program_its_objects_are_explained_and_checked_without_a_process() {
    let site = Site::new().await;
    let command = site.command();
    let (objects, seen) = (site.nsx.objects(), site.nsx.versions());
    let key = |name: &str| format!("{}/{name}", site.cluster.pool());
    let (whole, moved, silent) = (site.cluster.name(0), site.cluster.name(MOVED), site.cluster.name(SILENT));
    let mut wrong = Vec::new();
    for (subject, name, code, parts) in [
        ("service", key("tcp"), 0, vec!["served at 192.0.2.60", "ours by its"]),
        ("service", key("ranges"), 0, vec!["served at 192.0.2.62", "remark LoadBalancerAdoptedAsIs: "]),
        ("service", key("stale"), 1, vec!["NSX does not match the Service: next, change /infra/lb-pools"]),
        ("service", key("gone"), 0, vec!["may be of another cluster", "of this or another cluster: never changed"]),
        ("route", whole.clone(), 0, vec!["1 route Ready", "owner this cluster", "NetworkUnavailable=False"]),
        ("route", moved, 1, vec!["10.244.2.0/24 pending", "not known: only the leader knows its next pass"]),
        ("node", whole, 1, vec!["not up to date: a new leader would write to it", "annotation vsphere-ccm.dev/vm="]),
        ("deletion", silent, 1, vec!["not deleted: NeverSeen", "holds proof: NeverSeen"]),
    ] {
        let explained = command.run(&["explain", subject, &name]).await;
        let words: Vec<&str> = explained.output.split_whitespace().collect();
        let text = words.join(" ");
        if explained.code != Some(code) || !parts.iter().all(|part| text.contains(part)) {
            wrong.push(format!("{parts:?}, {:?}: {}{}", explained.code, explained.output, explained.messages));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The load balancer of the deleted Service stays, because nothing proves that it is of this cluster.
    let (_, report) = command.json(&["check", "--preflight"]).await;
    let of_objects: Vec<&Value> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["id"] == "X07").collect();
    assert_eq!((of_objects.len(), &of_objects[0]["status"]), (1, &json!("warning")), "{of_objects:#?}");
    assert_eq!((site.nsx.objects(), site.nsx.versions()), (objects, seen), "nothing was written to NSX");
}
