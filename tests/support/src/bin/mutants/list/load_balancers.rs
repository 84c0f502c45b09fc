//! Mutants of load balancer objects in NSX: ids, tags, health checks, groups, batches of pools.

use crate::{Mutant, Tests};

const LAYOUT: &str = "src/providers/vsphere/nsx/load_balancer/layout.rs";
const ROWS: &str = "src/providers/vsphere/nsx/load_balancer/plan/port_states.rs";
const BODY: &str = "src/providers/vsphere/nsx/load_balancer/body.rs";
const PLAN: &str = "src/providers/vsphere/nsx/load_balancer/plan.rs";
const WANTED: &str = "src/providers/vsphere/nsx/load_balancer/service_request.rs";
const ANSWER: &str = "src/clients/nsx/answer.rs";
const BACKEND: &str = "src/providers/vsphere/nsx/load_balancer/backend/nsx.rs";
const POOLS: &str = "src/providers/vsphere/nsx/load_balancer/backend/nsx/pools.rs";
const NODES: &str = "src/providers/vsphere/nsx/load_balancer/node_update.rs";
const READINGS: &str = "src/providers/vsphere/nsx/load_balancer/resource_cache/relists.rs";

/// Tests without a server.
const UNIT: Tests = &[&["--lib", "--", "load_balancer", "clients::nsx"]];
const OUTCOMES: Tests = &[
    &["--test", "nsx", "--", "load_balancers::features", "load_balancers::refusals"],
    &["--test", "nsx", "--", "load_balancers::safety", "load_balancers::faults"],
];

pub fn all() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "layout-one-id-for-all-monitors",
            LAYOUT,
            ("(Self::Http, Protocol::Tcp) => HTTP_MONITOR", "(Self::Http, Protocol::Tcp) => MONITOR"),
            UNIT,
        ),
        Mutant::new(
            "layout-tags-without-a-limit",
            LAYOUT,
            ("of_go + position < MAX_TAGS", "of_go + position < usize::MAX"),
            UNIT,
        ),
        Mutant::new(
            "layout-http-1-1",
            BODY,
            ("        set(object, \"request_version\", REQUEST_VERSION);\n", ""),
            UNIT,
        ),
        Mutant::new(
            "layout-expression-without-its-id",
            BODY,
            ("expressions.iter().find(is_one).cloned()", "expressions.iter().find(is_one).filter(|_| false).cloned()"),
            UNIT,
        ),
        Mutant::new(
            "rows-adopted-ports-get-other-checks",
            ROWS,
            ("health_check.map(Probe::Http).filter(|_| is_compared)", "health_check.map(Probe::Http)"),
            UNIT,
        ),
        Mutant::new(
            "rows-monitor-of-any-type",
            ROWS,
            ("monitor.spec.monitor_type == Some(probe.monitor_type()) && self.port_of", "self.port_of"),
            UNIT,
        ),
        Mutant::new(
            "edit-drops-what-nsx-adds-to-snat",
            BODY,
            (".filter(|wanted| resource::snat_of(object) != Some(*wanted))", ""),
            UNIT,
        ),
        Mutant::new(
            "plan-pool-without-monitor-meanwhile",
            PLAN,
            ("if is_missing { kept() } else { row.monitor }", "row.monitor"),
            UNIT,
        ),
        Mutant::new(
            "wanted-ranges-of-both-families",
            WANTED,
            ("if of_family.is_empty() { all.clone() } else { of_family }", "all.clone()"),
            UNIT,
        ),
        Mutant::new(
            "wanted-other-family-opens",
            WANTED,
            ("None => facts::allows_everything(ranges),", "None => true,"),
            UNIT,
        ),
        Mutant::new(
            "answer-invalid-path",
            ANSWER,
            ("400 if code == INVALID_PATH =>", "400 if code == INVALID_PATH && false =>"),
            UNIT,
        ),
        Mutant::new(
            "backend-invalid-path-is-gone",
            BACKEND,
            ("Ok(found.is_none_or(|object| object.is_marked_for_delete()))", "Ok(found.is_none() || found.is_some())"),
            OUTCOMES,
        ),
        Mutant::new(
            "pools-batches-are-never-given-up",
            POOLS,
            ("_ if is_call_refused(&error) => {", "_ if is_call_refused(&error) && objects.is_empty() => {"),
            OUTCOMES,
        ),
        Mutant::new(
            "pools-created-again-is-left",
            NODES,
            (
                "created_again.into_inner().into_iter().for_each(|key| of.resources.request_resync_of(key));",
                "drop(created_again.into_inner());",
            ),
            OUTCOMES,
        ),
        Mutant::new(
            "readings-after-each-refusal",
            READINGS,
            ("            state.read_after_refusal = Some(at);\n", "            state.read_after_refusal = None;\n"),
            UNIT,
        ),
    ]
}
