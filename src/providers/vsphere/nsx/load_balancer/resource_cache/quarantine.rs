//! Pure: tracks recently released addresses. For ten minutes, only Services of the same namespace can request such an
//! address with `spec.loadBalancerIP`: clients may still use the address and would reach the Service of another tenant.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(600);
/// Maximum number of addresses. At the limit, the oldest release is dropped.
const MAX_ENTRIES: usize = 4096;

/// Recently released addresses.
#[derive(Default)]
pub struct Quarantine(BTreeMap<IpAddr, Release>);

struct Release {
    namespace: Box<str>,
    released_at: Instant,
}

impl Quarantine {
    /// Records that the Service (namespace/name) has released this address.
    pub fn enter(&mut self, address: IpAddr, service: &str, at: Instant) {
        self.0.retain(|_, release| at.duration_since(release.released_at) < PERIOD);
        if self.0.len() >= MAX_ENTRIES
            && let Some(first) =
                self.0.iter().min_by_key(|(_, release)| release.released_at).map(|(address, _)| *address)
        {
            self.0.remove(&first);
        }
        self.0.insert(address, Release { namespace: namespace_of(service).into(), released_at: at });
    }

    /// Returns the only namespace that may request this address now; `None` if `service` (namespace/name) may.
    pub fn closed_to(&self, service: &str, address: IpAddr, moment: Instant) -> Option<&str> {
        let Release { namespace, released_at: at } = self.0.get(&address)?;
        let is_closed = moment.duration_since(*at) < PERIOD && **namespace != *namespace_of(service);
        is_closed.then_some(namespace)
    }
}

fn namespace_of(service: &str) -> &str {
    service.split_once('/').map_or("", |(namespace, _)| namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    #[test]
    fn a_released_address_is_closed_to_other_namespaces_for_ten_minutes() {
        let (mut quarantine, start) = (Quarantine::default(), Instant::now());
        quarantine.enter(address(1), "a/one", start);
        let at = |seconds| start + Duration::from_secs(seconds);
        for (service, of, seconds, expected) in [
            ("b/two", 1, 0, Some("a")),
            ("b/two", 1, 599, Some("a")),
            ("b/two", 1, 600, None),
            ("a/two", 1, 0, None),
            ("b/two", 2, 0, None),
        ] {
            assert_eq!(quarantine.closed_to(service, address(of), at(seconds)), expected, "{service} {of} {seconds}");
        }
        // The last release takes precedence.
        quarantine.enter(address(1), "b/two", at(60));
        assert_eq!(quarantine.closed_to("a/one", address(1), at(659)), Some("b"));
        assert_eq!(quarantine.closed_to("b/one", address(1), at(61)), None);
    }

    #[test]
    fn the_first_one_is_forgotten_when_there_are_too_many() {
        let (mut quarantine, start) = (Quarantine::default(), Instant::now());
        for number in 0..=u32::try_from(MAX_ENTRIES).unwrap() {
            quarantine.enter(address(number), "a/one", start + Duration::from_millis(number.into()));
        }
        let now = start + Duration::from_secs(10);
        let is_closed = |number| quarantine.closed_to("b/one", address(number), now).is_some();
        assert_eq!((quarantine.0.len(), is_closed(0), is_closed(1), is_closed(4096)), (MAX_ENTRIES, false, true, true));
        // Expired entries are dropped.
        quarantine.enter(address(0), "a/one", start + Duration::from_secs(3600));
        assert_eq!(quarantine.0.len(), 1);
    }
}
