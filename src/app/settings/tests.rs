//! Tests of the checks of all flags, and that all mistakes are reported together.

use super::*;
use crate::app::options::{self, Invocation, PROGRAM};
use crate::app::settings::vsphere::{CloudConfigFile, NsxSettings};
use crate::clients::http::TlsTrust;
use crate::providers::vsphere::nsx::load_balancer::RequestedAddresses;
use crate::providers::vsphere::nsx::load_balancer::orphans::Policy;
use crate::providers::vsphere::nsx::routes::Adoption;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::LazyLock;
use zeroize::Zeroizing;

const CONFIG: &str = "[VirtualCenter \"vc.example\"]\nuser = \"u\"\npassword = \"hunter2-secret\"\n";

/// A valid kubeconfig.
const KUBECONFIG: &str = "clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443'}}]\n\
                          contexts: [{name: x, context: {cluster: c, user: u}}]\n\
                          users: [{name: u, user: {token: hunter2}}]\ncurrent-context: x\n";

/// Two certificates with their keys.
static PAIRS: LazyLock<[(String, String); 2]> = LazyLock::new(|| {
    ["a", "b"].map(|name| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    })
});

struct MadeUp;

impl FileSystem for MadeUp {
    fn read(&self, path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
        let content = match path.to_str() {
            Some("/etc/vsphere.conf") => CONFIG,
            Some("/etc/empty.conf") => " \n",
            Some("/etc/utf-16.conf") => "[\0G\0",
            Some("/etc/plural.yaml") => "vcenters: {a: {server: s}}\n",
            Some("/etc/kubeconfig") => KUBECONFIG,
            Some("/etc/broken-kubeconfig") => "current-context: x\nusers: [{name: u, user: {token: \"hunter2}}]\n",
            Some("/etc/two.conf") => TWO_VCENTERS,
            Some("/etc/ca.yaml") => CA_FILES,
            Some("/etc/unverified.conf") => UNVERIFIED,
            Some("/etc/ca.pem") => "a bundle",
            Some("/etc/nsx.conf") => NSX,
            Some("/etc/nsx-key.conf") => NSX_KEY,
            Some("/etc/balancers.conf") => BALANCERS,
            Some("/etc/nsx-insecure.conf") => NSX_INSECURE,
            Some("/etc/migration.yaml") => MIGRATION,
            Some("/etc/endpoints.yaml") => ENDPOINTS,
            Some("/a.crt") => &PAIRS[0].0,
            Some("/a.key") => &PAIRS[0].1,
            Some("/b.crt") => &PAIRS[1].0,
            Some("/b.key") => &PAIRS[1].1,
            _ => return Err(std::io::ErrorKind::NotFound.into()),
        };
        Ok(Zeroizing::new(content.as_bytes().to_vec()))
    }

    fn is_directory(&self, _: &Path) -> bool {
        false
    }
}

const MIGRATION: &str = "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n\
                         leaderName: moving\ncontrollerLeaders: [{name: cloud-node-controller, component: '*'}]\n";

const ENDPOINTS: &str = "apiVersion: controllermanager.config.k8s.io/v1beta1\nkind: LeaderMigrationConfiguration\n\
                         leaderName: cloud-controller-manager\nresourceLock: endpoints\n";

/// Both entries have a mistake that is only found when their CA file is read.
const TWO_VCENTERS: &str = "[Global]\nuser = u\npassword = hunter2-secret\n[VirtualCenter \"a\"]\nca-file = /gone.pem\n\
                            [VirtualCenter \"b\"]\nca-file = /etc/kubeconfig\n";

/// The entry `a` inherits its CA file.
const CA_FILES: &str = "global:\n  user: u\n  password: p\n  caFile: /gone.pem\nvcenter:\n  \
                        b: {server: b.example, caFile: /gone-too.pem}\n  a: {server: a.example}\n  \
                        c: {server: c.example}\n";

/// The vCenters `a` and `b` are not verified, so only their session manager uses the CA file. The CA file of `b` is
/// missing. The vCenter `c` is verified.
const UNVERIFIED: &str = "[Global]\nuser = u\npassword = p\n[VirtualCenter \"a\"]\ninsecure-flag = true\n\
                          ca-file = /etc/ca.pem\n[VirtualCenter \"b\"]\ninsecure-flag = true\nport = 8443\n\
                          ca-file = /gone.pem\n[VirtualCenter \"c\"]\n";

