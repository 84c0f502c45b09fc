//! Constraints between objects: uniqueness, capacity, address families (rules S8 and S9).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::behaviour::Capacity;
use super::kinds::Kind;
use super::pools;
use super::refusal::Refusal;
use super::schema::{Checked, cidr, ports};
use super::store::{Stored, parent};
use super::world::World;

/// Limits of virtual servers, pools and members by size. `DLB` has no limit.
const SIZES: [(&str, Usage); 4] = [
    ("SMALL", Usage { virtual_servers: 20, pools: 60, members: 300 }),
    ("MEDIUM", Usage { virtual_servers: 100, pools: 300, members: 2000 }),
    ("LARGE", Usage { virtual_servers: 1000, pools: 3000, members: 7500 }),
    ("XLARGE", Usage { virtual_servers: 2000, pools: 4000, members: 10_000 }),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    virtual_servers: usize,
    pools: usize,
    members: usize,
}

impl Usage {
    fn exceeds(self, capacity: Usage) -> bool {
        self.virtual_servers > capacity.virtual_servers
            || self.pools > capacity.pools
            || self.members > capacity.members
    }
}

/// Time during which a new service has no counters.
const FIRST_COUNT: Duration = Duration::from_secs(10);

/// The path of an object and the body that a request writes.
pub(super) type Change<'a> = (&'a str, &'a Map<String, Value>);

fn capacity(service: &Stored) -> Option<Usage> {
    let size = service.text("size").unwrap_or("SMALL");
    SIZES.iter().find(|(name, _)| *name == size).map(|(_, capacity)| *capacity)
}

/// Returns the capacity in credits that a service uses on the edges.
pub(super) fn edge_credits(service: &Stored) -> usize {
    match service.text("size").unwrap_or("SMALL") {
        "MEDIUM" => 10,
        "LARGE" => 40,
        "XLARGE" => 80,
        _ => 1,
    }
}

fn bad(message: String) -> Refusal {
    Refusal::new(400, 23_527, message)
}

fn texts<'a>(body: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = &'a str> {
    body.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn text<'a>(body: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    body.get(field).and_then(Value::as_str)
}

impl World {
    /// Rejects a body that violates a constraint other than capacity.
    pub(super) fn check_constraints(&self, kind: &'static Kind, path: &str, checked: &Checked) -> Result<(), Refusal> {
        let body = &checked.body;
        match kind.collection() {
            "lb-services" => self.check_router(kind, path, body),
            "lb-virtual-servers" => self.check_listener(kind, path, body),
            "lb-pools" if body.contains_key("members") && body.contains_key("member_group") => {
                Err(bad("members and member_group exclude each other".to_owned()))
            }
            "static-routes" => check_hops(body),
            "ip-allocations" if !pools::has_subnet(&self.store, parent(path)) => {
                Err(bad(format!("the IP pool {} has no subnet", parent(path))))
            }
            "ip-subnets" if body.contains_key("ip_block_path") => self.check_block(path, body),
            "ip-subnets" => check_ranges(body),
            "groups" => self.check_group(body),
            _ => Ok(()),
        }
    }

    fn check_block(&self, path: &str, subnet: &Map<String, Value>) -> Result<(), Refusal> {
        let block = text(subnet, "ip_block_path").unwrap_or_default();
        let exhausted = || Refusal::new(400, 520_012, format!("The IP block {block} has no free part of this size."));
        pools::carve(&self.store, path, subnet).map(drop).ok_or_else(exhausted)
    }

    fn others(&self, kind: &'static Kind, path: &str) -> impl Iterator<Item = &Stored> {
        self.store.collection(kind, parent(path)).filter(move |other| other.path != path && !other.is_marked())
    }

    fn check_router(&self, kind: &'static Kind, path: &str, body: &Map<String, Value>) -> Result<(), Refusal> {
        let Some(router) = text(body, "connectivity_path") else { return Ok(()) };
        match self.others(kind, path).find(|other| other.text("connectivity_path") == Some(router)) {
            Some(other) => Err(bad(format!("{router} has the load balancer service {} already", other.path))),
            None => Ok(()),
        }
    }

    fn check_group(&self, body: &Map<String, Value>) -> Result<(), Refusal> {
        if self.behaviour.lacks_group_type && body.contains_key("group_type") {
            return Err(Refusal::new(400, 220, "Json parse error: Unrecognized field \"group_type\""));
        }
        let expression = body.get("expression").and_then(Value::as_array).into_iter().flatten();
        let count = expression.filter(|one| one["resource_type"] == "IPAddressExpression").count();
        if self.behaviour.refuses_several_expressions && count > 1 {
            return Err(Refusal::invalid("\"expression\": a group has one IPAddressExpression at most"));
        }
        Ok(())
    }

