//! Tests of the clients: their settings, and that no write is sent without leadership.

mod broken;
mod forms;
mod kubeconfig;

use super::*;
use crate::base::error_chain::chain;
use crate::kubernetes::call::{CALL_LIMIT, limited};
use crate::kubernetes::leadership::{Holder, SendTime, WallClock};
use futures::FutureExt;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use tower::BoxError;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a guarded client, and the number of requests. The server answers each request with a Node after `delay`.
fn guarded(leadership: Leadership, delay: Duration) -> (Client, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let service = tower::service_fn(move |_request: Request<Body>| {
        let counter = counter.clone();
        async move {
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(delay).await;
            let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#;
            Ok::<_, BoxError>(Response::new(Body::from(node.as_bytes().to_vec())))
        }
    });
    let client = ClientBuilder::new(service, "default")
        .with_layer(&guard::layer(leadership, WriteLimits::new(2, None, "")))
        .build();
    (client, count)
}

#[tokio::test(start_paused = true)]
async fn a_standby_reads_and_cannot_write() {
    let (_holder, leadership) = Holder::new();
    let (client, count) = guarded(leadership, Duration::ZERO);
    let nodes: Api<Node> = Api::all(client);
    assert!(limited("get node a", SECOND, nodes.get("a")).await.is_ok());
    assert_eq!(count.load(Ordering::SeqCst), 1);

    let patch = Patch::Strategic(serde_json::json!({}));
    let writes = [
        limited("patch", SECOND, nodes.patch("a", &PatchParams::default(), &patch).map(|r| r.map(drop))).await,
        limited("delete", SECOND, nodes.delete("a", &DeleteParams::default()).map(|r| r.map(drop))).await,
        limited("create", SECOND, nodes.create(&PostParams::default(), &Node::default()).map(|r| r.map(drop))).await,
    ];
    for write in writes {
        let error = write.unwrap_err();
        assert!(error.is_not_leader(), "{error:?}");
        assert!(chain(&error).ends_with("not written: this process is not the leader"), "{}", chain(&error));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1, "no write reached the wire");
}

