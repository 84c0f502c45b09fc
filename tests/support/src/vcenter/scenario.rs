//! The initial inventory of a simulator. `tests/testenv/vcsim/scenario.go` has the same fields in Go.

use std::collections::BTreeMap;

use serde::Serialize;

/// Builder for the content of the simulated vCenter.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scenario {
    /// Accepted user.
    pub user: String,
    /// Accepted password.
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
    /// Makes an empty vCenter 8.0.3 with a new instance UUID and certificate.
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

    /// Makes one datacenter `dc-1` with one cluster `cluster-1` and the hosts `host-1` to `host-3`.
    #[must_use]
    pub fn small() -> Self {
        Self::empty().datacenter("dc-1").cluster("dc-1", "cluster-1", &["host-1", "host-2", "host-3"])
    }

    /// Sets the accepted user and password.
    #[must_use]
    pub fn login(mut self, user: &str, password: &str) -> Self {
        user.clone_into(&mut self.user);
        password.clone_into(&mut self.password);
        self
    }

    /// Sets `about.instanceUuid`. The default is random.
    #[must_use]
    pub fn instance_uuid(mut self, uuid: &str) -> Self {
        uuid.clone_into(&mut self.instance_uuid);
        self
    }

    /// Sets `about.apiVersion` and the offered version. The default is `8.0.3.0`.
    #[must_use]
    pub fn api_version(mut self, version: &str) -> Self {
        version.clone_into(&mut self.api_version);
        self
    }

    /// Sets the server certificate (with its chain) and key as PEM. By default the simulator makes both.
    #[must_use]
    pub fn certificate(mut self, certificate: &str, key: &str) -> Self {
        certificate.clone_into(&mut self.certificate);
        key.clone_into(&mut self.key);
        self
    }

    /// Makes REST accept a SOAP session's secret as a session id, as vCenter 8.0 Update 3 does. The simulator itself
    /// does not accept it.
    #[must_use]
    pub fn shares_sessions(mut self) -> Self {
        self.shares_sessions = true;
        self
    }

    /// Sets the certificate (PEM) that may get tokens. Without one, no client gets tokens.
    #[must_use]
    pub fn solution_user(mut self, certificate: &str) -> Self {
        self.solution_users.push(certificate.to_owned());
        self
    }

    /// Adds a datacenter below the root folder.
    #[must_use]
    pub fn datacenter(self, name: &str) -> Self {
        self.datacenter_in(name, "")
    }

    /// Adds a datacenter in a folder such as `emea/prod`.
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

    /// Adds a cluster with its hosts, in an existing datacenter.
    #[must_use]
    pub fn cluster(mut self, datacenter: &str, name: &str, hosts: &[&str]) -> Self {
        let cluster = Cluster { name: name.to_owned(), hosts: hosts.iter().map(|&host| host.to_owned()).collect() };
        self.find_datacenter(datacenter).clusters.push(cluster);
        self
    }

    /// Adds a stand-alone host, in an existing datacenter.
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

    /// Adds a virtual machine.
    #[must_use]
    pub fn vm(mut self, vm: Vm) -> Self {
        self.vms.push(vm);
        self
    }

    /// Adds a tag category for any type of object. A tag with a new category adds it, too.
    #[must_use]
    pub fn category(mut self, name: &str, cardinality: &str) -> Self {
        self.categories.push(Category {
            name: name.to_owned(),
            cardinality: cardinality.to_owned(),
            types: Vec::new(),
        });
        self
    }

    /// Adds a tag, attached to these objects.
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

/// An object in the inventory, by type and name.
#[derive(Clone, Debug, Serialize)]
pub struct Object {
    /// Managed-object type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Name. For a VM it may also be the BIOS UUID or managed-object id.
    pub name: String,
    /// Datacenter, if names are not unique.
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

    /// A resource pool. The root pool of a cluster is named `Resources`.
    #[must_use]
    pub fn pool(name: &str) -> Self {
        Self::new("ResourcePool", name)
    }

    /// A folder. The root folder is named `Datacenters`, the machine folder of a datacenter `vm`.
    #[must_use]
    pub fn folder(name: &str) -> Self {
        Self::new("Folder", name)
    }