/// The mistakes of this file are only found when its CA file is read.
const NSX: &str = "[VirtualCenter \"a\"]\nuser = u\npassword = p\n[NSXT]\nhost = n\nuser = u\npassword = p\n\
                   ca-file = /etc/ca.pem\n[Route]\nrouter-path = /infra/tier-1s/a\n[LoadBalancer]\nsize = SMALL\n";

const NSX_KEY: &str = "[VirtualCenter \"a\"]\nuser = u\npassword = p\n[NSXT]\nhost = n\n\
                       client-auth-cert-file = /etc/ca.pem\nclient-auth-key-file = /gone.pem\nca-file = /lost.pem\n";

const BALANCERS: &str = "[VirtualCenter \"a\"]\nuser = u\npassword = p\n[NSXT]\nhost = n\nuser = u\npassword = p\n\
                         insecure-flag = true\n[LoadBalancer]\nip-pool-id = p1\nsize = SMALL\ntier1-gateway-path = /infra/tier-1s/t1\n\
                         tcp-app-profile-path = /infra/lb-app-profiles/t\nudp-app-profile-path = /infra/lb-app-profiles/u\n\
                         [LoadBalancerClass \"web\"]\nip-pool-id = p2\n";

const NSX_INSECURE: &str = "[VirtualCenter \"a\"]\nuser = u\npassword = p\n[NSXT]\nhost = n:8443\nuser = u\n\
                            password = p\ninsecure-flag = true\n";

/// Case L-18 of `docs/compatibility.md`.
#[test]
fn a_file_of_nsx_that_cannot_be_used_turns_off_nsx_and_what_needs_it_at_the_start() {
    let refused = |path: &str| {
        let cloud_config = vsphere(&[&format!("--cloud-config={path}")]).cloud_config;
        assert!(cloud_config.config.nsx.is_refused() && cloud_config.nsx_tls.is_none(), "{path}");
        assert_eq!(cloud_config.config.vcenters.len(), 1, "{path}");
        cloud_config.rejected.iter().map(|(part, error)| format!("{part}: {error}")).collect::<Vec<_>>()
    };
    let found = refused("/etc/nsx.conf");
    let has = |start: &str| found.iter().any(|mistake| mistake.starts_with(start));
    assert!(
        has(
            "nsx: /etc/nsx.conf:8: [NSXT] ca-file: cannot set up the connection to n:443: the CA file /etc/ca.pem holds no certificate"
        ),
        "{found:#?}"
    );
    assert!(has("routes: /etc/nsx.conf: routes: expected a section NSXT without errors"), "{found:#?}");
    assert!(has("load-balancers: /etc/nsx.conf:11: [LoadBalancer]"), "{found:#?}");
    let found = refused("/etc/nsx-key.conf").join("\n");
    assert!(
        found.contains("/etc/nsx-key.conf:7: [NSXT] client-auth-key-file: the key /gone.pem cannot be read")
            && found.contains("/etc/nsx-key.conf:8: [NSXT] ca-file: the CA file /lost.pem cannot"),
        "{found}"
    );

    let file = CloudConfigFile {
        path: "/etc/nsx.conf".into(),
        environment: Environment::default(),
        ipv6_pools: Default::default(),
    };
    let (read, seen) = file.read(&MadeUp);
    let errors = read.unwrap().without_refused_parts(None).unwrap_err();
    assert!(errors.to_string().contains("/etc/nsx.conf:8: [NSXT] ca-file: cannot set up"), "{errors}");
    struct OtherBundle;
    impl FileSystem for OtherBundle {
        fn read(&self, path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
            if path == Path::new("/etc/ca.pem") { Ok(Zeroizing::new(b"other".to_vec())) } else { MadeUp.read(path) }
        }

        fn is_directory(&self, _: &Path) -> bool {
            false
        }
    }
    assert!(!seen.differs(&MadeUp) && seen.differs(&OtherBundle), "the CA file is watched");
}

