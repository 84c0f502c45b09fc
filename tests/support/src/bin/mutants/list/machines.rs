//! Mutants of the assignment of machines: their owner, the addresses of a Node, and the last known place.

use crate::{Mutant, Tests};

const MEMBERS: &str = "src/providers/vsphere/nsx/load_balancer/members.rs";
const PLAN: &str = "src/providers/vsphere/nsx/load_balancer/plan.rs";
const BALANCERS_RS: &str = "src/providers/vsphere/nsx/load_balancer.rs";
const CONTENTS: &str = "src/providers/vsphere/nsx/load_balancer/resource_index.rs";
const NODE_ADDRESSES: &str = "src/providers/vsphere/nsx/load_balancer/node_addresses.rs";
const SERVICE_CALL: &str = "src/providers/vsphere/nsx/load_balancer/service_call.rs";
const QUARANTINE: &str = "src/providers/vsphere/nsx/load_balancer/resource_cache/quarantine.rs";
const SERVICES: &str = "src/controllers/service.rs";
const RECORDS: &str = "src/controllers/service/records.rs";
const ROUTES: &str = "src/providers/vsphere/nsx/routes.rs";
const CONTEST: &str = "src/providers/vsphere/nodes/lookup/contest.rs";
const EVALUATE: &str = "src/providers/vsphere/nodes/lookup/evaluation.rs";
const LAST: &str = "src/providers/vsphere/nodes/absence/last_place.rs";
const INSTANCES: &str = "src/providers/vsphere/nodes/instances.rs";
const SNAPSHOT: &str = "src/providers/vsphere/vcenter/snapshot.rs";
const VCENTER: &str = "src/providers/vsphere/vcenter/connection.rs";
const NODE_PLAN: &str = "src/controllers/node/plan.rs";

/// Tests of load balancers on NSX, without a server.
const UNIT: Tests = &[&["--lib", "--", "load_balancer::"]];
/// The same, on a fake NSX.
const BALANCERS: Tests = &[&["--test", "nsx", "--", "load_balancers::safety", "load_balancers::orphans"]];
const ON_NSX: Tests = &[&["--test", "nsx", "--", "routes::machines"]];
/// Tests of the whole program on a real API server.
const ADOPTED: Tests = &[&["--test", "daemon", "--", "load_balancers::adoption"]];
/// Tests of the lookup, without a server.
const LOOK_UP: Tests = &[&["--lib", "--", "contest", "instances::"]];
/// The same, on a fake vCenter.
const CLAIMS: Tests = &[&["--test", "vcenter", "--", "outcomes::claims"]];
const LAST_PLACE: Tests = &[&["--test", "vcenter", "--", "outcomes::last_place"]];
const RIGHTS: Tests = &[&["--test", "vcenter", "--", "outcomes::absence::an_account"]];
const NODES: Tests = &[&["--lib", "--", "controllers::node::plan"]];
/// Tests of the service controller on a real API server.
const ANSWERS: Tests = &[&["--test", "apiserver", "--", "service::nodes::an_answer"]];
const MEMORY: Tests = &[&["--lib", "--", "service::records"]];

pub fn all() -> Vec<Mutant> {
    let mut all = of_load_balancers();
    all.extend(of_changes());
    all.extend(of_the_look_up());
    all.extend(of_the_last_place());
    all
}

fn of_load_balancers() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "machines-member-without-machine",
            MEMBERS,
            ("wanted.iter().filter(|member| member.is_confirmed).map(", "wanted.iter().map("),
            UNIT,
        ),
        Mutant::new(
            "machines-member-of-a-node-that-is-gone",
            NODE_ADDRESSES,
            ("is_claim(member) && of_gone.contains(&member.address)", "false"),
            UNIT,
        ),
        Mutant::new(
            "machines-creation-waits-without-end",
            SERVICE_CALL,
            (
                ".filter(|_| self.provider.node_addresses.may_wait())",
                ".filter(|_| self.provider.node_addresses.may_wait() || true)",
            ),
            BALANCERS,
        ),
        Mutant::new(
            "machines-owner-by-what-is-not-known",
            SERVICE_CALL,
            ("        self.check_nodes_are_known(&observation)?;\n", ""),
            BALANCERS,
        ),
        Mutant::new(
            "machines-released-address-for-all",
            QUARANTINE,
            ("**namespace != *namespace_of(service)", "false"),
            UNIT,
        ),
        Mutant::new(
            "machines-event-without-a-change",
            RECORDS,
            ("set.has_other_targets(&before)", "*set != before"),
            ADOPTED,
        ),
        Mutant::new(
            "machines-route-to-any-address",
            ROUTES,
            ("usable.of(node).filter(|one| one.is_confirmed).map(", "usable.of(node).map("),
            ON_NSX,
        ),
        Mutant::new(
            "machines-second-route-before-it-is-known",
            ROUTES,
            ("routes.push(self.shown(&listed.node, &listed, object, cluster_name));", ""),
            ON_NSX,
        ),
    ]
}

