//! Values for the DaemonSet or Deployment, its Pods, and labels.

use serde_json::{Value, json};

use super::super::kustomize::form;
use super::super::pods;
use super::{Rendered, assert_refused, render};

/// Each value of this group once, different from its default, for a DaemonSet.
pub const ALL: &str = r"
priorityClassName: cluster-critical
updateStrategy: {type: OnDelete}
additionalTolerations: [{key: dedicated, operator: Exists}]
podSecurityContext: {runAsUser: 2000, supplementalGroups: [5]}
containerSecurityContext: {seLinuxOptions: {type: a_t}}
port: 10300
bindAddress: 127.0.0.1
dnsConfig: {nameservers: [192.0.2.1]}
probes:
  liveness:
    enabled: true
    path: /healthz
    initialDelaySeconds: 20
    periodSeconds: 21
    timeoutSeconds: 22
    failureThreshold: 23
  readiness:
    enabled: true
    path: /healthz
    initialDelaySeconds: 30
    periodSeconds: 31
    timeoutSeconds: 32
    failureThreshold: 33
serviceAccount: {annotations: {owner: platform}}
extraEnvFrom: [{secretRef: {name: proxy}}, {configMapRef: {name: settings, optional: true}}]
commonLabels: {team: platform}
";

/// The values for a Deployment.
pub const DEPLOYMENT: &str = "
kind: Deployment
replicas: 3
podDisruptionBudget: {enabled: true}
updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}
";

fn labels(object: &Value) -> &serde_json::Map<String, Value> {
    object["metadata"]["labels"].as_object().unwrap()
}

fn template(rendered: &Rendered) -> &Value {
    &rendered.workload()["spec"]["template"]
}

#[tokio::test]
async fn each_value_of_the_workload_has_its_effect() {
    let rendered = render(ALL).await;
    let (pod, container) = (rendered.pod(), rendered.container());
    assert_eq!(rendered.one("DaemonSet")["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    assert_eq!(
        (&pod["priorityClassName"], &pod["dnsConfig"]),
        (&json!("cluster-critical"), &json!({"nameservers": ["192.0.2.1"]}))
    );
    assert_eq!(pod["tolerations"].as_array().unwrap().last(), Some(&json!({"key": "dedicated", "operator": "Exists"})));
    let context = json!({"runAsNonRoot": true, "runAsUser": 2000, "runAsGroup": 2000, "fsGroup": 1001,
        "supplementalGroups": [5], "seccompProfile": {"type": "RuntimeDefault"}});
    assert_eq!(pod["securityContext"], context);
    let context = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]}, "seLinuxOptions": {"type": "a_t"}});
    assert_eq!(container["securityContext"], context);
    let flags = container["args"].as_array().unwrap();
    assert_eq!(flags[3..], [json!("--secure-port=10300"), json!("--bind-address=127.0.0.1")]);
    assert_eq!(container["ports"][0]["containerPort"], 10300);
    let get = json!({"path": "/healthz", "port": 10300, "scheme": "HTTPS", "host": "127.0.0.1"});
    let probe = |first: u8| {
        json!({"httpGet": get, "initialDelaySeconds": first, "periodSeconds": first + 1, "timeoutSeconds": first + 2,
            "failureThreshold": first + 3})
    };
    assert_eq!((&container["livenessProbe"], &container["readinessProbe"]), (&probe(20), &probe(30)));
    let sources = json!([{"secretRef": {"name": "proxy"}}, {"configMapRef": {"name": "settings", "optional": true}}]);
    assert_eq!(container["envFrom"], sources);
    assert_eq!(rendered.one("ServiceAccount")["metadata"]["annotations"], json!({"owner": "platform"}));
}

#[tokio::test]
async fn labels_are_on_all_objects_and_in_no_selector() {
    for values in [ALL, &format!("{ALL}\n{DEPLOYMENT}").replace("updateStrategy: {type: OnDelete}\n", "")] {
        let rendered = render(values).await;
        for object in &rendered.objects {
            let labels = labels(object);
            assert_eq!(labels["team"], "platform", "{object}");
            assert_eq!(labels["app.kubernetes.io/name"], "vsphere-cloud-controller-manager", "{object}");
            assert_eq!(labels["app.kubernetes.io/instance"], "vsphere-cpi", "{object}");
            assert_eq!(labels["app.kubernetes.io/managed-by"], "Helm", "{object}");
            assert_eq!(labels["helm.sh/chart"], "vsphere-cpi-2.0.0", "{object}");
            // The labels of upstream's chart.
            assert_eq!(
                (&labels["app"], &labels["component"]),
                (&json!("vsphere-cpi"), &json!("cloud-controller-manager"))
            );
            let selector = &object["spec"]["selector"];
            assert!(selector.is_null() || *selector == json!({"matchLabels": {"app": "vsphere-cpi"}}), "{object}");
        }
        let of_pod = template(&rendered)["metadata"]["labels"].as_object().unwrap();
        assert_eq!(
            (&of_pod["team"], &of_pod["app.kubernetes.io/component"]),
            (&json!("platform"), &json!("cloud-controller-manager"))
        );
        // A version would restart the Pods with each version of the chart.
        assert!(!of_pod.keys().any(|key| key.contains("version") || key.contains("chart")), "{of_pod:?}");
    }
}

