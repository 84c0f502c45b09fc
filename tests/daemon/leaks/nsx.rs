//! The NSX of the test: objects of other owners, faults, and manual changes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::eventually;
use support::fake_nsx::go::GoBalancer;
use support::fake_nsx::{FakeNsx, Model, Realization, Substitute, Trouble};

use super::action::{Action, ByHand, CLASSES, Fault};
use super::{NODES, RECOVERY};
use crate::cluster::ip;
use crate::invariants::nsx::load_balancers::{Cluster, Kind};
use crate::services::{exhaust, nsx_section, section, with_addresses};

/// Password of every account.
pub const PASSWORD: &str = "Correct-Horse-7";
/// User name of the administrator.
const OPERATOR: &str = "operator";
/// One address pool for each class of the configuration.
const POOLS: [(&str, &str); 2] = [("p9", "198.51.100"), ("p8", "203.0.113")];
/// Number of addresses of each pool: enough for all Services, and few enough that addresses are reused.
const ADDRESSES: usize = 16;
/// A node port that no Service has.
const WRONG_NODE_PORT: u16 = 31_999;
/// The daemon treats an object as deleted if two consecutive lists lack it. This interval permits a complete list
/// between two incomplete ones.
const BETWEEN_INCOMPLETE: Duration = Duration::from_secs(30);

/// Returns a manager with these accounts, and with pools whose released addresses are soon available again.
pub fn model(accounts: impl Iterator<Item = String>) -> Model {
    let with_pool = |model, (id, network): &(&str, &str)| with_addresses(model, id, network, ADDRESSES);
    let model = POOLS.iter().fold(Model::small().tier1("t2"), with_pool);
    accounts.fold(model, |model, account| model.user(&account, PASSWORD))
}

/// Returns the sections of `vsphere.conf`, with the classes `default` and `web`.
pub fn sections(nsx: &FakeNsx, ca_file: &std::path::Path, account: &str, password: &str) -> String {
    format!(
        "{}{}[LoadBalancerClass \"{}\"]\nip-pool-id = {}\n",
        nsx_section(nsx, ca_file, account, password),
        section(POOLS[0].0, "MEDIUM"),
        CLASSES[1],
        POOLS[1].0,
    )
}

/// Creates load balancers for Services with the same names: of another cluster, of another cluster with the same name,
/// and of an unknown cluster with that name and with the Nodes of this one. All are on another gateway.
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
    // Objects of an administrator, without tags.
    nsx.put_by_hand(OPERATOR, "/infra/lb-pools/by-hand", json!({"members": [{"ip_address": ip(0)}]}));
    nsx.put_by_hand(OPERATOR, "/infra/lb-monitor-profiles/by-hand", json!({"resource_type": "LBTcpMonitorProfile"}));
}

/// Executor of faults and manual changes.
pub struct Operator {
    last_incomplete: Option<Instant>,
    cluster: Cluster,
}

impl Operator {
    /// Creates an operator that has caused no fault.
    pub fn new(cluster: Cluster) -> Self {
        Self { last_incomplete: None, cluster }
    }

