//! The rows: the fault, the expected fate of each node during it, and the end of the fault.

use std::future::ready;
use std::rc::Rc;

use futures::future::LocalBoxFuture;
use support::{Denial, Fault, Machine, Model, Trouble, Unreadable};

use super::world::{NOT_READY, Role, World};
use crate::cluster::{ip, uuid};

/// An action on a world.
pub type Act = Rc<dyn for<'a> Fn(&'a mut World) -> LocalBoxFuture<'a, ()>>;

/// A change of a vCenter's model before the start.
type Change = fn(Model) -> Model;

/// Expected fate of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The daemon sees that the machine exists, and creates no Event.
    Exists,
    /// The node stays, with any Event.
    Stays,
    /// The node stays, and its Event has one of these reasons.
    Held(&'static [&'static str]),
    /// The node is deleted.
    Deleted,
}
use Fate::{Deleted, Exists, Held, Stays};

const DOWN: Fate = Held(&["VCenterUnavailable"]);
const DENIED: Fate = Held(&["NoPermission"]);
const NOT_CONFIGURED: Fate = Held(&["VCenterNotConfigured"]);

/// Start of the fault, relative to the daemon's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The daemon runs when the fault begins.
    Before,
    /// The daemon is killed before the fault begins, and started once the fault is complete.
    AfterRestart,
}

/// One fault.
pub struct Row {
    pub name: String,
    pub moments: &'static [Moment],
    /// Moments that only `make nightly` tests.
    pub nightly: &'static [Moment],
    pub vcenters: usize,
    /// Number of the vCenter of each machine, in the order of [`Role`]: with the fault, destroyed, healthy, and ready.
    pub homes: [usize; 4],
    pub model: Change,
    pub begin: Act,
    pub end: Act,
    /// Fates during the fault: of the node with the fault, of the node with the destroyed machine, and of the healthy
    /// node.
    pub fates: [Fate; 3],
    /// Fates after the end of the fault, in the same order.
    pub mended: [Fate; 3],
    /// Whether a call in the proof for the destroyed machine may hang until its time limit.
    pub may_hang: bool,
}

impl Row {
    fn new(name: impl Into<String>, fates: [Fate; 3], begin: Act) -> Self {
        Self {
            name: name.into(),
            moments: &[Moment::Before, Moment::AfterRestart],
            nightly: &[],
            vcenters: 1,
            homes: [0; 4],
            model: |model| model,
            begin,
            end: now(|world| world.fakes.iter().for_each(support::FakeVcenter::clear)),
            fates,
            mended: [Exists, Deleted, Exists],
            may_hang: false,
        }
    }

    /// Uses two vCenters. `homes` are the vCenters of the machines.
    fn homes(self, homes: [usize; 4]) -> Self {
        Self { vcenters: 2, homes, ..self }
    }

    fn only(self, moments: &'static [Moment]) -> Self {
        Self { moments, ..self }
    }

    /// Leaves the restart to `make nightly`, because a daemon that starts during this fault sees the same as in a
    /// similar row.
    fn restarted_nightly(self) -> Self {
        Self { moments: &[Moment::Before], nightly: &[Moment::AfterRestart], ..self }
    }

    fn model(self, model: Change) -> Self {
        Self { model, ..self }
    }

    fn end(self, end: Act) -> Self {
        Self { end, ..self }
    }

    fn mended(self, mended: [Fate; 3]) -> Self {
        Self { mended, ..self }
    }
}

/// Wraps an action without waiting.
fn now(act: impl Fn(&World) + 'static) -> Act {
    Rc::new(move |world| {
        act(world);
        Box::pin(ready(()))
    })
}

/// Wraps an asynchronous action.
fn then(act: impl for<'a> Fn(&'a mut World) -> LocalBoxFuture<'a, ()> + 'static) -> Act {
    Rc::new(act)
}

/// Returns the name of the machine with the fault.
fn kept(world: &World) -> String {
    world.name(Role::Kept)
}

pub fn all() -> Vec<Row> {
    let rows = [silence(), configuration(), sessions(), rights(), hosts(), states(), moves(), halves()];
    rows.into_iter().flatten().collect()
}

