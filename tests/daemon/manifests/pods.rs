//! The security restrictions of the pods of the manifests, and the daemon's answers to their probes.

use serde_json::{Value, json};

use super::kustomize::{forms, piped};
use crate::cluster::BINARY;

/// Returns the specification of the pods that this object creates, if it creates any.
pub fn pod(object: &Value) -> Option<&Value> {
    match object["kind"].as_str()? {
        "Pod" => Some(&object["spec"]),
        "DaemonSet" | "Deployment" => Some(&object["spec"]["template"]["spec"]),
        _ => None,
    }
}

/// Returns the containers of the pods that this object creates.
pub fn containers(object: &Value) -> Vec<&Value> {
    pod(object).map(|pod| pod["containers"].as_array().unwrap().iter().collect()).unwrap_or_default()
}

/// Returns the missing security restrictions of the pods.
pub fn gaps(object: &Value) -> Vec<String> {
    let Some(pod) = pod(object) else { return Vec::new() };
    let mut gaps = Vec::new();
    let mut expect = |what: &str, found: &Value, expected: Value| {
        if *found != expected {
            gaps.push(format!("{what} is {found}, and must be {expected}"));
        }
    };
    let context = &pod["securityContext"];
    expect("runAsNonRoot", &context["runAsNonRoot"], json!(true));
    expect("seccompProfile", &context["seccompProfile"], json!({"type": "RuntimeDefault"}));
    expect("priorityClassName", &pod["priorityClassName"], json!("system-node-critical"));
    expect("hostNetwork", &pod["hostNetwork"], json!(true));
    expect("enableServiceLinks", &pod["enableServiceLinks"], json!(false));
    for forbidden in ["hostPID", "hostIPC", "initContainers", "shareProcessNamespace"] {
        expect(forbidden, &pod[forbidden], Value::Null);
    }
    for container in pod["containers"].as_array().unwrap() {
        let context = &container["securityContext"];
        expect("allowPrivilegeEscalation", &context["allowPrivilegeEscalation"], json!(false));
        expect("readOnlyRootFilesystem", &context["readOnlyRootFilesystem"], json!(true));
        expect("capabilities", &context["capabilities"], json!({"drop": ["ALL"]}));
        expect("privileged", &context["privileged"], Value::Null);
        expect("command", &container["command"], Value::Null);
        for resource in [&container["resources"]["requests"]["cpu"], &container["resources"]["requests"]["memory"]] {
            expect("a request", &json!(resource.is_string()), json!(true));
        }
        for probe in ["livenessProbe", "readinessProbe"] {
            let asked = &container[probe]["httpGet"];
            expect(probe, &asked["scheme"], json!("HTTPS"));
            expect(probe, &asked["port"], json!(10258));
        }
        for mount in container["volumeMounts"].as_array().unwrap() {
            expect("readOnly of a mount", &mount["readOnly"], json!(true));
        }
    }
    if object["kind"] == "DaemonSet" {
        let rolling = &object["spec"]["updateStrategy"]["rollingUpdate"];
        expect("maxUnavailable", &rolling["maxUnavailable"], json!(1));
    }
    gaps
}

/// Returns the objects of all forms that create pods, with the names of the forms. Checks that each kind occurs.
async fn pods() -> Vec<(&'static str, &'static Value)> {
    let all = forms().await.iter().flat_map(|form| form.objects.iter().map(|object| (form.name.as_str(), object)));
    let pods: Vec<_> = all.filter(|(_, object)| pod(object).is_some()).collect();
    for kind in ["Pod", "DaemonSet", "Deployment"] {
        assert!(pods.iter().any(|(_, object)| object["kind"] == kind), "no {kind}");
    }
    pods
}

#[tokio::test]
async fn pods_are_confined() {
    for (form, object) in pods().await {
        assert_eq!(gaps(object), Vec::<String>::new(), "{form}");
    }
}

#[tokio::test]
async fn a_pod_that_is_not_confined_is_noticed() {
    let (_, sound) = pods().await.into_iter().find(|(_, object)| object["kind"] == "DaemonSet").unwrap();
    let spec = "/spec/template/spec";
    for (path, value) in [
        ("/securityContext/runAsNonRoot", json!(false)),
        ("/securityContext/seccompProfile/type", json!("Unconfined")),
        ("/containers/0/securityContext/readOnlyRootFilesystem", json!(false)),
        ("/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/containers/0/securityContext/capabilities", json!({"drop": ["ALL"], "add": ["NET_ADMIN"]})),
        ("/containers/0/volumeMounts/0/readOnly", json!(false)),
        ("/containers/0/livenessProbe/httpGet/scheme", json!("HTTP")),
    ] {
        let mut object = sound.clone();
        *object.pointer_mut(&format!("{spec}{path}")).unwrap() = value;
        assert_eq!(gaps(&object).len(), 1, "{path}: {:?}", gaps(&object));
    }
}

/// Checks tolerations and selectors: the pods have to run on every node of a control plane.
#[tokio::test]
async fn pods_are_scheduled_to_a_control_plane_that_is_not_ready_yet() {
    for (form, object) in pods().await.into_iter().filter(|(_, object)| object["kind"] != "Pod") {
        let pod = pod(object).unwrap();
        let tolerated: Vec<&str> =
            pod["tolerations"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
        for key in [
            "node.cloudprovider.kubernetes.io/uninitialized",
            "node-role.kubernetes.io/control-plane",
            "node.kubernetes.io/not-ready",
        ] {
            assert!(tolerated.contains(&key), "{form}: {key} is not tolerated");
        }
        let terms =
            &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        let wanted = json!({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"});
        assert_eq!(terms[0]["matchExpressions"][0], wanted, "{form}: K3s has the value `true`, others none");
    }
}

/// New settings are environment variables, because the Go program exits on an unknown flag.
#[tokio::test]
async fn every_flag_is_one_that_the_go_program_has_too() {
    let help = piped(std::path::Path::new(BINARY), &["--help".to_owned()], "").await.unwrap();
    for (form, object) in pods().await {
        for container in containers(object) {
            for argument in container["args"].as_array().unwrap() {
                let flag = argument.as_str().unwrap().split('=').next().unwrap();
                let is_known = help.lines().any(|line| line.split([' ', '=', ',', '[']).any(|word| word == flag));
                assert!(is_known, "{form}: {flag} is not in --help");
                let variable = format!("CCM_{}", flag.trim_start_matches("--").replace('-', "_").to_uppercase());
                assert!(!help.contains(&variable), "{form}: the Go program does not know {flag}");
            }
            for variable in container["env"].as_array().into_iter().flatten() {
                let name = variable["name"].as_str().unwrap();
                let is_known = name.starts_with("KUBERNETES_SERVICE_") || help.contains(name);
                assert!(is_known, "{form}: {name} is not in --help");
            }
        }
    }
}
