//! Tests of the test environment against the real components: each property that other tests rely on is tested here
//! once.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failure of a test's own step is a failed test"
)]

#[path = "harness/clock.rs"]
mod clock;
#[path = "harness/demo.rs"]
mod demo;
#[path = "harness/logins.rs"]
mod logins;
#[path = "harness/nsx.rs"]
mod nsx;
#[path = "harness/proxy.rs"]
mod proxy;

use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use support::components::kubernetes_release;
use support::nodes::NodeView;
use support::{ApiServer, Daemon, KubeletNode, Object, Rule, Scenario, Vcenter, Vm, eventually};

const LIMIT: Duration = Duration::from_secs(20);

/// A minimal SOAP client that observes the simulator from outside.
struct Soap {
    http: reqwest::Client,
    url: String,
    cookie: String,
}

impl Soap {
    fn new(vcenter: &Vcenter) -> Self {
        Self::to(vcenter.url().to_owned(), vcenter.ca_pem())
    }

    fn to(url: String, ca: &str) -> Self {
        support::api_server::install_crypto();
        let ca = reqwest::Certificate::from_pem(ca.as_bytes()).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().timeout(LIMIT).build().unwrap();
        Self { http, url, cookie: String::new() }
    }

    async fn login(vcenter: &Vcenter) -> Self {
        let mut soap = Self::new(vcenter);
        let body = format!(
            "<Login xmlns='urn:vim25'><_this type='SessionManager'>SessionManager</_this><userName>{}</userName>\
             <password>{}</password></Login>",
            vcenter.user(),
            vcenter.password()
        );
        let answer = soap.post(&body).await.unwrap();
        assert_eq!(answer.status(), 200, "login is accepted");
        answer.headers()["set-cookie"].to_str().unwrap().clone_into(&mut soap.cookie);
        soap
    }

    async fn post(&self, body: &str) -> reqwest::Result<reqwest::Response> {
        let envelope = format!(
            "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/' xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'>\
             <e:Body>{body}</e:Body></e:Envelope>"
        );
        self.http.post(&self.url).header("Cookie", &self.cookie).body(envelope).send().await
    }

