//! The subscription of a vCenter: a ListView of the wanted VMs, one filter, and one outstanding `WaitForUpdatesEx`.
//! Updates go to the publisher.

mod updates;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::debug;

use super::fence::Fence;
use super::members::ViewChange;
use super::publisher::Publisher;
use super::session::{ClientInUse, ConnectionFailure, Session, failed};
use super::stale_subscriptions::SubscriptionObjects;
use crate::base::error_chain::chain;
use crate::clients::vim::{self, FilterSpec, MoRef};

/// Pause that batches changes of the view.
const GATHER: Duration = Duration::from_millis(50);
/// Maximum number of objects that one call adds to the view, and that it removes from the view. vCenter accepts at most
/// 500,000 elements in a request.
const PORTION: usize = 1_000;
/// Time limit for removing an old subscription.
const CLEAR_LIMIT: Duration = Duration::from_secs(3);

/// The server-side objects on one session, and the receivers of the updates.
pub(super) struct Subscription<'a> {
    session: &'a Session,
    publisher: &'a Publisher,
    fence: &'a Fence,
    soap: ClientInUse<vim::Client>,
    collector: MoRef,
    view: MoRef,
}

/// A subscription that is set up but not followed yet.
pub(super) struct PreparedSubscription<'a> {
    subscription: Subscription<'a>,
    members: BTreeSet<Arc<str>>,
    unresolved: Vec<Arc<str>>,
    instance_uuid: String,
}

impl<'a> PreparedSubscription<'a> {
    /// Makes this subscription the source of the publisher.
    pub(super) fn begin(self) -> Subscription<'a> {
        let Self { subscription, members, unresolved, instance_uuid } = self;
        subscription.publisher.with(|state| state.restart(&instance_uuid, members, unresolved));
        subscription
    }
}

impl<'a> Subscription<'a> {
    /// Sets up a subscription on a session. If the setup fails or is cancelled, its objects become leftovers.
    pub(super) async fn prepare(
        session: &'a Session,
        publisher: &'a Publisher,
        fence: &'a Fence,
        soap: ClientInUse<vim::Client>,
    ) -> Result<PreparedSubscription<'a>, ConnectionFailure> {
        let doing = format!("subscribing to the inventory of vCenter {}", session.server());
        let view = soap.create_list_view(&[]).await.map_err(failed(&doing))?;
        // The objects are leftovers until the setup is complete.
        soap.leftovers().put(SubscriptionObjects { view: view.clone(), collector: None });
        let collector = soap.create_property_collector().await.map_err(failed(&doing))?;
        soap.leftovers().put(SubscriptionObjects { view: view.clone(), collector: Some(collector.clone()) });
        let subscription = Self { session, publisher, fence, soap, collector, view };
        let members = publisher.with(|state| state.members.wanted().clone());
        let unresolved = subscription.fill(&members).await.map_err(failed(&doing))?;
        subscription.soap.leftovers().remove(&subscription.view);
        let instance_uuid = subscription.soap.about().instance_uuid.unwrap_or_default();
        Ok(PreparedSubscription { subscription, members, unresolved, instance_uuid })
    }

    /// Fills the view and adds the filter. Returns the ids that the server did not resolve. The view is created empty,
    /// because only a modification reports these ids.
    async fn fill(&self, members: &BTreeSet<Arc<str>>) -> Result<Vec<Arc<str>>, vim::Error> {
        let all: Vec<MoRef> = members.iter().map(reference).collect();
        let unresolved = if all.is_empty() { Vec::new() } else { self.modify(&all, &[]).await? };
        self.soap.create_filter(&self.collector, &FilterSpec::for_view(&self.view)).await?;
        Ok(unresolved)
    }

    /// Removes this subscription, and all leftovers of the session, from the server.
    pub(super) async fn clear(&self) {
        let Self { soap, collector, view, .. } = self;
        soap.leftovers().put(SubscriptionObjects { view: view.clone(), collector: Some(collector.clone()) });
        clear_leftovers(soap, self.session.server()).await;
    }

    /// Keeps the members of the ListView equal to the wanted VMs.
    pub(super) async fn keep_members(&self) -> Result<Infallible, ConnectionFailure> {
        let doing = format!("changing the list of watched virtual machines of vCenter {}", self.session.server());
        loop {
            let change = self.publisher.with(|state| state.next_change());
            if !change.is_empty() {
                let unresolved = self.make(&change).await.map_err(failed(&doing))?;
                self.publisher.publish(|state| state.made(&change, unresolved));
                self.publisher.objects_changed.notify_one();
            }
            self.publisher.members_changed.notified().await;
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Applies a change of the view. Returns the ids that the server did not resolve.
    async fn make(&self, change: &ViewChange) -> Result<Vec<Arc<str>>, vim::Error> {
        let add: Vec<MoRef> = change.add.iter().map(reference).collect();
        let remove: Vec<MoRef> = change.remove.iter().map(reference).collect();
        if change.add.is_disjoint(&change.remove) {
            return self.modify(&add, &remove).await;
        }
        // One call that removes and adds the same object would change nothing.
        self.modify(&[], &remove).await?;
        self.modify(&add, &[]).await
    }

    /// Changes the view in portions. Returns the ids that the server did not resolve.
    async fn modify(&self, add: &[MoRef], remove: &[MoRef]) -> Result<Vec<Arc<str>>, vim::Error> {
        let mut unresolved = Vec::new();
        for portion in remove.chunks(PORTION).skip(1) {
            self.soap.modify_list_view(&self.view, &[], portion).await?;
        }
        // The first portions of removals and additions share one call.
        let mut removals = remove.chunks(PORTION).next().unwrap_or_default();
        let mut portions: Vec<&[MoRef]> = add.chunks(PORTION).collect();
        if portions.is_empty() {
            portions.push(&[]);
        }
        for portion in portions {
            let refused = self.soap.modify_list_view(&self.view, portion, std::mem::take(&mut removals)).await?;
            unresolved.extend(refused.into_iter().map(|object| Arc::from(object.id())));
        }
        Ok(unresolved)
    }
}

/// Removes the leftovers of a session. If vCenter does not answer, the leftovers stay for the next call.
pub(super) async fn clear_leftovers(soap: &ClientInUse<vim::Client>, vcenter: &str) {
    let leftovers = soap.leftovers();
    while let Some(parts) = leftovers.take() {
        let both = async {
            let collector = match &parts.collector {
                Some(collector) => soap.destroy_property_collector(collector).await,
                None => Ok(()),
            };
            (collector, soap.destroy_view(&parts.view).await)
        };
        let ended = timeout(CLEAR_LIMIT, both).await;
        let failures: Vec<String> = match &ended {
            Ok((collector, view)) => {
                [collector, view].into_iter().filter_map(|end| Some(chain(end.as_ref().err()?))).collect()
            }
            Err(_) => vec!["no answer in time".to_owned()],
        };
        debug!(vcenter, failures = failures.join("; "), "an old subscription is taken off");
        let is_over = |end: &Result<(), vim::Error>| !end.as_ref().is_err_and(vim::Error::is_transient);
        if !ended.is_ok_and(|(collector, view)| is_over(&collector) && is_over(&view)) {
            leftovers.put(parts);
            return;
        }
    }
}

fn reference(id: &Arc<str>) -> MoRef {
    MoRef::new("VirtualMachine", id)
}
