//! Tests of the proxy in front of the API server: the requests that pass, and each of its faults.

use std::path::Path;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::api::{ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use support::{ApiProxy, ApiServer, KubeletNode, ProxyCounts, eventually};

use crate::{LIMIT, UUID};

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Node>>> + Send>>;

/// A server, a direct client, and a client through the proxy.
struct Stand {
    server: ApiServer,
    proxy: ApiProxy,
    direct: Client,
    nodes: Api<Node>,
}

impl Stand {
    async fn start() -> Self {
        let server = ApiServer::audited().await;
        let proxy = ApiProxy::start(&server);
        let kubeconfig = proxy.kubeconfig(&server.kubeconfig_of_administrator("replica-1")).await;
        let nodes = Api::all(client(&kubeconfig).await);
        let direct = server.client().await;
        Self { server, proxy, direct, nodes }
    }

    async fn until(&self, what: &str, is_so: impl Fn(&ProxyCounts) -> bool) {
        eventually(what, LIMIT, async || match self.proxy.counts() {
            counts if is_so(&counts) => Ok(()),
            counts => Err(format!("{counts:?}")),
        })
        .await;
    }

    /// Returns how an open watch ends after `done`.
    async fn end_after(&self, done: impl AsyncFnOnce()) -> End {
        let request = http::Request::get("/api/v1/nodes?watch=true").body(Body::empty()).unwrap();
        let mut stream = self.nodes.clone().into_client().send(request).await.unwrap().into_body();
        self.until("one watch is open", |counts| counts.open_watches == 1).await;
        done().await;
        let end = async {
            loop {
                match stream.frame().await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return End::Broken,
                    None => return End::Whole,
                }
            }
        };
        tokio::time::timeout(LIMIT, end).await.expect("the stream ends")
    }

    async fn watch(&self, version: &str) -> kube::Result<Events> {
        Ok(Box::pin(self.nodes.watch(&WatchParams::default().disable_bookmarks(), version).await?))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    Broken,
}

/// Makes a client that reports every error and never retries.
async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

async fn next(events: &mut Events) -> Option<kube::Result<WatchEvent<Node>>> {
    tokio::time::timeout(LIMIT, events.next()).await.expect("something comes over the stream")
}

fn name(event: Option<kube::Result<WatchEvent<Node>>>) -> String {
    match event {
        Some(Ok(WatchEvent::Added(node))) => node.metadata.name.unwrap(),
        other => panic!("an added node is expected: {other:?}"),
    }
}

fn code<T: std::fmt::Debug>(answer: kube::Result<T>) -> u16 {
    match answer {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("a status is expected: {other:?}"),
    }
}

#[tokio::test]
async fn what_passes_the_proxy_is_asked_by_its_user() {
    let Stand { server, proxy, direct, nodes } = Stand::start().await;
    KubeletNode::new("node-1", UUID).register(&nodes.into_client()).await;
    let metadata = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata: metadata("ours"), ..Namespace::default() };
    Api::<Namespace>::all(direct.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let account = ServiceAccount { metadata: metadata("ccm"), ..ServiceAccount::default() };
    Api::<ServiceAccount>::namespaced(direct, "ours").create(&PostParams::default(), &account).await.unwrap();

    let token = proxy.kubeconfig(&server.kubeconfig_of_service_account("ours", "ccm").await).await;
    let nodes = Api::<Node>::all(ApiServer::client_from(&token).await);
    assert_eq!(code(nodes.get("node-1").await), 403, "RBAC knows nothing of it");

    let asked: Vec<(String, String)> = server
        .audit()
        .into_iter()
        .filter(|event| event.object_ref.resource == "nodes" && event.object_ref.name == "node-1")
        .map(|event| (event.user.username, event.verb))
        .collect();
    for wanted in [("replica-1", "create"), ("system:serviceaccount:ours:ccm", "get")] {
        assert!(asked.iter().any(|(user, verb)| (user.as_str(), verb.as_str()) == wanted), "{wanted:?}: {asked:?}");
    }
}

#[tokio::test]
async fn a_proxy_is_slow_refuses_and_forgets_until_it_is_cleared() {
    let stand = Stand::start().await;
    let Stand { proxy, nodes, direct, .. } = &stand;
    proxy.slow(Duration::from_millis(300));
    let started = Instant::now();
    nodes.list(&ListParams::default()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300));
    proxy.clear();

    let mut events = stand.watch("0").await.unwrap();
    proxy.too_many(Some(7));
    let request = http::Request::get("/api/v1/nodes").body(Body::empty()).unwrap();
    let answer = nodes.clone().into_client().send(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].to_str().unwrap()), (429, "7"));
    proxy.status(503);
    assert_eq!(code(nodes.list(&ListParams::default()).await), 503);
    KubeletNode::new("node-1", UUID).register(direct).await;
    assert_eq!(name(next(&mut events).await), "node-1", "streams that are open flow on");
    proxy.clear();

    proxy.expire_watches(2);
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 1, "lists work");
    let mut whole = stand.watch("0").await.unwrap();
    assert_eq!(name(next(&mut whole).await), "node-1", "a watch from no version cannot come too late");
    assert_eq!(code(stand.watch("7").await.map(|_| ())), 410);
    let mut told = stand.watch("7").await.unwrap();
    let event = next(&mut told).await;
    assert!(matches!(&event, Some(Ok(WatchEvent::Error(status))) if status.code == 410), "{event:?}");
    assert!(next(&mut told).await.is_none(), "the stream ends behind it");
    let version = nodes.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut later = stand.watch(&version).await.unwrap();
    KubeletNode::new("node-2", UUID).register(direct).await;
    assert_eq!(name(next(&mut later).await), "node-2", "the third one is the API server's");
    let counts = proxy.counts();
    assert_eq!((counts.refused, counts.expired, counts.watches), (2, 2, 5), "{counts:?}");
}

