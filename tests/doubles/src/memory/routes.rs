//! Routes and clusters.

use async_trait::async_trait;

use super::Memory;
use ccm::cloud::{Clusters, Error, Route, Routes, WritePermit};

fn prefix(cluster_name: &str) -> String {
    format!("{cluster_name}-")
}

#[async_trait]
impl Routes for Memory {
    async fn list_routes(&self, cluster_name: &str) -> Result<Vec<Route>, Error> {
        let prefix = prefix(cluster_name);
        Ok(self.lock().routes.iter().filter(|route| route.name.starts_with(&prefix)).cloned().collect())
    }

    async fn create_route(
        &self,
        permit: &WritePermit,
        cluster_name: &str,
        name_hint: &str,
        route: &Route,
    ) -> Result<(), Error> {
        let name = format!("{}{name_hint}-{}", prefix(cluster_name), route.destination_cidr);
        let mut state = self.lock_for_write(permit)?;
        if state.routes.iter().any(|other| other.name == name) {
            return Err(Error::other(format!("route {name} exists already")));
        }
        state.routes.push(Route { name, ..route.clone() });
        Ok(())
    }

    async fn delete_route(&self, permit: &WritePermit, _cluster_name: &str, route: &Route) -> Result<(), Error> {
        self.lock_for_write(permit)?.routes.retain(|other| other.name != route.name);
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
