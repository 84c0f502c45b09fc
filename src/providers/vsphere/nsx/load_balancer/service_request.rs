//! Pure: parses the load balancer that a Service requests, and rejects unsupported requests before anything is created.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};

use super::LATER;
use super::layout::{Port, Protocol};
use crate::base::addresses::parse_ip;
use crate::base::quoting::quoted;
use crate::cloud::{Error, Reason, service as facts};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::config::{DEFAULT_CLASS, LoadBalancerConfig};
use crate::providers::vsphere::reason;

/// The annotation that names the class.
pub const ANNOTATION_CLASS: &str = "loadbalancer.vmware.io/class";

/// The annotation that controls SNAT: `automap`, or `disabled` to show client addresses to Nodes.
pub const ANNOTATION_SNAT: &str = "loadbalancer.vsphere-ccm.dev/snat";

/// The annotation with the health check of UDP ports without `externalTrafficPolicy: Local`: `icmp` or `none`.
pub const ANNOTATION_UDP_CHECK: &str = "loadbalancer.vsphere-ccm.dev/udp-health-check";

/// Default timeout of session affinity.
const AFFINITY: Duration = Duration::from_secs(10800);

/// Maximum number of networks in one NSX group.
const MAX_RANGES: usize = 4000;

/// The networks of one family that may use a load balancer. If no network has this family, the networks of the other
/// family are used: they admit no client of this family, and a group cannot be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRanges {
    networks: BTreeSet<IpNet>,
    family: IpFamily,
}

impl SourceRanges {
    /// Selects the networks that apply to clients of this family.
    pub fn new(all: &BTreeSet<IpNet>, family: IpFamily) -> Self {
        Self { networks: deciding(all, family), family }
    }

    /// Returns the selected networks.
    pub fn networks(&self) -> &BTreeSet<IpNet> {
        &self.networks
    }

    /// Whether a group with these networks admits the same clients. Groups of earlier versions have both families.
    pub fn are_in(&self, group: &BTreeSet<IpNet>) -> bool {
        deciding(group, self.family) == self.networks
    }
}

fn deciding(all: &BTreeSet<IpNet>, family: IpFamily) -> BTreeSet<IpNet> {
    let of_family: BTreeSet<IpNet> =
        all.iter().filter(|network| IpFamily::of(network.addr()) == family).copied().collect();
    if of_family.is_empty() { all.clone() } else { of_family }
}

/// Requested features, except the ports. The Go program ignores all these features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The networks that may use the load balancer; `None` admits every client.
    pub source_ranges: Option<SourceRanges>,
    /// Timeout of session affinity, if requested.
    pub affinity: Option<Duration>,
    /// The health check node port, if only Nodes with endpoints may receive traffic.
    pub health_check: Option<u16>,
    /// Whether ICMP checks the Nodes of UDP ports if the Service has no health check node port.
    pub has_icmp_check: bool,
    /// Whether SNAT is disabled, so that Nodes see client addresses.
    pub is_snat_disabled: bool,
    /// The requested address of the load balancer.
    pub address: Option<IpAddr>,
}

/// Settings from the configuration and the command line, for all Services.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceRules {
    /// Whether SNAT is disabled by default.
    pub is_snat_disabled: bool,
    /// Whether `spec.loadBalancerIP` has no effect.
    pub ignores_address: bool,
}

impl ServiceRules {
    fn address_of(self, spec: &ServiceSpec) -> Result<Option<IpAddr>, Error> {
        if self.ignores_address { Ok(None) } else { address_of(spec) }
    }
}

/// A check of one part of a request.
type RequestCheck = fn(&Service, &LoadBalancerConfig, ServiceRules) -> Result<(), Error>;

