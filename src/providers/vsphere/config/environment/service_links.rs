//! Pure: filters out the variables that the kubelet sets in a pod for each Service of its namespace, unless the pod has
//! `enableServiceLinks: false`. Otherwise a Service named `vsphere-vcenter` would define vCenters.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

/// Suffix that identifies the variables of a Service. Only the kubelet sets variables with this suffix.
const HOST: &str = "_SERVICE_HOST";

/// Prefixes of the values of `<prefix>_PORT`.
const SCHEMES: [&str; 3] = ["tcp://", "udp://", "sctp://"];

type Variables = BTreeMap<String, Option<Zeroizing<String>>>;

/// Removes the variables of Services. Returns the names of the Services, each with the sorted names of its variables.
pub(super) fn take(variables: &mut Variables) -> BTreeMap<String, Vec<String>> {
    let hosts = variables.keys().filter_map(|name| name.strip_suffix(HOST));
    let mut prefixes: Vec<String> = hosts.filter(|prefix| is_service(prefix, variables)).map(str::to_owned).collect();
    // Longer prefixes first: the variables of a Service `a-service-port` also look like those of a Service `a`.
    prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
    let mut services = BTreeMap::new();
    for prefix in prefixes {
        let is_link = |name: &&String, value: &Option<Zeroizing<String>>| {
            name.strip_prefix(&prefix).is_some_and(|rest| is_link(rest, value.as_ref().map(|text| text.as_str())))
        };
        let links: Vec<String> =
            variables.iter().filter(|(name, value)| is_link(name, value)).map(|(name, _)| name.clone()).collect();
        variables.retain(|name, _| !links.contains(name));
        services.insert(prefix.to_ascii_lowercase().replace('_', "-"), links);
    }
    services
}

/// Returns true if the variables of a Service have this prefix. One variable with an address is enough, because a pod
/// may override `<prefix>_PORT`.
fn is_service(prefix: &str, variables: &Variables) -> bool {
    variables.iter().any(|(name, value)| {
        let rest = name.strip_prefix(prefix).filter(|rest| *rest == "_PORT" || is_numbered(rest));
        rest.is_some() && value.as_ref().is_some_and(|text| is_address(text))
    })
}

/// Returns true if the kubelet sets a variable with this suffix for a Service.
fn is_link(rest: &str, value: Option<&str>) -> bool {
    match rest {
        HOST | "_SERVICE_PORT" => true,
        "_PORT" => value.is_some_and(is_address),
        _ => rest.starts_with("_SERVICE_PORT_") || is_numbered(rest),
    }
}

/// Returns true for suffixes such as `_PORT_443_TCP` and `_PORT_443_TCP_ADDR`.
fn is_numbered(rest: &str) -> bool {
    let Some((port, protocol)) = rest.strip_prefix("_PORT_").and_then(|rest| rest.split_once('_')) else {
        return false;
    };
    let (protocol, what) = protocol.split_once('_').unwrap_or((protocol, ""));
    port.parse::<u16>().is_ok()
        && ["TCP", "UDP", "SCTP"].contains(&protocol)
        && ["", "PROTO", "PORT", "ADDR"].contains(&what)
}

fn is_address(value: &str) -> bool {
    SCHEMES.iter().any(|scheme| value.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Texts = &'static [&'static str];

    fn taken(variables: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut variables: Variables = variables
            .iter()
            .filter_map(|variable| variable.split_once('='))
            .map(|(name, value)| (name.to_owned(), Some(Zeroizing::new(value.to_owned()))))
            .collect();
        let services = take(&mut variables);
        (services.into_keys().collect(), variables.into_keys().collect())
    }

    #[test]
    fn the_set_of_a_service_is_known_by_its_shape_and_nothing_else_is_taken() {
        let rows: [(&str, Texts, Texts, Texts); 8] = [
            (
                "the whole set",
                &[
                    "VSPHERE_VCENTER_SERVICE_HOST=10.96.7.7",
                    "VSPHERE_VCENTER_SERVICE_PORT=443",
                    "VSPHERE_VCENTER_SERVICE_PORT_HTTPS=443",
                    "VSPHERE_VCENTER_PORT=tcp://10.96.7.7:443",
                    "VSPHERE_VCENTER_PORT_443_TCP=tcp://10.96.7.7:443",
                    "VSPHERE_VCENTER_PORT_443_TCP_PROTO=tcp",
                    "VSPHERE_VCENTER_PORT_443_TCP_PORT=443",
                    "VSPHERE_VCENTER_PORT_443_TCP_ADDR=10.96.7.7",
                ],
                &["vsphere-vcenter"],
                &[],
            ),
            (
                "beside what the user wrote",
                &[
                    "VCENTER_1_PORT=udp://[fd00::7]:53",
                    "VCENTER_1_SERVICE_HOST=fd00::7",
                    "VCENTER_1_PORT_53_UDP_ADDR=fd00::7",
                    "VCENTER_1_PORT_53_HTTP=x",
                    "VCENTER_1_PORT_X_UDP=x",
                    "VCENTER_1_PORT_53_UDP_ELSE=x",
                    "VCENTER_1_USERNAME=u",
                    "VCENTER_11_PORT=443",
                ],
                &["vcenter-1"],
                &[
                    "VCENTER_11_PORT",
                    "VCENTER_1_PORT_53_HTTP",
                    "VCENTER_1_PORT_53_UDP_ELSE",
                    "VCENTER_1_PORT_X_UDP",
                    "VCENTER_1_USERNAME",
                ],
            ),
            (
                "the pod sets the port itself",
                &["V_PORT=8443", "V_SERVICE_HOST=10.0.0.1", "V_PORT_9_SCTP=sctp://10.0.0.1:9"],
                &["v"],
                &["V_PORT"],
            ),
            (
                "two Services, one name within the other",
                &["A_SERVICE_HOST=h", "A_PORT=sctp://h:1", "A_B_SERVICE_HOST=h", "A_B_PORT=tcp://h:1"],
                &["a", "a-b"],
                &[],
            ),
            (
                "one name within the links of the other",
                &[
                    "A_SERVICE_HOST=h",
                    "A_PORT=tcp://h:1",
                    "A_SERVICE_PORT_SERVICE_HOST=h",
                    "A_SERVICE_PORT_PORT=tcp://h:1",
                ],
                &["a", "a-service-port"],
                &[],
            ),
            ("a port alone", &["VSPHERE_VCENTER_PORT=tcp://10.96.7.7:443"], &[], &["VSPHERE_VCENTER_PORT"]),
            ("a host alone", &["VSPHERE_VCENTER_SERVICE_HOST=vc"], &[], &["VSPHERE_VCENTER_SERVICE_HOST"]),
            ("another scheme", &["V_PORT=https://h", "V_SERVICE_HOST=h"], &[], &["V_PORT", "V_SERVICE_HOST"]),
        ];
        for (id, variables, services, left) in rows {
            let (found, kept) = taken(variables);
            assert_eq!(
                (found, kept),
                (services.iter().map(|s| (*s).to_owned()).collect(), left.iter().map(|s| (*s).to_owned()).collect()),
                "{id}"
            );
        }
    }
}
