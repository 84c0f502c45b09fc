//! Pure: replaces names and addresses by tokens. The same name has the same token in all texts of one bundle. Names are
//! those that the process knows; addresses, UUIDs and MAC addresses are recognized by their form.

mod addresses;

use super::{KnownName, NameKind};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;

/// Minimum length of a name, in bytes. Shorter names are ordinary words, unless they have a digit.
const MIN_NAME: usize = 3;

/// Minimum length of a name with a digit, in bytes.
const MIN_NUMBERED_NAME: usize = 2;

/// The end of a text that was cut.
const ELLIPSIS: char = '…';

/// Maximum length of the first word of a name that was cut within that word, in bytes.
const MAX_CUT_WORD: usize = 63;

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

/// Replaces names and addresses, and remembers the token of each.
#[derive(Debug, Default)]
pub struct Anonymiser {
    /// The known names by each of their spellings in lower case.
    spellings: BTreeMap<String, KnownSpelling>,
    /// Lengths of the spellings, by their beginning.
    lengths: HashMap<String, BTreeSet<usize>>,
    /// The token of each name and address, by its identity.
    tokens: HashMap<String, String>,
    /// Number of tokens with each word.
    counts: HashMap<&'static str, usize>,
    /// The name or address of each token, as first read.
    originals: BTreeMap<String, String>,
}

/// The meaning of a spelling.
#[derive(Debug)]
struct KnownSpelling {
    /// The word of the token.
    word: &'static str,
    /// The name in lower case, which is the same for all spellings.
    name: String,
}

