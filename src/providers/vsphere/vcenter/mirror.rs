//! Pure: applies property collector updates to a copy of the inventory.
//!
//! Accepts updates in any order. An `enter` for a known object replaces the object. A `modify` for an unknown object
//! creates the object. A `leave` for an unknown object has no effect. An `assign` without a value unsets the property.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::snapshot::{Entity, PowerState, VmRecord};
use crate::clients::vim::{
    MissingProperty, MoRef, ObjectContent, ObjectUpdate, PropertyChange, UpdateKind, UpdateSet, Value, decode_name,
};
use crate::providers::provider_id::BiosUuid;

/// Maximum number of unreadable paths recorded per VM. Fewer paths than this are watched.
const MAX_UNREADABLE: usize = 64;

/// The copy of the inventory.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    /// The VMs that vCenter reports, by id. A VM that is no longer watched stays until its `leave`.
    pub vms: HashMap<Arc<str>, Arc<VmRecord>>,
    /// The ancestors of the VMs.
    pub entities: HashMap<MoRef, Entity>,
}

/// The objects that update sets touched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TouchedObjects {
    /// VMs that changed, appeared or left.
    pub vms: BTreeSet<Arc<str>>,
    /// Whether an ancestor changed, appeared or left.
    pub entities: bool,
    /// Whether any object appeared or left.
    pub objects: bool,
    /// VMs that left the filter, because they were destroyed, unregistered or removed from the view, or became
    /// unreadable.
    pub removed: BTreeSet<Arc<str>>,
}

impl Mirror {
    /// Applies all object updates in order.
    pub fn apply(&mut self, sets: &[UpdateSet]) -> TouchedObjects {
        let mut touched = TouchedObjects::default();
        for update in sets.iter().flat_map(|set| &set.filters).flat_map(|filter| &filter.objects) {
            if update.object.kind() == "VirtualMachine" {
                self.apply_vm(update, &mut touched);
            } else {
                self.apply_entity(update, &mut touched);
            }
        }
        touched
    }

    fn apply_vm(&mut self, update: &ObjectUpdate, touched: &mut TouchedObjects) {
        let entry = self.vms.get_key_value(update.object.id());
        let id = entry.map_or_else(|| update.object.id().into(), |(id, _)| Arc::clone(id));
        if update.kind == UpdateKind::Leave {
            if self.vms.remove(&id).is_some() {
                touched.objects = true;
                touched.vms.insert(Arc::clone(&id));
            }
            touched.removed.insert(id);
            return;
        }
        let known = entry.map(|(_, known)| known);
        let mut record = match (update.kind, known) {
            (UpdateKind::Modify, Some(known)) => VmRecord::clone(known),
            _ => VmRecord::default(),
        };
        update_record(&mut record, &update.changes, &update.missing, &self.entities);
        // An unchanged record keeps its allocation, so that readers can compare pointers.
        if known.is_none_or(|known| **known != record) {
            touched.objects |= known.is_none();
            self.vms.insert(Arc::clone(&id), Arc::new(record));
            touched.vms.insert(id);
        }
    }

    fn apply_entity(&mut self, update: &ObjectUpdate, touched: &mut TouchedObjects) {
        if update.kind == UpdateKind::Leave {
            let is_gone = self.entities.remove(&update.object).is_some();
            touched.entities |= is_gone;
            touched.objects |= is_gone;
            return;
        }
        let known = self.entities.get(&update.object);
        let mut entity = match (update.kind, known) {
            (UpdateKind::Modify, Some(known)) => known.clone(),
            _ => Entity::default(),
        };
        for change in &update.changes {
            match change.name.as_str() {
                "name" => entity.name = text(change).map(decode_name).unwrap_or_default(),
                "parent" => entity.parent = reference(change),
                "runtime.connectionState" => entity.connection_state = text(change).map(String::from),
                "runtime.inMaintenanceMode" => entity.is_in_maintenance = text(change) == Some("true"),
                // The folder of a vApp replaces an unset `parent`. A vApp in another vApp has no folder.
                "parentFolder" if entity.parent.is_none() => entity.parent = reference(change),
                _ => {}
            }
        }
        for missing in &update.missing {
            match missing.path.as_str() {
                "runtime.connectionState" => entity.connection_state = None,
                "runtime.inMaintenanceMode" => entity.is_in_maintenance = false,
                _ => {}
            }
        }
        if known != Some(&entity) {
            touched.objects |= known.is_none();
            touched.entities = true;
            self.entities.insert(update.object.clone(), entity);
        }
    }
}

/// Returns the record of a VM whose properties were read, and not reported by a subscription.
pub fn record_of(content: ObjectContent) -> VmRecord {
    let ObjectContent { properties, missing, .. } = content;
    let change = |(name, value)| PropertyChange { name, value: Some(value) };
    let changes: Vec<PropertyChange> = properties.into_iter().map(change).collect();
    let mut record = VmRecord::default();
    update_record(&mut record, &changes, &missing, &HashMap::new());
    record
}

