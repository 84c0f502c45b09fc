//! A fake vCenter in this process, for everything that the simulator lacks: permissions, partial answers, every fault,
//! waits that hang, versions that resume, and thousands of machines at the same time.
//!
//! It behaves like real servers in points where the simulator does not: a quoted cookie, XML types on all values, unset
//! properties left out, `enter` only for new objects, `leave` for objects that can no longer be reached or read,
//! numbered versions, and pages. It has only the operations that this program calls, over HTTP/1.1 with TLS.

mod answer;
mod collector;
mod counts;
mod fault;
mod inventory;
pub(crate) mod logins;
mod model;
mod rest;
mod selection;
mod session;
mod soap;
mod switches;
mod waits;
mod xml;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use counts::FakeCounts;
pub use fault::{Fault, Trouble};
pub use logins::{LoginAttempt, LoginOutcome, most_against_an_account};
pub use model::{Denial, Machine, Model, Unreadable};
pub use switches::Certificate;

use crate::fake_server::http::{Reply, Request};
use crate::fake_server::identity::identity;
use crate::fake_server::rules::Rules;
use crate::fake_server::{Handler, Server};
use inventory::Inventory;
use rest::Tagging;
use session::Session;

/// The state of the server. It is never locked across an await.
struct World {
    user: String,
    password: String,
    instance_uuid: String,
    page_size: usize,
    unreadable: Unreadable,
    denial: Denial,
    inventory: Inventory,
    tagging: Tagging,
    /// Whether cookies come without quotes.
    is_cookie_bare: bool,
    last_cookie: String,
    last_cookie_since: Option<Instant>,
    sessions: BTreeMap<String, Session>,
    rest_sessions: BTreeSet<String>,
    rules: Rules<Trouble>,
    counts: FakeCounts,
    logins: logins::Logins,
    /// Fault that ends the waits that were pending at the last increase of `interrupts`.
    interrupt: Option<Trouble>,
    interrupts: u64,
    machines: usize,
    delay: Option<Duration>,
}

impl World {
    fn next_id(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }

    /// Ends all sessions, as when the server stops.
    fn end_sessions(&mut self) {
        self.sessions.clear();
        self.rest_sessions.clear();
        self.interrupts += 1;
        self.interrupt = Some(Trouble::Drop);
    }
}

struct Shared {
    world: Mutex<World>,
    /// Signals every change that a wait may report, or that may end a wait.
    changed: watch::Sender<()>,
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Shared {
    async fn answer(self: Arc<Self>, request: Request) -> Reply {
        answer::answer(self, request).await
    }
}

/// A running fake. It ends with the test's runtime, or when it is dropped.
pub struct FakeVcenter {
    shared: Arc<Shared>,
    server: Server<Shared>,
    ca_pem: String,
}

impl FakeVcenter {
    /// Starts it on a free port of 127.0.0.1.
    pub async fn start(model: Model) -> Self {
        let (acceptor, ca_pem) = identity();
        let machines = model.inventory.objects.keys().filter(|one| one.kind == "VirtualMachine").count();
        let world = World {
            user: model.user,
            password: model.password,
            instance_uuid: uuid::Uuid::new_v4().to_string(),
            page_size: model.page_size,
            unreadable: model.unreadable,
            denial: model.denial,
            inventory: model.inventory,
            tagging: model.tagging,
            is_cookie_bare: false,
            last_cookie: String::new(),
            last_cookie_since: None,
            sessions: BTreeMap::new(),
            rest_sessions: BTreeSet::new(),
            rules: Rules::default(),
            counts: FakeCounts::default(),
            logins: logins::Logins::default(),
            interrupt: None,
            interrupts: 0,
            machines,
            delay: None,
        };
        let shared = Arc::new(Shared { world: Mutex::new(world), changed: watch::Sender::new(()) });
        let server = Server::start(Arc::clone(&shared), acceptor);
        Self { shared, server, ca_pem }
    }

    /// Returns `127.0.0.1`.
    #[must_use]
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// Returns the port, which never changes.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// Returns the address of the SOAP API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}/sdk", self.server.port())
    }

    /// Returns the server's self-signed certificate as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the accepted user.
    #[must_use]
    pub fn user(&self) -> String {
        self.shared.world().user.clone()
    }

    /// Returns the accepted password.
    #[must_use]
    pub fn password(&self) -> String {
        self.shared.world().password.clone()
    }

    /// Returns the current counts.
    #[must_use]
    pub fn counts(&self) -> FakeCounts {
        let world = self.shared.world();
        let (soap_sessions, rest_sessions) = (world.sessions.len(), world.rest_sessions.len());
        let collectors = world.sessions.values().map(|session| session.collectors.len()).sum();
        let views = world.sessions.values().map(|session| session.views.len()).sum();
        FakeCounts { soap_sessions, rest_sessions, collectors, views, ..world.counts.clone() }
    }

