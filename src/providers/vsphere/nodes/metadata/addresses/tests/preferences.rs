//! Tests of the preferences: provided node IPs, existing addresses of the Node, and addresses that are not virtual.
//! There are single cases, and properties over random guests, rules and Nodes that compare with a simple form of the
//! rules.

use std::collections::BTreeSet;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Parses the addresses of a Node, written as in the results.
fn on_node(held: &str) -> Vec<NodeAddress> {
    held.split_whitespace()
        .map(|item| match item.split_once(':').unwrap() {
            ("I", address) => node_address(INTERNAL_IP, address),
            (_, address) => node_address(EXTERNAL_IP, address),
        })
        .collect()
}

fn told(chosen: &ChosenAddresses) -> String {
    let addresses = chosen.addresses.iter().skip(1);
    addresses.map(|one| format!("{}:{}", one.type_.chars().next().unwrap(), one.address)).collect::<Vec<_>>().join(" ")
}

fn prefer(nics: &[GuestNic], families: &[IpFamily], set: Set, preferences: &Preferences) -> ChosenAddresses {
    build_addresses(HOST, nics, preferences, families, &set.rules()).unwrap()
}

/// The address `10.0.0.100` may be virtual. The other addresses belong to the VM.
#[test]
fn a_virtual_address_gives_way_to_what_the_rules_allow_in_its_place() {
    let vip = ["10.0.0.100"];
    let none = Set::default();
    let first = || vec![nic("n1", &["10.0.0.100", "10.0.0.1"])];
    let apart = || vec![nic("n1", &["10.0.0.100"]), nic("n2", &["10.0.1.1"])];
    let int = |int_cidr| Set { int_cidr, ..none };
    for (case, nics, set, held, listed, want) in [
        ("first found", first(), none, "", "", "I:10.0.0.1 E:10.0.0.1"),
        ("alone", vec![nic("n1", &vip)], none, "", "", "I:10.0.0.100 E:10.0.0.100"),
        (
            "no other of its family",
            vec![nic("n1", &["10.0.0.100", "fd00::1"])],
            none,
            "",
            "",
            "I:10.0.0.100 E:10.0.0.100",
        ),
        ("in a CIDR with another", first(), int("10.0.0.0/24"), "", "", "I:10.0.0.1"),
        ("in the first of two CIDRs", apart(), int("10.0.0.0/24,10.0.1.0/24"), "", "", "I:10.0.1.1"),
        ("the only one in the CIDR", apart(), int("10.0.0.0/24"), "", "", "I:10.0.0.100"),
        (
            "in the CIDR, another on the name",
            apart(),
            Set { int_net: "n2", ..int("10.0.0.0/24") },
            "",
            "",
            "I:10.0.0.100",
        ),
        ("by name", apart(), Set { int_net: "n1", ..none }, "", "", "I:10.0.0.100"),
        ("by name with another", first(), Set { int_net: "n1", ..none }, "", "", "I:10.0.0.1"),
        ("the other is excluded", first(), Set { excl_int: "10.0.0.1/32", ..none }, "", "", "I:10.0.0.100 E:10.0.0.1"),
        ("first of the guest metadata", first(), none, "", "10.0.0.100 10.0.0.1", "I:10.0.0.1 E:10.0.0.1"),
        ("on the node for both types", first(), none, "I:10.0.0.100 E:10.0.0.100", "", "I:10.0.0.100 E:10.0.0.100"),
        ("on the node for one type", first(), none, "I:10.0.0.100", "", "I:10.0.0.100 E:10.0.0.1"),
    ] {
        let preferences = Preferences {
            current: on_node(held),
            demoted: vip.map(ip).into(),
            listed: listed.split_whitespace().map(ip).collect(),
            ..Preferences::default()
        };
        let chosen = prefer(&nics, &[IpFamily::V4], set, &preferences);
        assert_eq!(told(&chosen), want, "{case}");
        let before =
            prefer(&nics, &[IpFamily::V4], set, &Preferences { demoted: HashSet::new(), ..preferences.clone() });
        let is_passed_over = told(&before) != want;
        assert_eq!(chosen.passed_over, if is_passed_over { vec![ip(vip[0])] } else { vec![] }, "{case}");
        assert_eq!(before.passed_over, [] as [IpAddr; 0], "{case}");
    }
}

