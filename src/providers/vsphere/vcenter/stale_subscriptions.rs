//! Server-side objects of failed, cancelled and old subscriptions on an open session. Until the session ends, the
//! server would keep these objects and collect changes for them. The objects of a subscription also count as leftovers
//! during its setup, so that a cancelled setup leaves none behind.

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
    /// Adds the objects of a subscription. Replaces an entry with the same view.
    pub(super) fn put(&self, parts: SubscriptionObjects) {
        let mut all = self.objects.lock();
        all.retain(|other| other.view != parts.view);
        if all.len() < MAX_SUBSCRIPTIONS {
            all.push(parts);
        }
    }

    /// Removes the objects of a subscription that is in use.
    pub(super) fn remove(&self, view: &MoRef) {
        self.objects.lock().retain(|other| other.view != *view);
    }

    pub(super) fn take(&self) -> Option<SubscriptionObjects> {
        self.objects.lock().pop()
    }
}