    fn protocol(&self, body: &Map<String, Value>) -> &'static str {
        let profile = text(body, "application_profile_path").and_then(|path| self.store.find(path));
        if profile.is_some_and(|profile| profile.resource_type == "LBFastUdpProfile") { "UDP" } else { "TCP" }
    }

    fn check_listener(&self, kind: &'static Kind, path: &str, body: &Map<String, Value>) -> Result<(), Refusal> {
        match self.others(kind, path).find(|other| self.collide(body, &other.body)) {
            Some(other) => Err(bad(format!("{} has the same IP address, port and protocol", other.path))),
            None => Ok(()),
        }
    }

    /// Returns a virtual server that is marked for deletion and that the edges still serve at the same address and
    /// port.
    pub(super) fn deleted_listener(&self, server: &Stored) -> Option<&Stored> {
        let all = self.store.collection(server.kind, parent(&server.path));
        let mut deleted = all.filter(|one| one.path != server.path && one.is_marked() && one.is_in_effect());
        deleted.find(|other| !server.is_marked() && self.collide(&server.body, &other.body))
    }

    /// Returns true if two virtual servers listen on the same address, port and protocol.
    fn collide(&self, one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
        let address = |body: &Map<String, Value>| text(body, "ip_address").and_then(|text| text.parse::<IpAddr>().ok());
        let ranges = |body: &Map<String, Value>| texts(body, "ports").filter_map(ports).collect::<Vec<_>>();
        let theirs = ranges(other);
        let overlaps = |own: &(u16, u16)| theirs.iter().any(|their| own.0 <= their.1 && their.0 <= own.1);
        address(one) == address(other) && self.protocol(one) == self.protocol(other) && ranges(one).iter().any(overlaps)
    }

    fn usage(&self, service: &str, changes: &[Change<'_>]) -> Usage {
        let changed = |path: &str| changes.iter().find(|(of, _)| *of == path).map(|(_, body)| *body);
        let servers = Kind::of(&["lb-virtual-servers"]).into_iter();
        let servers = servers.flat_map(|kind| self.store.collection(kind, "/infra")).filter(|one| !one.is_marked());
        let current = servers.map(|stored| changed(&stored.path).unwrap_or(&stored.body));
        let is_new = |path: &str| path.starts_with("/infra/lb-virtual-servers/") && self.store.get(path).is_none();
        let created = changes.iter().filter(|(path, _)| is_new(path)).map(|(_, body)| *body);
        let is_of_it = |body: &&Map<String, Value>| text(body, "lb_service_path") == Some(service);
        let servers: Vec<_> = current.chain(created).filter(is_of_it).collect();
        let named = servers.iter().flat_map(|server| [text(server, "pool_path"), text(server, "sorry_pool_path")]);
        let pools: BTreeSet<&str> = named.flatten().collect();
        let members = |pool: &&str| {
            let pool = changed(pool).or_else(|| self.store.get(pool).map(|pool| &pool.body));
            pool.and_then(|pool| pool.get("members")?.as_array()).map_or(0, Vec::len)
        };
        Usage { virtual_servers: servers.len(), pools: pools.len(), members: pools.iter().map(members).sum() }
    }

    /// Returns the services whose usage this write changes.
    fn services_of(&self, path: &str, body: &Map<String, Value>) -> Vec<String> {
        if path.starts_with("/infra/lb-virtual-servers/") {
            return text(body, "lb_service_path").map(str::to_owned).into_iter().collect();
        }
        if !path.starts_with("/infra/lb-pools/") {
            return Vec::new();
        }
        let servers = Kind::of(&["lb-virtual-servers"]).into_iter();
        let servers = servers.flat_map(|kind| self.store.collection(kind, "/infra")).filter(|one| !one.is_marked());
        let users = servers.filter(|one| [one.text("pool_path"), one.text("sorry_pool_path")].contains(&Some(path)));
        let services: BTreeSet<String> =
            users.filter_map(|one| one.text("lb_service_path")).map(str::to_owned).collect();
        services.into_iter().collect()
    }

    /// Rejects the writes of one request if together they exceed the size of a service, or records the alarms.
    pub(super) fn check_capacity(&mut self, changes: &[Change<'_>]) -> Result<(), Refusal> {
        let mut alarms = Vec::new();
        if self.behaviour.capacity != Capacity::Unlimited {
            let mut is_full: BTreeMap<String, bool> = BTreeMap::new();
            for (path, body) in changes {
                for service in self.services_of(path, body) {
                    let exceeds = |limit: Usage| self.usage(&service, changes).exceeds(limit);
                    let limit = self.store.get(&service).and_then(capacity);
                    if *is_full.entry(service.clone()).or_insert_with(|| limit.is_some_and(exceeds)) {
                        let message = format!("the load balancer service {service} has no capacity left for {path}");
                        alarms.push(((*path).to_owned(), message));
                    }
                }
            }
        }
        if let Some((_, message)) = alarms.first().filter(|_| self.behaviour.capacity == Capacity::Refused) {
            return Err(Refusal::new(400, 23_501, message.clone()));
        }
        self.over_capacity.retain(|path, _| changes.iter().all(|(changed, _)| changed != path));
        self.over_capacity.extend(alarms);
        Ok(())
    }

    /// Answers `lb-services/{id}/service-usage`.
    pub(super) fn service_usage(&mut self, path: &str) -> Result<Value, Refusal> {
        let service = self.store.get(path).ok_or_else(|| Refusal::not_found(path))?;
        let is_counted = !self.behaviour.usage_comes_late || service.changed.elapsed() >= FIRST_COUNT;
        let results: Vec<Value> = if is_counted { vec![self.counters(path)?] } else { Vec::new() };
        match self.behaviour.usage_in_results {
            true => Ok(json!({"intent_path": path, "results": results})),
            false => Ok(results.into_iter().next().unwrap_or_else(|| json!({}))),
        }
    }

    /// Returns the counters of a service as of the last count.
    fn counters(&mut self, path: &str) -> Result<Value, Refusal> {
        let lag = self.behaviour.usage_lag;
        let counted = self.usages.get(path).filter(|(at, _)| at.elapsed() < lag).map(|(_, usage)| *usage);
        let usage = counted.unwrap_or_else(|| self.usage(path, &[]));
        if counted.is_none() {
            self.usages.insert(path.to_owned(), (Instant::now(), usage));
        }
        let service = self.store.get(path).ok_or_else(|| Refusal::not_found(path))?;
        let limit = capacity(service).unwrap_or(Usage { virtual_servers: 0, pools: 0, members: 0 });
        let percentage = |used: usize, of: usize| (used * 100).checked_div(of).unwrap_or(0);
        let most = percentage(usage.virtual_servers, limit.virtual_servers)
            .max(percentage(usage.pools, limit.pools))
            .max(percentage(usage.members, limit.members));
        Ok(json!({
            "service_path": path,
            "service_size": service.text("size"),
            "virtual_server_capacity": limit.virtual_servers,
            "current_virtual_server_count": usage.virtual_servers,
            "pool_capacity": limit.pools,
            "current_pool_count": usage.pools,
            "pool_member_capacity": limit.members,
            "current_pool_member_count": usage.members,
            "usage_percentage": most,
            "severity": if most >= 90 { "RED" } else if most >= 70 { "ORANGE" } else { "GREEN" },
        }))
    }
}

/// Rejects a route whose next hops and network are of different families.
fn check_hops(body: &Map<String, Value>) -> Result<(), Refusal> {
    let network = text(body, "network").and_then(cidr).map(|(address, _)| address.is_ipv4());
    let hops = body.get("next_hops").and_then(Value::as_array).into_iter().flatten();
    let mut hops = hops.filter_map(|hop| hop["ip_address"].as_str()?.parse::<IpAddr>().ok());
    match hops.find(|hop| Some(hop.is_ipv4()) != network) {
        Some(hop) => Err(bad(format!("the next hop {hop} is not of the family of the network"))),
        None => Ok(()),
    }
}

/// Rejects a subnet whose ranges are not ordered or not of the family of its CIDR.
fn check_ranges(body: &Map<String, Value>) -> Result<(), Refusal> {
    let is_ipv4 = text(body, "cidr").and_then(cidr).map(|(address, _)| address.is_ipv4());
    let address = |range: &Value, name: &str| range[name].as_str().and_then(|text| text.parse::<IpAddr>().ok());
    for range in body.get("allocation_ranges").and_then(Value::as_array).into_iter().flatten() {
        let (start, end) = (address(range, "start"), address(range, "end"));
        if start > end || [start, end].iter().any(|one| one.map(|one| one.is_ipv4()) != is_ipv4) {
            return Err(bad(format!("the range {range} is not one of the subnet")));
        }
    }
    Ok(())
}
