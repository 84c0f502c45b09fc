//! Pure: replaces names and addresses by tokens. The same name has the same token in all texts of one bundle. Names are
//! those that the process knows; addresses, UUIDs and MAC addresses are recognised by their form.

use super::{KnownName, NameKind};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Minimum length of a name, in bytes. Shorter names occur as parts of ordinary words.
const MIN_NAME: usize = 3;

/// Words that are names in every cluster or every vCenter, and tell nothing about a site.
const COMMON: [&str; 16] = [
    "vm",
    "host",
    "datastore",
    "network",
    "resources",
    "datacenter",
    "datacenters",
    "discovered virtual machine",
    "localhost",
    "node",
    "name",
    "default",
    "kube-system",
    "true",
    "false",
    "null",
];

/// Length of a UUID with its hyphens.
const UUID: usize = 36;

/// Length of a MAC address with its separators.
const MAC: usize = 17;

/// Replaces names and addresses, and remembers the token of each.
#[derive(Debug, Default)]
pub struct Anonymiser {
    /// The word for each known name in lower case.
    names: HashMap<String, &'static str>,
    /// Lengths of the names, by the letters and digits at their beginning.
    lengths: HashMap<String, BTreeSet<usize>>,
    /// The token of each name and address in lower case.
    tokens: HashMap<String, String>,
    /// Number of tokens with each word.
    counts: HashMap<&'static str, usize>,
    /// The name or address of each token, as first read.
    originals: BTreeMap<String, String>,
}

impl Anonymiser {
    /// Creates an anonymiser that knows these names. Of two objects with one name, the first one counts.
    pub fn new(names: &[KnownName]) -> Self {
        let mut anonymiser = Self::default();
        for KnownName { kind, name } in names {
            anonymiser.add_name(word(*kind), name);
        }
        // After the names, because a domain may be the name of an object.
        for KnownName { kind, name } in names {
            if matches!(kind, NameKind::Node | NameKind::Host) && name.parse::<IpAddr>().is_err() {
                let domain = name.split_once('.').map(|(_, domain)| domain).unwrap_or_default();
                if domain.contains('.') {
                    anonymiser.add_name("domain", domain);
                }
            }
        }
        anonymiser
    }

    fn add_name(&mut self, word: &'static str, name: &str) {
        let name = name.to_lowercase();
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        let is_address = name.parse::<IpAddr>().is_ok();
        let start = leading_word(&name);
        let is_usable = name.len() >= MIN_NAME && !start.is_empty() && !is_number && !is_address;
        if is_usable && !COMMON.contains(&name.as_str()) && !self.names.contains_key(&name) {
            self.lengths.entry(start.to_owned()).or_default().insert(name.len());
            self.names.insert(name, word);
        }
    }

    /// Returns the name or address of each token.
    pub fn map(&self) -> &BTreeMap<String, String> {
        &self.originals
    }

    /// Replaces the names and addresses in the text.
    pub fn text(&mut self, text: &str) -> String {
        // Keeps the length in bytes, so that places in one text are places in the other one.
        let lower = text.to_ascii_lowercase();
        let mut replaced = String::with_capacity(text.len());
        let mut copied = 0;
        let mut at = 0;
        let mut before = b' ';
        while let Some(byte) = lower.as_bytes().get(at) {
            let found = if is_word(before) || !is_first(*byte) { None } else { self.find(&lower, at, before) };
            match found {
                Some((length, word)) => {
                    let original = text.get(at..at + length).unwrap_or_default();
                    let token = self.token(word, original);
                    replaced.push_str(text.get(copied..at).unwrap_or_default());
                    replaced.push_str(&token);
                    at += length;
                    copied = at;
                    // A token ends with a digit.
                    before = b'0';
                }
                None => {
                    before = *byte;
                    at += 1;
                }
            }
        }
        replaced.push_str(text.get(copied..).unwrap_or_default());
        replaced
    }

