//! A trait for tests that run with either vCenter: the simulator, which answers any client, and the fake, which answers
//! only this project's client, in the way of real servers.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use crate::process::Usage;
use crate::{Counts, FakeVcenter, Machine, Vcenter, Vm};

/// A vCenter of either kind. Machines are named as in vCenter. The methods are described at [`Vcenter`] and
/// [`FakeVcenter`].
#[async_trait]
#[expect(missing_docs, reason = "said above")]
pub trait VcenterServer: Send + Sync {
    /// Returns the simulator, or `None` for the fake.
    fn simulator(&self) -> Option<&Vcenter>;
    fn port(&self) -> u16;
    /// Returns a section of `vsphere.conf`. The files that it names are in `folder`, or live as long as the server.
    fn ini_section(&self, name: &str, datacenters: &str, folder: &Path) -> String;
    /// Returns its resource usage so far. The fake is part of this process, so its usage is that of the whole process.
    fn usage(&self) -> Option<Usage>;
    async fn counts(&self) -> Counts;
    async fn reset_counts(&self);
    async fn delay_calls(&self, time: Duration);
    async fn stop_listening(&self);
    async fn resume_listening(&self);
    async fn create_vm(&self, name: &str, uuid: &str, address: &str);
    async fn set_ip(&self, name: &str, address: &str);
    async fn set_power(&self, name: &str, is_on: bool);
    async fn migrate_vm(&self, name: &str, host: &str);
    async fn destroy_vm(&self, name: &str);
}

#[async_trait]
impl VcenterServer for Vcenter {
    fn simulator(&self) -> Option<&Vcenter> {
        Some(self)
    }

    fn port(&self) -> u16 {
        Vcenter::port(self)
    }

    fn ini_section(&self, name: &str, datacenters: &str, _folder: &Path) -> String {
        Vcenter::ini_section(self, name, datacenters)
    }

    fn usage(&self) -> Option<Usage> {
        Vcenter::usage(self)
    }

    async fn counts(&self) -> Counts {
        Vcenter::counts(self).await
    }

    async fn reset_counts(&self) {
        Vcenter::reset_counts(self).await;
    }

    async fn delay_calls(&self, time: Duration) {
        Vcenter::delay_calls(self, time).await;
    }

    async fn stop_listening(&self) {
        Vcenter::stop_listening(self).await;
    }

    async fn resume_listening(&self) {
        Vcenter::resume_listening(self).await;
    }

    async fn create_vm(&self, name: &str, uuid: &str, address: &str) {
        Vcenter::create_vm(self, &Vm::new(name, uuid).ip(address)).await;
    }

    async fn set_ip(&self, name: &str, address: &str) {
        Vcenter::set_ip(self, name, address).await;
    }

    async fn set_power(&self, name: &str, is_on: bool) {
        let change = if is_on { Vm::change().powered_on() } else { Vm::change().powered_off() };
        self.change_vm(name, &change).await;
    }

    async fn migrate_vm(&self, name: &str, host: &str) {
        self.change_vm(name, &Vm::change().host(host)).await;
    }

    async fn destroy_vm(&self, name: &str) {
        Vcenter::destroy_vm(self, name).await;
    }
}

#[async_trait]
impl VcenterServer for FakeVcenter {
    fn simulator(&self) -> Option<&Vcenter> {
        None
    }

    fn port(&self) -> u16 {
        FakeVcenter::port(self)
    }

    fn ini_section(&self, name: &str, datacenters: &str, folder: &Path) -> String {
        FakeVcenter::ini_section(self, name, datacenters, folder)
    }

    fn usage(&self) -> Option<Usage> {
        Usage::of_this_process()
    }

    async fn counts(&self) -> Counts {
        let counts = FakeVcenter::counts(self);
        Counts {
            total: counts.operations.values().sum(),
            operations: counts.operations,
            soap_logins: counts.soap_logins,
            rest_logins: counts.rest_logins,
            soap_sessions: u32::try_from(counts.soap_sessions).unwrap(),
            rest_sessions: u32::try_from(counts.rest_sessions).unwrap(),
            pending_waits: counts.pending_waits,
            bytes_received: counts.bytes_received,
            bytes_sent: counts.bytes_sent,
            truncated: 0,
        }
    }

    async fn reset_counts(&self) {
        FakeVcenter::reset_counts(self);
    }

    async fn delay_calls(&self, time: Duration) {
        FakeVcenter::delay_calls(self, time);
    }

    async fn stop_listening(&self) {
        FakeVcenter::stop_listening(self).await;
    }

    async fn resume_listening(&self) {
        FakeVcenter::resume_listening(self).await;
    }

    async fn create_vm(&self, name: &str, uuid: &str, address: &str) {
        FakeVcenter::create_vm(self, Machine::new(name, uuid).ip(address));
    }

    async fn set_ip(&self, name: &str, address: &str) {
        self.change_vm(name, |machine| machine.ip(address));
    }

    async fn set_power(&self, name: &str, is_on: bool) {
        self.change_vm(name, |machine| machine.power(if is_on { "poweredOn" } else { "poweredOff" }));
    }

    async fn migrate_vm(&self, name: &str, host: &str) {
        FakeVcenter::migrate_vm(self, name, host);
    }

    async fn destroy_vm(&self, name: &str) {
        FakeVcenter::destroy_vm(self, name);
    }
}
