//! Resyncs of Services that the provider requests, presented to the driver as a cache that is always filled.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;

use crate::cloud::{CloudProvider, ServiceEvent};
use crate::controllers::driver::{Cache, CacheKind};
use crate::kubernetes::stores::Change;

pub(super) struct ProviderResyncs(pub(super) Arc<dyn CloudProvider>);

impl Cache for ProviderResyncs {
    fn kind(&self) -> CacheKind {
        CacheKind::ProviderResyncs
    }

    fn is_synced(&self) -> bool {
        true
    }

    /// Streams the resyncs that the provider requests. When a reload replaces the load balancers, subscribes again and
    /// requests a resync of all Services.
    fn changes(&self) -> BoxStream<'static, Change> {
        let provider = Arc::clone(&self.0);
        let (reloads, events) = (provider.capability_changes(), subscribe(&*provider));
        futures::stream::unfold((provider, reloads, events), |(provider, mut reloads, mut events)| async move {
            let change = tokio::select! {
                Some(()) = reloads.next() => {
                    events = subscribe(&*provider);
                    Change::All
                }
                Some(change) = events.next() => change,
                else => std::future::pending().await,
            };
            Some((change, (provider, reloads, events)))
        })
        .boxed()
    }
}

fn subscribe(provider: &dyn CloudProvider) -> BoxStream<'static, Change> {
    match provider.load_balancer() {
        Some(balancer) => balancer.subscribe().map(change).boxed(),
        None => futures::stream::pending().boxed(),
    }
}

fn change(event: ServiceEvent) -> Change {
    match event {
        ServiceEvent::Service { namespace, name } => Change::Applied(format!("{namespace}/{name}")),
        ServiceEvent::All => Change::All,
    }
}
