//! Creates objects, reads their realization, and checks the answers to later writes and deletions. The journal has
//! everything that is created, and removes it afterwards.

use std::time::{Duration, Instant};

use ccm::clients::nsx::realization::{Realization, Reservation, RevisionStatus};
use ccm::clients::nsx::{Client, Error, Kind, Object};
use ccm::providers::vsphere::config::{IpPool, Profile};
use serde_json::json;

use super::beliefs::{
    ALLOCATION, DELETED, IN_USE, MISSING, NEW, NO_REVISION, OLD_REVISION, REALIZES, REVISION, SECOND_DELETE, SERVER,
    UNREALIZED, WRITING,
};
use super::journal::{ALLOCATIONS, NotPlanned, OPERATION, Planned, SERVERS};
use super::{Check, Ended, told};
use crate::belief::Belief;
use crate::options::WriteRequest;
use crate::servers::NsxServer;

/// First and longest pause between two reads of a state.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Port of the virtual server. No backend listens behind it.
const PORT: &str = "65001";

/// The only client that the virtual server would admit: an address for documentation, which no client has.
const CLIENT: &str = "192.0.2.1";

/// Path of a monitor that does not exist.
const NEVER: &str = "/infra/lb-monitor-profiles/field-test-f1e1-never-was";

struct Paths {
    monitor: String,
    pool: String,
    group: String,
    /// Path below the IP pool, whose id may not be known yet.
    allocation: String,
    server: String,
}

impl Paths {
    fn new(prefix: &str) -> Self {
        Self {
            monitor: format!("/infra/lb-monitor-profiles/{prefix}-field-test-monitor"),
            pool: format!("/infra/lb-pools/{prefix}-field-test-pool"),
            group: format!("/infra/domains/default/groups/{prefix}-field-test-group"),
            allocation: format!("{ALLOCATIONS}{prefix}-field-test-address"),
            server: format!("{SERVERS}{prefix}-field-test-server"),
        }
    }
}

/// Returns the objects that will be created, for the announcement.
pub(super) fn announced(write: &WriteRequest) -> Vec<String> {
    let Paths { monitor, pool, group, allocation, server } = Paths::new(&write.prefix);
    let allocation = format!("{allocation} of the pool of addresses of the default class");
    let server = write.service.as_ref().map(|service| {
        format!("{server} without members, on the load balancer service {service}, with this address and port {PORT}")
    });
    [monitor, pool, group, allocation].into_iter().chain(server).collect()
}

/// The objects that may be created, and the objects that they refer to.
struct Plan {
    monitor: Planned,
    pool: Planned,
    group: Planned,
    allocation: Option<Planned>,
    server: Option<ServerPlan>,
}

struct ServerPlan {
    planned: Planned,
    service: String,
    profile: String,
}

/// Creates objects and checks them. The journal removes what remains.
pub(super) async fn objects(check: &mut Check, server: &NsxServer, write: &WriteRequest) -> Result<(), Ended> {
    let Some(plan) = plan(check, server, write).await? else { return Ok(()) };
    let Some(pool) = create(check, &plan).await? else { return Ok(()) };
    let address = reserve(check, &plan).await?;
    virtual_server(check, &plan, address).await?;
    realizations(check, &plan).await?;
    revisions(check, &plan.pool, pool).await?;
    references(check, &plan).await?;
    deletion(check, &plan).await
}

/// Records the reason why nothing is written.
fn refuse(check: &mut Check, why: String) {
    WRITING.iter().for_each(|belief| check.sheet.skip(belief, why.clone()));
    check.not_written = Some(format!("{why}; nothing was written"));
}

/// Reads whether the ids are free, and what the objects refer to. Returns `None` if nothing may be written.
async fn plan(check: &mut Check, server: &NsxServer, write: &WriteRequest) -> Result<Option<Plan>, Ended> {
    let service = write.service.as_ref().map(|service| format!("/infra/lb-services/{service}"));
    if let Some(service) = &service
        && let Err(error) = check.client.get(service, OPERATION).await
    {
        check.ends(&error)?;
        refuse(check, format!("the load balancer service of --service cannot be read: {}", told(&error)));
        return Ok(None);
    }
    let address_pool = address_pool(check, server).await?;
    let profile = profile(check, server, write).await?;
    let paths = Paths::new(&write.prefix);
    let allocation = address_pool.as_ref().map(|pool| format!("/infra/ip-pools/{pool}{}", paths.allocation));
    let allocation_path = allocation.unwrap_or_default();
    let (mut free, mut existing) = (Vec::new(), 0);
    for path in [&paths.monitor, &paths.pool, &paths.group, &paths.server, &allocation_path] {
        if path.is_empty() {
            continue;
        }
        match check.journal.plan(&check.client, path).await {
            Ok(planned) => free.push(planned),
            Err(NotPlanned::Exists) => {
                existing += 1;
                check.existing.push(path.clone());
            }
            Err(NotPlanned::Unknown(error)) => {
                check.ends(&error)?;
                refuse(check, format!("it is not known whether the ids are free: {}", told(&error)));
                return Ok(None);
            }
        }
    }
    if existing > 0 {
        refuse(check, format!("{existing} of the ids with this prefix are in use"));
        return Ok(None);
    }
    let mut free = free.into_iter();
    let (Some(monitor), Some(pool), Some(group), Some(server)) = (free.next(), free.next(), free.next(), free.next())
    else {
        return Ok(None);
    };
    let server = service.zip(profile).map(|(service, profile)| ServerPlan { planned: server, service, profile });
    Ok(Some(Plan { monitor, pool, group, allocation: free.next(), server }))
}

