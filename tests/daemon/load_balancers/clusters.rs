//! Two clusters with the same name on one manager, each with its own API server. Neither writes objects of the other.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::future::join_all;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use support::fake_nsx::ObjectVersion;
use support::{ApiServer, Clock, eventually, unique};

use super::site::{LIMIT, Process, Setup, Site, manager, on_gateway, server};
use crate::invariants::nsx::load_balancers::pools;

/// The default name of a cluster.
const DEFAULT: &str = "kubernetes";
/// Number of Nodes of each cluster. Both clusters use the same addresses.
const NODES: usize = 3;
/// Prefixes of the clusters' accounts in NSX.
const ACCOUNTS: [&str; 2] = ["one", "other"];
/// Name of a Service of both clusters, and name of a Service that the second cluster loses without its load balancer.
const LASTING: &str = "s";
const LOST: &str = "lost";
/// Times in seconds. The daemon deletes an unused object after two passes that are ten minutes apart. It reads all
/// objects again after half an hour in any case.
const TEN_MINUTES: u32 = 601;
const HALF_AN_HOUR: u32 = 1801;

/// Returns the prefix of an account, which is its site.
fn cluster_of(account: &str) -> Option<&'static str> {
    ACCOUNTS.into_iter().find(|site| account.split('-').next() == Some(site))
}

/// Returns the first write to an object that the other cluster created.
fn breach(history: &[ObjectVersion]) -> Option<String> {
    let mut owners = BTreeMap::new();
    for version in history {
        let Some(writer) = cluster_of(&version.user) else { continue };
        let owner = *owners.entry(version.path.as_str()).or_insert(writer);
        if owner != writer {
            return Some(format!("{} wrote {}, which {owner} made: {:?}", version.user, version.path, version.object));
        }
    }
    None
}

struct Pair {
    one: Site,
    other: Site,
    what: String,
}

impl Pair {
    async fn new(servers: [&ApiServer; 2], gateways: [&str; 2], knows_uid: [bool; 2]) -> Self {
        let nsx = manager(&ACCOUNTS).await;
        let namespace = unique("clusters");
        let site = async |number: usize| {
            let setup = Setup {
                account: ACCOUNTS[number],
                cluster: Some(DEFAULT.to_owned()),
                namespace: Some(namespace.clone()),
                knows_uid: knows_uid[number],
                sections: on_gateway(gateways[number]),
            };
            Site::new(servers[number], nsx.clone(), setup, 0..NODES).await
        };
        let (one, other) = tokio::join!(site(0), site(1));
        Self { one, other, what: format!("{gateways:?} {knows_uid:?}") }
    }

    fn check(&self) {
        assert_eq!(breach(&self.one.nsx.history()), None, "{}", self.what);
    }