    async fn call(&self, body: &str) -> (u16, String) {
        let answer = self.post(body).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn find(&self, uuid: &str) -> (u16, String) {
        self.call(&format!(
            "<FindAllByUuid xmlns='urn:vim25'><_this type='SearchIndex'>SearchIndex</_this><uuid>{uuid}</uuid>\
             <vmSearch>true</vmSearch><instanceUuid>false</instanceUuid></FindAllByUuid>"
        ))
        .await
    }

    /// Creates a filter on some properties of one machine and takes the first answer, so that the next wait is pending.
    async fn watch(&self, vm: &str) {
        let (status, text) = self
            .call(&format!(
                "<CreateFilter xmlns='urn:vim25'><_this type='PropertyCollector'>propertyCollector</_this><spec>\
                 <propSet><type>VirtualMachine</type><pathSet>guest.net</pathSet><pathSet>runtime.host</pathSet>\
                 <pathSet>runtime.powerState</pathSet><pathSet>config.extraConfig[\"guestinfo.metadata\"]</pathSet></propSet>\
                 <objectSet><obj type='VirtualMachine'>{vm}</obj></objectSet></spec><partialUpdates>true</partialUpdates>\
                 </CreateFilter>"
            ))
            .await;
        assert_eq!(status, 200, "{text}");
        let (status, text) = self.wait("").await;
        assert!(status == 200 && text.contains("enter"), "{text}");
    }

    async fn wait(&self, version: &str) -> (u16, String) {
        self.call(&format!(
            "<WaitForUpdatesEx xmlns='urn:vim25'><_this type='PropertyCollector'>propertyCollector</_this>\
             <version>{version}</version><options><maxWaitSeconds>15</maxWaitSeconds></options></WaitForUpdatesEx>"
        ))
        .await
    }
}

const UUID: &str = "4211a1b2-0000-4000-8000-000000000001";

fn scenario() -> Scenario {
    Scenario::small()
        .vm(Vm::new("node-1", UUID).ip("10.0.0.11").host("host-2"))
        .tag("k8s-region", "region-1", [Object::datacenter("dc-1")])
        .tag("k8s-zone", "zone-a", [Object::host("host-2"), Object::vm("node-1"), Object::cluster("cluster-1")])
}

/// The release is that of `tests/testenv/build.sh`, or the one in KUBERNETES_MINOR.
#[tokio::test]
async fn the_api_server_is_of_the_minor_release_that_is_asked_for() {
    let minor = std::env::var("KUBERNETES_MINOR").unwrap_or_else(|_| "1.34".to_owned());
    let version = ApiServer::shared().await.client().await.apiserver_version().await.unwrap();
    assert_eq!(format!("{}.{}", version.major, version.minor), minor);
    assert_eq!(version.git_version, format!("v{}", kubernetes_release()));
}

#[tokio::test]
async fn a_change_reaches_a_pending_wait_at_once() {
    let vcenter = Vcenter::start(&scenario()).await;
    let soap = Soap::login(&vcenter).await;
    let id = vcenter.object_id(&Object::vm("node-1")).await;
    soap.watch(&id).await;
    let host = vcenter.object_id(&Object::host("host-3")).await;
    for (change, expected) in [
        (Vm::change().ip("10.0.0.99"), "10.0.0.99"),
        (Vm::change().host("host-3"), host.as_str()),
        (Vm::change().powered_off(), "poweredOff"),
        (Vm::change().extra_config("guestinfo.metadata", "bmV0d29yazoge30K"), "bmV0d29yazoge30K"),
    ] {
        let pending = async { (soap.wait("-").await, std::time::Instant::now()) };
        let act = async {
            eventually("a wait is pending", LIMIT, async || {
                let counts = vcenter.counts().await;
                if counts.pending_waits == 1 { Ok(()) } else { Err(format!("{counts:?}")) }
            })
            .await;
            let changed = std::time::Instant::now();
            vcenter.change_vm("node-1", &change).await;
            changed
        };
        let (((status, text), answered), changed) = tokio::join!(pending, act);
        assert!(status == 200 && text.contains(expected), "{expected} is announced: {text}");
        // A change that does not wake the wait is reported only at the timeout of the wait, after 15 s.
        let took = answered.saturating_duration_since(changed);
        assert!(took < Duration::from_secs(10), "{expected} took {took:?}");
    }
}

#[tokio::test]
async fn rules_break_calls_and_all_calls_are_counted() {
    let vcenter = Vcenter::start(&scenario()).await;
    let soap = Soap::login(&vcenter).await;
    vcenter.add_rule(&Rule::fault("FindAllByUuid", "NoPermission").times(1)).await;
    let (status, text) = soap.find(UUID).await;
    assert!(status == 500 && text.contains("NoPermission"), "{status} {text}");
    vcenter.add_rule(&Rule::status("*", 503, "<html>no healthy upstream</html>").times(1)).await;
    assert_eq!(soap.find(UUID).await, (503, "<html>no healthy upstream</html>".to_owned()));
    vcenter.add_rule(&Rule::drop("FindAllByUuid").times(1)).await;
    let find = format!(
        "<FindAllByUuid xmlns='urn:vim25'><_this type='SearchIndex'>SearchIndex</_this><uuid>{UUID}</uuid>\
         <vmSearch>true</vmSearch></FindAllByUuid>"
    );
    assert!(soap.post(&find).await.is_err(), "the connection is closed without an answer");
    vcenter.add_rule(&Rule::cut("FindAllByUuid").times(1)).await;
    let half = soap.post(&find).await.unwrap();
    assert!(half.text().await.is_err(), "the answer ends half-way");
    vcenter.add_rule(&Rule::delay("FindAllByUuid", Duration::from_millis(200)).times(1)).await;
    let started = std::time::Instant::now();
    assert_eq!(soap.find(UUID).await.0, 200);
    assert!(started.elapsed() >= Duration::from_millis(200));
    let counts = vcenter.counts().await;
    assert_eq!((counts.of("FindAllByUuid"), counts.of("Login"), counts.total), (5, 1, 6), "{counts:?}");
    assert_eq!((counts.soap_logins, counts.soap_sessions), (1, 1), "{counts:?}");
    vcenter.reset_counts().await;
    let counts = vcenter.counts().await;
    assert_eq!((counts.total, counts.bytes_received, counts.bytes_sent), (0, 0, 0), "{counts:?}");
    assert!(vcenter.calls().await.is_empty());
    vcenter.add_rule(&Rule::status("*", 503, "<html/>").times(1)).await;
    assert_eq!(soap.find(UUID).await.0, 503);
    let counts = vcenter.counts().await;
    assert_eq!(counts.bytes_sent, 7, "{counts:?}");
    assert!(counts.bytes_received > find.len() as u64, "in an envelope: {counts:?}");
}

#[tokio::test]
async fn killed_sessions_and_wrong_passwords_are_refused() {
    let vcenter = Vcenter::start(&scenario()).await;
    let soap = Soap::login(&vcenter).await;
    let id = vcenter.object_id(&Object::vm("node-1")).await;
    soap.watch(&id).await;
    let act = async {
        eventually("a wait is pending", LIMIT, async || {
            if vcenter.counts().await.pending_waits == 1 { Ok(()) } else { Err("none") }
        })
        .await;
        vcenter.kill_soap_sessions().await;
    };
    let ((status, text), ()) = tokio::join!(soap.wait("-"), act);
    assert!(status == 500 && text.contains("RequestCanceled"), "{text}");
    let (status, text) = soap.find(UUID).await;
    assert!(status == 500 && text.contains("NotAuthenticated"), "{text}");
    assert_eq!(vcenter.counts().await.soap_sessions, 0);
    vcenter.set_login("someone", "else").await;
    let (status, text) = Soap::new(&vcenter)
        .call(&format!(
            "<Login xmlns='urn:vim25'><_this type='SessionManager'>SessionManager</_this><userName>{}</userName>\
             <password>{}</password></Login>",
            vcenter.user(),
            vcenter.password()
        ))
        .await;
    assert!(status == 500 && text.contains("InvalidLogin"), "{text}");
}

#[tokio::test]
async fn a_wait_and_a_hanging_call_end_with_their_client() {
    let vcenter = Vcenter::start(&scenario()).await;
    let soap = Soap::login(&vcenter).await;
    let id = vcenter.object_id(&Object::vm("node-1")).await;
    soap.watch(&id).await;
    let pending = async |expected: u32| {
        eventually(&format!("{expected} waits are pending"), LIMIT, async || {
            let counts = vcenter.counts().await;
            if counts.pending_waits == expected { Ok(()) } else { Err(format!("{counts:?}")) }
        })
        .await;
    };
    // The client disconnects in the middle of its wait. The next change must not be lost.
    tokio::select! {
        answer = soap.wait("-") => panic!("nothing has changed, but there is an answer: {answer:?}"),
        () = pending(1) => {}
    }
    pending(0).await;
    vcenter.set_ip("node-1", "10.0.0.98").await;
    let (status, text) = soap.wait("-").await;
    assert!(status == 200 && text.contains("10.0.0.98"), "{text}");

    vcenter.add_rule(&Rule::hang("FindAllByUuid")).await;
    let release = async {
        eventually("the call has arrived", LIMIT, async || {
            if vcenter.counts().await.of("FindAllByUuid") == 1 { Ok(()) } else { Err("not yet") }
        })
        .await;
        vcenter.clear_rules().await;
    };
    let ((status, _), ()) = tokio::join!(soap.find(UUID), release);
    assert_eq!(status, 200, "a call that hung is served when its rule is cleared");
}

#[tokio::test]
async fn the_daemon_takes_signals_and_ends_with_its_holder() {
    let script = "trap 'echo ending; exit 7' TERM; echo started $1 $COLOUR; while :; do sleep 1 & wait $!; done";
    let flags = ["-c", script, "sh", "--flag"];
    let mut daemon = Daemon::start_with("/bin/sh", flags, &[("COLOUR", "blue")]);
    assert_eq!(daemon.wait_for_line("started", LIMIT).await, "started --flag blue");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(7));
    daemon.wait_for_line("ending", LIMIT).await;

