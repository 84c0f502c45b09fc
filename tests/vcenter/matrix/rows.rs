//! The rows on the fake vCenter, in the order of the list.

use std::rc::Rc;
use std::time::Duration;

use support::{FakeVcenter, Fault, Machine, Model, Trouble, eventually};

use super::{Act, Felt, Row, Step, fake, style};

/// Maximum number of steps in a row.
const STEPS: usize = 5;

/// Every fault of a vCenter, and one unknown fault.
const FAULTS: [&str; 26] = [
    "NotAuthenticated",
    "NoPermission",
    "InvalidLogin",
    "InvalidLocale",
    "PasswordExpired",
    "ManagedObjectNotFound",
    "InvalidProperty",
    "InvalidType",
    "InvalidArgument",
    "InvalidCollectorVersion",
    "RequestCanceled",
    "HostCommunication",
    "HostNotReachable",
    "HostNotConnected",
    "InvalidPowerState",
    "MethodNotFound",
    "InvalidRequest",
    "NotSupported",
    "NotImplemented",
    "InvalidState",
    "LimitExceeded",
    "NotFound",
    "InvalidName",
    "SystemError",
    "RuntimeFault",
    "HeatDeathOfTheUniverse",
];

/// One fault of each family. Operations whose failure always ends the subscription in the same way are tested with
/// these.
const FAMILIES: [&str; 7] = [
    "NotAuthenticated",
    "NoPermission",
    "InvalidLogin",
    "ManagedObjectNotFound",
    "NotSupported",
    "SystemError",
    "HeatDeathOfTheUniverse",
];

fn fault(kind: &str) -> Fault {
    match kind {
        "NotAuthenticated" => Fault::not_authenticated(),
        "NoPermission" => Fault::no_permission("Folder", "group-d1"),
        "ManagedObjectNotFound" => Fault::managed_object_not_found("PropertyCollector", "gone"),
        "InvalidProperty" => Fault::new(kind).field("name", "guest.net"),
        "InvalidArgument" => Fault::new(kind).field("invalidProperty", "specSet"),
        "SystemError" => Fault::new(kind).field("reason", "the database is starting"),
        kind => Fault::new(kind),
    }
}

/// Makes the client create the subscription again.
fn set_up_anew(fake: &FakeVcenter) {
    fake.interrupt_waits_or_next(Trouble::Fault(Fault::new("InvalidCollectorVersion")));
}

fn kill(fake: &FakeVcenter) {
    fake.kill_soap_sessions(Fault::not_authenticated());
}

/// Returns a row with every answer in this style, over a session that is created under it.
fn styled(id: &str, rewrite: fn(&str) -> String) -> Row {
    let begin = fake(move |fake| {
        fake.every("*", Trouble::Rewrite(rewrite));
        kill(fake);
    });
    Row::new(id, Felt::Follows, begin)
}

/// Returns a row in which every call of an operation has this fault.
fn every(id: impl Into<String>, felt: Felt, operation: &'static str, trouble: Trouble) -> Row {
    let id = id.into();
    Row::of(id, vec![every_call("", felt, operation, trouble)])
}

fn every_call(name: &str, felt: Felt, operation: &'static str, trouble: Trouble) -> Step {
    let begin = move |fake: &FakeVcenter| {
        fake.every(operation, trouble.clone());
        let is_unknown_session = matches!(&trouble, Trouble::Fault(fault) if *fault == Fault::not_authenticated());
        if operation == "RetrievePropertiesEx" && is_unknown_session {
            // A server with this answer does not have the session.
            kill(fake);
        } else if matches!(felt, Felt::Stale) && operation != "WaitForUpdatesEx" && operation != "ModifyListView" {
            set_up_anew(fake);
        }
    };
    Step::new(name, felt, self::fake(begin))
}

/// Distributes steps over rows with a few steps each.
fn in_rows(id: &str, steps: Vec<Step>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut steps = steps.into_iter().peekable();
    while steps.peek().is_some() {
        let few: Vec<Step> = steps.by_ref().take(STEPS).collect();
        let names: Vec<&str> = few.iter().map(|step| step.name.as_str()).collect();
        rows.push(Row::of(format!("{id}: {}", names.join(", ")), few));
    }
    rows
}

