//! Read access to the cluster for a provider: cached Nodes and Services, and live reads of single objects.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::call::{CALL_LIMIT, CallError, limited};
use super::stores::{Change, Nodes, Services};
use crate::base::error_chain::chain;
use crate::cloud::{AbsenceProof, ClusterReads, LiveReads, NodeChange, Presence, Unknown, reason, service};

/// Namespace whose UID identifies the cluster.
const KUBE_SYSTEM: &str = "kube-system";

/// Implementation of [`ClusterReads`] that reads the caches.
#[derive(Clone)]
pub struct Cluster {
    nodes: Nodes,
    services: Option<Services>,
}

impl Cluster {
    /// Creates a reader of these caches. `services` is `None` if this process manages no Services.
    pub fn new(nodes: Nodes, services: Option<Services>) -> Self {
        Self { nodes, services }
    }
}

impl ClusterReads for Cluster {
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_> {
        Box::new(self.nodes.list())
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(name)
    }

    fn has_service(&self, key: &str) -> bool {
        let needs = |found: Arc<Service>| service::is_load_balancer(&found) || service::has_finalizer(&found);
        self.services.as_ref().and_then(|services| services.get(key)).is_some_and(needs)
    }

    fn node_changes(&self) -> BoxStream<'static, NodeChange> {
        let changes = self.nodes.subscribe().map(|change| match change {
            Change::Applied(name) | Change::Deleted(name) => NodeChange::Node(name),
            Change::All => NodeChange::All,
        });
        changes.boxed()
    }
}

/// Implementation of [`LiveReads`] with the permissions of a client.
#[derive(Clone)]
pub struct LiveApi {
    client: Client,
}

impl LiveApi {
    /// Creates a reader that uses `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    async fn get<K>(&self, api: Api<K>, shown: &str, name: &str) -> Presence<K>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
    {
        match limited(&format!("get {shown}"), CALL_LIMIT, api.get(name)).await {
            Ok(object) if object.meta().name.as_deref() == Some(name) => Presence::Exists(object),
            Ok(_) => Presence::Unknown(not_answered(&format!("get {shown}: the answer is another object"))),
            Err(error) if error.is_not_found() => Presence::Absent(absence(shown)),
            Err(error) => Presence::Unknown(unknown(&error)),
        }
    }

    /// Reads the Service live, and checks whether it matches the label selector. `None` matches every Service.
    pub async fn selected_service(
        &self,
        namespace: &str,
        name: &str,
        selector: Option<&str>,
    ) -> Presence<(Service, bool)> {
        let mut is_selected = true;
        let mut found = self.list_one(namespace, name, selector).await;
        if selector.is_some() && matches!(found, Presence::Absent(_)) {
            // The Service was deleted, or it does not match the selector. A list without selector shows which.
            is_selected = false;
            found = self.list_one(namespace, name, None).await;
        }
        found.map(|service| (service, is_selected))
    }

    /// Reads by LIST, because the Go program's role has no `get` for Services. Without a resourceVersion, a LIST is as
    /// current as a GET.
    async fn list_one(&self, namespace: &str, name: &str, selector: Option<&str>) -> Presence<Service> {
        let shown = format!("Service {namespace}/{name}");
        let services = Api::<Service>::namespaced(self.client.clone(), namespace);
        let mut parameters = ListParams::default().fields(&format!("metadata.name={name}"));
        parameters.label_selector = selector.map(str::to_owned);
        match limited(&format!("list {shown}"), CALL_LIMIT, services.list(&parameters)).await {
            Err(error) => Presence::Unknown(unknown(&error)),
            // Rejects a list without a resourceVersion, because it does not come from the API server.
            Ok(list) if list.metadata.resource_version.as_deref().unwrap_or_default().is_empty() => {
                Presence::Unknown(not_answered(&format!("list {shown}: the answer is not a list of the API server")))
            }
            Ok(list) => {
                let is_it = |service: &Service| service.metadata.name.as_deref() == Some(name);
                list.items.into_iter().find(is_it).map_or_else(|| Presence::Absent(absence(&shown)), Presence::Exists)
            }
        }
    }
}

#[async_trait]
impl LiveReads for LiveApi {
    async fn node(&self, name: &str) -> Presence<Node> {
        self.get(Api::all(self.client.clone()), &format!("Node {name}"), name).await
    }

    async fn service(&self, namespace: &str, name: &str) -> Presence<Service> {
        self.list_one(namespace, name, None).await
    }

    async fn cluster_uid(&self) -> Result<String, Unknown> {
        let shown = format!("namespace {KUBE_SYSTEM}");
        let missing = |what: &str| not_answered(&format!("get {shown}: {what}"));
        match self.get(Api::<Namespace>::all(self.client.clone()), &shown, KUBE_SYSTEM).await {
            Presence::Exists(namespace) => namespace.metadata.uid.ok_or_else(|| missing("it has no UID")),
            Presence::Absent(_) => Err(missing("there is none")),
            Presence::Unknown(unknown) => Err(unknown),
        }
    }
}

