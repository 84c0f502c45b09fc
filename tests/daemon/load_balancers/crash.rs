//! A daemon is killed at any write of a load balancer, before NSX executes it or before the answer arrives. The next
//! daemon reaches the same state as an uninterrupted one. Requests of the dead daemon that arrive later change nothing.
//!
//! Many Services are at one of their writes when the process dies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::future::join_all;
use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use serde_json::Value;
use support::eventually;
use support::fake_nsx::{Hold, ObjectVersion, Side};

use super::site::{GO, LIMIT, Process, Site};
use crate::cluster::ip;
use crate::invariants::nsx::load_balancers::results::addresses;
use crate::invariants::nsx::load_balancers::{SERVICE, pools};
use crate::invariants::nsx::routes::tag;

const NODES: usize = 2;
/// Number of Services that are at a write at the same time: fewer than a process has concurrent calls.
const AT_ONCE: usize = 16;
/// Number of objects of the Go program in a partial load balancer: monitor, pool and allocation.
const HALF_MADE: usize = 3;
/// Number of these objects without evidence that they belong to this cluster.
const HELD: usize = 2;

/// Change of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// SEQ-01.
    Create,
    /// SEQ-16.
    CreateBoth,
    /// SEQ-02.
    AddPort,
    /// SEQ-05.
    MovePort,
    /// SEQ-07.
    Delete,
}

impl Work {
    const ALL: [Self; 5] = [Self::Create, Self::CreateBoth, Self::AddPort, Self::MovePort, Self::Delete];

    fn is_new(self) -> bool {
        matches!(self, Self::Create | Self::CreateBoth)
    }

    /// Returns the ports of the Service before the change.
    fn ports(self) -> &'static [(&'static str, u16)] {
        if self == Self::CreateBoth { &[("TCP", 80), ("UDP", 80)] } else { &[("TCP", 80)] }
    }

    /// Returns the minimum number of writes. Fewer writes would test nothing.
    fn least(self) -> u32 {
        match self {
            Self::Create | Self::CreateBoth => 2,
            Self::AddPort => 3,
            Self::MovePort => 6,
            Self::Delete => 4,
        }
    }
}

/// Creator of the existing objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    Here,
    ByGo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    work: Work,
    made: Made,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        Work::ALL.into_iter().flat_map(|work| [Made::Here, Made::ByGo].map(|made| Self { work, made }))
    }

    /// Whether pool and monitor have no evidence of their owner. The daemon does not delete them, and the Go program
    /// would adopt them.
    fn is_half_made(self) -> bool {
        self.made == Made::ByGo && self.work.is_new()
    }
}

/// A case, with the write at which the process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    case: Case,
    at: Option<(u32, Side)>,
}

impl Point {
    /// Returns the name of the Service.
    fn name(&self) -> String {
        let Case { work, made } = self.case;
        let at = self.at.map(|(n, side)| format!("-{n}-{side:?}")).unwrap_or_default();
        format!("{work:?}-{made:?}{at}").to_lowercase()
    }
}

/// Final state of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    is_there: bool,
    /// Number of reported addresses.
    addresses: usize,
    /// Whether the Service still reports its former addresses, if it had any.
    is_kept: bool,
    /// Number of objects with the Service's tag, by collection.
    objects: BTreeMap<String, usize>,
    /// Ports of the virtual servers, and whether each has a reported address.
    servers: BTreeSet<(String, bool)>,
    /// Members of each pool.
    members: Vec<BTreeSet<String>>,
}

/// Result of a case without an interruption.
#[derive(Debug)]
struct Whole {
    writes: u32,
    end: End,
}

/// Services at these points, and a process that has created or adopted their load balancers.
struct Round {
    site: Site,
    process: Process,
    points: Vec<Point>,
    /// Addresses that Services report before the change.
    before: BTreeMap<String, Vec<String>>,
}

