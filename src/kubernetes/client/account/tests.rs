//! Tests of the token of a service account with a scripted API server and a paused clock.

use super::*;
use crate::kubernetes::client::guard;
use crate::kubernetes::client::limits::WriteLimits;
use crate::kubernetes::leadership::{Holder, SendTime};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::client::{Body, ClientBuilder};
use serde_json::{Value, json};
use std::sync::Mutex;

const HOUR: Duration = Duration::from_secs(3600);
const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";

/// An API server: its state, its answers, and the received requests.
#[derive(Default)]
struct Server {
    has_namespace: bool,
    has_account: bool,
    tokens: u32,
    /// Error status for token requests.
    refuses: Option<u16>,
    is_silent: bool,
    /// Number of the last token that the server does not accept any more.
    forgotten: u32,
    /// Requests that this process made in its own name.
    asked: Vec<String>,
    /// Authorization headers of the controller's requests.
    written: Vec<String>,
}

type SharedAccountServer = Arc<Mutex<Server>>;

fn answer(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(serde_json::to_vec(body).unwrap()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn status(code: u16) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no",
        "reason": if code == 404 { "NotFound" } else { "" }});
    answer(code, &status)
}

impl Server {
    fn serve(&mut self, request: &Request<Body>) -> Response<Body> {
        let (method, path) = (request.method().as_str().to_owned(), request.uri().path().to_owned());
        if path.starts_with("/api/v1/nodes/") {
            let token = request.headers()[AUTHORIZATION].to_str().unwrap().to_owned();
            let number: u32 = token.strip_prefix("Bearer token-").unwrap().parse().unwrap();
            self.written.push(token);
            return match number > self.forgotten {
                true => answer(200, &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})),
                false => status(401),
            };
        }
        self.asked.push(format!("{method} {}", path.strip_prefix(ACCOUNTS).unwrap_or(&path)));
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "node-controller"}});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
        match (method.as_str(), path.strip_prefix(ACCOUNTS)) {
            ("GET", Some("/node-controller")) if self.has_account => answer(200, &account),
            ("POST", Some("")) if self.has_namespace => {
                self.has_account = true;
                answer(201, &account)
            }
            ("POST", Some("/node-controller/token")) if self.refuses.is_some() => status(self.refuses.unwrap()),
            ("POST", Some("/node-controller/token")) if self.has_account => {
                self.tokens += 1;
                let until = Timestamp::now() + jiff::SignedDuration::from_hours(1);
                let status = json!({"token": format!("token-{}", self.tokens), "expirationTimestamp": until});
                answer(201, &json!({"spec": {"audiences": []}, "status": status}))
            }
            ("GET", None) if self.has_namespace => answer(200, &namespace),
            ("POST", None) => {
                self.has_namespace = true;
                answer(201, &namespace)
            }
            _ => status(404),
        }
    }
}

fn service(
    server: &SharedAccountServer,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = BoxError, Future: Send> + Send + 'static {
    let server = server.clone();
    tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let answer = {
                let mut server = server.lock().unwrap();
                (!server.is_silent).then(|| server.serve(&request))
            };
            match answer {
                Some(answer) => Ok(answer),
                None => std::future::pending().await,
            }
        }
    })
}

struct Scene {
    server: SharedAccountServer,
    account: Account,
    nodes: Api<Node>,
    keeper: tokio::task::JoinHandle<Result<(), tasks::BoxError>>,
}

fn scene(server: Server, leadership: &Leadership) -> Scene {
    let server = Arc::new(Mutex::new(server));
    let ask = ClientBuilder::new(service(&server), "default").build();
    let limits = || WriteLimits::new(32, None, "");
    let create = ClientBuilder::new(service(&server), "default");
    let create = create.with_layer(&guard::layer(leadership.clone(), limits())).build();
    let (account, keeper) = new("node-controller", ask, create, leadership.clone());
    let write = super::service(account.clone(), ClientBuilder::new(service(&server), "default").build());
    let write = ClientBuilder::new(write, "default").with_layer(&guard::layer(leadership.clone(), limits()));
    let nodes = Api::all(write.build());
    Scene { server, account, nodes, keeper: tokio::spawn(keeper.run()) }
}

impl Scene {
    async fn write(&self) -> Result<(), CallError> {
        let patch = Patch::Strategic(json!({}));
        limited("patch node a", CALL_LIMIT, self.nodes.patch("a", &PatchParams::default(), &patch)).await.map(drop)
    }

    fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }
}

