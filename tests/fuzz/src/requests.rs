//! Fuzz target for the requests of commands, as a process reads them from its local socket. The answers come from a
//! small cluster: an API server on a loopback address, and a vCenter that refuses connections.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ccm::app::observer::Observer;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::laws::SECRET;

/// Word in an input that stands for the version of this program.
const VERSION: &[u8] = b"VERSION";

/// Upper limit of an answer about this cluster, in bytes. Metrics and flags are the longest parts.
const LARGEST: usize = 512 << 10;

/// Upper limit of the reason why there is no answer, in bytes.
const LONGEST_REASON: usize = 4096;

/// Time limit for reading the cluster once.
const START: Duration = Duration::from_secs(30);

/// The parts of the program that answer, after they have read the cluster.
struct Respondent {
    runtime: Runtime,
    observer: Observer,
    version: String,
}

impl Respondent {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let flags = [
            format!("--master=http://{}", start_api_server()),
            format!("--cloud-config={}", write_cloud_config().display()),
            "--cluster-name=fuzz".to_owned(),
        ];
        let flags: Vec<OsString> = flags.into_iter().map(OsString::from).collect();
        let end = tokio::time::Instant::now() + START;
        let observer = runtime.block_on(Observer::start(&flags, end)).unwrap_or_else(|error| panic!("{error}"));
        let mut respondent = Self { runtime, observer, version: String::new() };
        respondent.version = respondent.answer(b"{}")["version"].as_str().expect("a version").to_owned();
        respondent.wait_until_read();
        respondent
    }

    /// Returns the answer to a request.
    fn answer(&self, request: &[u8]) -> Value {
        let answer = self.runtime.block_on(self.observer.respond_to_bytes(request.to_vec()));
        assert!(answer.len() <= LARGEST, "{} bytes", answer.len());
        serde_json::from_slice(&answer).expect("an answer is JSON")
    }

    /// Returns the request with the version of this program.
    fn with_version(&self, request: &[u8]) -> Vec<u8> {
        let Some(at) = request.windows(VERSION.len()).position(|window| window == VERSION) else {
            return request.to_vec();
        };
        let (before, rest) = request.split_at(at);
        [before, self.version.as_bytes(), rest.get(VERSION.len()..).unwrap_or_default()].concat()
    }

    fn wait_until_read(&self) {
        let question = json!({"Explain": {"subject": "Node", "name": "worker-1"}});
        let request = json!({"version": self.version, "question": question, "masks_users": false}).to_string();
        let end = Instant::now() + START;
        while self.answer(request.as_bytes()).to_string().contains("were not read yet") {
            assert!(Instant::now() < end, "the Nodes are not read");
            // A timer needs the runtime that it is created in.
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
        }
    }
}

/// Returns the respondent, which every input asks and no input changes.
fn respondent() -> MutexGuard<'static, Respondent> {
    static RESPONDENT: OnceLock<Mutex<Respondent>> = OnceLock::new();
    let respondent = RESPONDENT.get_or_init(|| Mutex::new(Respondent::start()));
    // An input that failed before has changed nothing.
    respondent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers a request. The answer has a result or a short reason, and no password. `VERSION` in the input stands for the
/// version of this program, because no other version gets an answer.
pub fn request(bytes: &[u8]) {
    let respondent = respondent();
    let response = respondent.answer(&respondent.with_version(bytes));
    assert_eq!(response["version"], respondent.version.as_str());
    match (&response["answer"]["Ok"], &response["answer"]["Err"]) {
        (Value::Null, Value::String(reason)) => assert!(reason.len() <= LONGEST_REASON, "{reason}"),
        (result, Value::Null) if !result.is_null() => {}
        other => panic!("neither a result nor a reason: {other:?}"),
    }
    // The answer may repeat a name from the request.
    if !String::from_utf8_lossy(bytes).contains(SECRET) {
        crate::laws::hides_secret(&response.to_string());
    }
}

/// Writes a configuration with a vCenter that refuses connections.
fn write_cloud_config() -> PathBuf {
    let path = std::env::temp_dir().join(format!("ccm-fuzz-{}.conf", std::process::id()));
    let text = format!(
        "[Global]\nuser = \"ccm@vsphere.local\"\npassword = \"{SECRET}\"\ninsecure-flag = true\nport = 1\n\
         [VirtualCenter \"127.0.0.1\"]\ndatacenters = \"dc-1\"\n"
    );
    std::fs::write(&path, text).expect("a file in the folder for temporary files");
    path
}

/// Starts an API server and returns its address. It serves until the process ends.
fn start_api_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away ends its thread.
            thread::spawn(move || serve(&stream));
        }
    });
    address
}