impl Round {
    async fn prepare(points: Vec<Point>, knows_uid: bool) -> Self {
        let mut site = Site::alone(knows_uid, 0..NODES).await;
        for (index, point) in points.iter().enumerate() {
            let Case { work, made } = point.case;
            let service = site.create(&point.name(), work.ports()).await;
            if made == Made::ByGo {
                let address: IpAddr = [192, 0, 2, 60 + u8::try_from(index).unwrap()].into();
                let balancer = site.of_go(&service, address, 0..NODES);
                let count = if point.case.is_half_made() { HALF_MADE } else { balancer.creation().len() };
                balancer.put_half_made(&site.nsx, GO, count);
                site.leave_by_go(&point.name(), Some(address)).await;
            }
            if !work.is_new() {
                site.select(&point.name()).await;
            }
        }
        let mut process = site.start(&[]);
        process.wait_until_ensured(points.iter().filter(|point| !point.case.work.is_new()).count()).await;
        let mut before = BTreeMap::new();
        for point in &points {
            let service = site.services.get(&point.name()).await.unwrap();
            let reported = addresses(&service).into_iter().map(str::to_owned).collect();
            before.insert(point.name(), reported);
        }
        Self { site, process, points, before }
    }

    /// Changes all Services.
    async fn act(&self) {
        join_all(self.points.iter().map(async |point| {
            let name = point.name();
            match point.case.work {
                Work::Create | Work::CreateBoth => self.site.select(&name).await,
                Work::AddPort => {
                    let first = ("TCP", 80, self.node_port(&name).await);
                    self.site.set_ports(&name, &[first, ("TCP", 443, None)]).await;
                }
                Work::MovePort => {
                    self.site.set_ports(&name, &[("TCP", 81, self.node_port(&name).await)]).await;
                }
                Work::Delete => drop(self.site.services.delete(&name, &DeleteParams::default()).await.unwrap()),
            }
        }))
        .await;
    }

    async fn node_port(&self, name: &str) -> Option<i32> {
        self.site.services.get(name).await.unwrap().spec?.ports?.first()?.node_port
    }

    /// Returns the number of Services at the end.
    fn living(&self) -> usize {
        self.points.iter().filter(|point| point.case.work != Work::Delete).count()
    }

    fn half_made(&self) -> BTreeSet<String> {
        self.points.iter().filter(|point| point.case.is_half_made()).map(Point::name).collect()
    }

    async fn ends(&self) -> BTreeMap<String, End> {
        let services = self.site.selected().await;
        let end = |name: String| (name.clone(), self.end(&name, services.get(&name)));
        self.points.iter().map(|point| end(point.name())).collect()
    }

    fn end(&self, name: &str, service: Option<&Service>) -> End {
        let (objects, before) = (self.site.objects_of(name), &self.before[name]);
        let reported: Vec<String> = service.map(addresses).unwrap_or_default().into_iter().map(str::to_owned).collect();
        let mut counts = BTreeMap::new();
        for object in &objects {
            let collection = object["path"].as_str().unwrap().rsplit('/').nth(1).unwrap();
            *counts.entry(collection.to_owned()).or_default() += 1;
        }
        let of_type = |wanted: &'static str| objects.iter().filter(move |object| object["resource_type"] == wanted);
        let servers = of_type("LBVirtualServer").map(|server| {
            let is_reported = reported.iter().any(|address| server["ip_address"] == address.as_str());
            (server["ports"].to_string(), is_reported)
        });
        let mut members: Vec<_> = of_type("LBPool").map(pools::members).collect();
        members.sort();
        End {
            is_there: service.is_some(),
            addresses: reported.len(),
            is_kept: before.is_empty() || service.is_none() || *before == reported,
            objects: counts,
            servers: servers.collect(),
            members,
        }
    }