async fn address_pool(check: &mut Check, server: &NsxServer) -> Result<Option<String>, Ended> {
    match &server.address_pool {
        None => {
            check.sheet.skip(&ALLOCATION, "the file has no pool of addresses");
            Ok(None)
        }
        Some(IpPool::Id(id)) => Ok(Some(id.clone())),
        Some(IpPool::Name(name)) => by_name(check, "/infra/ip-pools", name, &ALLOCATION).await,
    }
}

/// Returns the path of the application profile of the virtual server.
async fn profile(check: &mut Check, server: &NsxServer, write: &WriteRequest) -> Result<Option<String>, Ended> {
    match &server.tcp_profile {
        _ if write.service.is_none() => {
            check.sheet.skip(&SERVER, "it needs --service ID");
            Ok(None)
        }
        None => {
            check.sheet.skip(&SERVER, "the file has no application profile for TCP");
            Ok(None)
        }
        Some(Profile::Path(path)) => Ok(Some(path.clone())),
        Some(Profile::Name(name)) => {
            let id = by_name(check, "/infra/lb-app-profiles", name, &SERVER).await?;
            Ok(id.map(|id| format!("/infra/lb-app-profiles/{id}")))
        }
    }
}

/// Returns the id of the only object of a list that has this name.
async fn by_name(check: &mut Check, list: &str, name: &str, belief: &'static Belief) -> Result<Option<String>, Ended> {
    match check.client.pages(list, OPERATION, 1000).all().await {
        Ok(listing) => {
            let named: Vec<_> = listing.objects.iter().filter(|one| one.text("display_name") == name).collect();
            if let [one] = named.as_slice() {
                return Ok(Some(one.id().to_owned()));
            }
            check.sheet.skip(belief, format!("{} objects have the name in the file", named.len()));
            Ok(None)
        }
        Err(error) => check.failed(belief, &error).map(|()| None),
    }
}

/// Creates monitor, pool and group. Returns the pool as it is stored.
async fn create(check: &mut Check, plan: &Plan) -> Result<Option<Object>, Ended> {
    let monitor = json!({"resource_type": "LBTcpMonitorProfile", "monitor_port": 65001});
    let pool = json!({
        "members": [],
        "active_monitor_paths": [plan.monitor.path()],
        "snat_translation": {"type": "LBSnatAutoMap"},
    });
    let group = json!({"expression": [{"resource_type": "IPAddressExpression", "ip_addresses": [CLIENT]}]});
    let mut made = Vec::new();
    for (planned, members) in [(&plan.monitor, monitor), (&plan.pool, pool), (&plan.group, group)] {
        let body = check.journal.body(members);
        match check.journal.put(&check.client, planned, &body).await {
            Ok(object) => made.push(object),
            Err(error) => return check.failed(&NEW, &error).map(|()| None),
        }
    }
    let revisions: Vec<_> = made.iter().filter_map(Object::revision).collect();
    check.sheet.judge(&NEW, revisions == [0, 0, 0], format!("revisions {revisions:?}"));
    Ok(made.into_iter().nth(1))
}

