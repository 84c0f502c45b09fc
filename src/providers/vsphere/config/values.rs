//! Pure: values of single keys, each checked on its own.

use ipnet::{IpNet, Ipv4Net};

use super::super::addresses::IpFamily;
use super::fields::RawSection;
use super::problems::Report;
use crate::base::addresses::parse_ip;

pub(super) fn checked_server(section: &RawSection, report: &mut Report) -> Option<String> {
    let (key, server) = match section.text("server") {
        Some(server) => (Some("server"), server),
        // The name of an INI entry stands for its server.
        None if section.names_its_server() => (None, section.key.as_str()),
        None => return None,
    };
    let is_address = parse_ip(server.trim_start_matches('[').trim_end_matches(']')).is_some();
    if !is_address && server.contains(|c: char| c.is_whitespace() || ":/?#@[]".contains(c)) {
        report.mistake_at(section, key, "expected a host name or IP address, without scheme, port and path");
    }
    section.text("server").map(str::to_owned)
}

pub(super) fn checked_port(section: &RawSection, report: &mut Report) -> Option<u16> {
    let number = section.number("port")?;
    match u16::try_from(number) {
        Ok(port) if port != 0 => Some(port),
        _ => {
            report.mistake_at(section, Some("port"), "expected a port from 1 to 65535");
            None
        }
    }
}

/// One or several, separated by commas or blanks: hex digits in pairs, with or without colons, in any case; given back
/// upper case with colons. None where one is malformed, which [`tell_thumbprint`] tells.
pub(super) fn parse_thumbprints(section: &RawSection) -> Option<Vec<String>> {
    let text = section.text("thumbprint").unwrap_or_default();
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    let items = words.map(without_algorithm).filter(|item| !item.is_empty());
    let thumbprints: Vec<_> = items.map(parse_thumbprint).collect::<Option<_>>()?;
    (!thumbprints.is_empty() || text.is_empty()).then_some(thumbprints)
}

/// Tells of a malformed thumbprint. Without verification nobody looks at it, so that it is no mistake then.
pub(super) fn tell_thumbprint(section: &RawSection, is_verified: bool, report: &mut Report) {
    if parse_thumbprints(section).is_some() {
        return;
    }
    let expected = "expected the SHA-256 or SHA-1 of the certificate: 32 or 20 pairs of hex digits with colons; several are \
                    separated by commas";
    if is_verified {
        report.mistake_at(section, Some("thumbprint"), expected);
    } else {
        let odd = format!("{expected}. It has no effect, because insecure-flag is set");
        report.warn_at(section, Some("thumbprint"), odd);
    }
}

/// `openssl` writes `SHA256 Fingerprint=` in front, others `sha256:`.
fn without_algorithm(word: &str) -> &str {
    let word = word.rsplit_once('=').map_or(word, |(_, digits)| digits);
    let names = ["sha256", "sha-256", "sha1", "sha-1"];
    let named = names.iter().find_map(|name| {
        let (front, rest) = word.split_at_checked(name.len())?;
        front.eq_ignore_ascii_case(name).then(|| rest.trim_start_matches(':'))
    });
    named.unwrap_or(word)
}

fn parse_thumbprint(text: &str) -> Option<String> {
    let digits: Vec<char> = text.chars().filter(|c| *c != ':').map(|c| c.to_ascii_uppercase()).collect();
    let is_paired = !text.contains(':') || text.split(':').all(|pair| pair.len() == 2);
    if !is_paired || ![40, 64].contains(&digits.len()) || !digits.iter().all(char::is_ascii_hexdigit) {
        return None;
    }
    let pairs: Vec<String> = digits.chunks(2).map(|pair| pair.iter().collect()).collect();
    Some(pairs.join(":"))
}

pub(super) fn checked_families(section: &RawSection, report: &mut Report) -> Vec<IpFamily> {
    let Some(items) = section.items("ip-family") else { return Vec::new() };
    let mut families = Vec::new();
    let are_known = items.iter().all(|item| {
        let family = item.parse().ok();
        families.extend(family.filter(|family| !families.contains(family)));
        family.is_some()
    });
    if !are_known || families.is_empty() {
        report.mistake_at(section, Some("ip-family"), "expected ipv4, ipv6, or both in the order wanted");
    }
    families
}

pub(super) fn checked_networks(section: &RawSection, key: &str, report: &mut Report) -> Vec<IpNet> {
    let mut networks = Vec::new();
    for (index, item) in section.items(key).unwrap_or_default().into_iter().enumerate() {
        match parse_network(item) {
            Some(network) => networks.push(network),
            None => {
                let expected = format!("item {}: expected a network like 10.0.0.0/8 or fd00::/64", index + 1);
                report.mistake_at(section, Some(key), expected);
            }
        }
    }
    networks
}

/// A network in CIDR form; host bits do not matter. An IPv4-mapped one is an IPv4 network, as in Go.
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
