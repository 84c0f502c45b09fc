//! The vectors of the Go program for the sections `NSXT`, `LoadBalancer`, `LoadBalancerClass` and `Route`, in both
//! dialects if the Go program supports both. Also the differences of this program.

use std::collections::BTreeMap;
use std::ffi::OsString;

use ccm::providers::vsphere::config::{
    DEFAULT_CLASS, Environment, FileChecks, IpPool, LoadBalancerConfig, NsxConfig, NsxLogin, OptionalSection,
    ParsedConfig, PartName, Profile, Size, parse_within,
};
use ccm::providers::vsphere::login::credentials::Credentials;
use ccm::providers::vsphere::login::credentials::source::SourceLocation;
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

const INI: &str = "[VirtualCenter \"vc\"]\nuser = u\npassword = p\n";
const YAML: &str = "vcenter: {vc: {server: vc, user: u, password: p}}\n";

/// A valid connection.
const INI_NSX: &str = "[NSXT]\nhost = server\nuser = admin\npassword = secret\n";
const YAML_NSX: &str = "nsxt: {host: server, user: admin, password: secret}\n";

fn read(text: &str, variables: &[(&str, &str)]) -> ParsedConfig {
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let parsed = parse_within(text, "f", &Environment::new(variables), &FileChecks::default());
    parsed.unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

fn ini(sections: &str) -> ParsedConfig {
    read(&format!("{INI}{sections}"), &[])
}

fn yaml(sections: &str) -> ParsedConfig {
    read(&format!("{YAML}{sections}"), &[])
}

/// Parses one section in both dialects. The keys are those of INI.
fn both(name: (&str, &str), fields: &[(&str, &str)], rest: (&str, &str)) -> [ParsedConfig; 2] {
    let lines: String = fields.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    let entries: Vec<_> = fields.iter().map(|(key, value)| format!("{}: {value}", camel_case(key))).collect();
    let (ini_rest, yaml_rest) = rest;
    [
        ini(&format!("[{}]\n{lines}{ini_rest}", name.0)),
        yaml(&format!("{}: {{{}}}\n{yaml_rest}", name.1, entries.join(", "))),
    ]
}

fn camel_case(kebab: &str) -> String {
    let mut words = kebab.split('-');
    let first = words.next().unwrap().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(1);
        name + &initial.to_uppercase() + rest
    })
}

/// Returns the mistakes of a part.
fn mistakes(parsed: &ParsedConfig, part: PartName) -> Vec<String> {
    let own = parsed.rejected.iter().filter(|(refused, _)| *refused == part);
    own.map(|(_, problem)| problem.to_string()).collect()
}

fn nsxt(fields: &[(&str, &str)]) -> [ParsedConfig; 2] {
    both(("NSXT", "nsxt"), fields, ("", ""))
}

/// Checks that exactly these mistakes turn the connection off, and that the nodes work.
fn nsx_is_refused(id: &str, fields: &[(&str, &str)], expected: &[&str]) {
    for parsed in nsxt(fields) {
        let found = mistakes(&parsed, PartName::Nsx);
        assert!(parsed.config.nsx.is_refused() && parsed.config.vcenters.len() == 1, "{id}");
        assert_eq!(found.len(), expected.len(), "{id}: {found:?}");
        for (mistake, expected) in found.iter().zip(expected) {
            assert!(mistake.contains(expected), "{id}: {found:?}");
        }
    }
}

fn nsx_is_used(id: &str, fields: &[(&str, &str)]) -> NsxConfig {
    let [one, other] = nsxt(fields).map(|parsed| {
        assert_eq!(parsed.rejected, [], "{id}");
        let OptionalSection::Used(nsx) = parsed.config.nsx else { panic!("{id}: {:?}", parsed.config.nsx) };
        nsx
    });
    assert_eq!(one, other, "{id}");
    one
}

const NO_HOST: &str = "host: host is empty";

const TOKEN: (&str, &str) = ("vmc-access-token", "token");
const AUTH_HOST: (&str, &str) = ("vmc-auth-host", "auth-host");
const USER: (&str, &str) = ("user", "admin");
const PASSWORD: (&str, &str) = ("password", "secret");
const KEY: (&str, &str) = ("client-auth-key-file", "client-key");
const CERTIFICATE: (&str, &str) = ("client-auth-cert-file", "client-cert");
const SECRET: (&str, &str) = ("secret-name", "secret-name");
const NAMESPACE: (&str, &str) = ("secret-namespace", "secret-ns");
const HOST: (&str, &str) = ("host", "server");

