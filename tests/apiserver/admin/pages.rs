//! The paths of the secure port other than the probes and `/metrics`.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

async fn ask(server: &Served, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let request = client(server).request(method.parse().unwrap(), format!("https://{}{path}", server.address));
    let answer = request.bearer_auth("good").body(body.to_owned()).send().await.unwrap();
    let content_type = answer.headers()["content-type"].to_str().unwrap().to_owned();
    (answer.status().as_u16(), content_type, answer.text().await.unwrap())
}

#[tokio::test]
async fn pages_are_written_at_each_request() {
    let count = AtomicU32::new(0);
    let write = move || format!("{{\"n\":{}}}", count.fetch_add(1, Ordering::Relaxed));
    let page = Page { path: "/configz", content_type: "application/json", write: Arc::new(write) };
    let server = served_with(vec![page], None).await;
    for number in 0..2 {
        let expected = (200, "application/json".to_owned(), format!("{{\"n\":{number}}}"));
        assert_eq!(ask(&server, "GET", "/configz", "").await, expected);
    }
    assert_eq!(ask(&server, "POST", "/configz", "").await.0, 405);
    assert_eq!(ask(&server, "GET", "/configz/", "").await.0, 404);
}

/// O-75: in the Go program the paths of single checks are not reachable.
// vectors: O-75
#[tokio::test]
async fn o_75_single_checks_and_the_series_of_probes_are_served() {
    let server = served().await;
    server.checks.add_health("good", || Health::Ok);
    server.checks.add_health("bad", || Health::Failed("stuck".to_owned()));
    server.checks.add_readiness("vcenter a.example", || Health::Note("unavailable".into()));
    for (path, status, text) in [
        ("/healthz/good", 200, "ok"),
        ("/healthz/bad", 500, "internal server error: stuck\n"),
        ("/healthz", 500, "[+]good ok\n[-]bad failed: reason withheld\nhealthz check failed\n"),
        ("/healthz?exclude=bad&verbose", 200, "[+]good ok\n[+]bad excluded: ok\nhealthz check passed\n"),
        ("/livez/ping", 200, "ok"),
        ("/livez/bad", 404, "404 page not found"),
        ("/readyz/vcenter%20a.example", 200, "unavailable"),
        (
            "/readyz?exclude=vcenter+a.example&verbose=1",
            200,
            "[+]vcenter a.example excluded: ok\nreadyz check passed\n",
        ),
    ] {
        let (seen, _, body) = ask(&server, "GET", path, "").await;
        assert_eq!((seen, body.as_str()), (status, text), "{path}");
    }
    let (_, content_type, series) = ask(&server, "GET", "/metrics/slis", "").await;
    assert!(content_type.starts_with("text/plain; version=0.0.4"), "{content_type}");
    assert!(
        series.contains("kubernetes_healthchecks_total{name=\"bad\",status=\"error\",type=\"healthz\"} 2\n"),
        "{series}"
    );
    assert_eq!(ask(&server, "DELETE", "/metrics/slis", "").await.2, "metrics reset\n");
    assert!(!ask(&server, "GET", "/metrics/slis", "").await.2.contains("bad"));
}

#[tokio::test]
async fn the_log_is_made_louder_as_in_the_go_program() {
    let (log, _written) = ccm::runtime::logging::start(&Default::default()).unwrap();
    let server = served_with(Vec::new(), Some(log.verbosity)).await;
    for (method, path, body, status, text) in [
        ("PUT", "/debug/flags/v", "4", 200, "successfully set klog.logging.verbosity to 4"),
        ("PUT", "/debug/flags/v", "-1", 200, "successfully set klog.logging.verbosity to -1"),
        ("PUT", "/debug/flags/v", "loud", 400, "failed set klog.logging.verbosity \"loud\": "),
        ("PUT", "/debug/flags/v", &"1".repeat(2000), 400, "error reading request body"),
        ("GET", "/debug/flags/v", "", 406, "unsupported http method"),
        ("POST", "/debug/flags/v", "4", 406, "unsupported http method"),
        ("GET", "/debug/flags", "", 200, "<html>\n<head>\n<title>/debug/flags/</title>"),
        ("GET", "/debug/flags/", "", 200, "<html>\n<head>\n<title>/debug/flags/</title>"),
        ("GET", "/debug/pprof/heap", "", 404, "404 page not found: this program has no pprof"),
        ("GET", "/debug/other", "", 404, "404 page not found"),
        ("GET", "/debug", "", 404, "404 page not found"),
    ] {
        let (seen, _, answer) = ask(&server, method, path, body).await;
        assert_eq!(seen, status, "{method} {path} {body}: {answer}");
        assert!(answer.starts_with(text), "{method} {path} {body}: {answer}");
    }
    let without = served().await;
    assert_eq!(ask(&without, "PUT", "/debug/flags/v", "4").await.0, 404, "--profiling=false");
}