#[test]
fn a_further_vcenter_whose_ca_file_cannot_be_used_is_turned_off_and_stays_so() {
    let read = |path: &str, variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let environment = Environment::new(variables);
        CloudConfigFile { path: path.into(), environment, ipv6_pools: Default::default() }.read(&MadeUp).0
    };
    let login = [("VCENTER_1_USERNAME", "u"), ("VCENTER_1_PASSWORD", "hunter2"), ("VCENTER_1_CAFILE", "/gone.pem")];
    let beside = |key| [&[("VSPHERE_VCENTER_1", key)], &login[..]].concat();
    let started = read("/etc/unverified.conf", &beside("far")).unwrap();
    assert_eq!(
        (started.config.vcenters.len(), &*started.config.refused_vcenters),
        (3, &["VSPHERE_VCENTER_1".to_owned()][..])
    );
    let messages: Vec<_> = started.rejected.iter().map(|(part, error)| format!("{part}: {error}")).collect();
    assert!(
        messages.len() == 1
            && messages[0].starts_with("further-vcenters: environment: VCENTER_1_CAFILE: the CA file /gone.pem"),
        "{messages:?}"
    );
    // A reload with unchanged variables succeeds. A part that works now must not be turned off by a reload.
    assert!(read("/etc/unverified.conf", &beside("far")).unwrap().without_refused_parts(Some(&started)).is_ok());
    let without = read("/etc/unverified.conf", &[]).unwrap();
    for in_force in [Some(&without), None] {
        let new = read("/etc/unverified.conf", &beside("far")).unwrap();
        assert!(new.without_refused_parts(in_force).unwrap_err().to_string().contains("VCENTER_1_CAFILE"));
    }
    // The variable defines the same key as the only entry of the file. That entry stays, with its own CA file.
    let only = read("/etc/nsx-insecure.conf", &beside("a")).unwrap();
    assert_eq!((only.config.vcenters.len(), only.tls.contains_key("a")), (1, true));
    assert_eq!(*only.config.refused_vcenters, ["VSPHERE_VCENTER_1"]);
    let reported: Vec<_> = only.rejected.iter().map(|(part, mistake)| format!("{part}: {mistake}")).collect();
    assert!(reported.len() == 1 && reported[0].contains("VCENTER_1_CAFILE: the CA file /gone.pem"), "{reported:?}");
    assert!(!reported.concat().contains("hunter2"), "{reported:?}");
    // A mistake in the file itself ends the start, because the rejected variable does not replace the entry.
    let wrong = read("/etc/two.conf", &beside("a")).unwrap_err().to_string();
    let of_file = "/etc/two.conf:5: [VirtualCenter \"a\"] ca-file: the CA file /gone.pem cannot be read";
    assert!(wrong.contains(of_file) && wrong.contains("VCENTER_1_CAFILE"), "{wrong}");
}

#[test]
fn a_pool_for_ipv6_belongs_to_a_class_of_the_file() {
    fn with<'a>(flags: &[&'a str]) -> Vec<&'a str> {
        [&["--cloud-config=/etc/balancers.conf"], flags].concat()
    }
    for flags in
        [&["--nsx-ipv6-pool=web=p6,default=p7"][..], &["--nsx-ipv6-pool=web=p6", "--nsx-ipv6-pool= default = p7"]]
    {
        let cloud_config = vsphere(&with(flags)).cloud_config;
        let pools = &cloud_config.config.load_balancers.used().unwrap().ipv6_pools;
        let expected = [("default", "p7"), ("web", "p6")].map(|(class, pool)| (class.to_owned(), pool.to_owned()));
        assert_eq!(*pools, expected.into(), "{flags:?}");
    }
    assert!(vsphere(&with(&[])).cloud_config.config.load_balancers.used().unwrap().ipv6_pools.is_empty());
    for (flag, expected) in [
        ("--nsx-ipv6-pool=p6", "--nsx-ipv6-pool=p6: expected CLASS=POOL-ID"),
        ("--nsx-ipv6-pool==p6", "--nsx-ipv6-pool==p6: expected CLASS=POOL-ID"),
        ("--nsx-ipv6-pool=web=", "--nsx-ipv6-pool=web=: expected CLASS=POOL-ID"),
        ("--nsx-ipv6-pool=web=/infra/ip-pools/p6", "expected CLASS=POOL-ID"),
        ("--nsx-ipv6-pool=web=p6,web=p7", "--nsx-ipv6-pool=web=p7: the class has another pool already"),
        (
            "--nsx-ipv6-pool=gold=p6",
            "--nsx-ipv6-pool=gold=p6: /etc/balancers.conf does not have the class \"gold\"; it has web, default",
        ),
    ] {
        let found = settled(&with(&[flag])).err().unwrap().to_string();
        assert!(found.contains(expected), "{flag}: {found}");
    }
}