// The Go program reports only the first mistake. Here the host is missing, too.
// vectors: NX-C-01–NX-C-03
#[test]
fn nx_c_01_to_03_a_token_needs_an_auth_host_and_a_host() {
    nsx_is_refused("NX-C-01", &[TOKEN], &["vmc auth host must be provided if auth token is provided", NO_HOST]);
    nsx_is_refused("NX-C-02", &[TOKEN, AUTH_HOST], &[NO_HOST]);
    let nsx = nsx_is_used("NX-C-03", &[TOKEN, AUTH_HOST, HOST]);
    let NsxLogin::VmcToken { token, host } = &nsx.login else { panic!("{nsx:?}") };
    assert_eq!((token.expose_secret(), host.as_str()), ("token", "auth-host"));
    assert_eq!(nsx.login.token_service(), Some(("auth-host".to_owned(), 443, "/".to_owned())));
    let nsx_with_path = nsx_is_used("a path", &[TOKEN, ("vmc-auth-host", "auth:8443/csp/authorize"), HOST]);
    let service = ("auth".to_owned(), 8443, "/csp/authorize".to_owned());
    assert_eq!(nsx_with_path.login.token_service(), Some(service));
    assert_eq!((nsx.host.as_str(), nsx.port, nsx.path_prefix.as_str()), ("server", 443, ""));
}

#[test]
fn an_auth_host_that_no_token_needs_refuses_nothing() {
    let url = ("vmc-auth-host", "https://auth.example.com/?x");
    let nsx = nsx_is_used("left over", &[USER, PASSWORD, HOST, url]);
    assert!(matches!(nsx.login, NsxLogin::Pair { credentials: Credentials::Inline { .. }, .. }), "{nsx:?}");
    for parsed in nsxt(&[TOKEN, HOST, url]) {
        assert!(parsed.config.nsx.used().is_none());
    }
}

// vectors: NX-C-04–NX-C-06
#[test]
fn nx_c_04_to_06_a_user_needs_a_password_and_a_host() {
    nsx_is_refused("NX-C-04", &[USER], &["password: password is empty", NO_HOST]);
    nsx_is_refused("NX-C-05", &[USER, PASSWORD], &[NO_HOST]);
    let nsx = nsx_is_used("NX-C-06", &[USER, PASSWORD, HOST]);
    let NsxLogin::Pair { credentials: Credentials::Inline { user, password }, .. } = &nsx.login else {
        panic!("{nsx:?}")
    };
    assert_eq!((user.as_str(), password.expose_secret()), ("admin", "secret"));
}

// vectors: NX-C-07–NX-C-10
#[test]
fn nx_c_07_to_10_a_client_certificate_needs_a_key_and_the_reverse_and_a_host() {
    let no_certificate = "client cert file is required if client key file is provided";
    nsx_is_refused("NX-C-07", &[KEY], &[no_certificate, NO_HOST]);
    let no_key = "client key file is required if client cert file is provided";
    nsx_is_refused("NX-C-08", &[CERTIFICATE], &[no_key, NO_HOST]);
    nsx_is_refused("NX-C-09", &[CERTIFICATE, KEY], &[NO_HOST]);
    let nsx = nsx_is_used("NX-C-10", &[CERTIFICATE, KEY, HOST]);
    assert_eq!(nsx.login, NsxLogin::Certificate { certificate: "client-cert".into(), key: "client-key".into() });
    // The Go program checks only the first matching row, and fails at its start.
    nsx_is_refused("no key", &[USER, PASSWORD, CERTIFICATE, HOST], &[no_key]);
}

// vectors: NX-C-11–NX-C-14
#[test]
fn nx_c_11_to_14_a_secret_needs_a_name_a_namespace_and_a_host() {
    let no_namespace = "secret namespace is required if secret name is provided";
    nsx_is_refused("NX-C-11", &[SECRET], &[no_namespace, NO_HOST]);
    let no_name = "secret name is required if secret namespace is provided";
    nsx_is_refused("NX-C-12", &[NAMESPACE], &[no_name, NO_HOST]);
    nsx_is_refused("NX-C-13", &[SECRET, NAMESPACE], &[NO_HOST]);
    let nsx = nsx_is_used("NX-C-14", &[SECRET, NAMESPACE, HOST]);
    let (namespace, name) = ("secret-ns".to_owned(), "secret-name".to_owned());
    let credentials = Credentials::Stored(SourceLocation::Secret { namespace, name });
    assert_eq!(nsx.login, NsxLogin::Pair { credentials, fallback: None });
    let nsx = nsx_is_used("a fallback", &[SECRET, NAMESPACE, HOST, USER, PASSWORD]);
    let NsxLogin::Pair { fallback: Some(Credentials::Inline { user, password }), .. } = &nsx.login else {
        panic!("{nsx:?}")
    };
    assert_eq!((user.as_str(), password.expose_secret()), ("admin", "secret"));
}

// vectors: NX-C-15
#[test]
fn nx_c_15_an_empty_section_has_no_login_and_no_host() {
    let no_login = "user or vmc access token or client cert file must be set";
    nsx_is_refused("NX-C-15", &[], &[no_login, NO_HOST]);
    let null = yaml("nsxt:\n");
    assert_eq!(mistakes(&null, PartName::Nsx).len(), 2);
    for absent in [ini(""), yaml("")] {
        assert_eq!((absent.config.nsx, absent.rejected), (OptionalSection::Absent, Vec::new()), "L-19");
    }
}