pub fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(styles());
    rows.extend(cookies());
    rows.extend(faults());
    rows.extend(pages());
    rows.extend(updates());
    rows.extend(sessions());
    rows.extend(inventories());
    rows.extend(tags());
    rows.extend(certificates());
    rows.extend(connections());
    rows.extend(logins());
    rows
}

fn styles() -> Vec<Row> {
    let odd =
        |id: &str, rewrite: fn(&str) -> String| every(id, Felt::Stale, "WaitForUpdatesEx", Trouble::Rewrite(rewrite));
    vec![
        styled("8.1 other prefixes", style::other_prefixes),
        styled("8.1 no XML types", style::without_types),
        styled("8.1 unknown elements", style::unknown_elements),
        styled("8.1 other order of attributes", style::other_order),
        odd("8.1 another envelope", style::another_envelope),
        odd("8.1 half a document", style::half),
        odd("8.1 garbage", style::garbage),
        odd("8.1 the answer to another call", style::another_answer),
        styled("8.2 entities and character data", style::character_data),
    ]
}

fn cookies() -> Vec<Row> {
    let no_old_ones = |fake: &FakeVcenter| match fake.counts() {
        counts if counts.old_cookies == 0 && counts.soap_logins >= 2 => Ok(()),
        counts => Err(format!("an old cookie was sent: {counts:?}")),
    };
    let with = |is_quoted: bool| {
        fake(move |fake| {
            fake.set_cookie_quoted(is_quoted);
            kill(fake);
        })
    };
    vec![
        Row::new("8.3 a new cookie, quoted", Felt::Stale, with(true)).check(no_old_ones),
        Row::new("8.3 a new cookie, without quotes", Felt::Stale, with(false)).check(no_old_ones),
    ]
}

fn faults() -> Vec<Row> {
    let operations = [
        "WaitForUpdatesEx",
        "ModifyListView",
        "CreateListView",
        "CreatePropertyCollector",
        "CreateFilter",
        "RetrievePropertiesEx",
        "RetrieveServiceContent",
        "FindAllByUuid",
    ];
    let mut rows = Vec::new();
    for operation in operations {
        let felt = if operation == "FindAllByUuid" { Felt::Counted(operation, 1) } else { Felt::Stale };
        let answers = [
            ("502", Trouble::Status(502, "text/html", "<html><h1>502 Bad Gateway<hr>".to_owned())),
            ("nothing", Trouble::empty()),
            ("a portal", Trouble::portal()),
        ];
        let answers = answers.into_iter().map(|(name, trouble)| every_call(name, felt, operation, trouble));
        let is_told_apart = operation == "WaitForUpdatesEx";
        let kinds = if is_told_apart { FAULTS.as_slice() } else { FAMILIES.as_slice() };
        let faults = kinds.iter().map(|kind| every_call(kind, felt, operation, Trouble::Fault(fault(kind))));
        rows.extend(in_rows(&format!("8.4 {operation}"), answers.chain(faults).collect()));
    }
    // One login each. Logins with an unknown result are counted, and finally wait. The fault lasts until the login is
    // made, which happens a pause after the inventory becomes stale.
    let login = |name: &str, trouble: Trouble| {
        let begin = fake(move |fake| {
            fake.next("Login", trouble.clone());
            kill(fake);
        });
        Row::new(format!("8.4 Login: {name}"), Felt::Counted("Login", 1), begin)
    };
    for kind in ["NotAuthenticated", "NoPermission", "InvalidLocale", "SystemError", "HeatDeathOfTheUniverse"] {
        rows.push(login(kind, Trouble::Fault(fault(kind))));
    }
    rows.push(login("503", Trouble::unavailable()));
    rows.push(login("lost", Trouble::Lose).loses_sessions(1));
    rows.push(login("a portal", Trouble::portal()));
    let wholly = |name: &str, trouble: Trouble| {
        let begin = fake(move |fake| {
            fake.every("*", trouble.clone());
            set_up_anew(fake);
        });
        Row::new(format!("8.4 every call: {name}"), Felt::Stale, begin)
    };
    rows.push(wholly("503", Trouble::unavailable()));
    rows.push(wholly("nothing", Trouble::empty()));
    rows.push(wholly("a portal", Trouble::portal()));
    rows.push(wholly("SystemError", Trouble::Fault(fault("SystemError"))));
    let oversized = fake(|fake| {
        fake.next("WaitForUpdatesEx", Trouble::Status(200, "text/xml", " ".repeat((64 << 20) + 1)));
        set_up_anew(fake);
    });
    rows.push(Row::new("8.4 an answer larger than is accepted", Felt::Stale, oversized));
    rows
}