#[tokio::test(start_paused = true)]
async fn a_write_ends_with_the_term_it_began_in() {
    let (mut holder, leadership) = Holder::new();
    holder.begin(SendTime::now(), 2 * SECOND);
    let (client, count) = guarded(leadership, 3600 * SECOND);
    let nodes: Api<Node> = Api::all(client);
    let start = tokio::time::Instant::now();
    let error = limited("delete node a", 60 * SECOND, nodes.delete("a", &DeleteParams::default())).await.unwrap_err();
    assert!(error.is_not_leader(), "{error:?}");
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waited_for_its_turn_is_checked_when_it_is_sent() {
    let (mut holder, leadership) = Holder::new();
    holder.begin(SendTime::now(), 2 * SECOND);
    let (client, count) = guarded(leadership, 3600 * SECOND);
    let nodes: Api<Node> = Api::all(client);
    let parameters = DeleteParams::default();
    let delete = || limited("delete node a", 60 * SECOND, nodes.delete("a", &parameters));
    let (first, second, third) = tokio::join!(delete(), delete(), delete());
    for outcome in [first, second, third] {
        assert!(outcome.unwrap_err().is_not_leader());
    }
    assert_eq!(count.load(Ordering::SeqCst), 2, "two were in flight; the third was never sent");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waited_for_a_connection_is_not_sent_after_a_suspension() {
    let clock = WallClock::default();
    let (mut holder, leadership) = Holder::with_clock(clock.clone());
    holder.begin(SendTime::now(), 10 * SECOND);
    let (waits, connected) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let sent = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn({
        let (waits, connected, sent) = (waits.clone(), connected.clone(), sent.clone());
        move |_request: Request<Body>| {
            let (waits, connected, sent) = (waits.clone(), connected.clone(), sent.clone());
            async move {
                waits.notify_one();
                connected.notified().await;
                sent.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<Result<Response<Body>, BoxError>>().await
            }
        }
    });
    let guard = guard::layer(leadership, WriteLimits::new(2, None, ""));
    let client = ClientBuilder::new(service, "default").with_layer(&guard).build();
    let nodes: Api<Node> = Api::all(client);
    let parameters = DeleteParams::default();
    let delete = limited("delete node a", 60 * SECOND, nodes.delete("a", &parameters));
    let (outcome, ()) = tokio::join!(delete, async {
        waits.notified().await;
        // The connection is established before any timer fires.
        clock.jump(20 * SECOND);
        connected.notify_one();
    });
    assert!(outcome.unwrap_err().is_not_leader());
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_an_error_in_time() {
    let (client, _) = guarded(Leadership::always(), 3600 * SECOND);
    let error = limited("get node a", SECOND, Api::<Node>::all(client).get("a")).await.unwrap_err();
    assert_eq!(error.to_string(), "get node a: no answer within 1 s");
    assert_eq!(error.reason(), "TimedOut");
}

#[tokio::test]
async fn settings_that_cannot_work_say_which_and_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "clusters: 7").unwrap();
    let proxied = folder.path().join("proxied");
    let cluster = r#"{"server": "https://10.0.0.1", "proxy-url": "ftp://ccm:hunter2@proxy"}"#;
    let context = r#""contexts": [{"name": "x", "context": {"cluster": "a"}}], "current-context": "x""#;
    std::fs::write(&proxied, format!(r#"{{"clusters": [{{"name": "a", "cluster": {cluster}}}], {context}}}"#)).unwrap();
    let with_kubeconfig = |path: PathBuf| Settings { kubeconfig: Some(path), ..Settings::default() };
    let cases = [
        ("no such file", with_kubeconfig(folder.path().join("none")), "cannot use the kubeconfig"),
        ("broken file", with_kubeconfig(broken), "cannot use the kubeconfig"),
        ("a proxy", with_kubeconfig(proxied), "cannot use the kubeconfig"),
        ("not in a pod", Settings::default(), "no --kubeconfig is given"),
        ("no URL", Settings { master: Some("https://".into()), ..Settings::default() }, "--master"),
    ];
    for (case, settings, expected) in cases {
        let error = read_config(&settings).await.unwrap_err();
        let text = chain(&error);
        assert!(text.starts_with(expected) && !text.contains("hunter2"), "{case}: {text}");
        if let Some(path) = &settings.kubeconfig {
            assert!(text.contains(&path.display().to_string()), "{case}: {text}");
        }
    }
    let master = Settings { master: Some("10.0.0.1:8080".into()), ..Settings::default() };
    assert_eq!(read_config(&master).await.unwrap().cluster_url.to_string(), "http://10.0.0.1:8080/");
}

#[tokio::test]
async fn a_refused_connection_names_what_was_asked() {
    // The listener is dropped, so no process listens on the port.
    let address = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let client = unguarded(&config, purpose::PROCESS).unwrap();
    let error = limited("get node a", CALL_LIMIT, Api::<Node>::all(client).get("a")).await.unwrap_err();
    let text = chain(&error);
    let start = format!("get node a: API server http://{address}: client error (Connect): ");
    assert!(text.starts_with(&start) && text.contains("refused"), "{text}");
    assert_eq!(error.reason(), "Unreachable");
}

#[tokio::test]
async fn what_the_api_server_says_is_told_once() {
    let status = kube::core::Status::failure("nodes \"a\" is forbidden", "Forbidden").with_code(403).boxed();
    let answer = async { Err::<(), _>(kube::Error::Api(status)) };
    let error = limited("patch node a", CALL_LIMIT, answer).await.unwrap_err();
    assert!(error.is_forbidden());
    assert_eq!(chain(&error), "patch node a: nodes \"a\" is forbidden (403)");
}

#[test]
fn a_user_agent_names_the_program_the_machine_and_the_purpose() {
    let purpose = "system:serviceaccount:kube-system:node-controller";
    for (commit, shown) in [(Some("0123456789abcdef"), "0123456"), (Some(""), "unknown"), (None, "unknown")] {
        let header = user_agent(commit, purpose);
        let text = header.to_str().unwrap();
        let program = concat!("vsphere-cloud-controller-manager/", env!("CARGO_PKG_VERSION"), " (linux/");
        assert!(text.starts_with(program), "{text}");
        assert!(text.ends_with(&format!(") kubernetes/{shown}/{purpose}")), "{text}");
    }
}