    /// A datacenter.
    #[must_use]
    pub fn datacenter(name: &str) -> Self {
        Self::new("Datacenter", name)
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
    /// Makes a card on this network with these addresses.
    #[must_use]
    pub fn new(network: &str, addresses: &[&str]) -> Self {
        Self {
            network: network.to_owned(),
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Makes an interface that is not a virtual device, such as a CNI bridge: its device id is -1, and it has no
    /// network.
    #[must_use]
    pub fn guest_only(addresses: &[&str]) -> Self {
        Self { device_config_id: Some(-1), ..Self::new("", addresses) }
    }

    /// Sets the MAC address.
    #[must_use]
    pub fn mac(mut self, mac: &str) -> Self {
        mac.clone_into(&mut self.mac);
        self
    }
}

/// A virtual machine, or a change of one. A field that is not set has a default, or keeps its value.
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

/// A change of an existing machine. It has the same methods as a new machine.
pub type VmChange = Vm;

impl Vm {
    /// Makes a running machine with this name and BIOS UUID, whose guest's host name is the same: 2 CPUs, 4096 MB,
    /// `ubuntu64Guest`, no network card, on the host with the lowest name.
    #[must_use]
    pub fn new(name: &str, uuid: &str) -> Self {
        Self { name: Some(name.to_owned()), uuid: Some(uuid.to_owned()), ..Self::change().guest_host_name(name) }
    }

    /// Makes an empty change.
    #[must_use]
    pub fn change() -> Self {
        Self::default()
    }

    /// Sets the name in the inventory.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the BIOS UUID.
    #[must_use]
    pub fn uuid(mut self, uuid: &str) -> Self {
        self.uuid = Some(uuid.to_owned());
        self
    }

    /// Sets the instance UUID. The default is derived from vCenter and machine.
    #[must_use]
    pub fn instance_uuid(mut self, uuid: &str) -> Self {
        self.instance_uuid = Some(uuid.to_owned());
        self
    }

    /// Sets `guest.hostName`. It is empty for a guest without VMware Tools.
    #[must_use]
    pub fn guest_host_name(mut self, name: &str) -> Self {
        self.guest_host_name = Some(name.to_owned());
        self
    }

    /// Adds a network card. In a change, the given cards replace the existing ones.
    #[must_use]
    pub fn nic(mut self, nic: Nic) -> Self {
        self.nics.get_or_insert_default().push(nic);
        self
    }

    /// Adds a network card on `VM Network` with this address.
    #[must_use]
    pub fn ip(self, address: &str) -> Self {
        self.nic(Nic::new("VM Network", &[address]))
    }

    /// Removes all network cards.
    #[must_use]
    pub fn without_nics(mut self) -> Self {
        self.nics = Some(Vec::new());
        self
    }

    /// Powers it on.
    #[must_use]
    pub fn powered_on(mut self) -> Self {
        self.power = Some("poweredOn");
        self
    }

    /// Powers it off. The simulator keeps the last report of the guest.
    #[must_use]
    pub fn powered_off(mut self) -> Self {
        self.power = Some("poweredOff");
        self
    }

    /// Suspends it.
    #[must_use]
    pub fn suspended(mut self) -> Self {
        self.power = Some("suspended");
        self
    }

    /// Sets `runtime.connectionState`: `connected`, `disconnected`, `orphaned`, `inaccessible`, `invalid`.
    #[must_use]
    pub fn connection_state(mut self, state: &str) -> Self {
        self.connection_state = Some(state.to_owned());
        self
    }

    /// Sets whether it is a template.
    #[must_use]
    pub fn template(mut self, is_template: bool) -> Self {
        self.template = Some(is_template);
        self
    }

    /// Sets the host. A change moves the machine there.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        self.host = Some(host.to_owned());
        self
    }

    /// Sets the datacenter, if host names are not unique.
    #[must_use]
    pub fn datacenter(mut self, datacenter: &str) -> Self {
        self.datacenter = Some(datacenter.to_owned());
        self
    }

    /// Sets the folder below the datacenter's machine folder, such as `prod/nodes`.
    #[must_use]
    pub fn folder(mut self, path: &str) -> Self {
        self.folder = Some(path.to_owned());
        self
    }

    /// Sets the number of virtual CPUs and the memory in MB.
    #[must_use]
    pub fn size(mut self, cpus: i32, memory_mb: i32) -> Self {
        self.cpus = Some(cpus);
        self.memory_mb = Some(memory_mb);
        self
    }

    /// Sets `config.guestId`.
    #[must_use]
    pub fn guest_id(mut self, id: &str) -> Self {
        self.guest_id = Some(id.to_owned());
        self
    }

    /// Sets an entry of `config.extraConfig`, such as `guestinfo.metadata`. An empty value removes it.
    #[must_use]
    pub fn extra_config(mut self, key: &str, value: &str) -> Self {
        self.extra_config.insert(key.to_owned(), value.to_owned());
        self
    }
}