    /// Adds the addresses that the dead process had reserved for new Services. They have to stay.
    fn note_reserved(&mut self) {
        for (name, before) in self.before.iter_mut().filter(|(_, before)| before.is_empty()) {
            let objects = self.site.objects_of(name);
            let paths = objects.iter().filter_map(|object| object["path"].as_str());
            let reserved = paths.filter_map(|path| self.site.nsx.allocated_address(path));
            before.extend(reserved.map(|address| address.to_string()));
        }
        // Monitor and pool are written first.
        let is_past = |point: &&Point| point.at.is_some_and(|(n, _)| n > 3);
        let is_new = |point: &&Point| point.case.work.is_new() && point.case.made == Made::Here;
        for point in self.points.iter().filter(is_past).filter(is_new) {
            assert!(!self.before[&point.name()].is_empty(), "{point:?}: its address is reserved");
        }
    }

    /// Waits until the state is final for this process and for the Go program.
    async fn wait_until_settled(&mut self) {
        self.process.wait_until_ensured(self.living()).await;
        for point in self.points.iter().filter(|point| point.case.work == Work::Delete) {
            self.site.wait_until_gone(&point.name(), &self.process).await;
        }
        let left = self.half_made();
        eventually("the Go program can go on with all", LIMIT, async || match self.site.handed_back(&left).await {
            none if none.is_empty() => Ok(()),
            some => Err(format!("{some:#?}\n{}", self.process.daemon.output().tail(30))),
        })
        .await;
        self.process.wait_until_held(HELD * left.len()).await;
    }

    /// Waits until each new load balancer has its virtual servers, which are created last, and its Service has the
    /// address. The metric is not sufficient, because it also counts load balancers that will be deleted.
    async fn wait_until_created(&self) {
        eventually("the new load balancers are created", LIMIT, async || {
            let ends = self.ends().await;
            let is_open = |point: &&Point| {
                let (end, ports) = (&ends[&point.name()], point.case.work.ports().len());
                end.addresses == 0 || end.objects.get("lb-virtual-servers") != Some(&ports)
            };
            let new = self.points.iter().filter(|point| point.case.work.is_new());
            match new.filter(is_open).collect::<Vec<_>>() {
                none if none.is_empty() => Ok(()),
                some => Err(format!("{some:?}\n{}", self.process.daemon.output().tail(30))),
            }
        })
        .await;
    }
}

/// Runs each case without an interruption.
async fn wholes(knows_uid: bool) -> BTreeMap<Case, Whole> {
    let points = Case::all().map(|case| Point { case, at: None }).collect();
    let mut round = Round::prepare(points, knows_uid).await;
    let seen = round.site.nsx.history().len();
    round.act().await;
    round.wait_until_created().await;
    round.wait_until_settled().await;
    let (history, mut ends) = (round.site.nsx.history(), round.ends().await);
    round.process.stop().await;
    let whole = |point: &Point| {
        let writes = writes(&history, seen, &round.site.key(&point.name()));
        assert!(writes >= point.case.work.least(), "{point:?}: {writes} writes");
        (point.case, Whole { writes, end: ends.remove(&point.name()).unwrap() })
    };
    round.points.iter().map(whole).collect()
}

/// Counts the requests for a Service after the first `seen` versions.
fn writes(history: &[ObjectVersion], seen: usize, service: &str) -> u32 {
    let names = |version: &&ObjectVersion| {
        version.object.as_ref().is_some_and(|object| tag(object, SERVICE).as_deref() == Some(service))
    };
    let paths: BTreeSet<&str> = history.iter().filter(names).map(|version| version.path.as_str()).collect();
    let written = history[seen..].iter().filter(|version| paths.contains(version.path.as_str()));
    let requests: BTreeSet<u64> = written.filter_map(|version| version.request).collect();
    u32::try_from(requests.len()).unwrap()
}

