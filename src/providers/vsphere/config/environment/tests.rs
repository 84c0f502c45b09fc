//! Tests of the effect of environment variables on a `vsphere.conf`: a table of results, and a table of messages.

use super::super::sources::DEFAULT_DIRECTORY;
use super::super::tests::{thumbprint_texts, vcenters};
use super::super::{Config, ConfigErrors, FileChecks, IpFamily, ParsedConfig, VcenterConfig, parse_within};
use super::*;

mod refused_values;

type Texts = &'static [&'static str];

/// Returns the environment for variables in the form `NAME=value`, split at the first `=`, as the system does.
fn environment(variables: &[&str]) -> Environment {
    Environment::new(variables.iter().map(|variable| {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        (OsString::from(name), OsString::from(value))
    }))
}

/// Parses the file with these variables. Only `directories` exist.
fn read(text: &str, variables: &[&str], directories: &[&str]) -> Result<ParsedConfig, ConfigErrors> {
    let is_directory = |path: &std::path::Path| directories.iter().any(|directory| path.ends_with(directory));
    let environment = environment(variables);
    parse_within(text, "f", &environment, &FileChecks { is_directory: &is_directory, ..FileChecks::default() })
}

fn config(id: &str, text: &str, variables: &[&str], directories: &[&str]) -> Config {
    match read(text, variables, directories) {
        Ok(parsed) => parsed.config,
        Err(errors) => panic!("{id}: {errors}"),
    }
}

/// A file with one entry that has its own user name and password.
const FILE: &str = "[VirtualCenter \"a\"]\nuser=fu\npassword=fp\n";
const GLOBAL: &str =
    "[Global]\nserver=g\nuser=gu\npassword=gp\nport=8443\ndatacenters=gd\nip-family=ipv6\ninsecure-flag\n";
const STORED: &str = "[Global]\nsecret-name=n\nsecret-namespace=ns\n[VirtualCenter \"a\"]\n";
const EMPTY: &str = "# nothing\n";

