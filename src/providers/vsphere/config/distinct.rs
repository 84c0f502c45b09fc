//! Pure: finds the entries that are the same vCenter.
//!
//! The Go program makes one connection per entry, even if `Global.server` repeats the server of another entry
//! (`validateConfig` of `config_ini_legacy.go` and `config_yaml.go`).

use super::{Credentials, VcenterConfig};
use crate::base::addresses::parse_ip;

/// Relation of an entry to earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryRelation {
    /// No earlier entry has the same server.
    First,
    /// Same vCenter as the entry with this index, to which this entry adds its datacenters.
    Same(usize),
    /// Same server as the entry with this index, but a different value of this setting.
    Apart(usize, &'static str),
}

pub(super) fn entry_relations(vcenters: &[VcenterConfig]) -> Vec<EntryRelation> {
    let mut found: Vec<EntryRelation> = Vec::new();
    for (index, vcenter) in vcenters.iter().enumerate() {
        let earlier = || vcenters.iter().take(index).zip(&found).enumerate();
        let heads = earlier().filter(|(_, (_, kinship))| !matches!(kinship, EntryRelation::Same(_)));
        let related: Vec<_> = heads
            .filter(|(_, (head, _))| same_address(head, vcenter))
            .map(|(index, (head, _))| (index, difference(head, vcenter)))
            .collect();
        let same = related.iter().find(|(_, difference)| difference.is_none());
        found.push(match (same, related.first()) {
            (Some((head, _)), _) => EntryRelation::Same(*head),
            (None, Some((head, Some(difference)))) => EntryRelation::Apart(*head, difference),
            (None, _) => EntryRelation::First,
        });
    }
    found
}

/// Merges entries of the same vCenter and returns the distinct vCenters in their order. A merged vCenter has the
/// settings of its first entry and the datacenters of all its entries; if any of its entries names no datacenter, all
/// datacenters are searched. So each vCenter has one session, one set of metrics and one login budget.
///
/// Entries are the same vCenter if server and port, credentials, trust and IP families are equal. Entries that differ
/// in one of these settings stay separate: accounts may see different VMs, and a Node's addresses follow the IP
/// families of its entry. Parsing warns of merged entries, and of separate entries with the same server.
pub fn distinct_vcenters(vcenters: &[VcenterConfig]) -> Vec<VcenterConfig> {
    let kinships = entry_relations(vcenters);
    let heads =
        vcenters.iter().enumerate().zip(&kinships).filter(|(_, kinship)| !matches!(kinship, EntryRelation::Same(_)));
    heads
        .map(|((index, head), _)| {
            let others = vcenters.iter().zip(&kinships).filter(|(_, kinship)| **kinship == EntryRelation::Same(index));
            others.fold(head.clone(), |known, (other, _)| with_datacenters_of(known, other))
        })
        .collect()
}

fn with_datacenters_of(mut known: VcenterConfig, other: &VcenterConfig) -> VcenterConfig {
    if known.datacenters.is_empty() || other.datacenters.is_empty() {
        known.datacenters.clear();
    } else {
        let new: Vec<_> = other.datacenters.iter().filter(|name| !known.datacenters.contains(name)).cloned().collect();
        known.datacenters.extend(new);
    }
    known
}

fn same_address(one: &VcenterConfig, other: &VcenterConfig) -> bool {
    let address = |text: &str| parse_ip(text.trim_start_matches('[').trim_end_matches(']'));
    let is_same_host = match (address(&one.server), address(&other.server)) {
        (Some(one), Some(other)) => one == other,
        _ => one.server.eq_ignore_ascii_case(&other.server),
    };
    is_same_host && one.port == other.port
}