#[test]
fn a_connection_to_nsx_that_is_not_verified_is_reported() {
    let cloud_config = vsphere(&["--cloud-config=/etc/nsx-insecure.conf"]).cloud_config;
    let warnings = cloud_config.unverified();
    assert!(
        warnings.len() == 1 && warnings[0].starts_with("NSX n:8443: its certificate is not verified"),
        "{warnings:?}"
    );
    assert!(cloud_config.nsx_tls.as_ref().is_some_and(|tls| tls.insecure) && cloud_config.rejected.is_empty());
}

#[test]
fn a_vcenter_that_is_not_verified_keeps_its_ca_file_and_is_told() {
    let cloud_config = vsphere(&["--cloud-config=/etc/unverified.conf"]).cloud_config;
    let trust = |key: &str| (cloud_config.tls[key].insecure, cloud_config.tls[key].trust.clone());
    let bundle = TlsTrust::Ca { pem: b"a bundle\n".to_vec(), path: "/etc/ca.pem".to_owned() };
    assert_eq!(trust("a"), (true, bundle));
    assert_eq!(trust("b"), (true, TlsTrust::System), "what is not verified does not keep the daemon from starting");
    let expected = "its certificate is not verified (insecure-flag): its credentials can be intercepted. Set ca-file \
                    or thumbprint in place of insecure-flag";
    assert_eq!(cloud_config.unverified(), ["a:443", "b:8443"].map(|server| format!("vCenter {server}: {expected}")));
}

#[test]
fn hosts_of_session_managers_are_read_as_urls_name_them() {
    let hosts = "--session-manager-hosts=Manager.Example.com, 10.0.0.1,[fd00::01],fd00::2,";
    let vsphere_settings = vsphere(&[hosts]);
    let shown: Vec<_> = vsphere_settings.session_manager_hosts.iter().map(String::as_str).collect();
    assert_eq!(shown, ["10.0.0.1", "fd00::1", "fd00::2", "manager.example.com"]);
    assert!(vsphere(&[]).session_manager_hosts.is_empty());
    let token = |arguments: &[&str]| vsphere(arguments).session_manager_token;
    assert_eq!(token(&["--session-manager-token-file=/run/t"]).as_deref(), Some(std::path::Path::new("/run/t")));
    assert_eq!(token(&[]), None);
    for wrong in ["https://m", "m:8443", "m/x", "u@m", "a b", "m?x"] {
        let messages = settled(&[&format!("--session-manager-hosts={wrong}")]).unwrap_err().to_string();
        assert!(messages.contains("expected host names or IP addresses"), "{wrong}: {messages}");
    }
}

#[test]
fn every_vcenter_is_checked_although_another_is_wrong() {
    let text = settled(&["--cloud-config=/etc/two.conf"]).unwrap_err().to_string();
    assert!(text.starts_with("2 configuration errors:"), "{text}");
    assert!(
        text.contains("/etc/two.conf:5: [VirtualCenter \"a\"] ca-file: the CA file /gone.pem cannot be read"),
        "{text}"
    );
    let of_b = "/etc/two.conf:7: [VirtualCenter \"b\"] ca-file: ";
    assert!(text.contains(of_b) && text.contains("/etc/kubeconfig"), "{text}");
}

#[test]
fn a_missing_ca_file_names_the_line_and_the_key_also_where_it_is_inherited() {
    let yaml = settled(&["--cloud-config=/etc/ca.yaml"]).unwrap_err().to_string();
    for place in ["/etc/ca.yaml:4: global.caFile: ", "/etc/ca.yaml:6: vcenter.b.caFile: "] {
        assert_eq!(yaml.matches(&format!("{place}the CA file /gone")).count(), 1, "{place} in {yaml}");
    }
}

fn vsphere(arguments: &[&str]) -> Vsphere {
    let ProviderSettings::Vsphere(vsphere) = settled(arguments).unwrap().provider;
    vsphere
}

pub(in crate::app) fn settled(arguments: &[&str]) -> Result<Settings, SettingErrors> {
    settled_in(&[], arguments)
}