#[test]
fn a_provided_node_ip_wins_where_the_guest_has_it() {
    use IpFamily::{V4, V6};
    let none = Set::default();
    let guest = || {
        let real =
            vec![nic("n1", &["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"]), nic("n2", &["192.0.2.7", "fe80::1"])];
        let bridge = GuestNic { device_config_id: -1, ..nic("cni0", &["10.244.0.1"]) };
        real.into_iter().chain([bridge]).collect::<Vec<_>>()
    };
    let (v4, both): (&[IpFamily], &[IpFamily]) = (&[V4], &[V4, V6]);
    for (case, families, set, held, provided, want) in [
        ("before the first found", v4, none, "", "10.0.0.2", "I:10.0.0.2 E:10.0.0.1"),
        ("before what the node has", v4, none, "I:10.0.0.1 E:10.0.0.1", "10.0.0.2", "I:10.0.0.2 E:10.0.0.1"),
        (
            "beside the ExternalIP that the node has",
            v4,
            none,
            "I:10.0.0.1 E:10.0.0.2",
            "10.0.0.2",
            "I:10.0.0.2 E:10.0.0.2",
        ),
        (
            "as the ExternalIP alone, excluded for the other",
            v4,
            Set { excl_int: "10.0.0.2/32", ..none },
            "I:10.0.0.1 E:10.0.0.2",
            "10.0.0.2",
            "I:10.0.0.1 E:10.0.0.2",
        ),
        ("before the CIDRs", v4, Set { int_cidr: "10.0.0.1/32", ..none }, "", "10.0.0.2", "I:10.0.0.2"),
        ("before the name", v4, Set { int_net: "n1", ..none }, "", "192.0.2.7", "I:192.0.2.7"),
        ("where the names match nothing", v4, Set { int_net: "x", ext_net: "y", ..none }, "", "10.0.0.2", "I:10.0.0.2"),
        (
            "as the ExternalIP that it is by the rules, which allow the other, too",
            v4,
            Set { int_cidr: "10.0.0.0/24", ext_cidr: "10.0.0.2/32", ..none },
            "",
            "10.0.0.2",
            "I:10.0.0.1 E:10.0.0.2",
        ),
        (
            "as the ExternalIP that it is by the rules",
            v4,
            Set { int_cidr: "10.0.0.0/24", ext_cidr: "192.0.2.0/24", ..none },
            "",
            "192.0.2.7",
            "I:10.0.0.1 E:192.0.2.7",
        ),
        ("one of each family", both, none, "", "fd00::2,10.0.0.2", "I:10.0.0.2 E:10.0.0.1 I:fd00::2 E:fd00::1"),
        ("of a family that ip-family lacks", v4, none, "", "10.0.0.1,fd00::2", "I:10.0.0.1 E:10.0.0.1 I:fd00::2"),
        ("not on the machine", v4, none, "", "10.0.0.9", "I:10.0.0.1 E:10.0.0.1"),
        ("excluded", v4, Set { excl_int: "10.0.0.2/32", ..none }, "", "10.0.0.2", "I:10.0.0.1 E:10.0.0.1"),
        ("on an interface without virtual NIC", v4, none, "", "10.244.0.1", "I:10.0.0.1 E:10.0.0.1"),
        ("link-local", both, none, "", "fe80::1", "I:10.0.0.1 E:10.0.0.1 I:fd00::1 E:fd00::1"),
    ] {
        let preferences = Preferences {
            current: on_node(held),
            // A provided address takes precedence although it may be virtual.
            demoted: [ip("10.0.0.2"), ip("fd00::2")].into(),
            provided: provided.split(',').map(ip).collect(),
            ..Preferences::default()
        };
        let chosen = prefer(&guest(), families, set, &preferences);
        assert_eq!(told(&chosen), want, "{case}");
        let refused: Vec<String> =
            chosen.refused_provided.into_iter().map(|(ip, reason)| format!("{ip}: {reason}")).collect();
        let expected: &[&str] = match case {
            "excluded" => &["10.0.0.2: 10.0.0.2/32 is excluded for InternalIP"],
            "on an interface without virtual NIC" => {
                &["10.244.0.1: its interface (\"cni0\") has no virtual NIC; --trust-guest-interfaces believes it"]
            }
            "link-local" => &["fe80::1: it is link-local"],
            _ => &[],
        };
        assert_eq!(refused, expected, "{case}");
    }
}

