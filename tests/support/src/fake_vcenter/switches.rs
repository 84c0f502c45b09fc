//! More verbs: tags, the tree, hosts and connections, the certificate, the cookie, the logins.
//!
//! The states a machine can be in while it runs on, or may run on, and where its verb is:
//!
//! | state | verb |
//! |---|---|
//! | its host does not answer vCenter | [`FakeVcenter::disconnect_host`] |
//! | its host is in maintenance mode; the machine is off | [`FakeVcenter::set_maintenance`] |
//! | its host was moved, the machine with it | [`FakeVcenter::move_host`] |
//! | vCenter was restored from a backup that does not have it | [`FakeVcenter::restore_from_backup`] |
//! | its host was taken out of the inventory, the machine with it | [`FakeVcenter::remove_host`] |
//! | disconnected, orphaned, invalid | [`FakeVcenter::set_connection`] |
//! | inaccessible | [`FakeVcenter::set_inaccessible`] |
//! | a template | [`FakeVcenter::change_vm`] with `Machine::set_template` |
//! | registered again, migrated, moved | [`FakeVcenter::reregister_vm`], `migrate_vm`, `move_vm` |
//! | may not be read | [`FakeVcenter::set_readable`], `set_tree_readable`, `set_path_readable` |

use tokio_rustls::TlsAcceptor;

use super::inventory::{Inventory, Ref, Val};
use super::{FakeVcenter, LoginAttempt, soap};
use crate::fake_server::identity::identity;

/// What a fake shows of itself in a handshake.
#[derive(Clone)]
pub struct Certificate(TlsAcceptor);

impl FakeVcenter {
    /// Gives a tag another name; its id stays.
    pub fn rename_tag(&self, category: &str, name: &str, to: &str) {
        self.change(|world| world.tagging.rename(category, name, to));
    }

    /// Deletes a tag; what it was attached to has it no more.
    pub fn delete_tag(&self, category: &str, name: &str) {
        self.change(|world| world.tagging.delete(category, name));
    }

    /// Attaches a tag to one more object.
    pub fn attach_tag(&self, category: &str, name: &str, kind: &str, object: &str) {
        self.change(|world| {
            let object = world.inventory.named(kind, object);
            world.tagging.attach(category, name, object);
        });
    }

    /// Puts an object below another one.
    pub fn set_parent(&self, kind: &str, name: &str, parent: (&str, &str)) {
        self.change(|world| {
            let object = world.inventory.named(kind, name);
            let parent = world.inventory.named(parent.0, parent.1);
            world.inventory.change(&object).properties.insert("parent".into(), Val::Ref(parent));
        });
    }

    /// Destroys a machine, and no wait tells it, as the simulator does where the view is changed at the same moment.
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

    /// The files of a machine cannot be reached: its configuration is unset, as vCenter does it.
    pub fn set_inaccessible(&self, name: &str) {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            set_machine_connection(&mut world.inventory, &vm, "inaccessible");
            let properties = &mut world.inventory.change(&vm).properties;
            properties.retain(|path, _| !path.starts_with("config."));
        });
    }

    /// Sets `runtime.connectionState` of a host alone: `connected`, `notResponding`, `disconnected`.
    pub fn set_host_connection(&self, host: &str, state: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            set_host_connection(&mut world.inventory, &host, state);
        });
    }

    /// A host has entered maintenance mode, or left it. vCenter lets it enter only when no machine runs on it.
    pub fn set_maintenance(&self, host: &str, is_in_maintenance: bool) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            let mode = Val::Scalar("xsd:boolean", is_in_maintenance.to_string());
            world.inventory.change(&host).properties.insert("runtime.inMaintenanceMode".to_owned(), mode);
        });
    }

    /// A host stops answering vCenter, and all machines on it are disconnected. They may run on.
    pub fn disconnect_host(&self, host: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            set_host_connection(&mut world.inventory, &host, "notResponding");
            for vm in machines_on(&world.inventory, &host) {
                set_machine_connection(&mut world.inventory, &vm, "disconnected");
            }
        });
    }

    /// A host answers vCenter again, with all machines on it.
    pub fn reconnect_host(&self, host: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            set_host_connection(&mut world.inventory, &host, "connected");
            for vm in machines_on(&world.inventory, &host) {
                set_machine_connection(&mut world.inventory, &vm, "connected");
            }
        });
    }

    /// Takes a host out of the inventory, and with it every machine on it, as vCenter does. They run on there.
    pub fn remove_host(&self, host: &str) {
        self.change(|world| {
            let host = world.inventory.named("HostSystem", host);
            for vm in machines_on(&world.inventory, &host) {
                soap::remove(world, &vm);
            }
            soap::remove(world, &host)
        });
    }

    /// Moves a host with every machine on it into another datacenter, out of any cluster: into the host folder of that
    /// datacenter, and the machines into its machine folder. All ids stay, but for the pool of the machines.
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

    /// Restarts as it was before these machines were made, which were the last that were: it does not have them, gives
    /// their ids again, and hears from no host until [`FakeVcenter::reconnect_host`]. Its instance UUID stays, as after a
    /// restore from a backup.
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

    /// Shows another certificate to new connections, self-signed as the first, and closes those there are. Gives it as
    /// PEM.
    pub fn change_certificate(&self) -> String {
        let (acceptor, pem) = identity();
        self.server.use_acceptor(acceptor);
        pem
    }

    /// The certificate that is shown now, to be shown again later.
    #[must_use]
    pub fn certificate(&self) -> Certificate {
        Certificate(self.server.acceptor())
    }

    /// Shows this certificate to new connections, and closes those there are.
    pub fn use_certificate(&self, certificate: Certificate) {
        self.server.use_acceptor(certificate.0);
    }

    /// The logins that it was asked for so far, in their order; of the last 10,000.
    #[must_use]
    pub fn login_attempts(&self) -> Vec<LoginAttempt> {
        self.shared.world().logins.all()
    }

    /// Sends cookies without quotes from now on, or with them again.
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