    /// Replaces the names and addresses in all texts and keys of a document.
    pub fn document(&mut self, document: Value) -> Value {
        match document {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.document(item)).collect()),
            Value::Object(fields) => {
                let fields = fields.into_iter().map(|(key, field)| (self.text(&key), self.document(field)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// Returns the length of the name or address at this place, and the word of its token.
    fn find(&self, lower: &str, at: usize, before: u8) -> Option<(usize, &'static str)> {
        let rest = lower.get(at..)?;
        if let Some(found) = self.name_at(rest) {
            return Some(found);
        }
        if let Some(length) = uuid_at(rest) {
            return Some((length, "uuid"));
        }
        // A colon or a dot before these would make them the end of something else.
        if before == b':' || before == b'.' {
            return None;
        }
        if let Some(length) = mac_at(rest) {
            return Some((length, "mac"));
        }
        ip_at(rest).map(|length| (length, "ip"))
    }

    /// Returns the longest known name at the beginning of the text.
    fn name_at(&self, rest: &str) -> Option<(usize, &'static str)> {
        let lengths = self.lengths.get(leading_word(rest))?;
        lengths.iter().rev().find_map(|length| {
            let name = rest.get(..*length).filter(|_| ends_at(rest, *length))?;
            self.names.get(name).map(|word| (*length, *word))
        })
    }

    fn token(&mut self, word: &'static str, original: &str) -> String {
        if let Some(token) = self.tokens.get(&original.to_lowercase()) {
            return token.clone();
        }
        let count = self.counts.entry(word).or_default();
        *count += 1;
        // No name of a Node or of a VM's host has an underscore.
        let token = format!("{word}_{count}");
        self.tokens.insert(original.to_lowercase(), token.clone());
        self.originals.insert(token.clone(), original.to_owned());
        token
    }
}

fn word(kind: NameKind) -> &'static str {
    match kind {
        NameKind::Node => "node",
        NameKind::Vm => "vm",
        NameKind::Host => "host",
        NameKind::User => "user",
        NameKind::Service => "service",
        NameKind::Object => "object",
    }
}

/// Whether the byte is part of a word. All bytes of letters outside of ASCII are.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// Whether a name or address may begin with this byte. An IPv6 address may begin with a colon.
fn is_first(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b':'
}

/// Whether no word goes on at this place.
fn ends_at(text: &str, at: usize) -> bool {
    text.as_bytes().get(at).is_none_or(|byte| !is_word(*byte))
}

/// Returns the ASCII letters and digits at the beginning.
fn leading_word(text: &str) -> &str {
    let end = text.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

fn uuid_at(text: &str) -> Option<usize> {
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
    let is_end = text.as_bytes().get(MAC).is_none_or(|byte| byte != separator);
    (is_valid && is_end).then_some(MAC)
}

/// Returns the length of the IP address at the beginning, except of one that every host has.
fn ip_at(text: &str) -> Option<usize> {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || byte == b':' || byte == b'.';
    let end = text.bytes().position(|byte| !is_part(byte)).unwrap_or(text.len());
    // A dot or colon may end the sentence or separate the port.
    let candidate = text.get(..end)?.trim_end_matches('.');
    let (with_port, _) = candidate.split_once(':').unwrap_or((candidate, ""));
    let shorter = candidate.trim_end_matches(':');
    for text_of_ip in [candidate, shorter, with_port.trim_end_matches('.')] {
        let is_end = text_of_ip.len() < end || ends_at(text, end);
        match text_of_ip.parse::<IpAddr>() {
            Ok(ip) if is_end => return (!is_common(ip)).then_some(text_of_ip.len()),
            Ok(_) | Err(_) => {}
        }
    }
    None
}

/// Whether the address tells nothing about a site.
fn is_common(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback() || ip == Ipv4Addr::UNSPECIFIED || ip.octets().starts_with(&[255]),
        IpAddr::V6(ip) => ip == Ipv6Addr::LOCALHOST || ip == Ipv6Addr::UNSPECIFIED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn anonymiser() -> Anonymiser {
        let names = [
            (NameKind::Node, "worker-1"),
            (NameKind::Node, "worker-10"),
            (NameKind::Vm, "worker-1"),
            (NameKind::Vm, "Build VM 7"),
            (NameKind::Host, "vc.corp.example.com"),
            (NameKind::Host, "10.0.0.9"),
            (NameKind::User, "ccm@vsphere.local"),
            (NameKind::User, "CORP\\ccm"),
            (NameKind::Service, "shop/web"),
            (NameKind::Object, "vm"),
            (NameKind::Object, "dc-1"),
            (NameKind::Object, "42"),
        ];
        let names: Vec<_> = names.map(|(kind, name)| KnownName { kind, name: name.to_owned() }).into();
        Anonymiser::new(&names)
    }

    #[test]
    fn names_and_addresses_become_tokens_and_other_text_stays() {
        let table = [
            ("node worker-1 and worker-10, worker-11", "node node_1 and node_2, worker-11"),
            ("WORKER-1: the VM Build VM 7 is off", "node_1: the VM vm_1 is off"),
            ("/dc-1/vm/worker-1", "/object_1/vm/node_1"),
            ("vc.corp.example.com:443, esx-9.corp.example.com", "host_1:443, esx-9.domain_1"),
            ("login of \"ccm@vsphere.local\" and CORP\\ccm", "login of \"user_1\" and user_2"),
            ("Service shop/web", "Service service_1"),
            ("at 10.1.0.17/24, 10.1.0.17:443 and 10.0.0.9.", "at ip_1/24, ip_1:443 and ip_2."),
            ("[fd00::17]:443 fd00::17 ::ffff:10.1.0.17", "[ip_3]:443 ip_3 ip_4"),
            ("127.0.0.1 0.0.0.0 ::1 [::]:8443 255.255.255.0", "127.0.0.1 0.0.0.0 ::1 [::]:8443 255.255.255.0"),
            ("00:50:56:AB:cd:ef, 00:50:56:ab:cd:ef", "mac_1, mac_1"),
            (
                "vsphere://4211A1B2-c3d4-4e5f-8a9b-000000000002 4211a1b2-c3d4-4e5f-8a9b-000000000002_10.244.0.0_24",
                "vsphere://uuid_1 uuid_1_ip_5_24",
            ),
            ("2026-11-24T03:12:40.123Z v1.33.0 ccm::app 1.2.3", "2026-11-24T03:12:40.123Z v1.33.0 ccm::app 1.2.3"),
            ("sha1 AB:CD:EF:01:02:03:04:05:06:07", "sha1 AB:CD:EF:01:02:03:04:05:06:07"),
            ("42 vm dc-12 xworker-1 ünworker-1", "42 vm dc-12 xworker-1 ünworker-1"),
            ("", ""),
        ];
        let mut anonymiser = anonymiser();
        for (text, expected) in table {
            assert_eq!(anonymiser.text(text), expected, "{text}");
        }
        let map = anonymiser.map();
        assert_eq!(map.get("node_1").map(String::as_str), Some("worker-1"));
        assert_eq!(map.get("ip_1").map(String::as_str), Some("10.1.0.17"));
        assert_eq!(map.get("uuid_1").map(String::as_str), Some("4211A1B2-c3d4-4e5f-8a9b-000000000002"));
    }

    #[test]
    fn tokens_are_the_same_in_all_documents() {
        let mut anonymiser = anonymiser();
        let document = json!({"worker-10": ["10.1.0.1", 7, null, {"name": "worker-1"}]});
        assert_eq!(anonymiser.document(document), json!({"node_1": ["ip_1", 7, null, {"name": "node_2"}]}));
        assert_eq!(anonymiser.text("worker-1 at 10.1.0.1"), "node_2 at ip_1");
        assert_eq!(anonymiser.text("node_2"), "node_2");
    }

    #[test]
    fn many_names_with_one_beginning_are_found_quickly() {
        let names: Vec<_> =
            (0..20_000).map(|number| KnownName { kind: NameKind::Node, name: format!("worker-{number:05}") }).collect();
        let mut anonymiser = Anonymiser::new(&names);
        let text: String = names.iter().map(|known| format!("{} ", known.name)).collect();
        let replaced = anonymiser.text(&text);
        assert!(!replaced.contains("worker"), "each of them is replaced");
        assert_eq!(anonymiser.map().len(), names.len());
    }
}
