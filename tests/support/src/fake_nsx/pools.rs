//! Addresses of IP pools: allocated, reserved after a release, or free.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::kinds::Kind;
use super::schema::cidr;
use super::store::{Store, Stored, parent};

/// Reason why an allocation has no address.
const EXHAUSTED: &str = "there is no free IP address in the pool";
const OUTSIDE: &str = "the address is not in the pool";
const IN_USE: &str = "the address is in use";

/// The address of an allocation, or the reason why it has none.
pub(super) type Assignment = Result<IpAddr, &'static str>;

/// First and last address of a range as numbers, in one family.
#[derive(Clone, Copy, Debug)]
struct Range {
    is_ipv4: bool,
    first: u128,
    last: u128,
}

impl Range {
    fn of(range: &Value) -> Option<Self> {
        let address = |name: &str| range[name].as_str()?.parse::<IpAddr>().ok();
        let (start, end) = (address("start")?, address("end")?);
        let is_ordered = start.is_ipv4() == end.is_ipv4() && start <= end;
        is_ordered.then(|| Self { is_ipv4: start.is_ipv4(), first: number(start), last: number(end) })
    }

    /// Returns the addresses of a subnet that was carved from a block, without its gateway.
    fn carved(subnet: &Map<String, Value>) -> Option<Self> {
        let range = Self::whole(subnet)?;
        let has_gateway = subnet.get("auto_assign_gateway") != Some(&json!(false));
        Some(Self { first: range.first + u128::from(has_gateway), ..range })
    }

    /// Returns all addresses of a subnet that was carved from a block.
    fn whole(subnet: &Map<String, Value>) -> Option<Self> {
        let start = subnet.get("start_ip")?.as_str()?.parse::<IpAddr>().ok()?;
        let size = u128::from(subnet.get("size")?.as_u64()?);
        Some(Self { is_ipv4: start.is_ipv4(), first: number(start), last: number(start) + size.saturating_sub(1) })
    }

    fn of_block(block: &Map<String, Value>) -> Option<Self> {
        let (address, length) = cidr(block.get("cidr")?.as_str()?)?;
        let bits = if address.is_ipv4() { 32 } else { 128 } - u32::from(length);
        let hosts = 1_u128.checked_shl(bits).map_or(u128::MAX, |count| count - 1);
        let first = number(address) & !hosts;
        Some(Self { is_ipv4: address.is_ipv4(), first, last: first | hosts })
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.is_ipv4 == other.is_ipv4 && self.first <= other.last && other.first <= self.last
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.is_ipv4 == address.is_ipv4() && (self.first..=self.last).contains(&number(address))
    }

