//! The vCenter of a benchmark with machines `n-1`, `n-2` and so on, which are on tagged hosts: the simulator, or the fake.
//!
//! The simulator answers any client of vCenter; it needs long for many machines. The fake answers ours only, as real
//! servers do, and has 5,000 in no time.

use std::time::Duration;

use support::measure::model;
use support::measure::steady_state::settled;
use support::{FakeVcenter, Model, Object, Scenario, Vcenter, VcenterServer, Vm};

/// Hosts that machines are on, in turn in the simulator, and may move to.
pub const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Simulator,
    Fake,
}

/// With so many machines.
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

/// Waits until it was asked nothing for so long, all waits being pending, or for `at_most`: a subject that polls may
/// never be quiet.
pub async fn until_quiet(vcenter: &dyn VcenterServer, quiet: Duration, at_most: Duration) {
    settled(quiet, at_most, async || u64::from(vcenter.counts().await.total)).await;
}

/// The name of the machine with this number.
pub fn name(number: usize) -> String {
    format!("n-{number}")
}

/// An address for a machine, below `10.<network>`.
pub fn address(network: u8, number: usize) -> String {
    format!("10.{network}.{}.{}", number / 250, number % 250 + 1)
}