/// Kills the process while each Service is at its write.
async fn killed(points: Vec<Point>, knows_uid: bool, wholes: &BTreeMap<Case, Whole>) {
    let mut round = Round::prepare(points, knows_uid).await;
    let lb_services = round.site.lb_services().len();
    let hold = |point: &Point| {
        let (n, side) = point.at.unwrap();
        round.site.nsx.hold_service(&round.site.key(&point.name()), n, side)
    };
    let holds: Vec<Hold> = round.points.iter().map(hold).collect();
    round.act().await;
    join_all(holds.iter().map(Hold::wait)).await;
    let dead = kill(&mut round.process).await;
    round.note_reserved();

    round.process = round.site.start(&[]);
    let differences = async |round: &Round| -> Vec<String> {
        let ends = round.ends().await;
        let different = round.points.iter().filter(|point| ends[&point.name()] != wholes[&point.case].end);
        different
            .map(|point| format!("{point:?}: {:?}, expected {:?}", ends[&point.name()], wholes[&point.case].end))
            .collect()
    };
    eventually("all ends are those of uninterrupted Services", LIMIT, async || match differences(&round).await {
        none if none.is_empty() => Ok(()),
        some => Err(format!("{some:#?}\n{}", round.process.daemon.output().tail(40))),
    })
    .await;
    round.wait_until_settled().await;
    // The pending requests of the dead process arrive.
    holds.into_iter().for_each(Hold::release);
    round.site.wait_for_requests_of(&dead).await;
    assert_eq!(differences(&round).await, Vec::<String>::new(), "after late writes");
    assert_eq!(round.site.handed_back(&round.half_made()).await, Vec::<String>::new(), "after late writes");
    assert_eq!(round.site.lb_services().len(), lb_services, "no other load balancer service is made");
    round.process.stop().await;
}

/// Kills the process, and returns its account.
async fn kill(process: &mut Process) -> String {
    process.daemon.kill().await;
    process.account.clone()
}