// vectors: NX-C-16
#[test]
fn nx_c_16_a_full_section_uses_the_certificate_and_says_so() {
    for insecure in ["false", "true"] {
        let fields = [
            ("user", "admin"),
            ("password", "secret"),
            ("host", "nsxt-server"),
            ("insecure-flag", insecure),
            ("remote-auth", "true"),
            ("vmc-access-token", "vmc-token"),
            ("vmc-auth-host", "vmc-host"),
            ("client-auth-cert-file", "client-cert-file"),
            ("client-auth-key-file", "client-key-file"),
            ("ca-file", "ca-file"),
            ("secret-name", "secret-name"),
            ("secret-namespace", "secret-ns"),
        ];
        let nsx = nsx_is_used("NX-C-16", &fields);
        let expected = NsxConfig {
            host: "nsxt-server".to_owned(),
            port: 443,
            path_prefix: String::new(),
            insecure: insecure == "true",
            ca_file: Some("ca-file".into()),
            remote_auth: true,
            login: NsxLogin::Certificate { certificate: "client-cert-file".into(), key: "client-key-file".into() },
        };
        assert_eq!(nsx, expected);
        for parsed in nsxt(&fields) {
            let warnings: Vec<_> = parsed.warnings.iter().map(ToString::to_string).collect();
            assert_eq!(warnings.len(), 4, "{warnings:#?}");
            assert!(
                warnings.iter().all(|odd| odd.contains("the client certificate takes precedence")),
                "{warnings:#?}"
            );
        }
    }
}

const VARIABLES: [(&str, &str); 9] = [
    ("NSXT_MANAGER_HOST", "nsxt-server"),
    ("NSXT_USERNAME", "admin"),
    ("NSXT_PASSWORD", "secret"),
    ("NSXT_ALLOW_UNVERIFIED_SSL", "false"),
    ("NSXT_CLIENT_AUTH_CERT_FILE", "client-cert"),
    ("NSXT_CLIENT_AUTH_KEY_FILE", "client-key"),
    ("NSXT_CA_FILE", "ca-cert"),
    ("NSXT_SECRET_NAME", "secret-name"),
    ("NSXT_SECRET_NAMESPACE", "secret-ns"),
];

/// differs: the Go program applies the variables after the checks. An empty section fails these checks.
// vectors: NX-C-17
#[test]
fn nx_c_17_variables_complete_a_section_before_it_is_checked() {
    for section in [format!("{INI}[NSXT]\n"), format!("{YAML}nsxt: {{}}\n"), format!("{YAML}nsxt:\n")] {
        let parsed = read(&section, &VARIABLES);
        assert_eq!(parsed.rejected, [], "NX-C-17");
        let nsx = parsed.config.nsx.used().unwrap();
        assert_eq!(
            (nsx.host.as_str(), nsx.insecure, nsx.ca_file.clone()),
            ("nsxt-server", false, Some("ca-cert".into()))
        );
        assert_eq!(nsx.login, NsxLogin::Certificate { certificate: "client-cert".into(), key: "client-key".into() });

        let without_certificate = VARIABLES.into_iter().filter(|(name, _)| !name.contains("CLIENT_AUTH"));
        let parsed = read(&section, &without_certificate.collect::<Vec<_>>());
        let NsxLogin::Pair {
            credentials: Credentials::Stored(SourceLocation::Secret { namespace, name }),
            fallback: Some(Credentials::Inline { user, password }),
        } = &parsed.config.nsx.used().unwrap().login
        else {
            panic!("{:?}", parsed.config.nsx)
        };
        let shown = [namespace.as_str(), name, user, password.expose_secret()];
        assert_eq!(shown, ["secret-ns", "secret-name", "admin", "secret"]);
    }
}

#[test]
fn variables_take_precedence_over_the_section_and_make_none() {
    let written = format!("{INI}[NSXT]\nhost = other\nuser = other\npassword = other\ninsecure-flag = true\n");
    let parsed = read(&written, &VARIABLES[..4]);
    let nsx = parsed.config.nsx.used().unwrap();
    let NsxLogin::Pair { credentials: Credentials::Inline { user, password }, .. } = &nsx.login else {
        panic!("{nsx:?}")
    };
    assert_eq!((nsx.host.as_str(), nsx.insecure), ("nsxt-server", false));
    assert_eq!((user.as_str(), password.expose_secret()), ("admin", "secret"));
    assert!(read(&written, &[("NSXT_MANAGER_HOST", "")]).config.nsx.used().is_some_and(|nsx| nsx.host == "other"));

    let absent = read(INI, &VARIABLES);
    assert_eq!((&absent.config.nsx, absent.rejected.len(), absent.warnings.len()), (&OptionalSection::Absent, 0, 9));
    assert!(absent.warnings.iter().all(|odd| odd.to_string().contains("no effect: there is no section NSXT")));
}