#[test]
fn credentials_follow_file_and_variables() {
    let rows: &[(&str, &str, Texts, Texts, Texts)] = &[
        // vCenters and credentials that variables define.
        ("W2: the port defines no vCenter", FILE, &["VSPHERE_VCENTER_PORT=8443"], &[], &["a -> a, fu/fp"]),
        (
            "a value that is empty is not set",
            FILE,
            &["VSPHERE_VCENTER_1=", "VSPHERE_LABEL_ZONE="],
            &[],
            &["a -> a, fu/fp"],
        ),
        (
            "defined: own pair",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_USERNAME=u", "VCENTER_1_PASSWORD=p"],
            &[],
            &["a -> a, fu/fp", "b -> b, u/p"],
        ),
        (
            "W4: a value with =",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_USERNAME=u", "VCENTER_1_PASSWORD=p=q=="],
            &[],
            &["a -> a, fu/fp", "b -> b, u/p=q=="],
        ),
        (
            "defined: server",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_SERVER=h", "VSPHERE_USER=u", "VSPHERE_PASSWORD=p"],
            &[],
            &["a -> a, fu/fp", "b -> h, u/p"],
        ),
        ("defined: pair of Global", GLOBAL, &["VSPHERE_VCENTER_1=b"], &[], &["g -> g, gu/gp", "b -> b, gu/gp"]),
        (
            "defined: each by itself",
            GLOBAL,
            &["VSPHERE_VCENTER_1=b", "VSPHERE_USER=vu"],
            &[],
            &["g -> g, gu/gp", "b -> b, vu/gp"],
        ),
        (
            "defined: own Secret",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_SECRET_NAME=n", "VCENTER_1_SECRET_NAMESPACE=ns"],
            &[],
            &["a -> a, fu/fp", "b -> b, secret ns/n"],
        ),
        (
            "defined: pair, then Secret",
            GLOBAL,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_SECRET_NAME=n", "VCENTER_1_SECRET_NAMESPACE=ns"],
            &[],
            &["g -> g, gu/gp", "b -> b, gu/gp, secret ns/n"],
        ),
        (
            "defined: Secret of Global",
            STORED,
            &["VSPHERE_VCENTER_1=b"],
            &[],
            &["a -> a, secret ns/n", "b -> b, secret ns/n"],
        ),
        (
            "defined: half a Secret",
            STORED,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_SECRET_NAME=m"],
            &[],
            &["a -> a, secret ns/n", "b -> b, secret ns/n"],
        ),
        (
            "defined: replaces",
            &format!("{FILE}[VirtualCenter \"b\"]\nuser=v\npassword=w\n"),
            &["VSPHERE_VCENTER_1=a", "VCENTER_1_SERVER=h", "VCENTER_1_USERNAME=u", "VCENTER_1_PASSWORD=p"],
            &[],
            &["a -> h, u/p", "b -> b, v/w"],
        ),
        (
            "defined: replaces Global's",
            GLOBAL,
            &["VSPHERE_VCENTER_1=g", "VCENTER_1_USERNAME=u"],
            &[],
            &["g -> g, u/gp"],
        ),
        (
            "defined: in the order of names",
            FILE,
            &["VSPHERE_VCENTER_2=c", "VSPHERE_VCENTER_1=b", "VSPHERE_USER=u", "VSPHERE_PASSWORD=p"],
            &[],
            &["a -> a, fu/fp", "b -> b, u/p", "c -> c, u/p"],
        ),
        (
            "defined twice",
            FILE,
            &[
                "VSPHERE_VCENTER_1=b",
                "VSPHERE_VCENTER_2=b",
                "VCENTER_2_USERNAME=u2",
                "VSPHERE_USER=u",
                "VSPHERE_PASSWORD=p",
            ],
            &[],
            &["a -> a, fu/fp", "b -> b, u2/p"],
        ),
        (
            "an id with _",
            FILE,
            &["VSPHERE_VCENTER_B_1=b", "VCENTER_B_1_USERNAME=u", "VCENTER_B_1_PASSWORD=p"],
            &[],
            &["a -> a, fu/fp", "b -> b, u/p"],
        ),
        // Case W3 of `docs/compatibility.md`.
        (
            "W3: the file's pair stays",
            FILE,
            &["VSPHERE_USER=u", "VSPHERE_PASSWORD=p", "VSPHERE_VCENTER=x"],
            &[],
            &["a -> a, fu/fp"],
        ),
        (
            "W3: Global's pair stays",
            GLOBAL,
            &["VSPHERE_USER=u", "VSPHERE_PASSWORD=p", "VSPHERE_VCENTER=x"],
            &[],
            &["g -> g, gu/gp"],
        ),
        ("W3: a Secret stays", STORED, &["VSPHERE_USER=u", "VSPHERE_PASSWORD=p"], &[], &["a -> a, secret ns/n"]),
        (
            "W3: what Go refuses, no pair",
            "[VirtualCenter \"a\"]\n",
            &["VSPHERE_USER=u", "VSPHERE_PASSWORD=p"],
            &[],
            &["a -> a, u/p"],
        ),
        (
            "W3: what Go refuses, half a pair",
            "[VirtualCenter \"a\"]\nuser=fu\n",
            &["VSPHERE_USER=u", "VSPHERE_PASSWORD=p"],
            &[],
            &["a -> a, fu/p"],
        ),
        (
            "W3: what Go refuses, no vCenter",
            EMPTY,
            &["VSPHERE_VCENTER=x", "VSPHERE_USER=u", "VSPHERE_PASSWORD=p"],
            &[],
            &["x -> x, u/p"],
        ),
        (
            "W3: what Go refuses, no vCenter in the file",
            EMPTY,
            &[
                "VSPHERE_VCENTER_1=x",
                "VSPHERE_VCENTER=x",
                "VSPHERE_VCENTER_2=y",
                "VSPHERE_USER=u",
                "VSPHERE_PASSWORD=p",
            ],
            &[],
            &["x -> x, u/p", "y -> y, u/p"],
        ),
        // Variables of the shared Secret.
        (
            "Secret: another",
            STORED,
            &["VSPHERE_SECRET_NAME=m", "VSPHERE_SECRET_NAMESPACE=ms"],
            &[],
            &["a -> a, secret ms/m"],
        ),
        ("Secret: another name", STORED, &["VSPHERE_SECRET_NAME=m"], &[], &["a -> a, secret ns/m"]),
        (
            "Secret: not behind a pair of an entry",
            FILE,
            &["VSPHERE_SECRET_NAME=m", "VSPHERE_SECRET_NAMESPACE=ms"],
            &[],
            &["a -> a, fu/fp"],
        ),
        (
            "Secret: behind the pair of Global.server",
            GLOBAL,
            &["VSPHERE_SECRET_NAME=m", "VSPHERE_SECRET_NAMESPACE=ms"],
            &[],
            &["g -> g, gu/gp, secret ms/m"],
        ),
        (
            "Secret: Global.server keeps its own",
            "[Global]\nserver=g\nsecret-name=n\nsecret-namespace=ns\n",
            &["VSPHERE_SECRET_NAME=m", "VSPHERE_SECRET_NAMESPACE=ms"],
            &[],
            &["g -> g, secret ns/n"],
        ),
        (
            "Secret: what Go refuses",
            "[VirtualCenter \"a\"]\n",
            &["VSPHERE_SECRET_NAME=m", "VSPHERE_SECRET_NAMESPACE=ms"],
            &[],
            &["a -> a, secret ms/m"],
        ),
        (
            "Secret: each half from elsewhere",
            "[Global]\nserver=g\nsecret-name=n\n",
            &["VSPHERE_SECRET_NAMESPACE=ms"],
            &[],
            &["g -> g, secret ms/n"],
        ),
        // Variables of the directory.
        (
            "directory: of a variable",
            "[Global]\nserver=g\nsecrets-directory=/x\n",
            &["VSPHERE_SECRETS_DIRECTORY=/y"],
            &["/x", "/y"],
            &["g -> g, directory /y"],
        ),
        (
            "directory: goes before the Secret",
            STORED,
            &["VSPHERE_SECRETS_DIRECTORY=/y"],
            &["/y"],
            &["a -> a, directory /y"],
        ),
        (
            "directory: does not exist, beside a Secret",
            STORED,
            &["VSPHERE_SECRETS_DIRECTORY=/y"],
            &[],
            &["a -> a, secret ns/n"],
        ),
        (
            "directory: does not exist, alone",
            "[Global]\nserver=g\nsecrets-directory=/x\n",
            &[],
            &[DEFAULT_DIRECTORY],
            &["g -> g, directory /x"],
        ),
        (
            "directory: default",
            "[VirtualCenter \"a\"]\n",
            &[],
            &[DEFAULT_DIRECTORY],
            &["a -> a, directory /etc/cloud/secrets"],
        ),
        (
            "directory: default, behind the pair of Global.server",
            GLOBAL,
            &[],
            &[DEFAULT_DIRECTORY],
            &["g -> g, gu/gp, directory /etc/cloud/secrets"],
        ),
        ("directory: default, not behind a pair of an entry", FILE, &[], &[DEFAULT_DIRECTORY], &["a -> a, fu/fp"]),
        (
            "directory: default, for one that is defined",
            FILE,
            &["VSPHERE_VCENTER_1=b"],
            &[DEFAULT_DIRECTORY],
            &["a -> a, fu/fp", "b -> b, directory /etc/cloud/secrets"],
        ),
        ("W16: a Secret that was chosen stays", STORED, &[], &[DEFAULT_DIRECTORY], &["a -> a, secret ns/n"]),
        (
            "W16: a Secret that a variable chose stays",
            "[VirtualCenter \"a\"]\n",
            &["VSPHERE_SECRET_NAME=m", "VSPHERE_SECRET_NAMESPACE=ms"],
            &[DEFAULT_DIRECTORY],
            &["a -> a, secret ms/m"],
        ),
        (
            "C10: directory beside the Secret",
            "[Global]\nserver=s\nsecret-name=n\nsecret-namespace=ns\nsecrets-directory=/x\n",
            &[],
            &["/x"],
            &["s -> s, secret ns/n"],
        ),
    ];
    for (id, text, variables, directories, want) in rows {
        assert_eq!(vcenters(&config(id, text, variables, directories)), *want, "{id}");
    }
}

