//! Pure: recognizes IP addresses, MAC addresses and UUIDs in a text by their form. All texts are in lower case.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of a UUID with its hyphens.
const UUID: usize = 36;

/// Length of a UUID without hyphens.
const PLAIN_UUID: usize = 32;

/// Length of a MAC address with its separators.
const MAC: usize = 17;

/// An address or UUID in a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundAddress {
    /// Length in the text, in bytes.
    pub(super) length: usize,
    /// The word for the kind.
    pub(super) word: &'static str,
    /// The same for all spellings of one address.
    pub(super) identity: String,
}

/// Returns the address or UUID at this place, which is not within a word.
pub(super) fn address_at(text: &str, at: usize) -> Option<FoundAddress> {
    let rest = text.get(at..)?;
    let first = rest.bytes().next()?;
    if !first.is_ascii_hexdigit() && first != b':' {
        return None;
    }
    if let Some(length) = uuid_at(rest) {
        let identity = rest.get(..length)?.replace('-', "");
        return Some(FoundAddress { length, word: "uuid", identity });
    }
    let found = |ip: IpAddr, length| FoundAddress { length, word: "ip", identity: ip.to_canonical().to_string() };
    let place = Place::of(text.get(..at)?);
    let ipv4 = ipv4_at(rest).filter(|(ip, _)| place != Place::BehindNumber && !is_common(IpAddr::V4(*ip)));
    if place == Place::BehindHexadecimal {
        // An IPv6 address would begin earlier.
        return ipv4.map(|(ip, length)| found(ip.into(), length));
    }
    if let Some(length) = mac_at(rest) {
        let identity = rest.get(..length)?.replace('-', ":");
        return Some(FoundAddress { length, word: "mac", identity });
    }
    if let Some((ip, length)) = ip_at(rest).filter(|(ip, _)| place != Place::BehindNumber || ip.is_ipv6()) {
        return (!is_common(ip)).then(|| found(ip, length));
    }
    ipv4.map(|(ip, length)| found(ip.into(), length))
}

/// What is before an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The beginning of the text, a space, or the separator behind a label, as in `addr:` and `host.`.
    Start,
    /// A colon behind hexadecimal digits or another colon, which may be the middle of an IPv6 address or fingerprint.
    BehindHexadecimal,
    /// A dot behind a number, which may be the middle of a version.
    BehindNumber,
}

impl Place {
    fn of(before: &str) -> Self {
        let Some((separator, rest)) = before.bytes().next_back().zip(before.get(..before.len().saturating_sub(1)))
        else {
            return Self::Start;
        };
        let label = last_word(rest);
        match separator {
            b':' if label.bytes().all(|byte| byte.is_ascii_hexdigit()) => Self::BehindHexadecimal,
            b'.' if !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()) => Self::BehindNumber,
            _ => Self::Start,
        }
    }
}

/// Returns the ASCII letters and digits at the end.
fn last_word(text: &str) -> &str {
    let start = text.bytes().rposition(|byte| !byte.is_ascii_alphanumeric()).map_or(0, |last| last + 1);
    text.get(start..).unwrap_or_default()
}

fn uuid_at(text: &str) -> Option<usize> {
    let digits = text.bytes().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(text.len());
    if digits == PLAIN_UUID {
        return ends_at(text, PLAIN_UUID).then_some(PLAIN_UUID);
    }
    let candidate = text.get(..UUID).filter(|_| ends_at(text, UUID))?;
    let is_valid = candidate.bytes().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    is_valid.then_some(UUID)
}

fn mac_at(text: &str) -> Option<usize> {
    let candidate = text.get(..MAC).filter(|_| ends_at(text, MAC))?;
    let separator = candidate.as_bytes().get(2).filter(|byte| b":-".contains(byte))?;
    let is_valid = candidate.bytes().enumerate().all(|(at, byte)| match at % 3 {
        2 => byte == *separator,
        _ => byte.is_ascii_hexdigit(),
    });
    // A longer chain of pairs is something else, such as a fingerprint.
    let mut rest = text.bytes().skip(MAC);
    let is_end = rest.next() != Some(*separator) || rest.next().is_none_or(|byte| !byte.is_ascii_hexdigit());
    (is_valid && is_end).then_some(MAC)
}