#[test]
fn a_wrong_variable_is_a_mistake_of_its_part() {
    for (variable, value) in [("NSXT_ALLOW_UNVERIFIED_SSL", "maybe"), ("NSXT_MANAGER_HOST", "https://hunter2")] {
        let parsed = read(&format!("{INI}{INI_NSX}"), &[(variable, value)]);
        let found = mistakes(&parsed, PartName::Nsx);
        assert!(found.len() == 1 && found[0].starts_with(&format!("environment: {variable}: expected")), "{found:?}");
        assert!(!found[0].contains(value) && parsed.config.nsx.is_refused(), "{found:?}");
    }
    for value in ["1", "t", "T", "true", "TRUE", "True"] {
        let parsed = read(&format!("{INI}{INI_NSX}"), &[("NSXT_ALLOW_UNVERIFIED_SSL", value)]);
        assert!(parsed.config.nsx.used().is_some_and(|nsx| nsx.insecure), "{value}");
    }
}

/// Table 1.1 of the reference.
#[test]
fn the_dialects_are_read_as_in_the_go_program() {
    let nsx = |parsed: &ParsedConfig| parsed.config.nsx.used().cloned().unwrap();
    let login = "user = admin\npassword = secret\n";
    // Letter case of names, the last value, a key without value, quotes and comments, duplicate sections.
    let text = format!("[nsxt]\nHOST = a ; b\nhost = \"s;1\"\nhost = server # c\n{login}[NSXT]\ninsecure-flag\n");
    assert!(nsx(&ini(&text)).insecure && nsx(&ini(&text)).host == "server");
    for (flag, is_set) in [("yes", true), ("On", true), ("1", true), ("no", false), ("OFF", false), ("0", false)] {
        assert_eq!(nsx(&ini(&format!("{INI_NSX}insecure-flag = {flag}\n"))).insecure, is_set, "{flag}");
    }
    for (flag, is_set) in [("yes", true), ("On", true), ("y", true), ("no", false), ("OFF", false), ("n", false)] {
        let text = format!("nsxt: {{host: server, user: admin, password: secret, insecureFlag: {flag}}}\n");
        assert_eq!(nsx(&yaml(&text)).insecure, is_set, "{flag}");
    }
    // Numbers are read as texts, and the last key is used.
    let numbers = nsx(&yaml("nsxt: {host: 4711, user: 007, password: 1, password: 2}\n"));
    let NsxLogin::Pair { credentials: Credentials::Inline { user, password }, .. } = &numbers.login else {
        panic!("{numbers:?}")
    };
    assert_eq!((numbers.host.as_str(), user.as_str(), password.expose_secret()), ("4711", "007", "2"));

    // An unknown key and a name at a section without names are warnings. A wrong type is a mistake of the part.
    for parsed in [
        ini(&format!("{INI_NSX}colour = red\n")),
        ini(&format!("{INI_NSX}[NSXT \"x\"]\nhost = other\n")),
        yaml("nsxt: {host: server, user: admin, password: secret, remote-auth: true}\n"),
    ] {
        assert_eq!((parsed.warnings.len(), parsed.rejected.len(), nsx(&parsed).remote_auth), (1, 0, false));
    }
    for parsed in [
        ini(&format!("{INI_NSX}insecure-flag = maybe\n")),
        ini(&format!("{INI_NSX}user\n")),
        yaml("nsxt: {host: server, user: admin, password: secret, insecureFlag: \"true\"}\n"),
        yaml("nsxt: {host: server, user: admin, password: [a]}\n"),
        yaml("nsxt: [host]\n"),
        yaml("nsxt: {host: \"https://server\", user: admin, password: secret}\n"),
    ] {
        let found = mistakes(&parsed, PartName::Nsx);
        assert!(parsed.config.nsx.is_refused() && !found.is_empty(), "{found:?}");
    }
}

/// LB-C-01 and LB-C-02 without the section NSXT.
const FULL_INI: &str = "[LoadBalancer]\nip-pool-name = pool1\nsize = MEDIUM\nlb-service-id = 4711\n\
    tier1-gateway-path = 1234\ntcp-app-profile-name = default-tcp-lb-app-profile\n\
    udp-app-profile-name = default-udp-lb-app-profile\nsnat-disabled = false\n\
    tags = {\\\"tag1\\\": \\\"value1\\\", \\\"tag2\\\": \\\"value 2\\\"}\n\n\
    [LoadBalancerClass \"public\"]\nip-pool-name = poolPublic\n\n\
    [LoadBalancerClass \"private\"]\nip-pool-name = poolPrivate\ntcp-app-profile-name = tcp2\nudp-app-profile-name = udp2\n";
