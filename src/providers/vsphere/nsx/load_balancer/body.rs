//! Pure: writes resources into NSX objects. Names, descriptions and tags equal those of the Go program. All fields that a
//! change does not concern stay unchanged.
//!
//! Mirrors `access.go` and `tag.go` of `pkg/cloudprovider/vsphere/loadbalancer`.

use ipnet::IpNet;
use serde_json::{Value, json};

use super::layout::{ADDRESS, ADDRESS_POOL, CLASS, ClusterLayout, MonitorType, ObjectKind, Owner, PORT, SERVICE};
use super::members::{self, Member};
use super::resource::{self, LoadBalancerSpec, REQUEST_VERSION, Resource};
use crate::clients::nsx::Object;
use crate::providers::vsphere::nsx::names::{LONGEST_DESCRIPTION, LONGEST_NAME, shortened};
use crate::providers::vsphere::nsx::ownership::PROGRAM;
use crate::providers::vsphere::nsx::tags::ScopedTags;

/// Type field of a group. Old versions of NSX reject this field.
pub const GROUP_TYPE: &str = "group_type";

/// URL path at which kube-proxy reports whether its Node has endpoints of a Service.
const HEALTH_CHECK_PATH: &str = "/healthz";

/// Type of the single expression of a group. NSX advises against several expressions.
const EXPRESSION: &str = "IPAddressExpression";

/// Builds a new object.
pub fn new_object(layout: &ClusterLayout, owner: &Owner<'_>, of: &LoadBalancerSpec, new: &Resource) -> Object {
    let mut object = named(layout, owner, new);
    let spec = &new.spec;
    let mut tags = match new.kind {
        ObjectKind::LbService => layout.of(None).tags(new.kind),
        kind => layout.tags(kind).with(SERVICE, owner.service),
    };
    if let Some(port) = new.tags.port {
        tags = tags.with(PORT, port.to_string());
    }
    match new.kind {
        ObjectKind::LbService => {
            set(&mut object, "size", of.size);
            set(&mut object, "enabled", true);
            if let Some(tier1) = &of.tier1 {
                set(&mut object, "connectivity_path", tier1.as_str());
            }
        }
        ObjectKind::VirtualServer => {
            set_address(&mut object, "ip_address", new);
            set(&mut object, "enabled", true);
            set_port(&mut object, new);
            set(&mut object, "lb_service_path", new.reference(ObjectKind::LbService));
            set_group(&mut object, new);
            set_persistence(&mut object, new);
            tags = tags.with(CLASS, of.class.as_str()).with(ADDRESS_POOL, of.address_pool.as_str());
        }
        ObjectKind::Pool => {
            set(&mut object, "snat_translation", snat_translation(spec.is_snat_disabled == Some(true)));
            set(&mut object, "members", members::merged(&[], &of.members, &layout.cluster));
            set_monitor(&mut object, new);
            if layout.has_tag_room(ObjectKind::Pool, ADDRESS_POOL) {
                tags = tags.with(ADDRESS_POOL, of.address_pool.as_str());
            }
        }
        ObjectKind::Monitor => {
            set(&mut object, "resource_type", spec.monitor_type.map(MonitorType::resource_type).unwrap_or_default());
            set_probe(&mut object, new);
            if spec.monitor_type == Some(MonitorType::Http) {
                set(&mut object, "request_method", "GET");
                set(&mut object, "request_url", HEALTH_CHECK_PATH);
                set(&mut object, "response_status_codes", json!([200]));
            }
        }
        ObjectKind::Allocation => set_address(&mut object, "allocation_ip", new),
        ObjectKind::Group => {
            set_ranges(&mut object, new);
            set(&mut object, GROUP_TYPE, json!(["IPAddress"]));
        }
        ObjectKind::PersistenceProfile => {
            set(&mut object, "resource_type", "LBSourceIpPersistenceProfile");
            set_timeout(&mut object, new);
        }
    }
    tags.write_into(&mut object);
    object
}

/// Changes an object from `before` to `desired`. Writes either the address or the other properties. The caller passes
/// the desired `members` of pools, and writes the common tags.
pub fn edit(object: &mut Object, before: &Resource, desired: &Resource, cluster: &str, members: &[Member]) {
    if desired.address != before.address {
        match desired.kind {
            ObjectKind::Pool => {
                let old = object.clone();
                object.set_tags(old.tags().filter(|tag| tag.scope != ADDRESS));
            }
            _ => set_address(object, "ip_address", desired),
        }
        return;
    }
    match desired.kind {
        ObjectKind::VirtualServer => {
            set_port(object, desired);
            let group = |one: &Resource| (one.reference(ObjectKind::Group).to_owned(), one.spec.is_restricted);
            if group(before) != group(desired) {
                set_group(object, desired);
            }
            if before.reference(ObjectKind::PersistenceProfile) != desired.reference(ObjectKind::PersistenceProfile) {
                set_persistence(object, desired);
            }
        }
        ObjectKind::Pool => {
            members::set(object, members, cluster);
            set_monitor(object, desired);
            // An unchanged SNAT setting keeps the fields that NSX or an administrator has added.
            let wanted = desired.spec.is_snat_disabled.filter(|wanted| resource::snat_of(object) != Some(*wanted));
            if let Some(is_disabled) = wanted {
                set(object, "snat_translation", snat_translation(is_disabled));
            }
        }
        ObjectKind::Monitor => set_probe(object, desired),
        ObjectKind::Group => return set_ranges(object, desired),
        ObjectKind::PersistenceProfile => return set_timeout(object, desired),
        ObjectKind::LbService | ObjectKind::Allocation => return,
    }
    if let Some(port) = desired.tags.port {
        ScopedTags::default().with(PORT, port.to_string()).write_into(object);
    }
}

