//! Builder for the initial content of a fake vCenter.

use std::collections::BTreeMap;

use super::fault::Fault;
use super::inventory::{Inventory, Ref, Val};
use super::rest::Tagging;

/// A virtual machine with its watched properties. Their defaults are those of a running Linux machine with VMware
/// Tools.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) properties: BTreeMap<String, Val>,
}

impl Machine {
    /// Makes a running machine whose guest has the same name.
    #[must_use]
    pub fn new(name: &str, uuid: &str) -> Self {
        let new = Self { properties: BTreeMap::new() };
        let new = new.text("name", name).text("config.uuid", uuid).text("summary.config.uuid", uuid);
        let new = new.text("summary.config.guestId", "ubuntu64Guest").text("guest.hostName", name);
        let new = new.text("summary.config.vmPathName", &format!("[datastore1] {name}/{name}.vmx"));
        let new = new.set("summary.config.template", Val::Scalar("xsd:boolean", "false".to_owned()));
        let new = new.set("summary.config.numCpu", Val::Scalar("xsd:int", "2".to_owned()));
        let new = new.set("summary.config.memorySizeMB", Val::Scalar("xsd:int", "4096".to_owned()));
        let connected = Val::Scalar("VirtualMachineConnectionState", "connected".to_owned());
        new.set("runtime.connectionState", connected).power("poweredOn")
    }

    fn set(mut self, path: &str, value: Val) -> Self {
        self.properties.insert(path.to_owned(), value);
        self
    }

    /// Sets a text property.
    #[must_use]
    pub fn text(self, path: &str, value: &str) -> Self {
        self.set(path, Val::text(value))
    }

    /// Sets `runtime.powerState`.
    #[must_use]
    pub fn power(self, state: &str) -> Self {
        self.set("runtime.powerState", Val::Scalar("VirtualMachinePowerState", state.to_owned()))
    }

    /// Sets `summary.config.template`.
    #[must_use]
    pub fn set_template(self, is_template: bool) -> Self {
        self.set("summary.config.template", Val::Scalar("xsd:boolean", is_template.to_string()))
    }

    /// Sets one interface with one address.
    #[must_use]
    pub fn ip(self, address: &str) -> Self {
        self.ips(&[address])
    }

    /// Sets one interface with these addresses.
    #[must_use]
    pub fn ips(self, addresses: &[&str]) -> Self {
        self.set("guest.net", Val::Nics(vec![addresses.iter().map(ToString::to_string).collect()]))
    }

    /// Sets `config.extraConfig["guestinfo.metadata"]`.
    #[must_use]
    pub fn metadata(self, value: &str) -> Self {
        let key = "guestinfo.metadata".to_owned();
        self.set("config.extraConfig[\"guestinfo.metadata\"]", Val::OptionValue(key, value.to_owned()))
    }

    /// Removes a property.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.properties.remove(path);
        self
    }
}

/// Treatment of objects in a ListView that the account may not read. The documentation does not define it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They leave the view, and are reported as unresolved when they are added.
    Dropped,
    /// They stay in the view, and are reported as unresolved when they are added.
    Refused,
    /// They stay in the view, and may be added.
    Kept,
}

/// Result of a read by id if the account may not read the object. The documentation does not define it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The answer does not contain the object.
    LeftOut,
    /// The answer contains the object, with `NoPermission` for every path.
    MissingSet,
    /// The fault `NoPermission`, with `object` and `privilegeId`.
    Fault,
    /// The fault `NoPermission` of vCenter 8.0 and later, with `missingPrivileges` only.
    FaultOf8,
}

impl Denial {
    pub(super) fn fault(self, kind: &str, id: &str) -> Fault {
        match self {
            Denial::FaultOf8 => Fault::missing_privileges(kind, id, &["System.Read"]),
            Denial::LeftOut | Denial::MissingSet | Denial::Fault => Fault::no_permission(kind, id),
        }
    }
}

/// The initial content of a fake vCenter.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) page_size: usize,
    pub(super) unreadable: Unreadable,
    pub(super) denial: Denial,
    pub(super) inventory: Inventory,
    pub(super) tagging: Tagging,
    machines: usize,
}

