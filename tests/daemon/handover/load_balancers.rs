//! Three replicas with an account at NSX each, Services of type LoadBalancer, and hits on the leader.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::Value;
use support::fake_nsx::go_rules::{GoClass, GoProgram};
use support::fake_nsx::{FakeNsx, Model};
use support::{ApiServer, Daemon, FakeVcenter, eventually, replace_file, unique};

use super::world::{GRACE, Hit, LIMIT, REPLICAS};
use crate::admin::{Admin, token_of};
use crate::cluster::{Cluster, ip};
use crate::invariants::daemons::{leader_but, thaw};
use crate::invariants::nsx::leadership::{NsxWrite, assert_only_leaders_wrote};
use crate::invariants::nsx::routes::tag;
use crate::services::{PORTS, ServiceChange, Services, nsx_section, section, with_addresses, writes_of};

const NODES: usize = 4;
/// As in the other handover test, but without rate limits, because NSX is slow here.
const FLAGS: [&str; 5] = [
    "--leader-elect=true",
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
    "--node-deletion=off",
];
/// Additional latency of each call to NSX, so that calls are in flight at every hit.
const DELAY: Duration = Duration::from_millis(50);
/// Number of virtual servers of each wave that exist before the hit.
const BEGUN: usize = 3;
const PASSWORD: &str = "Correct-Horse-7";
const POOL: &str = "p9";
const NETWORK: &str = "198.51.100";
const ADDRESSES: usize = 100;

struct Replica {
    user: String,
    kubeconfig: String,
    config: PathBuf,
    admin: Admin,
    daemon: Daemon,
}

/// The replicas, the fakes and the Services of the test.
pub struct Balanced {
    server: ApiServer,
    cluster: Cluster,
    /// The vCenter. It runs until this is dropped.
    _vcenter: FakeVcenter,
    nsx: FakeNsx,
    services: Services,
    replicas: Vec<Replica>,
    users: Vec<String>,
    judged_versions: usize,
    writes: Vec<NsxWrite>,
}

impl Balanced {
    /// Starts the replicas, and waits until all of them lead or stand by, and the Nodes are initialized. There is no
    /// Service.
    pub async fn start() -> Self {
        let server = ApiServer::audited().await;
        let cluster = Cluster::on(&server).await;
        let vcenter = FakeVcenter::start(cluster.model(0..NODES)).await;
        let section_of_vcenter = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1", cluster.folder())]);
        let users: Vec<String> = (1..=REPLICAS).map(|number| unique(&format!("replica-{number}"))).collect();
        cluster.grant(&users).await;
        cluster.grant_nsx(&users).await;
        let model = with_addresses(Model::small(), POOL, NETWORK, ADDRESSES);
        let nsx = FakeNsx::start(users.iter().fold(model, |model, user| model.user(user, PASSWORD))).await;
        nsx.delay_calls(DELAY);
        let ca_file = cluster.folder().join("handover-nsx-ca.pem");
        replace_file(&ca_file, nsx.ca_pem());
        let services = Services::new(&cluster, users.clone(), (0..NODES).map(ip).collect()).await;
        cluster.register(0..NODES).await;
        let mut replicas = Vec::new();
        for user in &users {
            let config = cluster.folder().join(format!("{user}.conf"));
            let nsxt = nsx_section(&nsx, &ca_file, user, PASSWORD);
            replace_file(&config, &format!("{section_of_vcenter}\n{nsxt}{}", section(POOL, "LARGE")));
            let kubeconfig = format!("--kubeconfig={}", server.kubeconfig_of(user).display());
            let admin = Admin::new();
            let daemon = start(&cluster, &config, &kubeconfig, &admin);
            replicas.push(Replica { user: user.clone(), kubeconfig, config, admin, daemon });
        }
        cluster.wait_until_initialized(0..NODES, &replicas[0].daemon).await;
        let (judged_versions, writes) = (0, Vec::new());
        Self { server, cluster, _vcenter: vcenter, nsx, services, replicas, users, judged_versions, writes }
    }

    /// Creates the Services with the numbers `from..until`, changes all others, and hits the leader during these
    /// changes. The next leader completes all of them.
    pub async fn hit(&mut self, hit: Hit, from: usize, until: usize) {
        let leader = self.leader_but(None).await;
        let before = self.services.rules.seen.created;
        for number in 0..until {
            let ports = 1 + (number + until) % ((1 << PORTS.len()) - 1);
            let is_done = match number < from {
                true => self.services.change(number, ServiceChange::Ports(ports)).await,
                false => self.services.create(number, ports, number, "default").await,
            };
            assert!(is_done, "Service {number}");
        }
        eventually("load balancers are being made", LIMIT, async || {
            self.check();
            match self.services.rules.seen.created - before {
                created if created >= BEGUN => Ok(()),
                created => Err(format!("{created}\n{}", self.replicas[leader].daemon.output().tail(20))),
            }
        })
        .await;
        // On a busy machine another replica may lead by now.
        let leader = self.leader_but(None).await;
        let (open, told) = (self.differences().await.len(), Instant::now());
        self.replicas[leader].daemon.signal(hit.signal()).await;
        let next = self.leader_but(Some(leader)).await;
        let taken_over = told.elapsed();
        self.until_complete(next).await;
        println!(
            "{hit:?}: replica {leader} was hit with {open} differences in {until} Services; replica {next} led {taken_over:.1?} later, \
             and {:.1?} after the hit all had their load balancers",
            told.elapsed()
        );
        assert!(open > 0, "the hit came too late");
        self.bring_back(hit, leader).await;
    }

