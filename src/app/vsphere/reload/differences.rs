//! Pure: describes the differences of two cloud configs for the log. Omits values, since some are secrets.

use crate::app::settings::vsphere::CloudConfig;
use crate::base::addresses::host_and_port;
use crate::providers::vsphere::config::{OptionalSection, VcenterConfig};

/// Returns one phrase for each difference; empty if both configurations mean the same.
pub(super) fn differences(before: &CloudConfig, after: &CloudConfig) -> Vec<String> {
    let find = |all: &CloudConfig, key: &str| all.config.vcenters.iter().find(|vcenter| vcenter.key == key).cloned();
    let mut found = Vec::new();
    for vcenter in &after.config.vcenters {
        match find(before, &vcenter.key) {
            None => found.push(format!("vCenter {} added", shown(vcenter))),
            Some(known) => {
                let trust = (before.tls.get(&vcenter.key), after.tls.get(&vcenter.key));
                let changed = changed(&known, vcenter, trust.0 != trust.1);
                if !changed.is_empty() {
                    found.push(format!("vCenter {} changed: {}", shown(vcenter), changed.join(", ")));
                }
            }
        }
    }
    let removed = before.config.vcenters.iter().filter(|vcenter| find(after, &vcenter.key).is_none());
    found.extend(removed.map(|vcenter| format!("vCenter {} removed", shown(vcenter))));
    if before.config.addresses != after.config.addresses {
        found.push("the rules for addresses changed".to_owned());
    }
    if before.config.labels != after.config.labels {
        found.push("the categories of zone and region changed".to_owned());
    }
    found.extend(nsx(before, after));
    let (old, new) = (&before.config, &after.config);
    found.extend(part("load balancers", &old.load_balancers, &new.load_balancers));
    found.extend(part("routes", &old.routes, &new.routes));
    found
}

fn nsx(before: &CloudConfig, after: &CloudConfig) -> Option<String> {
    let (old, new) = (&before.config.nsx, &after.config.nsx);
    let (OptionalSection::Used(was), OptionalSection::Used(is)) = (old, new) else {
        return part("the connection to NSX", old, new);
    };
    let parts = [
        ((&was.host, was.port, &was.path_prefix) != (&is.host, is.port, &is.path_prefix), "server"),
        (before.nsx_tls != after.nsx_tls, "trust or client certificate"),
        (was.login != is.login || was.remote_auth != is.remote_auth, "credentials"),
    ];
    let changed: Vec<_> = parts.into_iter().filter(|(is_changed, _)| *is_changed).map(|(_, what)| what).collect();
    (!changed.is_empty()).then(|| format!("the connection to NSX changed: {}", changed.join(", ")))
}

/// Describes the change of an optional part; `None` if the part is unchanged.
fn part<T: PartialEq>(name: &str, before: &OptionalSection<T>, after: &OptionalSection<T>) -> Option<String> {
    let how = match (before, after) {
        _ if before == after => return None,
        (OptionalSection::Used(_), OptionalSection::Used(_)) => "changed",
        (_, OptionalSection::Used(_)) => "added",
        // `after` has no refused part, since a reload with a refused part is rejected.
        (_, OptionalSection::Absent | OptionalSection::Refused) => "removed",
    };
    Some(format!("{name} {how}"))
}

fn shown(vcenter: &VcenterConfig) -> String {
    let VcenterConfig { key, server, port, .. } = vcenter;
    format!("{key:?} ({})", host_and_port(server, *port))
}

fn changed(before: &VcenterConfig, after: &VcenterConfig, is_trust_changed: bool) -> Vec<&'static str> {
    let is_same_credentials =
        before.credentials == after.credentials && before.fallback_credentials == after.fallback_credentials;
    let parts = [
        (before.server != after.server || before.port != after.port, "server"),
        (is_trust_changed, "trust"),
        (before.datacenters != after.datacenters, "datacenters"),
        (before.ip_families != after.ip_families, "IP families"),
        (!is_same_credentials, "credentials"),
    ];
    parts.into_iter().filter(|(is_changed, _)| *is_changed).map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::vsphere::reload::tests::cloud_config;

    const GLOBAL: &str = "[Global]\nuser = u\npassword = hunter2\n";

    #[test]
    fn each_difference_is_told_without_values() {
        let cases: &[(&str, &str, &[&str])] = &[
            ("[VirtualCenter \"a\"]", "# a comment\n[VirtualCenter \"a\"]\nport = 443", &[]),
            (
                "[VirtualCenter \"a\"]",
                "[VirtualCenter \"b\"]",
                &["vCenter \"b\" (b:443) added", "vCenter \"a\" (a:443) removed"],
            ),
            (
                "[VirtualCenter \"a\"]",
                "[VirtualCenter \"a\"]\n[VirtualCenter \"c\"]\nserver = fd00::1",
                &["vCenter \"c\" ([fd00::1]:443) added"],
            ),
            (
                "[VirtualCenter \"a\"]",
                "[VirtualCenter \"a\"]\nport = 444\ndatacenters = x\nip-family = ipv6\nuser = v\npassword = w",
                &["vCenter \"a\" (a:444) changed: server, datacenters, IP families, credentials"],
            ),
            (
                "[VirtualCenter \"a\"]\nuser = v\npassword = hunter3",
                "[VirtualCenter \"a\"]\nuser = v\npassword = hunter4\ninsecure-flag = true",
                &["vCenter \"a\" (a:443) changed: trust, credentials"],
            ),
            (
                "[VirtualCenter \"a\"]\n[Nodes]\ninternal-network-subnet-cidr = 10.0.0.0/8",
                "[VirtualCenter \"a\"]\n[Labels]\nzone = z\nregion = r",
                &["the rules for addresses changed", "the categories of zone and region changed"],
            ),
            (
                "[VirtualCenter \"a\"]",
                "[VirtualCenter \"a\"]\n[NSXT]\nhost = n\nuser = u\npassword = hunter3\n[Route]\nrouter-path = /infra/tier-1s/a",
                &["the connection to NSX added", "routes added"],
            ),
            (
                "[VirtualCenter \"a\"]\n[NSXT]\nhost = n\nuser = u\npassword = hunter3\n[Route]\nrouter-path = /infra/tier-1s/a",
                "[VirtualCenter \"a\"]\n[NSXT]\nhost = n\nuser = u\npassword = hunter4\n[Route]\nrouter-path = /infra/tier-1s/b",
                &["the connection to NSX changed: credentials", "routes changed"],
            ),
            (
                "[VirtualCenter \"a\"]\n[NSXT]\nhost = n\nvmc-access-token = hunter3\nvmc-auth-host = h",
                "[VirtualCenter \"a\"]\n[NSXT]\nhost = n:1\nvmc-access-token = hunter4\nvmc-auth-host = h\ninsecure-flag = true",
                &["the connection to NSX changed: server, trust or client certificate, credentials"],
            ),
            (
                "[VirtualCenter \"a\"]\n[NSXT]\nhost = n\nuser = u\npassword = p\n[Route]\nrouter-path = /infra/tier-1s/a",
                "[VirtualCenter \"a\"]",
                &["the connection to NSX removed", "routes removed"],
            ),
        ];
        for (before, after, expected) in cases {
            let read = |text: &str| cloud_config(&format!("{GLOBAL}{text}\n"));
            let changes = differences(&read(before), &read(after));
            assert_eq!(changes, *expected, "{after}");
            assert!(!changes.concat().contains("hunter"));
        }
    }
}