#[test]
fn what_the_node_has_stays_within_what_the_rules_name() {
    let apart = [nic("n1", &["10.0.0.1"]), nic("n2", &["10.0.1.1", "10.0.2.1"])];
    let none = Set::default();
    for (case, set, held, want) in [
        ("in the second CIDR", Set { int_cidr: "10.0.0.0/24,10.0.1.0/24", ..none }, "I:10.0.1.1", "I:10.0.1.1"),
        ("in no CIDR", Set { int_cidr: "10.0.0.0/24,10.0.1.0/24", ..none }, "I:10.0.2.1", "I:10.0.0.1"),
        ("on the name", Set { int_net: "n2", ..none }, "I:10.0.2.1", "I:10.0.2.1"),
        ("on another name", Set { int_net: "n1", ..none }, "I:10.0.2.1", "I:10.0.0.1"),
        ("found first once", none, "I:10.0.2.1 E:10.0.1.1", "I:10.0.2.1 E:10.0.1.1"),
        ("excluded now", Set { excl_int: "10.0.2.0/24", ..none }, "I:10.0.2.1 E:10.0.1.1", "I:10.0.1.1 E:10.0.1.1"),
        ("not reported any more", none, "I:10.0.9.1 E:10.0.1.1", "I:10.0.1.1 E:10.0.1.1"),
    ] {
        let preferences = Preferences { current: on_node(held), ..Preferences::default() };
        assert_eq!(told(&prefer(&apart, &[IpFamily::V4], set, &preferences)), want, "{case}");
    }
    let spellings = [nic("n1", &["fd00:0:0::1", "fd00::1"])];
    let preferences = Preferences { current: on_node("I:fd00::1"), ..Preferences::default() };
    let chosen = prefer(&spellings, &[IpFamily::V6], Set { int_cidr: "fd00::/16", ..none }, &preferences);
    assert_eq!(told(&chosen), "I:fd00::1", "the spelling on the node stays");
}

/// A guest, rules, and preferences.
#[derive(Clone, Debug)]
struct Case {
    nics: Vec<GuestNic>,
    /// The same guest with its interfaces and addresses in another order.
    shuffled: Vec<GuestNic>,
    families: Vec<IpFamily>,
    rules: AddressRules,
    preferences: Preferences,
}

impl Case {
    fn choose(&self) -> Result<ChosenAddresses, AddressError> {
        build_addresses(HOST, &self.nics, &self.preferences, &self.families, &self.rules)
    }

    fn without_demotion(&self) -> Self {
        Self { preferences: Preferences { demoted: HashSet::new(), ..self.preferences.clone() }, ..self.clone() }
    }

    fn rule(&self, type_: &str) -> &AddressRule {
        if type_ == INTERNAL_IP { &self.rules.internal } else { &self.rules.external }
    }

    /// Returns all usable addresses of the family that are not excluded for the type, with their networks, in order.
    fn allowed(&self, type_: &str, family: IpFamily) -> Vec<(IpAddr, Option<&str>)> {
        let of = |nic: &GuestNic| nic.ip_addresses.iter().map(|text| ip(text)).collect::<Vec<_>>();
        let is_allowed = |ip: &IpAddr| {
            ip.is_ipv4() == (family == IpFamily::V4)
                && !ip.is_loopback()
                && !self.rule(type_).excluded.iter().any(|network| network.contains(ip))
        };
        let real = self.nics.iter().filter(|nic| nic.device_config_id != -1);
        real.flat_map(|nic| of(nic).into_iter().map(move |ip| (ip, nic.network.as_deref())))
            .filter(|(ip, _)| is_allowed(ip))
            .collect()
    }

    /// Returns the addresses that the rule selects by CIDR. If there are none, those that it selects by network name.
    fn named(&self, type_: &str, family: IpFamily) -> Vec<IpAddr> {
        let rule = self.rule(type_);
        let is_in = |ip: &IpAddr| rule.networks.iter().any(|network| network.contains(ip));
        let allowed = self.allowed(type_, family);
        let by_cidr: Vec<IpAddr> = allowed.iter().map(|(ip, _)| *ip).filter(is_in).collect();
        let is_on = |network: &Option<&str>| network.is_some() && *network == rule.network_name.as_deref();
        if by_cidr.is_empty() {
            allowed.into_iter().filter(|(_, network)| is_on(network)).map(|(ip, _)| ip).collect()
        } else {
            by_cidr
        }
    }