fn absence(shown: &str) -> AbsenceProof {
    AbsenceProof::new(format!("the API server has no {shown}"), [])
}

fn not_answered(message: &str) -> Unknown {
    Unknown::new(reason::APIServerUnavailable, message)
}

fn unknown(error: &CallError) -> Unknown {
    let reason = if error.is_forbidden() { reason::NoPermission } else { reason::APIServerUnavailable };
    Unknown::new(reason, chain(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::time::Duration;
    use tokio::time::Instant;

    const FORBIDDEN: &str =
        r#"{"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}"#;
    const NOT_FOUND: &str =
        r#"{"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "none"}"#;

    /// Returns a client, and the received requests. The server gives this answer to each request. Without an answer it
    /// never responds.
    fn live(answer: Option<(u16, &'static str)>) -> (LiveApi, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            requests.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            async move {
                let Some((status, body)) = answer else { return std::future::pending().await };
                let body = Body::from(body.as_bytes().to_vec());
                Ok::<_, Infallible>(
                    Response::builder().status(StatusCode::from_u16(status).unwrap()).body(body).unwrap(),
                )
            }
        });
        (LiveApi::new(Client::new(service, "default")), asked)
    }

    /// Returns the UID of the object, or the reason why there is none.
    fn told<T>(presence: Presence<T>, uid: impl Fn(&T) -> Option<String>) -> String {
        match presence {
            Presence::Exists(object) => uid(&object).unwrap_or_default(),
            Presence::Absent(proof) => format!("absent: {proof}"),
            Presence::Unknown(unknown) => unknown.reason.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_api_server_says_that_an_object_is_absent() {
        let node = r#"{"metadata": {"name": "a", "uid": "u"}, "status": {"images": [{"names": ["x"]}]}}"#;
        let list = r#"{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "a", "uid": "u"}}]}"#;
        let other = r#"{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "b", "uid": "u"}}]}"#;
        let empty = r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#;
        let no_list = r#"{"metadata": {}, "items": []}"#;
        for (answer, of_node, of_service) in [
            (Some((200, node)), "u", "APIServerUnavailable"),
            (Some((404, NOT_FOUND)), "absent: the API server has no Node a", "APIServerUnavailable"),
            (Some((404, "<html>")), "APIServerUnavailable", "APIServerUnavailable"),
            (Some((403, FORBIDDEN)), "NoPermission", "NoPermission"),
            (Some((200, no_list)), "APIServerUnavailable", "APIServerUnavailable"),
            (Some((500, "{}")), "APIServerUnavailable", "APIServerUnavailable"),
            (Some((200, "<html>")), "APIServerUnavailable", "APIServerUnavailable"),
            (Some((200, empty)), "APIServerUnavailable", "absent: the API server has no Service n/a"),
            (Some((200, other)), "APIServerUnavailable", "absent: the API server has no Service n/a"),
            (Some((200, list)), "APIServerUnavailable", "u"),
            (None, "APIServerUnavailable", "APIServerUnavailable"),
        ] {
            let (live, _) = live(answer);
            let began = Instant::now();
            // A list is no valid answer for a Node, and vice versa.
            let node = told(live.node("a").await, |node: &Node| node.metadata.uid.clone());
            let service = told(live.service("n", "a").await, |service: &Service| service.metadata.uid.clone());
            assert_eq!((node.as_str(), service.as_str()), (of_node, of_service), "{answer:?}");
            assert!(began.elapsed() <= Duration::from_secs(20), "{:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn a_service_is_listed_by_its_name_and_as_new_as_it_is() {
        let (live, asked) = live(Some((200, r#"{"metadata": {"resourceVersion": "1"}, "items": []}"#)));
        drop(live.service("n", "a").await);
        assert_eq!(*asked.lock().unwrap(), ["GET /api/v1/namespaces/n/services?&fieldSelector=metadata.name%3Da"]);
    }

    #[tokio::test]
    async fn a_cluster_is_known_by_the_uid_of_kube_system() {
        let namespace = r#"{"metadata": {"name": "kube-system", "uid": "u"}}"#;
        for (answer, expected) in [
            ((200, namespace), Ok("u".to_owned())),
            ((200, r#"{"metadata": {"name": "kube-system"}}"#), Err(reason::APIServerUnavailable)),
            ((404, NOT_FOUND), Err(reason::APIServerUnavailable)),
            ((403, FORBIDDEN), Err(reason::NoPermission)),
        ] {
            let uid = live(Some(answer)).0.cluster_uid().await.map_err(|unknown| unknown.reason);
            assert_eq!(uid, expected, "{answer:?}");
        }
    }
}
