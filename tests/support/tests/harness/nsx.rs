//! Tests of the fake NSX Manager: the examples of `nsx.md`, and one violation of each of its rules.

#[path = "nsx/access.rs"]
mod access;
#[path = "nsx/faults.rs"]
mod faults;
#[path = "nsx/go.rs"]
mod go;
#[path = "nsx/hierarchy.rs"]
mod hierarchy;
#[path = "nsx/limits.rs"]
mod limits;
#[path = "nsx/lists.rs"]
mod lists;
#[path = "nsx/manual_changes.rs"]
mod manual_changes;
#[path = "nsx/objects.rs"]
mod objects;
#[path = "nsx/realization.rs"]
mod realization;

use reqwest::Method;
use serde_json::{Value, json};
use support::fake_nsx::{Behaviour, FakeNsx, Model};

use crate::LIMIT;

/// A manager with the gateway `t1` and the pool `p1`, and a client of its administrator, which sends the password with
/// each request.
struct Manager {
    fake: FakeNsx,
    http: reqwest::Client,
    user: String,
    password: String,
}

/// Message of NSX for an account whose role lacks a permission.
const DENIED: &str = "User is not authorized to perform this operation on the application.";

/// HTTP status and body.
type Answer = (u16, Value);

fn client(fake: &FakeNsx) -> reqwest::ClientBuilder {
    support::api_server::install_crypto();
    let ca = reqwest::Certificate::from_pem(fake.ca_pem().as_bytes()).unwrap();
    reqwest::Client::builder().tls_certs_only([ca]).no_proxy().timeout(LIMIT)
}

impl Manager {
    async fn start(model: Model) -> Self {
        let fake = FakeNsx::start(model).await;
        let (http, user, password) = (client(&fake).build().unwrap(), fake.user().to_owned(), fake.password());
        Self { fake, http, user, password }
    }

    async fn small() -> Self {
        Self::start(Model::small()).await
    }

    async fn behaving(behaviour: Behaviour) -> Self {
        Self::start(Model::small().behaviour(behaviour)).await
    }

    /// Returns a client of another user of the same manager.
    fn with_user(self, user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: password.to_owned(), ..self }
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("{}{path}", self.fake.url());
        self.http.request(method, url).basic_auth(&self.user, Some(&self.password))
    }

    async fn get(&self, path: &str) -> Answer {
        answer(self.request(Method::GET, path)).await
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        answer(self.request(Method::PUT, path).json(body)).await
    }

    async fn patch(&self, path: &str, body: &Value) -> Answer {
        answer(self.request(Method::PATCH, path).json(body)).await
    }

    async fn delete(&self, path: &str) -> Answer {
        answer(self.request(Method::DELETE, path)).await
    }

    /// Sends a PUT that must be accepted.
    async fn create(&self, path: &str, body: Value) -> Value {
        let (status, object) = self.put(path, &body).await;
        assert_eq!(status, 200, "PUT {path} {body}: {object}");
        object
    }

    /// Creates a service, a monitor, a pool and a virtual server, each named `a`.
    async fn create_load_balancer(&self) {
        self.create("/infra/lb-services/a", json!({"connectivity_path": "/infra/tier-1s/t1"})).await;
        self.create("/infra/lb-monitor-profiles/a", json!({"resource_type": "LBTcpMonitorProfile"})).await;
        let monitors = json!(["/infra/lb-monitor-profiles/a"]);
        let members = json!([{"ip_address": "10.0.0.1"}]);
        self.create("/infra/lb-pools/a", json!({"active_monitor_paths": monitors, "members": members})).await;
        self.create("/infra/lb-virtual-servers/a", virtual_server("192.0.2.5", "80", TCP)).await;
    }
}

const TCP: &str = "/infra/lb-app-profiles/default-tcp-lb-app-profile";
const UDP: &str = "/infra/lb-app-profiles/default-udp-lb-app-profile";

fn virtual_server(address: &str, port: &str, profile: &str) -> Value {
    json!({"ip_address": address, "ports": [port], "application_profile_path": profile,
        "pool_path": "/infra/lb-pools/a", "lb_service_path": "/infra/lb-services/a"})
}

fn route(network: &str, hop: &str) -> Value {
    json!({"network": network, "next_hops": [{"ip_address": hop}]})
}

async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let answer = request.send().await.unwrap();
    let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Returns status and code of an error. The code may be text.
fn refusal(answer: &Answer) -> (u16, Option<i64>) {
    assert!(answer.1["httpStatus"].is_string() && answer.1["error_message"].is_string(), "{answer:?}");
    let code = &answer.1["error_code"];
    (answer.0, code.as_i64().or_else(|| code.as_str().map(|text| text.parse().unwrap())))
}

#[track_caller]
fn assert_refused(answer: &Answer, status: u16, code: impl Into<Option<i64>>, names: &str) {
    assert_eq!(refusal(answer), (status, code.into()), "{answer:?}");
    assert!(answer.1["error_message"].as_str().unwrap().contains(names), "{names} is named: {answer:?}");
}
