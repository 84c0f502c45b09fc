//! Which Services are being deleted, and which of their addresses this process has released.

use std::net::IpAddr;

use tokio::time::Instant;

use super::Inventory;

/// The deletion of a Service.
pub(super) struct Deletion {
    began: Instant,
    /// The addresses that this process has released, with none for one that was not known.
    released: Vec<Option<IpAddr>>,
}

impl Inventory {
    /// A deletion of this Service begins, or goes on. Its first look is no earlier than the last answer that is noted: another
    /// process may have looked after the Service since.
    ///
    /// When it began.
    pub fn begin_deletion(&self, service: &str) -> Instant {
        let mut state = self.state.lock();
        if let Some(known) = state.deleted.get(service) {
            return known.began;
        }
        let began = Instant::now();
        state.deleted.insert(service.into(), Deletion { began, released: Vec::new() });
        state.answered.insert(service.into(), began);
        began
    }

    /// Notes that this process has released an address of this Service, whose deletion has begun. If it is not known, it is one
    /// that the Service reports.
    pub fn note_release(&self, service: &str, address: Option<IpAddr>, reported: &[IpAddr]) {
        let mut state = self.state.lock();
        let new = || Deletion { began: Instant::now(), released: Vec::new() };
        state.deleted.entry(service.into()).or_insert_with(new).released.push(address);
        for one in reported.iter().filter(|_| address.is_none()) {
            state.quarantine.enter(*one, service, Instant::now().into_std());
        }
    }

    /// What it has released since.
    pub fn released(&self, service: &str) -> Vec<Option<IpAddr>> {
        self.state.lock().deleted.get(service).map(|known| known.released.clone()).unwrap_or_default()
    }

    /// The Service is needed: a later deletion is another one.
    pub fn is_needed(&self, service: &str) {
        self.state.lock().deleted.remove(service);
    }
}
