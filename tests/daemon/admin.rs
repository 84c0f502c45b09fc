//! The daemon's secure port, seen by a client.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use support::rbac::{self, Subject};
use support::{ApiServer, Daemon, unique};

use crate::cluster::Cluster;

/// Client of the secure port of a daemon that was started with [`Admin::flag`].
pub struct Admin {
    port: u16,
    http: reqwest::Client,
    /// Whether the port was open once. A later call does not wait again.
    is_served: AtomicBool,
}

impl Admin {
    /// Picks a port that is free now.
    pub fn new() -> Self {
        Self::with(|builder| builder)
    }

    /// As [`Admin::new`], with an HTTP client that `prepare` configures.
    pub fn with(prepare: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> Self {
        support::api_server::install_crypto();
        let builder = prepare(reqwest::Client::builder().no_proxy().timeout(super::cluster::LIMIT));
        // The daemon makes a self-signed certificate at its start.
        let http = builder.tls_danger_accept_invalid_certs(true).build().unwrap();
        Self { port: support::api_server::free_port(), http, is_served: AtomicBool::new(false) }
    }

    /// Returns the flag that makes the daemon listen on this port.
    pub fn flag(&self) -> String {
        format!("--secure-port={}", self.port)
    }

    /// Returns the number of the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns status and body. Waits first until the daemon listens.
    pub async fn get(&self, path: &str, token: Option<&str>, daemon: &mut Daemon) -> (u16, String) {
        if !self.is_served.load(Ordering::Relaxed) {
            // The log is no proof, because the test drops the first lines of a long log.
            support::eventually("the secure port is open", super::cluster::LIMIT, async || {
                tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.map_err(|_| daemon.output().tail(40))
            })
            .await;
            self.is_served.store(true, Ordering::Relaxed);
        }
        let mut request = self.http.get(format!("https://127.0.0.1:{}{path}", self.port));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let sent = request.send().await;
        let answer = sent.unwrap_or_else(|error| panic!("{error:?}; the daemon: {}", daemon.output().tail(40)));
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Returns the sum over all labels of this metric.
    pub async fn sum(&self, metric: &str, token: &str, daemon: &mut Daemon) -> f64 {
        let (status, text) = self.get("/metrics", Some(token), daemon).await;
        assert_eq!(status, 200, "{text}");
        let values = text.lines().filter(|line| line.starts_with(metric)).filter_map(|line| line.rsplit(' ').next());
        values.map(|value| value.parse::<f64>().unwrap()).sum()
    }
}

/// Returns the token of a new service account with the right to read metrics only.
pub async fn token(_: &Cluster) -> String {
    token_of(ApiServer::shared().await).await
}

/// As [`Admin::token`], on an API server that belongs to this test alone.
pub async fn token_of(server: &ApiServer) -> String {
    let name = unique("account");
    let (_, token) = server.create_service_account("default", &name).await;
    let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    rbac::grant(&server.client().await, None, &name, Subject::ServiceAccount("default", &name), rules).await;
    token
}
