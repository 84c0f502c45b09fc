//! The documented `govc` commands of vSphere administrators, with the simulator.

use support::Vcenter;
use support::components::Component;
use tokio::process::Command;

use crate::{rest, scenario};

/// Returns the output of govc, or its error. `variables` override those of the administrator.
async fn govc(vcenter: &Vcenter, variables: &[(&str, &str)], arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(Component::Govc.path());
    command.args(arguments).env_clear().envs(vcenter.govc_environment()).envs(variables.iter().copied());
    let output = command.kill_on_drop(true).output().await.unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[tokio::test]
async fn govc_prepares_a_vcenter() {
    let vcenter = Vcenter::start(&scenario()).await;
    let run = async |line: &str, expected: &str| {
        let arguments: Vec<&str> = line.split(' ').collect();
        let printed = govc(&vcenter, &[], &arguments).await.unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(printed.contains(expected), "{line}: {expected:?} is not in {printed}");
    };
    let vm = "/dc-1/vm/prod/nodes/node-1";
    run("about", "API version:  8.0.3.0").await;
    run("about.cert -k -thumbprint", vcenter.sha256_thumbprint()).await;
    run("about.cert -k", vcenter.sha1_thumbprint()).await;
    run("find / -type m", &format!("{vm}\n")).await;
    run("sso.user.create -p S3cret-4711 -d CCM k8s-ccm", "").await;
    run("sso.user.ls", "k8s-ccm").await;
    run("role.ls ReadOnly", "System.Anonymous\nSystem.Read\nSystem.View\n").await;
    run("permissions.set -principal k8s-ccm@vsphere.local -role ReadOnly -propagate=true /", "").await;
    run("permissions.ls /", "k8s-ccm@vsphere.local  Yes").await;
    run("tags.category.create -m=false -t Datacenter -t ClusterComputeResource k8s-region", "urn:vmomi:").await;
    for category in ["k8s-region\n", "k8s-zone\n"] {
        run("tags.category.ls", category).await;
    }
    run("tags.create -c k8s-region region-1", "urn:vmomi:").await;
    run("tags.attach -c k8s-region region-1 /dc-1", "").await;
    run("tags.attached.ls -r /dc-1", "region-1").await;
    let guest = format!("object.collect -s {vm} guest.toolsRunningStatus guest.hostName guest.ipAddress");
    run(&guest, "guestToolsRunning\nnode-1.example.com\n10.0.0.11\n").await;
    run(&format!("object.collect -s {vm} config.version"), "vmx-19").await;

    let categories = rest(&vcenter).await.list_categories().await.unwrap();
    assert_eq!(categories.len(), 2, "the program sees what govc has created: {categories:?}");
}

#[tokio::test]
async fn a_user_that_govc_has_created_logs_in_with_its_password_only() {
    let vcenter = Vcenter::start(&scenario()).await;
    let user = ("GOVC_USERNAME", "k8s-ccm@vsphere.local");
    let find =
        async |password| govc(&vcenter, &[user, ("GOVC_PASSWORD", password)], &["find", "/", "-type", "m"]).await;
    assert!(find("S3cret-4711").await.unwrap_err().contains("Login failure"));
    govc(&vcenter, &[], &["sso.user.create", "-p", "S3cret-4711", "k8s-ccm"]).await.unwrap();
    assert!(find("S3cret-4711").await.unwrap().contains("node-2"));
    assert!(find("other").await.unwrap_err().contains("Login failure"));
    let create = ["sso.user.create", "-p", "S3cret-4711", "other"];
    let refused = govc(&vcenter, &[("GOVC_PASSWORD", "other")], &create).await.unwrap_err();
    assert!(refused.contains("Login failure"), "{refused}");
}