    /// Returns the addresses that may be chosen.
    fn pool(&self, type_: &str, family: IpFamily) -> Vec<IpAddr> {
        let is_named = |type_| !self.named(type_, family).is_empty();
        if is_named(INTERNAL_IP) || is_named(EXTERNAL_IP) || !self.may_guess() {
            self.named(type_, family)
        } else {
            self.allowed(type_, family).into_iter().map(|(ip, _)| ip).collect()
        }
    }

    fn may_guess(&self) -> bool {
        let names = [&self.rules.internal, &self.rules.external].map(|rule| rule.network_name.as_deref());
        let is_there = |name| self.nics.iter().any(|nic| nic.device_config_id != -1 && nic.network.as_deref() == name);
        names.contains(&None) || names.into_iter().any(is_there)
    }

    /// Returns the address that the Go program chooses from the pool.
    fn by_go(&self, type_: &str, family: IpFamily) -> Option<IpAddr> {
        let mut pool = self.pool(type_, family);
        let listed = &self.preferences.listed;
        pool.sort_by_key(|ip| listed.iter().position(|other| other == ip).unwrap_or(usize::MAX));
        let networks = &self.rule(type_).networks;
        let in_network = |network: &IpNet| pool.iter().find(|ip| network.contains(*ip));
        networks.iter().find_map(in_network).or_else(|| pool.first()).copied()
    }

    fn held(&self, type_: &str) -> Vec<IpAddr> {
        let of_type = self.preferences.current.iter().filter(|address| address.type_ == type_);
        of_type.map(|address| ip(&address.address)).collect()
    }

    /// Returns the chosen address, if the guest reports it.
    fn chosen(&self, type_: &str, family: IpFamily) -> Option<IpAddr> {
        let chosen = self.choose().ok()?;
        let of_type = chosen.addresses.iter().filter(|address| address.type_ == type_);
        let mut of_family = of_type.map(|address| ip(&address.address)).filter(|ip| IpFamily::of(*ip) == family);
        of_family.next().filter(|ip| candidate_ips(&self.nics).any(|other| other == *ip))
    }

    fn places(&self) -> impl Iterator<Item = (&'static str, IpFamily)> {
        let families = self.families.clone();
        [INTERNAL_IP, EXTERNAL_IP]
            .into_iter()
            .flat_map(move |type_| families.clone().into_iter().map(move |f| (type_, f)))
    }
}

fn an_address() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (0u8..3, 1u8..4).prop_map(|(net, host)| format!("10.0.{net}.{host}")),
        4 => (0u8..2, 1u8..3).prop_map(|(net, host)| format!("fd00:{net}::{host}")),
        1 => Just("127.0.0.1".to_owned()),
    ]
}

fn a_network() -> impl Strategy<Value = IpNet> {
    let of = ["10.0.0.0/24", "10.0.1.0/24", "10.0.0.0/16", "10.0.2.1/32", "fd00:0::/32", "fd00:1::/32"];
    proptest::sample::select(of.to_vec()).prop_map(|text| text.parse().unwrap())
}

fn a_rule() -> impl Strategy<Value = AddressRule> {
    let networks = proptest::collection::vec(a_network(), 0..3);
    let excluded = proptest::collection::vec(a_network(), 0..2);
    (networks, proptest::option::of("n[123]"), excluded).prop_map(|(networks, network_name, excluded)| AddressRule {
        networks,
        network_name,
        excluded,
    })
}

fn a_guest() -> impl Strategy<Value = Vec<GuestNic>> {
    let addresses = proptest::collection::vec(an_address(), 0..5);
    let nic = (proptest::option::of("n[12]"), addresses, prop_oneof![4 => Just(4000), 1 => Just(-1)]);
    let nic =
        nic.prop_map(|(network, ip_addresses, device_config_id)| GuestNic { network, ip_addresses, device_config_id });
    proptest::collection::vec(nic, 1..4)
}

