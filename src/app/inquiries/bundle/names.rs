//! The names that a bundle may contain, which `--anonymise` replaces: those of existing objects, of the configuration,
//! and of former objects that decisions, the Lease of deletions and the log still name.

use super::MAX_LOG;
use crate::app::inquiries::Inquiries;
use crate::app::inquiries::protocol::Answer;
use crate::app::reports::bundle::{KnownName, NameKind};
use crate::cloud::node::addresses;
use crate::controllers::decisions::{Decision, MAX_DECISIONS, SubjectKind};
use crate::providers::vsphere::config::{Class, Config, IpPool, LoadBalancerConfig, Profile};
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeSet;

/// Maximum number of names. A cluster of 5,000 Nodes has about 20,000.
const MAX_NAMES: usize = 100_000;

/// Maximum length of a name in the log, in bytes. Names of Kubernetes have at most 253 characters; a Service has two.
const MAX_NAME: usize = 512;

/// Part of the key of a label whose value is the name of a zone or of an object of vCenter.
const TOPOLOGY: &str = "topology";

/// The keys of the log whose values are names.
const LOGGED: [(&str, NameKind); 5] = [
    ("node", NameKind::Node),
    ("service", NameKind::Service),
    ("vcenter", NameKind::Host),
    ("nsx", NameKind::Host),
    ("server", NameKind::Host),
];

/// Returns the names, each once with its first kind: a VM usually has the name of its Node.
pub(in crate::app::inquiries) fn answer(process: &Inquiries) -> Answer {
    let mut names = NameList::default();
    process.nodes.keys().iter().for_each(|name| names.add(NameKind::Node, name));
    add_vms(process, &mut names);
    add_servers(process, &mut names);
    process.vsphere.users().iter().for_each(|name| names.add(NameKind::User, name));
    let services = process.services.as_ref().map(|services| services.keys()).unwrap_or_default();
    services.iter().for_each(|name| names.add(NameKind::Service, name));
    process.nodes.list().for_each(|node| names.add_places(&node));
    names.add_configuration(&process.vsphere.cloud_config().config);
    // After the existing objects, whose kinds are certain.
    process.decisions.last(MAX_DECISIONS, |_| true).iter().for_each(|decision| names.add_subject(decision));
    let past = process.terms.deletion_pauses.as_ref().map(|pauses| pauses.past_deletions()).unwrap_or_default();
    for deletion in &past {
        names.add(NameKind::Node, &deletion.node);
        names.add(NameKind::Host, &deletion.replica);
    }
    names.add_logged(&process.log.text(MAX_LOG));
    Answer::BundleNames(names.names)
}

#[derive(Default)]
struct NameList {
    names: Vec<KnownName>,
    known: BTreeSet<String>,
}

impl NameList {
    fn add(&mut self, kind: NameKind, name: &str) {
        if !name.is_empty() && self.names.len() < MAX_NAMES && self.known.insert(name.to_owned()) {
            self.names.push(KnownName { kind, name: name.to_owned() });
        }
    }

    /// Adds a name of a host with port, and a holder of a Lease, which is a name of a host with a random part.
    fn add_host(&mut self, name: &str, separator: char) {
        let host = name.rsplit_once(separator).map_or(name, |(host, _)| host);
        self.add(NameKind::Host, host.trim_matches(['[', ']']));
    }

    /// Adds the last name of a path.
    fn add_path(&mut self, path: &str) {
        self.add(NameKind::Object, path.rsplit('/').next().unwrap_or_default());
    }

    /// Adds the zone of a Node, the objects of vCenter that its labels name, and its names as a host.
    fn add_places(&mut self, node: &Node) {
        let labels = node.metadata.labels.iter().flatten();
        labels.filter(|(key, _)| key.contains(TOPOLOGY)).for_each(|(_, name)| self.add(NameKind::Object, name));
        addresses::of(node).iter().for_each(|address| self.add(NameKind::Host, &address.address));
    }

