//! NSX in a campaign: its router, its faults, and the checks of the replicas' writes to it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ccm::kubernetes::login_ledger::record::Record;
use ccm::kubernetes::login_ledger::{LeaseStore, LedgerStore as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use support::fake_nsx::{Model, Realization, Recorded, Trouble};
use support::{Daemon, eventually};

use super::fault::{Fault, REPLICAS};
use super::invariants::Run;
use super::site::Site;
use super::world::World;
use super::{RECOVERY, services};
use crate::cluster::Cluster;
use crate::invariants::audit::terms;
use crate::invariants::nsx::Span;
use crate::invariants::nsx::leadership::{NsxWrite, breaches};
use crate::invariants::nsx::logins::{self, BUDGET};
use crate::invariants::nsx::ownership::Ownership;
use crate::invariants::nsx::presence::{RouteVersion, longest_absence};
use crate::invariants::nsx::routes::{
    CLUSTER_NAME, CLUSTER_UID, Destination, NODE_NAME, Route, destination, differences,
};
use crate::services::writes_of;

/// The router that all replicas use.
pub const ROUTER: &str = "/infra/tier-1s/t1";
/// Initial password of every account.
pub const PASSWORD: &str = "Correct-Horse-7";
/// The user who deletes objects by hand.
const OPERATOR: &str = "operator";
/// Prefix of the ids of routes that belong to no cluster.
const PLANTED: &str = "planted-";
/// Number of nodes with a pod network, of every ten.
const ROUTED: usize = 3;
/// Writes that are older than this are in the audit log.
const LOGGED: Duration = Duration::from_secs(15);
/// A replica may log in up to this long after a request for the record that got no answer.
const LATE: Duration = Duration::from_secs(10);
/// Pause of the daemon after a missing permission.
const NO_PERMISSION: Duration = Duration::from_secs(300);
/// The daemon checks a waiting login again within this time.
const REVIEW: Duration = Duration::from_secs(60);
/// Calls that write, by their names in the fake.
const WRITES: [&str; 18] = [
    "PATCH static-routes",
    "PUT static-routes",
    "DELETE static-routes",
    "PUT lb-services",
    "PUT lb-virtual-servers",
    "PUT lb-pools",
    "PUT lb-monitor-profiles",
    "PUT groups",
    "PUT lb-persistence-profiles",
    "PATCH ip-allocations",
    "PATCH infra",
    "DELETE lb-virtual-servers",
    "DELETE lb-pools",
    "DELETE lb-monitor-profiles",
    "DELETE groups",
    "DELETE lb-persistence-profiles",
    "DELETE lb-services",
    "DELETE ip-allocations",
];
/// Kinds of calls that accounts may lose the permission for.
const DENIABLE: [&str; 2] = ["static-routes", "lb-pools"];
/// Number of recent object versions that a failed run may print.
const KEPT_VERSIONS: usize = 2_000;
/// Number of lines of a daemon's output in the message of a failure.
const LINES: usize = 40;

/// Returns the pod network of the node with this number, if it has one.
pub fn network(number: usize) -> Option<String> {
    (number % 10 < ROUTED).then(|| format!("10.244.{number}.0/24"))
}

/// Returns an NSX manager with these accounts, and with a router that already has routes of others.
pub fn model(accounts: &[String], cluster: &str) -> Model {
    let tag = |(scope, tag): &(&str, &str)| json!({"scope": scope, "tag": tag});
    let others: [(&str, &[(&str, &str)]); 4] = [
        ("untagged", &[]),
        ("of-another-name", &[(CLUSTER_NAME, "another"), (NODE_NAME, "n-1")]),
        ("of-another-uid", &[(CLUSTER_NAME, cluster), (NODE_NAME, "n-1"), (CLUSTER_UID, "another")]),
        ("held", &[(CLUSTER_NAME, cluster), (NODE_NAME, "n-1")]),
    ];
    let model = services::model(Model::small());
    let model = accounts.iter().fold(model, |model, account| model.user(account, PASSWORD));
    others.iter().enumerate().fold(model, |model, (number, (name, tags))| {
        let tags: Vec<_> = tags.iter().map(tag).collect();
        let hops = json!([{"ip_address": "10.9.9.9", "admin_distance": 1}]);
        let body = json!({"network": format!("10.244.{}.0/24", 250 + number), "next_hops": hops, "tags": tags});
        model.object(&format!("{ROUTER}/static-routes/{PLANTED}{name}"), body)
    })
}

/// State of the checks of NSX and its faults.
pub struct Watch {
    /// Faults that may delay routes, by their number.
    pub faults: BTreeMap<usize, Span>,
    /// Writes of replicas to routes.
    pub writes: usize,
    ownership: Ownership,
    versions: Vec<RouteVersion>,
    seen: usize,
    /// Writes that may not be explained by the audit log yet.
    unjudged: Vec<(Instant, NsxWrite)>,
    is_closed: bool,
}

impl Watch {
    /// Creates the state for a manager without writes of replicas.
    pub async fn new(cluster: &Cluster, site: &Site) -> Self {
        let namespace = Api::<Namespace>::all(cluster.client.clone()).get("kube-system").await.unwrap();
        let uid = namespace.metadata.uid.unwrap();
        Self {
            faults: BTreeMap::new(),
            writes: 0,
            ownership: Ownership::new(site.accounts.clone(), cluster.pool(), &uid),
            versions: Vec::new(),
            seen: 0,
            unjudged: Vec::new(),
            is_closed: false,
        }
    }

    /// Records the end of the fault with this number, if the fault may delay routes.
    pub fn ended(&mut self, number: usize, fault: Fault) {
        // The daemon retries a write only some time after a missing permission.
        let after = if matches!(fault, Fault::NsxPermission { .. }) { NO_PERMISSION } else { Duration::ZERO };
        if let Some((_, end)) = self.faults.get_mut(&number) {
            *end = Some(Instant::now() + after);
        }
    }

    /// Records that all replicas have ended, so that no more writes follow.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Takes the writes that the audit log can explain by now.
    fn take_judgeable(&mut self) -> Vec<NsxWrite> {
        let is_closed = self.is_closed;
        let (ready, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unjudged).into_iter().partition(|(at, _)| is_closed || at.elapsed() > LOGGED);
        self.unjudged = rest;
        ready.into_iter().map(|(_, write)| write).collect()
    }
}

impl World {
    /// Begins a fault of NSX.
    pub async fn begin_at_nsx(&mut self, fault: Fault) {
        let nsx = &self.site.nsx;
        let every_write = |trouble: Trouble| WRITES.iter().for_each(|write| nsx.every(write, trouble.clone()));
        match fault {
            Fault::NsxDown => nsx.stop_listening().await,
            Fault::NsxHangs => nsx.every("*", Trouble::Hang),
            Fault::NsxSlow(milliseconds) => nsx.delay_calls(Duration::from_millis(milliseconds)),
            Fault::NsxThrottles => nsx.every("*", Trouble::throttled()),
            Fault::NsxUnavailable => nsx.every("*", Trouble::unavailable()),
            Fault::NsxPortal => nsx.every("*", Trouble::portal()),
            Fault::NsxResets => every_write(Trouble::Lose),
            Fault::NsxConflicts => every_write(Trouble::error(412, Some(206)).into()),
            Fault::NsxSessionsKilled => nsx.kill_sessions(),
            Fault::NsxPassword => {
                self.site.next_nsx_password = format!("Changed-Horse-{}", self.count);
                for account in &self.site.accounts[..REPLICAS] {
                    nsx.set_password(account, &self.site.next_nsx_password);
                }
                nsx.kill_sessions();
            }
            Fault::NsxPermission { is_readable } => {
                for (account, what) in denials(&self.site.accounts) {
                    match is_readable {
                        true => nsx.deny_writes(account, what),
                        false => nsx.deny(account, what),
                    }
                }
            }
            Fault::NsxExhausted => services::exhaust_pool(nsx, OPERATOR, true),
            Fault::NsxLateAddresses(milliseconds) => {
                let after = Realization::After(Duration::from_millis(milliseconds));
                nsx.set_realization("ip-allocations", after);
            }
            Fault::NsxDeleted(count) => {
                let ours = self.own_routes();
                for (path, _) in ours.iter().cycle().skip(self.count).take(count.min(ours.len())) {
                    nsx.delete_by_hand(OPERATOR, path);
                }
            }
            other => panic!("{other:?} is not of NSX"),
        }
    }

    /// Ends a fault of NSX.
    pub async fn end_at_nsx(&mut self, fault: Fault) {
        let nsx = &self.site.nsx;
        match fault {
            Fault::NsxDown => nsx.resume_listening().await,
            Fault::NsxSlow(_) => nsx.delay_calls(Duration::ZERO),
            Fault::NsxSessionsKilled => nsx.kill_sessions(),
            Fault::NsxDeleted(_) => {}
            Fault::NsxPassword => {
                // The password of the fresh daemon's account has not changed.
                self.site.nsx_passwords[..REPLICAS].fill(self.site.next_nsx_password.clone());
                self.site.write();
            }
            Fault::NsxPermission { .. } => {
                denials(&self.site.accounts).for_each(|(account, what)| nsx.allow(account, what));
            }
            Fault::NsxExhausted => services::exhaust_pool(nsx, OPERATOR, false),
            Fault::NsxLateAddresses(_) => {
                nsx.set_realization("ip-allocations", Realization::After(Duration::ZERO));
            }
            _ => nsx.clear(),
        }
    }

    /// Returns the routes of this cluster with their paths.
    pub fn own_routes(&self) -> Vec<(String, Route)> {
        let objects = self.site.nsx.objects_below(&format!("{ROUTER}/static-routes"));
        let paths = objects.into_iter().map(|object| (object["path"].as_str().unwrap().to_owned(), object));
        let own = paths.filter(|(path, _)| !path.contains(PLANTED));
        own.filter_map(|(path, object)| Some((path, Route::of(&object)?))).collect()
    }

    /// Returns the routes that the current Nodes need.
    async fn wanted_routes(&self) -> Vec<Destination> {
        self.all_nodes().await.values().filter_map(destination).collect()
    }

    /// Waits until NSX has exactly the routes that the Nodes need. Returns the elapsed time.
    pub async fn until_routes_are_as_nodes(&mut self, limit: Duration) -> Duration {
        let began = Instant::now();
        eventually("NSX has the routes of all Nodes", limit, async || {
            self.check();
            let wanted = self.wanted_routes().await;
            let routes: Vec<Route> = self.own_routes().into_iter().map(|(_, route)| route).collect();
            match differences(&wanted, &routes) {
                found if found.is_empty() => Ok(()),
                found => Err(format!("{} differences: {found:#?}", found.len())),
            }
        })
        .await;
        began.elapsed()
    }

    /// Acts as an operator after a check of all passwords and permissions: deletes full login records, and restarts a
    /// leader that was rejected for a missing permission. Returns the time that this adds to the recovery.
    pub async fn let_nsx_go(&mut self, follows: bool) -> Duration {
        let mut longer = Duration::ZERO;
        for account in &self.site.accounts[..REPLICAS] {
            let name = self.site.nsx_record(account);
            if self.nsx_record(&name).await.entries.len() >= BUDGET {
                let leases = Api::<Lease>::namespaced(self.cluster.client.clone(), "kube-system");
                drop(leases.delete(&name, &DeleteParams::default()).await.unwrap());
                longer = REVIEW;
            }
        }
        let leader = self.leader().await;
        let was_refused = |request: &Recorded| {
            request.user == self.site.accounts[leader]
                && request.status == Some(403)
                && request.at.elapsed() < NO_PERMISSION
        };
        // The daemon also retries after five minutes for a Service without a free address.
        if self.has_service_without_address().await || self.site.nsx.requests().iter().any(was_refused) {
            self.stop_replica(leader).await;
            self.start_replica(leader, follows);
        }
        longer
    }

    async fn nsx_record(&self, name: &str) -> Record {
        let stored = LeaseStore::new(self.cluster.client.clone(), "kube-system").read(name).await.unwrap().stored;
        stored.map(|stored| Record::from_text(&stored.text)).unwrap_or_default()
    }

    /// Checks the requests at NSX since the last call against the invariants. `runs` are the processes with the numbers
    /// of their replicas.
    ///
    ///
    /// If an invariant is violated.
    pub fn check_nsx(&mut self, runs: &[(usize, Run)]) {
        self.take_versions();
        let writes = self.watch.take_judgeable();
        let terms = terms(&self.audit, self.cluster.pool());
        assert_eq!(breaches(&writes, &terms), [], "a replica that did not lead wrote to NSX");
        let attempts = self.site.nsx.login_attempts();
        let mut waits = Vec::new();
        for (number, account) in self.site.accounts[..REPLICAS].iter().enumerate() {
            let own: Vec<_> = attempts.iter().filter(|attempt| attempt.user == *account).cloned().collect();
            let runs: Vec<Run> = runs.iter().filter(|(replica, _)| *replica == number).map(|(_, run)| *run).collect();
            let excess = logins::excess(&own, &self.apart, LATE, &runs);
            assert_eq!(excess, None, "NSX rejected {account} too often: {own:#?}, apart: {:?}", self.apart);
            assert!(!self.site.nsx.is_locked(account), "NSX has locked {account}");
            waits.extend(logins::waits(&own));
        }
        if self.watch.is_closed {
            self.check_absences(waits);
        }
    }

    fn take_versions(&mut self) {
        let new = self.site.nsx.history_from(self.watch.seen);
        self.watch.seen += new.len();
        // Versions of pools are large, and a pool changes with each Node.
        self.site.nsx.forget_versions(self.watch.seen.saturating_sub(KEPT_VERSIONS));
        if new.is_empty() {
            return;
        }
        self.balanced.judge(&self.site.nsx, &new);
        let writes = writes_of(&self.site.nsx, &new, &self.site.accounts[..REPLICAS]);
        let is_route = |path: &str| path.contains("/static-routes/");
        self.watch.writes += writes.iter().filter(|(_, write)| is_route(&write.path)).count();
        self.watch.unjudged.extend(writes);
        for version in new.iter().filter(|version| is_route(&version.path)) {
            if let Err(broken) = self.watch.ownership.take(version) {
                panic!("{broken}");
            }
            self.watch.versions.push(RouteVersion::of(version));
        }
    }

    fn check_absences(&self, waits: Vec<Span>) {
        let faults: Vec<Span> = self.watch.faults.values().copied().chain(waits).collect();
        let now = Instant::now();
        for need in self.judged.needs.all() {
            let absent = longest_absence(need, &self.watch.versions, &faults, now);
            assert!(absent <= RECOVERY, "a route was missing for {absent:?} beside all faults: {need:?}");
        }
    }

    /// Checks that a fresh daemon has read all routes and has written nothing.
    pub async fn assert_nsx_untouched(&self, daemon: &Daemon, seen: usize) {
        let account = &self.site.accounts[REPLICAS];
        // The daemon makes the writes for its first listing before it starts the second listing.
        self.until_listed(2, daemon).await;
        let written: Vec<_> =
            self.site.nsx.history_from(seen).into_iter().filter(|version| version.user == *account).collect();
        assert!(written.is_empty(), "a fresh daemon wrote {written:#?}\n{}", daemon.output().tail(LINES));
    }

    /// Deletes all routes of this cluster, and returns them.
    pub fn delete_routes(&self) -> Vec<Route> {
        let routes = self.own_routes();
        for (path, _) in &routes {
            self.site.nsx.delete_by_hand(OPERATOR, path);
        }
        sorted(routes)
    }

    /// Checks that a fresh daemon writes the same routes as before.
    pub async fn assert_routes_alike(&mut self, before: &[Route], daemon: &Daemon) {
        self.until_routes_are_as_nodes(RECOVERY).await;
        assert_eq!(sorted(self.own_routes()), before, "{}", daemon.output().tail(LINES));
    }

    async fn until_listed(&self, times: u32, daemon: &Daemon) {
        let account = &self.site.accounts[REPLICAS];
        eventually("a fresh daemon lists all routes", RECOVERY, async || {
            match self.site.nsx.counts().of_user(account, "LIST static-routes") {
                count if count >= times => Ok(()),
                count => Err(format!("{count} of {times} times\n{}", daemon.output().tail(LINES))),
            }
        })
        .await;
    }
}

/// Returns the accounts of the replicas, each with every kind of call that it can lose.
fn denials(accounts: &[String]) -> impl Iterator<Item = (&String, &'static str)> {
    accounts[..REPLICAS].iter().flat_map(|account| DENIABLE.map(|what| (account, what)))
}

fn sorted(routes: Vec<(String, Route)>) -> Vec<Route> {
    let mut routes: Vec<Route> = routes.into_iter().map(|(_, route)| route).collect();
    routes.sort();
    routes
}
