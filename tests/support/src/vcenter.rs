//! The vCenter simulator: started with a scenario, changed and observed while it runs.

mod rule;
mod scenario;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use rule::Rule;
pub use scenario::{Nic, Object, Scenario, Vm, VmChange};

use crate::components::Component;
use crate::process::Usage;
use crate::supervisor::TemporaryFolder;

/// A running simulator. Dropping it ends it.
pub struct Vcenter {
    addresses: Addresses,
    user: String,
    password: String,
    folder: TemporaryFolder,
    ca_file: PathBuf,
    process: Child,
    _stdin: ChildStdin,
}

/// The line with the addresses, which the simulator prints when it is ready.
#[derive(Debug, Deserialize)]
struct Addresses {
    sdk: String,
    port: u16,
    control: String,
    sha1: String,
    sha256: String,
    ca: String,
    #[serde(rename = "instanceUuid")]
    instance_uuid: String,
}

/// Counts of operations, including rejected calls, and of sessions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Number of all calls.
    pub total: u32,
    /// Calls by operation. See [`Rule`] for the names.
    pub operations: BTreeMap<String, u32>,
    /// Accepted SOAP logins.
    pub soap_logins: u32,
    /// Accepted REST logins.
    pub rest_logins: u32,
    /// SOAP sessions that are currently open.
    pub soap_sessions: u32,
    /// REST sessions that are currently open.
    pub rest_sessions: u32,
    /// `WaitForUpdatesEx` calls that are currently pending.
    pub pending_waits: u32,
    /// Bytes of request bodies.
    pub bytes_received: u64,
    /// Bytes of answer bodies.
    pub bytes_sent: u64,
    /// Truncated answers to `WaitForUpdatesEx`. Each makes the client request one more page.
    pub truncated: u32,
}

impl Counts {
    /// Returns the number of calls of this operation.
    #[must_use]
    pub fn of(&self, operation: &str) -> u32 {
        self.operations.get(operation).copied().unwrap_or(0)
    }
}

/// One call, in the order of arrival.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// Operation, named as in [`Counts`].
    pub operation: String,
    /// Time of arrival, in milliseconds since 1970.
    pub at_ms: i64,
    /// HTTP status of the answer. 0 if the call is pending or the connection was closed without an answer.
    pub status: u16,
}