/// Returns the vCenter that variables define in addition to the file [`GLOBAL`].
fn defined(id: &str, variables: &[&str]) -> VcenterConfig {
    let all: Vec<_> = ["VSPHERE_VCENTER_1=b"].iter().chain(variables).copied().collect();
    config(id, GLOBAL, &all, &[]).vcenters.remove(1)
}

#[test]
fn a_defined_vcenter_has_its_values_else_those_of_variables_else_those_of_global() {
    let plain = defined("nothing more", &[]);
    assert_eq!((plain.port, plain.datacenters.as_slice()), (8443, ["gd".to_owned()].as_slice()));
    assert_eq!(plain.ip_families, [IpFamily::V6], "W15: without a family that of Global holds");
    assert!(!plain.insecure, "the flag of Global does not hold");
    let thumbprints = ["AA:".repeat(19) + "AA", "BB:".repeat(31) + "BB"];
    let all = [
        "VSPHERE_VCENTER_PORT=1".to_owned(),
        "VSPHERE_DATACENTER=vd,ve".to_owned(),
        "VSPHERE_CAFILE=/v.pem".to_owned(),
        format!("VSPHERE_THUMBPRINT={}", thumbprints[0]),
    ];
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let shared = defined("shared", &all);
    assert_eq!((shared.port, shared.datacenters.join(" ").as_str()), (1, "vd ve"), "W2: the default port");
    assert_eq!((shared.ca_files.len(), thumbprint_texts(&shared)), (1, thumbprints[..1].to_vec()));
    let own = [
        "VCENTER_1_PORT=2".to_owned(),
        "VCENTER_1_DATACENTERS=d".to_owned(),
        "VCENTER_1_CAFILE=/1.pem:/2.pem".to_owned(),
        format!("VCENTER_1_THUMBPRINT={}", thumbprints.join(" ")),
        "VCENTER_1_INSECURE=true".to_owned(),
        "VCENTER_1_ROUNDTRIP=x".to_owned(),
        "VCENTER_1_IP_FAMILY=ipv4, IPv6".to_owned(),
    ];
    let all: Vec<_> = all.into_iter().chain(own.iter().map(String::as_str)).collect();
    let own = defined("own", &all);
    assert_eq!((own.port, own.datacenters.join(" ").as_str(), own.ca_files.len()), (2, "d", 2));
    assert_eq!(thumbprint_texts(&own), thumbprints);
    assert!(own.insecure, "W15: the flag counts");
    assert_eq!(own.ip_families, [IpFamily::V4, IpFamily::V6], "W15: the families count");
}

