//! Pure: IP addresses as Go reads them; an IPv4-mapped IPv6 address is the IPv4 address.

use std::net::{IpAddr, Ipv4Addr};

/// Parses an address as strictly as `net.ParseIP`: no leading zeros, no zone.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Parses an address as `ParseIPSloppy` of `k8s.io/utils/net`: octets of IPv4 may have leading zeros.
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
