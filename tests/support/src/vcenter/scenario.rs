//! The inventory that a simulator starts with. Its Go twin is `tests/testenv/vcsim/scenario.go`.

use std::collections::BTreeMap;

use serde::Serialize;

/// What the simulated vCenter holds: built with short chained verbs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scenario {
    /// The accepted user.
    pub user: String,
    /// The accepted password.
    pub password: String,
    instance_uuid: String,
    api_version: String,
    certificate: String,
    key: String,
    solution_users: Vec<String>,
    shares_sessions: bool,
    datacenters: Vec<Datacenter>,
    vms: Vec<Vm>,
    categories: Vec<Category>,
    tags: Vec<Tag>,
}

#[derive(Clone, Debug, Serialize)]
struct Datacenter {
    name: String,
    folder: String,
    clusters: Vec<Cluster>,
    hosts: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Cluster {
    name: String,
    hosts: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Category {
    name: String,
    cardinality: String,
    types: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Tag {
    category: String,
    name: String,
    attached: Vec<Object>,
}

impl Scenario {
    /// An empty vCenter 8.0.3 with an instance UUID and a certificate of its own.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            user: "administrator@vsphere.local".to_owned(),
            password: "Correct-Horse-7".to_owned(),
            instance_uuid: String::new(),
            api_version: "8.0.3.0".to_owned(),
            certificate: String::new(),
            key: String::new(),
            solution_users: Vec::new(),
            shares_sessions: false,
            datacenters: Vec::new(),
            vms: Vec::new(),
            categories: Vec::new(),
            tags: Vec::new(),
        }
    }

    /// One datacenter `dc-1` with one cluster `cluster-1` and the hosts `host-1` to `host-3`.
    #[must_use]
    pub fn small() -> Self {
        Self::empty().datacenter("dc-1").cluster("dc-1", "cluster-1", &["host-1", "host-2", "host-3"])
    }

    /// The pair that logs in.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        user.clone_into(&mut self.user);
        password.clone_into(&mut self.password);
        self
    }

    /// `about.instanceUuid`; a random one unless given.
    #[must_use]
    pub fn instance_uuid(mut self, uuid: &str) -> Self {
        uuid.clone_into(&mut self.instance_uuid);
        self
    }

    /// `about.apiVersion`, and what the list of versions offers: `8.0.3.0` unless given.
    #[must_use]
    pub fn api_version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.api_version);
        self
    }

    /// The server certificate (with its chain) and key as PEM, instead of self-made ones.
    #[must_use]
    pub fn certificate(mut self, certificate: &str, key: &str) -> Self {
        certificate.clone_into(&mut self.certificate);
        key.clone_into(&mut self.key);
        self
    }

    /// REST takes a SOAP session's secret as a session id, as vCenter 8.0 Update 3 does; the simulator itself does not.
    #[must_use]
    pub fn shares_sessions(mut self) -> Self {
        self.shares_sessions = true;
        self
    }

    /// A certificate (PEM) that gets tokens; without one, nobody does.
    #[must_use]
    pub fn solution_user(mut self, certificate: &str) -> Self {
        self.solution_users.push(certificate.to_owned());
        self
    }

    /// A datacenter below the root folder.
    #[must_use]
    pub fn datacenter(self, name: &str) -> Self {
        self.datacenter_in(name, "")
    }

    /// A datacenter in a folder such as `emea/prod`.
    #[must_use]
    pub fn datacenter_in(mut self, name: &str, folder: &str) -> Self {
        self.datacenters.push(Datacenter {
            name: name.to_owned(),
            folder: folder.to_owned(),
            clusters: Vec::new(),
            hosts: Vec::new(),
        });
        self
    }

    /// A cluster with its hosts, in a datacenter named before.
    #[must_use]
    pub fn cluster(mut self, datacenter: &str, name: &str, hosts: &[&str]) -> Self {
        let cluster = Cluster { name: name.to_owned(), hosts: hosts.iter().map(|&host| host.to_owned()).collect() };
        self.find_datacenter(datacenter).clusters.push(cluster);
        self
    }

    /// A stand-alone host, in a datacenter named before.
    #[must_use]
    pub fn host(mut self, datacenter: &str, name: &str) -> Self {
        self.find_datacenter(datacenter).hosts.push(name.to_owned());
        self
    }

    fn find_datacenter(&mut self, name: &str) -> &mut Datacenter {
        self.datacenters
            .iter_mut()
            .find(|datacenter| datacenter.name == name)
            .unwrap_or_else(|| panic!("the scenario has no datacenter {name}"))
    }

    /// A virtual machine.
    #[must_use]
    pub fn vm(mut self, vm: Vm) -> Self {
        self.vms.push(vm);
        self
    }

    /// A tag category for any type of object. A tag makes its category if that is new.
    #[must_use]
    pub fn category(mut self, name: &str, cardinality: &str) -> Self {
        self.categories.push(Category {
            name: name.to_owned(),
            cardinality: cardinality.to_owned(),
            types: Vec::new(),
        });
        self
    }

    /// A tag, attached to these objects.
    #[must_use]
    pub fn tag(mut self, category: &str, name: &str, attached: impl IntoIterator<Item = Object>) -> Self {
        self.tags.push(Tag {
            category: category.to_owned(),
            name: name.to_owned(),
            attached: attached.into_iter().collect(),
        });
        self
    }
}

