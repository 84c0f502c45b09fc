//! Pure: parses IP addresses and networks as Go does. An IPv4-mapped IPv6 address becomes an IPv4 address.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// Parses an address as strictly as `net.ParseIP`. Rejects leading zeros and zones.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Formats `host:port` as in a URL. An IPv6 address gets brackets unless `host` already has them.
pub fn host_and_port(host: &str, port: u16) -> String {
    let is_bare = host.contains(':') && !host.starts_with('[');
    if is_bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Parses an address as `ParseIPSloppy` of `k8s.io/utils/net`: octets of an IPv4 address can have leading zeros.
pub fn parse_ip_sloppy(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return parse_ip(text);
    }
    let octets: Vec<u8> = text.split('.').map(parse_octet).collect::<Option<_>>()?;
    let octets: [u8; 4] = octets.try_into().ok()?;
    Some(IpAddr::V4(Ipv4Addr::from(octets)))
}

fn parse_octet(text: &str) -> Option<u8> {
    let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_decimal.then(|| text.trim_start_matches('0')).and_then(|digits| match digits {
        "" => Some(0),
        digits => digits.parse().ok(),
    })
}

/// Parses a network in CIDR notation as `ParseCIDRSloppy` of `k8s.io/utils/net`: octets of an IPv4 address can have
/// leading zeros. Clears the host bits.
pub fn parse_network_sloppy(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let is_decimal = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let length = is_decimal.then(|| length.parse().ok())??;
    IpNet::new(parse_ip_sloppy(address)?, length).ok().map(|network| network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_with_a_port_is_in_brackets() {
        let hosts = ["vc.example", "10.0.0.1", "fd00::1", "[fd00::1]"].map(|host| host_and_port(host, 443));
        assert_eq!(hosts, ["vc.example:443", "10.0.0.1:443", "[fd00::1]:443", "[fd00::1]:443"]);
    }

    #[test]
    fn networks_are_read_as_in_go() {
        for (text, expected) in [
            ("10.0.0.0/8", Some("10.0.0.0/8")),
            ("010.000.0.07/24", Some("10.0.0.0/24")),
            ("10.1.2.3/08", Some("10.0.0.0/8")),
            ("fd00::1/64", Some("fd00::/64")),
            ("10.0.0.0/33", None),
            ("10.0.0.0/+8", None),
            ("10.0.0.0/", None),
            ("10.0.0.0", None),
            ("10.0.0/8", None),
            ("fe80::1%eth0/64", None),
            ("", None),
            ("/", None),
        ] {
            let network = parse_network_sloppy(text).map(|network| network.to_string());
            assert_eq!(network.as_deref(), expected, "{text}");
        }
    }
}
