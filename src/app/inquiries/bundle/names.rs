//! The names that a bundle may contain, which `--anonymise` replaces.

use crate::app::inquiries::Inquiries;
use crate::app::inquiries::protocol::Answer;
use crate::app::reports::bundle::{KnownName, NameKind};
use std::collections::BTreeSet;

/// Maximum number of names. A cluster of 5,000 Nodes has about 20,000.
const MAX_NAMES: usize = 100_000;

/// Returns the names, each once with its first kind: a VM usually has the name of its Node.
pub(in crate::app::inquiries) fn answer(process: &Inquiries) -> Answer {
    let mut names = NameList::default();
    process.nodes.keys().iter().for_each(|name| names.add(NameKind::Node, name));
    add_vms(process, &mut names);
    add_servers(process, &mut names);
    process.vsphere.users().iter().for_each(|name| names.add(NameKind::User, name));
    let services = process.services.as_ref().map(|services| services.keys()).unwrap_or_default();
    services.iter().for_each(|name| names.add(NameKind::Service, name));
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
}

fn add_vms(process: &Inquiries, names: &mut NameList) {
    let inventories = process.vsphere.provider().map(|provider| provider.inventories()).unwrap_or_default();
    for vcenter in inventories {
        let snapshot = vcenter.snapshot();
        for (_, vm) in snapshot.vms.iter() {
            names.add(NameKind::Vm, &vm.name);
            names.add(NameKind::Host, &vm.host_name);
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
    for vcenter in &process.vsphere.cloud_config().config.vcenters {
        names.add(NameKind::Host, &vcenter.server);
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
}