/// Answers the requests of one connection, until the client ends it.
fn serve(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut length = 0;
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            let (name, value) = header.split_once(':').unwrap_or_default();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap_or_default();
            }
            header.clear();
        }
        reader.read_exact(&mut vec![0; length])?;
        let path = line.split(' ').nth(1).unwrap_or_default();
        if path.contains("watch=true") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")?;
            stream.write_all(initial_events(path).as_bytes())?;
            // Nothing changes afterwards.
            return reader.read_to_end(&mut Vec::new()).map(|_| ());
        }
        let (status, body) = answer(path);
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
    }
}

/// Returns the status and the body for a path.
fn answer(path: &str) -> (&'static str, String) {
    let missing = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404});
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {},
        "status": {"allowed": true}});
    if path.contains("/leases") || path.contains("/configmaps") {
        return ("404 Not Found", missing.to_string());
    }
    if path.contains("selfsubjectaccessreviews") {
        return ("201 Created", review.to_string());
    }
    let list =
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": objects(path)});
    ("200 OK", list.to_string())
}

/// Returns the Nodes or Services of the cluster.
fn objects(path: &str) -> Vec<Value> {
    let of_node = |name: &str, uuid: &str, ready: &str| {
        json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7"},
            "spec": {"providerID": format!("vsphere://{uuid}"), "podCIDRs": ["10.244.1.0/24"]},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}],
                "conditions": [{"type": "Ready", "status": ready}],
            },
        })
    };
    if path.starts_with("/api/v1/nodes") {
        return vec![
            of_node("worker-1", "4211a1b2-c3d4-4e5f-8a9b-000000000001", "True"),
            of_node("worker-2\u{202e}", "not a UUID", "Unknown"),
        ];
    }
    if path.starts_with("/api/v1/services") {
        return vec![json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
        })];
    }
    Vec::new()
}

/// Returns the lines of a streaming list, with the bookmark that ends it.
fn initial_events(path: &str) -> String {
    if !path.contains("sendInitialEvents=true") {
        return String::new();
    }
    let added = |object: Value| json!({"type": "ADDED", "object": object});
    let kind = if path.starts_with("/api/v1/nodes") { "Node" } else { "Service" };
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let end = json!({"type": "BOOKMARK", "object": {
        "kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "9", "annotations": annotations},
    }});
    let events = objects(path).into_iter().map(added).chain([end]);
    events.map(|event| format!("{event}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccm::runtime::local_socket::frame::MAX_REQUEST;

    fn asked(question: &Value) -> Value {
        let respondent = respondent();
        let request = json!({"version": respondent.version, "question": question, "masks_users": true}).to_string();
        respondent.answer(request.as_bytes())["answer"].clone()
    }

    #[test]
    fn each_question_gets_its_answer_from_the_cluster() {
        let node = asked(&json!({"Explain": {"subject": "Node", "name": "worker-1"}}));
        assert_eq!(node["Ok"]["Explain"]["subject"], "Node worker-1", "{node}");
        let near = asked(&json!({"Explain": {"subject": "Deletion", "name": "worker-3"}}));
        assert!(near["Ok"].is_object(), "{near}");
        for (question, answer) in [
            (json!({"Status": {"vcenter": null, "node": null}}), "Status"),
            (json!({"Check": {"node": null, "vcenter": null, "is_deep": true, "is_preflight": false}}), "Check"),
            (json!({"Plan": {"node": null}}), "Plan"),
            (json!({"BundlePart": {"part": "nodes", "from": null}}), "BundlePart"),
            (json!("BundleNames"), "BundleNames"),
        ] {
            let answered = asked(&question);
            assert!(!answered["Ok"][answer].is_null(), "{question}: {answered}");
        }
        assert!(asked(&json!({"Deletions": "List"}))["Err"].is_string(), "only a daemon deletes Nodes");
    }

    #[test]
    fn a_request_of_the_largest_size_gets_a_reason() {
        for piece in ["[", "{\"a\":", "9", " ", "\"", "\u{0}", "\u{202e}", "\\u0000"] {
            request(piece.repeat(MAX_REQUEST / piece.len()).as_bytes());
        }
        for name in ["x".repeat(MAX_REQUEST - 200), "\u{202e}".repeat(20_000), "\\ud800".repeat(9_000)] {
            let question = format!("{{\"Explain\":{{\"subject\":\"Node\",\"name\":\"{name}\"}}}}");
            let text = format!("{{\"version\":\"VERSION\",\"question\":{question},\"masks_users\":true}}");
            request(text.as_bytes());
        }
    }
}
