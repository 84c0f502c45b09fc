//! Tests with the upstream vectors by id (C1 to C32, W cases, B11 to B15), and of the differences from the Go program.

use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::*;
use crate::providers::vsphere::login::credentials::source::SourceLocation;

fn config(id: &str, text: &str) -> Config {
    match parse(text, "vsphere.conf") {
        Ok(parsed) => parsed.config,
        Err(errors) => panic!("{id}: {errors}"),
    }
}

/// Returns the mistakes, one text for each.
fn mistakes(id: &str, text: &str) -> Vec<String> {
    match parse(text, "f") {
        Ok(_) => panic!("{id}: accepted"),
        Err(errors) => errors.errors.iter().map(ToString::to_string).collect(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    parse(text, "f").unwrap().warnings.iter().map(ToString::to_string).collect()
}

pub(super) fn shown(credentials: &Credentials) -> String {
    match credentials {
        Credentials::Inline { user, password } => format!("{user}/{}", password.expose_secret()),
        Credentials::Stored(SourceLocation::Secret { namespace, name }) => format!("secret {namespace}/{name}"),
        Credentials::Stored(SourceLocation::Directory(path)) => format!("directory {}", path.display()),
    }
}

pub(super) fn thumbprint_texts(vcenter: &VcenterConfig) -> Vec<String> {
    vcenter.thumbprints.iter().map(ToString::to_string).collect()
}

/// Returns for each vCenter: key, server, and credentials in the order in which they are tried.
pub(super) fn vcenters(config: &Config) -> Vec<String> {
    let one = |vcenter: &VcenterConfig| {
        let tried = [Some(&vcenter.credentials), vcenter.fallback_credentials.as_ref()];
        let tried: Vec<_> = tried.into_iter().flatten().map(shown).collect();
        format!("{} -> {}, {}", vcenter.key, vcenter.server, tried.join(", "))
    };
    config.vcenters.iter().map(one).collect()
}

// vectors: C1–C5, C7–C10, C12, C13, C20, C24, C25, C30
#[test]
fn the_vectors_of_the_go_program_hold() {
    let rows: &[(&str, &str, &[&str])] = &[
        ("C1", "[Global]\nserver=s\nuser=u\npassword=p\n", &["s -> s, u/p"]),
        ("C2", "[gLOBAL]\nSERVER=s\nUser=u\nPASSWORD=p\nInsecure-Flag=1\n", &["s -> s, u/p"]),
        (
            "C3",
            "[Global]\nuser=g\npassword=gp\n[virtualcenter\"X\"]\nuser=a\ndatacenters=d1\n[VirtualCenter \"X\"]\nuser=b\n\
             [VirtualCenter \"x\"]\nuser=c\n",
            &["X -> X, b/gp", "x -> x, c/gp"],
        ),
        (
            "C4",
            "[Global]\nserver=1.1.1.1\nuser=u\npassword=p\n[VirtualCenter \"t\"]\nserver=1.1.1.1\n",
            &["t -> 1.1.1.1, u/p", "1.1.1.1 -> 1.1.1.1, u/p"],
        ),
        ("C5", "[Global]\nuser=g\n[VirtualCenter \"a\"]\npassword=p\n", &["a -> a, g/p"]),
        (
            "C7",
            "[Global]\nsecret-name=n\nsecret-namespace=ns\n[VirtualCenter \"a\"]\nsecret-name=n2\n\
             [VirtualCenter \"b\"]\nsecret-name=n2\nsecret-namespace=ns2\n",
            &["a -> a, secret ns/n", "b -> b, secret ns2/n2"],
        ),
        (
            "C8",
            "[Global]\nsecret-name=n\nsecret-namespace=ns\n[VirtualCenter \"a\"]\nuser=u\npassword=p\n",
            &["a -> a, u/p, secret ns/n"],
        ),
        // differs: Go ignores a missing directory; here it stays the source, and `app` reports it as missing.
        ("C9", "[Global]\nserver=s\nsecrets-directory=/x\n", &["s -> s, directory /x"]),
        (
            "C10",
            "[Global]\nserver=s\nsecret-name=n\nsecret-namespace=ns\nsecrets-directory=/x\n",
            &["s -> s, secret ns/n"],
        ),
        ("C12", "[Global]\nserver=s\nuser=u\npassword=a#b\n", &["s -> s, u/a"]),
        ("C13", "[Global]\nserver=s\nuser=u\npassword=\"a;b#c\"\n", &["s -> s, u/a;b#c"]),
        ("C20", "global: {server: s, user: u, password: p}", &["s -> s, u/p"]),
        (
            "C24",
            "global: {secretName: n, secretNamespace: ns}\nvcenter: {a: {server: x, user: u, password: p}}",
            &["a -> x, u/p, secret ns/n"],
        ),
        ("a user alone", "[Global]\nserver=s\nuser=u\nsecret-name=n\nsecret-namespace=ns\n", &["s -> s, secret ns/n"]),
        ("C25", "global: {server: s, secretName: n, secretNamespace: ns}", &["s -> s, secret ns/n"]),
        (
            "C30",
            "vcenter:\n  tenant1: {server: 10.0.0.1, secretName: tenant1-secret, secretNamespace: kube-system}\n  \
             tenant2: {server: 10.0.0.2, secretName: tenant2-secret, secretNamespace: kube-system}\n  \
             10.0.0.3: {server: 10.0.0.3, secretName: eu-secret, secretNamespace: kube-system}\n",
            &[
                "tenant1 -> 10.0.0.1, secret kube-system/tenant1-secret",
                "tenant2 -> 10.0.0.2, secret kube-system/tenant2-secret",
                "10.0.0.3 -> 10.0.0.3, secret kube-system/eu-secret",
            ],
        ),
        (
            "C30 INI",
            "[VirtualCenter \"tenant1\"]\nserver=10.0.0.1\nsecret-name=tenant1-secret\nsecret-namespace=kube-system\n\
             [VirtualCenter \"tenant2\"]\nserver=10.0.0.2\nsecret-name=tenant2-secret\nsecret-namespace=kube-system\n\
             [VirtualCenter \"10.0.0.3\"]\nsecret-name=eu-secret\nsecret-namespace=kube-system\n",
            &[
                "tenant1 -> 10.0.0.1, secret kube-system/tenant1-secret",
                "tenant2 -> 10.0.0.2, secret kube-system/tenant2-secret",
                "10.0.0.3 -> 10.0.0.3, secret kube-system/eu-secret",
            ],
        ),
        // differs: Go crashes; here a null is an empty mapping.
        ("W7 null map", "global: {server: s, user: u, password: p}\nvcenter:\n", &["s -> s, u/p"]),
    ];
    for (id, text, want) in rows {
        assert_eq!(vcenters(&config(id, text)), *want, "{id}");
    }
}

// vectors: C1–C3, C23
#[test]
fn the_defaults_and_inherited_values_of_the_go_program_hold() {
    let c1 = config("C1", "[Global]\nserver=s\nuser=u\npassword=p\n");
    let one = &c1.vcenters[0];
    assert_eq!((one.port, one.insecure, one.ip_families.as_slice()), (443, false, [IpFamily::V4].as_slice()), "C1");
    assert!(one.datacenters.is_empty() && one.ca_files.is_empty() && one.thumbprints.is_empty(), "C1");
    assert!(c1.labels.is_none() && c1.addresses == AddressRules::default(), "C1");

    let c2 = config("C2", "[gLOBAL]\nSERVER=s\nUser=u\nPASSWORD=p\nInsecure-Flag=1\n");
    assert!(c2.vcenters[0].insecure, "C2");

    let c3 = config(
        "C3",
        "[Global]\nuser=g\npassword=gp\n[virtualcenter\"X\"]\ndatacenters=d1\n[VirtualCenter \"X\"]\nuser=b\n",
    );
    assert_eq!(c3.vcenters[0].datacenters, ["d1"], "C3");

    let c23 = config(
        "C23",
        "global: {user: u, password: p, insecureFlag: true}\nvcenter: {a: {server: x, insecureFlag: false}}",
    );
    assert!(c23.vcenters[0].insecure, "C23");

    let text = "[Global]\nuser=u\npassword=p\nport=8443\ndatacenters=d1, d2,\nca-file=/a.pem:/b.pem\nip-family=ipv6\n\
                [VirtualCenter \"a\"]\n[VirtualCenter \"b\"]\nport=010\ndatacenters=d3\nca-file=/c.pem\nip-family=ipv4\n";
    let inherited = config("inheritance", text);
    let [a, b] = inherited.vcenters.as_slice() else { panic!("two") };
    assert_eq!((a.port, b.port), (8443, 10));
    assert_eq!(
        (a.datacenters.as_slice(), b.datacenters.as_slice()),
        (["d1".to_owned(), "d2".to_owned()].as_slice(), ["d3".to_owned()].as_slice())
    );
    assert_eq!((a.ca_files.len(), b.ca_files.as_slice()), (2, [PathBuf::from("/c.pem")].as_slice()));
    assert_eq!(
        (a.ip_families.as_slice(), b.ip_families.as_slice()),
        ([IpFamily::V6].as_slice(), [IpFamily::V4].as_slice())
    );
}

// vectors: C6, C11, C14–C19, C21, C22, C26, C28, C29, C31, C32
#[test]
fn what_the_go_program_refuses_is_refused() {
    let creds = "user: u, password: p";
    let rows: Vec<(&str, String, &str)> = vec![
        ("C6", "[Global]\nserver=s\nsecret-name=n\n".into(), "secret-name needs secret-namespace"),
        // differs: Go accepts the port and fails at the first login.
        (
            "C11",
            "[Global]\nserver=s\nuser=u\npassword=p\nport=abc\n".into(),
            "f:5: [Global] port: expected a whole number",
        ),
        ("C14", "[Global]]\n".into(), "f:1: column 9: expected EOL, EOF, or comment"),
        ("C15", "user=g\n".into(), "f:1: column 1: expected section header"),
        ("C16", "[Global]\nuser g\n".into(), "f:2: column 6: expected '='"),
        ("C17", "[Global]\n= g\n".into(), "f:2: column 1: expected section header or variable declaration"),
        ("C18", "[Global]\n1user = g\n".into(), "f:2: column 1: illegal character"),
        ("C19", "[Global]\nserver=s\nuser=u\npassword=\n".into(), "f:4: [Global] password: missing"),
        // differs in the text: Go reports an INI error for a file that is clearly YAML.
        (
            "C21",
            format!("global: {{server: s, {creds}, port: \"443\"}}"),
            "global.port: expected a whole number without quotes",
        ),
        (
            "C22",
            format!("global: {{{creds}}}\nvcenter: {{1.1.1.1: {{port: 1}}}}"),
            "f:2: vcenter.1.1.1.1.server: expected",
        ),
        (
            "C26",
            "global: {secretName: n, secretNamespace: ns, secretsDirectory: /x}\nvcenter: {a: {server: x}}".into(),
            "secretsDirectory and secretName in the section Global exclude each other",
        ),
        ("C28", format!("Global: {{server: s, {creds}}}"), "no vCenter is defined"),
        ("C29 comment", "# nothing\n".into(), "no vCenter is defined"),
        ("C29 blanks", " \n\t\n".into(), "no vCenter is defined"),
        ("C29 INI comment", "; nothing\n".into(), "no vCenter is defined"),
        ("empty", String::new(), "no vCenter is defined"),
        ("C31", "global:\n  server: s\n\n\n  user: password: \n".into(), "f:5: expected YAML"),
        ("C32", "\n[Global]]\n".into(), "f:2: column 9: expected EOL, EOF, or comment"),
        // differs: Go crashes.
        ("W7 null entry", format!("global: {{{creds}}}\nvcenter:\n  t1:\n"), "f:3: vcenter.t1.server: expected"),
        (
            "W5 comma",
            "[Global]\nserver=s\nuser=u\npassword=p\nip-family=,\n".into(),
            "f:5: [Global] ip-family: expected ipv4, ipv6",
        ),
        ("no name", "[VirtualCenter]\nuser=u\n".into(), "f:1: [VirtualCenter]: expected a name"),
        ("blank text", "[Global]\nserver\n".into(), "f:2: [Global] server: expected '=' and a value"),
        ("bad flag", "[Global]\ninsecure-flag=maybe\n".into(), "f:2: [Global] insecure-flag: expected true"),
        (
            "quoted flag",
            "global: {insecureFlag: \"true\"}".into(),
            "global.insecureFlag: expected true or false without",
        ),
        ("scalar list", "global: {datacenters: d1}".into(), "global.datacenters: expected a list"),
        (
            "list text",
            "nodes: {internalNetworkSubnetCidr: [10.0.0.0/8]}".into(),
            "internalNetworkSubnetCidr: expected text",
        ),
        ("soap", "[Global]\nsoap-roundtrip-count=\"\"\n".into(), "soap-roundtrip-count: expected a whole number"),
        ("vcenter list", "vcenter: [a]".into(), "vcenter: expected a mapping"),
        ("family", "[Global]\nip-family=ipv7\n".into(), "ip-family: expected ipv4, ipv6"),
        ("NUL", "[Global]\nuser=a\0b\n".into(), "f:2: expected text"),
        ("scalar document", "hello".into(), "expected a mapping with global"),
    ];
    for (id, text, part) in rows {
        let found = mistakes(id, &text);
        assert!(found.iter().any(|error| error.contains(part)), "{id}: {found:?}");
    }
}

/// differs: this program reports these mistakes at load; the Go program at the first login or at each node.
// vectors: B13
#[test]
fn values_are_checked_at_load() {
    let base = "[Global]\nserver=s\nuser=u\npassword=p\n";
    let thumbprint = "aa:".repeat(20);
    let rows = [
        ("port 0", "port=0"),
        ("port too high", "port=65536"),
        ("thumbprint length", "thumbprint=AA:BB"),
        ("thumbprint digits", &format!("thumbprint={}", "GG:".repeat(20).trim_end_matches(':'))),
        ("thumbprint colon", &format!("thumbprint={thumbprint}")),
        ("B13", "[Nodes]\nexclude-external-network-subnet-cidr=10.0.0.1"),
        ("no network", "[Nodes]\ninternal-network-subnet-cidr=10.0.0.0/33"),
        ("scheme", "server=https://s"),
        ("path", "server=s/sdk"),
        ("port in the server", "server=s:443"),
    ];
    for (id, line) in rows {
        assert_eq!(mistakes(id, &format!("{base}{line}\n")).len(), 1, "{id}");
    }
    for server in ["s.example.com", "10.0.0.1", "fd00::1", "[fd00::1]"] {
        assert_eq!(config(server, &format!("{base}server={server}\n")).vcenters[0].server, server);
    }
    let hex = "aB".repeat(32);
    let colons = vec!["AB"; 32].join(":");
    let many = format!("SHA256 Fingerprint={colons}, sha1:{}\t{hex}", "cd".repeat(20));
    let sha1 = ["CD"; 20].join(":");
    let got = config("several", &format!("{base}thumbprint=\"{}\"\n", many.replace('\t', "\\t"))).vcenters.remove(0);
    assert_eq!(thumbprint_texts(&got), [colons.as_str(), sha1.as_str(), colons.as_str()]);
    for text in [&hex, &colons] {
        assert_eq!(
            thumbprint_texts(&config(text, &format!("{base}thumbprint={text}\n")).vcenters[0]),
            [colons.as_str()]
        );
    }
    // `govc` prints the host of its URL before the thumbprint.
    for host in ["vc.example.com", "vc.example.com:8443", "vcenter", "10.0.0.1", "[fd00::1]", "[fd00::1]:8443"] {
        let text = format!("{base}thumbprint=\"{host} {colons}\"\n");
        assert_eq!(thumbprint_texts(&config(host, &text).vcenters[0]), [colons.as_str()], "{host}");
    }
    for malformed in ["AB:CD", &colons.replace("AB:AB", "AB:OB"), &hex.replace("aBaB", "aBOB"), "aB"] {
        let text = format!("{base}thumbprint=\"{malformed} {colons}\"\n");
        assert_eq!(mistakes(malformed, &text).len(), 1, "{malformed}");
    }
}

// vectors: C27, B11, B12, B14, B15
#[test]
fn lists_of_families_and_networks_are_trimmed() {
    use IpFamily::{V4, V6};
    let base = "server=s\nuser=u\npassword=p\n";
    // differs: Go keeps blanks and case, so no address matches. It counts duplicates, and needs a gate for two
    // families.
    let rows: [(&str, &str, &[IpFamily]); 8] = [
        ("ends with a comma", "ipv4, ", &[V4]),
        ("B14", "IPv4", &[V4]),
        ("upper case", "IPv6", &[V6]),
        ("B15", "ipv6, ipv4", &[V6, V4]),
        ("twice", "ipv4,ipv4", &[V4]),
        ("W5 first empty", " ,ipv4", &[V4]),
        ("W5 middle empty", "ipv4,,ipv6", &[V4, V6]),
        ("empty", "", &[V4]),
    ];
    for (id, text, want) in rows {
        assert_eq!(config(id, &format!("[Global]\n{base}ip-family={text}\n")).vcenters[0].ip_families, want, "{id}");
    }
    let yaml = |families: &str| format!("global: {{server: s, user: u, password: p, ipFamily: {families}}}");
    // differs: Go reads the text as one family, which no address has.
    assert_eq!(config("C27", &yaml("['ipv6,ipv4']")).vcenters[0].ip_families, [V6, V4], "C27");
    assert_eq!(config("YAML empty", &yaml("[]")).vcenters[0].ip_families, [V4], "an empty list is no list");
    assert!(!mistakes("YAML unknown", &yaml("[ipv5]")).is_empty());

    // differs: Go rejects both at each node.
    for (id, text, want) in [
        ("B11", "10.0.0.0/24, 10.0.1.0/24", ["10.0.0.0/24", "10.0.1.0/24"].as_slice()),
        ("B12", "10.0.0.0/24,", &["10.0.0.0/24"]),
        ("IPv4-mapped", "::ffff:10.0.0.0/104", &["10.0.0.0/8"]),
    ] {
        let got = config(id, &format!("[Global]\n{base}[Nodes]\ninternal-network-subnet-cidr={text}\n"));
        let shown: Vec<_> = got.addresses.internal.networks.iter().map(ToString::to_string).collect();
        assert_eq!(shown, want, "{id}");
    }
}

#[test]
fn yaml_scalars_are_read_as_yaml_1_1() {
    let global = |more: &str| config(more, &format!("global:\n  server: s\n  user: u\n  password: p\n  {more}\n"));
    for (text, want) in
        [("0443", 291), ("0x1bb", 443), ("0b11", 3), ("0o17", 15), ("8_443", 8443), ("0", 443), ("~", 443)]
    {
        assert_eq!(global(&format!("port: {text}")).vcenters[0].port, want, "{text}");
    }
    // differs: Go truncates floats.
    assert!(!mistakes("float", "global: {server: s, user: u, password: p, port: 443.7}").is_empty());
    for (text, want) in [("yes", true), ("y", true), ("On", true), ("TRUE", true), ("no", false), ("null", false)] {
        assert_eq!(global(&format!("insecureFlag: {text}")).vcenters[0].insecure, want, "{text}");
    }
    for text in ["007", "1e3", "yes", "1:20:30", "2001-01-01"] {
        assert_eq!(shown(&global(&format!("password: {text}")).vcenters[0].credentials), format!("u/{text}"));
    }
    let twice = config("twice", "global: {server: s, user: a}\nglobal: {user: u, password: p}\n");
    assert_eq!(vcenters(&twice), ["s -> s, u/p"]);
    let merged = config("merge", "x: &c {user: u, password: p}\nvcenter:\n  a: {<<: *c, server: h}\n");
    assert_eq!(vcenters(&merged), ["a -> h, u/p"]);
    let json = config(
        "JSON",
        r#"{"vcenter": {"a": {"server": "h", "user": "u", "password": "p", "datacenters": ["d1,d2"]}}}"#,
    );
    assert_eq!(json.vcenters[0].datacenters, ["d1", "d2"]);
}

const INI: &str = "\
[Global]
user = \"u@vsphere.local\"
password = \"s3cr;t#pass\"
port = 8443
insecure-flag = true
datacenters = d1,d2
ip-family = ipv4,ipv6
secrets-directory =
[VirtualCenter \"east\"]
server = east.example.com
thumbprint = 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33
ca-file = /etc/ca.pem
[VirtualCenter \"west\"]
server = west.example.com
secret-name = n
secret-namespace = ns
ip-family = ipv6
[Labels]
zone = k8s-zone
region = k8s-region
[Nodes]
internal-network-subnet-cidr = 10.0.0.0/8,fd00::/64
external-network-subnet-cidr = 172.16.0.0/12
internal-vm-network-name = VM Network
external-vm-network-name = DMZ
exclude-internal-network-subnet-cidr = 10.1.0.0/16
exclude-external-network-subnet-cidr = 172.16.1.0/24
";

const YAML: &str = "
global:
  user: u@vsphere.local
  password: 's3cr;t#pass'
  port: 8443
  insecureFlag: true
  datacenters: [d1, d2]
  ipFamily: [ipv4, ipv6]
vcenter:
  east:
    server: east.example.com
    thumbprint: 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33
    caFile: /etc/ca.pem
  west:
    server: west.example.com
    secretName: n
    secretNamespace: ns
    ipFamily:
      - ipv6
labels:
  zone: k8s-zone
  region: k8s-region
nodes:
  internalNetworkSubnetCidr: 10.0.0.0/8,fd00::/64
  externalNetworkSubnetCidr: 172.16.0.0/12
  internalVmNetworkName: VM Network
  externalVmNetworkName: DMZ
  excludeInternalNetworkSubnetCidr: 10.1.0.0/16
  excludeExternalNetworkSubnetCidr: 172.16.1.0/24
";

#[test]
fn both_dialects_give_the_same_settings() {
    let (ini, yaml) = (config("INI", INI), config("YAML", YAML));
    assert_eq!(vcenters(&ini), vcenters(&yaml));
    assert_eq!(format!("{ini:?}"), format!("{yaml:?}"));
    assert_eq!(ini.vcenters.len(), 2);
    assert_eq!(ini.labels, Some(ZoneCategories { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() }));
    assert_eq!(ini.addresses.internal.network_name.as_deref(), Some("VM Network"));
    assert_eq!(ini.addresses.external.excluded.len(), 1);
    assert_eq!(warnings(INI), Vec::<String>::new());
    assert_eq!(warnings(YAML), Vec::<String>::new());
    assert_eq!(vcenters(&config("CRLF", &INI.replace('\n', "\r\n"))), vcenters(&ini));
}

#[test]
fn no_password_is_shown() {
    for text in [INI, YAML] {
        let parsed = parse(text, "f").unwrap();
        let shown = format!("{parsed:?} {parsed:#?}");
        assert!(shown.contains("u@vsphere.local") && !shown.contains("s3cr"), "{shown}");
    }
    let broken = [
        "[Global]\npassword = s3cr\\t\n",
        "[Global]\npassword = \"s3cr\n",
        "[Global]\nport = s3cr\ninsecure-flag = s3cr\nthumbprint = s3cr\nip-family = s3cr\n",
        "global:\n  password: s3cr: x\n",
        "global: {password: [s3cr], port: s3cr, insecureFlag: s3cr}",
        "global:\n  password: *s3cr\n",
        "global:\n  password: !s3cr{ x\n",
        "s3cr",
    ];
    for text in broken {
        let errors = parse(text, "f").unwrap_err();
        assert!(!format!("{errors} {errors:?}").contains("s3cr"), "{errors}");
    }
}

#[test]
fn the_rest_of_a_broken_password_is_not_shown() {
    let base = "[Global]\nserver = s\nuser = u\npassword = first\n";
    let pasted = "s3cr".repeat(16);
    for rest in ["s3cr", &pasted, &format!("{pasted}="), &format!("{pasted}=="), "s3cr/+", "s3cr+="] {
        let reported = match parse(&format!("{base}{rest}\n"), "f") {
            Ok(parsed) => parsed.warnings.iter().map(ToString::to_string).collect::<String>(),
            Err(errors) => errors.to_string(),
        };
        assert!(reported.contains("f:5: ") && !reported.contains("s3cr"), "{rest}: {reported}");
    }
}

#[test]
fn all_mistakes_are_told_in_one_go() {
    let ini = "[Global]\nserver = s\nport = x\n[VirtualCenter \"a\"]\nthumbprint = 00\nuser = u\npassword = p\n[Nodes]\n\
               internal-network-subnet-cidr = 10.0.0.0/8,b,c\n";
    let want = [
        "f:1: [Global] user: missing: expected a user here or in the section Global, or a secret",
        "f:1: [Global] password: missing: expected a password here or in the section Global, or a secret",
        "f:3: [Global] port: expected a whole number, decimal or hexadecimal with 0x",
        "f:5: [VirtualCenter \"a\"] thumbprint: expected the SHA-256 or SHA-1 of the certificate: 64 or 40 hex digits, \
         with or without colons; several are separated by commas",
        "f:9: [Nodes] internal-network-subnet-cidr: item 2: expected a network like 10.0.0.0/8 or fd00::/64",
        "f:9: [Nodes] internal-network-subnet-cidr: item 3: expected a network like 10.0.0.0/8 or fd00::/64",
    ];
    assert_eq!(mistakes("INI", ini), want);
    let expected = "expected a host name or IP address, without scheme, port and path";
    let url = mistakes("a URL for a name", "[VirtualCenter \"https://u:hunter2@h\"]\nuser = u\npassword = p\n");
    assert_eq!(url, [format!("f:1: [VirtualCenter \"…@h\"]: {expected}")]);
    let yaml = "vcenter:\n  \"https://u:hunter@2@h\":\n    server: a/b\n    user: u\n    password: p\n";
    assert_eq!(mistakes("and in YAML", yaml), [format!("f:3: vcenter.…@h.server: {expected}")]);
    let syntax = mistakes("syntax", "[Global]\nuser g\n= h\nport = x\n");
    assert_eq!(syntax.len(), 3, "what a broken line may have said is not missing: {syntax:?}");
}

#[test]
fn what_has_no_effect_is_told() {
    let base = "server = s\nuser = u\npassword = p\n";
    let rows = [
        (
            "C4",
            format!("[Global]\n{base}[VirtualCenter \"t\"]\nserver = s\n"),
            "f:2: [Global] server: the same vCenter as [VirtualCenter \"t\"]: one session serves both",
        ),
        (
            "accounts",
            format!("[Global]\n{base}[VirtualCenter \"t\"]\nserver = s\nuser = other\n"),
            "f:2: [Global] server: the same server as [VirtualCenter \"t\"] with other credentials: each has a session",
        ),
        (
            "key",
            format!("[Global]\n{base}ca-fiel = x\n"),
            "f:5: [Global] ca-fiel: unknown key, ignored; did you mean ca-file?",
        ),
        (
            "section",
            format!("[Global]\n{base}[Lables]\nzone = x\n"),
            "f:5: [Lables]: unknown section, ignored; did you mean [Labels]?",
        ),
        (
            "named Global",
            format!("[Global]\n{base}[Global \"x\"]\nuser = y\n"),
            "f:5: [Global]: ignored: this section takes no name",
        ),
        ("W12", format!("[Global]\n{base}[VirtualCenter \"s\"]\nsecretref = x\n"), "secretref: unknown key, ignored"),
        (
            "one label",
            format!("[Global]\n{base}[Labels]\nzone = z\n"),
            "f:6: [Labels] zone: no effect: zones are on only when",
        ),
        ("C7", format!("[Global]\n{base}secret-name = n\n"), "f:5: [Global] secret-name: ignored: name and namespace"),
        (
            "C23",
            format!("[Global]\n{base}insecure-flag\n[VirtualCenter \"s\"]\ninsecure-flag = false\n"),
            "[VirtualCenter \"s\"] insecure-flag: no effect",
        ),
        (
            "a user alone",
            "[Global]\nserver = s\nuser = u\nsecret-name = n\nsecret-namespace = ns\n".to_owned(),
            "f:3: [Global] user: ignored: user and password belong together, and a secret is used",
        ),
        (
            "kebab in YAML",
            "global: {server: s, user: u, password: p, ca-file: x}".to_owned(),
            "global.ca-file: unknown key, ignored. YAML files use camelCase: did you mean caFile?",
        ),
    ];
    for (id, text, part) in rows {
        let found = warnings(&text);
        assert!(found.len() == 1 && found[0].contains(part), "{id}: {found:?}");
    }
}

#[test]
fn a_network_name_with_commas_is_told_with_the_number_of_its_parts() {
    const BASE: &str = "[Global]\nserver = s\nuser = u\npassword = p\n[Nodes]\n";
    let (ini, yaml) = (
        |line: &str| format!("{BASE}{line}\n"),
        |line: &str| format!("global:\n  server: s\n  user: u\n  password: p\nnodes:\n  {line}\n"),
    );
    let reported = |place: &str, parts: usize| {
        format!(
            "f:6: {place}: a name with commas: for each VM, a network of this whole name is searched first, then its \
             {parts} part(s) between commas, in this order"
        )
    };
    for (text, expected) in [
        (ini("internal-vm-network-name = \"LAN-A,LAN-B\""), Some(reported("[Nodes] internal-vm-network-name", 2))),
        (
            ini("external-vm-network-name = \"LAN-A, , LAN-B,LAN-C\""),
            Some(reported("[Nodes] external-vm-network-name", 3)),
        ),
        (yaml("internalVmNetworkName: LAN-A,"), Some(reported("nodes.internalVmNetworkName", 1))),
        (ini("internal-vm-network-name = LAN-A"), None),
        (ini("internal-network-subnet-cidr = \"10.0.0.0/8,fd00::/8\""), None),
    ] {
        assert_eq!(warnings(&text), Vec::from_iter(expected), "{text}");
    }
}

#[test]
fn a_load_balancer_that_few_clients_reach_is_an_oddity() {
    let text = |size: &str| {
        format!(
            "[Global]\nserver = s\nuser = u\npassword = p\n[NSXT]\nhost = h\nuser = y\npassword = z\n[LoadBalancer]\n\
             ip-pool-name = x\nsize = {size}\ntier1-gateway-path = /infra/tier-1s/a\ntcp-app-profile-name = t\n\
             udp-app-profile-name = u\n"
        )
    };
    assert_eq!(warnings(&text("SMALL")), Vec::<String>::new());
    let found = warnings(&text("DLB"));
    assert!(
        found.len() == 1 && found[0].contains("[LoadBalancer] size") && found[0].contains("distributed"),
        "{found:?}"
    );
}

#[test]
fn the_pairs_in_the_file_are_listed_also_where_a_secret_is_used_instead() {
    let stored = "secret-name = n\nsecret-namespace = ns\n";
    for (text, expected) in [
        ("[Global]\nserver = s\nuser = u\npassword = p\n".to_owned(), vec!["u/p"]),
        (format!("[Global]\nserver = s\n{stored}"), vec![]),
        (
            format!(
                "[Global]\nserver = s\n{stored}user = u\npassword = p\n\
                 [NSXT]\nhost = h\n{stored}user = y\npassword = z\n"
            ),
            vec!["u/p", "y/z"],
        ),
    ] {
        let config = config("pairs", &text);
        let pairs =
            config.inline_pairs().into_iter().map(|(user, password)| format!("{user}/{}", password.expose_secret()));
        assert_eq!(pairs.collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn the_parts_of_nsx_are_no_oddity_and_what_is_wrong_is_reported_in_its_place() {
    let base = "server = s\nuser = u\npassword = p\n";
    let balancers =
        "ip-pool-name = x\nsize = SMALL\nlb-service-id = 1\ntcp-app-profile-name = t\nudp-app-profile-name = u\n";
    let ini = format!(
        "[Global]\n{base}[NSXT]\nhost = h\nuser = y\npassword = z\n[Route]\nrouter-path = /infra/tier-1s/a\n\
         [LoadBalancer]\n{balancers}[LoadBalancerClass \"a\"]\n[loadbalancerclass \"b\"]\n[LOADBALANCER]\n"
    );
    let yaml = "global: {server: s, user: u, password: p}\nnsxt: {host: h, user: y, password: z}\n\
                route: {routerPath: /infra/tier-1s/a}\nloadBalancerClass: {a: }\n\
                loadBalancer: {ipPoolName: x, size: SMALL, lbServiceId: 1, tcpAppProfileName: t, udpAppProfileName: u}\n";
    for text in [ini.as_str(), yaml] {
        assert_eq!(parse(text, "f").unwrap().rejected, []);
        assert_eq!(warnings(text), Vec::<String>::new());
    }
    for (text, places) in [
        (ini.replace("host = h\n", ""), ["f:5: [NSXT] host:", "f:8: [Route]:", "f:10: [LoadBalancer]:"]),
        (yaml.replace("host: h,", ""), ["f:2: nsxt.host:", "f:3: route:", "f:5: loadBalancer:"]),
    ] {
        let parsed = parse(&text, "f").unwrap();
        let refused: Vec<_> = parsed.rejected.iter().map(|(part, problem)| (*part, problem.to_string())).collect();
        let parts = [PartName::Nsx, PartName::Routes, PartName::LoadBalancers];
        assert_eq!(refused.iter().map(|(part, _)| *part).collect::<Vec<_>>(), parts, "{refused:#?}");
        for ((_, reported), place) in refused.iter().zip(places) {
            assert!(reported.starts_with(place), "{place}: {reported}");
        }
        assert!(parsed.config.nsx.is_refused() && parsed.config.load_balancers.is_refused());
        assert!(parsed.config.routes.is_refused() && parsed.config.vcenters.len() == 1);
        let whole = mistakes(
            "a mistake elsewhere",
            &text.replace("server", "insecure-flag = x\nserver").replace("global: {", "global: {port: x, "),
        );
        assert!(whole.len() >= 4, "all mistakes are in one list: {whole:#?}");
    }
}

/// If certificates are not verified, the Go program ignores the thumbprint.
#[test]
fn a_malformed_thumbprint_is_a_mistake_only_where_certificates_are_verified() {
    let pair = "user = u\npassword = p\n";
    let insecure = "insecure-flag = true\n";
    let bad = "thumbprint = 00\n";
    let good = format!("thumbprint = {}\n", "00:".repeat(20).trim_end_matches(':'));
    let expected = "expected the SHA-256 or SHA-1";
    for (case, text, line, is_mistake) in [
        ("Global", format!("[Global]\nserver = s\n{pair}{insecure}{bad}"), 6, false),
        ("the entry's own flag", format!("[VirtualCenter \"a\"]\n{pair}{insecure}{bad}"), 5, false),
        ("Global's flag", format!("[Global]\n{insecure}[VirtualCenter \"a\"]\n{pair}{bad}"), 6, false),
        ("inherited", format!("[Global]\n{bad}[VirtualCenter \"a\"]\n{pair}{insecure}"), 2, false),
        ("verified", format!("[VirtualCenter \"a\"]\n{pair}{bad}"), 4, true),
        ("inherited and verified", format!("[Global]\n{bad}[VirtualCenter \"a\"]\n{pair}"), 2, true),
        (
            "of two, one is verified",
            format!("[Global]\n{bad}[VirtualCenter \"a\"]\n{pair}{insecure}[VirtualCenter \"b\"]\n{pair}{good}"),
            2,
            true,
        ),
    ] {
        let reported = if is_mistake { mistakes(case, &text) } else { warnings(&text) };
        let is_told = |one: &String| one.starts_with(&format!("f:{line}: ")) && one.contains(expected);
        assert!(matches!(reported.as_slice(), [one] if is_told(one)), "{case}: {reported:?}");
        assert!(is_mistake || config(case, &text).vcenters[0].thumbprints.is_empty(), "{case}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_the_parser(text in any::<String>()) {
        let _ = parse(&text, "f");
    }

    #[test]
    fn no_likely_text_breaks_the_parser(lines in proptest::collection::vec(
        prop_oneof![
            Just("[Global]"), Just("[VirtualCenter \"a\"]"), Just("server = a"), Just("user = u"), Just("password = p"),
            Just("ip-family = ,"), Just("port = 1"), Just("global:"), Just("vcenter:"), Just("  a:"), Just("  server: x"),
            Just("  ipFamily: [,]"), Just("    server: y"), Just("labels: ~"), Just("nodes: []"), Just("\"\\"),
        ],
        0..12,
    )) {
        if let Ok(parsed) = parse(&lines.join("\n"), "f") {
            prop_assert!(!parsed.config.vcenters.is_empty());
        }
    }
}

mod bounds;
mod dialects;
mod golden;
mod page;
mod wiping;

#[test]
fn a_key_that_stands_in_place_of_the_user_is_not_printed() {
    let key = "-----BEGIN RSA PRIVATE KEY-----\\nhunter2\\n-----END RSA PRIVATE KEY-----";
    for (user, is_printed) in [(key, false), ("ccm@vsphere.local", true)] {
        let config = config("swapped", &format!("[Global]\nserver = s\nuser = \"{user}\"\npassword = \"p\"\n"));
        let shown = format!("{config:?} {config:#?}");
        assert!(!shown.contains("hunter2") && !shown.contains("BEGIN"), "{shown}");
        assert_eq!(shown.contains(user), is_printed, "{shown}");
    }
}
