//! Load balancers of the Go program, whether complete, half created or half deleted (`nsx.md` 4.2, 4.4 to 4.7).
//!
//! The objects are written by hand in the name of another user. Ids are random, like those of the Go program.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};
use uuid::Uuid;

use super::FakeNsx;

/// Name of the Go program, which is also the default value of the tag `owner`.
pub const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// The predefined application profile for TCP.
pub const TCP_PROFILE: &str = "/infra/lb-app-profiles/default-tcp-lb-app-profile";

/// The predefined application profile for UDP.
pub const UDP_PROFILE: &str = "/infra/lb-app-profiles/default-udp-lb-app-profile";

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoPort {
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// Port of the Service.
    pub port: u16,
    /// Node port.
    pub node_port: u16,
}

impl GoPort {
    /// Returns the value of the tag `port`, such as `TCP/80`.
    #[must_use]
    pub fn tag(&self) -> String {
        format!("{}/{}", self.protocol, self.port)
    }
}

/// A load balancer of the Go program for one Service.
#[derive(Clone, Debug)]
pub struct GoBalancer {
    /// Value of `--cluster-name`.
    pub cluster: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Name of the Service.
    pub name: String,
    /// Ports of the Service, in the order of its spec.
    pub ports: Vec<GoPort>,
    /// Names and addresses of the member nodes.
    pub nodes: Vec<(String, IpAddr)>,
    /// Address of the load balancer.
    pub address: IpAddr,
    /// Id of the IP pool.
    pub ip_pool: String,
    /// Load balancer class.
    pub class: String,
    /// Path of the load balancer service. If it is `None`, it is the first service on [`GoBalancer::tier1_path`] or
    /// with the tags of the cluster. If there is none, it is created.
    pub lb_service_path: Option<String>,
    /// Path of the tier-1 gateway of a load balancer service that is created.
    pub tier1_path: String,
    /// Size of a load balancer service that is created.
    pub size: String,
    /// Path of the application profile for TCP.
    pub tcp_profile_path: String,
    /// Path of the application profile for UDP.
    pub udp_profile_path: String,
    /// `snatDisabled` of the configuration.
    pub is_snat_disabled: bool,
    /// Value of the tag `owner`.
    pub owner: String,
    /// Configured tags.
    pub tags: BTreeMap<String, String>,
}

/// One object that the Go program creates or deletes. The number is the index of the port in [`GoBalancer::ports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GoStep {
    /// The TCP monitor of a port.
    Monitor(usize),
    /// The pool of a port.
    Pool(usize),
    /// The allocation of the address.
    Allocation,
    /// The load balancer service of the cluster.
    LbService,
    /// The virtual server of a port.
    VirtualServer(usize),
}

/// The paths of the objects of a load balancer, by step.
pub type GoPaths = BTreeMap<GoStep, String>;

impl GoBalancer {
    /// Makes the load balancer of the Service `<namespace>/<name>` with this address: port `TCP/80` to 30080, the nodes
    /// `n1` (10.0.0.1) and `n2` (10.0.0.2), pool `p1`, class `default`, and a SMALL load balancer service on the
    /// gateway `t1`, as in [`super::Model::small`].
    ///
    /// # Panics
    ///
    /// If `service` has no slash.
    #[must_use]
    pub fn new(cluster: &str, service: &str, address: IpAddr) -> Self {
        let (namespace, name) = service.split_once('/').expect("a Service is <namespace>/<name>");
        let balancer = Self {
            cluster: cluster.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ports: Vec::new(),
            nodes: Vec::new(),
            address,
            ip_pool: "p1".to_owned(),
            class: "default".to_owned(),
            lb_service_path: None,
            tier1_path: "/infra/tier-1s/t1".to_owned(),
            size: "SMALL".to_owned(),
            tcp_profile_path: TCP_PROFILE.to_owned(),
            udp_profile_path: UDP_PROFILE.to_owned(),
            is_snat_disabled: false,
            owner: PROGRAM.to_owned(),
            tags: BTreeMap::new(),
        };
        balancer.ports(&[("TCP", 80, 30_080)]).nodes(&[("n1", [10, 0, 0, 1].into()), ("n2", [10, 0, 0, 2].into())])
    }

    /// Sets the ports: protocol, port and node port.
    #[must_use]
    pub fn ports(mut self, ports: &[(&str, u16, u16)]) -> Self {
        let port = |(protocol, port, node_port): &(&str, u16, u16)| GoPort {
            protocol: (*protocol).to_owned(),
            port: *port,
            node_port: *node_port,
        };
        self.ports = ports.iter().map(port).collect();
        self
    }

