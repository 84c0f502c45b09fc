//! A cluster with applied manifests, and the daemon as they define it, in situations that need every right.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use support::fake_nsx::{FakeNsx, Model};
use support::nodes::set_ready;
use support::{ApiServer, Daemon, Vcenter, Vm, eventually, replace_file};

use super::GO_RELEASE;
use crate::admin::{Admin, token_of};
use crate::cluster::{ANSWERS, BINARY, Cluster, LIMIT};
use crate::manifests::apply;
use crate::manifests::kustomize::{form, kubectl, objects};
use crate::manifests::pods::containers;

/// A cluster with applied manifests.
pub struct Site {
    /// API server with an audit log.
    pub server: ApiServer,
    cluster: Cluster,
    vcenter: Vcenter,
    /// Arguments in the manifests, except file paths.
    arguments: Vec<String>,
    /// Path of `vsphere.conf`.
    config: PathBuf,
    kubeconfig: PathBuf,
    /// Paths of the probes in the manifests.
    probes: Vec<String>,
    /// Text of the health check for the cache of Services.
    services: &'static str,
    nsx: Option<FakeNsx>,
}

/// One scrape of a replica's metrics.
pub struct Scrape {
    /// Number of the replica, from 1 on.
    pub pod: usize,
    /// Number of the scrape, from 0 on.
    pub number: usize,
    /// Text of `/metrics`.
    pub text: String,
}

impl Site {
    /// Applies this program's manifests: this form, and the sample of its configuration with the addresses of a
    /// simulator.
    pub async fn ours(workload: &str) -> Self {
        let sample = &form("config").await.objects;
        let find = |kind: &str| sample.iter().find(|object| object["kind"] == kind).unwrap().clone();
        let config = find("ConfigMap")["data"]["vsphere.conf"].as_str().unwrap().to_owned();
        let zoned =
            config.replace("# labels:", "labels:").replace("#   region", "  region").replace("#   zone", "  zone");
        let write = |vcenter: &Vcenter| {
            let trust = format!("port: {}\n  caFile: {}", vcenter.port(), vcenter.ca_file().display());
            zoned.replace("vcenter.example.com", vcenter.host()).replace("port: 443", &trust)
        };
        let name = json!({"name": "vsphere-cloud-secret", "namespace": "kube-system"});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": name});
        Self::set_up(&form(workload).await.objects, secret, write).await
    }

    /// Applies the Go program's release manifest, with the address of a simulator.
    pub async fn of_the_go_program() -> Self {
        let release = objects(GO_RELEASE).await;
        let find = |kind: &str| release.iter().find(|object| object["kind"] == kind).unwrap().clone();
        let config = find("ConfigMap")["data"]["vsphere.conf"].as_str().unwrap().to_owned();
        let write = |vcenter: &Vcenter| {
            // The entry with user and password in the file is removed. The entry with its own Secret stays.
            let (before, entries) = config.split_once("  your-vcenter-name-here").unwrap();
            let (_, second) = entries.split_once("  could-be-a-").unwrap();
            let one = format!("{before}  could-be-a-{second}");
            let named = one.replace("1.2.3.4", vcenter.host()).replace("mytenantdc", "dc-1");
            named.replace("port: 443", &format!("port: {}", vcenter.port()))
        };
        let mut secret = find("Secret");
        secret["metadata"]["name"] = json!("cpi-engineering-secret");
        Self::set_up(&release, secret, write).await
    }

    async fn set_up(manifests: &[Value], mut secret: Value, config: impl Fn(&Vcenter) -> String) -> Self {
        let server = ApiServer::audited().await;
        let cluster = Cluster::on(&server).await;
        let vcenter = Vcenter::start(&cluster.scenario(0..6)).await;
        let list = json!({"apiVersion": "v1", "kind": "List", "items": manifests});
        apply(&server, "the manifests", &list.to_string()).await;
        secret["stringData"] = json!({
            format!("{}.username", vcenter.host()): vcenter.user(),
            format!("{}.password", vcenter.host()): vcenter.password(),
        });
        kubectl(Some(&server), &["apply", "-f", "-"], &secret.to_string()).await.unwrap();
        let file = server.folder().join("vsphere.conf");
        std::fs::write(&file, config(&vcenter)).unwrap();
        let set = manifests.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        let container = containers(set)[0];
        let place =
            |argument: &Value| argument.as_str().unwrap().replace("/etc/cloud/vsphere.conf", file.to_str().unwrap());
        let arguments = container["args"].as_array().unwrap().iter().map(place).collect();
        let probes = ["livenessProbe", "readinessProbe"].map(|probe| &container[probe]["httpGet"]["path"]);
        let probes = probes.into_iter().filter_map(|path| path.as_str().map(str::to_owned)).collect();
        let kubeconfig = server.kubeconfig_of_service_account("kube-system", "cloud-controller-manager").await;
        let may_list = manifests.iter().any(|object| object["rules"].to_string().contains("\"services\""));
        let services = match may_list {
            true => "[+]services ok",
            false => "[+]services idle: the API server refuses to list the services",
        };
        Self { server, cluster, vcenter, arguments, config: file, kubeconfig, probes, services, nsx: None }
    }

