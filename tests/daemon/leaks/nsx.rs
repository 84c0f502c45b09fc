//! The NSX of the test: what others have in it, its faults, and what an administrator does by hand.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{FakeNsx, Model, Realization, Substitute, Trouble};

use super::action::{Action, ByHand, Fault};
use crate::cluster::ip;
use crate::judge::nsx::load_balancers::{Cluster, Kind};

/// Of every account.
pub const PASSWORD: &str = "Correct-Horse-7";
/// The administrator.
const OPERATOR: &str = "operator";
const POOL: &str = "/infra/ip-pools/p9";
/// More than all Services need, and few enough to be used again.
const ADDRESSES: usize = 20;
/// Two lists in a row that miss the same object mean that it is gone: between two incomplete ones there is a complete one.
const BETWEEN_INCOMPLETE: Duration = Duration::from_secs(30);

/// A manager with these accounts, and a pool whose released addresses are soon used again.
pub fn model(accounts: impl Iterator<Item = String>) -> Model {
    let ranges = json!([{"start": "198.51.100.1", "end": format!("198.51.100.{ADDRESSES}")}]);
    let subnet = json!({
        "resource_type": "IpAddressPoolStaticSubnet", "cidr": "198.51.100.0/24", "allocation_ranges": ranges,
    });
    let pool = json!({"display_name": "pool9", "ip_release_delay": 500});
    let model = Model::small().tier1("t2").object(POOL, pool).object(&format!("{POOL}/ip-subnets/s1"), subnet);
    accounts.fold(model, |model, account| model.user(&account, PASSWORD))
}

/// The sections of `vsphere.conf`.
pub fn sections(nsx: &FakeNsx, ca_file: &std::path::Path, account: &str) -> String {
    format!(
        "[NSXT]\nhost = \"{}\"\nuser = \"{account}\"\npassword = \"{PASSWORD}\"\nca-file = \"{}\"\n\
         [LoadBalancer]\nsize = MEDIUM\ntier1-gateway-path = /infra/tier-1s/t1\nip-pool-id = p9\n\
         tcp-app-profile-path = /infra/lb-app-profiles/default-tcp-lb-app-profile\n\
         udp-app-profile-path = /infra/lb-app-profiles/default-udp-lb-app-profile\n",
        nsx.address(),
        ca_file.display()
    )
}

/// Load balancers for Services of the same names: of another cluster, of another cluster with the same name, and of an unknown
/// cluster with that name, with the Nodes of this one. All are on another gateway.
pub fn put_foreign(nsx: &FakeNsx, cluster: &Cluster, namespace: &str) {
    let on_other_gateway = |mut balancer: GoBalancer| {
        balancer.tier1_path = "/infra/tier-1s/t2".to_owned();
        drop(balancer.put(nsx, OPERATOR));
    };
    let of = |cluster: &str, service: &str, last: u8| {
        GoBalancer::new(cluster, &format!("{namespace}/{service}"), [192, 0, 2, last].into())
    };
    on_other_gateway(of("another", "s-0", 90));
    let mut copy = of(&cluster.name, "s-0", 91);
    copy.tags.insert("cluster-uid".to_owned(), "of-another".to_owned());
    on_other_gateway(copy);
    let nodes = [0, 1].map(|number| (format!("n-{number}"), ip(number).parse().unwrap()));
    for (service, last) in [("s-1", 92), ("s-5", 93)] {
        let held = of(&cluster.name, service, last);
        on_other_gateway(held.nodes(&nodes.each_ref().map(|(name, address)| (name.as_str(), *address))));
    }
    // An administrator's own, without any tag.
    nsx.put_by_hand(OPERATOR, "/infra/lb-pools/by-hand", json!({"members": [{"ip_address": ip(0)}]}));
    nsx.put_by_hand(OPERATOR, "/infra/lb-monitor-profiles/by-hand", json!({"resource_type": "LBTcpMonitorProfile"}));
}

/// Makes faults and changes by hand happen.
pub struct Operator {
    last_incomplete: Option<Instant>,
    cluster: Cluster,
}

impl Operator {
    /// No fault yet.
    pub fn new(cluster: Cluster) -> Self {
        Self { last_incomplete: None, cluster }
    }