/// The checks of a request, in the order in which a refusal is reported.
const CHECKS: [RequestCheck; 7] = [
    |service, config, _| check_class(config, class_of(service)),
    |service, _, _| ports_of(service).map(drop),
    |service, config, rules| {
        let class = class_of(service);
        check_families(service, class, config.ipv6_pools.contains_key(class), rules)
    },
    |service, _, _| source_ranges_of(service, IpFamily::V4).map(drop),
    |service, _, _| has_icmp_check(service).map(drop),
    |service, _, _| snat_of(service).map(drop),
    |service, _, rules| service.spec.as_ref().map_or(Ok(None), |spec| rules.address_of(spec)).map(drop),
];

/// Checks the class, the ports, the families and the features that a Service requests. Reads nothing from NSX.
///
/// # Errors
/// [`Error::Invalid`] that names the unsupported field or annotation and the expected value.
pub fn check(service: &Service, config: &LoadBalancerConfig, rules: ServiceRules) -> Result<(), Error> {
    CHECKS.iter().try_for_each(|check| check(service, config, rules))
}

/// Returns the errors of all failed checks of [`check`], each message once.
pub fn refusals(service: &Service, config: &LoadBalancerConfig, rules: ServiceRules) -> Vec<(Reason, String)> {
    let mut refusals: Vec<(Reason, String)> = Vec::new();
    for error in CHECKS.iter().filter_map(|check| check(service, config, rules).err()) {
        let refusal = (error.reason(), error.to_string());
        if !refusals.contains(&refusal) {
            refusals.push(refusal);
        }
    }
    refusals
}

/// Returns the features that a Service requests for its load balancer of this family.
///
/// # Errors
/// [`Error::Invalid`] that names the unsupported field or annotation and the expected value.
pub fn features_of(service: &Service, rules: ServiceRules, family: IpFamily) -> Result<Features, Error> {
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    let source_ranges = source_ranges_of(service, family)?;
    let health_check = facts::health_check_port(service).and_then(|port| u16::try_from(port).ok());
    Ok(Features {
        source_ranges,
        affinity: affinity_of(spec),
        health_check: health_check.filter(|port| *port > 0),
        has_icmp_check: has_icmp_check(service)?,
        is_snat_disabled: snat_of(service)?.unwrap_or(rules.is_snat_disabled),
        address: rules.address_of(spec)?.filter(|address| IpFamily::of(*address) == family),
    })
}

fn source_ranges_of(service: &Service, family: IpFamily) -> Result<Option<SourceRanges>, Error> {
    let all = facts::source_ranges(service).map_err(|error| not_possible(error.to_string()))?;
    if are_open(&all, family) {
        return Ok(None);
    }
    let ranges = SourceRanges::new(&all, family);
    match ranges.networks.len() {
        count if count > MAX_RANGES => Err(not_possible(format!(
            "spec.loadBalancerSourceRanges, or its annotation, has {count} networks of one family; expected at most {MAX_RANGES}, \
             which NSX takes in a group"
        ))),
        _ => Ok(Some(ranges)),
    }
}

/// Whether the ranges admit every address of a family. Ranges of the other family admit none, except `0.0.0.0/0`.
fn are_open(ranges: &BTreeSet<IpNet>, family: IpFamily) -> bool {
    let is_of = |range: &&IpNet| IpFamily::of(range.addr()) == family;
    let mut of_family = ranges.iter().filter(is_of).peekable();
    match of_family.peek() {
        Some(_) => of_family.any(|range| range.prefix_len() == 0),
        None => facts::allows_everything(ranges),
    }
}

/// Returns the families that a Service requests, in the order of the Service; IPv4 by default.
pub fn families_of(service: &Service) -> Vec<IpFamily> {
    let families = service.spec.as_ref().and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    let mut families: Vec<IpFamily> = families.iter().filter_map(|family| IpFamily::of_text(family)).collect();
    if families.is_empty() {
        families.push(IpFamily::V4);
    }
    families
}