const FULL_YAML: &str = "loadBalancer:\n  ipPoolName: pool1\n  size: MEDIUM\n  lbServiceId: 4711\n  tier1GatewayPath: 1234\n  \
    tcpAppProfileName: default-tcp-lb-app-profile\n  udpAppProfileName: default-udp-lb-app-profile\n  snatDisabled: false\n  \
    tags: {tag1: value1, tag2: value 2}\n\
    loadBalancerClass:\n  public:\n    ipPoolName: poolPublic\n  private:\n    ipPoolName: poolPrivate\n    \
    tcpAppProfileName: tcp2\n    udpAppProfileName: udp2\n";

fn used(parsed: &ParsedConfig) -> &LoadBalancerConfig {
    assert_eq!(parsed.rejected, []);
    parsed.config.load_balancers.used().unwrap()
}

fn pool(name: &str) -> IpPool {
    IpPool::Name(name.to_owned())
}

fn profile(name: &str) -> Profile {
    Profile::Name(name.to_owned())
}

// vectors: LB-C-01, LB-C-02
#[test]
fn lb_c_01_and_lb_c_02_a_full_section_with_classes() {
    let in_ini = ini(&format!("{INI_NSX}{FULL_INI}"));
    let in_yaml = yaml(&format!("{YAML_NSX}{FULL_YAML}"));
    assert_eq!(used(&in_ini), used(&in_yaml));
    let all = used(&in_ini);
    assert_eq!((all.lb_service_id.as_deref(), all.tier1.as_deref()), (Some("4711"), Some("1234")));
    assert_eq!((all.size, all.snat_disabled, all.common.pool.clone()), (Size::Medium, false, Some(pool("pool1"))));
    let tags = [("tag1", "value1"), ("tag2", "value 2")].map(|(scope, tag)| (scope.to_owned(), tag.to_owned()));
    assert_eq!(all.tags, BTreeMap::from(tags));
    assert_eq!(all.classes.len(), 2);
    let (public, private) = (&all.classes["public"], &all.classes["private"]);
    assert_eq!((&public.pool, &public.tcp, &public.udp), (&Some(pool("poolPublic")), &None, &None));
    assert_eq!((&private.pool, &private.tcp), (&Some(pool("poolPrivate")), &Some(profile("tcp2"))));
    assert_eq!(private.udp, Some(profile("udp2")));

    let default = all.class(DEFAULT_CLASS).unwrap();
    assert_eq!((default.pool, default.tcp), (&pool("pool1"), &profile("default-tcp-lb-app-profile")));
    let public = all.class("public").unwrap();
    assert_eq!((public.pool, public.udp), (&pool("poolPublic"), &profile("default-udp-lb-app-profile")));
    assert_eq!(all.class("private").unwrap().udp, &profile("udp2"));
    assert_eq!(all.class("other"), None);
    for parsed in [in_ini, in_yaml] {
        let warnings: Vec<_> = parsed.warnings.iter().map(ToString::to_string).collect();
        let has = |part: &str| warnings.iter().any(|odd| odd.contains(part));
        assert!(warnings.len() == 1 && has("expected /infra/tier-1s/<id>"), "{warnings:#?}");
    }
}

fn load_balancer(fields: &[(&str, &str)], rest: (&str, &str)) -> [ParsedConfig; 2] {
    let (ini_rest, yaml_rest) = rest;
    let (ini_rest, yaml_rest) = (format!("{ini_rest}{INI_NSX}"), format!("{yaml_rest}{YAML_NSX}"));
    both(("LoadBalancer", "loadBalancer"), fields, (&ini_rest, &yaml_rest))
}

/// Checks that exactly these mistakes turn the load balancers off, and that the connection works.
fn is_refused(id: &str, fields: &[(&str, &str)], rest: (&str, &str), expected: &[&str]) {
    for parsed in load_balancer(fields, rest) {
        let found = mistakes(&parsed, PartName::LoadBalancers);
        assert!(parsed.config.load_balancers.is_refused() && parsed.config.nsx.used().is_some(), "{id}");
        assert_eq!(found.len(), expected.len(), "{id}: {found:?}");
        for (mistake, expected) in found.iter().zip(expected) {
            assert!(mistake.contains(expected), "{id}: {found:?}");
        }
    }
}

const TIER1: (&str, &str) = ("tier1-gateway-path", "/infra/tier-1s/a");
const TCP: (&str, &str) = ("tcp-app-profile-name", "tcp");
const UDP: (&str, &str) = ("udp-app-profile-name", "udp");
const SIZE: (&str, &str) = ("size", "SMALL");
const POOL: (&str, &str) = ("ip-pool-name", "pool");

// vectors: LB-C-03
#[test]
fn lb_c_03_ids_and_paths_are_kept_as_they_are_written() {
    let fields = [
        ("ip-pool-id", "123-456"),
        ("size", "MEDIUM"),
        ("tier1-gateway-path", "1234"),
        ("tcp-app-profile-path", "infra/xxx/tcp1234"),
        ("udp-app-profile-path", "infra/xxx/udp1234"),
    ];
    for parsed in load_balancer(&fields, ("", "")) {
        let all = used(&parsed);
        assert_eq!((all.tier1.as_deref(), &all.lb_service_id), (Some("1234"), &None), "LB-C-03");
        let default = all.class(DEFAULT_CLASS).unwrap();
        assert_eq!(default.pool, &IpPool::Id("123-456".to_owned()));
        assert_eq!(default.tcp, &Profile::Path("infra/xxx/tcp1234".to_owned()));
        assert_eq!(default.udp, &Profile::Path("infra/xxx/udp1234".to_owned()));
    }
}