#[test]
fn labels_and_nodes_of_variables_go_before_the_file() {
    let text = format!(
        "{FILE}[Labels]\nzone=fz\nregion=fr\n[Nodes]\ninternal-network-subnet-cidr=10.0.0.0/8\n\
                        external-vm-network-name=fe\nexclude-internal-network-subnet-cidr=10.1.0.0/16\n"
    );
    let got = config(
        "over",
        &text,
        &[
            "VSPHERE_LABEL_ZONE=vz",
            "VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR=192.168.0.0/16,fd00::/64",
            "VSPHERE_NODES_EXTERNAL_NETWORK_SUBNET_CIDR=172.16.0.0/12",
            "VSPHERE_NODES_INTERNAL_VM_NETWORK_NAME=vi",
            "VSPHERE_NODES_EXCLUDE_INTERNAL_NETWORK_SUBNET_CIDR=192.168.1.0/24",
        ],
        &[],
    );
    let labels = got.labels.expect("zones are on");
    assert_eq!((labels.zone.as_str(), labels.region.as_str()), ("vz", "fr"));
    let (internal, external) = (got.addresses.internal, got.addresses.external);
    let shown = |networks: &[ipnet::IpNet]| networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(shown(&internal.networks), "192.168.0.0/16 fd00::/64");
    assert_eq!(shown(&external.networks), "172.16.0.0/12");
    assert_eq!((internal.network_name.as_deref(), external.network_name.as_deref()), (Some("vi"), Some("fe")));
    assert_eq!(shown(&internal.excluded), "10.1.0.0/16", "there is no variable for this");
    let both = config("both labels", FILE, &["VSPHERE_LABEL_ZONE=vz", "VSPHERE_LABEL_REGION=vr"], &[]);
    assert!(both.labels.is_some());
}

