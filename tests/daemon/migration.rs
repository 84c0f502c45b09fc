//! A leader migration with the daemon's binary: two Leases, with a Lease for each controller, and a service account for
//! each controller.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use support::rbac::{self, Subject};
use support::{ApiServer, Daemon, Vcenter, eventually};

use crate::cluster::{ANSWERS, Cluster, LIMIT};

async fn wait_for_holder(cluster: &Cluster, lease: &str, is_right: impl Fn(&str) -> bool, daemon: &Daemon) -> String {
    eventually(&format!("the right one holds {lease}"), LIMIT, async || match cluster.holder(lease).await {
        found if is_right(&found) => Ok(found),
        other => Err(format!("{other:?}\n{}", daemon.output().tail(30))),
    })
    .await
}

/// Makes another program take the Lease without further renewals.
async fn take(cluster: &Cluster, name: &str) {
    write(cluster, name, "another-program", 3600).await;
}

/// Makes the other program release the Lease.
async fn give_up(cluster: &Cluster, name: &str) {
    write(cluster, name, "", 1).await;
}

async fn write(cluster: &Cluster, name: &str, holder: &str, seconds: i32) {
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), "kube-system");
    eventually("the Lease is written", LIMIT, async || {
        let mut lease = leases.get(name).await.unwrap();
        let spec = lease.spec.as_mut().unwrap();
        spec.holder_identity = Some(holder.to_owned());
        spec.lease_duration_seconds = Some(seconds);
        leases.replace(name, &PostParams::default(), &lease).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

#[tokio::test]
async fn each_controller_works_under_its_own_lease_and_a_second_process_follows_both() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..4)).await;
    let (main, second) = (cluster.pool().to_owned(), format!("{}-migration", cluster.pool()));
    let path = cluster.folder().join(format!("{second}.yaml"));
    let migration = format!(
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: {second}\n\
         controllerLeaders:\n- name: cloud-node-controller\n  component: cloud-controller-manager\n\
         - name: service-controller\n  component: '*'\n"
    );
    std::fs::write(&path, migration).unwrap();
    let (lease, path) =
        (format!("--leader-elect-resource-name={main}"), format!("--leader-migration-config={}", path.display()));
    let flags = ["--leader-elect=true", &lease, "--enable-leader-migration", &path];
    let mut first = cluster.start_for(&vcenter, &flags).await;
    let identity = wait_for_holder(&cluster, &main, |holder| !holder.is_empty(), &first).await;
    wait_for_holder(&cluster, &second, |holder| holder == identity, &first).await;
    first.wait_for_line(&format!("cloud-node-controller works under the lease {second}"), LIMIT).await;
    first.wait_for_line("service-controller is no controller's name", LIMIT).await;
    cluster.register(0..1).await;
    cluster.wait_until_initialized(0..1, &first).await;

    // Without the second Lease the node controller pauses, although this process leads.
    take(&cluster, &second).await;
    first.wait_for_line("another process took the Lease; this process is now a standby", LIMIT).await;
    cluster.register(1..2).await;
    first.wait_for_line("standing by", LIMIT).await;
    assert_eq!(cluster.holder(&main).await, identity, "the main one is kept");
    // The daemon would reconcile the node several times in this time.
    let began = std::time::Instant::now();
    support::eventually("the node is left alone for some seconds", LIMIT, async || {
        let view = &cluster.views().await[&cluster.name(1)];
        assert!(view.uninitialized && view.addresses.is_empty(), "{view:?}");
        if began.elapsed() > std::time::Duration::from_secs(4) { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;

    // The other program releases the Lease. A second process gets neither Lease.
    give_up(&cluster, &second).await;
    wait_for_holder(&cluster, &second, |holder| holder == identity, &first).await;
    cluster.wait_until_initialized(0..2, &first).await;
    let mut other = cluster.start_for(&vcenter, &flags).await;
    other.wait_for_line("standing by", LIMIT).await;
    assert_eq!(first.stop(LIMIT).await.code(), Some(0));
    let follower = wait_for_holder(&cluster, &main, |holder| !holder.is_empty() && holder != identity, &other).await;
    wait_for_holder(&cluster, &second, |holder| holder == follower, &other).await;
    cluster.register(2..3).await;
    cluster.wait_until_initialized(0..3, &other).await;
    assert_eq!(other.stop(LIMIT).await.code(), Some(0));
    assert_eq!((cluster.holder(&main).await, cluster.holder(&second).await), (String::new(), String::new()));
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

async fn grant(cluster: &Cluster, role: &str, account: &str, rules: &[Value]) {
    rbac::grant(&cluster.client, None, role, Subject::ServiceAccount("kube-system", account), json!(rules)).await;
}

/// This process may not write Nodes. The account of the node controllers may, once the process may request a token for
/// that account.
#[tokio::test]
async fn controllers_write_as_their_own_service_account_and_never_as_the_process() {
    // The name of the controller's account is the same in all tests. No other test creates it.
    let server = ApiServer::shared().await;
    let cluster = Cluster::on(server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let process = cluster.pool();
    let accounts = Api::<ServiceAccount>::namespaced(cluster.client.clone(), "kube-system");
    let (kubeconfig, _) = server.create_service_account("kube-system", process).await;
    let own = [
        rule("", &["nodes"], &["get", "list", "watch"]),
        rule("", &["events"], &["create", "patch", "update"]),
        rule("", &["serviceaccounts"], &["get", "create"]),
        rule("", &["namespaces"], &["get"]),
        rule("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
    ];
    grant(&cluster, process, process, &own).await;
    let nodes = [
        rule("", &["nodes"], &["get", "list", "watch", "update", "patch", "delete"]),
        rule("", &["nodes/status"], &["patch", "update"]),
    ];
    grant(&cluster, "test-node-controller", "node-controller", &nodes).await;
    let (kubeconfig, lease) =
        (format!("--kubeconfig={}", kubeconfig.display()), format!("--leader-elect-resource-name={process}"));
    let flags = [&kubeconfig, "--leader-elect=true", lease.as_str(), "--use-service-account-credentials"];
    let mut daemon = cluster.start(&Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]), &flags);
    daemon.wait_for_line(ANSWERS, LIMIT).await;
    let told = "grant this process get and create on serviceaccounts and create on serviceaccounts/token";
    daemon.wait_for_line(told, LIMIT).await;
    cluster.register(0..1).await;
    daemon.wait_for_line("there is no token for the service account kube-system/node-controller", LIMIT).await;
    assert!(cluster.views().await[&cluster.name(0)].uninitialized);

    grant(&cluster, "test-tokens", process, &[rule("", &["serviceaccounts/token"], &["create"])]).await;
    cluster.wait_until_initialized(0..1, &daemon).await;
    assert!(accounts.get_opt("node-controller").await.unwrap().is_some(), "made by the daemon");
    let lines = daemon.output().lines();
    assert_eq!(lines.iter().filter(|line| line.contains(told)).count(), 3, "told once for each account");
    assert!(lines.iter().all(|line| !line.contains("eyJ")), "no token in the log");
    let node: Node = Api::all(cluster.client.clone()).get(&cluster.name(0)).await.unwrap();
    let fields = node.metadata.managed_fields.unwrap_or_default();
    let managers: Vec<_> = fields.iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert!(managers.contains(&"vsphere-cloud-controller-manager"), "{managers:?}");
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}