// vectors: LB-C-04
#[test]
fn lb_c_04_tags_and_flags_alone_turn_nothing_on() {
    for (id, ini_line, yaml_line) in [
        ("LB-C-04 tags", "tags = {\\\"a\\\": \\\"b\\\"}", "tags: {a: b}"),
        ("LB-C-04 snat", "snat-disabled = true", "snatDisabled: true"),
        ("nothing", "", ""),
    ] {
        for parsed in [ini(&format!("[LoadBalancer]\n{ini_line}\n")), yaml(&format!("loadBalancer: {{{yaml_line}}}\n"))]
        {
            assert_eq!((&parsed.config.load_balancers, parsed.rejected.len()), (&OptionalSection::Absent, 0), "{id}");
            assert!(parsed.warnings[0].to_string().contains("load balancers are off without"), "{id}");
        }
    }
    for absent in [ini(INI_NSX), yaml(YAML_NSX)] {
        assert_eq!((absent.config.load_balancers, absent.warnings), (OptionalSection::Absent, Vec::new()), "L-19");
    }
}

// vectors: LB-C-05–LB-C-08
#[test]
fn lb_c_05_to_08_gateway_profiles_and_size_are_required() {
    let gateway = "either load balancer service id or T1 gateway path required";
    let tcp = "either load balancer TCP application profile name or path required";
    let udp = "either load balancer UDP application profile name or path required";
    let size = "load balancer size is invalid. Valid values are: DLB,LARGE,MEDIUM,SMALL,XLARGE";
    let pool = "no default load balancer class defined";
    is_refused("LB-C-05", &[SIZE], ("", ""), &[gateway, tcp, udp, pool]);
    is_refused("LB-C-06", &[TIER1, SIZE, POOL], ("", ""), &[tcp, udp]);
    is_refused("LB-C-07", &[TIER1, TCP, SIZE, POOL], ("", ""), &[udp]);
    is_refused("LB-C-08", &[TIER1, TCP, UDP, POOL], ("", ""), &[size]);
    is_refused("LB-C-08", &[("size", "small"), TIER1, TCP, UDP, POOL], ("", ""), &[size]);
}

// vectors: LB-C-09–LB-C-12
#[test]
fn lb_c_09_to_12_there_is_one_default_pool() {
    let public =
        ("[LoadBalancerClass \"public\"]\nip-pool-name = a\n", "loadBalancerClass: {public: {ipPoolName: a}}\n");
    is_refused("LB-C-09", &[TIER1, SIZE, TCP, UDP], public, &["no default load balancer class defined"]);
    let default = ("[LoadBalancerClass \"default\"]\n", "loadBalancerClass: {default: }\n");
    let no_pool = "default load balancer class: ipPoolName and ipPoolID is empty";
    is_refused("LB-C-10", &[TIER1, SIZE, TCP, UDP], default, &[no_pool]);
    let two = "either load balancer ipPoolName or ipPoolID can be set";
    is_refused("LB-C-11", &[TIER1, SIZE, TCP, UDP, POOL, ("ip-pool-id", "1")], ("", ""), &[two]);
    for parsed in load_balancer(&[("lb-service-id", "4711"), TIER1, SIZE, TCP, UDP, POOL], ("", "")) {
        let all = used(&parsed);
        assert_eq!((all.lb_service_id.as_deref(), all.tier1.as_deref()), (Some("4711"), Some(TIER1.1)), "LB-C-12");
    }
}

