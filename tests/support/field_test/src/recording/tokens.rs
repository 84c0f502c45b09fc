//! Pure: the tokens that replace values. One value has one token everywhere, so that references in a recording still
//! match: an id in an answer and the same id in the path of a later request.
//!
//! A token shows only the kind of its value, if a client needs that: a UUID, an address, or the id of a managed object
//! with its prefix. Any other value is a text.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses for documentation (RFC 5737), then addresses for benchmarks (RFC 2544).
const IPV4_RANGES: [(Ipv4Addr, u32); 4] = [
    (Ipv4Addr::new(192, 0, 2, 0), 254),
    (Ipv4Addr::new(198, 51, 100, 0), 254),
    (Ipv4Addr::new(203, 0, 113, 0), 254),
    (Ipv4Addr::new(198, 18, 0, 0), 131_070),
];

/// First token of a number. Tokens have seven digits, and shorter numbers stay.
const FIRST_NUMBER: i64 = 1_000_000;

/// Longest number that stays, in digits.
pub(super) const DIGITS: usize = 6;

/// The time that replaces every time, as text and in milliseconds.
pub(super) const TIME: &str = "2020-01-01T00:00:00Z";
pub(super) const MILLISECONDS: i64 = 1_577_836_800_000;

/// Token of a replay for a value that is not in the recording. No recording contains it.
const FOREIGN: &str = "not-of-the-recording";

/// The kind of a replaced value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Free text, such as a name.
    Text,
    Uuid,
    Ipv4,
    Ipv6,
    /// The id of a managed object or of an NSX object.
    Id,
    Number,
    /// The name of a field, type, parameter or schema word that is not in the lists.
    Name,
}

impl Kind {
    /// Name of the count in a recording.
    fn counted(self) -> &'static str {
        match self {
            Self::Text => "texts",
            Self::Uuid => "UUIDs",
            Self::Ipv4 => "IPv4 addresses",
            Self::Ipv6 => "IPv6 addresses",
            Self::Id => "ids",
            Self::Number => "numbers",
            Self::Name => "unknown names",
        }
    }
}

/// The tokens of one recording. It has no `Debug`, because it contains the replaced values.
#[derive(Default)]
pub(super) struct Tokens {
    /// Token of each value. Numbers are kept separately.
    of_values: BTreeMap<String, String>,
    of_numbers: BTreeMap<String, i64>,
    counts: BTreeMap<Kind, u32>,
    /// Number of ids with each prefix.
    ids: BTreeMap<String, u32>,
    /// Number of values that were replaced by a fixed word.
    removed: BTreeMap<&'static str, u32>,
    /// Whether values are tokens already. The tokens of a recording stay.
    is_replay: bool,
}

impl Tokens {
    /// Makes the tokens for requests that a client builds from recorded answers.
    pub(super) fn of_replay() -> Self {
        Self { is_replay: true, ..Self::default() }
    }

    /// Returns the number of replaced values of each kind, and of removals.
    pub(super) fn counts(&self) -> BTreeMap<String, u32> {
        let tokens = self.counts.iter().map(|(kind, count)| (kind.counted().to_owned(), *count));
        tokens.chain(self.removed.iter().map(|(what, count)| ((*what).to_owned(), *count))).collect()
    }

    /// Counts a value that was removed or replaced by a fixed word.
    pub(super) fn removed(&mut self, what: &'static str) {
        *self.removed.entry(what).or_default() += 1;
    }

    pub(super) fn text(&mut self, value: &str) -> String {
        self.numbered(Kind::Text, "text", value)
    }

    /// Returns the token of a schema name that is in no list.
    pub(super) fn name(&mut self, value: &str) -> String {
        self.numbered(Kind::Name, "unknown", value)
    }

    /// Returns the token of an object id. An id with this prefix keeps the prefix, which includes the hyphen.
    pub(super) fn id(&mut self, prefix: Option<&str>, value: &str) -> String {
        self.numbered(Kind::Id, prefix.map_or("id", |prefix| prefix.trim_end_matches('-')), value)
    }

    fn numbered(&mut self, kind: Kind, prefix: &str, value: &str) -> String {
        if self.is_replay {
            return if is_numbered(value) { value } else { FOREIGN }.to_owned();
        }
        if let Some(token) = self.of_values.get(value) {
            return token.clone();
        }
        let number = self.ids.entry(prefix.to_owned()).or_default();
        *number += 1;
        let token = format!("{prefix}-{number}");
        self.keep(kind, value.to_owned(), token)
    }