/// Returns the IP address at the beginning, and its length.
fn ip_at(text: &str) -> Option<(IpAddr, usize)> {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.';
    let end = text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len());
    // A dot or colon may end the sentence or separate the port.
    let candidate = text.get(..end)?.trim_end_matches('.');
    let (with_port, _) = candidate.split_once(':').unwrap_or((candidate, ""));
    let shorter = candidate.trim_end_matches(':');
    for text_of_ip in [candidate, shorter, with_port.trim_end_matches('.')] {
        let is_end = text_of_ip.len() < end || ends_at(text, end);
        if let Some(ip) = text_of_ip.parse::<IpAddr>().ok().filter(|_| is_end) {
            return Some((ip, text_of_ip.len()));
        }
    }
    None
}

/// Returns the IPv4 address at the beginning, whatever follows after it, and its length.
fn ipv4_at(text: &str) -> Option<(Ipv4Addr, usize)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit() && byte != b'.').unwrap_or(text.len());
    let run = text.get(..end)?;
    // A range may have dots between its ends.
    let candidate = run.split_once("..").map_or(run, |(first, _)| first).trim_end_matches('.');
    let ip = candidate.parse().ok()?;
    (candidate.len() < end || ends_at(text, end)).then_some((ip, candidate.len()))
}

/// Whether the address tells nothing about a site.
fn is_common(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip == Ipv4Addr::UNSPECIFIED || ip.octets().starts_with(&[255]),
        IpAddr::V6(ip) => ip == Ipv6Addr::LOCALHOST || ip == Ipv6Addr::UNSPECIFIED,
    }
}

/// Whether no word goes on at this place.
fn ends_at(text: &str, at: usize) -> bool {
    !text.get(at..).and_then(|rest| rest.chars().next()).is_some_and(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text with each address in brackets and its identity.
    fn found(text: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let is_inside = at > 0 && text.as_bytes()[at - 1].is_ascii_alphanumeric();
            match address_at(text, at).filter(|_| !is_inside) {
                Some(address) => {
                    found.push((text.get(at..at + address.length).unwrap().to_owned(), address.identity));
                    at += address.length;
                }
                None => at += 1,
            }
        }
        found
    }

    fn same(addresses: &[&str]) -> Vec<(String, String)> {
        addresses.iter().map(|address| ((*address).to_owned(), (*address).to_owned())).collect()
    }

    #[test]
    fn an_address_is_found_behind_a_label_a_dot_or_another_address() {
        for (text, expected) in [
            ("addr:10.1.0.17", &["10.1.0.17"][..]),
            ("node:fd00::17, add:10.1.0.17", &["fd00::17", "10.1.0.17"]),
            ("dial tcp...10.1.0.17", &["10.1.0.17"]),
            ("host.10.1.0.17", &["10.1.0.17"]),
            ("10.1.0.17:10.1.0.18", &["10.1.0.17", "10.1.0.18"]),
            ("10.1.0.17..10.1.0.20", &["10.1.0.17", "10.1.0.20"]),
            ("10.1.0.17-10.1.0.20/24", &["10.1.0.17", "10.1.0.20"]),
            ("10.1.0.17:", &["10.1.0.17"]),
            ("fe80::1%eth0", &["fe80::1"]),
            ("mac:00:50:56:ab:cd:ef: none", &["00:50:56:ab:cd:ef"]),
            ("10.1.0.17…", &["10.1.0.17"]),
            ("...fd00::17, v1.fd00::17", &["fd00::17", "fd00::17"]),
        ] {
            assert_eq!(found(text), same(expected), "{text}");
        }
    }

    #[test]
    fn spellings_of_one_address_have_one_identity() {
        for (text, identity) in [
            ("fd00:0:0:0:0:0:0:17 fd00::17 fd00:0000::0017", "fd00::17"),
            ("::ffff:10.1.0.17 10.1.0.17 x::ffff:10.1.0.17", "10.1.0.17"),
            ("00-50-56-ab-cd-ef 00:50:56:ab:cd:ef", "00:50:56:ab:cd:ef"),
            (
                "4211a1b2-c3d4-4e5f-8a9b-000000000002 4211a1b2c3d44e5f8a9b000000000002",
                "4211a1b2c3d44e5f8a9b000000000002",
            ),
        ] {
            let found = found(text);
            assert!(found.len() >= 2 && found.iter().all(|(_, found)| found == identity), "{text}: {found:?}");
        }
    }

    #[test]
    fn versions_times_fingerprints_and_paths_are_no_addresses() {
        for text in [
            "1.3.6.1.4.1.311",
            "8.0.3.24022510",
            "03:12:40.123456",
            "ccm::add ccm::fed::cafe",
            "ab:cd:ef:01:02:03:04:05:06:07:08:09",
            "sha256:ab:cd:ef:01:02:03:04:05:06:07:08:09",
            "127.0.0.1:8443 [::1]:10 ::",
            "deadbeef",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }
}
