//! The daemon behind a proxy from its environment variables.

use support::connect_proxy::ConnectProxy;
use support::{Vcenter, unique};

use crate::admin::{Admin, token};
use crate::cluster::{Cluster, LIMIT, until_it_answers};

/// Only the proxy can resolve the name. The certificate is for another name and is accepted by its thumbprint. The Go
/// program ignores the thumbprint behind a proxy.
#[tokio::test]
async fn vcenter_is_reached_through_the_proxy_of_the_environment_and_the_api_server_directly() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..2)).await;
    let proxy = ConnectProxy::start(vcenter.port()).await;
    let section = format!(
        "[VirtualCenter \"vc-1\"]\nserver = vcenter.test\nuser = \"{}\"\npassword = \"{}\"\nthumbprint = \"{}\"\n\
         datacenters = dc-1\n",
        vcenter.user(),
        vcenter.password(),
        vcenter.sha256_thumbprint()
    );
    let url = format!("http://ccm:hunter2@127.0.0.1:{}", proxy.port());
    let admin = Admin::new();
    let config = Cluster::zoned(&[section]);
    let mut daemon = cluster.start_in(&[("HTTPS_PROXY", &url)], &config, &[&admin.flag()]);
    until_it_answers(&daemon, "vcenter.test:443").await;
    cluster.register(0..2).await;
    cluster.wait_until_initialized(0..2, &daemon).await;
    let asked = proxy.asked();
    assert!(!asked.is_empty() && asked.iter().all(|line| line == "CONNECT vcenter.test:443 HTTP/1.1"), "{asked:?}");
    assert!(daemon.output().find("hunter2").is_none(), "the proxy's password is in the log");

    let token = token(&cluster).await;
    let (_, text) = admin.get("/metrics", Some(&token), &mut daemon).await;
    let named = "{vcenter=\"vcenter.test:443\"} ";
    let expiry = text.lines().find_map(|line| {
        line.strip_prefix("vsphere_ccm_vcenter_certificate_expiry_timestamp_seconds")?.strip_prefix(named)
    });
    let expiry: f64 = expiry.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    assert!((now + 360.0 * 86400.0..now + 367.0 * 86400.0).contains(&expiry), "valid for a year, says {expiry}");
    let calls = "vsphere_ccm_vcenter_call_duration_seconds_count{operation=\"Login\",outcome=\"ok\",vcenter=\"vcenter.test:443\"} 1";
    assert!(text.contains(calls), "{text}");
}

#[tokio::test]
async fn a_variable_that_names_no_proxy_is_a_mistake_at_start_that_does_not_show_it() {
    let cluster = Cluster::new().await;
    let section = "[VirtualCenter \"vc-1\"]\nserver = vcenter.test\nuser = u\npassword = p\ninsecure-flag = true\n";
    let url = format!("ftp://ccm:hunter2@{}", unique("proxy"));
    let mut daemon = cluster.start_in(&[("https_proxy", &url)], section, &[]);
    let status = daemon.wait(LIMIT).await;
    assert_eq!(status.code(), Some(1));
    let output = daemon.output();
    assert!(output.find("environment variable https_proxy: ").is_some(), "{}", output.tail(40));
    assert!(output.find("hunter2").is_none(), "{}", output.tail(40));
}