#[test]
fn a_token_is_renewed_at_four_fifths_of_its_life_less_the_slack() {
    let cases =
        [("an hour", 3600, 2870), ("ten minutes", 600, 470), ("less: clocks differ", 60, 470), ("over", 0, 470)];
    for (case, life, expected) in cases {
        assert_eq!(renew_after(Duration::from_secs(life)), Duration::from_secs(expected), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_account_is_made_and_its_token_renewed_while_it_is_good() {
    let scene = scene(Server::default(), &Leadership::always());
    scene.write().await.unwrap();
    {
        let server = scene.server();
        assert_eq!(server.written, ["Bearer token-1"]);
        let steps = [
            "GET /node-controller",
            "GET /api/v1/namespaces/kube-system",
            "POST /api/v1/namespaces",
            "POST ",
            "POST /node-controller/token",
        ];
        assert_eq!(server.asked, steps);
    }
    tokio::time::sleep(Duration::from_secs(2_860)).await;
    scene.write().await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    scene.write().await.unwrap();
    assert_eq!(scene.server().written, ["Bearer token-1", "Bearer token-1", "Bearer token-2"]);

    // If a renewal is rejected, the old token stays in use.
    scene.server().refuses = Some(403);
    tokio::time::sleep(HOUR).await;
    scene.write().await.unwrap();
    assert_eq!(scene.server().written.last().unwrap(), "Bearer token-2");
    assert!(!format!("{:?}", scene.account).contains("token-"));
}

#[tokio::test(start_paused = true)]
async fn a_standby_has_a_token_and_makes_no_account() {
    let (mut holder, leadership) = Holder::new();
    let scene = scene(Server { has_namespace: true, ..Server::default() }, &leadership);
    tokio::time::sleep(HOUR).await;
    assert!(scene.server().asked.iter().all(|asked| asked.starts_with("GET ")), "{:?}", scene.server().asked);
    assert!(scene.write().await.is_err());
    holder.begin(SendTime::now(), HOUR);
    scene.write().await.unwrap();
    assert!(scene.server().has_account);
    drop(holder);

    let (mut holder, leadership) = Holder::new();
    let scene = self::scene(Server { has_account: true, ..Server::default() }, &leadership);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(scene.server().tokens, 1);
    assert!(scene.write().await.unwrap_err().is_not_leader());
    holder.begin(SendTime::now(), HOUR);
    scene.write().await.unwrap();
    assert_eq!(scene.server().tokens, 1, "the first write needs none");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_nothing_is_written_and_the_reason_is_told() {
    let start = Server { has_account: true, refuses: Some(403), ..Server::default() };
    let scene = scene(start, &Leadership::always());
    let error = scene.write().await.unwrap_err();
    assert!(matches!(&error, CallError::NoToken(_, source) if source.is_refused), "{error:?}");
    assert_eq!(error.reason(), "NoToken");
    let text = chain(&error);
    let expected = "patch node a: not written: there is no token for the service account kube-system/node-controller: \
                    create a token of the service account kube-system/node-controller";
    assert!(text.starts_with(expected), "{text}");
    assert_eq!(scene.server().written.len(), 0, "never as this process");
    assert_eq!(scene.server().tokens, 0);
    // The next retry succeeds without intervention.
    scene.server().refuses = None;
    tokio::time::sleep(Duration::from_secs(20)).await;
    scene.write().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_at_the_start_is_waited_for() {
    let scene = scene(Server { has_account: true, is_silent: true, ..Server::default() }, &Leadership::always());
    let began = Instant::now();
    assert!(scene.write().await.is_err());
    assert!(began.elapsed() <= CALL_LIMIT + Duration::from_secs(1));
    tokio::time::sleep(HOUR).await;
    assert!(!scene.keeper.is_finished());
    scene.server().is_silent = false;
    tokio::time::sleep(Duration::from_secs(30)).await;
    scene.write().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_tried_four_times_and_the_pauses_double() {
    let scene = scene(Server { has_account: true, refuses: Some(500), ..Server::default() }, &Leadership::always());
    let tries = || scene.server().asked.iter().filter(|asked| asked.ends_with("/token")).count();
    let (began, mut seen) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(12) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if seen.len() < tries() {
            seen.push(began.elapsed().as_millis() / 100);
        }
    }
    assert_eq!(seen, [0, 5, 15, 35], "in tenths of a second");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_server_does_not_know_any_more_is_replaced() {
    let scene = scene(Server { has_account: true, ..Server::default() }, &Leadership::always());
    scene.write().await.unwrap();
    scene.server().forgotten = 1;
    assert_eq!(scene.write().await.unwrap_err().code(), Some(401));
    tokio::time::sleep(Duration::from_secs(20)).await;
    scene.write().await.unwrap();
    assert_eq!(scene.server().tokens, 2);
}