    fn add_configuration(&mut self, config: &Config) {
        for vcenter in &config.vcenters {
            self.add(NameKind::Host, &vcenter.server);
            self.add(NameKind::Object, &vcenter.key);
            for datacenter in &vcenter.datacenters {
                datacenter.split('/').for_each(|name| self.add(NameKind::Object, name));
            }
        }
        if let Some(labels) = &config.labels {
            self.add(NameKind::Object, &labels.zone);
            self.add(NameKind::Object, &labels.region);
        }
        if let Some(nsx) = config.nsx.used() {
            self.add(NameKind::Host, &nsx.host);
        }
        if let Some(routes) = config.routes.used() {
            self.add_path(&routes.router);
        }
        if let Some(balancers) = config.load_balancers.used() {
            self.add_load_balancers(balancers);
        }
    }

    fn add_load_balancers(&mut self, balancers: &LoadBalancerConfig) {
        let LoadBalancerConfig { lb_service_id, tier1, tags, common, classes, ipv6_pools, .. } = balancers;
        lb_service_id.iter().chain(tier1).chain(ipv6_pools.values()).for_each(|path| self.add_path(path));
        tags.values().chain(classes.keys()).for_each(|name| self.add(NameKind::Object, name));
        for Class { pool, tcp, udp } in classes.values().chain([common]) {
            if let Some(IpPool::Id(name) | IpPool::Name(name)) = pool {
                self.add(NameKind::Object, name);
            }
            for profile in [tcp, udp].into_iter().flatten() {
                match profile {
                    Profile::Path(path) => self.add_path(path),
                    Profile::Name(name) => self.add(NameKind::Object, name),
                }
            }
        }
    }

    /// Adds the object of a decision, which may be deleted by now.
    fn add_subject(&mut self, decision: &Decision) {
        match decision.kind {
            SubjectKind::Service => self.add(NameKind::Service, &decision.name),
            SubjectKind::Node | SubjectKind::Deletion => self.add(NameKind::Node, &decision.name),
            // The network of a route is an address.
            SubjectKind::Route if decision.name.contains('/') => {}
            SubjectKind::Route => self.add(NameKind::Node, &decision.name),
        }
    }

    /// Adds the names in a log, which outlasts the objects.
    fn add_logged(&mut self, log: &str) {
        for (key, kind) in LOGGED {
            // The two forms of the log.
            for before in [format!(" {key}=\""), format!("\"{key}\":\"")] {
                for rest in log.split(&before).skip(1) {
                    let name = rest.split(['"', '\n']).next().unwrap_or_default();
                    match kind {
                        _ if name.len() > MAX_NAME => {}
                        NameKind::Host => self.add_host(name, ':'),
                        kind => self.add(kind, name),
                    }
                }
            }
        }
    }
}

fn add_vms(process: &Inquiries, names: &mut NameList) {
    let inventories = process.vsphere.provider().map(|provider| provider.inventories()).unwrap_or_default();
    for vcenter in inventories {
        let snapshot = vcenter.snapshot();
        for (_, vm) in snapshot.vms.iter() {
            names.add(NameKind::Vm, &vm.name);
            names.add(NameKind::Host, &vm.host_name);
            vm.nics.iter().filter_map(|nic| nic.network.as_deref()).for_each(|name| names.add(NameKind::Object, name));
        }
        for (object, entity) in snapshot.entities.iter() {
            let kind = if object.kind() == "HostSystem" { NameKind::Host } else { NameKind::Object };
            names.add(kind, &entity.name);
        }
    }
}

