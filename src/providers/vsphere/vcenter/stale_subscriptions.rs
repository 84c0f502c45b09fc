//! Server-side leftovers of subscriptions on a session that stays. The server would keep them, and collect changes for
//! them, until the session ends.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clients::vim::MoRef;

/// Maximum number of leftovers remembered per session. Each results from a failed or cancelled subscription.
const MAX_SUBSCRIPTIONS: usize = 16;

/// The server-side objects of one subscription.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionObjects {
    pub(super) view: MoRef,
    pub(super) collector: Option<MoRef>,
}

/// The unused subscription objects of one session.
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

/// Guard of a subscription during its setup. If the setup fails or is cancelled, the server-side objects become
/// leftovers.
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

    /// Disarms the guard: the setup is complete, and the objects are in use.
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
