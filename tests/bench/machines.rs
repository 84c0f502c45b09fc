//! The vCenter of a benchmark with machines `n-1`, `n-2` and so on, on tagged hosts: the simulator or the fake.
//!
//! The simulator supports any client of vCenter, and is slow with many machines. The fake supports this program's
//! client only. It has the speed of real servers and creates 5,000 machines quickly.

use std::time::Duration;

use support::measure::model;
use support::measure::steady_state::settled;
use support::{FakeVcenter, Model, Object, Scenario, Vcenter, VcenterServer, Vm};

/// Hosts of machines. The simulator distributes machines over them in turn, and machines may move to them.
pub const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];

/// Kind of the vCenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Simulator,
    Fake,
}

/// Starts a vCenter with this many machines.
pub async fn start(kind: Kind, count: usize) -> Box<dyn VcenterServer> {
    match kind {
        Kind::Fake => Box::new(FakeVcenter::start(model(count)).await),
        Kind::Simulator => {
            let zones = HOSTS.map(Object::host);
            let mut scenario = Scenario::small().tag("k8s-zone", "zone-a", zones);
            scenario = scenario.tag("k8s-region", "region-1", [Object::datacenter("dc-1")]);
            for number in 1..=count {
                let host = HOSTS[number % HOSTS.len()];
                let vm = Vm::new(&name(number), &Model::uuid(number)).host(host);
                scenario = scenario.vm(vm.ip(&address(10, number)));
            }
            Box::new(Vcenter::start(&scenario).await)
        }
    }
}

/// Waits until vCenter got no call for this time, with all waits pending, or at most for `at_most`. A subject that
/// polls may never be quiet.
pub async fn until_quiet(vcenter: &dyn VcenterServer, quiet: Duration, at_most: Duration) {
    settled(quiet, at_most, async || u64::from(vcenter.counts().await.total)).await;
}

/// Returns the name of the machine with this number.
pub fn name(number: usize) -> String {
    format!("n-{number}")
}

/// Returns an address for a machine, below `10.<network>`.
pub fn address(network: u8, number: usize) -> String {
    format!("10.{network}.{}.{}", number / 250, number % 250 + 1)
}