#[test]
fn mistakes_of_variables_are_told_by_name_together_with_those_of_the_file() {
    let rows: &[(&str, &[&str], &[&str])] = &[
        (
            "",
            &["VSPHERE_VCENTER_1=b"],
            &["environment: VCENTER_1_USERNAME: missing", "environment: VCENTER_1_PASSWORD: missing"],
        ),
        ("", &["VSPHERE_VCENTER_1=https://s3cr"], &["environment: VSPHERE_VCENTER_1: expected a host name"]),
        (
            "",
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_SERVER=s3cr/sdk"],
            &["environment: VCENTER_1_SERVER: expected a host name"],
        ),
        (
            "",
            &[
                "VSPHERE_VCENTER_1=b",
                "VCENTER_1_PORT=s3cr",
                "VCENTER_1_INSECURE=s3cr",
                "VCENTER_1_IP_FAMILY=s3cr",
                "VCENTER_1_THUMBPRINT=s3cr",
            ],
            &[
                "environment: VCENTER_1_PORT: expected a port",
                "environment: VCENTER_1_INSECURE: expected true or false",
                "environment: VCENTER_1_IP_FAMILY: expected ipv4",
                "environment: VCENTER_1_THUMBPRINT: expected the SHA-256",
            ],
        ),
        (
            "",
            &["VSPHERE_VCENTER_1=b", "VSPHERE_VCENTER_PORT=70000"],
            &["environment: VSPHERE_VCENTER_PORT: expected a port"],
        ),
        (
            "",
            &["VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR=10.0.0.0/8,s3cr"],
            &["environment: VSPHERE_NODES_INTERNAL_NETWORK_SUBNET_CIDR: item 2: expected a network"],
        ),
        (
            "[Global]\nport=x\n",
            &["VSPHERE_VCENTER_1=b"],
            &["f:2: [Global] port: expected", "environment: VCENTER_1_USERNAME: missing"],
        ),
        ("[VirtualCenter \"c\"]\n", &[], &["f:1: [VirtualCenter \"c\"] user: missing"]),
    ];
    for (more, variables, want) in rows {
        let text = format!("{more}{FILE}");
        let reported: Vec<_> = match read(&text, variables, &[]) {
            Ok(parsed) => {
                let (config, refused) = (parsed.config, parsed.rejected);
                assert!(config.is_refused(PartName::FurtherVcenters), "{variables:?}: accepted");
                assert_eq!(vcenters(&config), ["a -> a, fu/fp"], "{variables:?}");
                refused.iter().map(|(_, error)| error.to_string()).collect()
            }
            Err(errors) => errors.errors.iter().map(ToString::to_string).collect(),
        };
        for part in *want {
            assert!(reported.iter().any(|line| line.starts_with(part)), "{part} is missing in {reported:?}");
        }
        assert!(!reported.concat().contains("s3cr"), "{reported:?}");
    }
}

/// Returns the variables that the kubelet sets for a Service with this name in capitals.
fn links(service: &str) -> Vec<String> {
    [
        "SERVICE_HOST=10.96.7.7",
        "SERVICE_PORT=443",
        "PORT=tcp://10.96.7.7:443",
        "PORT_443_TCP=tcp://10.96.7.7:443",
        "PORT_443_TCP_PROTO=tcp",
        "PORT_443_TCP_PORT=443",
        "PORT_443_TCP_ADDR=10.96.7.7",
    ]
    .map(|end| format!("{service}_{end}"))
    .to_vec()
}