#[tokio::test]
async fn streams_break_off_or_end_and_what_hangs_comes_later_or_never() {
    let stand = Stand::start().await;
    let Stand { proxy, nodes, direct, .. } = &stand;
    assert_eq!(stand.end_after(async || proxy.cut_watches()).await, End::Broken);
    assert_eq!(stand.end_after(async || proxy.end_watches()).await, End::Whole, "as if its time were up");
    assert_eq!(stand.end_after(async || proxy.cut_all()).await, End::Broken);

    let mut events = stand.watch("0").await.unwrap();
    proxy.hang();
    KubeletNode::new("node-1", UUID).register(direct).await;
    let list = tokio::spawn({
        let nodes = nodes.clone();
        async move { nodes.list(&ListParams::default()).await }
    });
    stand.until("a request hangs", |counts| counts.hanging == 1).await;
    let silence = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
    assert!(silence.is_err() && !list.is_finished(), "nothing comes: {silence:?}");
    proxy.clear();
    assert_eq!(name(next(&mut events).await), "node-1");
    assert_eq!(list.await.unwrap().unwrap().items.len(), 1, "what hung is served late");

    proxy.hang();
    let everything = ListParams::default();
    let (answer, ()) = tokio::join!(nodes.list(&everything), async {
        stand.until("a request hangs", |counts| counts.hanging == 1).await;
        proxy.cut_all();
    });
    answer.unwrap_err();
    assert!(!matches!(next(&mut events).await, Some(Ok(_))), "streams break off, too");
    stand.until("nothing is open", |counts| (counts.open_connections, counts.open_watches) == (0, 0)).await;
    proxy.clear();
    nodes.list(&ListParams::default()).await.unwrap();
}

#[tokio::test]
async fn the_proxy_is_down_and_up_with_its_server() {
    let mut stand = Stand::start().await;
    let mut events = stand.watch("0").await.unwrap();
    stand.server.kill().await;
    assert!(!matches!(next(&mut events).await, Some(Ok(_))), "streams break off");
    let refused = stand.nodes.list(&ListParams::default()).await.unwrap_err();
    assert!(!matches!(refused, kube::Error::Api(_)), "there is no answer: {refused}");
    stand.server.restart().await;
    stand.nodes.list(&ListParams::default()).await.unwrap();
}
