//! Routes and clusters.

use async_trait::async_trait;

use super::Memory;
use super::calls::Call;
use ccm::cloud::{Clusters, Error, LeaderToken, Route, Routes};

impl Memory {
    /// Returns all routes, each with its cluster.
    pub fn all_routes(&self) -> Vec<(String, Route)> {
        self.lock().routes.clone()
    }

    /// Adds this route unchanged, as another program could.
    pub fn put_route(&self, cluster_name: &str, route: Route) {
        self.lock().routes.push((cluster_name.to_owned(), route));
    }

    /// Removes the routes of a Node to a destination, as an administrator could.
    pub fn remove_route(&self, cluster_name: &str, node: &str, destination: &str) {
        let is_it = |route: &Route| route.target_node == node && route.destination_cidr == destination;
        self.lock().routes.retain(|(cluster, route)| cluster != cluster_name || !is_it(route));
    }

    /// Sets whether routes are offered. Without them the cloud counts as unable to serve routes.
    pub fn set_has_routes(&self, has_routes: bool) {
        self.shared.capabilities.send_modify(|has| (has.routes, has.routes_are_off) = (has_routes, false));
    }

    /// Withdraws the routes, as a configuration without routes does.
    pub fn set_routes_off(&self) {
        self.shared.capabilities.send_modify(|has| (has.routes, has.routes_are_off) = (false, true));
    }
}

#[async_trait]
impl Routes for Memory {
    async fn list_routes(&self, cluster_name: &str) -> Result<Vec<Route>, Error> {
        self.begin(Call::ListRoutes).await?;
        let state = self.lock();
        let own = state.routes.iter().filter(|(cluster, _)| cluster == cluster_name);
        Ok(own.map(|(_, route)| route.clone()).collect())
    }

    /// Creates a route. Its name contains the destination, because a node can have several routes.
    async fn create_route(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        name_hint: &str,
        route: &Route,
    ) -> Result<(), Error> {
        self.begin(Call::CreateRoute).await?;
        let route = Route { name: format!("{name_hint}-{}", route.destination_cidr), ..route.clone() };
        let mut state = self.lock_for_write(permit)?;
        state.routes.retain(|(cluster, other)| (cluster.as_str(), &other.name) != (cluster_name, &route.name));
        state.routes.push((cluster_name.to_owned(), route));
        Ok(())
    }

    async fn delete_route(&self, permit: &LeaderToken, cluster_name: &str, route: &Route) -> Result<(), Error> {
        self.begin(Call::DeleteRoute).await?;
        let mut state = self.lock_for_write(permit)?;
        state.routes.retain(|(cluster, other)| (cluster.as_str(), &other.name) != (cluster_name, &route.name));
        Ok(())
    }
}

#[async_trait]
impl Clusters for Memory {
    async fn list_clusters(&self) -> Result<Vec<String>, Error> {
        Ok(self.lock().clusters.keys().cloned().collect())
    }

    async fn master(&self, cluster_name: &str) -> Result<String, Error> {
        let master = self.lock().clusters.get(cluster_name).cloned();
        master.ok_or_else(|| Error::other(format!("there is no cluster {cluster_name}")))
    }
}
