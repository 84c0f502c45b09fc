//! Filter specifications, which select the objects and properties of a filter or a read.

use super::MoRef;
use super::envelope::RequestBody;

/// The property paths that are read of every VM. Only two keys of `extraConfig` are read, because all
/// keys of a VM take 8 to 20 KB.
pub const VIRTUAL_MACHINE_PATHS: [&str; 21] = [
    "name",
    "parent",
    "parentVApp",
    "resourcePool",
    "runtime.host",
    "runtime.powerState",
    "runtime.connectionState",
    "config.uuid",
    "config.instanceUuid",
    "summary.config.uuid",
    "summary.config.instanceUuid",
    "summary.config.template",
    "summary.config.numCpu",
    "summary.config.memorySizeMB",
    "summary.config.guestId",
    "summary.config.vmPathName",
    "guest.hostName",
    "guest.net",
    "guest.toolsRunningStatus",
    METADATA_PATH,
    METADATA_ENCODING_PATH,
];

/// The path of the guest's cloud-init metadata.
pub const METADATA_PATH: &str = "config.extraConfig[\"guestinfo.metadata\"]";

/// The path of the metadata's encoding.
pub const METADATA_ENCODING_PATH: &str = "config.extraConfig[\"guestinfo.metadata.encoding\"]";

/// A `PropertyFilterSpec`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterSpec {
    /// The property paths to read, for each class.
    pub properties: Vec<PropertySpec>,
    /// The start objects.
    pub objects: Vec<ObjectSpec>,
}

/// The paths that are read of a class and its subclasses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PropertySpec {
    /// The class.
    pub kind: String,
    /// The paths; never empty, because some servers would then return all properties.
    pub paths: Vec<String>,
}

/// A start object and the traversals from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSpec {
    /// The start object.
    pub object: MoRef,
    /// Whether the start object is left out of the result.
    pub skip: bool,
    /// The traversals from the start object.
    pub select: Vec<Selection>,
}

/// A traversal from an object, or the name of another traversal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The name of a traversal that is defined elsewhere in the same `ObjectSpec`. Recursion is written this way.
    Named(String),
    /// A traversal that follows a property of the objects of one class.
    Traverse {
        /// A name, unique in the filter.
        name: String,
        /// The class that has the property.
        kind: String,
        /// The property, which has one or several references.
        path: String,
        /// The traversals from the objects that the property refers to.
        select: Vec<Selection>,
    },
}

impl PropertySpec {
    /// Selects these paths of objects of this class.
    pub fn new(kind: &str, paths: &[&str]) -> Self {
        Self { kind: kind.to_owned(), paths: paths.iter().map(|path| (*path).to_owned()).collect() }
    }
}

impl Selection {
    /// Builds a [`Selection::Named`].
    pub fn named(name: &str) -> Self {
        Selection::Named(name.to_owned())
    }

    /// Builds a [`Selection::Traverse`].
    pub fn along(name: &str, kind: &str, path: &str, select: Vec<Selection>) -> Self {
        Selection::Traverse { name: name.to_owned(), kind: kind.to_owned(), path: path.to_owned(), select }
    }

    fn write(&self, body: &mut RequestBody) {
        match self {
            Selection::Named(name) => {
                body.open("selectSet");
                body.text("name", name);
            }
            Selection::Traverse { name, kind, path, select } => {
                body.open_typed("selectSet", "TraversalSpec");
                body.text("name", name);
                body.text("type", kind);
                body.text("path", path);
                body.boolean("skip", false);
                select.iter().for_each(|selection| selection.write(body));
            }
        }
        body.close("selectSet");
    }
}

impl FilterSpec {
    /// Selects these properties of one object.
    pub fn of_object(object: &MoRef, paths: &[&str]) -> Self {
        Self {
            properties: vec![PropertySpec::new(object.kind(), paths)],
            objects: vec![ObjectSpec { object: object.clone(), skip: false, select: Vec::new() }],
        }
    }

    /// Selects the VMs of a `ListView` with [`VIRTUAL_MACHINE_PATHS`], and each of their ancestors once. Reads `name`
    /// and `parent` of the ancestors, also `runtime.connectionState` and `runtime.inMaintenanceMode` of hosts, and
    /// `parentFolder` of vApps.
    pub fn for_view(view: &MoRef) -> Self {
        // The parent of a vApp is a pool or a vApp. The outermost vApp also has a folder (`parentFolder`). `up` and
        // `vappFolder` are defined directly on the members, because a VM may have no pool or vApp. From a VM, `up`
        // leads to its folder.
        let both = || vec![Selection::named("up"), Selection::named("vappFolder")];
        let members = vec![
            Selection::along("up", "ManagedEntity", "parent", both()),
            Selection::along("vappFolder", "VirtualApp", "parentFolder", vec![Selection::named("up")]),
            Selection::along("host", "VirtualMachine", "runtime.host", vec![Selection::named("up")]),
            Selection::along("pool", "VirtualMachine", "resourcePool", both()),
            Selection::along("vapp", "VirtualMachine", "parentVApp", both()),
        ];
        let start = ObjectSpec {
            object: view.clone(),
            skip: true,
            select: vec![Selection::along("members", view.kind(), "view", members)],
        };
        let properties = vec![
            // Each spec repeats `name` and `parent`, so that servers need not merge all specs whose class matches an
            // object.
            PropertySpec::new("VirtualMachine", &VIRTUAL_MACHINE_PATHS),
            PropertySpec::new(
                "HostSystem",
                &["name", "parent", "runtime.connectionState", "runtime.inMaintenanceMode"],
            ),
            PropertySpec::new("VirtualApp", &["name", "parent", "parentFolder"]),
            PropertySpec::new("ManagedEntity", &["name", "parent"]),
        ];
        Self { properties, objects: vec![start] }
    }

    /// Selects this folder, all folders below it, and the datacenters in the folders, each with `name` and `parent`.
    pub fn datacenters(root: &MoRef) -> Self {
        let down = Selection::along("down", "Folder", "childEntity", vec![Selection::named("down")]);
        Self {
            properties: ["Datacenter", "Folder"].map(|kind| PropertySpec::new(kind, &["name", "parent"])).into(),
            objects: vec![ObjectSpec { object: root.clone(), skip: false, select: vec![down] }],
        }
    }

    /// Writes the content of a `PropertyFilterSpec` in schema order.
    pub(super) fn write(&self, body: &mut RequestBody) {
        for property in &self.properties {
            body.open("propSet");
            body.text("type", &property.kind);
            body.boolean("all", false);
            for path in &property.paths {
                body.text("pathSet", path);
            }
            body.close("propSet");
        }
        for object in &self.objects {
            body.open("objectSet");
            body.reference("obj", &object.object);
            body.boolean("skip", object.skip);
            object.select.iter().for_each(|selection| selection.write(body));
            body.close("objectSet");
        }
    }
}
