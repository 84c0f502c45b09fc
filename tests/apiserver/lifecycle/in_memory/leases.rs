//! The Lease about the pause of deletions at the API server in memory, and the clock of that server.

use std::collections::VecDeque;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::server::Fate;

/// Time of the server's clock at the start of a test. The local clock has another time.
pub const START: &str = "2031-05-01T00:00:00Z";

/// The Lease, and the fates of its requests.
pub struct Leases {
    pub lease: Option<Value>,
    /// Fates of the next requests. Then comes `always`.
    pub next: VecDeque<Fate>,
    pub always: Fate,
    /// Whether answers have a Date.
    pub has_clock: bool,
    /// Time of the server's clock at the start of the test.
    pub start: Timestamp,
    /// Times of the requests.
    pub sent: Vec<(Instant, Method)>,
    began: Instant,
    version: u32,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            lease: None,
            next: VecDeque::new(),
            always: Fate::Works,
            has_clock: true,
            start: START.parse().unwrap(),
            sent: Vec::new(),
            began: Instant::now(),
            version: 0,
        }
    }
}

impl Leases {
    /// Returns the time of the server's clock.
    pub fn time(&self) -> Timestamp {
        self.start.checked_add(self.began.elapsed()).unwrap()
    }

    /// Returns the header `Date`, in whole seconds.
    pub fn date(&self) -> Option<String> {
        let text = || self.time().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        self.has_clock.then(text)
    }

    /// Another client sets these annotations, and no others.
    pub fn annotate(&mut self, annotations: &Value) {
        self.store(json!({"metadata": {"name": "vsphere-ccm-deletions", "annotations": annotations}}));
    }

    /// Returns an annotation, or an empty text.
    pub fn annotation(&self, name: &str) -> String {
        let annotations = self.lease.as_ref().map(|lease| &lease["metadata"]["annotations"][name]);
        annotations.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    /// Takes the fate of a request.
    pub fn fate(&mut self, method: &Method) -> Fate {
        self.sent.push((Instant::now(), method.clone()));
        self.next.pop_front().unwrap_or(self.always)
    }

    /// Executes the request, and returns status code, reason of a failure, and object.
    pub fn perform(&mut self, method: &Method, body: &Value) -> Result<Value, (u16, &'static str)> {
        match (method.as_str(), &self.lease) {
            ("GET", Some(lease)) => return Ok(lease.clone()),
            ("GET" | "PUT", None) => return Err((404, "NotFound")),
            ("POST", Some(_)) => return Err((409, "AlreadyExists")),
            ("PUT", Some(lease)) if lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] => {
                return Err((409, "Conflict"));
            }
            ("POST" | "PUT", _) => {}
            (other, _) => panic!("unexpected {other} of a Lease"),
        }
        self.store(body.clone());
        Ok(self.lease.clone().unwrap())
    }

    fn store(&mut self, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        lease["metadata"]["uid"] = json!("uid-of-the-lease");
        self.lease = Some(lease);
    }
}
