//! Tests that a configuration gives the same settings in INI and in YAML.

use super::*;

/// A value that can be written in both dialects.
#[derive(Clone, Debug)]
enum WrittenValue {
    Text(String),
    Flag(bool),
    Number(u16),
    List(Vec<String>),
    Map(std::collections::BTreeMap<String, String>),
}

type Fields = Vec<(&'static str, WrittenValue)>;

#[derive(Clone, Debug)]
struct Model {
    global: Fields,
    vcenters: Vec<(String, Fields)>,
    labels: Fields,
    nodes: Fields,
    /// Sections of NSX: name in INI, name in YAML, and fields.
    nsx: Vec<(&'static str, &'static str, Fields)>,
}

impl WrittenValue {
    fn ini(&self) -> String {
        match self {
            Self::Text(text) => {
                let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
                format!("\"{text}\"")
            }
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::List(items) => items.join(","),
            Self::Map(_) => Self::Text(self.yaml()).ini(),
        }
    }

    /// Returns the value as JSON, which is valid YAML.
    fn yaml(&self) -> String {
        match self {
            Self::Text(text) => serde_json::to_string(text).unwrap(),
            Self::Flag(flag) => flag.to_string(),
            Self::Number(number) => number.to_string(),
            Self::List(items) => serde_json::to_string(items).unwrap(),
            Self::Map(entries) => serde_json::to_string(entries).unwrap(),
        }
    }
}

impl Model {
    fn ini(&self) -> String {
        let fields = |fields: &Fields| {
            fields.iter().map(|(key, value)| format!("{key} = {}\n", value.ini())).collect::<String>()
        };
        let vcenters: Vec<_> =
            self.vcenters.iter().map(|(key, own)| format!("[VirtualCenter \"{key}\"]\n{}", fields(own))).collect();
        let (global, labels, nodes) = (fields(&self.global), fields(&self.labels), fields(&self.nodes));
        let nsx: String = self.nsx.iter().map(|(name, _, own)| format!("[{name}]\n{}", fields(own))).collect();
        format!("[Global]\n{global}{}[Labels]\n{labels}[Nodes]\n{nodes}{nsx}", vcenters.concat())
    }

    fn yaml(&self) -> String {
        let fields = |indent: &str, fields: &Fields| {
            let line = |(key, value): &(&str, WrittenValue)| format!("{indent}{}: {}\n", camel_case(key), value.yaml());
            fields.iter().map(line).collect::<String>()
        };
        let entries: Vec<_> =
            self.vcenters.iter().map(|(key, own)| format!("  {key}:\n{}", fields("    ", own))).collect();
        let (global, labels, nodes) =
            (fields("  ", &self.global), fields("  ", &self.labels), fields("  ", &self.nodes));
        let nsx: String = self.nsx.iter().map(|(_, name, own)| format!("{name}:\n{}", fields("    ", own))).collect();
        format!("global:\n{global}vcenter:\n{}labels:\n{labels}nodes:\n{nodes}{nsx}", entries.concat())
    }
}

pub(super) fn camel_case(kebab: &str) -> String {
    let mut words = kebab.split('-');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(1);
        name + &initial.to_uppercase() + rest
    })
}

/// Generates texts that both dialects can hold. INI drops carriage returns, so there are none.
fn text() -> impl Strategy<Value = WrittenValue> {
    prop_oneof![Just(String::new()), "[ -~\t\n\u{e9}\u{4e2d}]{1,12}", "[;#\"'\\\\=:@{}\\[\\]&*!|>%, -]{1,6}"]
        .prop_map(WrittenValue::Text)
}

fn list(items: &'static [&'static str]) -> impl Strategy<Value = WrittenValue> {
    proptest::collection::vec(proptest::sample::select(items).prop_map(str::to_owned), 0..4)
        .prop_map(WrittenValue::List)
}

fn fixed(texts: &'static [&'static str]) -> impl Strategy<Value = WrittenValue> {
    proptest::sample::select(texts).prop_map(|text| WrittenValue::Text(text.to_owned()))
}