    /// Sets the nodes: name and address.
    #[must_use]
    pub fn nodes(mut self, nodes: &[(&str, IpAddr)]) -> Self {
        self.nodes = nodes.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect();
        self
    }

    /// Returns the objects in the order of their creation (SEQ-01, SEQ-02).
    #[must_use]
    pub fn creation(&self) -> Vec<GoStep> {
        let mut steps = Vec::new();
        for (index, port) in self.ports.iter().enumerate() {
            steps.extend((port.protocol == "TCP").then_some(GoStep::Monitor(index)));
            steps.push(GoStep::Pool(index));
            if index == 0 {
                steps.extend([GoStep::Allocation, GoStep::LbService]);
            }
            steps.push(GoStep::VirtualServer(index));
        }
        steps
    }

    /// Returns the objects in the order of their deletion (SEQ-07). The load balancer service is deleted with the last
    /// virtual server of the cluster.
    #[must_use]
    pub fn deletion(&self) -> Vec<GoStep> {
        let mut steps = self.creation();
        steps.sort_by_key(|step| match step {
            GoStep::VirtualServer(_) => 0,
            GoStep::LbService => 1,
            GoStep::Pool(_) => 2,
            GoStep::Monitor(_) => 3,
            GoStep::Allocation => 4,
        });
        steps
    }

    /// Creates the complete load balancer.
    pub fn put(&self, fake: &FakeNsx, user: &str) -> GoPaths {
        self.put_half_made(fake, user, self.creation().len())
    }

    /// Creates the first `count` objects of [`GoBalancer::creation`].
    ///
    /// # Panics
    ///
    /// If the pool does not contain the address, or another allocation has it.
    pub fn put_half_made(&self, fake: &FakeNsx, user: &str, count: usize) -> GoPaths {
        let mut paths = GoPaths::new();
        for step in self.creation().into_iter().take(count) {
            let path = match step {
                GoStep::Monitor(index) => self.put_monitor(fake, user, &self.ports[index]),
                GoStep::Pool(index) => {
                    self.put_pool(fake, user, &self.ports[index], paths.get(&GoStep::Monitor(index)))
                }
                GoStep::Allocation => self.put_allocation(fake, user, self.address),
                GoStep::LbService => self.put_lb_service(fake, user),
                GoStep::VirtualServer(index) => {
                    let (pool, service) = (&paths[&GoStep::Pool(index)], &paths[&GoStep::LbService]);
                    self.put_virtual_server(fake, user, &self.ports[index], pool, service)
                }
            };
            paths.insert(step, path);
        }
        paths
    }

    /// Creates the complete load balancer and deletes the first `count` objects of [`GoBalancer::deletion`]. Returns
    /// the paths of the others. The load balancer service stays if it is configured, or if the cluster has another
    /// virtual server on it.
    pub fn put_half_deleted(&self, fake: &FakeNsx, user: &str, count: usize) -> GoPaths {
        let mut paths = self.put(fake, user);
        for step in self.deletion().into_iter().take(count) {
            if step == GoStep::LbService && !self.may_delete_lb_service(fake, &paths[&step]) {
                continue;
            }
            if let Some(path) = paths.remove(&step) {
                fake.delete_by_hand(user, &path);
            }
        }
        paths
    }

    /// Returns the path of the load balancer service, which is created if there is none (4.4).
    pub fn put_lb_service(&self, fake: &FakeNsx, user: &str) -> String {
        if let Some(configured) = &self.lb_service_path {
            return configured.clone();
        }
        let is_it = |service: &&Value| {
            let is_on_gateway = service["connectivity_path"] == self.tier1_path.as_str();
            service["marked_for_delete"] == false && (is_on_gateway || self.has_cluster_tags(service))
        };
        if let Some(service) = fake.objects_below("/infra/lb-services").iter().find(is_it) {
            return service["path"].as_str().unwrap_or_default().to_owned();
        }
        let cluster = &self.cluster;
        let body = json!({
            "display_name": format!("cluster:{cluster}"),
            "description": format!("virtual server pool for cluster {cluster} created by {PROGRAM}"),
            "tags": self.tags_with(&[]),
            "size": self.size,
            "connectivity_path": self.tier1_path,
            "enabled": true,
        });
        put(fake, user, "lb-services", body)
    }

    /// Creates an allocation with this address, in addition to an existing one.
    ///
    /// # Panics
    ///
    /// If the pool does not contain the address, or another allocation has it.
    pub fn put_allocation(&self, fake: &FakeNsx, user: &str, address: IpAddr) -> String {
        let path = format!("/infra/ip-pools/{}/ip-allocations/{}", self.ip_pool, Uuid::new_v4());
        let tags = self.tags_with(&[("service", self.service())]);
        fake.put_allocation_by_hand(user, &path, json!({"tags": tags}), address);
        path
    }