    /// Returns the token of a UUID in lower case. The token of the byte-swapped UUID differs only in its third group.
    pub(super) fn uuid(&mut self, value: &str) -> String {
        if self.is_replay {
            return if is_uuid_token(value) { value } else { FOREIGN }.to_owned();
        }
        if let Some(token) = self.of_values.get(value) {
            return token.clone();
        }
        let number = self.counts.get(&Kind::Uuid).copied().unwrap_or_default() + 1;
        let token = |third: &str| format!("00000000-0000-{third}-8000-{number:012}");
        let other = byte_swapped(value);
        if other == value {
            return self.keep(Kind::Uuid, other, token("4040"));
        }
        self.of_values.insert(other, token("0040"));
        self.keep(Kind::Uuid, value.to_owned(), token("4000"))
    }

    /// Returns the token of an address. Loopback and unspecified addresses stay. Link-local addresses stay link-local.
    pub(super) fn address(&mut self, address: IpAddr) -> IpAddr {
        let is_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if address.is_loopback() || address.is_unspecified() || (self.is_replay && is_documentation(address)) {
            return address;
        }
        let value = address.to_string();
        if let Some(token) = self.of_values.get(&value).and_then(|token| token.parse().ok()) {
            return token;
        }
        let kind = if address.is_ipv4() { Kind::Ipv4 } else { Kind::Ipv6 };
        let number = self.counts.get(&kind).copied().unwrap_or_default() + 1;
        let token = match (address, is_local) {
            (IpAddr::V4(_), false) => IpAddr::V4(ipv4(number)),
            (IpAddr::V4(_), true) => IpAddr::V4(plus(Ipv4Addr::new(169, 254, 0, 0), number.min(65_534))),
            (IpAddr::V6(_), false) => IpAddr::V6(Ipv6Addr::from((0x2001_0db8 << 96) | u128::from(number))),
            (IpAddr::V6(_), true) => IpAddr::V6(Ipv6Addr::from((0xfe80 << 112) | u128::from(number))),
        };
        self.keep(kind, value, token.to_string());
        token
    }

    pub(super) fn number(&mut self, value: &str) -> i64 {
        if self.is_replay {
            let is_token = |number: &i64| (FIRST_NUMBER + 1..2 * FIRST_NUMBER).contains(number);
            return value.parse().ok().filter(is_token).unwrap_or(FIRST_NUMBER);
        }
        if let Some(token) = self.of_numbers.get(value) {
            return *token;
        }
        let count = self.counts.entry(Kind::Number).or_default();
        *count += 1;
        let token = FIRST_NUMBER + i64::from(*count);
        self.of_numbers.insert(value.to_owned(), token);
        token
    }

    fn keep(&mut self, kind: Kind, value: String, token: String) -> String {
        *self.counts.entry(kind).or_default() += 1;
        self.of_values.insert(value, token.clone());
        token
    }
}