impl Vcenter {
    /// Starts a simulator and waits until it listens.
    ///
    /// # Panics
    ///
    /// If the simulator does not start. The message has its reason.
    pub async fn start(scenario: &Scenario) -> Self {
        let scenario = scenario.clone();
        tokio::task::spawn_blocking(move || Self::start_blocking(&scenario))
            .await
            .unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    fn start_blocking(scenario: &Scenario) -> Self {
        let folder = TemporaryFolder::create();
        let file = folder.path().join("scenario.json");
        std::fs::write(&file, serde_json::to_vec(scenario).unwrap()).unwrap();
        let mut process = Command::new(Component::Vcsim.path())
            .arg("-scenario")
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in a terminal must not reach the simulator, because the test or the demo ends it later.
            .process_group(0)
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addresses: Addresses = serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!("the simulator did not start (its reason is on standard error): {error}: {line:?}")
        });
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, &addresses.ca).unwrap();
        Self {
            addresses,
            user: scenario.user.clone(),
            password: scenario.password.clone(),
            folder,
            ca_file,
            process,
            _stdin: stdin,
        }
    }

    /// Returns the address of the SOAP API.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.addresses.sdk
    }

    /// Returns `127.0.0.1`.
    #[must_use]
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// Returns the port, which does not change while the simulator runs.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addresses.port
    }

    /// Returns the user of the scenario.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Returns the password of the scenario.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Returns the server certificate's SHA-1 thumbprint, as `AA:BB:…`.
    #[must_use]
    pub fn sha1_thumbprint(&self) -> &str {
        &self.addresses.sha1
    }

    /// Returns the server certificate's SHA-256 thumbprint, as `AA:BB:…`.
    #[must_use]
    pub fn sha256_thumbprint(&self) -> &str {
        &self.addresses.sha256
    }

    /// Returns the CA that signed the server certificate, as PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.addresses.ca
    }

    /// Returns the path of a file with [`Vcenter::ca_pem`].
    #[must_use]
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// Returns `about.instanceUuid`.
    #[must_use]
    pub fn instance_uuid(&self) -> &str {
        &self.addresses.instance_uuid
    }

    /// Returns the resource usage of the simulator so far.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        Usage::of(self.process.id())
    }

    /// Returns a folder for configuration files that lives as long as this value.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a section `[VirtualCenter "…"]` of `vsphere.conf` for this vCenter, with its own user, port and CA.
    #[must_use]
    pub fn ini_section(&self, name: &str, datacenters: &str) -> String {
        format!(
            "[VirtualCenter \"{name}\"]\nserver = \"127.0.0.1\"\nport = \"{}\"\nuser = \"{}\"\npassword = \"{}\"\n\
             ca-file = \"{}\"\ndatacenters = \"{datacenters}\"\n",
            self.port(),
            self.user,
            self.password,
            self.ca_file.display()
        )
    }

    /// Returns the variables with which `govc` works on this vCenter as its administrator, without a file in `$HOME`.
    #[must_use]
    pub fn govc_environment(&self) -> [(&'static str, String); 6] {
        [
            ("GOVC_URL", format!("https://127.0.0.1:{}", self.port())),
            ("GOVC_USERNAME", self.user.clone()),
            ("GOVC_PASSWORD", self.password.clone()),
            ("GOVC_TLS_CA_CERTS", self.ca_file.display().to_string()),
            // Otherwise a session outlives its password.
            ("GOVC_PERSIST_SESSION", "false".to_owned()),
            ("GOVMOMI_HOME", self.folder.path().display().to_string()),
        ]
    }

    /// Creates a machine.
    pub async fn create_vm(&self, vm: &Vm) {
        self.call::<Value>("vm/create", json!(vm)).await;
    }

    /// Changes a machine. A pending `WaitForUpdatesEx` reports the change at once. `vm` is its name, BIOS UUID or id.
    pub async fn change_vm(&self, vm: &str, change: &VmChange) {
        self.call::<Value>("vm/change", json!({ "vm": vm, "change": change })).await;
    }

    /// Sets the address of a machine.
    pub async fn set_ip(&self, vm: &str, address: &str) {
        self.change_vm(vm, &Vm::change().ip(address)).await;
    }

    /// Destroys a machine.
    pub async fn destroy_vm(&self, vm: &str) {
        self.call::<Value>("vm/remove", json!({ "vm": vm })).await;
    }

    /// Returns the managed-object id, such as `vm-62`.
    pub async fn object_id(&self, object: &Object) -> String {
        self.call("object", json!(object)).await
    }

    /// Attaches a tag.
    pub async fn attach_tag(&self, category: &str, name: &str, object: &Object) {
        self.call::<Value>("tag/attach", json!({ "category": category, "name": name, "object": object })).await;
    }

    /// Detaches a tag.
    pub async fn detach_tag(&self, category: &str, name: &str, object: &Object) {
        self.call::<Value>("tag/detach", json!({ "category": category, "name": name, "object": object })).await;
    }

    /// Renames a tag. Its id stays.
    pub async fn rename_tag(&self, category: &str, from: &str, to: &str) {
        self.call::<Value>("tag/rename", json!({ "category": category, "name": from, "to": to })).await;
    }

    /// Deletes a tag.
    pub async fn delete_tag(&self, category: &str, name: &str) {
        self.call::<Value>("tag/delete", json!({ "category": category, "name": name })).await;
    }

    /// Ends every SOAP session. Pending waits end with `RequestCanceled`.
    pub async fn kill_soap_sessions(&self) {
        self.call::<Value>("sessions/kill", json!({ "soap": true })).await;
    }

    /// Ends every REST session.
    pub async fn kill_rest_sessions(&self) {
        self.call::<Value>("sessions/kill", json!({ "rest": true })).await;
    }

    /// Accepts only this user and password from now on. Open sessions stay.
    pub async fn set_login(&self, user: &str, password: &str) {
        self.call::<Value>("login", json!({ "user": user, "password": password })).await;
    }

    /// Adds a rule.
    pub async fn add_rule(&self, rule: &Rule) {
        self.call::<Value>("rules/add", json!(rule)).await;
    }

    /// Ends all rules of this operation, and releases the calls that hang in them.
    pub async fn clear_rules_of(&self, operation: &str) {
        self.call::<Value>("rules/clear", json!({ "operation": operation })).await;
    }

    /// Ends all rules.
    pub async fn clear_rules(&self) {
        self.clear_rules_of("").await;
    }

    /// Delays every call by this time before it is served.
    pub async fn delay_calls(&self, time: Duration) {
        self.call::<Value>("delay", json!({ "delayMs": time.as_millis() })).await;
    }

    /// Returns the current counts.
    pub async fn counts(&self) -> Counts {
        self.call("counts", json!({})).await
    }

    /// Resets the counts. Sessions stay.
    pub async fn reset_counts(&self) {
        self.call::<Value>("counts/reset", json!({})).await;
    }

    /// Returns the first 20,000 calls since the start or the last reset, in order.
    pub async fn calls(&self) -> Vec<Call> {
        self.call("calls", json!({})).await
    }

    /// Closes the port and every connection, as if the vCenter were down. Sessions stay.
    pub async fn stop_listening(&self) {
        self.call::<Value>("listen/stop", json!({})).await;
    }

    /// Opens the same port again.
    pub async fn resume_listening(&self) {
        self.call::<Value>("listen/start", json!({})).await;
    }

    /// Sends one request to the control address. Panics at an error answer, because the test then named an object that
    /// does not exist.
    async fn call<T: DeserializeOwned>(&self, verb: &str, body: Value) -> T {
        let url = format!("{}/{verb}", self.addresses.control);
        // A separate client for each request, because a test's runtime ends with the test, and pooled connections end
        // with the runtime.
        let answer = control_client()
            .post(&url)
            .json(&body)
            .send()
            .await
            .unwrap_or_else(|error| panic!("the simulator does not answer {verb}: {error}"));
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "the simulator refused {verb} {body}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{verb} answered {text:?}: {error}"))
    }
}

fn control_client() -> reqwest::Client {
    crate::api_server::install_crypto();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap()
}

impl Drop for Vcenter {
    fn drop(&mut self) {
        // The simulator has no data to save and no children, so it can be killed.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