/// Returns the difference between two entries of one server that prevents a shared session; `None` if the entries can
/// share a session.
fn difference(one: &VcenterConfig, other: &VcenterConfig) -> Option<&'static str> {
    let is_stored = |source: &Credentials| !matches!(source, Credentials::Inline { .. });
    // In a Secret or directory, the key is the server exactly as written.
    let is_server_the_key = is_stored(&one.credentials) || one.fallback_credentials.as_ref().is_some_and(is_stored);
    if one.credentials != other.credentials
        || one.fallback_credentials != other.fallback_credentials
        || is_server_the_key && one.server != other.server
    {
        Some("credentials")
    } else if one.insecure != other.insecure || one.ca_files != other.ca_files || one.thumbprints != other.thumbprints {
        Some("trust")
    } else if one.ip_families != other.ip_families {
        Some("IP families")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    /// Returns key and datacenters of each distinct vCenter.
    fn distinct(ini: &str) -> Vec<String> {
        let config = match parse(ini, "f") {
            Ok(parsed) => parsed.config,
            Err(errors) => panic!("{errors}"),
        };
        let shown = |vcenter: &VcenterConfig| format!("{}: {}", vcenter.key, vcenter.datacenters.join(","));
        distinct_vcenters(&config.vcenters).iter().map(shown).collect()
    }

    #[test]
    fn entries_of_one_server_are_one_vcenter_unless_they_differ_in_what_counts() {
        let base = "[Global]\nuser=u\npassword=p\n";
        let two =
            |one: &str, other: &str| format!("{base}[VirtualCenter \"a\"]\n{one}\n[VirtualCenter \"b\"]\n{other}\n");
        let thumbprint = "AA:".repeat(19) + "AA";
        let secret = "secret-name=n\nsecret-namespace=ns";
        let rows: Vec<(&str, String, &[&str])> = vec![
            ("C4, W13", format!("{base}server=s\n[VirtualCenter \"t\"]\nserver=s\n"), &["t: "]),
            ("datacenters", two("server=s\ndatacenters=d1,d2", "server=s\ndatacenters=d2,d3"), &["a: d1,d2,d3"]),
            ("all of them", two("server=s\ndatacenters=d1", "server=s"), &["a: "]),
            ("all first", two("server=s", "server=s\ndatacenters=d1"), &["a: "]),
            ("case of a name", two("server=S.example", "server=s.EXAMPLE"), &["a: "]),
            ("spelling of an address", two("server=fd00::1", "server=[fd00:0::1]"), &["a: "]),
            ("same port", two("server=s", "server=s\nport=443"), &["a: "]),
            ("port", two("server=s", "server=s\nport=8443"), &["a: ", "b: "]),
            ("server", two("server=s", "server=t"), &["a: ", "b: "]),
            ("user", two("server=s", "server=s\nuser=v"), &["a: ", "b: "]),
            ("password", two("server=s", "server=s\npassword=q"), &["a: ", "b: "]),
            ("same Secret", two(&format!("server=s\n{secret}"), &format!("server=s\n{secret}")), &["a: "]),
            ("key in it", two(&format!("server=s\n{secret}"), &format!("server=S\n{secret}")), &["a: ", "b: "]),
            ("Secret", two(&format!("server=s\n{secret}"), &format!("server=s\n{secret}2")), &["a: ", "b: "]),
            (
                "pair before it",
                two(&format!("server=s\n{secret}\nuser=u\npassword=p"), &format!("server=s\n{secret}")),
                &["a: ", "b: "],
            ),
            ("insecure", two("server=s\ninsecure-flag", "server=s"), &["a: ", "b: "]),
            ("thumbprint", two(&format!("server=s\nthumbprint={thumbprint}"), "server=s"), &["a: ", "b: "]),
            ("CA", two("server=s\nca-file=/a", "server=s\nca-file=/b"), &["a: ", "b: "]),
            ("families", two("server=s", "server=s\nip-family=ipv6"), &["a: ", "b: "]),
            (
                "the third joins the second",
                format!(
                    "{}[VirtualCenter \"c\"]\nserver=s\nuser=v\ndatacenters=d2\n",
                    two("server=s", "server=s\nuser=v\ndatacenters=d1")
                ),
                &["a: ", "b: d1,d2"],
            ),
        ];
        for (id, ini, want) in rows {
            assert_eq!(distinct(&ini), want, "{id}");
        }
    }
}
