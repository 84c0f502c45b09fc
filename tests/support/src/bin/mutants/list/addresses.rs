//! Mutants of the address of a load balancer and its reservation.

use crate::{Mutant, Tests};

const PLAN: &str = "src/providers/vsphere/nsx/load_balancer/plan.rs";
const ADDRESSES: &str = "src/providers/vsphere/nsx/load_balancer/plan/addresses.rs";
const ACTION: &str = "src/providers/vsphere/nsx/load_balancer/plan/action.rs";
const CALL: &str = "src/providers/vsphere/nsx/load_balancer/service_call/addresses.rs";
const DELETION: &str = "src/providers/vsphere/nsx/load_balancer/service_call/deletion.rs";
const INVENTORY: &str = "src/providers/vsphere/nsx/load_balancer/resource_cache.rs";
const BACKEND: &str = "src/providers/vsphere/nsx/load_balancer/backend/nsx/addresses.rs";
const DECODE: &str = "src/providers/vsphere/nsx/load_balancer/backend/nsx/capacity.rs";
const REALIZATION: &str = "src/clients/nsx/realization.rs";

/// Tests of plans, in memory.
const UNIT: Tests = &[&["--lib", "--", "load_balancer::plan"]];
const NSX: Tests = &[&["--test", "nsx", "--", "load_balancers::addresses"]];

pub fn all() -> Vec<Mutant> {
    [plan(), calls()].into_iter().flatten().collect()
}

fn plan() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "addresses-an-unread-allocation-says-nothing",
            ADDRESSES,
            ("one.address.is_some() && one.address != server.address", "one.address != server.address"),
            UNIT,
        ),
        Mutant::new(
            "addresses-another-allocation-may-be-its",
            ADDRESSES,
            ("let is_known = !has_unresolved && ours", "let is_known = ours"),
            UNIT,
        ),
        Mutant::new(
            "addresses-set-back-what-another-program-made",
            ADDRESSES,
            (".filter(|(row, _)| row.is_compared)", ".filter(|_| true)"),
            UNIT,
        ),
        Mutant::new(
            "addresses-set-back-to-where-another-one-listens",
            ADDRESSES,
            ("&& port_states::listens(other, row.port, address)", "&& false"),
            UNIT,
        ),
        Mutant::new("addresses-reserve-beside-a-held-allocation", ADDRESSES, (".filter(|_| !is_held)?", "?"), UNIT),
        Mutant::new(
            "addresses-reserve-again-and-again",
            ADDRESSES,
            ("(!current.settled_paths.contains(&server.tags.path)).then_some", "true.then_some"),
            UNIT,
        ),
        Mutant::new(
            "addresses-wait-for-the-reported-one",
            ACTION,
            ("(None, Some(address)) => Self::Rather(address)", "(None, Some(address)) => Self::Only(address)"),
            UNIT,
        ),
        Mutant::new(
            "plan-an-edited-address-is-believed",
            PLAN,
            ("is_doubtful(&desired.ingress, current.ours)", "false"),
            UNIT,
        ),
    ]
}

fn calls() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "addresses-one-listing-is-enough",
            CALL,
            ("            self.check_twice()?;\n        }\n", "        }\n"),
            NSX,
        ),
        Mutant::new(
            "addresses-of-another-service",
            CALL,
            ("index.user_of(&self.key, address))", "index.user_of(&self.key, address)).filter(|_| false)"),
            NSX,
        ),
        Mutant::new(
            "inventory-two-services-claim-one-address",
            INVENTORY,
            (
                "if **other != *service && claims.addresses.contains(&address) {",
                "if false && **other != *service && claims.addresses.contains(&address) {",
            ),
            &[&["--test", "nsx", "--", "load_balancers::features"]],
        ),
        Mutant::new(
            "inventory-two-services-take-the-last-capacity",
            INVENTORY,
            ("others.values().for_each(|other| usage.add(other));", "usage.add(&Usage::default());"),
            &[&["--test", "nsx", "--", "load_balancers::refusals"]],
        ),
        Mutant::new(
            "deletion-of-a-load-balancer-service-during-a-creation",
            DELETION,
            ("if !of.resources.demands().is_empty() {", "if false {"),
            &[&["--test", "nsx", "--", "load_balancers::safety"]],
        ),
        Mutant::new(
            "addresses-the-allocation-of-another-one-is-overlooked",
            BACKEND,
            ("is_taken |= has_it && !is_own_allocation", "is_taken |= false && has_it && !is_own_allocation"),
            NSX,
        ),
        Mutant::new(
            "addresses-a-swallowed-reservation-is-waited-for",
            BACKEND,
            ("if reads == MAX_EMPTY_READS\n", "if reads > 99\n"),
            NSX,
        ),
        Mutant::new(
            "decode-a-block-has-no-address",
            DECODE,
            (".is_none_or(|network| network.contains(&address))", ".is_some_and(|network| network.contains(&address))"),
            NSX,
        ),
        Mutant::new(
            "realization-a-row-names-its-intent",
            REALIZATION,
            ("intents.is_empty() || intents", "intents"),
            &[&["--lib", "--", "clients::nsx::realization"]],
        ),
    ]
}
