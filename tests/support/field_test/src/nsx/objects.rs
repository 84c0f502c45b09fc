//! Checks of objects: the gateway, the load balancer service, a realized object, and an object that does not exist.

use ccm::clients::nsx::realization::RevisionStatus;
use ccm::clients::nsx::{Kind, Object};
use serde_json::Value;

use super::beliefs::{ABSENT, ABSENT_STATE, EDGE, GATEWAY, REALIZED, ROWS_NAME, USAGE, VERSION};
use super::{Check, Ended, told};

const OPERATION: &str = "field-test.object";

/// Path of a virtual server that does not exist.
const NEVER: &str = "/infra/lb-virtual-servers/field-test-f1e1-never-was";

/// Counts and capacities that the product reads.
const COUNTERS: [&str; 6] = [
    "current_virtual_server_count",
    "virtual_server_capacity",
    "current_pool_count",
    "pool_capacity",
    "current_pool_member_count",
    "pool_member_capacity",
];

/// Reads the configured gateway, or the first one, and its locale services.
pub(super) async fn gateway(check: &mut Check, named: Option<&str>) -> Result<(), Ended> {
    let path = match named {
        Some(path) => Some(path.to_owned()),
        None => first(check, "/infra/tier-1s").await?.map(|gateway| gateway.path().to_owned()),
    };
    let Some(path) = path else {
        check.sheet.skip(&GATEWAY, "no tier-1 gateway is visible");
        check.sheet.skip(&EDGE, "no tier-1 gateway is visible");
        return Ok(());
    };
    match check.client.get(&path, OPERATION).await {
        Ok(gateway) => {
            let types = gateway.0.get("route_advertisement_types").and_then(Value::as_array);
            let seen = types.map_or("it does not have it".to_owned(), |types| {
                let advertises = types.iter().any(|one| one == "TIER1_LB_VIP");
                format!("{} types, TIER1_LB_VIP: {}", types.len(), if advertises { "yes" } else { "no" })
            });
            check.sheet.judge(&GATEWAY, types.is_some(), seen);
        }
        Err(error) => check.failed(&GATEWAY, &error)?,
    }
    match first(check, &format!("{path}/locale-services")).await {
        Ok(Some(service)) => {
            let has_cluster = !service.text("edge_cluster_path").is_empty();
            check.sheet.judge(&EDGE, has_cluster, if has_cluster { "it is there" } else { "it is not there" });
        }
        Ok(None) => check.sheet.skip(&EDGE, "the gateway has no locale service"),
        Err(ended) => return Err(ended),
    }
    Ok(())
}

/// Reads the usage of the configured load balancer service, or of the first one.
pub(super) async fn service(check: &mut Check, named: Option<&str>) -> Result<(), Ended> {
    let path = match named {
        Some(path) => Some(path.to_owned()),
        None => first(check, "/infra/lb-services").await?.map(|service| service.path().to_owned()),
    };
    let Some(path) = path else {
        check.sheet.skip(&USAGE, "no load balancer service is visible");
        return Ok(());
    };
    match check.client.get(&format!("{path}/service-usage"), OPERATION).await {
        Ok(answer) => {
            let results = answer.0.get("results");
            let first = results.and_then(|results| results.get(0));
            let counters = first.and_then(Value::as_object).unwrap_or(&answer.0);
            let found = COUNTERS.iter().filter(|name| counters.get(**name).is_some_and(Value::is_u64)).count();
            let place = if first.is_some() { "the first result" } else { "the answer itself" };
            let seen = format!("{found} of {} numbers, in {place}", COUNTERS.len());
            check.sheet.judge(&USAGE, found == COUNTERS.len() && first.is_some(), seen);
        }
        Err(error) => check.failed(&USAGE, &error)?,
    }
    Ok(())
}

/// Reads the realized state of the first virtual server.
pub(super) async fn realized(check: &mut Check) -> Result<(), Ended> {
    let Some(server) = first(check, "/infra/lb-virtual-servers").await? else {
        for belief in [&REALIZED, &ROWS_NAME, &VERSION] {
            check.sheet.skip(belief, "no virtual server is visible");
        }
        return Ok(());
    };
    check.wire.take();
    match check.client.realization(server.path(), OPERATION).await {
        Ok(_) => {
            let answer = check.last(OPERATION).map(|exchange| exchange.json()).unwrap_or_default();
            let rows = answer.get("results").and_then(Value::as_array).cloned().unwrap_or_default();
            let of = |member: &str| rows.iter().filter(|row| row.get(member).is_some_and(Value::is_string)).count();
            check.sheet.judge(&REALIZED, of("state") > 0, format!("{} rows, {} with a state", rows.len(), of("state")));
            let names_it = |row: &&Value| {
                ["intent_paths", "intent_reference"].iter().any(|member| {
                    let paths = row.get(member).and_then(Value::as_array);
                    paths.is_some_and(|paths| paths.iter().any(|path| path == server.path()))
                })
            };
            let naming = rows.iter().filter(names_it).count();
            match rows.is_empty() {
                true => check.sheet.skip(&ROWS_NAME, "there is no row"),
                false => check.sheet.judge(&ROWS_NAME, naming > 0, format!("{naming} of {} rows", rows.len())),
            }
        }
        Err(error) => check.failed(&REALIZED, &error)?,
    }
    let status = check.client.revision_status(server.path(), server.revision().unwrap_or_default(), OPERATION).await;
    match status {
        Ok(RevisionStatus::Unversioned(_)) => check.sheet.judge(&VERSION, false, "no revision is named"),
        Ok(RevisionStatus::Older(..)) => check.sheet.judge(&VERSION, true, "an older revision"),
        Ok(RevisionStatus::Known(_)) => check.sheet.judge(&VERSION, true, "this revision"),
        Err(error) => check.failed(&VERSION, &error)?,
    }
    Ok(())
}

/// Reads an object that does not exist, and its realized state.
pub(super) async fn absent(check: &mut Check) -> Result<(), Ended> {
    match check.client.get(NEVER, OPERATION).await {
        Ok(_) => check.sheet.judge(&ABSENT, false, "it was found"),
        Err(error) => {
            check.ends(&error)?;
            let is_so = error.kind == Kind::NotFound && error.status() == Some(404) && error.code() == Some(600);
            check.sheet.judge(&ABSENT, is_so, told(&error));
        }
    }
    check.wire.take();
    match check.client.is_in_effect(NEVER, OPERATION).await {
        Ok(is_in_effect) => {
            let seen = check.last(OPERATION).map_or("no answer".to_owned(), |exchange| exchange.status_and_code());
            check.sheet.judge(&ABSENT_STATE, !is_in_effect, seen);
        }
        Err(error) => check.failed(&ABSENT_STATE, &error)?,
    }
    Ok(())
}

/// Returns the first object of a list. Returns `None` also if the list is rejected, which another check reports.
async fn first(check: &mut Check, path: &str) -> Result<Option<Object>, Ended> {
    let client = check.client.clone();
    match client.pages(path, OPERATION, 1).next().await {
        Ok(page) => Ok(page.unwrap_or_default().into_iter().next()),
        Err(error) => check.ends(&error).map(|()| None),
    }
}