/// differs: in the Go program the class `a` also gets the pool id of the section, and the id overrides the name (L-20).
// vectors: LB-C-13
#[test]
fn lb_c_13_a_class_inherits_name_and_id_of_a_pool_as_one() {
    let classes = (
        "[LoadBalancerClass \"a\"]\nip-pool-name = own\n[LoadBalancerClass \"b\"]\ntcp-app-profile-path = path\n\
         [LoadBalancerClass]\n[LoadBalancerClass \"a\"]\nudp-app-profile-name = merged\n",
        "loadBalancerClass:\n  a: {ipPoolName: own, udpAppProfileName: merged}\n  b: {tcpAppProfilePath: path}\n  \"\":\n",
    );
    for parsed in load_balancer(&[("ip-pool-id", "123"), TIER1, SIZE, TCP, UDP], classes) {
        let all = used(&parsed);
        let class = |name: &str| all.class(name).unwrap();
        assert_eq!((class("a").pool, class("a").udp), (&pool("own"), &profile("merged")), "LB-C-13");
        assert_eq!(
            (class("b").pool, class("b").tcp),
            (&IpPool::Id("123".to_owned()), &Profile::Path("path".to_owned()))
        );
        assert_eq!((class("").pool, class("").tcp), (class(DEFAULT_CLASS).pool, &profile("tcp")));
        assert_eq!(all.classes.len(), 3, "L-13: a class without a body is empty");
    }
    // As in `setupClasses` of the Go program, the class `default` overrides the section for profiles. For pools the
    // section overrides the class.
    let default = (
        "[LoadBalancerClass \"default\"]\nip-pool-id = d\ntcp-app-profile-name = d\n[LoadBalancerClass \"a\"]\n",
        "loadBalancerClass: {default: {ipPoolId: d, tcpAppProfileName: d}, a: {}}\n",
    );
    for (own_pool, of_a) in [(Some(POOL), pool("pool")), (None, IpPool::Id("d".to_owned()))] {
        let fields: Vec<_> = [TIER1, SIZE, TCP, UDP].into_iter().chain(own_pool).collect();
        for parsed in load_balancer(&fields, default) {
            let all = used(&parsed);
            assert_eq!(all.class(DEFAULT_CLASS).unwrap().pool, &IpPool::Id("d".to_owned()));
            let a = all.class("a").unwrap();
            assert_eq!((a.pool, a.tcp, a.udp), (&of_a, &profile("d"), &profile("udp")));
        }
    }
}

// vectors: LB-C-14
#[test]
fn lb_c_14_tags_are_a_json_object_of_texts_in_ini() {
    let section = "[LoadBalancer]\nsize = SMALL\ntier1-gateway-path = /infra/tier-1s/a\nip-pool-name = p\n\
                   tcp-app-profile-name = t\nudp-app-profile-name = u\n";
    let tags = |written: &str| ini(&format!("{INI_NSX}{section}tags = {written}\n"));
    let long = format!("{{\\\"a\\\": \\\"{}\\\"}}", "b".repeat(257));
    for (id, written) in [
        ("LB-C-14", "not-json"),
        ("a number", "{\\\"a\\\": 1}"),
        ("a list", "[]"),
        ("quotes that INI takes away", "{\"a\": \"b\"}"),
        ("an end that is missing", "{\\\"a\\\": \\\"b\\\""),
    ] {
        let found = mistakes(&tags(written), PartName::LoadBalancers);
        assert!(
            found.len() == 1 && found[0].contains("tags: unmarshalling load balancer tags failed"),
            "{id}: {found:?}"
        );
        assert!(!found[0].contains("not-json"), "{found:?}");
    }
    assert!(mistakes(&tags(&long), PartName::LoadBalancers)[0].contains("expected scopes of at most 128 characters"));
    for (written, expected) in [
        ("", &[][..]),
        ("null", &[]),
        ("{}", &[]),
        ("{\\\"a\\\": null, \\\"owner\\\": \\\"me\\\"}", &[("a", ""), ("owner", "me")]),
    ] {
        let parsed = tags(written);
        let found: Vec<_> = used(&parsed).tags.iter().map(|(scope, tag)| (scope.as_str(), tag.as_str())).collect();
        assert_eq!(found, expected, "{written}");
    }
    let own = tags("{\\\"cluster\\\": \\\"x\\\"}");
    assert!(own.warnings.iter().any(|odd| odd.to_string().contains("ignored where the scope is one of")));
    // NSX accepts 30 tags for an object. `owner` replaces a tag that each object has.
    for (count, expected) in [
        (21, None),
        (22, Some("are omitted where they do not fit")),
        (23, Some("are omitted where they do not fit")),
        (24, Some("refuses the virtual servers of second load balancers")),
        (25, Some("refuses every virtual server")),
    ] {
        let pairs = (0..count)
            .map(|number| format!("\\\"t{number}\\\": \\\"x\\\""))
            .chain(["\\\"owner\\\": \\\"me\\\"".to_owned()]);
        let parsed = tags(&format!("{{{}}}", pairs.collect::<Vec<_>>().join(", ")));
        let problem = used(&parsed).too_many_tags();
        let warnings: Vec<String> = parsed.warnings.iter().map(ToString::to_string).collect();
        match (&problem, expected) {
            (Some(problem), Some(expected)) => {
                let start = format!("{count} tags are configured in addition to \"owner\"; expected at most 21");
                assert!(problem.starts_with(&start) && problem.contains(expected), "{problem}");
                assert!(warnings.iter().any(|warning| warning.contains(problem)), "{warnings:?}");
            }
            (problem, expected) => {
                assert_eq!((problem.is_some(), expected), (false, None), "{count}");
                assert!(!warnings.iter().any(|warning| warning.contains("expected at most 21")), "{warnings:?}");
            }
        }
    }
    let parsed = yaml("loadBalancer: {size: SMALL, tags: [a]}\n");
    assert!(
        mistakes(&parsed, PartName::LoadBalancers)
            .iter()
            .any(|told| told.contains("tags: expected a mapping of texts"))
    );
}

