//! Pure: the location of a VM, and its record on the Node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::clients::vim::MoRef;
use crate::cloud::node;
use crate::providers::vsphere::vcenter::snapshot::{Snapshot, VmRecord};

/// A VM's last known location. Managed object ids are valid only in one vCenter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// `about.instanceUuid` of the VM's vCenter; not empty.
    pub vcenter: Arc<str>,
    /// The VM's managed object id; not empty.
    pub vm: Arc<str>,
    /// The VM's host (`runtime.host`).
    pub host: Option<MoRef>,
    /// The VM's folder; `None` for a VM directly in a vApp.
    pub folder: Option<MoRef>,
    /// The VM's pool or vApp; `None` for a template.
    pub pool: Option<MoRef>,
    /// The datacenter above the VM.
    pub datacenter: Option<MoRef>,
}

impl Location {
    /// Returns the VM's location in this snapshot.
    pub fn of(snapshot: &Snapshot, id: &Arc<str>, record: &VmRecord) -> Self {
        Self {
            vcenter: snapshot.instance_uuid.clone(),
            vm: Arc::clone(id),
            host: record.host.clone(),
            folder: record.parent.clone(),
            pool: record.resource_pool.clone(),
            datacenter: snapshot.datacenter_above(record),
        }
    }

    /// Returns the text of the annotation `vsphere-ccm.dev/vm`.
    pub fn to_record(&self) -> String {
        let id = |object: &Option<MoRef>| object.as_ref().map(|object| object.id().to_owned());
        serde_json::json!({
            "vcenter": *self.vcenter,
            "vm": *self.vm,
            "host": id(&self.host),
            "folder": id(&self.folder),
            "pool": id(&self.pool),
            "datacenter": id(&self.datacenter),
        })
        .to_string()
    }

    /// Parses the annotation; `None` if the text is not a record, or names no VM or no vCenter.
    pub fn parse(text: &str) -> Option<Self> {
        let record: serde_json::Value = serde_json::from_str(text).ok()?;
        let field = |name: &str| {
            let text = record.get(name)?.as_str()?.trim();
            (!text.is_empty()).then(|| text.to_string())
        };
        let object = |name: &str, kind: &str| field(name).map(|id| MoRef::new(kind, id));
        Some(Self {
            vcenter: field("vcenter")?.into(),
            vm: field("vm")?.into(),
            host: object("host", "HostSystem"),
            folder: object("folder", "Folder"),
            pool: field("pool").map(|id| MoRef::new(pool_class(&id), id)),
            datacenter: object("datacenter", "Datacenter"),
        })
    }

    /// Returns the Node's record; `None` if the record is missing or cannot be parsed.
    pub fn recorded_on(node: &Node) -> Option<Arc<Self>> {
        node::annotation(node, node::ANNOTATION_VM).and_then(Self::parse).map(Arc::new)
    }

    /// Returns true if the location names this VM.
    pub fn is(&self, instance_uuid: &str, id: &str) -> bool {
        *self.vm == *id && *self.vcenter == *instance_uuid && !instance_uuid.is_empty()
    }
}

/// Returns the managed object type of a VM's pool. Only the ids of vApps begin with `resgroup-v`.
fn pool_class(id: &str) -> &'static str {
    if id.starts_with("resgroup-v") { "VirtualApp" } else { "ResourcePool" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let whole = Location {
            vcenter: "vc".into(),
            vm: "vm-3".into(),
            host: Some(MoRef::new("HostSystem", "host-1")),
            folder: Some(MoRef::new("Folder", "group-v3")),
            pool: Some(MoRef::new("ResourcePool", "resgroup-8")),
            datacenter: Some(MoRef::new("Datacenter", "datacenter-2")),
        };
        let in_vapp = Location { folder: None, pool: Some(MoRef::new("VirtualApp", "resgroup-v9")), ..whole.clone() };
        for location in [in_vapp, Location { host: None, pool: None, datacenter: None, ..whole.clone() }, whole] {
            assert_eq!(Location::parse(&location.to_record()), Some(location));
        }
    }

    #[test]
    fn an_annotation_that_names_no_machine_is_no_record() {
        let texts = ["", "vm-3", "[]", "null", "{\"vm\":3}", "{\"vm\":\"vm-3\"}", "{\"vm\":\"\",\"vcenter\":\"vc\"}"];
        for text in texts.into_iter().chain(["{\"vm\":\"vm-3\",\"vcenter\":\" \"}"]) {
            assert_eq!(Location::parse(text), None, "{text:?}");
        }
    }
}