/// Returns a new object with its name and description; allocations have none.
fn named(ClusterLayout { cluster, .. }: &ClusterLayout, Owner { service, .. }: &Owner<'_>, new: &Resource) -> Object {
    let mut object = Object::default();
    let of_service = (format!("cluster:{cluster}:{service}"), format!(", service {service}"));
    let (kind, (name, service)) = match new.kind {
        ObjectKind::Allocation => return object,
        ObjectKind::LbService => ("virtual server pool", (format!("cluster:{cluster}"), String::new())),
        ObjectKind::VirtualServer => ("virtual server", of_service),
        ObjectKind::Pool => ("pool", of_service),
        ObjectKind::Group => ("source ranges", of_service),
        ObjectKind::PersistenceProfile => ("session affinity", of_service),
        ObjectKind::Monitor => {
            let (word, kind) = match new.spec.monitor_type {
                Some(MonitorType::Http) => ("http", "http monitor"),
                Some(MonitorType::Icmp) => ("icmp", "icmp monitor"),
                Some(MonitorType::Tcp) | None => ("tcp", "tcp monitor"),
            };
            let (name, service) = of_service;
            match new.spec.number {
                Some(number) => (kind, (format!("{name}:{number}"), format!("{service}, port {number}"))),
                None => (kind, (format!("{name}:{word}"), service)),
            }
        }
    };
    let description = format!("{kind} for cluster {cluster}{service} created by {PROGRAM}");
    set(&mut object, "display_name", shortened(name, LONGEST_NAME));
    set(&mut object, "description", shortened(description, LONGEST_DESCRIPTION));
    object
}

fn set_address(object: &mut Object, member: &str, desired: &Resource) {
    if let Some(address) = desired.address {
        set(object, member, address.to_string());
    }
}

/// Sets the ports, the application profile and the pool of a virtual server.
fn set_port(object: &mut Object, desired: &Resource) {
    let list = |port: Option<u16>| port.map(|port| json!([port.to_string()])).unwrap_or_default();
    set(object, "ports", list(desired.spec.number));
    set(object, "default_pool_member_ports", list(desired.spec.node_port));
    set(object, "application_profile_path", &*desired.spec.profile);
    set(object, "pool_path", desired.reference(ObjectKind::Pool));
}

/// Sets the access list of a virtual server, which admits only the addresses of its group.
fn set_group(object: &mut Object, desired: &Resource) {
    let path = desired.reference(ObjectKind::Group);
    let list = json!({"action": "ALLOW", "enabled": true, "group_path": path});
    set_or_remove(object, "access_list_control", path, list);
}

fn set_persistence(object: &mut Object, desired: &Resource) {
    let path = desired.reference(ObjectKind::PersistenceProfile);
    set_or_remove(object, "lb_persistence_profile_path", path, json!(path));
}

fn set_monitor(object: &mut Object, desired: &Resource) {
    let path = desired.reference(ObjectKind::Monitor);
    set_or_remove(object, "active_monitor_paths", path, json!([path]));
}

fn snat_translation(is_disabled: bool) -> Value {
    json!({"type": if is_disabled { "LBSnatDisabled" } else { "LBSnatAutoMap" }})
}

/// Sets the health check of a monitor.
fn set_probe(object: &mut Object, desired: &Resource) {
    if let Some(number) = desired.spec.number {
        set(object, "monitor_port", number);
    }
    if desired.spec.monitor_type == Some(MonitorType::Http) {
        set(object, "request_version", REQUEST_VERSION);
    }
}

/// Sets the networks of a group. Keeps the other fields of an existing `IPAddressExpression`, such as the path.
fn set_ranges(object: &mut Object, desired: &Resource) {
    let expressions = object.list("expression");
    let is_one = |one: &&Value| one.get("resource_type").and_then(Value::as_str) == Some(EXPRESSION);
    let mut one = expressions.iter().find(is_one).cloned().unwrap_or_else(|| json!({"resource_type": EXPRESSION}));
    if let Some(members) = one.as_object_mut() {
        let ranges: Vec<String> = desired.spec.ranges.iter().flatten().map(IpNet::to_string).collect();
        members.insert("ip_addresses".to_owned(), ranges.into());
    }
    set(object, "expression", json!([one]));
}

fn set_timeout(object: &mut Object, desired: &Resource) {
    set(object, "timeout", desired.spec.timeout.unwrap_or_default().as_secs());
}

fn set(object: &mut Object, member: &str, value: impl Into<Value>) {
    object.0.insert(member.to_owned(), value.into());
}

/// Sets a member to this value, or removes it if `path` is empty.
fn set_or_remove(object: &mut Object, member: &str, path: &str, value: Value) {
    match path {
        "" => drop(object.0.remove(member)),
        _ => set(object, member, value),
    }
}

#[cfg(test)]
mod tests;
