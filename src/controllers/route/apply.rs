//! Calls to the cloud: lists routes, and applies the changes of one destination. Each change is checked again
//! immediately before its call, because the plan may be outdated.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::failure::RouteFailure;
use super::plan::{Creation, LiveReadVerdict, RouteChanges, RouteDeletion};
use super::reason;
use crate::base::go_duration::spelled;
use crate::cloud::{CloudProvider, Error, LeaderToken, LiveReads, Presence, Route, Routes};
use crate::controllers::retry::Retry;
use crate::kubernetes::cluster::LiveApi;
use crate::kubernetes::stores::Nodes;

/// Time limit of one provider call.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Access to the cloud's routes of one cluster, for one leadership term.
pub(super) struct Cloud {
    pub(super) provider: Arc<dyn CloudProvider>,
    pub(super) permit: LeaderToken,
    pub(super) cluster_name: String,
    pub(super) nodes: Nodes,
    pub(super) live: LiveApi,
}

pub(super) struct Listing {
    pub(super) routes: Vec<Route>,
    /// Whether the cloud rewrites routes in place; see [`Routes::rewrites_in_place`].
    pub(super) rewrites: bool,
    /// Number of ambiguous routes; see [`Routes::ambiguous_routes`].
    pub(super) ambiguous: usize,
}

/// The result of the changes for one destination.
#[derive(Debug, Default)]
pub struct ApplyResult {
    /// Changes that were not made, including the deletion of a kept route, which is checked again later.
    pub(super) remaining: RouteChanges,
    pub(super) deleted: Vec<Route>,
    pub(super) created: Vec<Creation>,
    /// The failure because of which changes are left, if any, and the route that could not be created, if any.
    pub(super) failure: Option<(RouteFailure, Option<Creation>)>,
}

impl Cloud {
    pub(super) async fn list_routes(&self) -> Result<Listing, RouteFailure> {
        let cloud = self.routes()?;
        let listed = within_limit(cloud.list_routes(&self.cluster_name)).await;
        let routes = listed.map_err(|failure| failure.with_context("failed to list routes"))?;
        Ok(Listing { routes, rewrites: cloud.rewrites_in_place(), ambiguous: cloud.ambiguous_routes() })
    }

    /// Makes the deletions, then the creations. If a deletion fails, creates nothing.
    pub(super) async fn apply(&self, changes: RouteChanges) -> ApplyResult {
        let began = Instant::now();
        let mut applied = ApplyResult::default();
        for deletion in changes.deletions {
            match self.delete(&deletion, !changes.creations.is_empty()).await {
                Ok(true) => applied.deleted.push(deletion.route),
                Ok(false) => applied.remaining.deletions.push(deletion),
                Err(failure) => {
                    applied.remaining.deletions.push(deletion);
                    applied.failure = Some((failure, None));
                }
            }
        }
        let undeleted = applied.failure.as_ref().map(|(failure, _)| failure.clone());
        for creation in changes.creations {
            // If the Node has changed since the plan, the next pass plans again.
            if !self.is_wanted(&creation) {
                continue;
            }
            let created = match &undeleted {
                Some(failure) => Err(failure.clone()),
                None => self.create(&creation).await,
            };
            match created {
                Ok(()) => applied.created.push(creation),
                Err(failure) => {
                    let failure = could_not_create(failure, &creation, began.elapsed());
                    applied.failure = Some((failure, Some(creation.clone())));
                    applied.remaining.creations.push(creation);
                }
            }
        }
        applied
    }

    fn is_wanted(&self, creation: &Creation) -> bool {
        let node = self.nodes.get(&creation.route.target_node);
        node.is_some_and(|node| self.provider.owns(&node) && creation.is_wanted_by(&node))
    }

    async fn create(&self, creation: &Creation) -> Result<(), RouteFailure> {
        let Creation { name_hint, route } = creation;
        let routes = self.routes()?;
        self.permit.check().map_err(|error| RouteFailure::of(&error))?;
        within_limit(routes.create_route(&self.permit, &self.cluster_name, name_hint, route)).await
    }

    /// Returns whether the route was deleted. If `is_in_the_way`, a kept route is a failure, because another route to
    /// the same destination must be created.
    async fn delete(&self, deletion: &RouteDeletion, is_in_the_way: bool) -> Result<bool, RouteFailure> {
        let route = &deletion.route;
        let live = match deletion.needs_live_node() {
            true => Some(self.live.node(&route.target_node).await),
            false => None,
        };
        let verdict = match &live {
            Some(Presence::Exists(node)) if !self.provider.owns(node) => LiveReadVerdict::Keep,
            live => deletion.verdict(live.as_ref()),
        };
        let shown = format!("route {} to Node {}", route.destination_cidr, route.target_node);
        match verdict {
            LiveReadVerdict::Keep if is_in_the_way => Err(RouteFailure {
                reason: reason::PodNetworkInUse,
                message: format!(
                    "{shown} is not deleted: that node still wants it, or is outside of this controller's node selection or cloud provider"
                ),
                retry: Some(Retry::Backoff),
            }),
            LiveReadVerdict::Keep => Ok(false),
            LiveReadVerdict::Unknown(unknown) => {
                Err(RouteFailure::unknown(unknown).with_context(&format!("{shown} is not deleted")))
            }
            LiveReadVerdict::Delete => {
                let deleted = self.delete_confirmed(route).await;
                deleted.map(|()| true).map_err(|failure| failure.with_context(&format!("failed to delete {shown}")))
            }
        }
    }

    async fn delete_confirmed(&self, route: &Route) -> Result<(), RouteFailure> {
        let routes = self.routes()?;
        self.permit.check().map_err(|error| RouteFailure::of(&error))?;
        within_limit(routes.delete_route(&self.permit, &self.cluster_name, route)).await
    }

    fn routes(&self) -> Result<Arc<dyn Routes>, RouteFailure> {
        // The provider has lost its routes during the term. The loss may be temporary.
        self.provider.routes().ok_or_else(|| RouteFailure { retry: None, ..RouteFailure::of(&Error::NotImplemented) })
    }
}

async fn within_limit<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, RouteFailure> {
    match timeout(CALL_LIMIT, call).await {
        Ok(answer) => answer.map_err(|error| RouteFailure::of(&error)),
        Err(_) => Err(RouteFailure {
            reason: reason::ProviderTimeout,
            message: format!("the cloud provider gave no answer within {} s", CALL_LIMIT.as_secs()),
            retry: Some(Retry::Backoff),
        }),
    }
}

/// Adds the error text of the Go program to `failure`.
fn could_not_create(failure: RouteFailure, creation: &Creation, elapsed: Duration) -> RouteFailure {
    let Creation { name_hint, route } = creation;
    let network = &route.destination_cidr;
    let node = &route.target_node;
    let elapsed = spelled(elapsed);
    failure.with_context(&format!("Could not create route {name_hint} {network} for node {node} after {elapsed}"))
}
