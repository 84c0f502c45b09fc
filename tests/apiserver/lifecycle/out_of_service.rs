//! The out-of-service taint, which is opt-in.

use ccm::cloud::PowerState;
use ccm::controllers::node_lifecycle::LifecycleSettings;
use ccm::controllers::node_lifecycle::plan::{ANNOTATION_OUT_OF_SERVICE, TAINT_OUT_OF_SERVICE};
use doubles::memory::{Instance, Memory};
use k8s_openapi::api::core::v1::Node;
use std::time::Duration;

use super::harness::{Form, Run, instance, settings, several_passes, taints};

fn is_out(node: &Node) -> bool {
    taints(node).contains(&format!("{TAINT_OUT_OF_SERVICE}=nodeshutdown:NoExecute"))
}

fn mark(node: &Node) -> Option<&str> {
    ccm::cloud::node::annotation(node, ANNOTATION_OUT_OF_SERVICE)
}

fn put(cloud: &Memory, form: &Form, power: PowerState) {
    cloud.put(Instance { power, ..instance(form, &form.provider_id) });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_stays_off_is_taken_out_of_service_and_put_back() {
    let cloud = Memory::default();
    let after = Some(Duration::from_secs(2));
    let run = Run::start(&cloud, LifecycleSettings { out_of_service_after: after, ..settings() }).await;
    let [off, suspended, ready] = [Form::new("Unknown"), Form::new("Unknown"), Form::new("True")];
    put(&cloud, &suspended, PowerState::Suspended);
    put(&cloud, &ready, PowerState::Off);
    put(&cloud, &off, PowerState::Off);
    for form in [&off, &suspended, &ready] {
        run.register(form).await;
    }
    let node = run.wait("it is out of service", &off.name, is_out).await;
    let since: k8s_openapi::jiff::Timestamp = mark(&node).unwrap().parse().unwrap();
    assert!(since <= k8s_openapi::jiff::Timestamp::now());
    assert_eq!(taints(&node).len(), 2, "beside the shutdown taint");
    several_passes(&cloud).await;
    for form in [&suspended, &ready] {
        assert!(!is_out(&run.api().get(&form.name).await.unwrap()));
    }

    // An operator removes the taint. It is not added again while the machine is off.
    let mut live = run.api().get(&off.name).await.unwrap();
    live.spec.as_mut().unwrap().taints = None;
    run.api().replace(&off.name, &kube::api::PostParams::default(), &live).await.unwrap();
    run.wait("the shutdown taint is back", &off.name, |node| taints(node).len() == 1).await;
    several_passes(&cloud).await;
    assert!(!is_out(&run.api().get(&off.name).await.unwrap()));

    // The machine runs, so the mark is removed. The next period starts at zero.
    cloud.update(&off.provider_id, |instance| instance.power = PowerState::On);
    run.wait("the mark goes", &off.name, |node| mark(node).is_none() && taints(node).is_empty()).await;
    cloud.update(&off.provider_id, |instance| instance.power = PowerState::Off);
    run.wait("it is out of service again", &off.name, is_out).await;
    run.wait_for_metric("twice", "vsphere_ccm_node_out_of_service_taints_total", 2).await;

    // A controller without the flag also removes this program's taint, once the machine runs or the Node is Ready.
    drop(run);
    let run = Run::start(&cloud, settings()).await;
    let annotations = vec![(ANNOTATION_OUT_OF_SERVICE.into(), "2026-01-01T00:00:00Z".into())];
    let ours = vec![format!("{TAINT_OUT_OF_SERVICE}=nodeshutdown:NoExecute")];
    let [silent, ready] = ["Unknown", "True"].map(|ready| Form {
        annotations: annotations.clone(),
        taints: ours.clone(),
        ..Form::new(ready)
    });
    for form in [&silent, &ready] {
        put(&cloud, form, PowerState::Off);
        run.register(form).await;
    }
    run.wait("it is Ready", &ready.name, |node| mark(node).is_none() && taints(node).is_empty()).await;
    several_passes(&cloud).await;
    assert!(is_out(&run.api().get(&silent.name).await.unwrap()), "it does not run");
    cloud.update(&silent.provider_id, |instance| instance.power = PowerState::On);
    run.wait("it runs", &silent.name, |node| mark(node).is_none() && taints(node).is_empty()).await;
}