/// Checks that the class has an IPv6 pool if dual stack is required, and that the requested address has a usable
/// family. Reads nothing from NSX.
///
/// # Errors
/// [`Error::Invalid`] that names the unsupported field and the expected value.
pub fn check_families(service: &Service, class: &str, has_ipv6_pool: bool, rules: ServiceRules) -> Result<(), Error> {
    let nothing = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&nothing);
    if spec.ip_family_policy.as_deref() == Some("RequireDualStack") && !has_ipv6_pool {
        return Err(not_possible(format!(
            "spec.ipFamilyPolicy is RequireDualStack, and the class {class:?} has no pool of addresses for IPv6; expected \
             SingleStack or PreferDualStack, or the flag --nsx-ipv6-pool={class}=POOL-ID"
        )));
    }
    let mut families = families_of(service);
    if !has_ipv6_pool && families.contains(&IpFamily::V4) {
        families = vec![IpFamily::V4];
    }
    match rules.address_of(spec)?.filter(|address| !families.contains(&IpFamily::of(*address))) {
        None => Ok(()),
        Some(address) => {
            let families: Vec<&str> = families.into_iter().map(IpFamily::as_str).collect();
            let families = families.join(" or ");
            Err(not_possible(format!("spec.loadBalancerIP is \"{address}\"; expected an {families} address")))
        }
    }
}

/// Checks that an existing load balancer has the requested address, because addresses never change.
///
/// # Errors
/// [`Error::Invalid`] that names both addresses.
pub fn check_address(features: &Features, address: IpAddr) -> Result<(), Error> {
    match features.address.filter(|wanted| *wanted != address) {
        None => Ok(()),
        Some(wanted) => Err(not_possible(format!(
            "spec.loadBalancerIP requests {wanted}, and the load balancer has {address}; the address of a load \
             balancer cannot change: create the Service again"
        ))),
    }
}

/// Checks that a complete load balancer has both families, if required. The load balancer has only IPv6 if the IP pool
/// of its class assigned an IPv6 address.
///
/// # Errors
/// [`Error::Failed`] that names the address. Retried, because a change of the policy alone triggers no sync.
pub fn check_both(service: &Service, addresses: &[IpAddr]) -> Result<(), Error> {
    let policy = service.spec.as_ref().and_then(|spec| spec.ip_family_policy.as_deref());
    match addresses {
        [address] if policy == Some("RequireDualStack") => {
            let message = format!(
                "spec.ipFamilyPolicy is RequireDualStack, and the load balancer has the address {address} alone, from the \
                 pool of its class; the address of a load balancer is not changed: give the class a pool of IPv4, and create \
                 the Service again"
            );
            Err(Error::Failed { reason: reason::LoadBalancerNotPossible, message, after: Some(LATER) })
        }
        _ => Ok(()),
    }
}

fn not_possible(message: String) -> Error {
    Error::Invalid { reason: reason::LoadBalancerNotPossible, message }
}

fn affinity_of(spec: &ServiceSpec) -> Option<Duration> {
    let client_ip = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds =
        client_ip.and_then(|client_ip| client_ip.timeout_seconds).and_then(|seconds| u64::try_from(seconds).ok());
    let is_kept = spec.session_affinity.as_deref() == Some("ClientIP");
    is_kept.then(|| seconds.filter(|seconds| *seconds > 0).map_or(AFFINITY, Duration::from_secs))
}

/// Returns the trimmed value of an annotation; empty by default.
fn annotation<'a>(service: &'a Service, name: &str) -> &'a str {
    let annotations = service.metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(name)).map(|text| text.trim()).unwrap_or_default()
}

fn has_icmp_check(service: &Service) -> Result<bool, Error> {
    match annotation(service, ANNOTATION_UDP_CHECK) {
        "" | "none" => Ok(false),
        "icmp" => Ok(true),
        text => Err(not_possible(format!(
            "the annotation {ANNOTATION_UDP_CHECK} is {}; expected icmp or none",
            quoted(text)
        ))),
    }
}

