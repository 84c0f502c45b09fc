//! `explain route`: a Node with its route, and one whose network is not one of the cluster.

use support::{Daemon, eventually};

use super::screen::{rewrapped, without_times};
use super::{CommandResult, ask, compare_with_page, json};
use crate::cluster::LIMIT;
use crate::nsx::{CLUSTER_CIDR, ROUTE_SECTION, ROUTER, Site, USERS};

#[tokio::test]
async fn explain_route_shows_the_next_hop_and_why_a_network_gets_no_route() {
    let site = Site::new(0..2).await;
    let config = site.file("route.conf", &format!("{}{ROUTE_SECTION}", site.with_nsx(USERS[0])));
    let mut leader = site.start(&config, &[CLUSTER_CIDR]);
    leader.wait_for_line("became leader", LIMIT).await;
    site.join(0, &[]).await;
    let foreign = site.cluster.kubelet(1).pod_cidrs(&["10.9.1.0/24"]);
    foreign.register(&site.cluster.client).await;
    let (routed, refused) = (site.cluster.name(0), site.cluster.name(1));

    let screen = wait_for(&leader, &routed, 0, "NetworkUnavailable=False, RouteCreated").await;
    let node = site.cluster.nodes().await[&routed].clone();
    let uid = node.metadata.uid.unwrap();
    let id = format!("static-routes/{uid}_10.244.0.0_24");
    assert!(site.nsx.object(&format!("{ROUTER}/{id}")).is_some() && screen.contains(&id), "{screen}");
    let shown = screen.replace(&uid, "5a0f6f5e-5a53-4d2c-9c0b-1f6a3d7e2b10").replace(&routed, "worker-7");
    compare_with_page("explain route NODE", &without_times(&rewrapped(&shown)));

    let fresh = ["explain", "route", &routed, "--fresh"];
    let path = format!("{ROUTER}/{id}");
    let as_known = ask(&leader, &fresh).await;
    assert_eq!(as_known.code, Some(0), "{}", as_known.output);
    // The next pass may write the route again before it is read.
    eventually("a route that was deleted in NSX is a difference", LIMIT, async || {
        site.nsx.delete_by_hand("admin", &path);
        let (code, report) = json(&leader, &fresh).await;
        let objects = report["fresh"]["objects"].as_array().cloned().unwrap_or_default();
        let route = objects.into_iter().find(|object| object["kind"] == "route").unwrap_or_default();
        match code == Some(1) && route["differences"][0]["read"] == "does not exist" && route["name"] == path {
            true => Ok(()),
            false => Err(format!("{code:?} {report:#}")),
        }
    })
    .await;

    let held = wait_for(&leader, &refused, 1, "PodNetworkForeign").await;
    assert!(held.contains("10.9.1.0/24 held for ") && held.contains("--cluster-cidr"), "{held}");
    let unknown = ask(&leader, &["explain", "route", &format!("{routed}0")]).await;
    assert_eq!((unknown.code, unknown.output.as_str()), (Some(2), ""));
    assert!(unknown.messages.contains(&format!("the nearest names are {routed}, ")), "{}", unknown.messages);

    let mut standby = site.start(&config, &[CLUSTER_CIDR]);
    standby.wait_for_line(" started", LIMIT).await;
    let CommandResult { code, output, .. } = ask(&standby, &["explain", "route", &routed]).await;
    assert!(code == Some(3) && output.contains("does not lead"), "{code:?} {output}");
    for output in [output, held, screen] {
        assert!(USERS.iter().all(|(_, password)| !output.contains(password)), "{output}");
    }
}

/// Waits until the explanation of this Node has this exit code and text. Returns the explanation.
async fn wait_for(daemon: &Daemon, name: &str, expected: i32, text: &str) -> String {
    eventually(&format!("{name}: {text}"), LIMIT, async || {
        let CommandResult { code, output, messages } = ask(daemon, &["explain", "route", name]).await;
        match code == Some(expected) && output.contains(text) {
            true => Ok(output),
            false => Err(format!("{code:?} {output}{messages}\n{}", daemon.output().tail(20))),
        }
    })
    .await
}