// vectors: RT-C-01, RT-C-02
#[test]
fn rt_c_01_and_rt_c_02_the_path_of_the_router_is_as_given() {
    let path = "/infra/tier-1s/test-router";
    for (id, parsed) in [
        ("RT-C-01", ini(&format!("{INI_NSX}[Route]\nrouter-path = {path}\n"))),
        ("RT-C-02", yaml(&format!("{YAML_NSX}route: {{routerPath: {path}}}\n"))),
    ] {
        assert_eq!((parsed.rejected.len(), parsed.warnings.len()), (0, 0), "{id}");
        assert_eq!(parsed.config.routes.used().unwrap().router, path, "{id}");
    }
    for other in
        ["infra/tier-1s/test-router", "/infra/tier-1s/test-router/", "/policy/api/v1/infra/tier-1s/test-router"]
    {
        let parsed = ini(&format!("{INI_NSX}[Route]\nrouter-path = {other}\n"));
        assert_eq!((parsed.rejected.len(), parsed.warnings.len()), (0, 1), "{other}");
        assert_eq!(parsed.config.routes.used().unwrap().router, path, "{other}");
    }
    let wrong = ini(&format!("{INI_NSX}[Route]\nrouter-path = test-router\n"));
    assert!(mistakes(&wrong, PartName::Routes)[0].contains("router-path: expected /infra/tier-0s/<id>"));
}

/// differs: a section that is missing is no error (L-19).
// vectors: RT-C-03
#[test]
fn rt_c_03_a_router_is_required() {
    for parsed in [
        ini(&format!("{INI_NSX}[Route]\n")),
        yaml(&format!("{YAML_NSX}route: {{}}\n")),
        yaml(&format!("{YAML_NSX}route: {{routerPath: \"\"}}\n")),
    ] {
        assert!(mistakes(&parsed, PartName::Routes)[0].contains("router path is required"), "RT-C-03");
        assert!(parsed.config.routes.is_refused() && parsed.config.nsx.used().is_some());
    }
    for absent in [ini(INI_NSX), yaml(YAML_NSX)] {
        assert_eq!((absent.config.routes, absent.rejected), (OptionalSection::Absent, Vec::new()));
    }
}

#[test]
fn load_balancers_and_routes_need_the_connection() {
    let route = ("[Route]\nrouter-path = /infra/tier-1s/a\n", "route: {routerPath: /infra/tier-1s/a}\n");
    for (id, nsx) in [("absent", ("", "")), ("refused", ("[NSXT]\nuser = a\n", "nsxt: {user: a}\n"))] {
        let texts = [format!("{INI}{FULL_INI}{}{}", route.0, nsx.0), format!("{YAML}{FULL_YAML}{}{}", route.1, nsx.1)];
        for text in texts {
            let parsed = read(&text, &[]);
            for (part, what) in
                [(PartName::LoadBalancers, "load balancers need NSX"), (PartName::Routes, "routes need NSX")]
            {
                let found = mistakes(&parsed, part);
                assert!(found.len() == 1 && found[0].ends_with(what), "{id}: {found:?}");
            }
            assert!(parsed.config.load_balancers.is_refused() && parsed.config.routes.is_refused(), "{id}");
            assert_eq!(parsed.config.nsx.is_refused(), id == "refused");
        }
    }
}

const SECRET_VALUE: &str = "hunter2";

proptest! {
    /// This holds for all other content of the section, and for every position of the value.
    #[test]
    fn no_password_and_no_token_is_shown(
        keys in proptest::sample::subsequence(
            vec!["host = h", "host = h/?", "user = u", "vmc-auth-host = a", "vmc-auth-host = u@a", "remote-auth = maybe",
                 "secret-name = n", "secret-namespace = n", "client-auth-key-file = k", "client-auth-cert-file = c", "x = y"],
            0..11,
        ),
        secret in proptest::sample::select(
            vec!["password = hunter2", "vmc-access-token = hunter2", "user = hunter2", "host = u:hunter2@h",
                 "vmc-auth-host = u:hunter2@h", "insecure-flag = hunter2", "hunter2 = hunter2", "pass word = hunter2",
                 "password = \"hunter2", "password hunter2"],
        ),
        is_variable in any::<bool>(),
    ) {
        let sections = format!("[NSXT]\n{}\n{secret}\n[Route]\nrouter-path = {SECRET_VALUE}\n", keys.join("\n"));
        let variables = [("NSXT_PASSWORD", SECRET_VALUE), ("NSXT_ALLOW_UNVERIFIED_SSL", SECRET_VALUE)];
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let environment = Environment::new(variables.into_iter().filter(|_| is_variable));
        let shown = match parse_within(&format!("{INI}{sections}"), "f", &environment, &FileChecks::default()) {
            Ok(parsed) => format!("{parsed:?}"),
            Err(errors) => format!("{errors:?} {errors}"),
        };
        prop_assert!(!shown.contains(SECRET_VALUE), "{shown}");
    }
}
