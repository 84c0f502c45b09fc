//! What a provider may ask of the cluster, answered from the shared caches; a single Node also by the API server.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};

use super::call::{CALL_LIMIT, CallError, limited};
use super::stores::{Change, Nodes};
use crate::base::error_chain::chain;
use crate::cloud::{ClusterReads, Error, NodeChange};

/// [`ClusterReads`] over the cache of Nodes.
#[derive(Clone)]
pub struct Cluster {
    nodes: Nodes,
    live: Api<Node>,
}

impl Cluster {
    /// Over these cached Nodes; live reads are made with this client.
    pub fn new(nodes: Nodes, client: Client) -> Self {
        Self { nodes, live: Api::all(client) }
    }
}

#[async_trait]
impl ClusterReads for Cluster {
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_> {
        Box::new(self.nodes.list())
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(name)
    }

    async fn fetch_node(&self, name: &str) -> Result<Option<Node>, Error> {
        let node = limited(&format!("get node {name}"), CALL_LIMIT, self.live.get_opt(name)).await;
        node.map_err(|error| match error {
            CallError::Refused { .. } if error.is_forbidden() => Error::Denied { message: chain(&error) },
            error => Error::Unavailable { message: format!("failed to read node {name}"), source: Some(error.into()) },
        })
    }

    fn node_changes(&self) -> BoxStream<'static, NodeChange> {
        let changes = self.nodes.subscribe().map(|change| match change {
            Change::Applied(name) | Change::Deleted(name) => NodeChange::Node(name),
            Change::All => NodeChange::All,
        });
        changes.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::stores::watch_nodes;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use std::convert::Infallible;
    use std::time::Duration;
    use tokio::time::Instant;

    /// The cluster behind an API server that answers each request with this, or not at all.
    fn cluster(answer: Option<(StatusCode, &'static str)>) -> Cluster {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            let Some((status, body)) = answer else { return std::future::pending().await };
            let body = Body::from(body.as_bytes().to_vec());
            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
        });
        let client = Client::new(service, "default");
        Cluster::new(watch_nodes(client.clone(), None).0, client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_node_is_whole_and_only_the_api_server_says_that_there_is_none() {
        let images = r#"{"metadata": {"name": "a"}, "status": {"images": [{"names": ["x"]}]}}"#;
        let refused = r#"{"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}"#;
        let gone = r#"{"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "none"}"#;
        let node = cluster(Some((StatusCode::OK, images))).fetch_node("a").await.unwrap().unwrap();
        assert!(node.status.unwrap().images.is_some());
        assert_eq!(cluster(Some((StatusCode::NOT_FOUND, gone))).fetch_node("a").await.unwrap(), None);
        let denied = cluster(Some((StatusCode::FORBIDDEN, refused))).fetch_node("a").await;
        assert!(matches!(denied, Err(Error::Denied { .. })), "{denied:?}");
        let began = Instant::now();
        let silent = cluster(None).fetch_node("a").await;
        assert!(matches!(silent, Err(Error::Unavailable { .. })), "{silent:?}");
        assert_eq!(began.elapsed(), Duration::from_secs(10));
    }
}