    /// Executes the action. Returns false if it did not apply.
    pub async fn act(&mut self, nsx: &FakeNsx, action: &Action) -> bool {
        match *action {
            Action::ByHand(what, number) => return self.by_hand(nsx, what, number),
            Action::Exhaust(is_on) => exhaust_all(nsx, is_on),
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
            Action::Sever => nsx.sever(),
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
        nsx.sever();
        nsx.resume_listening().await;
        nsx.delay_calls(Duration::ZERO);
        nsx.set_realization("ip-allocations", Realization::After(Duration::from_millis(100)));
        exhaust_all(nsx, false);
    }

    /// Waits until no pool has released addresses that are still reserved. Otherwise there may be too few free
    /// addresses for all waiting Services, and Services without an address retry only after five minutes.
    pub async fn until_addresses_are_free(&self, nsx: &FakeNsx) {
        for (id, _) in POOLS {
            eventually(&format!("all addresses of the pool {id} are free or in use"), RECOVERY, async || {
                let pool = nsx.object(&format!("/infra/ip-pools/{id}")).unwrap();
                let usage = &pool["pool_usage"];
                let count = |name: &str| usage[name].as_u64().unwrap();
                let is_free = count("available_ips") + count("allocated_ip_allocations") == count("total_ips");
                if is_free && count("available_ips") > 0 { Ok(()) } else { Err(usage.clone()) }
            })
            .await;
        }
    }

    fn by_hand(&self, nsx: &FakeNsx, what: ByHand, number: usize) -> bool {
        let kind = match what {
            ByHand::RemoveMember | ByHand::RemoveMembers | ByHand::DeletePool => Kind::Pool,
            ByHand::DeleteServer | ByHand::Disable | ByHand::RenumberServer => Kind::Server,
            ByHand::DeleteMonitor | ByHand::RenumberMonitor => Kind::Monitor,
            ByHand::DeleteGroup | ByHand::EditGroup => Kind::Group,
            ByHand::DeleteProfile | ByHand::EditProfile => Kind::Profile,
        };
        let is_own = |object: &Value| self.cluster.owns(object) && object["marked_for_delete"] != json!(true);
        let own: Vec<Value> = nsx.objects().into_iter().filter(is_own).collect();
        let paths = own.iter().filter_map(|object| object["path"].as_str()).filter(|path| Kind::of(path) == Some(kind));
        let paths: Vec<&str> = paths.collect();
        let Some(path) = paths.get(number % paths.len().max(1)) else { return false };
        let edit = |member: &str, value: Value| {
            nsx.change_by_hand(OPERATOR, path, |object| object[member] = value);
            true
        };
        match what {
            ByHand::RemoveMember => nsx.remove_member_by_hand(OPERATOR, path, ip(number % NODES.end).parse().unwrap()),
            ByHand::RemoveMembers => edit("members", json!([])),
            ByHand::DeleteServer => nsx.delete_by_hand(OPERATOR, path),
            ByHand::DeletePool | ByHand::DeleteMonitor | ByHand::DeleteGroup | ByHand::DeleteProfile => {
                nsx.force_delete_by_hand(OPERATOR, path)
            }
            ByHand::Disable => nsx.enable_by_hand(OPERATOR, path, false),
            ByHand::RenumberServer => edit("default_pool_member_ports", json!([WRONG_NODE_PORT.to_string()])),
            ByHand::RenumberMonitor => edit("monitor_port", json!(WRONG_NODE_PORT)),
            ByHand::EditGroup => {
                let networks = json!({"resource_type": "IPAddressExpression", "ip_addresses": ["172.16.0.0/12"]});
                edit("expression", json!([networks]))
            }
            ByHand::EditProfile => edit("timeout", json!(77)),
        }
    }
}

fn exhaust_all(nsx: &FakeNsx, is_on: bool) {
    POOLS.iter().for_each(|(id, _)| exhaust(nsx, OPERATOR, (id, ADDRESSES), is_on));
}

fn trouble(fault: Fault) -> Trouble {
    let instead = |substitute: Substitute| substitute.into();
    match fault {
        Fault::Throttled => instead(Trouble::throttled()),
        Fault::Overloaded => instead(Trouble::overloaded()),
        Fault::Unavailable => instead(Trouble::unavailable()),
        Fault::Portal => instead(Trouble::portal()),
        Fault::Hang => Trouble::Hang,
        Fault::Aborted => instead(Trouble::aborted()),
        Fault::Conflict => instead(Trouble::conflict()),
        Fault::Expired => Trouble::EndSession,
        Fault::Lost => Trouble::Lose,
        Fault::Dropped => Trouble::Drop,
        Fault::Cut => Trouble::Cut(10),
        Fault::Late => Trouble::Late(Duration::from_millis(1500)),
        Fault::Incomplete => Trouble::Rewrite(without_one),
    }
}

/// Removes one object from the middle of a list answer.
fn without_one(text: &str) -> String {
    let Ok(mut answer) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    if let Some(results) = answer["results"].as_array_mut().filter(|results| !results.is_empty()) {
        results.remove(results.len() / 2);
    }
    answer.to_string()
}