    /// Creates the TCP monitor of a port.
    pub fn put_monitor(&self, fake: &FakeNsx, user: &str, port: &GoPort) -> String {
        let (cluster, service, number) = (&self.cluster, self.service(), port.node_port);
        let description =
            format!("tcp monitor for cluster {cluster}, service {service}, port {number} created by {PROGRAM}");
        let body = json!({
            "resource_type": "LBTcpMonitorProfile",
            "display_name": format!("cluster:{cluster}:{service}:{number}"),
            "description": description,
            "tags": self.tags_with(&[("service", service), ("port", port.tag())]),
            "monitor_port": number,
        });
        put(fake, user, "lb-monitor-profiles", body)
    }

    /// Creates the pool of a port, with the path of its monitor if it has one.
    pub fn put_pool(&self, fake: &FakeNsx, user: &str, port: &GoPort, monitor: Option<&String>) -> String {
        let (cluster, service) = (&self.cluster, self.service());
        let members = self.nodes.iter().map(|(name, address)| {
            json!({"admin_state": "ENABLED", "display_name": format!("{cluster}:{name}"), "ip_address": address})
        });
        let mut body = json!({
            "display_name": format!("cluster:{cluster}:{service}"),
            "description": format!("pool for cluster {cluster}, service {service} created by {PROGRAM}"),
            "tags": self.tags_with(&[("service", service), ("port", port.tag())]),
            "snat_translation": {"type": if self.is_snat_disabled { "LBSnatDisabled" } else { "LBSnatAutoMap" }},
            "members": members.collect::<Vec<_>>(),
        });
        if let Some(monitor) = monitor {
            body["active_monitor_paths"] = json!([monitor]);
        }
        put(fake, user, "lb-pools", body)
    }

    /// Creates the virtual server of a port.
    pub fn put_virtual_server(
        &self,
        fake: &FakeNsx,
        user: &str,
        port: &GoPort,
        pool: &str,
        lb_service: &str,
    ) -> String {
        let (cluster, service) = (&self.cluster, self.service());
        let tags = [
            ("service", service.clone()),
            ("port", port.tag()),
            ("ippoolid", self.ip_pool.clone()),
            ("lbclass", self.class.clone()),
        ];
        let profile = if port.protocol == "UDP" { &self.udp_profile_path } else { &self.tcp_profile_path };
        let body = json!({
            "display_name": format!("cluster:{cluster}:{service}"),
            "description": format!("virtual server for cluster {cluster}, service {service} created by {PROGRAM}"),
            "tags": self.tags_with(&tags),
            "ip_address": self.address,
            "ports": [port.port.to_string()],
            "default_pool_member_ports": [port.node_port.to_string()],
            "enabled": true,
            "application_profile_path": profile,
            "pool_path": pool,
            "lb_service_path": lb_service,
        });
        put(fake, user, "lb-virtual-servers", body)
    }

    fn service(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the tags of an object, sorted by scope. Tags of the program replace configured tags, except for `owner`.
    fn tags_with(&self, more: &[(&str, String)]) -> Value {
        let mut tags = self.tags.clone();
        tags.entry("owner".to_owned()).or_insert_with(|| self.owner.clone());
        tags.insert("cluster".to_owned(), self.cluster.clone());
        tags.extend(more.iter().map(|(scope, tag)| ((*scope).to_owned(), tag.clone())));
        tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect()
    }

    fn has_cluster_tags(&self, object: &Value) -> bool {
        let owner = self.tags.get("owner").unwrap_or(&self.owner);
        let has = |scope: &str, wanted: &str| first_tag(object, scope) == Some(wanted);
        has("owner", owner) && has("cluster", &self.cluster)
    }

    /// Returns true if the program manages this service, and the cluster has no virtual server left.
    fn may_delete_lb_service(&self, fake: &FakeNsx, lb_service: &str) -> bool {
        let servers = fake.objects_below("/infra/lb-virtual-servers");
        let is_in_use = |server: &Value| {
            let is_on_it = server["lb_service_path"] == lb_service || self.has_cluster_tags(server);
            server["marked_for_delete"] == false && is_on_it
        };
        self.lb_service_path.is_none() && !servers.iter().any(is_in_use)
    }
}

pub(super) fn first_tag<'a>(object: &'a Value, scope: &str) -> Option<&'a str> {
    object["tags"].as_array()?.iter().find(|tag| tag["scope"] == scope)?["tag"].as_str()
}

fn put(fake: &FakeNsx, user: &str, collection: &str, body: Value) -> String {
    let path = format!("/infra/{collection}/{}", Uuid::new_v4());
    fake.put_by_hand(user, &path, body);
    path
}