fn of_changes() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "machines-address-taken-over",
            NODE_ADDRESSES,
            ("!member.is_confirmed && !was_reported(member)", "!member.is_confirmed"),
            UNIT,
        ),
        Mutant::new(
            "machines-claim-that-stays",
            NODE_ADDRESSES,
            ("if before == Some(known) {", "if before.is_some() {"),
            UNIT,
        ),
        Mutant::new(
            "machines-claim-of-a-node-that-is-there",
            NODE_ADDRESSES,
            ("claimed(addresses) && !(self.has_node)(name)", "claimed(addresses)"),
            UNIT,
        ),
        Mutant::new(
            "machines-family-that-is-not-reported",
            NODE_ADDRESSES,
            ("before.map(of_family).unwrap_or_default()", "Vec::new()"),
            UNIT,
        ),
        Mutant::new(
            "machines-every-node-is-there",
            BALANCERS_RS,
            ("nodes.node(name).is_some()", "nodes.node(name).is_some() || true"),
            BALANCERS,
        ),
        Mutant::new(
            "machines-addresses-of-an-earlier-term",
            BALANCERS_RS,
            ("        self.node_addresses.begin(permit);\n", ""),
            BALANCERS,
        ),
        Mutant::new(
            "machines-surplus-address-of-another",
            PLAN,
            (
                "    !current.has_server_on(allocation) && !current.is_used_elsewhere(allocation)\n",
                "    !current.has_server_on(allocation)\n",
            ),
            UNIT,
        ),
        Mutant::new(
            "machines-server-of-another-service",
            CONTENTS,
            ("paths.find(|path| !is_own(path))", "paths.find(|path| is_own(path))"),
            UNIT,
        ),
        Mutant::new(
            "machines-announcement-before-a-conflict",
            RECORDS,
            (
                "or_insert_with(new);\n",
                "or_insert_with(new);\n        record.observed_resync_generation = record.resync_generation;\n",
            ),
            MEMORY,
        ),
        Mutant::new(
            "machines-answers-about-all-nodes",
            SERVICES,
            ("Event::AllInstances => {\n                self.targets.observe_all();", "Event::AllInstances => {"),
            ANSWERS,
        ),
    ]
}

fn of_the_look_up() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "machines-first-label-is-the-name",
            CONTEST,
            ("true => 1 + u8::from(is_whole),", "true => 1,"),
            LOOK_UP,
        ),
        Mutant::new("machines-age-before-standing", CONTEST, ("_ if node.is_initialized => 2,", ""), LOOK_UP),
        Mutant::new(
            "machines-of-every-claimant",
            EVALUATE,
            ("match self.backs_another(tracked) {", "match self.backs_another(tracked).filter(|_| false) {"),
            CLAIMS,
        ),
        Mutant::new(
            "machines-status-counts-where-nothing-is-known",
            INSTANCES,
            ("is_some_and(|view| view.has_no_match)", "is_some()"),
            LOOK_UP,
        ),
    ]
}

fn of_the_last_place() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "machines-record-before-the-host-goes",
            NODE_PLAN,
            ("        || metadata.is_record_urgent\n", ""),
            NODES,
        ),
        Mutant::new(
            "machines-record-of-what-left",
            NODE_PLAN,
            ("            changes.annotations.extend(last);\n", "            drop(last);\n"),
            NODES,
        ),
        Mutant::new(
            "machines-record-of-another-leader",
            LAST,
            ("*is_watched_to_end && before.as_ref() == recorded", "*is_watched_to_end"),
            LAST_PLACE,
        ),
        Mutant::new("machines-maintenance-mode", SNAPSHOT, ("host.is_in_maintenance || ", ""), LAST_PLACE),
        Mutant::new(
            "machines-left-unwatched",
            LAST,
            ("*is_watched_to_end && before.as_ref() == recorded", "before.as_ref() == recorded"),
            LAST_PLACE,
        ),
        Mutant::new(
            "machines-rights-with-each-connection",
            VCENTER,
            ("if self.are_privileges_checked.load(Ordering::Relaxed)", "if false"),
            RIGHTS,
        ),
    ]
}