fn a_case() -> impl Strategy<Value = Case> {
    use IpFamily::{V4, V6};
    let families = proptest::sample::select(vec![vec![V4], vec![V6], vec![V4, V6], vec![V6, V4]]);
    let rules = (a_rule(), a_rule()).prop_map(|(internal, external)| AddressRules { internal, external });
    let guest = a_guest().prop_flat_map(|nics| (Just(nics.clone()), Just(nics).prop_shuffle(), 0usize..5));
    let some = || proptest::collection::vec(an_address().prop_map(|text| ip(&text)), 0..5);
    let held = proptest::collection::vec((any::<bool>(), an_address()), 0..4);
    (guest, families, rules, held, some(), some()).prop_map(|(guest, families, rules, held, demoted, listed)| {
        let (nics, mut shuffled, turn) = guest;
        for nic in &mut shuffled {
            let by = turn.min(nic.ip_addresses.len());
            nic.ip_addresses.rotate_left(by);
        }
        let type_ = |is_internal| if is_internal { INTERNAL_IP } else { EXTERNAL_IP };
        let held = held.into_iter().map(|(is_internal, text)| node_address(type_(is_internal), &text)).collect();
        let preferences =
            Preferences { current: held, demoted: demoted.into_iter().collect(), listed, ..Preferences::default() };
        Case { nics, shuffled, families, rules, preferences }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_the_node_has_stays_while_it_is_reported_and_allowed(case in a_case()) {
        for (type_, family) in case.places() {
            let pool = case.pool(type_, family);
            if let Some(stays) = case.held(type_).into_iter().find(|ip| pool.contains(ip)) {
                prop_assert_eq!(case.chosen(type_, family), Some(stays), "{} {}", type_, family);
            }
        }
    }

    #[test]
    fn the_order_of_the_report_moves_nothing_that_the_node_has(case in a_case()) {
        let other = Case { nics: case.shuffled.clone(), ..case.clone() };
        prop_assert_eq!(case.choose().is_ok(), other.choose().is_ok());
        for (type_, family) in case.places() {
            let chosen = case.chosen(type_, family);
            if chosen.is_some_and(|ip| case.held(type_).contains(&ip)) {
                prop_assert_eq!(other.chosen(type_, family), chosen, "{} {}", type_, family);
            }
        }
    }

    #[test]
    fn demotion_takes_no_family_and_no_type(case in a_case()) {
        let all = |case: &Case| case.places().map(|(type_, family)| case.chosen(type_, family).is_some()).collect::<Vec<_>>();
        let before = case.without_demotion();
        prop_assert_eq!(all(&case), all(&before));
        let reason = |case: &Case| case.choose().map_err(|error| error.reason()).map(|chosen| chosen.missing);
        prop_assert_eq!(reason(&case), reason(&before));
    }

    #[test]
    fn a_demoted_address_is_chosen_only_where_the_node_has_it_or_nothing_else_may_be(case in a_case()) {
        for (type_, family) in case.places() {
            let Some(ip) = case.chosen(type_, family) else { continue };
            let pool: BTreeSet<IpAddr> = case.pool(type_, family).into_iter().collect();
            prop_assert!(pool.contains(&ip), "{}", ip);
            if case.preferences.demoted.contains(&ip) && !case.held(type_).contains(&ip) {
                prop_assert!(pool.iter().all(|ip| case.preferences.demoted.contains(ip)), "{} of {:?}", ip, pool);
            }
        }
    }

    #[test]
    fn without_demotion_a_new_node_gets_what_the_go_program_chooses(case in a_case()) {
        let preferences = Preferences { listed: case.preferences.listed.clone(), ..Preferences::default() };
        let case = Case { preferences, ..case };
        let expected: Vec<_> = case.places().map(|(type_, family)| case.by_go(type_, family)).collect();
        let chosen: Vec<_> = case.places().map(|(type_, family)| case.chosen(type_, family)).collect();
        prop_assert_eq!(chosen, expected);
    }

    #[test]
    fn a_provided_address_of_the_guest_is_on_the_node_unless_it_is_excluded(case in a_case(), provided in an_address()) {
        let provided = ip(&provided);
        let preferences = Preferences { provided: vec![provided], ..case.preferences.clone() };
        let case = Case { preferences, ..case };
        let is_excluded = case.rules.internal.excluded.iter().any(|network| network.contains(&provided));
        if candidate_ips(&case.nics).any(|ip| ip == provided) && !is_excluded {
            let addresses = case.choose().unwrap().addresses;
            prop_assert!(addresses.iter().skip(1).any(|one| ip(&one.address) == provided), "{:?}", addresses);
        }
    }
}
