//! Pure: applies a step to an NSX object. All other fields stay unchanged.

use serde_json::{Value, json};

use super::{Reference, Step};
use crate::clients::nsx::Object;
use crate::providers::vsphere::nsx::load_balancer::layout::{self, ADDRESS, ClusterLayout, PORT, Port, Probe};
use crate::providers::vsphere::nsx::load_balancer::members::{self, Member};
use crate::providers::vsphere::nsx::load_balancer::objects;
use crate::providers::vsphere::nsx::tags::ScopedTags;

impl Step<'_> {
    /// Applies this step to an object. The caller passes the desired `members`, and writes the common tags.
    pub fn edit(&self, object: &mut Object, ClusterLayout { cluster, .. }: &ClusterLayout, members: &[Member]) {
        match self {
            Self::ChangeMonitor { port, probe, .. } => {
                if let Some(number) = probe.port() {
                    set(object, "monitor_port", json!(number));
                }
                if let Probe::Http(_) = probe {
                    set(object, "request_version", json!(layout::REQUEST_VERSION));
                }
                tag(object, *port);
            }
            Self::ChangePool { port, monitor, is_snat_disabled, .. } => {
                members::set(object, members, cluster);
                set_or_remove(object, "active_monitor_paths", monitor.map(|monitor| json!([monitor])));
                // An unchanged SNAT setting keeps the fields that NSX or an administrator has added.
                let wanted = is_snat_disabled.filter(|wanted| objects::snat_of(object) != Some(*wanted));
                if let Some(is_disabled) = wanted {
                    set(object, "snat_translation", layout::snat_translation(is_disabled));
                }
                tag(object, *port);
            }
            Self::ChangeServer { port, pool, group, persistence, .. } => {
                set(object, "ports", json!([port.port.number.to_string()]));
                set(object, "default_pool_member_ports", json!([port.node_port.to_string()]));
                set(object, "application_profile_path", json!(port.profile));
                set(object, "pool_path", json!(pool));
                refer(object, "access_list_control", *group, layout::access_list);
                refer(object, "lb_persistence_profile_path", *persistence, |path| path.into());
                tag(object, port.port);
            }
            Self::SetAddress { address, .. } => set(object, "ip_address", json!(address.to_string())),
            Self::Untag { .. } => {
                let before = object.clone();
                object.set_tags(before.tags().filter(|tag| tag.scope != ADDRESS));
            }
            Self::ChangeGroup { ranges, .. } => {
                let before = object.0.get("expression").and_then(Value::as_array).cloned().unwrap_or_default();
                set(object, "expression", layout::expression(&before, ranges));
            }
            Self::ChangePersistenceProfile { timeout, .. } => set(object, "timeout", json!(timeout.as_secs())),
            _ => {}
        }
    }
}

fn tag(object: &mut Object, port: Port) {
    ScopedTags::default().with(PORT, port.to_string()).write_into(object);
}

fn refer(object: &mut Object, member: &str, reference: Reference<'_>, value: fn(&str) -> Value) {
    match reference {
        Reference::Unchanged => {}
        Reference::Unset => set_or_remove(object, member, None),
        Reference::Path(path) => set(object, member, value(path)),
    }
}

fn set(object: &mut Object, member: &str, value: Value) {
    object.0.insert(member.to_owned(), value);
}

fn set_or_remove(object: &mut Object, member: &str, value: Option<Value>) {
    match value {
        Some(value) => set(object, member, value),
        None => drop(object.0.remove(member)),
    }
}

#[cfg(test)]
mod tests;