/// Reads the flags with these environment variables. Variables that replace flags come from the process instead.
pub(in crate::app) fn settled_in(variables: &[(&str, &str)], arguments: &[&str]) -> Result<Settings, SettingErrors> {
    let all = [PROGRAM, "--cloud-config=/etc/vsphere.conf"].into_iter().chain(arguments.iter().copied());
    let pod = [("KUBERNETES_SERVICE_HOST", "10.96.0.1")];
    let variables = variables.iter().chain(&pod).map(|(name, value)| (OsString::from(name), OsString::from(value)));
    match options::parse(all.map(OsString::from)) {
        Ok(Invocation::Run(options)) => resolve(&options, &MadeUp, &Environment::new(variables)),
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn what_the_flags_say_of_nsx() {
    let nsx = |flags: &[&str]| vsphere(flags).nsx;
    let NsxSettings { calls_per_second, adoption, orphans, requested_addresses, batches } = nsx(&[]);
    assert_eq!((calls_per_second, adoption, orphans), (80, Adoption::AsIs, Policy::Delete));
    assert_eq!((requested_addresses, batches), (RequestedAddresses::Honored, true));
    for (flag, adoption) in [("as-is", Adoption::AsIs), ("full", Adoption::Full)] {
        assert_eq!(nsx(&[&format!("--nsx-adopt={flag}")]).adoption, adoption, "{flag}");
    }
    for (flag, orphans) in [("delete", Policy::Delete), ("report", Policy::Report), ("off", Policy::Off)] {
        assert_eq!(nsx(&[&format!("--nsx-orphans={flag}")]).orphans, orphans, "{flag}");
    }
    for (flag, requested) in [("on", RequestedAddresses::Honored), ("off", RequestedAddresses::Ignored)] {
        assert_eq!(nsx(&[&format!("--nsx-load-balancer-ip={flag}")]).requested_addresses, requested, "{flag}");
    }
    for rate in [1, 1000] {
        assert_eq!(nsx(&[&format!("--nsx-requests-per-second={rate}")]).calls_per_second, rate);
    }
    for (flag, expected) in [
        ("--nsx-adopt=Full", "as-is or full"),
        ("--nsx-orphans=keep", "delete, report or off"),
        ("--nsx-load-balancer-ip=true", "on or off"),
        ("--nsx-requests-per-second=0", "a whole number from 1 to 1000"),
        ("--nsx-requests-per-second=1001", "a whole number from 1 to 1000"),
    ] {
        let text = settled(&[flag]).unwrap_err().to_string();
        assert!(text.contains(&format!("{flag}: expected {expected}")), "{text}");
    }
}

/// The daemon reads the file again at run time, without the flags.
#[test]
fn the_cloud_config_is_read_by_itself_and_again() {
    let file = vsphere(&[]).file;
    let read = file.read(&MadeUp);
    assert_eq!(read.0.unwrap().config.vcenters[0].key, "vc.example");
    assert!(!read.1.differs(&MadeUp));
}

#[test]
fn defaults_are_the_go_programs_where_no_difference_is_intended() {
    let settings = settled(&[]).unwrap();
    let election = Election {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        migration: None,
    };
    assert_eq!(settings.election, Some(election));
    assert_eq!(
        (settings.lease.namespace.as_str(), settings.lease.name.as_str()),
        ("kube-system", "cloud-controller-manager")
    );
    assert_eq!(
        settings.nodes,
        node::NodeSettings {
            workers: NonZeroUsize::new(16).unwrap(),
            period: Duration::from_secs(300),
            policy: node::Policy::default()
        }
    );
    assert_eq!(settings.serving.map(|serving| serving.address), Some("0.0.0.0:10258".parse().unwrap()));
    assert_eq!(settings.controllers.len(), 4);
    assert_eq!(settings.kubernetes.rate, None);
    assert_eq!(settings.node_selector, None);
    let ProviderSettings::Vsphere(vsphere) = settings.provider;
    assert_eq!(vsphere.options.tag_poll, Duration::from_secs(60));
}

#[test]
fn flags_reach_the_settings() {
    let settings = settled(&[
        "--leader-elect=F",
        "--secure-port=0",
        "--controllers=cloud-node",
        "--kube-api-qps=0.5",
        "--kubeconfig=/etc/kubeconfig",
        "--master=http://127.0.0.1:1",
        "--node-selector=pool=blue",
        "--node-status-update-frequency=1m30s",
        "--concurrent-node-syncs=1",
        "--tag-poll-interval=2s",
        "--allow-name-match",
    ])
    .unwrap();
    assert_eq!(settings.election, None);
    assert_eq!(settings.serving, None);
    assert_eq!(settings.controllers.iter().map(|controller| controller.name).collect::<Vec<_>>(), [catalogue::NODE]);
    assert_eq!(settings.kubernetes.rate, Some(client::Rate { qps: 0.5, burst: 30 }));
    assert_eq!(settings.kubernetes.kubeconfig.as_deref(), Some(Path::new("/etc/kubeconfig")));
    assert_eq!(settings.kubernetes.master.as_deref(), Some("http://127.0.0.1:1"));
    assert_eq!(settings.node_selector.as_deref(), Some("pool=blue"));
    assert_eq!(settings.nodes.period, Duration::from_secs(90));
    assert_eq!(settings.nodes.workers.get(), 1);
    let ProviderSettings::Vsphere(vsphere) = settings.provider;
    assert_eq!(vsphere.options.tag_poll, Duration::from_secs(2));
    assert!(vsphere.options.allow_name_match);
}

#[test]
fn each_wrong_flag_is_told_with_its_value_and_what_is_expected() {
    let cases: &[(&[&str], &str)] = &[
        (&["--cloud-config="], "--cloud-config: required (path of vsphere.conf)"),
        (&["--cloud-config=/gone"], "--cloud-config=/gone: cannot be read: entity not found"),
        (
            &["--cloud-config=/etc/utf-16.conf"],
            "--cloud-config=/etc/utf-16.conf: the file is text in UTF-16: save it as UTF-8",
        ),
        // The warning is often the cause of the error, so the error includes it.
        (
            &["--cloud-config=/etc/plural.yaml"],
            "/etc/plural.yaml: no vCenter is defined: expected server in the section Global, or an entry for a vCenter\n  \
             warning: /etc/plural.yaml:1: vcenters: unknown section, ignored; did you mean vcenter?",
        ),
        (&["--cloud-config=/etc/empty.conf"], "--cloud-config=/etc/empty.conf: the file is empty"),
        (
            &["--cloud-provider=aws"],
            "--cloud-provider=aws: unknown provider; only \"vsphere\" is supported (vsphere-paravirtual is not implemented)",
        ),
        // Only the provider `vsphere` reads the file and checks its own flags.
        (
            &["--cloud-provider=aws", "--cloud-config=/gone", "--tag-poll-interval=0"],
            "--cloud-provider=aws: unknown provider",
        ),
        (&["--cloud-provider="], "--cloud-provider=: required; only \"vsphere\" is supported"),
        (
            &["--cloud-provider=vsphere-paravirtual"],
            "--cloud-provider=vsphere-paravirtual: this provider is not implemented; only \"vsphere\" is supported",
        ),
        (
            &["--controllers=*,-nodes"],
            "--controllers=nodes: \"nodes\" is not in the list of known controllers; expected *, or of ",
        ),
        (&["--concurrent-node-syncs=many"], "--concurrent-node-syncs=many: expected a whole number above 0"),
        (
            &["--node-status-update-frequency=5"],
            "--node-status-update-frequency=5: it is not a duration such as 1h2m3s",
        ),
        (&["--node-status-update-frequency=-5m"], "--node-status-update-frequency=-5m: it is negative"),
        (&["--node-status-update-frequency=10ms"], "--node-status-update-frequency=10ms: expected at least 1s"),
        (&["--tag-poll-interval=0"], "--tag-poll-interval=0: expected at least 1s"),
        (&["--kube-api-qps=fast"], "--kube-api-qps=fast: expected a number such as 20 or 0.5"),
        (&["--kube-api-qps=NaN"], "--kube-api-qps=NaN: expected a number such as 20 or 0.5"),
        (&["--concurrent-node-syncs=2147483647"], "--concurrent-node-syncs=2147483647: expected at most 4096"),
        (
            &["--concurrent-service-syncs=0"],
            "--concurrent-service-syncs=0: concurrent-service-syncs must be a positive number",
        ),
        (&["--kube-api-burst=-3"], "--kube-api-burst=-3: expected a whole number such as 30"),
        (&["--leader-elect=yes"], "--leader-elect=yes: expected true or false"),
        (
            &["--leader-elect-lease-duration=10s"],
            "--leader-elect-lease-duration=10s: expected more than --leader-elect-renew-deadline (10s)",
        ),
        (
            &[
                "--leader-elect-lease-duration=500ms",
                "--leader-elect-renew-deadline=300ms",
                "--leader-elect-retry-period=100ms",
            ],
            "--leader-elect-lease-duration=500ms: expected at least 1s",
        ),
        (
            &["--leader-elect-retry-period=9s"],
            "--leader-elect-renew-deadline=10s: expected more than 1.2 times --leader-elect-retry-period (9s)",
        ),
        (&["--leader-elect-retry-period=0"], "--leader-elect-retry-period=0s: expected more than 0s"),
        (
            &["--leader-elect-resource-lock=endpoints"],
            "--leader-elect-resource-lock=endpoints: resourceLock value must be \"leases\"",
        ),
        (&["--leader-elect-resource-name=A_b"], "--leader-elect-resource-name=A_b: expected parts of lower-case"),
        (&["--leader-elect-resource-name=a..b"], "--leader-elect-resource-name=a..b: expected parts of lower-case"),
        (&["--secure-port=65536"], "--secure-port=65536: expected a port from 1 to 65535, or 0 for none"),
        (&["--bind-address=localhost"], "--bind-address=localhost: expected an IP address such as 0.0.0.0 or ::"),
        (&["--kubeconfig=/gone"], "--kubeconfig=/gone: cannot be read: entity not found"),
        (&["--master=https://"], "--master=https://: expected a URL such as https://10.0.0.1:6443"),
        (
            &["--master=https://me:hunter2@10.0.0.1"],
            "--master=https://[redacted]@10.0.0.1: expected a URL without a user",
        ),
        (
            &["--node-selector=a in b"],
            "--node-selector=a in b: \"a in b\" is no requirement; expected a label selector",
        ),
        (&["-v=loud"], "-v=loud: expected a whole number such as 2"),
        (&["--allow-name-match=maybe"], "--allow-name-match=maybe: expected true or false"),
    ];
    for (arguments, expected) in cases {
        let errors = settled(arguments).unwrap_err();
        assert_eq!(errors.errors.len(), 1, "{arguments:?}: {errors}");
        let text = errors.to_string();
        assert!(text.starts_with(&format!("invalid configuration: {expected}")), "{arguments:?}: {text}");
    }
}

/// The resource lock is not checked without leader election.
// vectors: O-43
#[test]
fn o_43_nothing_but_leases_is_a_lock() {
    let lock = "--leader-elect-resource-lock=configmapsleases";
    let messages = settled(&["--leader-elect=true", lock]).unwrap_err().to_string();
    assert!(messages.contains("resourceLock value must be \"leases\""), "{messages}");
    assert!(settled(&["--leader-elect=false", lock]).is_ok());
}

#[test]
fn a_leader_migration_is_read_when_it_is_on() {
    let migration = |arguments: &[&str]| settled(arguments).unwrap().election.unwrap().migration;
    assert_eq!(migration(&["--leader-migration-config=/gone"]), None, "off: the file is not looked at");
    let builtin = migration(&["--enable-leader-migration"]).unwrap();
    assert_eq!(builtin, leader_migration::LeaderMigration::default(), "O-55");
    let read = migration(&["--enable-leader-migration", "--leader-migration-config=/etc/migration.yaml"]).unwrap();
    assert_eq!((read.leader_name.as_str(), read.resource_lock.as_str()), ("moving", "leases"));
    let off = ["--leader-elect=false", "--enable-leader-migration"];
    assert_eq!(settled(&off).unwrap().election, None);
}

#[test]
fn mistakes_in_a_leader_migration_are_told_at_the_start() {
    let config = "--leader-migration-config=/etc/endpoints.yaml";
    let text = settled(&["--enable-leader-migration", config]).unwrap_err().to_string();
    for part in
        ["2 configuration errors", "is the Lease of the leader election itself", "\"endpoints\" is no longer supported"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let own = ["--enable-leader-migration", "--leader-elect-resource-name=cloud-provider-extraction-migration"];
    let text = settled(&own).unwrap_err().to_string();
    assert!(text.contains("--enable-leader-migration=true: leaderName"), "{text}");
    for path in ["/gone", "/etc/empty.conf", "/etc/vsphere.conf"] {
        let config = format!("--leader-migration-config={path}");
        // The same applies without leader election.
        let text = settled(&["--enable-leader-migration", "--leader-elect=false", &config]).unwrap_err().to_string();
        assert!(text.contains(&format!("{config}: ")), "O-50: {text}");
    }
}

#[test]
fn election_times_do_not_matter_without_an_election() {
    assert_eq!(settled(&["--leader-elect=false", "--leader-elect-lease-duration=1s"]).unwrap().election, None);
}

#[test]
fn all_mistakes_come_together() {
    let wrong = ["--cloud-config=/gone", "--controllers=a,b", "--secure-port=x", "--leader-elect-lease-duration=1s"];
    let text = settled(&wrong).unwrap_err().to_string();
    assert!(text.starts_with("5 configuration errors:\n  "), "{text}");
    for part in ["/gone", "=a:", "=b:", "--secure-port=x", "--leader-elect-lease-duration=1s"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_broken_kubeconfig_and_proxy_are_told_with_the_other_mistakes() {
    let variables = [("HTTPS_PROXY", "ftp://u:hunter2@proxy"), ("http_proxy", "http://")];
    let wrong = [
        "--secure-port=x",
        "--kubeconfig=/etc/broken-kubeconfig",
        "--authentication-kubeconfig=/etc/broken-kubeconfig",
        "--authorization-kubeconfig=/gone",
    ];
    let text = settled_in(&variables, &wrong).unwrap_err().to_string();
    assert!(text.starts_with("6 configuration errors:\n  ") && !text.contains("hunter2"), "{text}");
    let proxy = "expected a proxy such as http://proxy.example.com:3128";
    for line in [
        "--secure-port=x: expected a port from 1 to 65535, or 0 for none",
        "--kubeconfig=/etc/broken-kubeconfig: line 2: not valid YAML",
        "--authentication-kubeconfig=/etc/broken-kubeconfig: line 2: not valid YAML",
        "--authorization-kubeconfig=/gone: cannot be read: entity not found",
        &format!("environment variable HTTPS_PROXY: the scheme is none of http, https, socks5 and socks5h; {proxy}"),
        &format!("environment variable http_proxy: the value is not the URL of a proxy; {proxy}"),
    ] {
        assert!(text.lines().any(|messages| messages.trim() == line), "{line} is not in {text}");
    }
    let proxies = settled_in(&[("HTTPS_PROXY", "http://u:hunter2@proxy:3128")], &[]).unwrap();
    let ProviderSettings::Vsphere(vsphere) = proxies.provider;
    assert_eq!(format!("{:?}", vsphere.proxy).matches("http://proxy:3128").count(), 1, "{:?}", vsphere.proxy);
}

#[test]
fn outside_of_a_pod_a_missing_kubeconfig_is_told_with_the_other_mistakes() {
    for (more, is_missed) in [
        (&["--secure-port=x"][..], true),
        (&["--secure-port=x", "--kubeconfig="], true),
        (&["--secure-port=x", "--master=https://10.0.0.1:6443"], false),
        (&["--secure-port=x", "--kubeconfig=/gone"], false),
    ] {
        let arguments = [PROGRAM, "--cloud-config=/etc/vsphere.conf"].iter().chain(more).map(OsString::from);
        let Ok(Invocation::Run(options)) = options::parse(arguments) else { panic!("flags") };
        let text = resolve(&options, &MadeUp, &Environment::default()).unwrap_err().to_string();
        let expected = "--kubeconfig=: expected the path of a kubeconfig, since this is not a pod";
        assert!(text.contains("--secure-port=x") && text.contains(expected) == is_missed, "{more:?}: {text}");
    }
}

#[test]
fn an_unknown_variable_is_told_with_the_mistakes() {
    let arguments = [PROGRAM, "--cloud-config=/etc/vsphere.conf", "--secure-port=x"].map(OsString::from);
    let Ok(Invocation::Run(mut options)) = options::parse(arguments) else { panic!("flags") };
    options.unknown_variables = vec!["environment variable CCM_X: unknown, ignored".to_owned()];
    let text = resolve(&options, &MadeUp, &Environment::default()).unwrap_err().to_string();
    assert!(text.ends_with("\n  warning: environment variable CCM_X: unknown, ignored"), "{text}");
}

#[test]
fn no_secret_shows_when_settings_are_printed() {
    let printed = format!("{:?} {:#?}", settled(&[]).unwrap(), settled(&[]).unwrap());
    assert!(printed.contains("/etc/vsphere.conf"), "{printed}");
    assert!(!printed.contains("hunter2"), "{printed}");
}