#[test]
fn variables_that_kubernetes_sets_for_a_service_have_no_effect() {
    let rows: [(&str, &str, Texts, Texts, Texts); 5] = [
        ("VSPHERE_VCENTER", FILE, &[], &["a -> a, fu/fp"], &["VSPHERE_VCENTER_PORT: ignored", "vsphere-vcenter"]),
        ("VSPHERE_VCENTER_2", FILE, &[], &["a -> a, fu/fp"], &["VSPHERE_VCENTER_2_PORT: ignored", "vsphere-vcenter-2"]),
        (
            "VCENTER_1",
            FILE,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_USERNAME=u", "VCENTER_1_PASSWORD=p"],
            &["a -> a, fu/fp", "b -> b, u/p"],
            &["VCENTER_1_PORT: ignored", "vcenter-1"],
        ),
        (
            "VSPHERE_VCENTER",
            EMPTY,
            &["VSPHERE_VCENTER=x", "VSPHERE_USER=u", "VSPHERE_PASSWORD=p"],
            &["x -> x, u/p"],
            &["VSPHERE_VCENTER_PORT: ignored", "vsphere-vcenter"],
        ),
        // The manifests of this program and of the Go program have a Service with this name.
        ("VSPHERE_CLOUD_CONTROLLER_MANAGER", FILE, &[], &["a -> a, fu/fp"], &[]),
    ];
    for (service, text, more, expected, reported) in rows {
        let links = links(service);
        let variables: Vec<&str> = links.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let parsed = read(text, &variables, &[]).unwrap_or_else(|errors| panic!("{service}: {errors}"));
        assert_eq!(vcenters(&parsed.config), *expected, "{service}");
        let warnings: Vec<_> = parsed.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), usize::from(!reported.is_empty()), "{service}: {warnings:?}");
        assert!(reported.iter().all(|part| warnings.concat().contains(part)), "{service}: {warnings:?}");
    }
}

#[test]
fn no_variable_that_is_read_has_the_shape_of_a_link_but_those_that_name_ports() {
    // A Service may cause variables with these names for the vCenter id `1`.
    let names = variables().into_iter().map(|name| name.replace("<id>", "1"));
    let values = names.map(|name| (OsString::from(&name), OsString::from("tcp://10.96.7.7:443")));
    let hosts = ["VSPHERE", "VSPHERE_VCENTER", "VCENTER", "VCENTER_1", "NSXT", "NSXT_MANAGER"];
    let hosts = hosts.map(|prefix| (OsString::from(format!("{prefix}_SERVICE_HOST")), OsString::from("h")));
    let all: Vec<_> = values.chain(hosts).collect();
    let kept = Environment::new(all.clone());
    let is_host = |name: &str| name.ends_with("_SERVICE_HOST");
    let read = all.iter().filter_map(|(name, _)| name.to_str()).filter(|name| !is_host(name));
    let lost: Vec<_> = read.filter(|name| name.starts_with('V') && !kept.variables.contains_key(*name)).collect();
    assert_eq!(lost, ["VSPHERE_VCENTER_PORT", "VCENTER_1_PORT"]);
}

