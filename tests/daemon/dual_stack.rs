//! A Service with two address families: the daemon's binary between a real API server and a fake NSX.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Event, Node, NodeAddress, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use support::fake_nsx::{FakeNsx, Model};
use support::{ApiServer, Daemon, FakeVcenter, eventually};

use crate::cluster::{Cluster, LIMIT};

const ACCOUNT: (&str, &str) = ("replica", "Correct-Horse-1");
const NAME: &str = "dual";
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

/// A cluster with one Node with addresses of both families, and an NSX with a pool of each family.
struct Site {
    services: Api<Service>,
    nodes: Api<Node>,
    events: Api<Event>,
    nsx: FakeNsx,
    daemon: Daemon,
    cluster: Cluster,
    _vcenter: FakeVcenter,
    _server: ApiServer,
}

impl Site {
    async fn start() -> Self {
        let server = ApiServer::dual_stack().await;
        let cluster = Cluster::on(&server).await;
        let vcenter = FakeVcenter::start(cluster.model(0..1)).await;
        vcenter.change_vm(&cluster.name(0), |vm| vm.ips(&["10.0.0.1", "fd00::1"]));
        let model = Model::small().user(ACCOUNT.0, ACCOUNT.1);
        let range = [("2001:db8::5", "2001:db8::68")];
        let nsx = FakeNsx::start(model.ip_pool("p6", "pool6", "2001:db8::/64", &range)).await;
        let ca_file = cluster.folder().join("nsx-ca.pem");
        std::fs::write(&ca_file, nsx.ca_pem()).unwrap();
        let nodes = Api::<Node>::all(cluster.client.clone());
        nodes.create(&PostParams::default(), &node(&cluster, &["10.0.0.1", "fd00::1"])).await.unwrap();
        let (host, (user, password), ca) = (nsx.address(), ACCOUNT, ca_file.display());
        let sections = format!(
            "[NSXT]\nhost = {host}\nuser = {user}\npassword = {password}\nca-file = {ca}\n\
             [LoadBalancer]\nip-pool-id = p1\nsize = SMALL\ntier1-gateway-path = /infra/tier-1s/t1\n\
             tcp-app-profile-path = /infra/lb-app-profiles/default-tcp-lb-app-profile\n\
             udp-app-profile-path = /infra/lb-app-profiles/default-udp-lb-app-profile\n"
        );
        let vcenter_section = vcenter.ini_section("vc-1", "dc-1", cluster.folder());
        let config = format!("{}\n{sections}", Cluster::zoned(&[vcenter_section]));
        let name = format!("--cluster-name={}", cluster.pool());
        let daemon = cluster.start(&config, &["--controllers=service", "--nsx-ipv6-pool=default=p6", &name]);
        let (services, events) = (Api::default_namespaced(cluster.client.clone()), Api::all(cluster.client.clone()));
        Self { services, nodes, events, nsx, daemon, cluster, _vcenter: vcenter, _server: server }
    }

    /// Waits until the Service reports addresses of these families, in this order.
    async fn wait_for_families(&self, expected: &[&str]) -> Vec<IpAddr> {
        let what = format!("the Service has addresses of {expected:?}");
        let mut last = Vec::new();
        eventually(&what, LIMIT, async || {
            last = addresses(&self.services.get(NAME).await.unwrap());
            let families: Vec<&str> = last.iter().map(|one| FAMILIES[usize::from(one.is_ipv6())]).collect();
            if families == expected { Ok(()) } else { Err(format!("{last:?}\n{}", self.daemon.output().tail(40))) }
        })
        .await;
        last
    }

    /// Returns the numbers of virtual servers and of allocations, each in total and for the second family.
    fn counted(&self) -> [(usize, usize); 2] {
        ["/lb-virtual-servers/", "/ip-allocations/"].map(|part| {
            let objects = self.nsx.objects();
            let is_there = |object: &&Value| {
                object["path"].as_str().is_some_and(|path| path.contains(part)) && object["marked_for_delete"] != true
            };
            let of_second =
                |object: &&Value| object["tags"].as_array().unwrap().iter().any(|tag| tag["scope"] == "ipfamily");
            let all: Vec<&Value> = objects.iter().filter(is_there).collect();
            (all.len(), all.into_iter().filter(of_second).count())
        })
    }

    async fn wait_for_counts(&self, expected: [(usize, usize); 2]) {
        eventually(&format!("NSX has {expected:?}"), LIMIT, async || match self.counted() {
            found if found == expected => Ok(()),
            found => Err(format!("{found:?}\n{}", self.daemon.output().tail(40))),
        })
        .await;
    }

    async fn patch(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.services.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Returns a Node with these internal addresses.
fn node(cluster: &Cluster, addresses: &[&str]) -> Node {
    let mut node = cluster.kubelet(0).ready().build();
    let internal = |address: &&str| NodeAddress { type_: "InternalIP".to_owned(), address: (*address).to_owned() };
    node.status.get_or_insert_default().addresses = Some(addresses.iter().map(internal).collect());
    node
}

fn addresses(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
    ingress.iter().map(|ingress| ingress.ip.as_deref().unwrap().parse().unwrap()).collect()
}

#[tokio::test]
async fn a_second_family_comes_goes_and_leaves_nothing() {
    let mut site = Site::start().await;
    let service = json!({
        "metadata": {"name": NAME},
        "spec": {
            "type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack", "ipFamilies": FAMILIES,
            "ports": [{"name": "http", "port": 80}],
        },
    });
    site.services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let both = site.wait_for_families(&FAMILIES).await;
    site.wait_for_counts([(2, 1), (2, 1)]).await;

    // The Node loses its address of the second family.
    let patch = node(&site.cluster, &["10.0.0.1"]).status.unwrap().addresses;
    let patch = Patch::Merge(json!({"status": {"addresses": patch}}));
    site.nodes.patch_status(&site.cluster.name(0), &PatchParams::default(), &patch).await.unwrap();
    eventually("an Event says that no Node has an address of the family", LIMIT, async || {
        let events = site.events.list(&ListParams::default()).await.unwrap().items;
        let is_it = |event: &Event| {
            event.reason.as_deref() == Some("UnAvailableLoadBalancer")
                && event.message.as_deref().is_some_and(|message| message.contains("IPv6"))
        };
        if events.iter().any(is_it) { Ok(()) } else { Err(site.daemon.output().tail(40)) }
    })
    .await;

    site.patch(json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"], "clusterIPs": null})).await;
    assert_eq!(site.wait_for_families(&["IPv4"]).await, both[..1]);
    site.wait_for_counts([(1, 0), (1, 0)]).await;

    site.services.delete(NAME, &DeleteParams::default()).await.unwrap();
    site.wait_for_counts([(0, 0), (0, 0)]).await;
    eventually("the Service is gone", LIMIT, async || match site.services.get_opt(NAME).await.unwrap() {
        None => Ok(()),
        Some(left) => Err(format!("{:?}\n{}", left.metadata.finalizers, site.daemon.output().tail(40))),
    })
    .await;
    let left: Vec<Value> =
        site.nsx.objects().into_iter().filter(|object| object["_create_user"] == ACCOUNT.0).collect();
    assert!(left.iter().all(|object| object["marked_for_delete"] == true), "{left:#?}");
    assert_eq!(site.daemon.stop(LIMIT).await.code(), Some(0));
}