fn update_record(
    record: &mut VmRecord,
    changes: &[PropertyChange],
    missing: &[MissingProperty],
    entities: &HashMap<MoRef, Entity>,
) {
    for change in changes {
        assign_vm(record, change, entities);
    }
    for missing in missing {
        // An unreadable property keeps its last value, except for properties that must be current.
        match missing.path.as_str() {
            "runtime.powerState" => record.power_state = None,
            "runtime.connectionState" => record.connection_state = None,
            _ => {}
        }
        if record.unreadable.len() < MAX_UNREADABLE && !record.unreadable.contains(&missing.path) {
            record.unreadable.push(missing.path.clone());
        }
    }
}

fn assign_vm(record: &mut VmRecord, change: &PropertyChange, entities: &HashMap<MoRef, Entity>) {
    record.unreadable.retain(|path| *path != change.name);
    let number = || text(change).and_then(|text| text.parse::<i64>().ok());
    let string = || text(change).unwrap_or_default().to_string();
    // The VMs on one host share one allocation of the host reference.
    let reference = || {
        let object = reference(change)?;
        Some(entities.get_key_value(&object).map_or(object, |(known, _)| known.clone()))
    };
    match change.name.as_str() {
        "name" => record.name = decode_name(&string()),
        // Two paths contain the same UUID, because `config` as a whole is unset while a VM is inaccessible.
        "config.uuid" | "summary.config.uuid" => {
            if let Some(uuid) = text(change).and_then(|text| text.parse::<BiosUuid>().ok()) {
                record.bios_uuid = Some(uuid);
            }
        }
        "parent" => record.parent = reference(),
        "parentVApp" => record.parent_vapp = reference(),
        "resourcePool" => record.resource_pool = reference(),
        "runtime.host" => record.host = reference(),
        "runtime.powerState" => {
            record.power_state = text(change).and_then(PowerState::parse);
        }
        "runtime.connectionState" => record.connection_state = text(change).map(String::from),
        "summary.config.template" => record.is_template = text(change) == Some("true"),
        "summary.config.numCpu" => record.cpus = number(),
        "summary.config.memorySizeMB" => record.memory_mib = number(),
        "summary.config.guestId" => record.guest_id = string(),
        "summary.config.vmPathName" => record.path = string(),
        "guest.hostName" => record.host_name = string(),
        "guest.toolsRunningStatus" => record.tools = string(),
        "guest.net" => {
            record.nics = match &change.value {
                Some(Value::Nics(nics)) => nics.clone(),
                _ => Vec::new(),
            }
        }
        "config.extraConfig[\"guestinfo.metadata\"]" => record.metadata = option_value(change),
        "config.extraConfig[\"guestinfo.metadata.encoding\"]" => record.metadata_encoding = option_value(change),
        _ => {}
    }
}

fn text(change: &PropertyChange) -> Option<&str> {
    change.value.as_ref().and_then(Value::as_str)
}

fn reference(change: &PropertyChange) -> Option<MoRef> {
    change.value.as_ref().and_then(Value::as_ref).cloned()
}

