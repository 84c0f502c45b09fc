//! The vCenter of a benchmark with machines `n-1`, `n-2` and so on, which are on tagged hosts: the simulator, or the fake.
//!
//! The simulator answers any client of vCenter; it needs long for many machines. The fake answers ours only, as real
//! servers do, and has 5,000 in no time.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use support::fake_vcenter::FakeCounts;
use support::measure::model;
use support::measure::settled::settled;
use support::process::Usage;
use support::{Counts, FakeVcenter, Model, Object, Scenario, Vcenter, Vm};

/// Hosts that machines are on, in turn in the simulator, and may move to.
pub const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Simulator,
    Fake,
}

/// See the file's header.
pub enum Machines {
    Simulator(Box<Vcenter>),
    Fake(Box<FakeVcenter>),
}

/// What vCenter was asked since the last [`Machines::reset_counts`].
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Calls by operation.
    pub operations: BTreeMap<String, u32>,
    /// Bytes of the bodies of requests.
    pub bytes_received: u64,
    /// Bytes of the bodies of answers.
    pub bytes_sent: u64,
    /// Calls that asked for another page, because the simulator truncated its answer before. It sends all objects anew
    /// whenever a ListView changes, which no real server does.
    pub pages: u32,
}

impl Asked {
    /// All calls.
    pub fn calls(&self) -> u32 {
        self.operations.values().sum()
    }
}

impl Machines {
    /// With so many machines.
    pub async fn start(kind: Kind, count: usize) -> Self {
        match kind {
            Kind::Fake => Self::Fake(Box::new(FakeVcenter::start(model(count)).await)),
            Kind::Simulator => {
                let zones = HOSTS.map(Object::host);
                let mut scenario = Scenario::small().tag("k8s-zone", "zone-a", zones);
                scenario = scenario.tag("k8s-region", "region-1", [Object::datacenter("dc-1")]);
                for number in 1..=count {
                    let host = HOSTS[number % HOSTS.len()];
                    let vm = Vm::new(&format!("n-{number}"), &Model::uuid(number)).host(host);
                    scenario = scenario.vm(vm.ip(&address(10, number)));
                }
                Self::Simulator(Box::new(Vcenter::start(&scenario).await))
            }
        }
    }

    /// A section of `vsphere.conf`; files that it names are written into the folder.
    pub fn ini_section(&self, name: &str, folder: &Path) -> String {
        match self {
            Self::Simulator(vcenter) => vcenter.ini_section(name, "dc-1"),
            Self::Fake(fake) => fake.ini_section(name, "", folder),
        }
    }

    /// The simulator, where that was asked for.
    pub fn simulator(&self) -> &Vcenter {
        match self {
            Self::Simulator(vcenter) => vcenter,
            Self::Fake(_) => panic!("this is no simulator"),
        }
    }

    /// Waits until it was asked nothing for so long, all waits being pending, or for `at_most`: a subject that polls may
    /// never be quiet.
    pub async fn until_quiet(&self, quiet: Duration, at_most: Duration) {
        settled(quiet, at_most, async || u64::from(self.asked().await.calls())).await;
    }

    /// SOAP logins that it has accepted since the last [`Machines::reset_counts`].
    pub async fn logins(&self) -> u32 {
        match self {
            Self::Simulator(vcenter) => vcenter.counts().await.soap_logins,
            Self::Fake(fake) => fake.counts().soap_logins,
        }
    }

    /// Serves each call so much later.
    pub async fn delay_calls(&self, time: Duration) {
        match self {
            Self::Simulator(vcenter) => vcenter.delay_calls(time).await,
            Self::Fake(fake) => fake.delay_calls(time),
        }
    }

    /// See [`Asked`].
    pub async fn asked(&self) -> Asked {
        match self {
            Self::Simulator(vcenter) => {
                let Counts { operations, bytes_received, bytes_sent, truncated, .. } = vcenter.counts().await;
                Asked { operations, bytes_received, bytes_sent, pages: truncated }
            }
            Self::Fake(fake) => {
                let FakeCounts { operations, bytes_received, bytes_sent, .. } = fake.counts();
                Asked { operations, bytes_received, bytes_sent, pages: 0 }
            }
        }
    }

    /// CPU time of vCenter so far; the fake is part of this process, so that this is the measuring process's.
    pub fn cpu(&self) -> Duration {
        let usage = match self {
            Self::Simulator(vcenter) => vcenter.usage(),
            Self::Fake(_) => Usage::of_this_process(),
        };
        usage.unwrap().cpu
    }

    /// Counts from nothing again.
    pub async fn reset_counts(&self) {
        match self {
            Self::Simulator(vcenter) => vcenter.reset_counts().await,
            Self::Fake(fake) => fake.reset_counts(),
        }
    }

    /// Gives the machine of this number this one address.
    pub async fn set_ip(&self, number: usize, address: &str) {
        let name = format!("n-{number}");
        match self {
            Self::Simulator(vcenter) => vcenter.set_ip(&name, address).await,
            Self::Fake(fake) => fake.change_vm(&name, |machine| machine.ip(address)),
        }
    }

    /// Switches it on or off.
    pub async fn set_power(&self, number: usize, is_on: bool) {
        let name = format!("n-{number}");
        match self {
            Self::Simulator(vcenter) => {
                let change = if is_on { Vm::change().powered_on() } else { Vm::change().powered_off() };
                vcenter.change_vm(&name, &change).await;
            }
            Self::Fake(fake) => {
                let state = if is_on { "poweredOn" } else { "poweredOff" };
                fake.change_vm(&name, |machine| machine.power(state));
            }
        }
    }

    /// Moves it to one of [`HOSTS`].
    pub async fn migrate(&self, number: usize, host: &str) {
        let name = format!("n-{number}");
        match self {
            Self::Simulator(vcenter) => vcenter.change_vm(&name, &Vm::change().host(host)).await,
            Self::Fake(fake) => fake.migrate_vm(&name, host),
        }
    }
}

/// An address for a machine, below `10.<network>`.
pub fn address(network: u8, number: usize) -> String {
    format!("10.{network}.{}.{}", number / 250, number % 250 + 1)
}
