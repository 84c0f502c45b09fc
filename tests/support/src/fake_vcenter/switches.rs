//! More methods for tests: tags, the tree, hosts and connections, the certificate, the cookie, the logins.
//!
//! These are the states of a machine that runs, or may run, and the method for each:
//!
//! | state | method |
//! |---|---|
//! | its host does not answer vCenter | [`FakeVcenter::disconnect_host`] |
//! | its host is in maintenance mode; the machine is off | [`FakeVcenter::set_maintenance`] |
//! | its host was moved together with the machine | [`FakeVcenter::move_host`] |
//! | vCenter was restored from a backup without the machine | [`FakeVcenter::restore_from_backup`] |
//! | its host was removed from the inventory together with the machine | [`FakeVcenter::remove_host`] |
//! | disconnected, orphaned, invalid | [`FakeVcenter::set_connection`] |
//! | inaccessible | [`FakeVcenter::set_inaccessible`] |
//! | a template | [`FakeVcenter::change_vm`] with `Machine::set_template` |
//! | registered again, migrated, moved | [`FakeVcenter::reregister_vm`], `migrate_vm`, `move_vm` |
//! | may not be read | [`FakeVcenter::set_readable`], `set_tree_readable`, `set_path_readable` |

use tokio_rustls::TlsAcceptor;

use super::inventory::{Inventory, Ref, Val};
use super::{FakeVcenter, LoginAttempt, soap};
use crate::fake_server::identity::identity;

/// The certificate that a fake presents in a handshake.
#[derive(Clone)]
pub struct Certificate(TlsAcceptor);

impl FakeVcenter {
    /// Renames a tag. Its id stays.
    pub fn rename_tag(&self, category: &str, name: &str, to: &str) {
        self.change(|world| world.tagging.rename(category, name, to));
    }

    /// Deletes a tag and its attachments.
    pub fn delete_tag(&self, category: &str, name: &str) {
        self.change(|world| world.tagging.delete(category, name));
    }

    /// Attaches a tag to another object.
    pub fn attach_tag(&self, category: &str, name: &str, kind: &str, object: &str) {
        self.change(|world| {
            let object = world.inventory.named(kind, object);
            world.tagging.attach(category, name, object);
        });
    }

    /// Moves an object below another one.
    pub fn set_parent(&self, kind: &str, name: &str, parent: (&str, &str)) {
        self.change(|world| {
            let object = world.inventory.named(kind, name);
            let parent = world.inventory.named(parent.0, parent.1);
            world.inventory.change(&object).properties.insert("parent".into(), Val::Ref(parent));
        });
    }