fn option_value(change: &PropertyChange) -> String {
    match &change.value {
        Some(Value::OptionValue { value, .. }) => value.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::vim::{FilterUpdate, GuestNic};

    fn text(value: &str) -> Option<Value> {
        Some(Value::Text(value.to_string()))
    }

    fn update(kind: UpdateKind, object: MoRef, changes: Vec<(&str, Option<Value>)>) -> ObjectUpdate {
        let changes =
            changes.into_iter().map(|(name, value)| PropertyChange { name: name.to_string(), value }).collect();
        ObjectUpdate { kind, object, changes, missing: Vec::new() }
    }

    fn vm(kind: UpdateKind, changes: Vec<(&str, Option<Value>)>) -> ObjectUpdate {
        update(kind, MoRef::new("VirtualMachine", "vm-1"), changes)
    }

    fn apply(mirror: &mut Mirror, objects: Vec<ObjectUpdate>) -> TouchedObjects {
        let filter = FilterUpdate { filter: MoRef::new("PropertyFilter", "f"), objects };
        mirror.apply(&[UpdateSet { version: "1".into(), filters: vec![filter], truncated: false }])
    }

    const UUID: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";

    #[test]
    fn the_properties_of_a_read_give_the_same_record_as_those_of_a_subscription() {
        let properties = [("name", "a%2fb"), ("summary.config.uuid", UUID), ("runtime.powerState", "poweredOn")];
        let mut mirror = Mirror::default();
        let changes = properties.iter().map(|(path, value)| (*path, text(value))).collect();
        apply(&mut mirror, vec![vm(UpdateKind::Enter, changes)]);
        let content = ObjectContent {
            object: MoRef::new("VirtualMachine", "vm-1"),
            properties: properties.map(|(path, value)| (path.to_owned(), Value::Text(value.to_owned()))).into(),
            missing: Vec::new(),
        };
        assert_eq!(record_of(content), *mirror.vms["vm-1"]);
    }

    #[test]
    fn an_enter_brings_every_watched_property() {
        let nic = GuestNic { ip_addresses: vec!["10.0.0.1".into()], device_config_id: 4000, ..GuestNic::default() };
        let mut mirror = Mirror::default();
        let touched = apply(
            &mut mirror,
            vec![vm(
                UpdateKind::Enter,
                vec![
                    ("name", text("a%2fb")),
                    ("summary.config.uuid", text(UUID)),
                    ("parent", Some(Value::Ref(MoRef::new("Folder", "group-v3")))),
                    ("runtime.host", Some(Value::Ref(MoRef::new("HostSystem", "host-9")))),
                    ("runtime.powerState", text("poweredOn")),
                    ("runtime.connectionState", text("connected")),
                    ("summary.config.template", text("false")),
                    ("summary.config.numCpu", text("4")),
                    ("summary.config.memorySizeMB", text("8192")),
                    ("guest.hostName", text("node-1")),
                    ("guest.net", Some(Value::Nics(vec![nic.clone()]))),
                    (
                        "config.extraConfig[\"guestinfo.metadata\"]",
                        Some(Value::OptionValue { key: "guestinfo.metadata".into(), value: "e30=".into() }),
                    ),
                    ("config.uuid", None),
                ],
            )],
        );
        let expected = TouchedObjects { vms: ["vm-1".into()].into(), objects: true, ..TouchedObjects::default() };
        assert_eq!(touched, expected);
        let record = &mirror.vms["vm-1"];
        assert_eq!(record.name, "a/b");
        assert_eq!(record.bios_uuid.as_ref().unwrap().to_string(), UUID, "an unset config.uuid does not take it away");
        assert_eq!(record.host, Some(MoRef::new("HostSystem", "host-9")));
        assert_eq!((record.cpus, record.memory_mib), (Some(4), Some(8192)));
        assert_eq!(record.power_state, Some(PowerState::PoweredOn));
        assert!(record.is_connected() && !record.is_template);
        assert_eq!(record.nics, [nic]);
        assert_eq!(record.metadata, "e30=");
    }

    #[test]
    fn what_is_reported_again_unchanged_touches_nothing() {
        let mut mirror = Mirror::default();
        let enter = || vec![vm(UpdateKind::Enter, vec![("name", text("a")), ("guest.hostName", text("a"))])];
        apply(&mut mirror, enter());
        let before = Arc::clone(&mirror.vms["vm-1"]);
        assert_eq!(apply(&mut mirror, enter()), TouchedObjects::default());
        assert!(Arc::ptr_eq(&before, &mirror.vms["vm-1"]));
    }

    #[test]
    fn a_modify_changes_what_it_names_and_an_enter_replaces_all() {
        let mut mirror = Mirror::default();
        apply(&mut mirror, vec![vm(UpdateKind::Enter, vec![("name", text("a")), ("guest.hostName", text("h"))])]);
        let touched = apply(&mut mirror, vec![vm(UpdateKind::Modify, vec![("guest.hostName", None)])]);
        assert!(touched.vms.contains("vm-1") && !touched.objects, "{touched:?}");
        assert_eq!((mirror.vms["vm-1"].name.as_str(), mirror.vms["vm-1"].host_name.as_str()), ("a", ""));
        apply(&mut mirror, vec![vm(UpdateKind::Enter, vec![("guest.hostName", text("h"))])]);
        assert_eq!((mirror.vms["vm-1"].name.as_str(), mirror.vms["vm-1"].host_name.as_str()), ("", "h"));
    }

    #[test]
    fn odd_orders_are_survived() {
        let mut mirror = Mirror::default();
        apply(&mut mirror, vec![vm(UpdateKind::Modify, vec![("name", text("a"))])]);
        assert_eq!(mirror.vms["vm-1"].name, "a", "a modify for an unknown object creates it");
        let touched = apply(&mut mirror, vec![vm(UpdateKind::Leave, vec![])]);
        assert!(touched.vms.contains("vm-1") && touched.removed.contains("vm-1") && touched.objects, "{touched:?}");
        assert!(mirror.vms.is_empty());
        let touched = apply(&mut mirror, vec![vm(UpdateKind::Leave, vec![])]);
        assert!(touched.vms.is_empty() && !touched.objects, "a leave for an unknown object is nothing");
    }

    #[test]
    fn ancestors_come_change_and_go() {
        let cluster = MoRef::new("ClusterComputeResource", "domain-c8");
        let folder = |id: &str| Some(Value::Ref(MoRef::new("Folder", id)));
        let mut mirror = Mirror::default();
        let enter = vec![("name", text("c")), ("parent", folder("group-h4"))];
        assert!(apply(&mut mirror, vec![update(UpdateKind::Enter, cluster.clone(), enter)]).entities);
        let moved = vec![("parent", folder("group-h5"))];
        assert!(apply(&mut mirror, vec![update(UpdateKind::Modify, cluster.clone(), moved)]).entities);
        assert_eq!(mirror.entities[&cluster].parent, Some(MoRef::new("Folder", "group-h5")));
        assert_eq!(mirror.entities[&cluster].name, "c");
        assert!(apply(&mut mirror, vec![update(UpdateKind::Leave, cluster.clone(), vec![])]).entities);
        assert!(mirror.entities.is_empty());
    }
}
