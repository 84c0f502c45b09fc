//! Mutants of NSX routes and of the load balancer clean-up: the owner of a route, its realization, and load balancers
//! without a Service.

use crate::{Mutant, Tests};

const OWNERSHIP: &str = "src/providers/vsphere/nsx/routes/ownership.rs";
const REALIZATION: &str = "src/providers/vsphere/nsx/routes/realization.rs";
const STATIC_ROUTE: &str = "src/providers/vsphere/nsx/routes/static_route.rs";
const ROUTES: &str = "src/providers/vsphere/nsx/routes.rs";
const PLAN: &str = "src/controllers/route/plan.rs";
const DESTINATIONS: &str = "src/controllers/route/destinations.rs";
const APPLY: &str = "src/controllers/route/apply.rs";
const ORPHANS: &str = "src/providers/vsphere/nsx/load_balancer/orphans.rs";
const CLEANUP: &str = "src/providers/vsphere/nsx/load_balancer/cleanup.rs";
const READINGS: &str = "src/providers/vsphere/nsx/load_balancer/resource_cache/relists.rs";
const RECORDS: &str = "src/controllers/service/records.rs";

const NSX: Tests = &[&["--test", "nsx", "--", "routes::"]];
/// Tests of the plan, without a server.
const UNIT: Tests = &[&["--lib", "--", "controllers::route"]];
/// Tests of the controller, on an API server in memory.
const CONTROLLER: Tests = &[&["--lib", "--", "controllers::route"], &["--test", "apiserver", "--", "route::"]];
const CLEANING: Tests =
    &[&["--lib", "--", "load_balancer::orphans"], &["--test", "nsx", "--", "load_balancers::orphans"]];

pub fn all() -> Vec<Mutant> {
    let mut all = of_provider();
    all.extend(of_controller());
    all.extend(of_load_balancers());
    all
}

fn of_provider() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "routes-ownership-of-another-cluster",
            OWNERSHIP,
            ("OfCluster::Another => return Ownership::Foreign,", "OfCluster::Another => {}"),
            NSX,
        ),
        Mutant::new(
            "routes-ownership-of-no-node",
            OWNERSHIP,
            ("listed.next_hops.iter().any(|hop| addresses.contains(hop))", "!listed.next_hops.is_empty()"),
            NSX,
        ),
        Mutant::new(
            "routes-realization-old-revision",
            REALIZATION,
            ("revision.filter(|_| last_write.is_rewrite)", "revision.filter(|_| false)"),
            NSX,
        ),
        Mutant::new(
            "routes-realization-unversioned",
            REALIZATION,
            ("!last_write.is_rewrite || asked >= REVISION_LAG", "true"),
            NSX,
        ),
        Mutant::new(
            "routes-realization-never-confirmed",
            REALIZATION,
            ("asked >= UNCONFIRMED;", "asked >= SETTLED;"),
            NSX,
        ),
        Mutant::new(
            "routes-realization-older-error",
            REALIZATION,
            ("failure @ Realization::Failed(_)) if is_unconfirmed", "failure @ Realization::Failed(_)) if false"),
            NSX,
        ),
        Mutant::new(
            "routes-display-name-of-another-network",
            STATIC_ROUTE,
            (
                "rest.strip_suffix(object.text(\"network\"))?.strip_suffix('_')?",
                "rest.split('_').next().unwrap_or_default()",
            ),
            &[&["--lib", "--", "routes::static_route"]],
        ),
        Mutant::new(
            "routes-without-node-tag",
            ROUTES,
            ("        if !listed.node.is_empty() {\n            return", "        if true {\n            return"),
            NSX,
        ),
        Mutant::new(
            "routes-changed-since-listed",
            ROUTES,
            ("target.as_deref() != Some(route.target_node.as_str())", "false"),
            NSX,
        ),
        Mutant::new(
            "routes-delete-foreign",
            ROUTES,
            ("            self.check_ours(&found, &doing)?;\n            let target", "            let target"),
            NSX,
        ),
    ]
}

fn of_controller() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "route-plan-outside-of-the-cluster",
            PLAN,
            (".filter(|one| is_ours(one, networks)) else", ".filter(|_| true) else"),
            UNIT,
        ),
        Mutant::new(
            "route-plan-missing-node-without-live-read",
            PLAN,
            ("self.reason != DeletionReason::NoTarget", "self.reason == DeletionReason::NotWanted"),
            CONTROLLER,
        ),
        Mutant::new(
            "route-destinations-outdated-listing",
            DESTINATIONS,
            ("plan.retain(|network, _| !self.unlisted.contains(network));", ""),
            UNIT,
        ),
        Mutant::new(
            "route-destinations-changed-wish-waits",
            DESTINATIONS,
            ("plan.get(&network) == Some(&destination.changes) &&", "plan.contains_key(&network) &&"),
            UNIT,
        ),
        Mutant::new("route-destinations-changed-node-waits", DESTINATIONS, ("&& !is_due;", ";"), UNIT),
        Mutant::new(
            "route-apply-outdated-creation",
            APPLY,
            ("            if !self.is_wanted(&creation) {", "            if false {"),
            CONTROLLER,
        ),
    ]
}

fn of_load_balancers() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "orphans-apart",
            ORPHANS,
            ("at.saturating_duration_since(*since) >= CONFIRM_INTERVAL", "*since <= at"),
            CLEANING,
        ),
        Mutant::new(
            "orphans-hold",
            ORPHANS,
            ("} else if at < *self.held_until", "} else if at > *self.held_until"),
            CLEANING,
        ),
        Mutant::new(
            "orphans-unknown-is-no-proof",
            ORPHANS,
            ("Presence::Unknown(_) => false,", "Presence::Unknown(_) => true,"),
            CLEANING,
        ),
        Mutant::new(
            "orphans-many-are-said-once",
            ORPHANS,
            ("are_many && !std::mem::replace(&mut self.is_mass_reported, true)", "are_many"),
            CLEANING,
        ),
        Mutant::new(
            "cleanup-says-that-they-are-many",
            CLEANUP,
            ("if cleanup.orphans.lock().are_many(count, all) {", "if false {"),
            CLEANING,
        ),
        Mutant::new(
            "readings-limit",
            READINGS,
            (
                "const LIMIT: Duration = Duration::from_secs(600);",
                "const LIMIT: Duration = Duration::from_secs(60_000);",
            ),
            &[&["--test", "nsx", "--", "load_balancers::faults::a_reading"]],
        ),
        Mutant::new(
            "records-other-nodes-after-a-refusal",
            RECORDS,
            ("self.is_of_others(set) || self.not_before", "self.not_before"),
            &[&["--lib", "--", "controllers::service"]],
        ),
    ]
}