#[test]
fn what_has_no_effect_is_told_by_name() {
    let rows: &[(&str, Texts, Texts, Texts)] = &[
        (
            FILE,
            &["ENABLE_ALPHA_DUAL_STACK=", "SKIP_NODE_DELETION=", "VSPHERE_KUBE_CONFIG=/x", "VSPHERE_ROUNDTRIP_COUNT=x"],
            &[],
            &[],
        ),
        (FILE, &["VSPHERE_VCENTER=x"], &[], &["environment: VSPHERE_VCENTER: no effect: vCenters are defined already"]),
        (FILE, &["VSPHERE_USER=u"], &[], &["environment: VSPHERE_USER: no effect: every vCenter has"]),
        (
            FILE,
            &["VSPHERE_VCENTER_PASSWORD=p", "VSPHERE_VCENTER_A_PASSWORD=p"],
            &[],
            &[
                "environment: VSPHERE_VCENTER_A_PASSWORD: no effect: expected VSPHERE_PASSWORD or VCENTER_<id>_PASSWORD",
                "environment: VSPHERE_VCENTER_PASSWORD: no effect: expected VSPHERE_PASSWORD or VCENTER_<id>_PASSWORD",
            ],
        ),
        (
            FILE,
            &["VSPHERE_VCENTER_PORT=1", "VSPHERE_DATACENTER=d", "VSPHERE_CAFILE=x", "VSPHERE_THUMBPRINT=x"],
            &[],
            &[
                "environment: VSPHERE_VCENTER_PORT: no effect",
                "environment: VSPHERE_DATACENTER: no effect",
                "environment: VSPHERE_CAFILE: no effect",
                "environment: VSPHERE_THUMBPRINT: no effect",
            ],
        ),
        (
            FILE,
            &["VSPHERE_INSECURE=true"],
            &[],
            &["environment: VSPHERE_INSECURE: no effect: expected insecure-flag in the file"],
        ),
        (
            FILE,
            &["VCENTER_9_USERNAME=u"],
            &[],
            &["environment: VCENTER_9_USERNAME: no effect: expected the variable VSPHERE_VCENTER_9"],
        ),
        (FILE, &["VCENTER_USERNAME=u", "VCENTER_9_COLOUR=red"], &[], &[]),
        (FILE, &["VSPHERE_SECRET_NAME=n"], &[], &["environment: VSPHERE_SECRET_NAME: ignored: name and namespace"]),
        (FILE, &["VSPHERE_LABEL_ZONE=z"], &[], &["environment: VSPHERE_LABEL_ZONE: no effect: zones are on only when"]),
        (
            GLOBAL,
            &["VSPHERE_VCENTER_1=b", "VSPHERE_VCENTER_2=b"],
            &[],
            &["environment: VSPHERE_VCENTER_2: replaces the vCenter of another variable"],
        ),
        (
            GLOBAL,
            &["VSPHERE_VCENTER_1=b", "VCENTER_1_SERVER=g", "VCENTER_1_INSECURE=1"],
            &[],
            &["environment: VCENTER_1_SERVER: the same vCenter as [Global]"],
        ),
        (
            STORED,
            &[],
            &[DEFAULT_DIRECTORY],
            &["f:2: [Global] secret-name: the secret is used, although the directory /etc/cloud/secrets exists"],
        ),
        (
            STORED,
            &["VSPHERE_SECRETS_DIRECTORY=/y"],
            &["/y"],
            &["environment: VSPHERE_SECRETS_DIRECTORY: a secret is named as well"],
        ),
        (
            STORED,
            &["VSPHERE_SECRETS_DIRECTORY=/y"],
            &[],
            &["environment: VSPHERE_SECRETS_DIRECTORY: ignored: it is no directory"],
        ),
    ];
    for (text, variables, directories, want) in rows {
        let parsed = match read(text, variables, directories) {
            Ok(parsed) => parsed,
            Err(errors) => panic!("{variables:?}: {errors}"),
        };
        let reported: Vec<_> = parsed.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(reported.len(), want.len(), "{variables:?}: {reported:?}");
        for (line, part) in reported.iter().zip(*want) {
            assert!(line.starts_with(part), "{part} is not {line}");
        }
    }
}

#[test]
fn only_known_names_are_kept_and_no_value_is_shown() {
    let kept = environment(&[
        "PATH=/bin",
        "VSPHERE_PASSWORD=s3cr",
        "VCENTER_1_PASSWORD=s3cr",
        "AWS_SECRET=s3cr",
        "SKIP_NODE_DELETION=false",
    ]);
    assert_eq!(format!("{kept:?}"), r#"["SKIP_NODE_DELETION", "VCENTER_1_PASSWORD", "VSPHERE_PASSWORD"]"#);
    assert!(kept.skips_node_deletion() && !environment(&[]).skips_node_deletion());
}
