//! Pure: finds the missing address family for which a joining Node still waits.
//!
//! `nodemanager.go:DiscoverNode` fails while any family is missing, so the taint stays. Guests report their families
//! seconds apart. A pod that starts with only one family keeps this family for its whole life.

use std::net::IpAddr;
use std::time::Duration;

use crate::providers::vsphere::config::address_rules::IpFamily;

/// A family for which a Node waits before it is initialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedFamily {
    /// The family.
    pub family: IpFamily,
    /// Maximum wait, counted from the guest's first address; `None` means no limit.
    pub limit: Option<Duration>,
}

/// Returns the first of the `missing` families for which a Node waits. The wait for the Node's first family has no
/// limit. The Node's first family is that of the first `provided` address or, without a provided address, the first of
/// `families`. Each further family is awaited until `known_for`, the time since the guest's first address, reaches
/// `limit`.
pub fn awaited(
    missing: &[IpFamily],
    families: &[IpFamily],
    provided: &[IpAddr],
    known_for: Duration,
    limit: Duration,
) -> Option<AwaitedFamily> {
    let is_first = |family: IpFamily| match provided.first() {
        Some(ip) => IpFamily::of(*ip) == family,
        None => families.first() == Some(&family),
    };
    let without_limit = missing.iter().find(|family| is_first(**family)).map(|family| (family, None));
    let further = || missing.first().filter(|_| known_for < limit).map(|family| (family, Some(limit)));
    without_limit.or_else(further).map(|(family, limit)| AwaitedFamily { family: *family, limit })
}

#[cfg(test)]
mod tests {
    use super::IpFamily::{V4, V6};
    use super::*;

    /// Name, missing families, all families, `--node-ip`, time since the first address, and the awaited family.
    type Case<'a> = (&'a str, &'a [IpFamily], &'a [IpFamily], &'a str, Duration, Option<AwaitedFamily>);

    #[test]
    fn the_first_family_is_awaited_without_limit_and_each_further_one_for_a_while() {
        let limit = Duration::from_secs(120);
        let (early, late) = (limit - Duration::from_millis(1), limit);
        let first = |family| Some(AwaitedFamily { family, limit: None });
        let further = |family| Some(AwaitedFamily { family, limit: Some(limit) });
        let cases: [Case<'_>; 11] = [
            ("nothing is missing", &[], &[V4, V6], "", early, None),
            ("the second", &[V6], &[V4, V6], "", early, further(V6)),
            ("the second, too late", &[V6], &[V4, V6], "", late, None),
            ("the first", &[V6], &[V6, V4], "", early, first(V6)),
            ("the first, for ever", &[V6], &[V6, V4], "", late, first(V6)),
            ("the kubelet's, which is the second", &[V6], &[V4, V6], "fd00::1", late, first(V6)),
            ("the other than the kubelet's", &[V4], &[V4, V6], "fd00::1", early, further(V4)),
            ("the other than the kubelet's, too late", &[V4], &[V4, V6], "fd00::1", late, None),
            ("a mapped address is IPv4", &[V4], &[V6, V4], "::ffff:10.0.0.1", late, first(V4)),
            ("both: the first counts", &[V4, V6], &[V4, V6], "", late, first(V4)),
            ("both: the kubelet's counts", &[V4, V6], &[V4, V6], "fd00::1", late, first(V6)),
        ];
        for (case, missing, families, provided, known_for, expected) in cases {
            let provided: Vec<IpAddr> = provided.parse::<IpAddr>().map(|ip| ip.to_canonical()).into_iter().collect();
            assert_eq!(awaited(missing, families, &provided, known_for, limit), expected, "{case}");
        }
    }
}