    fn addresses(self) -> impl Iterator<Item = IpAddr> {
        (self.first..=self.last).map(move |number| match self.is_ipv4 {
            true => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            false => Ipv6Addr::from(number).into(),
        })
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

#[derive(Debug, Default)]
pub(super) struct Pools {
    /// Assignments by the path of the allocation.
    assigned: BTreeMap<String, Assignment>,
    /// Ends of the reservations of released addresses, by pool path and address.
    reserved: BTreeMap<(String, IpAddr), Instant>,
}

fn ranges(store: &Store, pool: &str) -> Vec<Range> {
    let Some(kind) = Kind::of(&["ip-pools", "ip-subnets"]) else { return Vec::new() };
    let subnets = store.collection(kind, pool).filter(|subnet| !subnet.is_marked());
    subnets.flat_map(|subnet| ranges_of(&subnet.body)).collect()
}

/// Returns the ranges of a subnet: its explicit ranges, or the part that was carved from its block.
fn ranges_of(subnet: &Map<String, Value>) -> Vec<Range> {
    let named = subnet.get("allocation_ranges").and_then(Value::as_array).into_iter().flatten();
    named.filter_map(Range::of).chain(Range::carved(subnet)).collect()
}

/// Returns the first address of a subnet of a block: its existing or requested one, or the start of the first free part
/// of its size. Returns `None` if the block has no such part.
pub(super) fn carve(store: &Store, path: &str, subnet: &Map<String, Value>) -> Option<IpAddr> {
    let block_path = subnet.get("ip_block_path")?.as_str()?;
    let block = Range::of_block(&store.get(block_path)?.body)?;
    let size = u128::from(subnet.get("size")?.as_u64()?);
    let is_other = |other: &&Stored| other.path != path && !other.is_marked();
    let is_of_block = |other: &&Stored| is_other(other) && other.text("ip_block_path") == Some(block_path);
    let used: Vec<Range> = store.all().filter(is_of_block).filter_map(|other| Range::whole(&other.body)).collect();
    let part = |first: u128| Range { first, last: first.saturating_add(size - 1), ..block };
    let is_free = |part: &Range| part.last <= block.last && !used.iter().any(|other| other.overlaps(part));
    let before = store.get(path).and_then(|stored| stored.body.get("start_ip"));
    let asked = subnet.get("start_ip").or(before).and_then(|text| text.as_str()?.parse::<IpAddr>().ok());
    let firsts: Vec<u128> = match asked {
        Some(address) => vec![number(address)],
        None => std::iter::once(block.first)
            .chain(used.iter().map(|other| (other.last + 1 - block.first).next_multiple_of(size) + block.first))
            .collect(),
    };
    let free = firsts.into_iter().map(part).filter(|part| part.first >= block.first && is_free(part));
    let first = free.min_by_key(|part| part.first)?;
    Range { last: first.first, ..first }.addresses().next()
}

pub(super) fn has_subnet(store: &Store, pool: &str) -> bool {
    !ranges(store, pool).is_empty()
}

impl Pools {
    pub(super) fn assigned(&self, allocation: &str) -> Option<Assignment> {
        self.assigned.get(allocation).copied()
    }

    /// Returns the addresses of a pool that are allocated or reserved.
    fn taken(&self, pool: &str) -> BTreeSet<IpAddr> {
        let now = Instant::now();
        let allocated = self.assigned.iter().filter(|(path, _)| parent(path) == pool).filter_map(|(_, used)| used.ok());
        let reserved = self.reserved.iter().filter(|((of, _), until)| of == pool && **until > now);
        allocated.chain(reserved.map(|((_, address), _)| *address)).collect()
    }

    /// Assigns an address to an allocation that was just written.
    pub(super) fn assign(&mut self, store: &Store, allocation: &str, wish: Option<IpAddr>, accepts_any_wish: bool) {
        let pool = parent(allocation);
        let (ranges, taken) = (ranges(store, pool), self.taken(pool));
        let assigned = match wish {
            Some(wish) if accepts_any_wish => Ok(wish),
            Some(wish) if !ranges.iter().any(|range| range.contains(wish)) => Err(OUTSIDE),
            Some(wish) if taken.contains(&wish) => Err(IN_USE),
            Some(wish) => Ok(wish),
            None => {
                let mut addresses = ranges.into_iter().flat_map(Range::addresses);
                addresses.find(|address| !taken.contains(address)).ok_or(EXHAUSTED)
            }
        };
        self.assigned.insert(allocation.to_owned(), assigned);
    }

    /// Assigns exactly this address to an allocation, even if it is reserved after a release.
    pub(super) fn assign_by_hand(
        &mut self,
        store: &Store,
        allocation: &str,
        address: IpAddr,
    ) -> Result<(), &'static str> {
        let pool = parent(allocation);
        let mut others = self.assigned.iter().filter(|(path, _)| *path != allocation && parent(path) == pool);
        if others.any(|(_, assigned)| *assigned == Ok(address)) {
            return Err(IN_USE);
        }
        if !ranges(store, pool).iter().any(|range| range.contains(address)) {
            return Err(OUTSIDE);
        }
        self.reserved.remove(&(pool.to_owned(), address));
        self.assigned.insert(allocation.to_owned(), Ok(address));
        Ok(())
    }

    /// Releases the address of an allocation. It stays reserved for the delay of its pool.
    pub(super) fn release(&mut self, store: &Store, allocation: &str) {
        let pool = parent(allocation);
        let delay = store.find(pool).and_then(|pool| pool.body.get("ip_release_delay")?.as_u64()).unwrap_or(120_000);
        if let Some(Ok(address)) = self.assigned.remove(allocation) {
            self.reserved.insert((pool.to_owned(), address), Instant::now() + Duration::from_millis(delay));
        }
    }

    /// Returns the allocations of a pool that have an address of this subnet.
    pub(super) fn users_of(&self, subnet: &Stored) -> Vec<String> {
        let ranges = ranges_of(&subnet.body);
        let is_in_it = |used: &Assignment| used.is_ok_and(|address| ranges.iter().any(|range| range.contains(address)));
        let of_pool = self.assigned.iter().filter(|(path, _)| parent(path) == parent(&subnet.path));
        of_pool.filter(|(_, used)| is_in_it(used)).map(|(path, _)| path.clone()).collect()
    }

    /// Returns `pool_usage` and the address family.
    pub(super) fn usage(&self, store: &Store, pool: &str) -> Value {
        let ranges = ranges(store, pool);
        let total: u128 = ranges.iter().map(|range| range.last - range.first + 1).fold(0, u128::saturating_add);
        let allocations: Vec<_> = self.assigned.iter().filter(|(path, _)| parent(path) == pool).collect();
        let used = allocations.iter().filter(|(_, used)| used.is_ok()).count();
        let now = Instant::now();
        let reserved = self.reserved.iter().filter(|((of, _), until)| of == pool && **until > now).count();
        let family = |is_ipv4: bool| ranges.iter().any(|range| range.is_ipv4 == is_ipv4);
        let family = match (family(true), family(false)) {
            (true, true) => "DUAL",
            (false, true) => "IPV6",
            _ => "IPV4",
        };
        let count = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        json!({
            "ip_address_type": family,
            "pool_usage": {
                "total_ips": count(total),
                "available_ips": count(total.saturating_sub((used + reserved) as u128)),
                "allocated_ip_allocations": used,
                "requested_ip_allocations": allocations.len(),
            },
        })
    }
}
