//! Unused server-side objects of subscriptions on an open session. Until the session ends, the server would keep these
//! objects and collect changes for them.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::vim::MoRef;

/// Maximum number of leftovers stored per session. Each leftover results from a failed or cancelled subscription.
const MAX_SUBSCRIPTIONS: usize = 16;

/// The server-side objects of one subscription.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionObjects {
    pub(super) view: MoRef,
    pub(super) collector: Option<MoRef>,
}

#[derive(Default)]
pub(super) struct Leftovers {
    objects: Mutex<Vec<SubscriptionObjects>>,
}

impl Leftovers {
    pub(super) fn add(&self, parts: SubscriptionObjects) {
        let mut all = self.objects.lock();
        if all.len() < MAX_SUBSCRIPTIONS {
            all.push(parts);
        }
    }

    pub(super) fn take(&self) -> Option<SubscriptionObjects> {
        self.objects.lock().pop()
    }
}

/// Guard of a subscription during its setup. Dropping the guard turns the server-side objects into leftovers.
pub(super) struct UnfinishedSubscription {
    leftovers: Arc<Leftovers>,
    objects: Option<SubscriptionObjects>,
}

impl UnfinishedSubscription {
    pub(super) fn new(leftovers: Arc<Leftovers>, view: MoRef) -> Self {
        Self { leftovers, objects: Some(SubscriptionObjects { view, collector: None }) }
    }

    pub(super) fn add_collector(&mut self, collector: MoRef) {
        if let Some(parts) = &mut self.objects {
            parts.collector = Some(collector);
        }
    }

    /// Disarms the guard, because the setup is complete and the objects are in use.
    pub(super) fn finish(mut self) {
        self.objects = None;
    }
}

impl Drop for UnfinishedSubscription {
    fn drop(&mut self) {
        if let Some(parts) = self.objects.take() {
            self.leftovers.add(parts);
        }
    }
}