fn snat_of(service: &Service) -> Result<Option<bool>, Error> {
    match annotation(service, ANNOTATION_SNAT) {
        "" => Ok(None),
        "automap" => Ok(Some(false)),
        "disabled" => Ok(Some(true)),
        text => {
            let text = quoted(text);
            Err(not_possible(format!("the annotation {ANNOTATION_SNAT} is {text}; expected automap or disabled")))
        }
    }
}

fn address_of(spec: &ServiceSpec) -> Result<Option<IpAddr>, Error> {
    let Some(text) = spec.load_balancer_ip.as_deref().filter(|text| !text.is_empty()) else { return Ok(None) };
    match parse_ip(text) {
        Some(address) => Ok(Some(address)),
        None => Err(not_possible(format!("spec.loadBalancerIP is {}; expected an IP address", quoted(text)))),
    }
}

/// Returns the name of the class that a Service requests, or the default class.
pub fn class_of(service: &Service) -> &str {
    Some(annotation(service, ANNOTATION_CLASS)).filter(|class| !class.is_empty()).unwrap_or(DEFAULT_CLASS)
}

/// Checks that the configuration has this class.
///
/// # Errors
/// [`Error::Invalid`] that names the existing classes.
pub fn check_class(config: &LoadBalancerConfig, class: &str) -> Result<(), Error> {
    if config.class(class).is_some() {
        return Ok(());
    }
    let mut known: Vec<&str> = config.classes.keys().map(String::as_str).collect();
    if !known.contains(&DEFAULT_CLASS) {
        known.push(DEFAULT_CLASS);
    }
    let message = format!(
        "the annotation {ANNOTATION_CLASS} requests the class {}, which the cloud config does not have; it has {}",
        quoted(class),
        known.join(", ")
    );
    Err(Error::Invalid { reason: reason::LoadBalancerClassUnknown, message })
}

/// Returns the ports of a Service with their node ports, in the order of the Service.
///
/// # Errors
/// [`Error::Invalid`] that names the unsupported port and the reason.
pub fn ports_of(service: &Service) -> Result<Vec<(Port, u16)>, Error> {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    if ports.is_empty() {
        return Err(not_possible("the Service has no ports; expected at least one".to_owned()));
    }
    ports.iter().map(port_of).collect()
}

