//! Pure: checks of the values of single keys.

use ipnet::{IpNet, Ipv4Net};

use super::fields::RawSection;
use super::problems::ProblemReport;
use crate::base::addresses::parse_ip;
use crate::base::glob;
use crate::clients::http::thumbprint::{Thumbprint, strip_algorithm};
use crate::providers::vsphere::config::address_rules::IpFamily;

pub(super) fn checked_server(section: &RawSection, report: &mut ProblemReport) -> Option<String> {
    let (key, server) = match section.text("server") {
        Some(server) => (Some("server"), server),
        // Except in YAML, the name of an entry without `server` is its server.
        None if section.names_its_server() => (None, section.key.as_str()),
        None => return None,
    };
    let is_address = parse_ip(server.trim_start_matches('[').trim_end_matches(']')).is_some();
    if !is_address && server.contains(|c: char| is_odd_in_a_host_name(c)) {
        report.error_at(section, key, "expected a host name or IP address, without scheme, port and path");
    }
    section.text("server").map(str::to_owned)
}

/// Returns true if a host name must not contain this character. Letters of all scripts with their marks are accepted,
/// because the resolver decides. Typographic quotes are rejected.
fn is_odd_in_a_host_name(c: char) -> bool {
    let is_quote = matches!(c, '\u{2018}'..='\u{201f}' | '\u{ab}' | '\u{bb}');
    is_quote || c.is_whitespace() || c.is_control() || c.is_ascii() && !c.is_ascii_alphanumeric() && !"-._".contains(c)
}

pub(super) fn checked_port(section: &RawSection, report: &mut ProblemReport) -> Option<u16> {
    let number = section.number("port")?;
    match u16::try_from(number) {
        Ok(port) if port != 0 => Some(port),
        _ => {
            report.error_at(section, Some("port"), "expected a port from 1 to 65535");
            None
        }
    }
}

/// Parses thumbprints, separated by commas or blanks. Returns `None` if one is malformed or a non-empty value contains
/// none, which [`log_thumbprint`] reports.
pub(super) fn parse_thumbprints(section: &RawSection) -> Option<Vec<Thumbprint>> {
    let text = section.text("thumbprint").unwrap_or_default();
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    let items: Vec<&str> = words.map(strip_algorithm).filter(|item| !item.is_empty()).collect();
    // `govc about.cert -thumbprint` prints the host before the thumbprint.
    let items = match items.as_slice() {
        [host, thumbprint] if is_host(host) => std::slice::from_ref(thumbprint),
        items => items,
    };
    let thumbprints: Vec<_> = items.iter().map(|item| Thumbprint::parse(item)).collect::<Option<_>>()?;
    (!thumbprints.is_empty() || text.is_empty()).then_some(thumbprints)
}

/// Reports a malformed thumbprint. Without verification the thumbprint is unused and only causes a warning.
pub(super) fn log_thumbprint(section: &RawSection, is_verified: bool, report: &mut ProblemReport) {
    if parse_thumbprints(section).is_some() {
        return;
    }
    let expected = "expected the SHA-256 or SHA-1 of the certificate: 64 or 40 hex digits, with or without colons; several are \
                    separated by commas";
    if is_verified {
        report.error_at(section, Some("thumbprint"), expected);
    } else {
        let odd = format!("{expected}. It has no effect, because insecure-flag is set");
        report.warn_at(section, Some("thumbprint"), odd);
    }
}

/// Returns true if the word is a host, as `govc` prints it, and not a malformed thumbprint.
fn is_host(word: &str) -> bool {
    let is_short_name = word.len() < 40 && word.contains(|c: char| !c.is_ascii_hexdigit() && c != ':');
    is_short_name || word.contains(['.', '['])
}

pub(super) fn checked_datacenters(section: &RawSection, report: &mut ProblemReport) -> Vec<String> {
    let items = section.items("datacenters").unwrap_or_default();
    if let Some(index) = items.iter().position(|item| !glob::is_well_formed(item)) {
        let expected =
            format!("item {}: expected a name, or a pattern with closed brackets; \\[ is a bracket", index + 1);
        report.error_at(section, Some("datacenters"), expected);
    }
    items.into_iter().map(str::to_owned).collect()
}

pub(super) fn checked_families(section: &RawSection, report: &mut ProblemReport) -> Vec<IpFamily> {
    let Some(items) = section.items("ip-family") else { return Vec::new() };
    let mut families = Vec::new();
    let are_known = items.iter().all(|item| {
        let family = IpFamily::parse(item);
        families.extend(family.filter(|family| !families.contains(family)));
        family.is_some()
    });
    if !are_known || families.is_empty() {
        report.error_at(section, Some("ip-family"), "expected ipv4, ipv6, or both in the order wanted");
    }
    families
}

pub(super) fn checked_networks(section: &RawSection, key: &str, report: &mut ProblemReport) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for (index, item) in section.items(key).unwrap_or_default().into_iter().enumerate() {
        match parse_network(item) {
            Some(network) => networks.push(network),
            None => {
                let expected = format!("item {}: expected a network like 10.0.0.0/8 or fd00::/64", index + 1);
                report.error_at(section, Some(key), expected);
            }
        }
    }
    networks
}

/// Parses a CIDR and ignores its host bits. An IPv4-mapped network becomes an IPv4 network, as in Go.
fn parse_network(text: &str) -> Option<IpNet> {
    let network: IpNet = text.parse().ok()?;
    match network {
        IpNet::V6(mapped) if mapped.prefix_len() >= 96 => {
            let Some(v4) = mapped.addr().to_ipv4_mapped() else { return Some(network) };
            Ipv4Net::new(v4, mapped.prefix_len() - 96).ok().map(IpNet::V4)
        }
        _ => Some(network),
    }
}