    /// Destroys a machine, and no wait reports it. The simulator does the same if the view changes at the same time.
    pub fn destroy_vm_unnoticed(&self, name: &str) {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            soap::remove(world, &vm);
            for session in world.sessions.values_mut() {
                session.collectors.values_mut().for_each(|collector| collector.forget(&vm));
            }
        });
    }

    /// Sets `runtime.connectionState` of a machine: `connected`, `disconnected`, `orphaned`, `inaccessible`, `invalid`.
    pub fn set_connection(&self, name: &str, state: &str) {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            set_machine_connection(&mut world.inventory, &vm, state);
        });
    }

    /// Makes the files of a machine unreachable: its configuration is unset, as in a real vCenter.
    pub fn set_inaccessible(&self, name: &str) {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            set_machine_connection(&mut world.inventory, &vm, "inaccessible");
            let properties = &mut world.inventory.change(&vm).properties;
            properties.retain(|path, _| !path.starts_with("config."));
        });
    }

    /// Sets `runtime.connectionState` of a host, without its machines: `connected`, `notResponding`, `disconnected`.
    pub fn set_host_connection(&self, host: &str, state: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            set_host_connection(&mut world.inventory, &host, state);
        });
    }

    /// Puts a host into maintenance mode, or takes it out. A real vCenter allows this mode only if no machine runs on
    /// the host.
    pub fn set_maintenance(&self, host: &str, is_in_maintenance: bool) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            let mode = Val::Scalar("xsd:boolean", is_in_maintenance.to_string());
            world.inventory.change(&host).properties.insert("runtime.inMaintenanceMode".to_owned(), mode);
        });
    }

    /// Makes a host stop answering vCenter. All machines on it become disconnected, but may continue to run.
    pub fn disconnect_host(&self, host: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            set_host_connection(&mut world.inventory, &host, "notResponding");
            for vm in machines_on(&world.inventory, &host) {
                set_machine_connection(&mut world.inventory, &vm, "disconnected");
            }
        });
    }

    /// Makes a host answer vCenter again, with all machines on it.
    pub fn reconnect_host(&self, host: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            set_host_connection(&mut world.inventory, &host, "connected");
            for vm in machines_on(&world.inventory, &host) {
                set_machine_connection(&mut world.inventory, &vm, "connected");
            }
        });
    }

    /// Removes a host and every machine on it from the inventory, as vCenter does. The machines continue to run.
    pub fn remove_host(&self, host: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            for vm in machines_on(&world.inventory, &host) {
                soap::remove(world, &vm);
            }
            soap::remove(world, &host)
        });
    }

    /// Moves a host with every machine on it into another datacenter, out of any cluster: the host into the host
    /// folder, and the machines into the machine folder. All ids stay, except for the resource pool of the machines.
    pub fn move_host(&self, host: &str, datacenter: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            let datacenter = world.inventory.named("Datacenter", datacenter);
            let [hosts, machines] =
                ["group-h", "group-v"].map(|folder| Ref::new("Folder", &datacenter.id.replace("datacenter-", folder)));
            let alone = world.inventory.add("ComputeResource", &format!("domain-s{}", host.id), "alone", Some(&hosts));
            let pool = format!("resgroup-s{}", host.id);
            let pool = world.inventory.add("ResourcePool", &pool, "Resources", Some(&alone));
            for vm in machines_on(&world.inventory, &host) {
                let properties = &mut world.inventory.change(&vm).properties;
                properties.insert("parent".into(), Val::Ref(machines.clone()));
                properties.insert("resourcePool".into(), Val::Ref(pool.clone()));
            }
            world.inventory.change(&host).properties.insert("parent".into(), Val::Ref(alone));
        });
    }

    /// Restarts in the state before these machines were created. They must be the newest machines. The inventory does
    /// not contain them, and their ids are assigned again. All hosts are disconnected until
    /// [`FakeVcenter::reconnect_host`]. The instance UUID stays, as after a restore from a backup.
    pub async fn restore_from_backup(&self, made_since: &[&str]) {
        self.server.stop_listening().await;
        self.change(|world| {
            for name in made_since {
                let vm = world.inventory.named("VirtualMachine", name);
                soap::remove(world, &vm);
            }
            let number = |vm: &Ref| vm.id.strip_prefix("vm-").and_then(|number| number.parse::<usize>().ok());
            let machines = world.inventory.objects.keys().filter(|object| object.kind == "VirtualMachine");
            world.machines = machines.filter_map(number).max().unwrap_or_default();
            let hosts: Vec<Ref> =
                world.inventory.objects.keys().filter(|object| object.kind == "HostSystem").cloned().collect();
            for host in hosts {
                set_host_connection(&mut world.inventory, &host, "disconnected");
                for vm in machines_on(&world.inventory, &host) {
                    set_machine_connection(&mut world.inventory, &vm, "disconnected");
                }
            }
            world.end_sessions();
        });
        self.server.resume_listening();
    }

    /// Presents another self-signed certificate to new connections, and closes the existing ones. Returns it as PEM.
    pub fn change_certificate(&self) -> String {
        let (acceptor, pem) = identity();
        self.server.use_acceptor(acceptor);
        pem
    }

    /// Returns the current certificate, for a later [`Self::use_certificate`].
    #[must_use]
    pub fn certificate(&self) -> Certificate {
        Certificate(self.server.acceptor())
    }

    /// Presents this certificate to new connections, and closes the existing ones.
    pub fn use_certificate(&self, certificate: Certificate) {
        self.server.use_acceptor(certificate.0);
    }

    /// Returns the last 10,000 login attempts, in their order.
    #[must_use]
    pub fn login_attempts(&self) -> Vec<LoginAttempt> {
        self.shared.world().logins.all()
    }

    /// Sets whether cookies are sent with quotes.
    pub fn set_cookie_quoted(&self, is_quoted: bool) {
        self.change(|world| world.is_cookie_bare = !is_quoted);
    }
}

fn machines_on(inventory: &Inventory, host: &Ref) -> Vec<Ref> {
    let is_there = |vm: &&Ref| inventory.property(vm, "runtime.host").is_some_and(|at| at.refs().contains(host));
    inventory.objects.keys().filter(|object| object.kind == "VirtualMachine").filter(is_there).cloned().collect()
}

fn set_machine_connection(inventory: &mut Inventory, vm: &Ref, state: &str) {
    let state = Val::Scalar("VirtualMachineConnectionState", state.to_owned());
    inventory.change(vm).properties.insert("runtime.connectionState".to_owned(), state);
}

fn set_host_connection(inventory: &mut Inventory, host: &Ref, state: &str) {
    let state = Val::Scalar("HostSystemConnectionState", state.to_owned());
    inventory.change(host).properties.insert("runtime.connectionState".to_owned(), state);
}