async fn killed_at_every_write(knows_uid: bool) {
    let wholes = wholes(knows_uid).await;
    let points = wholes.iter().flat_map(|(case, whole)| {
        let moments = (1..=whole.writes).flat_map(|n| [Side::Request, Side::Answer].map(|side| (n, side)));
        moments.map(|at| Point { case: *case, at: Some(at) })
    });
    let points: Vec<Point> = points.collect();
    println!(
        "killed at {} writes: {:?}",
        points.len(),
        wholes.iter().map(|(case, whole)| (case, whole.writes)).collect::<Vec<_>>()
    );
    // Each round has some points of all cases.
    let rounds = points.len().div_ceil(AT_ONCE);
    let round = |number: usize| points.iter().skip(number).step_by(rounds).copied().collect();
    join_all((0..rounds).map(|number| killed(round(number), knows_uid, &wholes))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_at_any_write_is_followed_by_one_that_ends_the_work() {
    killed_at_every_write(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_at_any_write_without_a_uid_is_followed_by_one_that_ends_the_work() {
    killed_at_every_write(false).await;
}

/// The load balancer service belongs to no single Service. It is created with the first Service and deleted with the
/// last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_at_the_write_of_the_load_balancer_service_leaves_one_or_none() {
    let cases = [true, false].into_iter().flat_map(|uid| [Side::Request, Side::Answer].map(|side| (uid, side)));
    join_all(cases.map(|(knows_uid, side)| first_and_last(knows_uid, side))).await;
}

async fn first_and_last(knows_uid: bool, side: Side) {
    let what = format!("{knows_uid} {side:?}");
    let mut site = Site::alone(knows_uid, 0..NODES).await;
    let hold = site.nsx.hold_operation("PUT lb-services", 1, side);
    let mut process = site.start(&[]);
    site.create("s", &[("TCP", 80)]).await;
    site.select("s").await;
    hold.wait().await;
    let dead = kill(&mut process).await;
    process = site.start(&[]);
    let address = site.wait_for_address("s", &process).await;
    process.wait_until_ensured(1).await;
    hold.release();
    site.wait_for_requests_of(&dead).await;
    assert_eq!(site.lb_services().len(), 1, "{what}");
    assert_eq!(site.handed_back(&BTreeSet::new()).await, Vec::<String>::new(), "{what}");
    assert_eq!(site.wait_for_address("s", &process).await, address, "{what}");

    let hold = knows_uid.then(|| site.nsx.hold_operation("DELETE lb-services", 1, side));
    site.services.delete("s", &DeleteParams::default()).await.unwrap();
    if let Some(hold) = hold {
        hold.wait().await;
        let dead = kill(&mut process).await;
        process = site.start(&[]);
        site.wait_until_gone("s", &process).await;
        hold.release();
        site.wait_for_requests_of(&dead).await;
    }
    site.wait_until_gone("s", &process).await;
    // Without the UID the daemon has no evidence that it may delete the load balancer service.
    assert_eq!(site.lb_services().len(), usize::from(!knows_uid), "{what}");
    assert_eq!(site.objects_of("s"), Vec::<Value>::new(), "{what}");
    process.stop().await;
}

/// The daemon writes the pools of all Services with one request, or one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_killed_while_nodes_change_is_followed_by_one_that_gives_all_pools_their_members() {
    let writes =
        [("PATCH infra", 1), ("PUT lb-pools", 1), ("PUT lb-pools", 2), ("PUT lb-pools", 3), ("PUT lb-pools", 4)];
    let moments = writes.into_iter().flat_map(|write| [(write, Side::Request), (write, Side::Answer)]);
    let cases = moments.flat_map(|moment| [(moment, true), (moment, false)]);
    join_all(cases.map(|(((operation, n), side), knows_uid)| nodes_change((operation, n, side), knows_uid))).await;
}

async fn nodes_change((operation, n, side): (&str, u32, Side), knows_uid: bool) {
    const SERVICES: [&str; 4] = ["here-1", "here-2", "by-go-1", "by-go-2"];
    let what = format!("{operation} {n} {side:?} {knows_uid}");
    let flags: &[&str] = if operation == "PATCH infra" { &[] } else { &["--nsx-batch-updates=false"] };
    let mut site = Site::alone(knows_uid, 0..NODES).await;
    for (index, name) in SERVICES.into_iter().enumerate() {
        let service = site.create(name, &[("TCP", 80)]).await;
        if name.starts_with("by-go") {
            let address: IpAddr = [192, 0, 2, 60 + u8::try_from(index).unwrap()].into();
            site.of_go(&service, address, 0..NODES).put(&site.nsx, GO);
            site.leave_by_go(name, Some(address)).await;
        }
        site.select(name).await;
    }
    let mut process = site.start(flags);
    process.wait_until_ensured(SERVICES.len()).await;
    let before = site.selected().await;
    let hold = site.nsx.hold_operation(operation, n, side);
    tokio::join!(site.exclude(1, true), site.join(NODES));
    hold.wait().await;
    let dead = kill(&mut process).await;

    process = site.start(flags);
    process.wait_until_ensured(SERVICES.len()).await;
    let expected: BTreeSet<String> = [ip(0), ip(NODES)].into();
    let are_members = |site: &Site| {
        let objects = SERVICES.iter().flat_map(|name| site.objects_of(name));
        let pools: Vec<_> = objects.filter(|object| object["resource_type"] == "LBPool").collect();
        let wrong: Vec<_> = pools.iter().map(pools::members).filter(|members| *members != expected).collect();
        if pools.len() == SERVICES.len() && wrong.is_empty() { Ok(()) } else { Err(format!("{what}: {wrong:?}")) }
    };
    eventually("all pools have the members of now", LIMIT, async || are_members(&site)).await;
    assert_eq!(site.handed_back(&BTreeSet::new()).await, Vec::<String>::new(), "{what}");
    // NSX rejects a batch with old revisions.
    let seen = site.nsx.history().len();
    hold.release();
    site.wait_for_requests_of(&dead).await;
    assert_eq!(site.written_since(seen), [], "{what}: a late write");
    assert_eq!(are_members(&site), Ok(()));
    process.wait_until_held(0).await;
    let reported = |services: &BTreeMap<String, Service>| -> Vec<String> {
        services.values().flat_map(addresses).map(str::to_owned).collect()
    };
    assert_eq!(reported(&site.selected().await), reported(&before), "{what}");
    process.stop().await;
}