/// Reserves an address, and waits for it.
async fn reserve(check: &mut Check, plan: &Plan) -> Result<Option<String>, Ended> {
    let Some(allocation) = &plan.allocation else { return Ok(None) };
    let body = check.journal.body(json!({}));
    if let Err(error) = check.journal.patch(&check.client, allocation, &body).await {
        return check.failed(&ALLOCATION, &error).map(|()| None);
    }
    let (client, began) = (check.client.clone(), Instant::now());
    let is_final = |state: &Reservation| !matches!(state, Reservation::Pending);
    let look = async || client.reservation(allocation.path(), OPERATION).await;
    let after = || seconds(began);
    match settled(check.limits.state, look, is_final).await {
        Ok(Reservation::Reserved(address)) => {
            check.sheet.judge(&ALLOCATION, true, format!("an address after {}", after()));
            return Ok(Some(address.to_string()));
        }
        Ok(Reservation::Failed { is_exhausted: true, .. }) => {
            check.sheet.judge(&ALLOCATION, true, format!("the pool has no free address: alarm 8212 after {}", after()));
        }
        Ok(Reservation::Failed { .. }) => {
            check.sheet.judge(&ALLOCATION, false, format!("another alarm after {}", after()));
        }
        Ok(Reservation::Pending) => check.sheet.judge(&ALLOCATION, false, format!("no address after {}", after())),
        Err(error) => check.failed(&ALLOCATION, &error)?,
    }
    Ok(None)
}

/// Creates a virtual server without members on the given service.
async fn virtual_server(check: &mut Check, plan: &Plan, address: Option<String>) -> Result<(), Ended> {
    let Some(ServerPlan { planned, service, profile }) = &plan.server else { return Ok(()) };
    let Some(address) = address else {
        check.sheet.skip(&SERVER, "there is no address for it");
        return Ok(());
    };
    let body = check.journal.body(json!({
        "ip_address": address,
        "ports": [PORT],
        "default_pool_member_ports": [PORT],
        "enabled": true,
        "application_profile_path": profile,
        "pool_path": plan.pool.path(),
        "lb_service_path": service,
        "access_list_control": {"action": "ALLOW", "enabled": true, "group_path": plan.group.path()},
    }));
    if let Err(error) = check.journal.put(&check.client, planned, &body).await {
        return check.failed(&SERVER, &error);
    }
    let began = Instant::now();
    match realized(check, planned, began + check.limits.state).await {
        Ok(state) => {
            let seen = format!("{} after {}", word(&state), seconds(began));
            check.sheet.judge(&SERVER, state == Realization::Realized, seen);
            Ok(())
        }
        Err(error) => check.failed(&SERVER, &error),
    }
}

/// Waits until monitor, pool and group are realized. All three share the time limit of one object.
async fn realizations(check: &mut Check, plan: &Plan) -> Result<(), Ended> {
    let began = Instant::now();
    let (mut seen, mut are_all) = (Vec::new(), true);
    for (what, planned) in [("monitor", &plan.monitor), ("pool", &plan.pool), ("group", &plan.group)] {
        match realized(check, planned, began + check.limits.state).await {
            Ok(state) => {
                are_all &= state == Realization::Realized;
                seen.push(format!("{what} {} after {}", word(&state), seconds(began)));
            }
            Err(error) => return check.failed(&REALIZES, &error),
        }
    }
    check.sheet.judge(&REALIZES, are_all, seen.join(", "));
    Ok(())
}

/// Writes the pool a second time, then with an old revision, and then without a revision.
async fn revisions(check: &mut Check, planned: &Planned, first: Object) -> Result<(), Ended> {
    let mut changed = first.clone();
    changed.0.insert("description".to_owned(), "the second revision of the field test".into());
    let second = match check.journal.put(&check.client, planned, &changed).await {
        Ok(second) => second,
        Err(error) => return check.failed(&REVISION, &error),
    };
    let (old, new) = (first.revision().unwrap_or_default(), second.revision().unwrap_or_default());
    let (client, began) = (check.client.clone(), Instant::now());
    let is_final = |status: &RevisionStatus| {
        !matches!(status, RevisionStatus::Older(..) | RevisionStatus::Known(Realization::Pending))
    };
    let look = async || client.revision_status(planned.path(), new, OPERATION).await;
    match settled(check.limits.state, look, is_final).await {
        Ok(status) => {
            let is_realized = status == RevisionStatus::Known(Realization::Realized);
            let state = match &status {
                RevisionStatus::Known(state) => word(state),
                RevisionStatus::Older(..) => "still the old one",
                RevisionStatus::Unversioned(_) => "no revision is named",
            };
            let seen = format!("revision {old} to {new}, {state} after {}", seconds(began));
            check.sheet.judge(&REVISION, is_realized && new == old + 1, seen);
        }
        Err(error) => check.failed(&REVISION, &error)?,
    }
    let mut without = changed.clone();
    without.0.remove("_revision");
    for (belief, body) in [(&OLD_REVISION, &changed), (&NO_REVISION, &without)] {
        let answer = check.journal.put(&check.client, planned, body).await.map(drop);
        judge_refusal(check, belief, answer, |kind| *kind == Kind::Conflict)?;
    }
    Ok(())
}

