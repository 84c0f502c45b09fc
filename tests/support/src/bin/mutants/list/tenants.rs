//! Mutants of the limits for authors of Services, owners of Nodes and a hostile NSX.

use crate::{Mutant, Tests};

const POD_NETWORKS: &str = "src/controllers/route/pod_networks.rs";
const ROUTE_PLAN: &str = "src/controllers/route/plan.rs";
const DESTINATIONS: &str = "src/controllers/route/destinations.rs";
const TERM: &str = "src/controllers/route/reconciler.rs";
const OWNERSHIP: &str = "src/providers/vsphere/nsx/routes/ownership.rs";
const STATIC_ROUTE: &str = "src/providers/vsphere/nsx/routes/static_route.rs";
const CACHED: &str = "src/cloud/service/cache_filter.rs";
const OBJECT_SIZE: &str = "src/cloud/object_size.rs";
const CACHED_OBJECT: &str = "src/kubernetes/stores/cached_object.rs";
const SERVICE_PLAN: &str = "src/controllers/service/plan.rs";
const SYNC: &str = "src/controllers/service/reconciler.rs";
const INPUTS: &str = "src/controllers/service/inputs.rs";
const RECORDS: &str = "src/controllers/service/records.rs";
const QUOTED: &str = "src/base/quoting.rs";
const CALL: &str = "src/clients/nsx/call.rs";
const JSON: &str = "src/clients/nsx/json.rs";
const LIST: &str = "src/clients/nsx/list.rs";

/// Tests of the route controller, on an API server in memory and on a real one.
const ROUTES: Tests = &[&["--lib", "--", "controllers::route"], &["--test", "apiserver", "--", "route::"]];
/// Tests of NSX routes, without a server.
const RULES: Tests = &[&["--lib", "--", "nsx::routes"]];
/// Tests of the service controller, without a server.
const SERVICES: Tests = &[&["--lib", "--", "service", "stores"]];
const ON_SERVER: Tests = &[&["--lib", "--", "controllers::service"], &["--test", "apiserver", "--", "service::"]];
const CLIENT: Tests = &[&["--lib", "--", "clients::nsx"], &["--test", "nsx", "--", "client::"]];

pub fn all() -> Vec<Mutant> {
    let mut all = of_routes();
    all.extend(of_services());
    all.extend(of_nsx());
    all
}

fn of_routes() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "tenants-route-foreign-network",
            POD_NETWORKS,
            ("_ if is_foreign => Some", "_ if false => Some"),
            ROUTES,
        ),
        Mutant::new(
            "tenants-route-any-order-of-nodes",
            POD_NETWORKS,
            ("    by_age.sort_by_cached_key(age);", "    let _ = age;\n    by_age.reverse();"),
            ROUTES,
        ),
        Mutant::new(
            "tenants-route-part-of-another-network",
            POD_NETWORKS,
            ("within.chain(around).map(", "within.chain(around.take(0)).map("),
            ROUTES,
        ),
        Mutant::new(
            "tenants-route-around-another-network",
            POD_NETWORKS,
            ("within.chain(around).map(", "within.take(0).chain(around).map("),
            ROUTES,
        ),
        Mutant::new(
            "tenants-route-refusal-ignored",
            ROUTE_PLAN,
            ("            if !is_refused && !is_planned", "            if !is_planned"),
            ROUTES,
        ),
        Mutant::new(
            "tenants-route-kept-one-is-not-kept-up",
            ROUTE_PLAN,
            ("is_some() && !led_here.iter().any(|route| leads_to(route, network));", "is_some();"),
            ROUTES,
        ),
        Mutant::new(
            "tenants-route-refused-node-is-ready",
            DESTINATIONS,
            ("        if self.is_refused(node, network) {\n            return Routing::Failed;\n        }\n", ""),
            ROUTES,
        ),
        Mutant::new(
            "tenants-route-nodes-of-other-providers-do-not-count",
            TERM,
            ("nodes.iter().chain(&others).map(", "nodes.iter().chain(&others[..0]).map("),
            ROUTES,
        ),
        Mutant::new("tenants-route-id-of-a-node", OWNERSHIP, ("    if is_of_node || (", "    if ("), RULES),
        Mutant::new(
            "tenants-route-external-before-internal",
            STATIC_ROUTE,
            ("[INTERNAL_IP, EXTERNAL_IP].into_iter()", "[EXTERNAL_IP, INTERNAL_IP].into_iter()"),
            RULES,
        ),
        Mutant::new(
            "tenants-route-link-local-next-hop",
            STATIC_ROUTE,
            ("        !is_link_local && !ip.is_loopback()", "        !ip.is_loopback()"),
            RULES,
        ),
    ]
}

