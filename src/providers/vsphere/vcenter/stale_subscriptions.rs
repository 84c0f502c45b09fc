//! What subscriptions leave behind on a session that lives on. The server would keep it, and collect changes for it, until
//! the session ends.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::vim::MoRef;

/// So many are remembered on one session. Each is of a failure in the middle of a subscription.
const MOST: usize = 16;

/// The objects of one subscription on the server.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionObjects {
    pub(super) view: MoRef,
    pub(super) collector: Option<MoRef>,
}

/// The parts on one session that are not in use.
#[derive(Default)]
pub(super) struct Leftovers {
    parts: Mutex<Vec<SubscriptionObjects>>,
}

impl Leftovers {
    pub(super) fn add(&self, parts: SubscriptionObjects) {
        let mut all = self.parts.lock();
        if all.len() < MOST {
            all.push(parts);
        }
    }

    pub(super) fn take(&self) -> Option<SubscriptionObjects> {
        self.parts.lock().pop()
    }
}

/// A subscription that is being made. If it fails or is given up, its parts are left over.
pub(super) struct UnfinishedSubscription {
    leftovers: Arc<Leftovers>,
    parts: Option<SubscriptionObjects>,
}

impl UnfinishedSubscription {
    pub(super) fn new(leftovers: Arc<Leftovers>, view: MoRef) -> Self {
        Self { leftovers, parts: Some(SubscriptionObjects { view, collector: None }) }
    }

    pub(super) fn add_collector(&mut self, collector: MoRef) {
        if let Some(parts) = &mut self.parts {
            parts.collector = Some(collector);
        }
    }

    /// The subscription is whole: its parts are in use.
    pub(super) fn finish(mut self) {
        self.parts = None;
    }
}

impl Drop for UnfinishedSubscription {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            self.leftovers.add(parts);
        }
    }
}