    /// Adds NSX, load balancers and routes to `vsphere.conf`, and the Secret `vsphere-nsx-secret`.
    pub async fn with_nsx(mut self) -> Self {
        let nsx = FakeNsx::start(Model::small()).await;
        let name = json!({"name": "vsphere-nsx-secret", "namespace": "kube-system"});
        let data = json!({"username": nsx.user(), "password": nsx.password()});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": name, "stringData": data});
        kubectl(Some(&self.server), &["apply", "-f", "-"], &secret.to_string()).await.unwrap();
        let ca = self.server.folder().join("nsx-ca.pem");
        std::fs::write(&ca, nsx.ca_pem()).unwrap();
        let config = std::fs::read_to_string(&self.config).unwrap();
        let sections = format!(
            "nsxt:\n  host: {}\n  caFile: {}\n  secretName: vsphere-nsx-secret\n  secretNamespace: kube-system\n\
             route:\n  routerPath: /infra/tier-1s/t1\n\
             loadBalancer:\n  size: SMALL\n  tier1GatewayPath: /infra/tier-1s/t1\n  ipPoolId: p1\n  \
             tcpAppProfilePath: /infra/lb-app-profiles/default-tcp-lb-app-profile\n  \
             udpAppProfilePath: /infra/lb-app-profiles/default-udp-lb-app-profile\n",
            nsx.address(),
            ca.display()
        );
        replace_file(&self.config, &format!("{config}\n{sections}"));
        self.arguments.extend(["--cluster-cidr=10.244.0.0/16", "--cluster-name=site"].map(str::to_owned));
        self.nsx = Some(nsx);
        self
    }

    /// Starts a replica as the pod of the manifests does, but with a short grace period for deletions.
    async fn start(&self, admin: &Admin) -> Daemon {
        self.start_with(admin, &[("CCM_NODE_DELETION_GRACE", "1s")]).await
    }