fn of_services() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "tenants-service-all-annotations",
            CACHED,
            (
                "[\"metadata\", \"annotations\", key] => keeps_annotation(key)",
                "[\"metadata\", \"annotations\", _] => true",
            ),
            SERVICES,
        ),
        Mutant::new(
            "tenants-node-of-any-size",
            CACHED_OBJECT,
            ("= object_size::excess(&object) {", "= object_size::excess(&object).filter(|_| false) {"),
            SERVICES,
        ),
        Mutant::new(
            "tenants-object-of-many-values",
            OBJECT_SIZE,
            ("    (memory > MAX_MEMORY).then(", "    false.then("),
            SERVICES,
        ),
        Mutant::new(
            "tenants-service-of-any-size",
            CACHED,
            ("= object_size::excess(service)?;", "= object_size::excess(service).filter(|_| false)?;"),
            SERVICES,
        ),
        Mutant::new(
            "tenants-service-annotation-of-any-size",
            CACHED,
            ("    if let Some((key, value)) = large {", "    if let Some((key, value)) = large.filter(|_| false) {"),
            SERVICES,
        ),
        Mutant::new(
            "tenants-service-rest-without-finalizer",
            CACHED,
            ("vec![FINALIZER.to_owned()]", "vec![]"),
            SERVICES,
        ),
        Mutant::new(
            "tenants-service-too-large-is-ensured",
            SERVICE_PLAN,
            (
                "(Some(why), true) = (cache_filter::too_large(service), *handling != Handling::Declined)",
                "(Some(why), true) = (cache_filter::too_large(service), false)",
            ),
            SERVICES,
        ),
        Mutant::new(
            "tenants-service-text-of-any-length",
            QUOTED,
            ("text.chars().take(SHOWN)", "text.chars().take(usize::MAX)"),
            &[&["--lib", "--", "quoted"]],
        ),
        Mutant::new(
            "tenants-service-control-characters",
            QUOTED,
            ("if c.is_control() {", "if false {"),
            &[&["--lib", "--", "quoted"]],
        ),
        Mutant::new(
            "service-inputs-without-annotations",
            INPUTS,
            ("annotations.collect::<Vec<_>>());", "annotations.take(0).collect::<Vec<_>>());"),
            SERVICES,
        ),
        Mutant::new(
            "service-plan-declined-is-ensured",
            SERVICE_PLAN,
            ("        Handling::Declined => return ServicePlan::LeaveAlone,", "        Handling::Declined => {}"),
            SERVICES,
        ),
        Mutant::new(
            "service-plan-releases-the-finalizer-of-others",
            SERVICE_PLAN,
            (
                "    is_ours || had_objects || finalizer_managers(service)",
                "    true || had_objects || finalizer_managers(service)",
            ),
            ON_SERVER,
        ),
        Mutant::new(
            "service-delete-without-live-read",
            SYNC,
            (
                "if live.metadata.uid == cached.metadata.uid && service::needs_cleanup(&live) => live,",
                "if live.metadata.uid == cached.metadata.uid => live,",
            ),
            ON_SERVER,
        ),
        Mutant::new(
            "service-records-two-calls-at-once",
            RECORDS,
            (".filter(|_| !locked.contains(key)) else", ".filter(|_| true) else"),
            ON_SERVER,
        ),
    ]
}

fn of_nsx() -> Vec<Mutant> {
    vec![
        Mutant::new(
            "tenants-nsx-any-number-of-values",
            CALL,
            ("json::count_values(&response.body) > most", "false"),
            CLIENT,
        ),
        Mutant::new(
            "tenants-nsx-path-of-another-object",
            CALL,
            ("any(|segment| matches!(segment, \".\" | \"..\"))", "any(|_| false)"),
            CLIENT,
        ),
        Mutant::new(
            "tenants-nsx-texts-count",
            JSON,
            ("b'{' | b'[' | b',' if !is_text => count += 1", "b'{' | b'[' | b',' => count += 1"),
            CLIENT,
        ),
        Mutant::new("tenants-nsx-errors-of-any-size", JSON, ("if text.len() > LARGEST_ERROR {", "if false {"), CLIENT),
        Mutant::new(
            "tenants-nsx-lists-of-any-size",
            LIST,
            ("            if kept > MAX_BYTES {", "            if false {"),
            CLIENT,
        ),
    ]
}