/// Returns true for a text of the form `word-7`.
fn is_numbered(value: &str) -> bool {
    value.rsplit_once('-').is_some_and(|(prefix, number)| {
        !prefix.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_uuid_token(value: &str) -> bool {
    let parts: Vec<_> = value.split('-').collect();
    let [first, second, third, fourth, number] = parts.as_slice() else { return false };
    [*first, *second, *fourth] == ["00000000", "0000", "8000"]
        && ["4000", "0040", "4040"].contains(third)
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_documentation(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            address.is_link_local()
                || IPV4_RANGES.iter().any(|(first, size)| {
                    (u32::from(*first)..=u32::from(*first).saturating_add(*size)).contains(&u32::from(address))
                })
        }
        IpAddr::V6(address) => address.is_unicast_link_local() || address.segments().starts_with(&[0x2001, 0x0db8]),
    }
}

/// Returns the address with this number, from 1 on. Numbers beyond the last address get the last address.
fn ipv4(number: u32) -> Ipv4Addr {
    let mut left = number;
    for (first, size) in IPV4_RANGES {
        if left <= size {
            return plus(first, left);
        }
        left -= size;
    }
    plus(IPV4_RANGES[3].0, IPV4_RANGES[3].1)
}

fn plus(first: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(first).saturating_add(number))
}

/// Returns the UUID with the bytes of its first three groups reversed.
fn byte_swapped(uuid: &str) -> String {
    let swap = |group: &str| {
        let bytes: Vec<_> = group.as_bytes().chunks(2).rev().flatten().map(|byte| char::from(*byte)).collect();
        bytes.into_iter().collect::<String>()
    };
    let groups = uuid.split('-').enumerate();
    groups.map(|(at, group)| if at < 3 { swap(group) } else { group.to_owned() }).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::{FOREIGN, Tokens};

    const UUID: &str = "420a1b2c-3d4e-5f60-7182-93a4b5c6d7e8";
    const SWAPPED: &str = "2c1b0a42-4e3d-605f-7182-93a4b5c6d7e8";

    #[test]
    fn one_value_has_one_token_wherever_it_is_met() {
        let mut tokens = Tokens::default();
        assert_eq!((tokens.text("node-1"), tokens.text("node-2")), ("text-1".to_owned(), "text-2".to_owned()));
        assert_eq!(tokens.id(None, "node-1"), "text-1");
        assert_eq!((tokens.id(Some("vm-"), "vm-42"), tokens.id(Some("vm-"), "vm-7")), ("vm-1".into(), "vm-2".into()));
        assert_eq!(tokens.id(Some("vm-"), "vm-42"), "vm-1");
        assert_eq!(tokens.text("text-1"), "text-3", "a value that looks like a token is replaced");
        assert_eq!(
            (tokens.number("99887766"), tokens.number("1"), tokens.number("99887766")),
            (1_000_001, 1_000_002, 1_000_001)
        );
        assert_eq!((tokens.counts()["texts"], tokens.counts()["ids"]), (3, 2));
    }

    #[test]
    fn the_tokens_of_both_byte_orders_are_each_other_in_the_other_order() {
        let mut tokens = Tokens::default();
        let (one, other) = (tokens.uuid(UUID), tokens.uuid(SWAPPED));
        assert_eq!(one, "00000000-0000-4000-8000-000000000001");
        assert_eq!(super::byte_swapped(&one), other);
        let same = tokens.uuid("11111111-2222-3333-4444-555555555555");
        assert_eq!(super::byte_swapped(&same), same, "as is that of a UUID which is the same in both");
        assert_ne!(same, one);
    }

    #[test]
    fn an_address_has_one_for_documentation_of_its_family() {
        let mut tokens = Tokens::default();
        let mut token = |address: &str| tokens.address(address.parse().unwrap()).to_string();
        for (address, expected) in [
            ("10.1.2.3", "192.0.2.1"),
            ("10.1.2.4", "192.0.2.2"),
            ("10.1.2.3", "192.0.2.1"),
            ("fd00::7", "2001:db8::1"),
            ("fe80::250:56ff:fe8a:1", "fe80::2"),
            ("169.254.3.4", "169.254.0.3"),
            ("127.0.0.1", "127.0.0.1"),
            ("::", "::"),
        ] {
            assert_eq!(token(address), expected, "{address}");
        }
        let last = (0..400_000_u32).map(|number| super::ipv4(number + 1)).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(last.len(), 3 * 254 + 131_070);
    }

    #[test]
    fn in_a_replay_tokens_stay_and_other_values_match_nothing() {
        let (mut recording, mut replay) = (Tokens::default(), Tokens::of_replay());
        for value in ["a name", "text-9"] {
            let token = recording.text(value);
            assert_eq!(replay.text(&token), token);
        }
        assert_eq!(replay.id(Some("vm-"), "vm-3"), "vm-3");
        for uuid in [UUID, SWAPPED] {
            let token = recording.uuid(uuid);
            assert_eq!(replay.uuid(&token), token);
        }
        let address = recording.address("10.0.0.1".parse().unwrap());
        assert_eq!(replay.address(address), address);
        let number = recording.number("1234567");
        assert_eq!(replay.number(&number.to_string()), number);
        assert_eq!((replay.text("a name"), replay.uuid(UUID)), (FOREIGN.to_owned(), FOREIGN.to_owned()));
        assert_eq!(replay.number("1234567890"), 1_000_000);
    }
}