    /// Hits the leader while there is no work. The next leader reconciles every Service, and writes nothing.
    pub async fn hit_in_quiet(&mut self, hit: Hit) {
        let leader = self.leader_but(None).await;
        let (versions, services) = (self.nsx.versions(), self.service_versions().await);
        self.replicas[leader].daemon.signal(hit.signal()).await;
        let next = self.leader_but(Some(leader)).await;
        let token = token_of(&self.server).await;
        let replica = &mut self.replicas[next];
        eventually("the next leader has ensured every load balancer", LIMIT, async || {
            match replica.admin.sum("vsphere_ccm_load_balancers ", &token, &mut replica.daemon).await {
                ensured if ensured >= services.len() as f64 => Ok(()),
                ensured => Err(format!("{ensured} of {}\n{}", services.len(), replica.daemon.output().tail(20))),
            }
        })
        .await;
        let written = self.nsx.written_from(versions);
        assert!(written.is_empty(), "{hit:?}: the next leader wrote {written:#?}");
        assert_eq!(self.service_versions().await, services, "{hit:?}: the next leader wrote Services");
        self.bring_back(hit, leader).await;
    }

    async fn service_versions(&self) -> BTreeMap<String, Option<String>> {
        let services = self.services.list().await;
        services.iter().map(|service| (service.name_any(), service.resource_version())).collect()
    }

    async fn bring_back(&mut self, hit: Hit, number: usize) {
        let Replica { kubeconfig, config, admin, daemon, .. } = &mut self.replicas[number];
        match hit {
            Hit::Freeze => thaw(daemon, LIMIT).await,
            Hit::Terminate | Hit::Kill => {
                let status = daemon.wait(GRACE).await;
                assert_eq!(status.code(), Some(hit.status()), "{}", daemon.output().tail(40));
                *admin = Admin::new();
                *daemon = start(&self.cluster, config, kubeconfig, admin);
            }
        }
    }

    /// Checks the object versions at NSX since the last call.
    fn check(&mut self) {
        let new = self.nsx.history_from(self.judged_versions);
        self.judged_versions += new.len();
        self.services.judge(&self.nsx, &new);
        self.writes.extend(writes_of(&self.nsx, &new, &self.users).into_iter().map(|(_, write)| write));
    }

    async fn differences(&self) -> Vec<String> {
        let nodes = self.cluster.nodes().await;
        self.services.differences(&self.nsx, nodes.values()).await
    }

    async fn until_complete(&mut self, next: usize) {
        eventually("every Service has what it asks for", LIMIT, async || {
            self.check();
            self.services.judge_addresses().await;
            match self.differences().await {
                open if open.is_empty() => Ok(()),
                open => Err(format!("{open:#?}\n{}", self.replicas[next].daemon.output().tail(20))),
            }
        })
        .await;
    }

    /// Waits until the Lease has a holder other than `before`, and returns it.
    async fn leader_but(&self, before: Option<usize>) -> usize {
        let daemons: Vec<&Daemon> = self.replicas.iter().map(|replica| &replica.daemon).collect();
        leader_but(&self.cluster, &daemons, before, LIMIT).await
    }

    /// Stops all replicas, and checks that only leaders wrote. Returns the numbers of terms and of writes to NSX.
    pub async fn stop(&mut self) -> (usize, usize) {
        for replica in &mut self.replicas {
            let status = replica.daemon.stop(GRACE).await;
            assert_eq!(status.code(), Some(0), "{}: {}", replica.user, replica.daemon.output().tail(40));
        }
        self.check();
        let (lease, users, writes) = (self.cluster.pool(), &self.users, &self.writes);
        let (terms, _) = assert_only_leaders_wrote(&self.server, lease, users, writes, LIMIT).await;
        let unused = self.services.unused(&self.nsx);
        assert!(unused.len() <= terms.len(), "{unused:#?}");
        assert_eq!(self.handed_back().await, [""; 0]);
        (terms.len(), self.writes.len())
    }

    /// Returns the objects that the Go program would write or not find. Health checks are excluded, because the Go
    /// program removes unknown health checks and creates its own for TCP ports.
    async fn handed_back(&self) -> Vec<String> {
        let mut program = GoProgram::new(self.cluster.pool());
        program.classes = [("default".to_owned(), GoClass::of_pool(POOL))].into();
        let (services, nodes) = (self.services.list().await, self.cluster.nodes().await);
        let nodes: Vec<Node> = nodes.into_values().collect();
        let objects = self.nsx.objects();
        let is_other = |object: &&Value| object["resource_type"] == "LBHttpMonitorProfile";
        let others: Vec<&Value> = objects.iter().filter(is_other).map(|monitor| &monitor["path"]).collect();
        let is_asked = |pool: &&Value| others.contains(&&pool["active_monitor_paths"][0]);
        let mut health_checks = Vec::new();
        for pool in objects.iter().filter(is_asked) {
            let tagged = |scope| tag(pool, scope).unwrap_or_default();
            health_checks.push(format!("update {}: active_monitor_paths", pool["path"].as_str().unwrap_or_default()));
            let created = format!("create lb-monitor-profiles for {}", tagged("port"));
            health_checks.push(format!("Ensure {}: {created}", tagged("service")));
            health_checks.push(format!("find {}: there is no monitor of {}", tagged("service"), tagged("port")));
        }
        let mut wrong = program.hand_back(&objects, |path| self.nsx.allocated_address(path), &services, &nodes);
        wrong.retain(|line| !health_checks.iter().any(|one| line.ends_with(one.as_str())));
        wrong
    }
}

fn start(cluster: &Cluster, config: &std::path::Path, kubeconfig: &str, admin: &Admin) -> Daemon {
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let name = format!("--cluster-name={}", cluster.pool());
    cluster.start_on(config, &[&FLAGS[..], &[&lease, &name, kubeconfig, &admin.flag()]].concat())
}