/// A name or address in a text.
struct FoundName {
    /// Length in the text, in bytes.
    length: usize,
    /// The word of the token.
    word: &'static str,
    /// The same for all spellings of one name or address.
    identity: String,
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
        // As texts are compared.
        let lower = name.to_ascii_lowercase();
        let is_address = lower.parse::<IpAddr>().is_ok();
        if !is_long_enough(&lower) || is_address || COMMON.contains(&lower.as_str()) {
            return;
        }
        // Logs and errors quote names, which escapes backslashes and quotes.
        let quoted: String = name.escape_debug().collect();
        for spelling in [lower.clone(), quoted.to_ascii_lowercase()] {
            if !self.spellings.contains_key(&spelling) {
                self.lengths.entry(beginning(&spelling).to_owned()).or_default().insert(spelling.len());
                self.spellings.insert(spelling, KnownSpelling { word, name: lower.clone() });
            }
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
        let mut before = ' ';
        while let Some(char) = lower.get(at..).and_then(|rest| rest.chars().next()) {
            let is_inside = before.is_alphanumeric() && char.is_alphanumeric();
            let found = if is_inside { None } else { self.find(&lower, at, before) };
            match found {
                Some(found) => {
                    let length = found.length;
                    let original = text.get(at..at + length).unwrap_or_default();
                    let token = self.token(found, original);
                    replaced.push_str(text.get(copied..at).unwrap_or_default());
                    replaced.push_str(&token);
                    at += length;
                    copied = at;
                    // A token ends with a digit.
                    before = '0';
                }
                None => {
                    // The letter of an escaped line break or tab is no part of the word after it.
                    let is_escape = before == '\\' && matches!(char, 'n' | 'r' | 't');
                    before = if is_escape { ' ' } else { char };
                    at += char.len_utf8();
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

    /// Returns the name or address at this place. `before` is the character before it.
    fn find(&self, lower: &str, at: usize, before: char) -> Option<FoundName> {
        let rest = lower.get(at..)?;
        if let Some(found) = self.name_at(rest).or_else(|| self.cut_name_at(rest)) {
            return Some(found);
        }
        if before.is_alphanumeric() {
            return None;
        }
        let address = addresses::address_at(lower, at)?;
        Some(FoundName { length: address.length, word: address.word, identity: address.identity })
    }

    /// Returns the longest known name at the beginning of the text.
    fn name_at(&self, rest: &str) -> Option<FoundName> {
        let lengths = self.lengths.get(beginning(rest))?;
        lengths.iter().rev().find_map(|length| {
            let spelling = rest.get(..*length).filter(|_| ends_at(rest, *length))?;
            let KnownSpelling { word, name } = self.spellings.get(spelling)?;
            Some(FoundName { length: *length, word, identity: name.clone() })
        })
    }

    /// Returns the beginning of a known name before an ellipsis, because long messages are cut.
    fn cut_name_at(&self, rest: &str) -> Option<FoundName> {
        let longest = self.lengths.get(beginning(rest)).and_then(BTreeSet::last).copied().unwrap_or(MAX_CUT_WORD);
        let end = rest.get(..rest.floor_char_boundary(longest + ELLIPSIS.len_utf8()))?.find(ELLIPSIS)?;
        let start = rest.get(..end).filter(|start| is_long_enough(start))?;
        let (name, known) = self.spellings.range::<str, _>((Bound::Included(start), Bound::Unbounded)).next()?;
        // Several names may begin so. The token is that of the beginning.
        let identity = format!("{start}{ELLIPSIS}");
        name.starts_with(start).then_some(FoundName { length: end, word: known.word, identity })
    }

    fn token(&mut self, found: FoundName, original: &str) -> String {
        let FoundName { word, identity, .. } = found;
        if let Some(token) = self.tokens.get(&identity) {
            return token.clone();
        }
        let count = self.counts.entry(word).or_default();
        *count += 1;
        // No name of a Node or of a VM's host has an underscore.
        let token = format!("{word}_{count}");
        self.tokens.insert(identity, token.clone());
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

/// Whether no word goes on at this place.
fn ends_at(text: &str, at: usize) -> bool {
    let last = text.get(..at).and_then(|name| name.chars().next_back());
    let next = text.get(at..).and_then(|rest| rest.chars().next());
    // A name may end with a bracket, and another word may follow.
    !last.is_some_and(char::is_alphanumeric) || !next.is_some_and(char::is_alphanumeric)
}

/// Whether a name can be told from ordinary words and numbers.
fn is_long_enough(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let least = if digits > 0 { MIN_NUMBERED_NAME } else { MIN_NAME };
    name.len() >= least && digits < name.len() && name.chars().any(char::is_alphanumeric)
}

/// Returns the ASCII letters and digits at the beginning or, without any, the first character.
fn beginning(text: &str) -> &str {
    let end = text.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(text.len());
    let first = text.chars().next().map_or(0, char::len_utf8);
    text.get(..end.max(first)).unwrap_or_default()
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
            (NameKind::Node, "n1"),
            (NameKind::Vm, "[prod] (old)"),
            (NameKind::Vm, "Ünit-Ä1"),
            (NameKind::Vm, "say \"hi\""),
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
            ("[fd00::17]:443 fd00::17 ::ffff:10.1.0.17", "[ip_3]:443 ip_3 ip_1"),
            ("127.0.0.1 0.0.0.0 ::1 [::]:8443 255.255.255.0", "127.0.0.1 0.0.0.0 ::1 [::]:8443 255.255.255.0"),
            ("00:50:56:AB:cd:ef, 00:50:56:ab:cd:ef", "mac_1, mac_1"),
            (
                "vsphere://4211A1B2-c3d4-4e5f-8a9b-000000000002 4211a1b2-c3d4-4e5f-8a9b-000000000002_10.244.0.0_24",
                "vsphere://uuid_1 uuid_1_ip_4_24",
            ),
            ("machineID 4211a1b2c3d44e5f8a9b000000000002", "machineID uuid_1"),
            ("2026-11-24T03:12:40.123Z v1.33.0 ccm::app 1.2.3", "2026-11-24T03:12:40.123Z v1.33.0 ccm::app 1.2.3"),
            ("sha1 AB:CD:EF:01:02:03:04:05:06:07", "sha1 AB:CD:EF:01:02:03:04:05:06:07"),
            ("42 vm dc-12 xworker-1 ünworker-1", "42 vm dc-12 xworker-1 ünworker-1"),
            ("", ""),
            ("n1 on n10", "node_3 on n10"),
            ("VM [prod] (old) and [PROD] (OLD)copy", "VM vm_2 and vm_2copy"),
            ("/dc-1/vm/Ünit-Ä1", "/object_1/vm/vm_3"),
            (r#"user: "CORP\\ccm", vm "say \"hi\"" "#, r#"user: "user_2", vm "vm_4" "#),
            (
                "no answer of vc.corp.exa…; n1… and worker-1…, wor… el…",
                "no answer of host_2…; node_3… and node_1…, node_4… el…",
            ),
            (r"first\nworker-1\t10.1.0.17\r\nfd00::17", r"first\nnode_1\tip_1\r\nip_3"),
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