/// Something in the inventory, by type and name.
#[derive(Clone, Debug, Serialize)]
pub struct Object {
    /// The managed-object type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its name; for a VM also its BIOS UUID or managed-object id.
    pub name: String,
    /// Its datacenter, where names are not unique.
    pub datacenter: String,
}

impl Object {
    fn new(kind: &'static str, name: &str) -> Self {
        Self { kind, name: name.to_owned(), datacenter: String::new() }
    }

    /// A virtual machine, by name, BIOS UUID or managed-object id.
    #[must_use]
    pub fn vm(name: &str) -> Self {
        Self::new("VirtualMachine", name)
    }

    /// An ESXi host.
    #[must_use]
    pub fn host(name: &str) -> Self {
        Self::new("HostSystem", name)
    }

    /// A cluster.
    #[must_use]
    pub fn cluster(name: &str) -> Self {
        Self::new("ClusterComputeResource", name)
    }

    /// A resource pool; a cluster's own is called `Resources`.
    #[must_use]
    pub fn pool(name: &str) -> Self {
        Self::new("ResourcePool", name)
    }

    /// A folder; the root one is called `Datacenters`, that of a datacenter's machines `vm`.
    #[must_use]
    pub fn folder(name: &str) -> Self {
        Self::new("Folder", name)
    }

    /// A datacenter.
    #[must_use]
    pub fn datacenter(name: &str) -> Self {
        Self::new("Datacenter", name)
    }

    /// Only the one in this datacenter.
    #[must_use]
    pub fn within(mut self, datacenter: &str) -> Self {
        datacenter.clone_into(&mut self.datacenter);
        self
    }
}

/// A network card as VMware Tools reports it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    network: String,
    mac: String,
    addresses: Vec<String>,
    #[serde(rename = "deviceConfigId")]
    device_config_id: Option<i32>,
}

impl Nic {
    /// A card on this network with these addresses.
    #[must_use]
    pub fn new(network: &str, addresses: &[&str]) -> Self {
        Self {
            network: network.to_owned(),
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// An interface that is no virtual device, such as a CNI bridge: its device id is -1, and it has no network.
    #[must_use]
    pub fn guest_only(addresses: &[&str]) -> Self {
        Self { device_config_id: Some(-1), ..Self::new("", addresses) }
    }

    /// The MAC address.
    #[must_use]
    pub fn mac(mut self, mac: &str) -> Self {
        mac.clone_into(&mut self.mac);
        self
    }

    /// The device's key; 4000 and up in order unless given.
    #[must_use]
    pub fn device(mut self, id: i32) -> Self {
        self.device_config_id = Some(id);
        self
    }
}

/// A virtual machine, or a change of one: what is not given is a default, or stays.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guest_host_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nics: Option<Vec<Nic>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    power: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connection_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datacenter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<i32>,
    #[serde(rename = "memoryMB", skip_serializing_if = "Option::is_none")]
    memory_mb: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guest_id: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra_config: BTreeMap<String, String>,
}

/// A change of a machine that exists: the same verbs as for making one.
pub type VmChange = Vm;

impl Vm {
    /// A running machine with this name and BIOS UUID, whose guest's host name is the same: 2 CPUs, 4096 MB,
    /// `ubuntu64Guest`, no network card, on the host with the lowest name.
    #[must_use]
    pub fn new(name: &str, uuid: &str) -> Self {
        Self { name: Some(name.to_owned()), uuid: Some(uuid.to_owned()), ..Self::change().guest_host_name(name) }
    }