impl Model {
    /// Makes a vCenter 8.0.3 with the datacenter `dc-1`, its cluster `cluster-1` with the hosts `host-1` to `host-3`,
    /// and an empty datacenter `dc-2`.
    #[must_use]
    pub fn small() -> Self {
        let mut inventory = Inventory::default();
        let root = inventory.add("Folder", "group-d1", "Datacenters", None);
        for number in [1, 2] {
            let name = format!("dc-{number}");
            let datacenter = inventory.add("Datacenter", &format!("datacenter-{number}"), &name, Some(&root));
            inventory.add("Folder", &format!("group-v{number}"), "vm", Some(&datacenter));
            inventory.add("Folder", &format!("group-h{number}"), "host", Some(&datacenter));
        }
        let hosts = Ref::new("Folder", "group-h1");
        let cluster = inventory.add("ClusterComputeResource", "domain-c1", "cluster-1", Some(&hosts));
        inventory.add("ResourcePool", "resgroup-1", "Resources", Some(&cluster));
        for number in 1..=3 {
            let host =
                inventory.add("HostSystem", &format!("host-{number}"), &format!("host-{number}"), Some(&cluster));
            let connected = Val::Scalar("HostSystemConnectionState", "connected".to_owned());
            let working = Val::Scalar("xsd:boolean", "false".to_owned());
            let properties = &mut inventory.change(&host).properties;
            properties.insert("runtime.connectionState".to_owned(), connected);
            properties.insert("runtime.inMaintenanceMode".to_owned(), working);
        }
        Self {
            user: "ccm@vsphere.local".to_owned(),
            password: "Correct-Horse-7".to_owned(),
            page_size: 100,
            unreadable: Unreadable::Dropped,
            denial: Denial::MissingSet,
            inventory,
            tagging: Tagging::default(),
            machines: 0,
        }
    }

    /// Sets the page size of `WaitForUpdatesEx` in objects. The default is 100.
    #[must_use]
    pub fn page_size(mut self, objects: usize) -> Self {
        self.page_size = objects;
        self
    }

    /// Sets the treatment of unreadable objects in views.
    #[must_use]
    pub fn unreadable(mut self, unreadable: Unreadable) -> Self {
        self.unreadable = unreadable;
        self
    }

    /// Sets the result of a read by id of an unreadable object.
    #[must_use]
    pub fn denial(mut self, denial: Denial) -> Self {
        self.denial = denial;
        self
    }

    /// Adds a virtual machine in `dc-1`, on each host in turn. The first has the id `vm-1`, and so on.
    #[must_use]
    pub fn vm(mut self, machine: Machine) -> Self {
        self.machines += 1;
        place(&mut self.inventory, self.machines, machine);
        self
    }

    /// Adds this many machines, named `n-1` and so on, with the UUIDs of [`Model::uuid`].
    #[must_use]
    pub fn vms(mut self, count: usize) -> Self {
        for number in 1..=count {
            let address = format!("10.{}.{}.{}", number / 62_500, number / 250 % 250, number % 250 + 1);
            self = self.vm(Machine::new(&format!("n-{number}"), &Self::uuid(number)).ip(&address));
        }
        self
    }

    /// Returns the BIOS UUID of the machine `n-<number>`.
    #[must_use]
    pub fn uuid(number: usize) -> String {
        format!("422e4956-ad22-1139-6d72-{number:012x}")
    }

    /// Adds a tag, and its category if that is new, and attaches it to objects by class and name.
    #[must_use]
    pub fn tag(mut self, category: &str, name: &str, objects: &[(&str, &str)]) -> Self {
        let objects = objects.iter().map(|(kind, name)| self.inventory.named(kind, name)).collect();
        self.tagging.add(category, name, objects);
        self
    }
}

pub(super) fn machine_folder(inventory: &Inventory, datacenter: &str) -> Ref {
    let datacenter = inventory.named("Datacenter", datacenter);
    let is_folder = |reference: &&Ref| {
        let parent =
            inventory.property(reference, "parent").is_some_and(|parent| parent.refs() == [datacenter.clone()]);
        parent && inventory.property(reference, "name").is_some_and(|name| name.as_text() == "vm")
    };
    inventory.objects.keys().filter(|reference| reference.kind == "Folder").find(is_folder).cloned().unwrap()
}

/// Adds a machine to `dc-1`.
pub(super) fn place(inventory: &mut Inventory, number: usize, machine: Machine) {
    let host = inventory.named("HostSystem", &format!("host-{}", number % 3 + 1));
    let pool = inventory.named("ResourcePool", "Resources");
    let folder = machine_folder(inventory, "dc-1");
    let mut properties = machine.properties;
    properties.insert("parent".to_owned(), Val::Ref(folder));
    properties.insert("runtime.host".to_owned(), Val::Ref(host));
    properties.insert("resourcePool".to_owned(), Val::Ref(pool));
    inventory.insert(Ref::new("VirtualMachine", &format!("vm-{number}")), properties);
}