fn pages() -> Vec<Row> {
    let lost = |id: &str, page: u32| {
        let begin = fake(move |fake| {
            fake.next_after("WaitForUpdatesEx", page, Trouble::Lose);
            fake.change_vms(|vm| vm.text("guest.hostName", "renamed"));
            fake.migrate_vm("n-2", "host-1");
        });
        Row::new(id, Felt::Stale, begin)
    };
    let nothing =
        every("8.5 empty waits", Felt::Counted("WaitForUpdatesEx", 3), "WaitForUpdatesEx", Trouble::nothing_yet());
    vec![
        lost("8.5 the first of several pages is lost", 0),
        lost("8.6 a later page is lost", 1),
        nothing,
        every("8.6 one wait's answer is lost".to_owned(), Felt::Stale, "WaitForUpdatesEx", Trouble::Lose),
        every("8.6 answers are cut".to_owned(), Felt::Stale, "WaitForUpdatesEx", Trouble::Cut(500)),
    ]
}

fn updates() -> Vec<Row> {
    let unset = |fake: &FakeVcenter| fake.change_vm("n-2", |vm| vm.without("config.uuid").without("resourcePool"));
    let told = |id: &str, rewrite: fn(&str) -> String| {
        let begin = fake(move |fake| {
            fake.every("WaitForUpdatesEx", Trouble::Rewrite(rewrite));
            unset(fake);
        });
        Row::new(id, Felt::Follows, begin)
    };
    let anew = |id: &str, rewrite: fn(&str) -> String| {
        let begin = fake(move |fake| {
            fake.every("WaitForUpdatesEx", Trouble::Rewrite(rewrite));
            set_up_anew(fake);
        });
        Row::new(id, Felt::Follows, begin)
    };
    let leaves = fake(|fake| {
        fake.set_readable("VirtualMachine", "n-2", false);
        fake.set_readable("HostSystem", "host-2", false);
    });
    let enters = fake(|fake| {
        fake.set_readable("VirtualMachine", "n-2", true);
        fake.set_readable("HostSystem", "host-2", true);
    });
    vec![
        Row::new("8.5 assign without a value", Felt::Follows, fake(unset)),
        told("8.5 remove", style::removed),
        told("8.5 indirectRemove", style::indirectly_removed),
        told("8.5 leave of what nobody knows", style::strangers_leave),
        told("8.5 enter, repeated", style::repeated),
        anew("8.5 enter, repeated in the first answer", style::repeated),
        anew("8.5 modify of what nobody knows", style::modify_unknown),
        Row::new("8.5 leave, then enter", Felt::Counted("FindAllByUuid", 1), leaves).end(enters),
        every(
            "8.5 kinds that there are not".to_owned(),
            Felt::Stale,
            "WaitForUpdatesEx",
            Trouble::Rewrite(style::unknown_kinds),
        ),
    ]
}

