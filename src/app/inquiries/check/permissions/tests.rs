//! Tests that the list of permissions is that of the manifests.

use super::*;
use crate::app::reports::check::CheckStatus;
use crate::providers::vsphere::config;
use serde_json::Value;

const MANIFESTS: [&str; 4] = [
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/rbac/nodes.yaml")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/rbac/node-deletion.yaml")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/rbac/kube-system.yaml")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/rbac/node-events.yaml")),
];
const SECRET: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/rbac/secret.yaml"));

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

/// Returns the permissions that the rules of this manifest grant, as text.
fn granted(manifest: &str) -> BTreeSet<String> {
    let mut granted = BTreeSet::new();
    for text in manifest.split("\n---\n") {
        let document: Value = serde_saphyr::from_str(text).unwrap();
        let namespace = document["metadata"]["namespace"].as_str().map(str::to_owned);
        for rule in document["rules"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let names = match texts(&rule["resourceNames"]) {
                names if names.is_empty() => vec![None],
                names => names.into_iter().map(Some).collect(),
            };
            for resource in texts(&rule["resources"]) {
                for (verb, name) in texts(&rule["verbs"]).iter().flat_map(|verb| names.iter().map(move |n| (verb, n))) {
                    let mut list = PermissionList::default();
                    list.require(&[verb], &resource, namespace.as_deref(), name.as_deref());
                    granted.extend(list.0.iter().map(|needed| {
                        let groups = texts(&rule["apiGroups"]);
                        assert_eq!(groups, [needed.permission.group.as_str()], "{resource}");
                        needed.permission.to_string()
                    }));
                }
            }
        }
    }
    granted
}

fn settings() -> PermissionSettings {
    PermissionSettings {
        namespace: "kube-system".to_owned(),
        lease: Some("cloud-controller-manager".to_owned()),
        deletes_nodes: true,
        watches_services: true,
        has_own_accounts: false,
        secure_port: None,
    }
}

fn needed_texts(settings: &PermissionSettings, conf: &str) -> BTreeSet<String> {
    let config = config::parse(conf, "vsphere.conf").unwrap().config;
    needed(settings, &config).iter().map(|needed| needed.permission.to_string()).collect()
}

const CONF: &str = "[Global]\nsecret-name = vsphere-cloud-secret\nsecret-namespace = kube-system\n\
                    [VirtualCenter \"vc.example.com\"]\ndatacenters = dc-1\n";

#[test]
fn the_needed_permissions_are_those_of_the_manifests() {
    let mut expected: BTreeSet<String> = MANIFESTS.iter().flat_map(|manifest| granted(manifest)).collect();
    expected.extend(granted(SECRET));
    assert!(expected.len() > 12, "{expected:?}");
    assert_eq!(needed_texts(&settings(), CONF), expected);
}

#[test]
fn without_deletion_and_election_fewer_permissions_are_needed() {
    let with = needed_texts(&settings(), CONF);
    let without = needed_texts(&PermissionSettings { lease: None, deletes_nodes: false, ..settings() }, CONF);
    let fewer: Vec<&String> = with.difference(&without).collect();
    assert_eq!(fewer, ["delete nodes", "watch leases kube-system/cloud-controller-manager"]);
}

#[test]
fn answers_that_came_in_time_count_and_the_others_are_not_known() {
    let config = config::parse(CONF, "vsphere.conf").unwrap().config;
    let needed = needed(&settings(), &config);
    let mut facts = vec![needed[0].with_answer(PermissionAnswer::Denied)];
    add_unanswered(&mut facts, &needed, "no answer within 20 s");
    assert_eq!(facts.len(), needed.len());
    let results = permissions(&facts);
    assert_eq!(
        results.iter().map(|result| result.status).collect::<Vec<_>>(),
        [CheckStatus::Failed, CheckStatus::Incomplete]
    );
    assert_eq!(results[0].message, "missing: get nodes");
    assert!(results[1].message.ends_with("no answer within 20 s"), "{results:?}");
}

#[test]
fn the_permissions_of_accounts_of_the_controllers_are_not_known() {
    let result = own_accounts();
    assert_eq!(result.status, CheckStatus::Incomplete);
    assert_eq!(result.commands.len(), 3);
    assert!(result.commands[0].ends_with("--as=system:serviceaccount:kube-system:node-controller"), "{result:?}");
}