/// Faults of vCenters that do not answer.
fn silence() -> Vec<Row> {
    let up = |vcenters: usize| {
        then(move |world| {
            Box::pin(async move {
                for fake in &world.fakes[..vcenters] {
                    fake.resume_listening().await;
                }
            })
        })
    };
    let down = |vcenters: usize| {
        then(move |world| {
            Box::pin(async move {
                for fake in &world.fakes[..vcenters] {
                    fake.stop_listening().await;
                }
            })
        })
    };
    vec![
        Row::new("every vCenter is down", [DOWN, DOWN, DOWN], down(2)).homes([0, 1, 0, 1]).end(up(2)),
        Row::new("one of two vCenters is down", [DOWN, DOWN, Exists], down(1)).homes([0, 1, 1, 1]).end(up(1)),
        // The pending `WaitForUpdatesEx` hangs, as behind a firewall that dropped the connection.
        Row::new(
            "one of two vCenters answers no call",
            [Stays, DOWN, Exists],
            now(|world| world.fakes[0].every("*", Trouble::Hang)),
        )
        .homes([0, 1, 1, 1]),
        Row::new("every call fails", [DOWN; 3], now(|world| world.fakes[0].every("*", Trouble::unavailable())))
            .only(&[Moment::Before]),
    ]
}

/// Faults in which `vsphere.conf` loses a vCenter, or names another one in its place.
fn configuration() -> Vec<Row> {
    let configure = |fakes: &'static [usize]| {
        then(move |world| {
            Box::pin(async move {
                world.configure(fakes);
                if world.is_running() {
                    world.until_configured().await;
                }
            })
        })
    };
    // Hosts and folders have the same ids as in the former vCenter. Another machine has the id of the machine.
    let replaced = |is_loading: bool| {
        then(move |world| {
            Box::pin(async move {
                let known = Machine::new("somebody-else", &uuid(77)).ip(&ip(77));
                if is_loading {
                    world.fakes[0].every("WaitForUpdatesEx", Trouble::Fault(Fault::new("SystemError")));
                }
                world.fakes[0].replace(Model::small().vm(known)).await;
            })
        })
    };
    // The destruction of that machine proves nothing about the machine that had the same id before.
    let emptied = then(|world| {
        Box::pin(async move {
            world.fakes[0].clear();
            for role in NOT_READY {
                world.until_held(role.number(), &["VCenterNotConfigured"]).await;
            }
            world.fakes[0].destroy_vm("somebody-else");
        })
    });
    // The hosts of the former vCenter join the new vCenter, which registers their machines.
    let registered = now(|world| {
        for role in [Role::Kept, Role::Beside] {
            world.fakes[0].create_vm(Machine::new(&world.name(role), &uuid(role.number())).ip(&ip(role.number())));
        }
    });
    vec![
        Row::new(
            "the vCenter of one of the machines is removed from the configuration",
            [NOT_CONFIGURED, Deleted, Exists],
            configure(&[1]),
        )
        .homes([0, 1, 1, 1])
        .end(configure(&[0, 1]))
        .mended([Exists, Deleted, Exists]),
        Row::new("the vCenter is replaced by another one under the same name", [NOT_CONFIGURED; 3], replaced(false))
            .end(registered)
            // The daemon cannot prove any more that the machine was destroyed.
            .mended([Exists, NOT_CONFIGURED, Exists]),
        Row::new(
            "the vCenter is replaced by another one whose inventory loads slowly",
            [Held(&["VCenterUnavailable", "VCenterNotConfigured"]); 3],
            replaced(true),
        )
        .end(emptied)
        .mended([NOT_CONFIGURED; 3]),
    ]
}