fn sessions() -> Vec<Row> {
    let between: Act = Rc::new(|scene| {
        Box::pin(async move {
            let fake = scene.fake();
            eventually("no wait is pending", Duration::from_secs(10), async || {
                fake.change_vm("n-3", |vm| vm.text("guest.hostName", "between"));
                if fake.counts().pending_waits == 0 { Ok(()) } else { Err("a wait is pending") }
            })
            .await;
            fake.kill_soap_sessions(Fault::not_authenticated());
        })
    });
    let down: Act = Rc::new(|scene| Box::pin(async move { scene.fake().stop_listening().await }));
    let up: Act = Rc::new(|scene| Box::pin(async move { scene.fake().resume_listening().await }));
    let up_anew: Act = Rc::new(|scene| Box::pin(async move { scene.fake().restart_with_other_ids().await }));
    let killed = |kind: &'static str| fake(move |fake| fake.kill_soap_sessions(fault(kind)));
    vec![
        Row::new("8.6 InvalidCollectorVersion", Felt::Stale, fake(set_up_anew)).pause(1),
        Row::new("8.7 a session ends during a wait", Felt::Stale, killed("NotAuthenticated")).pause(1),
        Row::new("8.7 a session ends during a wait, which is cancelled", Felt::Stale, killed("RequestCanceled"))
            .pause(2),
        Row::new("8.7 a session ends between waits", Felt::Stale, between).pause(1),
        Row::new("8.7 vCenter is down", Felt::Stale, Rc::clone(&down)).end(up),
        Row::new("8.7 vCenter comes back with other ids", Felt::Stale, down).end(up_anew),
    ]
}

fn inventories() -> Vec<Row> {
    let circle = fake(|fake| fake.set_parent("Folder", "host", ("Folder", "host")));
    let straight = fake(|fake| fake.set_parent("Folder", "host", ("Datacenter", "dc-1")));
    let missing = fake(|fake| fake.set_readable("Folder", "vm", false));
    let found = fake(|fake| fake.set_readable("Folder", "vm", true));
    let odd = fake(|fake| {
        let machine = |number: usize| Machine::new(&format!("odd-{number}"), &Model::uuid(200 + number));
        for (at, state) in ["disconnected", "inaccessible", "orphaned", "invalid"].into_iter().enumerate() {
            fake.create_vm(machine(at).text("runtime.connectionState", state));
        }
        fake.create_vm(machine(5).without("config.uuid").without("summary.config.uuid"));
        fake.create_vm(machine(6).without("guest.net").without("guest.hostName").without("runtime.powerState"));
        fake.create_vm(machine(7).set_template(true).power("poweredOff"));
    });
    let twins = fake(|fake| {
        fake.create_vm(Machine::new("twin", &Model::uuid(1)).ip("10.9.9.1"));
        fake.create_vm(Machine::new("template", &Model::uuid(2)).set_template(true).power("poweredOff"));
        fake.create_vm(Machine::new("upper", &Model::uuid(3).to_uppercase()).power("poweredOff"));
    });
    vec![
        Row::new("8.8 a circle of folders", Felt::Counted("WaitForUpdatesEx", 1), circle).end(straight),
        Row::new("8.8 a missing ancestor", Felt::Follows, missing).end(found),
        Row::new("8.8 odd machines come", Felt::Follows, odd),
        Row::new("8.9 twins, templates and clones come", Felt::Follows, twins),
    ]
}