/// Refers to a monitor that does not exist, then deletes the monitor that the pool refers to.
async fn references(check: &mut Check, plan: &Plan) -> Result<(), Ended> {
    match check.client.get(plan.pool.path(), OPERATION).await {
        Ok(mut pool) => {
            pool.0.insert("active_monitor_paths".to_owned(), json!([NEVER]));
            let answer = check.journal.put(&check.client, &plan.pool, &pool).await.map(drop);
            let is_expected = |kind: &Kind| matches!(kind, Kind::MissingReference(path) if path == NEVER);
            judge_refusal(check, &MISSING, answer, is_expected)?;
        }
        Err(error) => check.failed(&MISSING, &error)?,
    }
    let answer = check.journal.delete(&check.client, &plan.monitor).await;
    judge_refusal(check, &IN_USE, answer, |kind| *kind == Kind::Referenced)
}

/// Deletes the virtual server, or the pool if there is none, and reads until it is no longer realized.
async fn deletion(check: &mut Check, plan: &Plan) -> Result<(), Ended> {
    let server = plan.server.as_ref().map(|server| &server.planned).filter(|server| check.journal.is_made(server));
    let (what, planned) = server.map_or(("pool", &plan.pool), |server| ("virtual server", server));
    if let Err(error) = check.journal.delete(&check.client, planned).await {
        return check.failed(&DELETED, &error);
    }
    let began = Instant::now();
    match check.client.get(planned.path(), OPERATION).await {
        Ok(object) => {
            let state = if object.is_marked_for_delete() { "shown, with the mark" } else { "shown" };
            check.sheet.judge(&DELETED, false, format!("the {what} is {state}"));
        }
        Err(error) => {
            check.ends(&error)?;
            check.sheet.judge(&DELETED, error.kind == Kind::NotFound, format!("{what}: {}", told(&error)));
        }
    }
    check.wire.take();
    let again = check.journal.delete(&check.client, planned).await;
    match check.last(OPERATION).filter(|exchange| exchange.status.is_some()) {
        Some(exchange) => {
            let code = crate::wire::error_code(&exchange.json());
            let is_so = exchange.status == Some(404) || (exchange.status == Some(400) && code == Some(500_045));
            check.sheet.judge(&SECOND_DELETE, is_so, exchange.status_and_code());
        }
        None => again.or_else(|error| check.failed(&SECOND_DELETE, &error))?,
    }
    let client = check.client.clone();
    let look = async || client.is_in_effect(planned.path(), OPERATION).await;
    match settled(check.limits.state, look, |is_in_effect| !is_in_effect).await {
        Ok(false) => check.sheet.judge(&UNREALIZED, true, format!("the {what} no longer after {}", seconds(began))),
        Ok(true) => check.sheet.judge(&UNREALIZED, false, format!("the {what} still after {}", seconds(began))),
        Err(error) => check.failed(&UNREALIZED, &error)?,
    }
    Ok(())
}

/// Returns the state of an object when it is no longer pending, or at the deadline.
async fn realized(check: &Check, planned: &Planned, deadline: Instant) -> Result<Realization, Error> {
    let client: &Client = &check.client;
    let look = async || client.realization(planned.path(), OPERATION).await;
    let limit = deadline.saturating_duration_since(Instant::now());
    settled(limit, look, |state| *state != Realization::Pending).await
}

/// Reads repeatedly until the state is final or the time limit is reached. Returns the last state.
async fn settled<T>(
    limit: Duration,
    look: impl AsyncFn() -> Result<T, Error>,
    is_final: impl Fn(&T) -> bool,
) -> Result<T, Error> {
    let (deadline, mut pause) = (Instant::now() + limit, FIRST_PAUSE);
    loop {
        let state = look().await?;
        if is_final(&state) || Instant::now() + pause > deadline {
            return Ok(state);
        }
        tokio::time::sleep(pause).await;
        pause = pause.mul_f64(1.5).min(LONGEST_PAUSE);
    }
}

/// Enters that the belief holds if the call is rejected in the expected way.
fn judge_refusal(
    check: &mut Check,
    belief: &'static Belief,
    answer: Result<(), Error>,
    is_expected: impl Fn(&Kind) -> bool,
) -> Result<(), Ended> {
    match answer {
        Ok(()) => check.sheet.judge(belief, false, "the call was accepted"),
        Err(error) => {
            check.ends(&error)?;
            check.sheet.judge(belief, is_expected(&error.kind), told(&error));
        }
    }
    Ok(())
}

fn word(state: &Realization) -> &'static str {
    match state {
        Realization::Realized => "realized",
        Realization::Failed(_) => "failed",
        Realization::Pending => "pending",
    }
}

fn seconds(began: Instant) -> String {
    format!("{:.0} s", began.elapsed().as_secs_f64())
}