    /// Returns the paths of the existing objects that accounts of this site created.
    fn paths_of(&self, site: &'static str) -> BTreeSet<String> {
        let is_one = |object: &Value| {
            let maker = object["_create_user"].as_str().and_then(cluster_of);
            maker == Some(site) && object["marked_for_delete"] != json!(true)
        };
        let objects = self.one.nsx.objects();
        objects
            .iter()
            .filter(|object| is_one(object))
            .map(|object| object["path"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until the pools of a Service of one site have this many members.
    async fn wait_for_members(&self, site: &'static str, count: usize, process: &Process) {
        eventually(&format!("{}: the pools of {site} have {count} members", self.what), LIMIT, async || {
            let paths = self.paths_of(site);
            let of_site = |object: &&Value| paths.contains(object["path"].as_str().unwrap());
            let all: Vec<Value> = self.one.nsx.objects_below("/infra/lb-pools");
            let counts: Vec<usize> = all.iter().filter(of_site).map(|pool| pools::members(pool).len()).collect();
            match !counts.is_empty() && counts.iter().all(|found| *found == count) {
                true => Ok(()),
                false => Err(format!("{counts:?}\n{}", process.daemon.output().tail(30))),
            }
        })
        .await;
    }
}

/// Creates Services with both names, and returns their addresses.
async fn create(site: &Site, process: &Process) -> BTreeSet<IpAddr> {
    let mut addresses = BTreeSet::new();
    for name in [LASTING, LOST] {
        site.create(name, &[("TCP", 80)]).await;
        site.select(name).await;
        addresses.insert(site.wait_for_address(name, process).await);
    }
    addresses
}

/// The second cluster creates, changes, loses and deletes Services while the first one has Services with the same
/// names. Then the first cluster does the same.
async fn live_beside_each_other(mut pair: Pair, knows_uid: bool) {
    let what = pair.what.clone();
    let mut first = pair.one.start(&[]);
    let of_one = create(&pair.one, &first).await;
    let mut second = pair.other.start(&[]);
    let of_other = create(&pair.other, &second).await;
    assert!(of_one.is_disjoint(&of_other), "{what}: each has its own addresses");
    pair.check();

    // Changes of ports and Nodes.
    pair.other.set_ports(LASTING, &[("TCP", 81, None), ("UDP", 80, None)]).await;
    pair.wait_for_ports(&["80", "81"], &second).await;
    pair.other.exclude(1, true).await;
    pair.wait_for_members("other", NODES - 1, &second).await;
    pair.wait_for_members("one", NODES, &first).await;
    pair.one.exclude(2, true).await;
    pair.one.exclude(1, true).await;
    pair.wait_for_members("one", NODES - 2, &first).await;
    pair.wait_for_members("other", NODES - 1, &second).await;
    pair.check();

    // The second cluster loses a Service while none of its processes runs.
    second.stop().await;
    pair.other.services.delete(LOST, &DeleteParams::default()).await.unwrap();
    pair.other.patch(LOST, json!({"metadata": {"finalizers": null}})).await;
    let (left, kept) = (pair.other_objects_of(LOST), pair.paths_of("one"));
    let clock = Clock::new(pair.other.cluster.folder());
    second = pair.other.start_in(&clock.environment(), &[]);
    second.wait_until_ensured(1).await;
    pair.clean_up(&left, knows_uid, &clock, &second).await;
    assert_eq!(pair.paths_of("one"), kept, "{what}");
    pair.check();

    // The Service [`LASTING`] of the second cluster is deleted, and then both Services of the first cluster.
    pair.other.services.delete(LASTING, &DeleteParams::default()).await.unwrap();
    pair.other.wait_until_gone(LASTING, &second).await;
    assert_eq!(pair.paths_of("one"), kept, "{what}");
    second.stop().await;
    let stays = pair.paths_of("other");
    let seen = pair.one.nsx.history().len();
    first.stop().await;
    first = pair.one.start(&[]);
    first.wait_until_ensured(2).await;
    assert_eq!(pair.one.nsx.written_from(seen), [], "{what}: the first one finds all of its own");
    for name in [LASTING, LOST] {
        pair.one.services.delete(name, &DeleteParams::default()).await.unwrap();
    }
    for name in [LASTING, LOST] {
        pair.one.wait_until_gone(name, &first).await;
    }
    let of_services = |paths: BTreeSet<String>| -> Vec<String> {
        paths.into_iter().filter(|path| !path.contains("/lb-services/")).collect()
    };
    assert_eq!(of_services(pair.paths_of("one")), Vec::<String>::new(), "{what}");
    assert_eq!(pair.paths_of("other"), stays, "{what}");
    assert_eq!(of_services(stays), if knows_uid { Vec::new() } else { left.into_iter().collect() }, "{what}");
    pair.check();
    first.stop().await;
}

impl Pair {
    /// Returns the paths of the existing objects that the second cluster created for a Service.
    fn other_objects_of(&self, name: &str) -> BTreeSet<String> {
        let objects = self.other.objects_of(name);
        let paths: BTreeSet<String> =
            objects.iter().map(|object| object["path"].as_str().unwrap().to_owned()).collect();
        paths.intersection(&self.paths_of("other")).cloned().collect()
    }

    /// Waits until the second cluster serves exactly these ports of [`LASTING`].
    async fn wait_for_ports(&self, expected: &[&str], process: &Process) {
        eventually(&format!("{}: the ports are {expected:?}", self.what), LIMIT, async || {
            let paths = self.other_objects_of(LASTING);
            let servers = paths.iter().filter(|path| path.contains("/lb-virtual-servers/"));
            // A virtual server may be deleted in the meantime.
            let mut ports: Vec<_> = servers
                .filter_map(|path| self.other.nsx.object(path))
                .map(|server| server["ports"][0].clone())
                .collect();
            ports.sort_by_key(Value::to_string);
            match ports == expected {
                true => Ok(()),
                false => Err(format!("{ports:?}\n{}", process.daemon.output().tail(30))),
            }
        })
        .await;
    }

    /// Checks the deletion of unused objects. With the UID the second pass deletes them. Without the UID the daemon has
    /// no evidence that it may.
    async fn clean_up(&self, left: &BTreeSet<String>, knows_uid: bool, clock: &Clock, process: &Process) {
        assert_eq!(left.len(), 4, "{}: {left:?}", self.what);
        let account = process.account.clone();
        let readings = || self.one.nsx.counts().of_user(&account, "LIST lb-virtual-servers");
        let time = if knows_uid { TEN_MINUTES } else { HALF_AN_HOUR };
        let what = format!("{}: what is left over is deleted, or listed again", self.what);
        for time in [time, 2 * time] {
            let before = readings();
            clock.pass(time);
            eventually(&what, LIMIT, async || {
                process.wake().await;
                let remaining = self.other_objects_of(LOST);
                match if knows_uid { remaining.is_empty() } else { readings() > before } {
                    true => Ok(()),
                    false => Err(format!("{remaining:?}\n{}", process.daemon.output().tail(30))),
                }
            })
            .await;
        }
        if !knows_uid {
            assert_eq!(self.other_objects_of(LOST), *left, "{}", self.what);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clusters_of_one_name_write_nothing_of_each_other() {
    let (one, other) = tokio::join!(server(), ApiServer::start());
    let cases = [["t1", "t2"], ["t1", "t1"]].into_iter().flat_map(|gateways| {
        [[true, true], [true, false], [false, true], [false, false]].map(|knows_uid| (gateways, knows_uid))
    });
    join_all(cases.map(async |(gateways, knows_uid)| {
        let pair = Pair::new([one, &other], gateways, knows_uid).await;
        live_beside_each_other(pair, knows_uid[1]).await;
    }))
    .await;
}

#[test]
fn a_write_to_an_object_of_the_other_cluster_is_a_breach() {
    let version = |user: &str, path: &str, object: Option<Value>| ObjectVersion {
        at: std::time::Instant::now(),
        user: user.to_owned(),
        request: Some(0),
        path: path.to_owned(),
        object,
    };
    let made = [version("one-0", "/a", Some(json!({}))), version("other-0", "/b", Some(json!({})))];
    let own = [version("one-1", "/a", None), version("other-1", "/b", Some(json!({})))];
    assert_eq!(breach(&[&made[..], &own[..]].concat()), None);
    for foreign in [version("one-1", "/b", None), version("other-2", "/a", Some(json!({})))] {
        let found = breach(&[&made[..], std::slice::from_ref(&foreign)].concat());
        assert!(found.is_some_and(|breach| breach.contains(&foreign.path)), "{foreign:?}");
    }
}