    /// A change of nothing yet.
    #[must_use]
    pub fn change() -> Self {
        Self::default()
    }

    /// The name in the inventory.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// The BIOS UUID.
    #[must_use]
    pub fn uuid(mut self, uuid: &str) -> Self {
        self.uuid = Some(uuid.to_owned());
        self
    }

    /// The instance UUID; derived from vCenter and machine unless given.
    #[must_use]
    pub fn instance_uuid(mut self, uuid: &str) -> Self {
        self.instance_uuid = Some(uuid.to_owned());
        self
    }

    /// `guest.hostName`; empty for a guest without VMware Tools.
    #[must_use]
    pub fn guest_host_name(mut self, name: &str) -> Self {
        self.guest_host_name = Some(name.to_owned());
        self
    }

    /// One more network card (of a change: these replace those that were there).
    #[must_use]
    pub fn nic(mut self, nic: Nic) -> Self {
        self.nics.get_or_insert_default().push(nic);
        self
    }

    /// A network card on `VM Network` with this address.
    #[must_use]
    pub fn ip(self, address: &str) -> Self {
        self.nic(Nic::new("VM Network", &[address]))
    }

    /// No network card at all.
    #[must_use]
    pub fn without_nics(mut self) -> Self {
        self.nics = Some(Vec::new());
        self
    }

    /// Running.
    #[must_use]
    pub fn powered_on(mut self) -> Self {
        self.power = Some("poweredOn");
        self
    }

    /// Switched off. The simulator keeps what the guest reported last.
    #[must_use]
    pub fn powered_off(mut self) -> Self {
        self.power = Some("poweredOff");
        self
    }

    /// Suspended.
    #[must_use]
    pub fn suspended(mut self) -> Self {
        self.power = Some("suspended");
        self
    }

    /// `runtime.connectionState`: `connected`, `disconnected`, `orphaned`, `inaccessible`, `invalid`.
    #[must_use]
    pub fn connection_state(mut self, state: &str) -> Self {
        self.connection_state = Some(state.to_owned());
        self
    }

    /// A template, or no longer one.
    #[must_use]
    pub fn template(mut self, is_template: bool) -> Self {
        self.template = Some(is_template);
        self
    }

    /// On this host (of a change: moved there).
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    /// In this datacenter, where host names are not unique.
    #[must_use]
    pub fn datacenter(mut self, datacenter: &str) -> Self {
        self.datacenter = Some(datacenter.to_owned());
        self
    }

    /// In this folder below the datacenter's machine folder, such as `prod/nodes`.
    #[must_use]
    pub fn folder(mut self, path: &str) -> Self {
        self.folder = Some(path.to_owned());
        self
    }

    /// Number of virtual CPUs and memory in MB.
    #[must_use]
    pub fn size(mut self, cpus: i32, memory_mb: i32) -> Self {
        self.cpus = Some(cpus);
        self.memory_mb = Some(memory_mb);
        self
    }

    /// `config.guestId`.
    #[must_use]
    pub fn guest_id(mut self, id: &str) -> Self {
        self.guest_id = Some(id.to_owned());
        self
    }

    /// An entry of `config.extraConfig`, such as `guestinfo.metadata`; an empty value removes it.
    #[must_use]
    pub fn extra_config(mut self, key: &str, value: &str) -> Self {
        self.extra_config.insert(key.to_owned(), value.to_owned());
        self
    }
}