/// Helm deletes the DaemonSet in the upgrade that creates the Deployment.
#[tokio::test]
async fn as_a_deployment_the_pods_are_those_of_the_component() {
    let rendered = render("kind: Deployment").await;
    assert!(!rendered.kinds().contains_key("DaemonSet"));
    let deployment = rendered.one("Deployment");
    let of_component = form("deployment").await.objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    for field in ["/spec/replicas", "/spec/strategy"] {
        assert_eq!(deployment.pointer(field), of_component.pointer(field), "{field}");
    }
    let tolerations = rendered.pod()["tolerations"].as_array().unwrap();
    for toleration in pods::pod(of_component).unwrap()["tolerations"].as_array().unwrap() {
        assert!(tolerations.contains(toleration), "{toleration} is not in {tolerations:?}");
    }
    let terms = &rendered.pod()["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let selector = json!({"matchLabels": {"app": "vsphere-cpi"}});
    assert_eq!(*terms, json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}]));
    assert!(rendered.pod()["affinity"]["nodeAffinity"].is_object());
    let budget = rendered.one("PodDisruptionBudget");
    let of_component = &form("deployment").await.objects;
    let of_component = of_component.iter().find(|object| object["kind"] == "PodDisruptionBudget").unwrap();
    assert_eq!(budget["spec"]["maxUnavailable"], of_component["spec"]["maxUnavailable"]);
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);

    let rendered = render(DEPLOYMENT).await;
    assert_eq!(rendered.one("Deployment")["spec"]["replicas"], 3);
    assert_eq!(rendered.one("Deployment")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 2);
    let rendered = render("{kind: Deployment, podDisruptionBudget: {enabled: false}}").await;
    assert!(!rendered.kinds().contains_key("PodDisruptionBudget"));
    let own = "{kind: Deployment, daemonset: {affinity: {podAntiAffinity: {}}}}";
    assert_eq!(render(own).await.pod()["affinity"]["podAntiAffinity"], json!({}));
    assert!(!render("").await.kinds().contains_key("PodDisruptionBudget"), "a DaemonSet has one Pod on each node");
}

#[tokio::test]
async fn a_probe_or_the_port_can_be_turned_off() {
    let rendered = render("probes: {liveness: {enabled: false}}").await;
    assert!(rendered.container()["livenessProbe"].is_null() && rendered.container()["readinessProbe"].is_object());
    let rendered = render("port: 0").await;
    let container = rendered.container();
    for field in ["ports", "livenessProbe", "readinessProbe"] {
        assert!(container[field].is_null(), "{field}");
    }
    assert!(container["args"].as_array().unwrap().contains(&json!("--secure-port=0")));
}

#[tokio::test]
async fn the_default_probes_are_those_of_the_manifests() {
    let set = form("base").await.objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    let (ours, rendered) = (pods::containers(set)[0], render("").await);
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(rendered.container()[probe], ours[probe], "{probe}");
    }
}

#[tokio::test]
async fn only_the_user_root_may_be_root() {
    for (values, is_not_root) in
        [("", true), ("securityContext: {runAsUser: 0}", false), ("podSecurityContext: {runAsUser: 0}", false)]
    {
        assert_eq!(render(values).await.pod()["securityContext"]["runAsNonRoot"], is_not_root, "{values}");
    }
}

/// OpenShift chooses user and group ids.
#[tokio::test]
async fn a_security_context_can_leave_out_the_user() {
    let rendered = render("{securityContext: {enabled: false}, podSecurityContext: {fsGroup: 7}}").await;
    let expected = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "fsGroup": 7});
    assert_eq!(rendered.pod()["securityContext"], expected);
}

#[tokio::test]
async fn values_of_the_workload_that_contradict_each_other_are_refused_with_both_names() {
    assert_refused(&[
        ("{kind: Deployment, replicas: 3, daemonset: {replicaCount: 2}}", &["replicas", "daemonset.replicaCount"]),
        ("{kind: Deployment, updateStrategy: {type: OnDelete}}", &["updateStrategy.type", "kind"]),
        ("updateStrategy: {type: Recreate}", &["updateStrategy.type", "kind"]),
        (
            "{podSecurityContext: {runAsUser: 3}, securityContext: {runAsUser: 4}}",
            &["podSecurityContext.runAsUser", "securityContext.runAsUser"],
        ),
        (
            "{podSecurityContext: {fsGroup: 3}, securityContext: {fsGroup: 4}}",
            &["podSecurityContext.fsGroup", "securityContext.fsGroup"],
        ),
        ("daemonset: {dnsPolicy: None}", &["daemonset.dnsPolicy", "dnsConfig"]),
        ("kind: StatefulSet", &["at '/kind'"]),
        ("replicas: 0", &["at '/replicas'"]),
        ("port: 70000", &["at '/port'"]),
        ("bindAddress: localhost", &["at '/bindAddress'"]),
        ("podSecurityContext: {runAsuser: 3}", &["'runAsuser' not allowed"]),
        ("containerSecurityContext: {fsGroup: 3}", &["'fsGroup' not allowed"]),
        ("probes: {liveness: {path: livez}}", &["at '/probes/liveness/path'"]),
        ("extraEnvFrom: [{secretRef: {nam: a}}]", &["at '/extraEnvFrom/0/secretRef'"]),
        ("additionalTolerations: [{kye: a}]", &["at '/additionalTolerations/0'"]),
        ("commonLabels: {app: mine}", &["commonLabels has the label app,"]),
        ("commonLabels: {tier: mine}", &["commonLabels has the label tier,"]),
        ("commonLabels: {app.kubernetes.io/name: mine}", &["commonLabels has the label app.kubernetes.io/name,"]),
    ])
    .await;
}