fn tags() -> Vec<Row> {
    let mut rows = Vec::new();
    let operations = ["REST:list-categories", "REST:list-tags-for-category", "REST:list-attached-objects-on-tags"];
    let troubles = [
        ("500", Trouble::rest(500, "internal_server_error", "x")),
        ("503 page", Trouble::unavailable()),
        ("403", Trouble::rest(403, "unauthorized", "x")),
        ("a portal", Trouble::portal()),
        ("nothing", Trouble::Status(200, "application/json", String::new())),
        ("cut", Trouble::Cut(9)),
        ("lost", Trouble::Lose),
        ("silence", Trouble::Hang),
    ];
    for operation in operations {
        let steps = troubles.iter().map(|(name, trouble)| every_call(name, Felt::Tags, operation, trouble.clone()));
        rows.extend(in_rows(&format!("8.11 {operation}"), steps.collect()));
    }
    let limit = "com.vmware.vapi.endpoint.failedToLoginMaxUserSessionCountReached";
    let full = fake(move |fake| {
        fake.every("REST:session-login", Trouble::rest(503, "service_unavailable", limit));
        fake.kill_rest_sessions();
    });
    let nulls = |id: &str, operation: &'static str, rewrite: fn(&str) -> String, felt: Felt| {
        every(id, felt, operation, Trouble::Rewrite(rewrite))
    };
    let vanished = every(
        "8.11 a tag vanishes between two calls",
        Felt::Tags,
        "REST:get-tag",
        Trouble::rest(404, "not_found", "x"),
    );
    let renamed = fake(|fake| fake.rename_tag("k8s-zone", "zone-a", "zone-z"));
    let renamed_back = fake(|fake| fake.rename_tag("k8s-zone", "zone-a", "zone-a"));
    let mut rename = Row::new("8.11 a tag gets another name", Felt::Follows, renamed).end(renamed_back);
    rename.zones = &["zone-a", "zone-z"];
    let killed = fake(FakeVcenter::kill_rest_sessions);
    rows.extend([
        Row::new("8.11 no room for another session", Felt::Tags, full),
        Row::new("8.11 401, then success", Felt::Counted("REST:session-login", 1), killed),
        nulls("8.11 null for empty lists", "*", style::null_lists, Felt::Follows),
        nulls("8.11 null for attachments", "REST:list-attached-objects-on-tags", style::null_value, Felt::Tags),
        nulls("8.11 null for categories", "REST:list-categories", style::null_value, Felt::Tags),
        vanished,
        rename,
    ]);
    rows.into_iter().map(|row| Row { tag_poll: Duration::from_millis(200), ..row }).collect()
}

fn certificates() -> Vec<Row> {
    let replaced: Act = Rc::new(|scene| Box::pin(async move { scene.change_certificate() }));
    let back: Act = Rc::new(|scene| Box::pin(async move { scene.show_first_certificate() }));
    let trusted: Act = Rc::new(|scene| Box::pin(async move { scene.trust_other_certificate() }));
    vec![
        Row::new("8.12 a certificate that is not trusted, and back", Felt::Stale, Rc::clone(&replaced)).end(back),
        Row::new("8.12 the CA file follows a new certificate", Felt::Stale, replaced).end(trusted),
    ]
}

fn connections() -> Vec<Row> {
    let every_call = |id: &str, trouble: Trouble| {
        let begin = fake(move |fake| {
            fake.every("*", trouble.clone());
            fake.sever();
        });
        Row::new(id, Felt::Stale, begin)
    };
    vec![
        every_call("8.6 connections are closed without a byte", Trouble::Drop),
        every_call("8.6 every answer is lost", Trouble::Lose),
        every_call("8.6 every answer is sent by half", Trouble::Cut(200)),
        // A call that hangs ends after the client's time limit, and its clean-up after three seconds.
        every_call("8.6 silence", Trouble::Hang).pause(16),
        every("8.6 bytes that drip", Felt::Stale, "CreateFilter", Trouble::Slow(Duration::from_millis(100))).pause(16),
        // This fault ends within a second, which a check on a busy machine may miss. Therefore the repeated wait is
        // counted.
        Row::new("8.6 connections break once", Felt::Counted("WaitForUpdatesEx", 1), fake(FakeVcenter::sever)).pause(2),
    ]
}

fn logins() -> Vec<Row> {
    let changed = fake(|fake| {
        fake.set_password("another one");
        kill(fake);
    });
    let few = |fake: &FakeVcenter| match fake.counts() {
        counts if counts.soap_refusals + counts.rest_refusals <= 3 => Ok(()),
        counts => Err(format!("too many logins: {counts:?}")),
    };
    let offered: Act = Rc::new(|scene| Box::pin(async move { scene.offer("another one") }));
    let expired = fake(|fake| {
        fake.every("Login", Trouble::Fault(fault("PasswordExpired")));
        kill(fake);
    });
    let renewed: Act = Rc::new(|scene| {
        Box::pin(async move {
            scene.fake().clear();
            scene.fake().set_password("another one");
            scene.offer("another one");
        })
    });
    vec![
        Row::new("8.13 the password is rejected", Felt::Stale, changed).end(offered).check(few),
        Row::new("8.13 the password has expired", Felt::Stale, expired).end(renewed).check(few),
    ]
}