fn port_of(port: &ServicePort) -> Result<(Port, u16), Error> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let wrong = |object: &str| not_possible(format!("port {protocol}/{} cannot be served by NSX: {object}", port.port));
    let kind = match protocol {
        "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        _ => return Err(wrong("its load balancers have TCP and UDP")),
    };
    let number = u16::try_from(port.port).ok().filter(|number| *number > 0);
    let number = number.ok_or_else(|| wrong("expected a number from 1 to 65535"))?;
    let node_port = port.node_port.and_then(|node_port| u16::try_from(node_port).ok()).filter(|number| *number > 0);
    let node_port =
        node_port.ok_or_else(|| wrong("it has no node port; spec.allocateLoadBalancerNodePorts must not be false"))?;
    Ok((Port { protocol: kind, number }, node_port))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::providers::vsphere::config::{Class, Size};
    use IpFamily::{V4, V6};
    use std::collections::BTreeMap;

    fn service(value: Value) -> Service {
        serde_json::from_value(value).unwrap()
    }

    fn networks(texts: &[&str]) -> BTreeSet<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn every_annotation_that_is_read_is_kept_by_the_cache() {
        let prefixes = crate::providers::vsphere::nsx::load_balancer::ANNOTATIONS;
        for key in [ANNOTATION_CLASS, ANNOTATION_SNAT, ANNOTATION_UDP_CHECK, facts::ANNOTATION_SOURCE_RANGES] {
            assert!(
                facts::cache_filter::keeps_annotation(key) && prefixes.iter().any(|prefix| key.starts_with(prefix)),
                "{key}"
            );
        }
        assert!(prefixes.iter().all(|prefix| facts::cache_filter::keeps_annotation(prefix)), "{prefixes:?}");
    }

    #[test]
    fn a_group_has_the_networks_of_its_family_and_those_of_the_other_one_only_to_let_nobody_in() {
        let (v4, v6, both) =
            (networks(&["10.0.0.0/8"]), networks(&["fd00::/8"]), networks(&["10.0.0.0/8", "fd00::/8"]));
        for (all, family, expected) in
            [(&both, V4, &v4), (&both, V6, &v6), (&v4, V4, &v4), (&v4, V6, &v4), (&v6, V4, &v6), (&v6, V6, &v6)]
        {
            assert_eq!(SourceRanges::new(all, family).networks(), expected, "{all:?} {family:?}");
        }
        // An earlier version wrote both families into one group.
        for (ranges, group, expected) in [
            (SourceRanges::new(&both, V4), &both, true),
            (SourceRanges::new(&v4, V4), &both, true),
            (SourceRanges::new(&v6, V4), &both, false),
            (SourceRanges::new(&v6, V4), &v6, true),
            (SourceRanges::new(&v4, V4), &v6, false),
            (SourceRanges::new(&v4, V4), &networks(&["10.0.0.0/8", "10.1.0.0/16"]), false),
            (SourceRanges::new(&v4, V4), &networks(&[]), false),
        ] {
            assert_eq!(ranges.are_in(group), expected, "{ranges:?} in {group:?}");
        }
    }

    #[test]
    fn more_networks_than_a_group_takes_are_refused_by_number() {
        let with = |count: u32| {
            let range = |number: u32| format!("{}/32", std::net::Ipv4Addr::from(number + 0x0a00_0000));
            let ranges: Vec<String> = (0..count).map(range).chain(["fd00::/8".to_owned()]).collect();
            features_of(&service(json!({"spec": {"loadBalancerSourceRanges": ranges}})), ServiceRules::default(), V4)
        };
        assert_eq!(with(4000).unwrap().source_ranges.unwrap().networks().len(), 4000);
        let error = with(4001).unwrap_err();
        assert_eq!(error.reason(), reason::LoadBalancerNotPossible);
        assert!(error.to_string().contains("has 4001 networks of one family; expected at most 4000"), "{error}");
    }

    #[test]
    fn the_class_is_that_of_the_annotation_without_blanks() {
        for (annotation, expected) in [(" web ", "web"), ("", "default"), ("  ", "default")] {
            assert_eq!(
                class_of(&service(json!({"metadata": {"annotations": {ANNOTATION_CLASS: annotation}}}))),
                expected
            );
        }
        assert_eq!(class_of(&Service::default()), "default");
    }

    #[test]
    fn l_25_ports_that_nsx_cannot_serve_are_refused_by_name() {
        assert!(ports_of(&service(json!({"spec": {"ports": []}}))).unwrap_err().to_string().contains("no ports"));
        let with = |port: Value| ports_of(&service(json!({"spec": {"ports": [port]}})));
        let port = Port { protocol: Protocol::Udp, number: 53 };
        assert_eq!(with(json!({"port": 53, "protocol": "UDP", "nodePort": 30053})).unwrap(), [(port, 30053)]);
        for (wrong, expected) in [
            (json!({"port": 80, "protocol": "SCTP", "nodePort": 30080}), "port SCTP/80 cannot be served by NSX"),
            (json!({"port": 80, "nodePort": 0}), "port TCP/80 cannot be served by NSX: it has no node port"),
            (json!({"port": 80}), "port TCP/80 cannot be served by NSX: it has no node port"),
            (json!({"port": 0, "nodePort": 30080}), "port TCP/0 cannot be served"),
        ] {
            let error = with(wrong).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert_eq!(error.reason(), reason::LoadBalancerNotPossible);
        }
    }

    #[test]
    fn what_a_service_asks_for_is_read() {
        let plain = service(json!({"spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"]}}));
        let snat_disabled = ServiceRules { is_snat_disabled: true, ..ServiceRules::default() };
        assert_eq!(features_of(&plain, ServiceRules::default(), V4).unwrap(), Features::default());
        assert!(features_of(&plain, snat_disabled, V4).unwrap().is_snat_disabled);
        let all = service(json!({
            "metadata": {"annotations": {ANNOTATION_SNAT: " automap ", ANNOTATION_UDP_CHECK: " icmp "}},
            "spec": {
                "type": "LoadBalancer", "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"],
                "loadBalancerSourceRanges": ["10.0.0.0/8", "fd00::/8"], "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}, "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 32000, "loadBalancerIP": "192.0.2.7",
            },
        }));
        let expected = Features {
            source_ranges: Some(SourceRanges::new(&networks(&["10.0.0.0/8", "fd00::/8"]), V4)),
            affinity: Some(Duration::from_secs(60)),
            health_check: Some(32000),
            has_icmp_check: true,
            is_snat_disabled: false,
            address: Some("192.0.2.7".parse().unwrap()),
        };
        assert_eq!(features_of(&all, snat_disabled, V4).unwrap(), expected);
        let ignores_address = ServiceRules { ignores_address: true, ..snat_disabled };
        let without_address = Features { address: None, ..expected.clone() };
        assert_eq!(features_of(&all, ignores_address, V4).unwrap(), without_address);
        let wrong = service(json!({"spec": {"loadBalancerIP": "x"}}));
        assert!(features_of(&wrong, ignores_address, V4).is_ok());
        assert!(check_families(&wrong, "web", false, ignores_address).is_ok());
        assert!(check_address(&expected, "192.0.2.7".parse().unwrap()).is_ok());
        let error = check_address(&expected, "192.0.2.8".parse().unwrap()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("spec.loadBalancerIP requests 192.0.2.7, and the load balancer has 192.0.2.8")
        );
        let affinity = service(json!({"spec": {"sessionAffinity": "ClientIP"}}));
        assert_eq!(features_of(&affinity, ServiceRules::default(), V4).unwrap().affinity, Some(AFFINITY));
        let everybody = service(json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8", "0.0.0.0/0"]}}));
        assert_eq!(features_of(&everybody, ServiceRules::default(), V4).unwrap().source_ranges, None);
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_name() {
        let annotated = |name: &str, text: &str| json!({"metadata": {"annotations": {name: text}}});
        for (wrong, expected) in [
            (json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0"]}}), "source range \"10.0.0.0\""),
            (annotated(facts::ANNOTATION_SOURCE_RANGES, "10.0.0.0/8,x"), "source range \"x\""),
            (annotated(ANNOTATION_SNAT, "off"), "the annotation loadbalancer.vsphere-ccm.dev/snat is \"off\""),
            (
                annotated(ANNOTATION_UDP_CHECK, "tcp"),
                "the annotation loadbalancer.vsphere-ccm.dev/udp-health-check is \"tcp\"; expected icmp or none",
            ),
            (json!({"spec": {"loadBalancerIP": "x"}}), "spec.loadBalancerIP is \"x\""),
        ] {
            let error = features_of(&service(wrong), ServiceRules::default(), V4).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert_eq!(error.reason(), reason::LoadBalancerNotPossible);
        }
    }

    #[test]
    fn source_ranges_close_the_family_that_they_do_not_name() {
        for (ranges, closed) in [
            (&["10.0.0.0/8"][..], &[V4, V6][..]),
            (&["fd00::/8"], &[V4, V6]),
            (&["10.0.0.0/8", "::/0"], &[V4]),
            (&["0.0.0.0/0", "fd00::/8"], &[V6]),
            (&["0.0.0.0/0"], &[]),
            (&["::/0"], &[V4]),
            (&["0.0.0.0/0", "::/0", "10.0.0.0/8"], &[]),
            (&[], &[]),
        ] {
            let one = service(json!({"spec": {"loadBalancerSourceRanges": ranges}}));
            let is_closed = |family: &IpFamily| {
                features_of(&one, ServiceRules::default(), *family).unwrap().source_ranges.is_some()
            };
            assert_eq!([V4, V6].into_iter().filter(is_closed).collect::<Vec<_>>(), closed, "{ranges:?}");
        }
    }

    #[test]
    fn a_wished_address_is_of_the_load_balancer_of_its_family() {
        let requested: IpAddr = "fd00::7".parse().unwrap();
        let both = service(json!({"spec": {"ipFamilies": ["IPv4", "IPv6"], "loadBalancerIP": "fd00::7"}}));
        let of = |family| features_of(&both, ServiceRules::default(), family).unwrap().address;
        assert_eq!((of(V4), of(V6)), (None, Some(requested)));
        assert!(check_families(&both, "web", true, ServiceRules::default()).is_ok());
        let error = check_families(&both, "web", false, ServiceRules::default()).unwrap_err().to_string();
        assert_eq!(error, "spec.loadBalancerIP is \"fd00::7\"; expected an IPv4 address");
    }

    #[test]
    fn each_refusal_is_listed_once_and_the_first_one_is_the_error() {
        let config = LoadBalancerConfig {
            size: Size::Small,
            lb_service_id: None,
            tier1: None,
            snat_disabled: false,
            tags: BTreeMap::new(),
            common: Class::default(),
            classes: BTreeMap::new(),
            ipv6_pools: BTreeMap::new(),
        };
        let wrong = service(json!({
            "metadata": {"annotations": {ANNOTATION_CLASS: "x", ANNOTATION_SNAT: "y", ANNOTATION_UDP_CHECK: "z"}},
            "spec": {"loadBalancerIP": "here", "loadBalancerSourceRanges": ["there"]},
        }));
        let refusals = refusals(&wrong, &config, ServiceRules::default());
        let parts = ["the class \"x\"", "no ports", "loadBalancerIP", "source range", "udp-health-check", "/snat"];
        assert_eq!(refusals.len(), parts.len(), "{refusals:?}");
        for ((_, message), part) in refusals.iter().zip(parts) {
            assert!(message.contains(part), "{part}: {message}");
        }
        let error = check(&wrong, &config, ServiceRules::default()).unwrap_err();
        assert_eq!((error.reason(), error.to_string()), refusals[0].clone());
    }

    #[test]
    fn families_that_a_class_does_not_have_are_refused_only_where_they_are_required() {
        let with = |policy: &str, families: &[&str], requested: &str| {
            service(json!({"spec": {"ipFamilyPolicy": policy, "ipFamilies": families, "loadBalancerIP": requested}}))
        };
        let both = &["IPv4", "IPv6"][..];
        for (service, has_pool, expected) in [
            (with("RequireDualStack", both, ""), false, Some("spec.ipFamilyPolicy is RequireDualStack")),
            (with("RequireDualStack", both, ""), true, None),
            (with("PreferDualStack", both, ""), false, None),
            (with("PreferDualStack", &["IPv6", "IPv4"], ""), false, None),
            (with("SingleStack", &["IPv6"], ""), false, None),
            (with("SingleStack", &["IPv6"], "fd00::7"), false, None),
            (with("SingleStack", &["IPv6"], "192.0.2.7"), true, Some("spec.loadBalancerIP is \"192.0.2.7\"")),
            (with("SingleStack", &[], "fd00::7"), true, Some("spec.loadBalancerIP is \"fd00::7\"")),
            (with("SingleStack", &["IPv4"], "192.0.2.7"), false, None),
        ] {
            let checked = check_families(&service, "web", has_pool, ServiceRules::default());
            let message = checked.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.starts_with(expected.unwrap_or_default()), "{message}");
            assert_eq!(message.is_empty(), expected.is_none(), "{message}");
        }
    }
}