/// Faults of sessions that end during a search.
fn sessions() -> Vec<Row> {
    let gone = || Trouble::Fault(Fault::not_authenticated());
    vec![
        Row::new(
            "the session is killed in the middle of each look-up",
            [Held(&["VCenterUnavailable", "LookupPending"]), DOWN, Held(&["VCenterUnavailable", "LookupPending"])],
            now(move |world| {
                world.fakes[0].every("FindAllByUuid", gone());
                world.fakes[0].kill_soap_sessions(Fault::not_authenticated());
            }),
        ),
        Row::new(
            "the session is killed while the machine is read",
            [Held(&["VCenterUnavailable", "LookupPending"]), DOWN, Held(&["VCenterUnavailable", "LookupPending"])],
            now(move |world| {
                for operation in ["RetrievePropertiesEx", "ModifyListView", "WaitForUpdatesEx"] {
                    world.fakes[0].every(operation, gone());
                }
                world.fakes[0].kill_soap_sessions(Fault::not_authenticated());
            }),
        ),
        Row {
            may_hang: true,
            ..Row::new(
                "the session is killed while a search hangs",
                [Exists, Deleted, Exists],
                then(|world| {
                    Box::pin(async move {
                        // The daemon searches again for a machine with a new id.
                        world.fakes[0].reregister_vm(&kept(world));
                        world.fakes[0].next("FindAllByUuid", Trouble::Hang);
                        world.fakes[0].kill_soap_sessions(Fault::not_authenticated());
                    })
                }),
            )
        },
    ]
}

/// Faults in which the account loses rights, and the server's answers to that.
fn rights() -> Vec<Row> {
    let lose = |kind: &'static str, name: &'static str, is_readable: bool| {
        now(move |world| match kind {
            "VirtualMachine" => world.fakes[0].set_readable(kind, &kept(world), is_readable),
            _ => world.fakes[0].set_tree_readable(kind, name, is_readable),
        })
    };
    let scopes = [
        ("on the virtual machine", "VirtualMachine", "", [DENIED, Deleted, Exists]),
        ("on the folder", "Folder", "vm", [DENIED; 3]),
        ("on the datacenter", "Datacenter", "dc-1", [DENIED; 3]),
        ("everywhere", "Folder", "Datacenters", [DENIED; 3]),
    ];
    let servers: [(&str, Change); 4] = [
        ("beside the paths", |model| model.denial(Denial::MissingSet)),
        ("by a fault", |model| model.denial(Denial::Fault).unreadable(Unreadable::Refused)),
        ("by a fault of 8.0", |model| model.denial(Denial::FaultOf8).unreadable(Unreadable::Kept)),
        ("not at all", |model| model.denial(Denial::LeftOut)),
    ];
    let scoped = scopes.into_iter().zip(servers).map(|((whereabouts, kind, name, fates), (how, model))| {
        let title = format!("permission is lost {whereabouts}, which is said {how}");
        Row::new(title, fates, lose(kind, name, false)).end(lose(kind, name, true)).model(model)
    });
    let refused = Row::new(
        "the account has no role any more",
        [Held(&["NoPermission", "VCenterUnavailable"]); 3],
        now(|world| {
            let refusal = Trouble::Fault(Fault::no_permission("Folder", "group-d1"));
            for operation in ["FindAllByUuid", "RetrievePropertiesEx", "ModifyListView", "CreateListView"] {
                world.fakes[0].every(operation, refusal.clone());
            }
            world.fakes[0].set_tree_readable("Folder", "Datacenters", false);
        }),
    )
    .end(now(|world| {
        world.fakes[0].clear();
        world.fakes[0].set_tree_readable("Folder", "Datacenters", true);
    }));
    let host = Row::new(
        "permission is lost on the host of a machine that is destroyed",
        [Exists, DENIED, Exists],
        now(|world| world.fakes[0].set_readable("HostSystem", "host-3", false)),
    )
    .end(now(|world| world.fakes[0].set_readable("HostSystem", "host-3", true)));
    scoped.chain([refused, host]).collect()
}

/// Faults of hosts that leave vCenter with their machines.
fn hosts() -> Vec<Row> {
    vec![
        Row::new(
            "the host is removed from the inventory, with its machine",
            [Held(&["HostGone"]), Deleted, Exists],
            now(|world| world.fakes[0].remove_host("host-2")),
        )
        // The host is added again as another object, and so is its machine.
        .end(now(|world| {
            world.fakes[0].create_vm(Machine::new(&kept(world), &uuid(0)).ip(&ip(0)));
        })),
        Row::new(
            "the vCenter is restored from a backup, and no host is connected yet",
            [Held(&["HostNotConnected"]), Held(&["HostNotConnected"]), Exists],
            then(|world| {
                let name = kept(world);
                Box::pin(async move { world.fakes[0].restore_from_backup(&[&name]).await })
            }),
        )
        .end(now(|world| {
            ["host-1", "host-2", "host-3"].iter().for_each(|host| world.fakes[0].reconnect_host(host));
            world.fakes[0].create_vm(Machine::new(&kept(world), &uuid(0)).ip(&ip(0)));
        })),
    ]
}