    async fn start_with(&self, admin: &Admin, variables: &[(&str, &str)]) -> Daemon {
        let kubeconfig = self.kubeconfig.display();
        // In a pod Kubernetes defines the first three paths. The ports belong to the test.
        let places = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            "--bind-address=127.0.0.1".to_owned(),
            admin.flag(),
        ];
        let mut daemon = Daemon::start_with(BINARY, self.arguments.iter().chain(&places), variables);
        daemon.wait_for_line(ANSWERS, LIMIT).await;
        daemon
    }

    /// Scrapes two replicas from their start on while four Nodes join, this many times and with this interval.
    pub async fn scraped(&self, interval: Duration, count: usize) -> Vec<Scrape> {
        let token = token_of(&self.server).await;
        let ports = [Admin::new(), Admin::new()];
        let mut daemons = [self.start_with(&ports[0], &[]).await, self.start_with(&ports[1], &[]).await];
        let mut scrapes = Vec::new();
        let mut clock = tokio::time::interval(interval);
        for number in 0..count {
            clock.tick().await;
            for (pod, (port, daemon)) in ports.iter().zip(&mut daemons).enumerate() {
                let (status, text) = port.get("/metrics", Some(&token), daemon).await;
                assert_eq!(status, 200, "{text}");
                scrapes.push(Scrape { pod: pod + 1, number, text });
            }
            if number == 1 {
                self.cluster.register(0..4).await;
            }
        }
        self.cluster.wait_until_initialized(0..4, &daemons[0]).await;
        for mut daemon in daemons {
            assert_eq!(daemon.stop(LIMIT).await.code(), Some(0), "{}", daemon.output().tail(20));
        }
        scrapes
    }

    /// Reads an object of Kubernetes itself.
    pub async fn read(&self, path: &str, kind: &str) -> Value {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let mut object: Value = self.cluster.client.request(request).await.unwrap();
        object["kind"] = json!(kind);
        object
    }

    /// Creates a Service that is being deleted and whose finalizer no program removes.
    pub async fn leave_a_service_waiting(&self) {
        let finalizers = [ccm::cloud::service::FINALIZER];
        let service = json!({
            "metadata": {"name": "waiting", "finalizers": finalizers},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        let services = Api::<Service>::namespaced(self.cluster.client.clone(), "kube-public");
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        services.delete("waiting", &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the daemon writes the Event on the waiting Service, which takes a while. Returns the daemon's health
    /// checks.
    pub async fn wait_with_the_service(&self) -> String {
        let port = Admin::new();
        let mut daemon = self.start(&port).await;
        daemon.wait_for_line("became leader", LIMIT).await;
        let events = Api::<Event>::namespaced(self.cluster.client.clone(), "kube-public");
        // A minute, and one pass over the Services.
        eventually("the Event on the Service", 2 * LIMIT, async || {
            let found = events.list(&ListParams::default()).await.unwrap().items;
            match found.iter().any(|event| event.reason.as_deref() == Some("LoadBalancerNotConfigured")) {
                true => Ok(()),
                false => Err(daemon.output().tail(10)),
            }
        })
        .await;
        let checks = self.checks(&port, &mut daemon).await;
        assert_eq!(daemon.stop(LIMIT).await.code(), Some(0), "{}", daemon.output().tail(20));
        checks
    }

    /// Returns `/readyz?verbose`, and checks its status.
    async fn checks(&self, port: &Admin, daemon: &mut Daemon) -> String {
        let token = token_of(&self.server).await;
        let (status, checks) = port.get("/readyz?verbose", Some(&token), daemon).await;
        assert_eq!(status, 200, "{checks}");
        checks
    }

    /// Uses every right once. Returns the statuses of requests for metrics, without a token and with one, and the log
    /// of both replicas.
    pub async fn live(&self) -> ([u16; 4], Vec<String>) {
        let cluster = &self.cluster;
        let (port, other_port) = (Admin::new(), Admin::new());
        let mut first = self.start(&port).await;
        first.wait_for_line("became leader", LIMIT).await;
        cluster.register(0..4).await;
        cluster.wait_until_initialized(0..4, &first).await;
        self.change_an_address(&first).await;
        self.resize_a_machine().await;
        self.break_the_configuration(&first).await;

        let mut second = self.start(&other_port).await;
        self.wait_for_the_watch_of_the_lease().await;
        assert_eq!(first.stop(LIMIT).await.code(), Some(0), "{}", first.output().tail(20));
        second.wait_for_line("became leader", LIMIT).await;
        cluster.register(4..6).await;
        cluster.wait_until_initialized(4..6, &second).await;
        self.destroy_a_machine(&second).await;
        let statuses = self.ask_for_metrics(&other_port, &mut second).await;
        let checks = self.checks(&other_port, &mut second).await;
        assert!(checks.contains(self.services), "{checks}");
        assert_eq!(second.stop(LIMIT).await.code(), Some(0), "{}", second.output().tail(20));
        (statuses, [first.output().lines(), second.output().lines()].concat())
    }

    /// Waits until a Node has its route. Returns the daemon's log.
    pub async fn route_a_node(&self) -> Vec<String> {
        let cluster = &self.cluster;
        let port = Admin::new();
        let mut daemon = self.start(&port).await;
        cluster.kubelet(0).pod_cidrs(&["10.244.0.0/24"]).register(&cluster.client).await;
        let name = cluster.name(0);
        eventually("the Node has its route", LIMIT, async || {
            let status = cluster.nodes().await[&name].status.clone().unwrap_or_default();
            let has_route = |reason: Option<String>| reason.as_deref() == Some("RouteCreated");
            let conditions = status.conditions.unwrap_or_default();
            match conditions.into_iter().any(|condition| has_route(condition.reason)) {
                true => Ok(()),
                false => Err(daemon.output().tail(20)),
            }
        })
        .await;
        self.ask_for_metrics(&port, &mut daemon).await;
        assert_eq!(daemon.stop(LIMIT).await.code(), Some(0), "{}", daemon.output().tail(20));
        daemon.output().lines()
    }

    /// Creates a Service, waits for its load balancer, and deletes the Service.
    pub async fn serve_a_service(&self) {
        let mut daemon = self.start(&Admin::new()).await;
        let services = Api::<Service>::namespaced(self.cluster.client.clone(), "kube-public");
        let service =
            json!({"metadata": {"name": "served"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        eventually("the Service has an address", LIMIT, async || {
            let service = services.get("served").await.unwrap();
            match ccm::cloud::service::ingress(&service).is_empty() {
                false => Ok(()),
                true => Err(daemon.output().tail(20)),
            }
        })
        .await;
        services.delete("served", &DeleteParams::default()).await.unwrap();
        eventually("the Service is gone", LIMIT, async || match services.get_opt("served").await.unwrap() {
            None => Ok(()),
            Some(_) => Err(daemon.output().tail(20)),
        })
        .await;
        let left = self.nsx.as_ref().unwrap().objects_below("/infra/lb-virtual-servers");
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(daemon.stop(LIMIT).await.code(), Some(0), "{}", daemon.output().tail(20));
    }

    /// Returns the tags of the only route.
    pub fn tags_of_the_route(&self) -> Vec<String> {
        let routes = self.nsx.as_ref().unwrap().objects_below("/infra/tier-1s/t1/static-routes");
        assert_eq!(routes.len(), 1, "{routes:?}");
        let tags = routes[0]["tags"].as_array().unwrap().iter();
        tags.map(|tag| tag["scope"].as_str().unwrap().to_owned()).collect()
    }

    async fn change_an_address(&self, daemon: &Daemon) {
        let name = self.cluster.name(0);
        self.vcenter.set_ip(&name, "10.9.9.9").await;
        eventually("the new address is on the Node", LIMIT, async || {
            let view = &self.cluster.views().await[&name];
            let is_there = view.addresses.iter().any(|address| address == "InternalIP=10.9.9.9");
            if is_there { Ok(()) } else { Err(format!("{view:?}\n{}", daemon.output().tail(20))) }
        })
        .await;
    }

    /// Resizes the machine, back, and again. The repeated report increments the count of an Event.
    async fn resize_a_machine(&self) {
        let name = self.cluster.name(1);
        for (cpus, count) in [(4, 1), (8, 1), (4, 2)] {
            self.vcenter.change_vm(&name, &Vm::change().size(cpus, 4096)).await;
            self.wait_for_event(&name, "InstanceTypeDiffers", &format!("cpu-{cpus}."), count).await;
        }
    }

    /// Breaks the configuration twice with the same mistake.
    async fn break_the_configuration(&self, daemon: &Daemon) {
        let sound = std::fs::read_to_string(&self.config).unwrap();
        for count in [1, 2] {
            replace_file(&self.config, &sound.replace("datacenters:", "datacenters: {}\n    x:"));
            self.wait_for_event("cloud-controller-manager", "InvalidCloudConfig", "", count).await;
            replace_file(&self.config, &sound);
            eventually("the mended file is read", LIMIT, async || {
                let lines = daemon.output().lines();
                let read = lines.iter().filter(|line| line.contains("was read again and changes nothing")).count();
                if read == usize::try_from(count).unwrap() { Ok(()) } else { Err(daemon.output().tail(10)) }
            })
            .await;
        }
    }

    async fn wait_for_event(&self, about: &str, reason: &str, text: &str, count: i32) {
        let events = Api::<Event>::all(self.cluster.client.clone());
        let fields = ListParams::default().fields(&format!("involvedObject.name={about},reason={reason}"));
        eventually(&format!("there is an Event {reason} {text} {count} times"), LIMIT, async || {
            let found = events.list(&fields).await.unwrap().items;
            let is_it = |event: &&Event| event.message.as_ref().is_some_and(|message| message.contains(text));
            match found.iter().filter(is_it).any(|event| event.count == Some(count)) {
                true => Ok(()),
                false => {
                    Err(format!("{:?}", found.iter().map(|event| (&event.message, event.count)).collect::<Vec<_>>()))
                }
            }
        })
        .await;
    }

    /// The API server's metrics count open watches. The audit log shows a watch only after its end.
    async fn wait_for_the_watch_of_the_lease(&self) {
        let labels = ["resource=\"leases\"", "scope=\"resource\"", "verb=\"WATCH\""];
        eventually("the standby watches the Lease", LIMIT, async || {
            let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
            let text = self.cluster.client.request_text(request).await.unwrap();
            let mut open = text.lines().filter(|line| line.starts_with("apiserver_longrunning_requests{"));
            let is_it = |line: &str| labels.iter().all(|label| line.contains(label)) && !line.ends_with(" 0");
            if open.clone().any(is_it) { Ok(()) } else { Err(open.by_ref().collect::<Vec<_>>().join("\n")) }
        })
        .await;
    }

    async fn destroy_a_machine(&self, daemon: &Daemon) {
        let name = self.cluster.name(3);
        self.vcenter.destroy_vm(&name).await;
        set_ready(&Api::all(self.cluster.client.clone()), &name, "Unknown", "").await.unwrap();
        eventually("the Node of the machine that is gone is deleted", LIMIT, async || {
            match self.cluster.nodes().await.contains_key(&name) {
                false => Ok(()),
                true => Err(daemon.output().tail(20)),
            }
        })
        .await;
    }

    /// Requests the probes, which need no right, and the metrics, which need a token and a right.
    async fn ask_for_metrics(&self, port: &Admin, daemon: &mut Daemon) -> [u16; 4] {
        for path in &self.probes {
            assert_eq!(port.get(path, None, daemon).await.0, 200, "{path}");
        }
        let token = token_of(&self.server).await;
        let mut statuses = [0; 4];
        for (status, token) in statuses.iter_mut().zip([None, Some(&*token), Some(&*token), Some(&*token)]) {
            *status = port.get("/metrics", token, daemon).await.0;
        }
        statuses
    }
}