fn add_servers(process: &Inquiries, names: &mut NameList) {
    names.add(NameKind::Host, &process.host);
    for report in process.vsphere.credential_reports() {
        names.add_host(&report.server, ':');
    }
    let holder = process.lease.as_ref().and_then(|lease| lease.status().holder);
    if let Some(holder) = holder {
        names.add_host(&holder, '_');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_listed_once_with_its_first_kind() {
        let mut names = NameList::default();
        names.add(NameKind::Node, "worker-1");
        names.add(NameKind::Vm, "worker-1");
        names.add(NameKind::Vm, "");
        for (server, separator) in [("vc.example.com:443", ':'), ("[fd00::1]:443", ':'), ("cp-1_5a0f", '_')] {
            names.add_host(server, separator);
        }
        let listed: Vec<_> = names.names.iter().map(|known| (known.kind, known.name.as_str())).collect();
        let expected = [
            (NameKind::Node, "worker-1"),
            (NameKind::Host, "vc.example.com"),
            (NameKind::Host, "fd00::1"),
            (NameKind::Host, "cp-1"),
        ];
        assert_eq!(listed, expected);
    }

    fn listed(names: &NameList) -> Vec<&str> {
        names.names.iter().map(|known| known.name.as_str()).collect()
    }

    #[test]
    fn former_objects_are_found_in_decisions_and_in_both_forms_of_the_log() {
        let mut names = NameList::default();
        for (kind, name) in [
            (SubjectKind::Deletion, "worker-2"),
            (SubjectKind::Service, "shop/web"),
            (SubjectKind::Route, "10.244.1.0/24"),
            (SubjectKind::Route, "worker-3"),
        ] {
            names.add_subject(&Decision {
                time: "2026-11-20T02:10:04Z".parse().unwrap(),
                term: 1,
                kind,
                name: name.into(),
                word: "Settled",
                text: "".into(),
            });
        }
        names.add_logged(concat!(
            "I1124 03:12:40.000001 1 node.rs:222] \"node updated\" node=\"worker-4\" vcenter=\"vc.example.com:443\"\n",
            "{\"ts\":1,\"msg\":\"node deleted\",\"node\":\"worker-5\",\"uid\":\"u\"}\n",
            "I1124 03:12:40.000001 1 node.rs:222] \"cut\" node=\"worker-6\n",
        ));
        let expected = ["worker-2", "shop/web", "worker-3", "worker-4", "worker-6", "worker-5", "vc.example.com"];
        assert_eq!(listed(&names), expected);
    }

    #[test]
    fn the_names_of_zones_hosts_and_nsx_are_listed() {
        let mut names = NameList::default();
        let node = serde_json::json!({
            "metadata": {"name": "a", "labels": {
                "topology.kubernetes.io/zone": "berlin-1",
                "topology.vsphere-ccm.dev/esxi-host": "esx-7",
                "node.kubernetes.io/instance-type": "vsphere-vm.cpu-2",
            }},
            "status": {"addresses": [{"type": "Hostname", "address": "a.corp.example.com"}]},
        });
        names.add_places(&serde_json::from_value(node).unwrap());
        let text = "[Global]\nserver = vc\nuser = u\npassword = p\ndatacenters = /Europe/dc-7\n\
                    [Labels]\nzone = k8s-zone\nregion = k8s-region\n\
                    [NSXT]\nhost = nsx.example.com\nuser = y\npassword = z\n\
                    [LoadBalancer]\nip-pool-name = public\nsize = SMALL\ntcp-app-profile-name = fast\n\
                    udp-app-profile-path = /infra/lb-app-profiles/slow-7\ntier1-gateway-path = /infra/tier-1s/edge-7\n";
        let config = crate::providers::vsphere::config::parse(text, "vsphere.conf").unwrap().config;
        names.add_configuration(&config);
        let found: BTreeSet<&str> = listed(&names).into_iter().collect();
        let expected = BTreeSet::from([
            "berlin-1",
            "esx-7",
            "a.corp.example.com",
            "vc",
            "Europe",
            "dc-7",
            "k8s-zone",
            "k8s-region",
            "nsx.example.com",
            "public",
            "fast",
            "slow-7",
            "edge-7",
        ]);
        assert_eq!(expected.difference(&found).collect::<Vec<_>>(), Vec::<&&str>::new(), "{found:?}");
        assert!(!found.contains("vsphere-vm.cpu-2"));
    }
}