    /// Returns the id of the object of this class with this name.
    ///
    /// # Panics
    ///
    /// If there is none. This applies to every method that names an object.
    #[must_use]
    pub fn id(&self, kind: &str, name: &str) -> String {
        self.shared.world().inventory.named(kind, name).id
    }

    fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let changed = change(&mut self.shared.world());
        self.shared.changed.send_replace(());
        changed
    }

    /// Creates a machine and returns its id.
    pub fn create_vm(&self, machine: Machine) -> String {
        self.change(|world| {
            world.machines += 1;
            model::place(&mut world.inventory, world.machines, machine);
            format!("vm-{}", world.machines)
        })
    }

    /// Changes a machine. A pending wait reports the change at once.
    pub fn change_vm(&self, name: &str, change: impl FnOnce(Machine) -> Machine) {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            let object = world.inventory.change(&vm);
            object.properties = change(Machine { properties: std::mem::take(&mut object.properties) }).properties;
        });
    }

    /// Changes all machines in one step.
    pub fn change_vms(&self, change: impl Fn(Machine) -> Machine) {
        self.change(|world| {
            let all = world.inventory.objects.keys().filter(|one| one.kind == "VirtualMachine");
            for vm in all.cloned().collect::<Vec<_>>() {
                let object = world.inventory.change(&vm);
                object.properties = change(Machine { properties: std::mem::take(&mut object.properties) }).properties;
            }
        });
    }

    /// Destroys a machine.
    pub fn destroy_vm(&self, name: &str) {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            soap::remove(world, &vm)
        });
    }

    /// Moves a machine to another host.
    pub fn migrate_vm(&self, name: &str, host: &str) {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            let host = world.inventory.named("HostSystem", host);
            world.inventory.change(&vm).properties.insert("runtime.host".into(), inventory::Val::Ref(host));
        });
    }

    /// Moves a machine into the machine folder of a datacenter. Its id and all other properties stay.
    pub fn move_vm(&self, name: &str, datacenter: &str) {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            let folder = model::machine_folder(&world.inventory, datacenter);
            world.inventory.change(&vm).properties.insert("parent".into(), inventory::Val::Ref(folder));
        });
    }

    /// Removes a machine from the inventory and registers it again. Everything stays except for its id. Returns the new
    /// id.
    pub fn reregister_vm(&self, name: &str) -> String {
        self.change(|world| {
            let vm = world.inventory.named("VirtualMachine", name);
            let object = soap::remove(world, &vm).unwrap();
            world.machines += 1;
            let id = format!("vm-{}", world.machines);
            world.inventory.insert(inventory::Ref::new("VirtualMachine", &id), object.properties.clone());
            id
        })
    }

    /// Removes a host, folder or similar object from the inventory. The objects in it stay.
    pub fn remove_object(&self, kind: &str, name: &str) {
        self.change(|world| {
            let object = world.inventory.named(kind, name);
            soap::remove(world, &object)
        });
    }

    /// Returns `about.instanceUuid`.
    #[must_use]
    pub fn instance_uuid(&self) -> String {
        self.shared.world().instance_uuid.clone()
    }

    /// Returns a section `[VirtualCenter "…"]` of `vsphere.conf` for this vCenter. Writes its CA into `folder`.
    #[must_use]
    pub fn ini_section(&self, name: &str, datacenters: &str, folder: &std::path::Path) -> String {
        let ca_file = folder.join(format!("{}.pem", self.server.port()));
        std::fs::write(&ca_file, &self.ca_pem).unwrap();
        format!(
            "[VirtualCenter \"{name}\"]\nserver = \"127.0.0.1\"\nport = \"{}\"\nuser = \"{}\"\npassword = \"{}\"\n\
             ca-file = \"{}\"\ndatacenters = \"{datacenters}\"\n",
            self.port(),
            self.user(),
            self.password(),
            ca_file.display()
        )
    }

    /// Sets whether the account may read an object.
    pub fn set_readable(&self, kind: &str, name: &str, is_readable: bool) {
        self.change(|world| {
            let object = world.inventory.named(kind, name);
            set_readable(world, &object, is_readable);
        });
    }

    /// Sets whether the account may read an object and everything below it. In a real vCenter, too, a role on an object
    /// propagates to its children.
    pub fn set_tree_readable(&self, kind: &str, name: &str, is_readable: bool) {
        self.change(|world| {
            let top = world.inventory.named(kind, name);
            let is_inside = |one: &&inventory::Ref| **one == top || world.inventory.is_below(one, &top);
            let inside: Vec<inventory::Ref> = world.inventory.objects.keys().filter(is_inside).cloned().collect();
            for object in inside {
                set_readable(world, &object, is_readable);
            }
        });
    }

    /// Sets whether the account may read one property.
    pub fn set_path_readable(&self, kind: &str, name: &str, path: &str, is_readable: bool) {
        self.change(|world| {
            let object = world.inventory.named(kind, name);
            let hidden = &mut world.inventory.change(&object).hidden;
            if is_readable { hidden.remove(path) } else { hidden.insert(path.to_owned()) }
        });
    }

    /// Sets whether the account may see a tag category.
    pub fn set_category_readable(&self, category: &str, is_readable: bool) {
        self.change(|world| {
            let hidden = &mut world.tagging.hidden_categories;
            if is_readable { hidden.remove(category) } else { hidden.insert(category.to_owned()) }
        });
    }

    /// Sets whether the account may see the objects that tags are attached to.
    pub fn set_attachments_readable(&self, is_readable: bool) {
        self.change(|world| world.tagging.hides_attachments = !is_readable);
    }

    /// Accepts this password from now on. Open sessions stay.
    pub fn set_password(&self, password: &str) {
        self.change(|world| password.clone_into(&mut world.password));
    }

    /// Delays every call from now on by this time.
    pub fn delay_calls(&self, time: Duration) {
        self.shared.world().delay = Some(time);
    }

    /// Resets the counts of calls, bytes and times.
    pub fn reset_counts(&self) {
        let mut world = self.shared.world();
        world.counts = FakeCounts { pending_waits: world.counts.pending_waits, ..FakeCounts::default() };
    }

    /// Injects a fault into the next call of this operation, or `*` for any. A [`Trouble`] of the answer also affects a
    /// pending wait.
    pub fn next(&self, operation: &str, trouble: Trouble) {
        self.next_after(operation, 0, trouble);
    }

    /// Injects a fault into one call of this operation, after `skip` more calls of it.
    pub fn next_after(&self, operation: &str, skip: u32, trouble: Trouble) {
        self.change(|world| world.rules.add(operation, trouble, skip, Some(1)));
    }

    /// Injects a fault into every call of this operation, or `*` for any, until [`FakeVcenter::clear`].
    pub fn every(&self, operation: &str, trouble: Trouble) {
        self.change(|world| world.rules.add(operation, trouble, 0, None));
    }

    /// Injects a fault into every call of this operation after `skip` more calls of it, until [`FakeVcenter::clear`].
    pub fn every_after(&self, operation: &str, skip: u32, trouble: Trouble) {
        self.change(|world| world.rules.add(operation, trouble, skip, None));
    }

    /// Ends all faults. Calls that hang keep hanging.
    pub fn clear(&self) {
        self.change(|world| world.rules.clear());
    }

    /// Ends every pending wait with this fault.
    pub fn interrupt_waits(&self, trouble: Trouble) {
        self.change(|world| {
            world.interrupts += 1;
            world.interrupt = Some(trouble);
        });
    }

    /// Ends every pending wait with this fault; without one, the next wait.
    pub fn interrupt_waits_or_next(&self, trouble: Trouble) {
        self.change(|world| match world.counts.pending_waits {
            0 => world.rules.add("WaitForUpdatesEx", trouble, 0, Some(1)),
            _ => {
                world.interrupts += 1;
                world.interrupt = Some(trouble);
            }
        });
    }

    /// Ends every SOAP session. Pending waits end with this fault.
    pub fn kill_soap_sessions(&self, fault: Fault) {
        self.shared.world().sessions.clear();
        self.interrupt_waits(Trouble::Fault(fault));
    }

    /// Ends every REST session.
    pub fn kill_rest_sessions(&self) {
        self.change(|world| world.rest_sessions.clear());
    }

    /// Closes every connection. Calls continue in the server, and their answers are lost.
    pub fn sever(&self) {
        self.server.sever();
    }

    /// Stops the server: closes the port and every connection.
    pub async fn stop_listening(&self) {
        self.server.stop_listening().await;
    }

    /// Starts the server again on the same port.
    pub async fn resume_listening(&self) {
        self.server.resume_listening();
    }

    /// Restarts the server: sessions end, connections are closed, and every object except for the root folder has
    /// another id.
    pub async fn restart_with_other_ids(&self) {
        self.stop_listening().await;
        self.change(|world| {
            world.end_sessions();
            world.renumber();
        });
        self.resume_listening().await;
    }
}

impl FakeVcenter {
    /// Replaces the server by another vCenter under the same address and with the same account. It has its own instance
    /// UUID, the objects of `model`, and no sessions.
    pub async fn replace(&self, model: Model) {
        self.stop_listening().await;
        self.change(|world| {
            world.instance_uuid = uuid::Uuid::new_v4().to_string();
            world.machines = model.inventory.objects.keys().filter(|one| one.kind == "VirtualMachine").count();
            world.inventory = model.inventory;
            world.tagging = model.tagging;
            world.end_sessions();
        });
        self.resume_listening().await;
    }
}

fn set_readable(world: &mut World, object: &inventory::Ref, is_readable: bool) {
    world.inventory.change(object).is_readable = is_readable;
    if !is_readable && world.unreadable == Unreadable::Dropped {
        soap::leave_views(world, object);
    }
}