    /// Says whether there was something to do.
    pub async fn act(&mut self, nsx: &FakeNsx, action: &Action) -> bool {
        match *action {
            Action::ByHand(what, number) => return self.by_hand(nsx, what, number),
            Action::Exhaust(is_on) => exhaust(nsx, is_on),
            Action::Break(operation, Fault::Incomplete, _) => {
                if self.last_incomplete.is_some_and(|last| last.elapsed() < BETWEEN_INCOMPLETE) {
                    return false;
                }
                self.last_incomplete = Some(Instant::now());
                nsx.next(operation, Trouble::Rewrite(without_one));
            }
            Action::Break(operation, fault, times) => {
                for skip in 0..times {
                    nsx.next_after(operation, skip, trouble(fault));
                }
            }
            Action::EndSessions => nsx.kill_sessions(),
            Action::LateAddresses(milliseconds) => {
                let after = Realization::After(Duration::from_millis(milliseconds));
                nsx.set_realization("ip-allocations", after);
            }
            Action::Delay(milliseconds) => nsx.delay_calls(Duration::from_millis(milliseconds)),
            Action::Down(true) => nsx.stop_listening().await,
            Action::Down(false) => nsx.resume_listening().await,
            _ => return false,
        }
        true
    }

    /// Ends all faults.
    pub async fn repair(&self, nsx: &FakeNsx) {
        nsx.clear();
        nsx.resume_listening().await;
        nsx.delay_calls(Duration::ZERO);
        nsx.set_realization("ip-allocations", Realization::After(Duration::from_millis(100)));
        exhaust(nsx, false);
    }

    fn by_hand(&self, nsx: &FakeNsx, what: ByHand, number: usize) -> bool {
        let kind = match what {
            ByHand::RemoveMember | ByHand::RemoveMembers | ByHand::DeletePool => Kind::Pool,
            ByHand::DeleteServer | ByHand::Disable => Kind::Server,
            ByHand::DeleteMonitor => Kind::Monitor,
        };
        let own: Vec<Value> = nsx.objects().into_iter().filter(|object| self.cluster.owns(object)).collect();
        let paths = own.iter().filter_map(|object| object["path"].as_str()).filter(|path| Kind::of(path) == Some(kind));
        let paths: Vec<&str> = paths.collect();
        let Some(path) = paths.get(number % paths.len().max(1)) else { return false };
        let remove = |address: Vec<usize>| {
            address.into_iter().any(|number| nsx.remove_member_by_hand(OPERATOR, path, ip(number).parse().unwrap()))
        };
        match what {
            ByHand::RemoveMember => remove(vec![number % 7]),
            ByHand::RemoveMembers => remove((0..7).collect()),
            ByHand::DeleteServer => nsx.delete_by_hand(OPERATOR, path),
            ByHand::DeletePool | ByHand::DeleteMonitor => nsx.force_delete_by_hand(OPERATOR, path),
            ByHand::Disable => nsx.enable_by_hand(OPERATOR, path, false),
        }
    }
}

/// The addresses that allocations have, by path.
pub fn allocated(nsx: &FakeNsx, objects: &[Value]) -> BTreeMap<String, std::net::IpAddr> {
    let paths = objects.iter().filter_map(|object| object["path"].as_str());
    let allocations = paths.filter(|path| Kind::of(path) == Some(Kind::Allocation));
    allocations.filter_map(|path| Some((path.to_owned(), nsx.allocated_address(path)?))).collect()
}

fn exhaust(nsx: &FakeNsx, is_on: bool) {
    for number in 0..ADDRESSES {
        let path = format!("{POOL}/ip-allocations/taken-{number}");
        match is_on {
            true if nsx.object(&path).is_none() => nsx.put_by_hand(OPERATOR, &path, json!({})),
            true => {}
            false => drop(nsx.delete_by_hand(OPERATOR, &path)),
        }
    }
}

fn trouble(fault: Fault) -> Trouble {
    let instead = |substitute: Substitute| substitute.into();
    match fault {
        Fault::Throttled => instead(Trouble::throttled()),
        Fault::Overloaded => instead(Trouble::overloaded()),
        Fault::Aborted => instead(Trouble::aborted()),
        Fault::Conflict => instead(Trouble::conflict()),
        Fault::Expired => instead(Trouble::expired()),
        Fault::Lost => Trouble::Lose,
        Fault::Dropped => Trouble::Drop,
        Fault::Cut => Trouble::Cut(10),
        Fault::Late => Trouble::Late(Duration::from_millis(1500)),
        Fault::Incomplete => Trouble::Rewrite(without_one),
    }
}

/// The answer of a list without one object in the middle of it.
fn without_one(text: &str) -> String {
    let Ok(mut answer) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    if let Some(results) = answer["results"].as_array_mut().filter(|results| !results.is_empty()) {
        results.remove(results.len() / 2);
    }
    answer.to_string()
}