    let mut daemon = Daemon::start("/bin/sh", ["-c", "echo process $$; exec sleep 1000"]);
    let line = daemon.wait_for_line("process", LIMIT).await;
    let process = line.trim_start_matches("process ").to_owned();
    let is_alive = || Command::new("kill").args(["-0", &process]).stderr(Stdio::null()).status().unwrap().success();
    assert!(is_alive());
    drop(daemon);
    assert!(!is_alive(), "nothing survives its holder");
}

#[tokio::test]
async fn a_vcenter_goes_down_and_comes_back_on_its_port_with_its_sessions() {
    let vcenter = Vcenter::start(&scenario()).await;
    let soap = Soap::login(&vcenter).await;
    vcenter.stop_listening().await;
    assert!(soap.post("").await.unwrap_err().is_connect(), "connections are refused");
    vcenter.resume_listening().await;
    assert_eq!(soap.find(UUID).await.0, 200);
}

#[tokio::test]
async fn two_simulators_are_two_vcenters_and_many_machines_start_fast() {
    let mut many = Scenario::small();
    for index in 0..200 {
        many = many.vm(Vm::new(&format!("node-{index}"), &format!("4211a1b2-0000-4000-8000-{index:012}")));
    }
    let few = scenario();
    let started = std::time::Instant::now();
    let (first, second) = tokio::join!(Vcenter::start(&many), Vcenter::start(&few));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert_ne!(first.instance_uuid(), second.instance_uuid());
    assert_ne!(first.port(), second.port());
}