const FAMILIES: &[&str] = &["ipv4", "IPv6", " ipv4 ", "ipv6"];
const NETWORKS: &[&str] = &["", "10.0.0.0/8", "10.0.0.0/8, fd00::/64,", "192.168.1.1/24"];
const SERVERS: &[&str] = &["", "s1", "s2.example.com", "10.0.0.1", "fd00::1", "[fd00::2]"];
const THUMBPRINTS: &[&str] = &[
    "",
    "00112233445566778899aabbccddeeff00112233",
    "00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33 , 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
];

/// Generates a subset of the fields of `all`.
fn some_of(all: Vec<(&'static str, BoxedStrategy<WrittenValue>)>) -> BoxedStrategy<Fields> {
    let one = all
        .into_iter()
        .map(|(key, value)| proptest::option::of(value).prop_map(move |value| value.map(|value| (key, value))));
    one.collect::<Vec<_>>().prop_map(|fields| fields.into_iter().flatten().collect()).boxed()
}

fn vcenter_fields() -> Vec<(&'static str, BoxedStrategy<WrittenValue>)> {
    vec![
        ("user", text().boxed()),
        ("password", text().boxed()),
        ("port", (1..u16::MAX).prop_map(WrittenValue::Number).boxed()),
        ("insecure-flag", any::<bool>().prop_map(WrittenValue::Flag).boxed()),
        ("datacenters", list(&["d1", "d 2", "/f/d3", ""]).boxed()),
        ("soap-roundtrip-count", (0..9u16).prop_map(WrittenValue::Number).boxed()),
        ("ca-file", fixed(&["", "/a.pem", "/a.pem:/b c.pem"]).boxed()),
        ("thumbprint", fixed(THUMBPRINTS).boxed()),
        ("secret-name", text().boxed()),
        ("secret-namespace", text().boxed()),
        ("ip-family", list(FAMILIES).boxed()),
    ]
}

fn model() -> impl Strategy<Value = Model> {
    let mut global = vcenter_fields();
    global.push(("server", fixed(SERVERS).boxed()));
    global.push(("secrets-directory", fixed(&["", "/x"]).boxed()));
    global.push(("api-disable", any::<bool>().prop_map(WrittenValue::Flag).boxed()));
    global.push(("api-binding", text().boxed()));
    // An entry in YAML needs a server. In INI the name of the entry would be enough.
    let server = proptest::sample::select(&SERVERS[1..]).prop_map(|server| WrittenValue::Text(server.to_owned()));
    let own = (some_of(vcenter_fields()), server).prop_map(|(mut fields, server)| {
        fields.push(("server", server));
        fields
    });
    let entries =
        proptest::collection::vec((proptest::sample::select(&["a", "b", "s1"][..]), own), 0..3).prop_map(|entries| {
            // Two entries with the same name are merged in INI. In YAML the second replaces the first, as in Go.
            let mut unique: Vec<(String, Fields)> = Vec::new();
            for (key, fields) in entries {
                if unique.iter().all(|(known, _)| known != key) {
                    unique.push((key.to_owned(), fields));
                }
            }
            unique
        });
    let nodes = ["internal", "external"].into_iter().flat_map(|kind| match kind {
        "internal" => [
            ("internal-network-subnet-cidr", fixed(NETWORKS).boxed()),
            ("internal-vm-network-name", text().boxed()),
            ("exclude-internal-network-subnet-cidr", fixed(NETWORKS).boxed()),
        ],
        _ => [
            ("external-network-subnet-cidr", fixed(NETWORKS).boxed()),
            ("external-vm-network-name", text().boxed()),
            ("exclude-external-network-subnet-cidr", fixed(NETWORKS).boxed()),
        ],
    });
    let labels = some_of(vec![("zone", text().boxed()), ("region", text().boxed())]);
    (some_of(global), entries, labels, some_of(nodes.collect()), nsx_sections())
        .prop_map(|(global, vcenters, labels, nodes, nsx)| Model { global, vcenters, labels, nodes, nsx })
}

/// Generates a subset of the sections of NSX.
fn nsx_sections() -> BoxedStrategy<Vec<(&'static str, &'static str, Fields)>> {
    let flag = || any::<bool>().prop_map(WrittenValue::Flag).boxed();
    let nsxt = vec![
        ("host", fixed(&["", "nsx", "nsx:8443/a/", "[fd00::1]:443", "https://nsx"]).boxed()),
        ("user", text().boxed()),
        ("password", text().boxed()),
        ("insecure-flag", flag()),
        ("remote-auth", flag()),
        ("vmc-access-token", text().boxed()),
        ("vmc-auth-host", fixed(&["", "auth/a"]).boxed()),
        ("client-auth-cert-file", text().boxed()),
        ("client-auth-key-file", text().boxed()),
        ("ca-file", text().boxed()),
        ("secret-name", text().boxed()),
        ("secret-namespace", text().boxed()),
    ];
    let class = || {
        vec![
            ("ip-pool-name", text().boxed()),
            ("ip-pool-id", text().boxed()),
            ("tcp-app-profile-name", text().boxed()),
            ("tcp-app-profile-path", text().boxed()),
            ("udp-app-profile-name", text().boxed()),
            ("udp-app-profile-path", text().boxed()),
        ]
    };
    let tags =
        proptest::collection::btree_map("[a-z\"\\\\ ]{0,3}", "[ -~\n\u{e9}]{0,4}", 0..3).prop_map(WrittenValue::Map);
    let mut balancers = class();
    balancers.push(("size", fixed(&["SMALL", "DLB", "small", ""]).boxed()));
    balancers.push(("lb-service-id", fixed(&["", "4711"]).boxed()));
    balancers.push(("tier1-gateway-path", fixed(&["", "1234", "/infra/tier-1s/a", "infra/tier-1s/a/"]).boxed()));
    balancers.push(("snat-disabled", flag()));
    balancers.push(("tags", tags.boxed()));
    let routes = vec![("router-path", fixed(&["", "a", "/infra/tier-1s/a", "infra/tier-0s/a/"]).boxed())];
    let sections = (some_of(nsxt), some_of(balancers), some_of(class()), some_of(routes), any::<[bool; 4]>());
    sections
        .prop_map(|(nsxt, balancers, class, routes, is_there)| {
            let all = [
                ("NSXT", "nsxt", nsxt),
                ("LoadBalancer", "loadBalancer", balancers),
                ("LoadBalancerClass \"default\"", "loadBalancerClass:\n  default", class),
                ("Route", "route", routes),
            ];
            all.into_iter().zip(is_there).filter(|(_, is_there)| *is_there).map(|(section, _)| section).collect()
        })
        .boxed()
}

/// Returns the settings for comparison, including passwords, and the messages without their places.
fn outcome(text: &str) -> Result<(String, Vec<String>, usize), Vec<String>> {
    match parse(text, "f") {
        Ok(parsed) => {
            let refused = parsed.rejected.iter().map(|(part, problem)| format!("{part:?} {}", problem.expected));
            let reported = vcenters(&parsed.config).into_iter().chain(refused).collect();
            Ok((format!("{:?}", parsed.config), reported, parsed.warnings.len()))
        }
        Err(errors) => {
            // Messages spell keys as in the dialect.
            let spelled = |text: &str| text.replace('-', "").to_lowercase();
            let mut told: Vec<_> = errors.errors.iter().map(|problem| spelled(&problem.expected)).collect();
            told.sort();
            Err(told)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn equal_meaning_gives_equal_settings(model in model()) {
        let (ini, yaml) = (model.ini(), model.yaml());
        prop_assert_eq!(outcome(&ini), outcome(&yaml), "{}\n{}", ini, yaml);
    }
}

/// If all models were rejected, the property above would check nothing.
#[test]
fn the_generated_configurations_are_accepted_often_enough() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let accepted =
        (0..200).filter(|_| outcome(&model().new_tree(&mut runner).unwrap().current().ini()).is_ok()).count();
    assert!(accepted > 20, "{accepted} of 200");
}