fn connection(vm: Machine, state: &str) -> Machine {
    vm.text("runtime.connectionState", state)
}

/// Machines that exist in an unusable state.
fn states() -> Vec<Row> {
    let state = |name: &'static str, change: fn(Machine) -> Machine, back: fn(Machine) -> Machine| {
        Row::new(
            format!("the machine is {name}"),
            [Exists, Deleted, Exists],
            now(move |world| world.fakes[0].change_vm(&kept(world), change)),
        )
        .end(now(move |world| world.fakes[0].change_vm(&kept(world), back)))
    };
    let connected: fn(Machine) -> Machine = |vm| connection(vm, "connected").power("poweredOn");
    vec![
        state("disconnected", |vm| connection(vm, "disconnected"), connected),
        state(
            "inaccessible",
            |vm| connection(vm, "inaccessible").without("config.uuid"),
            |vm| connection(vm, "connected").text("config.uuid", &uuid(0)),
        ),
        state("orphaned", |vm| connection(vm, "orphaned"), connected).restarted_nightly(),
        state("invalid", |vm| connection(vm, "invalid"), connected).restarted_nightly(),
        state(
            "a template",
            |vm| vm.set_template(true).power("poweredOff"),
            |vm| vm.set_template(false).power("poweredOn"),
        )
        .restarted_nightly(),
        state("powered off", |vm| vm.power("poweredOff"), connected).restarted_nightly(),
        state("suspended", |vm| vm.power("suspended"), connected).restarted_nightly(),
    ]
}

/// Machines that move or become another object.
fn moves() -> Vec<Row> {
    vec![
        Row::new(
            "the machine is registered again and has another id",
            [Exists, Deleted, Exists],
            now(|world| {
                world.fakes[0].reregister_vm(&kept(world));
            }),
        ),
        Row::new(
            "the machine is migrated to a datacenter that is not listed",
            [Exists, Deleted, Exists],
            now(|world| world.fakes[0].move_vm(&kept(world), "dc-2")),
        )
        .end(now(|world| world.fakes[0].move_vm(&kept(world), "dc-1"))),
        Row::new(
            "the machine is migrated to another vCenter",
            [Exists, Deleted, Exists],
            now(|world| {
                world.fakes[0].destroy_vm(&kept(world));
                world.fakes[1].create_vm(Machine::new(&kept(world), &uuid(0)).ip(&ip(0)));
            }),
        )
        .homes([0; 4]),
        Row::new(
            "the machine is migrated to another vCenter that is not listed in the datacenters",
            [Exists, Deleted, Exists],
            now(|world| {
                world.fakes[0].destroy_vm(&kept(world));
                world.fakes[1].create_vm(Machine::new(&kept(world), &uuid(0)).ip(&ip(0)));
                world.fakes[1].move_vm(&kept(world), "dc-2");
            }),
        )
        .homes([0; 4]),
    ]
}

/// Incomplete answers.
fn halves() -> Vec<Row> {
    vec![
        Row::new(
            "the machine is found, and reading it fails",
            [Held(&["VMNotReadable", "VCenterUnavailable", "LookupPending"]), DOWN, Exists],
            now(|world| {
                world.fakes[0].reregister_vm(&kept(world));
                for operation in ["RetrievePropertiesEx", "ModifyListView"] {
                    world.fakes[0].every(operation, Trouble::Fault(Fault::new("SystemError")));
                }
            }),
        )
        .only(&[Moment::Before]),
        Row::new(
            "the inventory is half loaded",
            [Exists, Deleted, Exists],
            then(|world| {
                Box::pin(async move {
                    // The answer has one object of many, and the next call hangs.
                    world.fakes[0].every_after("WaitForUpdatesEx", 1, Trouble::Hang);
                    world.fakes[0].reset_counts();
                })
            }),
        )
        .model(|model| model.page_size(1))
        .only(&[Moment::AfterRestart]),
        Row::new(
            "the answers to searches are cut",
            [Exists, DOWN, Exists],
            now(|world| world.fakes[0].every("FindAllByUuid", Trouble::Cut(330))),
        )
        .only(&[Moment::Before]),
    ]
}