#[tokio::test]
async fn nodes_register_at_a_real_api_server_which_survives_a_restart() {
    let mut server = ApiServer::start().await;
    let client = server.client().await;
    KubeletNode::new("node-1", UUID).provided_ip("10.0.0.11").register(&client).await;
    server.restart().await;
    let node =
        eventually("the node is read again", LIMIT, async || Api::<Node>::all(client.clone()).get("node-1").await)
            .await;
    let view = NodeView::of(&node);
    assert!(view.uninitialized, "{view:?}");
    assert_eq!(view.addresses, ["InternalIP=10.0.0.11", "Hostname=node-1"]);
    let stranger = server.client_of("nobody").await;
    let refused = Api::<Node>::all(stranger).get("node-1").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
}

#[tokio::test]
async fn an_audited_api_server_tells_who_asked_for_what_and_when() {
    let server = ApiServer::audited().await;
    let client = server.client().await;
    KubeletNode::new("node-1", UUID).register(&client).await;
    let refused = Api::<Node>::all(server.client_of("jane").await).get("node-1").await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    let events = server.audit();
    let of =
        |user: &str| events.iter().find(|event| event.user.username == user && event.object_ref.resource == "nodes");
    let (created, read) = (of("admin").unwrap(), of("jane").unwrap());
    assert_eq!(
        (created.verb.as_str(), created.is_write(), created.is_accepted()),
        ("create", true, true),
        "{created:?}"
    );
    assert_eq!((read.verb.as_str(), read.is_write(), read.response_status.code), ("get", false, 403), "{read:?}");
    assert_eq!(read.object_ref.name, "node-1");
    assert!(created.received <= created.answered && created.answered <= read.received, "{created:?}, {read:?}");
}
