//! Tests with the upstream vectors by id: those of the Go program's tests (`tests/golden/vectors/addresses.jsonl`), and
//! B1 to B41.

use std::net::Ipv4Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use serde::Deserialize;

use super::super::guest_metadata::{MetadataError, parse_static_order};
use super::*;

mod preferences;

const HOST: &str = "node-1";

/// One line of the vector file.
#[derive(Deserialize)]
struct Vector {
    id: String,
    fam: Vec<String>,
    #[serde(default)]
    cfg: VectorRules,
    nics: Vec<NicRow>,
    addrs: Option<Vec<String>>,
    netenc: Option<String>,
    meta: Option<String>,
    want: Option<Vec<(String, String)>>,
    err: Option<String>,
    /// Result of this program if it differs from upstream. Then `differs` has the subject of the row of
    /// `docs/compatibility.md` with the reason.
    ours: Option<Vec<(String, String)>>,
    differs: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VectorRules {
    int_cidr: String,
    ext_cidr: String,
    int_net: Option<String>,
    ext_net: Option<String>,
    excl_int: String,
    excl_ext: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NicRow {
    WithDevice(String, Vec<String>, i32),
    Plain(String, Vec<String>),
}

impl NicRow {
    fn nic(&self) -> GuestNic {
        let (network, addresses, device) = match self {
            NicRow::WithDevice(network, addresses, device) => (network, addresses, *device),
            NicRow::Plain(network, addresses) => (network, addresses, 4000),
        };
        GuestNic { network: Some(network.clone()), ip_addresses: addresses.clone(), device_config_id: device }
    }
}

fn networks(text: &str) -> Vec<IpNet> {
    text.split(',').filter(|item| !item.is_empty()).map(|item| item.parse().unwrap()).collect()
}

impl VectorRules {
    fn rules(&self) -> AddressRules {
        AddressRules {
            internal: AddressRule {
                networks: networks(&self.int_cidr),
                network_name: self.int_net.clone(),
                excluded: networks(&self.excl_int),
            },
            external: AddressRule {
                networks: networks(&self.ext_cidr),
                network_name: self.ext_net.clone(),
                excluded: networks(&self.excl_ext),
            },
        }
    }
}

/// Returns a metadata document of the Go program's tests, in this encoding.
fn metadata(addresses: &[String], encoding: &str) -> String {
    let header = "instance-id: i\nlocal-hostname: h\nwait-on-network:\n  ipv4: false\n  ipv6: false\n";
    let listed = match addresses {
        [] => "dhcp6: true".to_owned(),
        addresses => format!("addresses: [{}]", addresses.join(", ")),
    };
    let payload = format!(
        "version: 2\nethernets:\n  id0:\n    {listed}\n    match:\n      macaddress: 00:50:56:01:02:03\n    \
         set-name: eth0\n    wakeonlan: true\n    dhcp4: false\n"
    );
    let document = if encoding == "raw" {
        format!("{header}network:\n  {}", payload.replace('\n', "\n  "))
    } else {
        let bytes = if encoding.starts_with("gz") { gzip(payload.as_bytes()) } else { payload.into_bytes() };
        format!("{header}network.encoding: {encoding}\nnetwork: {}\n", BASE64.encode(bytes))
    };
    BASE64.encode(document)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn in_order(order: Vec<IpAddr>) -> Preferences {
    Preferences { listed: order, ..Preferences::default() }
}

/// Returns the chosen addresses without the host name, or the error text.
fn choose(
    nics: &[GuestNic],
    preferences: &Preferences,
    families: &[IpFamily],
    rules: &AddressRules,
) -> Result<Vec<(String, String)>, String> {
    let chosen = build_addresses(HOST, nics, preferences, families, rules).map_err(|error| error.to_string())?;
    let mut pairs: Vec<_> = chosen.addresses.into_iter().map(|address| (address.type_, address.address)).collect();
    assert_eq!(pairs.remove(0), ("Hostname".to_owned(), HOST.to_owned()));
    Ok(pairs)
}

/// Checks that `docs/compatibility.md` has a row for a difference from the Go program.
fn assert_has_row(id: &str, subject: &str) {
    let page = include_str!("../../../../../../docs/compatibility.md");
    assert!(page.contains(&format!("\n| {subject} |")), "{id}: no row {subject:?}");
}

// vectors: A01–A53
#[test]
fn a01_to_a53_hold() {
    let mut observed = 0;
    for line in include_str!("../../../../../../tests/golden/vectors/addresses.jsonl").lines() {
        let vector: Vector = serde_json::from_str(line).unwrap();
        let id = &vector.id;
        let families: Vec<_> = vector.fam.iter().map(|family| IpFamily::parse(family).unwrap()).collect();
        let nics: Vec<_> = vector.nics.iter().map(NicRow::nic).collect();
        let document = match (&vector.meta, &vector.addrs) {
            (Some(meta), _) => Some(BASE64.encode(meta)),
            (None, Some(addresses)) => Some(metadata(addresses, vector.netenc.as_deref().unwrap())),
            (None, None) => None,
        };
        let order = parse_static_order(document.as_deref(), Some("base64"));
        assert_eq!(matches!(order, Err(MetadataError::Shape { .. })), id == "A53", "{id}: {order:?}");
        let got = choose(&nics, &in_order(order.unwrap_or_default()), &families, &vector.cfg.rules());
        match (&vector.want, &vector.err, &vector.ours, &vector.differs) {
            (Some(want), None, None, None) => assert_eq!(got.as_ref(), Ok(want), "{id}"),
            (None, Some(part), None, None) => {
                assert!(got.as_ref().is_err_and(|text| text.contains(part)), "{id}: {got:?}");
            }
            (None, Some(_), Some(ours), Some(subject)) => {
                assert_eq!(got.as_ref(), Ok(ours), "{id} differs");
                assert_has_row(id, subject);
            }
            _ => panic!("{id}: want, or err, or err with ours and differs"),
        }
        observed += 1;
    }
    assert_eq!(observed, 53);
}

fn nic(network: &str, addresses: &[&str]) -> GuestNic {
    GuestNic {
        network: Some(network.to_owned()),
        ip_addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        device_config_id: 4000,
    }
}

fn two() -> Vec<GuestNic> {
    vec![nic("n1", &["10.0.0.1"]), nic("n2", &["10.0.1.1"])]
}

#[derive(Clone, Copy, Default)]
struct Set {
    int_cidr: &'static str,
    ext_cidr: &'static str,
    int_net: &'static str,
    ext_net: &'static str,
    excl_int: &'static str,
    excl_ext: &'static str,
}

impl Set {
    fn rules(self) -> AddressRules {
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        AddressRules {
            internal: AddressRule {
                networks: networks(self.int_cidr),
                network_name: name(self.int_net),
                excluded: networks(self.excl_int),
            },
            external: AddressRule {
                networks: networks(self.ext_cidr),
                network_name: name(self.ext_net),
                excluded: networks(self.excl_ext),
            },
        }
    }
}

/// Returns the addresses with their types, `I` for internal and `E` for external, or `!` and the reason.
fn outcome(nics: &[GuestNic], families: &[IpFamily], set: Set) -> String {
    match build_addresses(HOST, nics, &Preferences::default(), families, &set.rules()) {
        Err(error) => format!("!{}", error.reason()),
        Ok(chosen) => chosen
            .addresses
            .iter()
            .skip(1)
            .map(|address| format!("{}:{}", address.type_.chars().next().unwrap(), address.address))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// Id, reported interfaces, families, rules, and result.
type Row = (&'static str, Vec<GuestNic>, &'static [IpFamily], Set, &'static str);

// vectors: B1–B10, B16–B26
#[test]
fn b1_to_b26_hold() {
    use IpFamily::{V4, V6};
    let one = |addresses: &[&str]| vec![nic("n1", addresses)];
    let no_device = vec![GuestNic { device_config_id: -1, ..nic("n1", &["10.0.0.1"]) }];
    let none = Set::default();
    let names = |int_net, ext_net| Set { int_net, ext_net, ..none };
    let both = vec![nic("ÄB".to_lowercase().as_str(), &["10.0.0.1"]), nic("n2", &["10.0.1.1"])];
    let sharp = vec![nic("STRASSE", &["10.0.0.1"])];
    // B11 to B15 are in the tests of the configuration, and B27 to B40 in those of the guest metadata.
    let rows: Vec<Row> = vec![
        ("B1", two(), &[V4], names("zzz", ""), "I:10.0.0.1 E:10.0.0.1"),
        ("B2", two(), &[V4], Set { int_cidr: "192.168.0.0/16", ..none }, "I:10.0.0.1 E:10.0.0.1"),
        (
            // differs: Go rejects the node without a check of the CIDRs.
            "B3",
            two(),
            &[V4],
            Set { int_cidr: "10.0.0.0/24", ext_cidr: "10.0.1.0/24", ..names("zzz", "yyy") },
            "I:10.0.0.1 E:10.0.1.1",
        ),
        ("B4", vec![], &[V4], none, "!NoGuestNics"),
        ("B5", no_device, &[V4], none, "!NoUsableAddress"),
        ("B6", one(&["169.254.1.1", "fe80::1", "127.0.0.1"]), &[V4], none, "!NoUsableAddress"),
        ("B7", one(&["::ffff:10.0.0.9", "10.0.0.1"]), &[V4], none, "I:::ffff:10.0.0.9 E:::ffff:10.0.0.9"),
        ("B8", one(&["::ffff:10.0.0.9"]), &[V6], none, "!NoAddressOfFamily"),
        ("B9", one(&["fd00::1%eth0", "fd00::2"]), &[V6], none, "I:fd00::2 E:fd00::2"),
        ("B10", one(&["010.0.0.1", "10.0.0.2"]), &[V4], none, "I:10.0.0.2 E:10.0.0.2"),
        ("B16", one(&["10.0.0.1"]), &[], none, ""),
        ("B17", one(&["10.0.0.1"]), &[V4, V4], none, "I:10.0.0.1 E:10.0.0.1"),
        ("B18", one(&["10.0.0.1", "10.0.0.2"]), &[V4], Set { excl_int: "10.0.0.0/8", ..none }, "E:10.0.0.1"),
        ("B19", two(), &[V4], Set { excl_int: "10.0.0.0/24", ..names("n1", "n2") }, "E:10.0.1.1"),
        ("B20", two(), &[V4], Set { int_cidr: "10.0.1.0/24,10.0.0.0/24", ..none }, "I:10.0.1.1"),
        ("B21", two(), &[V4], Set { int_cidr: "10.0.0.77/24", ..none }, "I:10.0.0.1"),
        (
            "B22",
            two(),
            &[V4],
            Set { int_cidr: "10.0.0.0/24", ext_cidr: "10.0.0.0/24", ..none },
            "I:10.0.0.1 E:10.0.0.1",
        ),
        (
            "B23",
            one(&["10.0.0.1", "fd00::1"]),
            &[V4, V6],
            Set { int_cidr: "10.0.0.0/24", ..none },
            "I:10.0.0.1 I:fd00::1 E:fd00::1",
        ),
        (
            // differs: Go uses 224.0.1.5.
            "B24",
            one(&["224.0.0.5", "224.0.1.5", "255.255.255.255", "0.0.0.0", "10.0.0.1"]),
            &[V4],
            none,
            "I:10.0.0.1 E:10.0.0.1",
        ),
        // differs: Go uses ff05::1.
        ("B25", one(&["ff05::1", "ff02::5", "::", "::1", "fd00::1"]), &[V6], none, "I:fd00::1 E:fd00::1"),
        ("B26 match", both, &[V4], names("ÄB", "n2"), "I:10.0.0.1 E:10.0.1.1"),
        ("B26 no match", sharp, &[V4], names("straße", "n2"), "!NoNetworkMatches"),
    ];
    for (id, nics, families, set, want) in rows {
        assert_eq!(outcome(&nics, families, set), want, "{id}");
    }
    assert_has_row("B3", "network names that match no interface (B3, A27)");
    assert_has_row("B24, B25", "multicast and broadcast addresses (B24, B25)");
}

#[test]
fn w48_names_that_match_nothing_leave_what_cidrs_find_and_no_guess() {
    use IpFamily::{V4, V6};
    let names = Set { int_net: "zzz", ext_net: "yyy", ..Set::default() };
    let dual = [nic("n1", &["10.0.0.1", "fd00::1"])];
    for (case, families, set, want) in [
        ("one type by CIDR", [V4].as_slice(), Set { int_cidr: "10.0.0.0/24", ..names }, "I:10.0.0.1"),
        ("one family by CIDR", &[V4, V6], Set { int_cidr: "10.0.0.0/24", ..names }, "I:10.0.0.1"),
        ("CIDR without match", &[V4], Set { int_cidr: "10.9.0.0/24", ..names }, "!NoNetworkMatches"),
        ("A27, no CIDR", &[V4], names, "!NoNetworkMatches"),
        ("excluded", &[V4], Set { int_cidr: "10.0.0.0/8", excl_int: "10.0.0.0/8", ..names }, "!NoNetworkMatches"),
    ] {
        assert_eq!(outcome(&dual, families, set), want, "{case}");
    }
    let error = choose(&dual, &Preferences::default(), &[V4], &names.rules()).unwrap_err();
    for part in
        ["\"zzz\" or \"yyy\"", "\"n1\" [10.0.0.1 (in no configured CIDR), fd00::1 (of a family that is not requested)]"]
    {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn w48_a_family_that_is_missing_costs_that_family_and_none_that_is_known() {
    use IpFamily::{V4, V6};
    let held = |pairs: &[(&str, &str)]| Preferences {
        current: pairs.iter().map(|(type_, address)| node_address(type_, address)).collect(),
        ..Preferences::default()
    };
    let on_node = held(&[("InternalIP", "10.0.0.1"), ("InternalIP", "fd00::7"), ("ExternalIP", "fd00::8")]);
    let rules = AddressRules::default();
    let only_v4 = [nic("n1", &["10.0.0.1"])];
    let reported = |nics: &[GuestNic], preferences: &Preferences, rules: &AddressRules| {
        let chosen = build_addresses(HOST, nics, preferences, &[V6, V4], rules).unwrap();
        let texts: Vec<String> = chosen.addresses.into_iter().skip(1).map(|address| address.address).collect();
        (texts.join(" "), chosen.missing)
    };
    assert_eq!(reported(&only_v4, &held(&[]), &rules), ("10.0.0.1 10.0.0.1".to_owned(), vec![V6]), "a new node");
    assert_eq!(
        reported(&only_v4, &on_node, &rules),
        ("fd00::7 fd00::8 10.0.0.1 10.0.0.1".to_owned(), vec![V6]),
        "a node that had it, at its place"
    );
    let excluded = AddressRule { excluded: vec!["fd00::/16".parse().unwrap()], ..AddressRule::default() };
    let excluded = AddressRules { internal: excluded.clone(), external: excluded };
    assert_eq!(reported(&only_v4, &on_node, &excluded).0, "10.0.0.1 10.0.0.1", "what the rules exclude does not stay");
    let other = [nic("n1", &["10.0.0.1", "fd00::9"])];
    assert_eq!(
        reported(&other, &on_node, &rules).0,
        "fd00::9 fd00::9 10.0.0.1 10.0.0.1",
        "what the guest dropped goes"
    );
    let nothing = [nic("n1", &["fe80::1"])];
    let nothing = build_addresses(HOST, &nothing, &on_node, &[V6, V4], &rules).unwrap_err();
    assert_eq!(nothing.reason(), "NoUsableAddress", "a guest without any address changes nothing");
    let v6_only = build_addresses(HOST, &only_v4, &on_node, &[V6], &rules).unwrap_err();
    assert_eq!(v6_only.reason(), "NoAddressOfFamily", "at least one address of the guest is needed");
}

#[test]
fn an_address_stays_for_its_type() {
    let held =
        [("InternalIP", "10.0.0.2"), ("ExternalIP", "10.0.0.3")].map(|(type_, address)| node_address(type_, address));
    let listed = vec!["10.0.0.2".parse().unwrap()];
    let preferences = Preferences { current: held.to_vec(), listed, ..Preferences::default() };
    let nics = [nic("n1", &["10.0.0.1", "10.0.0.2", "10.0.0.3"])];
    let got = choose(&nics, &preferences, &[IpFamily::V4], &AddressRules::default()).unwrap();
    let want = held.map(|address| (address.type_, address.address));
    assert_eq!(got, want);
}

// vectors: H1
#[test]
fn h1_the_family_of_an_address() {
    for (text, want) in [("192.168.1.1", Some(true)), ("fd00:1::1", Some(false)), ("garbage", None)] {
        assert_eq!(parse_ip(text).map(|ip| ip.is_ipv4()), want, "{text}");
    }
    assert_eq!(IpFamily::parse("ipv7"), None);
}

// vectors: H2
#[test]
fn h2_the_order_of_cidrs_beats_that_of_addresses() {
    let picks = [
        ("10.11.0.0/16,10.10.0.0/16", ["192.168.1.1", "10.10.1.2", "10.10.1.3"].as_slice(), IpFamily::V4, "10.10.1.2"),
        (
            "fd00:100:64::/64,fd00:101:64::/64",
            &["fc11::1", "fd00:101:64::2", "fd00:100:64::1", "fd00:100:64::2"],
            IpFamily::V6,
            "fd00:100:64::1",
        ),
    ];
    for (int_cidr, addresses, family, want) in picks {
        let got = outcome(&[nic("n1", addresses)], &[family], Set { int_cidr, ..Set::default() });
        assert_eq!(got, format!("I:{want}"), "{int_cidr}");
    }
}

// vectors: H3
#[test]
fn h3_local_addresses_are_filtered_out() {
    let local = ["garbage", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "169.254.0.1", "fe80::1", "127.0.0.1", "::1"];
    for text in local {
        assert!(parse_ip(text).is_none_or(|ip| unusable(ip).is_some()), "{text}");
    }
    for text in ["192.168.1.1", "fd00:100:64::1"] {
        assert!(parse_ip(text).is_some_and(|ip| unusable(ip).is_none()), "{text}");
    }
}

/// B34, differs: Go compares texts, so it does not recognize an address that is not in canonical form.
// vectors: B34
#[test]
fn b34_an_address_is_recognized_however_it_is_written() {
    let nics = [nic("n1", &["fd01::9", "fd01:0:0:0:0:0:0:5"])];
    let order = in_order(vec!["fd01::5".parse().unwrap()]);
    let got = choose(&nics, &order, &[IpFamily::V6], &AddressRules::default());
    let want = ["InternalIP", "ExternalIP"].map(|type_| (type_.to_owned(), "fd01:0:0:0:0:0:0:5".to_owned()));
    assert_eq!(got, Ok(want.to_vec()), "as the guest writes it");
    assert_has_row("B34", "static addresses that the guest writes in another form (B34)");
}

#[test]
fn errors_say_what_was_looked_at() {
    let nics = [nic("n1", &["10.0.0.1", "fe80::1"]), GuestNic { device_config_id: -1, ..nic("cni0", &["10.244.0.1"]) }];
    let set = Set { excl_int: "10.0.0.0/8", excl_ext: "10.0.0.0/8", ..Set::default() };
    let error = choose(&nics, &Preferences::default(), &[IpFamily::V4], &set.rules()).unwrap_err();
    for part in [
        "ipv4",
        "\"n1\" [10.0.0.1 (excluded by 10.0.0.0/8), fe80::1 (link-local)]",
        "\"cni0\" (ignored: no virtual NIC) [10.244.0.1]",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let many: Vec<_> = (0..100).map(|index| nic(&format!("n{index}"), &["127.0.0.1"; 50])).collect();
    let error = choose(&many, &Preferences::default(), &[IpFamily::V4], &AddressRules::default()).unwrap_err();
    assert!(error.contains("and 92 more") && error.len() < 2000, "{error}");
}

#[test]
fn each_candidate_is_named_with_what_refused_it() {
    use IpFamily::{V4, V6};
    let reported = |addresses: &[&str], families: &[IpFamily], set: Set| {
        choose(&[nic("n1", addresses)], &Preferences::default(), families, &set.rules()).unwrap_err()
    };
    let names = Set { int_net: "zzz", ext_net: "yyy", ..Set::default() };
    let both = Set { excl_int: "10.0.0.0/8", excl_ext: "10.0.0.0/16", ..Set::default() };
    for (address, families, set, refusal) in [
        ("10.0.0.1%eth0", [V4].as_slice(), Set::default(), "not an address"),
        ("0.0.0.0", &[V4], Set::default(), "unspecified"),
        ("127.0.0.1", &[V4], Set::default(), "loopback"),
        ("ff05::1", &[V6], Set::default(), "multicast"),
        ("255.255.255.255", &[V4], Set::default(), "broadcast"),
        ("fe80::1", &[V6], Set::default(), "link-local"),
        ("fd00::1", &[V4], Set::default(), "of a family that is not requested"),
        ("10.0.0.1", &[V4], both, "excluded by 10.0.0.0/8 as InternalIP and by 10.0.0.0/16 as ExternalIP"),
        ("10.0.0.1", &[V4, V6], Set { excl_ext: "10.0.0.0/8", ..both }, "excluded by 10.0.0.0/8"),
        ("10.0.0.1", &[V4], names, "in no configured CIDR"),
        (
            "10.0.0.1",
            &[V4],
            Set { excl_int: "10.0.0.0/8", ..names },
            "excluded by 10.0.0.0/8 as InternalIP, not named for ExternalIP",
        ),
        (
            "10.0.0.1",
            &[V4],
            Set { excl_ext: "10.0.0.0/8", ..names },
            "excluded by 10.0.0.0/8 as ExternalIP, not named for InternalIP",
        ),
    ] {
        let error = reported(&[address], families, set);
        assert!(error.ends_with(&format!("\"n1\" [{address} ({refusal})]")), "{error}");
    }
    let long = "x".repeat(10_000);
    let error = reported(&[long.as_str(); 100], &[V4], Set::default());
    assert!(error.contains("… (not an address)") && error.contains("and 92 more") && error.len() < 1_500, "{error}");
}

proptest! {
    #[test]
    fn only_reported_addresses_outside_the_exclusions_are_chosen(
        octets in proptest::collection::vec((0u8..3, 0u8..3), 1..8),
        excluded in 0u8..3,
    ) {
        let texts: Vec<String> = octets.iter().map(|(a, b)| format!("10.{a}.0.{b}")).collect();
        let reported: Vec<&str> = texts.iter().map(String::as_str).collect();
        let network: IpNet = format!("10.{excluded}.0.0/16").parse().unwrap();
        let rules = AddressRules {
            internal: AddressRule { excluded: vec![network], ..AddressRule::default() },
            external: AddressRule { excluded: vec![network], ..AddressRule::default() },
        };
        match choose(&[nic("n", &reported)], &Preferences::default(), &[IpFamily::V4], &rules) {
            Ok(pairs) => {
                for (_, address) in pairs {
                    prop_assert!(reported.contains(&address.as_str()));
                    prop_assert!(!network.contains(&address.parse::<IpAddr>().unwrap()));
                }
            }
            Err(_) => prop_assert!(octets.iter().all(|(a, _)| *a == excluded)),
        }
    }

    #[test]
    fn interfaces_without_a_virtual_nic_never_give_addresses(
        nics in proptest::collection::vec(
            (any::<bool>(), proptest::option::of("n[12]"), proptest::collection::vec((0u8..3, any::<u8>()), 0..4)),
            0..6,
        ),
        set in proptest::sample::select(vec!["", "10.0.0.0/8", "10.1.0.0/16"]),
        names in any::<bool>(),
        held in 0u8..3,
    ) {
        let nics: Vec<GuestNic> = nics
            .into_iter()
            .map(|(is_real, network, octets)| GuestNic {
                // The third octet is 1 on an interface with a virtual NIC, and 2 on an interface of the guest only.
                ip_addresses: octets.iter().map(|(a, b)| format!("10.{a}.{}.{b}", if is_real { 1 } else { 2 })).collect(),
                device_config_id: if is_real { 4000 } else { -1 },
                network,
            })
            .collect();
        let network_name = names.then(|| "n1".to_owned());
        let rule = AddressRule { networks: networks(set), network_name, excluded: Vec::new() };
        let rules = AddressRules { internal: rule.clone(), external: rule };
        // An address of a bridge is not chosen even if all preferences name it.
        let bridge = format!("10.{held}.2.1");
        let preferences = Preferences {
            current: vec![node_address("InternalIP", &bridge)],
            listed: vec![bridge.parse().unwrap()],
            provided: vec![bridge.parse().unwrap()],
            ..Preferences::default()
        };
        if let Ok(pairs) = choose(&nics, &preferences, &[IpFamily::V4], &rules) {
            for (_, address) in pairs {
                prop_assert_eq!(address.parse::<Ipv4Addr>().unwrap().octets()[2], 1, "{}", address);
            }
        }
    }
}

#[test]
fn a_network_name_with_commas_is_one_name_where_an_interface_is_on_it_else_several() {
    let on = |network: &str, address: &str| GuestNic {
        network: Some(network.to_owned()),
        ip_addresses: vec![address.to_owned()],
        device_config_id: 4000,
    };
    let (a, b) = (|| on("LAN-A", "10.0.0.1"), || on("lan-b", "10.0.0.2"));
    let (whole, other) = (|| on("LAN-A,LAN-B", "10.0.0.3"), || on("LAN-C", "10.0.0.4"));
    let name = |name: &str| AddressRule { network_name: Some(name.to_owned()), ..AddressRule::default() };
    let both = |text: &str| AddressRules { internal: name(text), external: name("LAN-C") };
    let internal = |nics: &[GuestNic], rules: &AddressRules, held: &str| {
        let held = if held.is_empty() { Vec::new() } else { vec![node_address(INTERNAL_IP, held)] };
        let preferences = Preferences { current: held, ..Preferences::default() };
        let chosen = build_addresses("n", nics, &preferences, &[IpFamily::V4], rules).map_err(|error| error.reason());
        chosen.map(|chosen| {
            let found = chosen.addresses.into_iter().find(|address| address.type_ == INTERNAL_IP);
            found.map(|address| address.address).unwrap_or_default()
        })
    };
    let list = both("LAN-A, LAN-B");
    for (case, nics, rules, held, expected) in [
        ("the whole name", vec![a(), b(), whole(), other()], both("LAN-A,LAN-B"), "", Ok("10.0.0.3")),
        ("the first part, whatever the order", vec![other(), b(), a()], list.clone(), "", Ok("10.0.0.1")),
        ("the second part", vec![other(), b()], list.clone(), "", Ok("10.0.0.2")),
        ("what the node has stays", vec![other(), b(), a()], list.clone(), "10.0.0.2", Ok("10.0.0.2")),
        (
            "no part",
            vec![other()],
            AddressRules { external: name("LAN-D"), ..list.clone() },
            "",
            Err(reason::NoNetworkMatches),
        ),
        (
            "a part of both",
            vec![a()],
            AddressRules { external: name("LAN-D,LAN-E"), ..list.clone() },
            "",
            Ok("10.0.0.1"),
        ),
        ("a comma at the end", vec![other(), a()], both("LAN-A,"), "", Ok("10.0.0.1")),
        ("no part of it is a name", vec![other(), a()], both(","), "", Ok("")),
    ] {
        assert_eq!(internal(&nics, &rules, held), expected.map(str::to_owned), "{case}");
    }
    // The rule for internal addresses has another name.
    let external = AddressRules { internal: name("LAN-C"), external: name("LAN-A,LAN-B") };
    let chosen = build_addresses("n", &[other(), b()], &Preferences::default(), &[IpFamily::V4], &external).unwrap();
    assert!(chosen.addresses.contains(&node_address(EXTERNAL_IP, "10.0.0.2")), "{chosen:?}");
}

#[test]
fn an_interface_of_the_guest_is_believed_only_for_what_the_kubelet_uses() {
    let nic = |device_config_id, addresses: &[&str]| GuestNic {
        network: (device_config_id != -1).then(|| "LAN".to_owned()),
        ip_addresses: addresses.iter().map(|text| (*text).to_owned()).collect(),
        device_config_id,
    };
    let nics = [nic(4000, &["10.0.0.1"]), nic(-1, &["10.0.1.9", "fd00::9", "10.244.0.1"])];
    for (provided, expected) in [
        (vec![], vec!["10.0.0.1"]),
        (vec!["10.0.1.9"], vec!["10.0.0.1", "10.0.1.9"]),
        (vec!["10.0.1.9", "fd00::9"], vec!["10.0.0.1", "10.0.1.9", "fd00::9"]),
        (vec!["10.0.0.1"], vec!["10.0.0.1"]),
        (vec!["10.0.9.9"], vec!["10.0.0.1"]),
    ] {
        let provided: Vec<IpAddr> = provided.iter().map(|text| text.parse().unwrap()).collect();
        let believed = with_guest_interfaces(&nics, &provided);
        let candidates: Vec<String> = candidate_ips(&believed).map(|ip| ip.to_string()).collect();
        assert_eq!(candidates, expected, "{provided:?}");
    }
}
