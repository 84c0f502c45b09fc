//! The permissions that this process needs at the API server, and whether it has them.

use crate::app::inquiries::Inquiries;
use crate::app::reports::check::CheckResult;
use crate::app::reports::check::catalogue::CheckId;
use crate::app::reports::check::permissions::{PermissionAnswer, PermissionFacts, RuleObjects, permissions};
use crate::app::settings::Settings;
use crate::app::shared_services::SharedServices;
use crate::controllers::node_lifecycle::DeletionMode;
use crate::kubernetes::permissions::{Permission, is_allowed};
use crate::providers::vsphere::config::{Config, Credentials, NsxLogin};
use crate::providers::vsphere::login::credentials::source::SourceLocation;
use futures::StreamExt as _;
use futures::stream;
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of calls at the same time.
pub(in crate::app::inquiries) const CALLS: usize = 2;

/// Time limit of one review.
const LIMIT: Duration = Duration::from_secs(5);

/// Time limit of all calls of one command to one product, including the wait for the calls of other commands.
pub(super) const TOTAL_LIMIT: Duration = Duration::from_secs(20);

/// The namespace of Events about Nodes.
const NODE_EVENTS: &str = "default";

const COORDINATION: &str = "coordination.k8s.io";

/// The settings from which permissions follow. They do not change while the process runs.
pub(in crate::app::inquiries) struct PermissionSettings {
    namespace: String,
    /// Name of the Lease; `None` without an election.
    lease: Option<String>,
    deletes_nodes: bool,
    watches_services: bool,
    /// `--use-service-account-credentials`.
    has_own_accounts: bool,
}

impl PermissionSettings {
    /// Extracts the settings.
    pub fn new(settings: &Settings, parts: &SharedServices) -> Self {
        let lease = settings.election.as_ref().map(|_| settings.lease.name.clone());
        let namespace = if lease.is_some() { settings.lease.namespace.as_str() } else { "kube-system" };
        Self {
            namespace: namespace.to_owned(),
            lease,
            deletes_nodes: settings.node_lifecycle.deletion == DeletionMode::Enforce,
            watches_services: parts.caches.services.is_some(),
            has_own_accounts: settings.generic.use_service_account_credentials,
        }
    }
}

/// A permission, and what does not work without it. `None`: the program does not work at all.
#[derive(Clone)]
struct NeededPermission {
    permission: Permission,
    consequence: Option<&'static str>,
}

/// Checks the permissions with a review for each.
pub(super) async fn check(process: &Inquiries) -> Vec<CheckResult> {
    if process.permissions.has_own_accounts {
        return vec![own_accounts()];
    }
    let needed = needed(&process.permissions, &process.vsphere.cloud_config().config);
    let mut facts = Vec::new();
    let reviews = stream::iter(needed.clone()).map(|needed| review(process, needed)).buffered(CALLS).for_each(|fact| {
        facts.push(fact);
        std::future::ready(())
    });
    if tokio::time::timeout(TOTAL_LIMIT, reviews).await.is_err() {
        let reason = format!("the API server did not answer within {} s", TOTAL_LIMIT.as_secs());
        add_unanswered(&mut facts, &needed, &reason);
    }
    permissions(&facts)
}

/// Adds the permissions without an answer. The answers have the order of `needed`.
fn add_unanswered(facts: &mut Vec<PermissionFacts>, needed: &[NeededPermission], reason: &str) {
    let answered = facts.len();
    let unknown = || PermissionAnswer::Unknown(reason.to_owned());
    facts.extend(needed.iter().skip(answered).map(|needed| needed.with_answer(unknown())));
}

impl NeededPermission {
    fn with_answer(&self, answer: PermissionAnswer) -> PermissionFacts {
        let Permission { group, resource, subresource, verb, namespace, name } = self.permission.clone();
        let resource = match subresource {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource,
        };
        PermissionFacts {
            permission: self.permission.to_string(),
            verb,
            objects: RuleObjects { group, resource, namespace, name },
            consequence: self.consequence,
            answer,
        }
    }
}

/// Returns the result if each controller has a service account of its own: this process can ask only about its own one.
fn own_accounts() -> CheckResult {
    let reason = "with --use-service-account-credentials each controller has a service account of its own, and the \
                  process asks only about itself";
    let command = "kubectl auth can-i --list --as=system:serviceaccount:kube-system:node-controller; also for \
                   route-controller and service-controller";
    CheckResult::incomplete(CheckId::K02, "", reason).with_remedy(command)
}

async fn review(process: &Inquiries, needed: NeededPermission) -> PermissionFacts {
    // The semaphore is never closed.
    let _turn = process.calls.acquire().await;
    let answer = match is_allowed(&process.api_server, &needed.permission, LIMIT).await {
        Ok(true) => PermissionAnswer::Allowed,
        Ok(false) => PermissionAnswer::Denied,
        Err(reason) => PermissionAnswer::Unknown(reason),
    };
    needed.with_answer(answer)
}

fn needed(settings: &PermissionSettings, config: &Config) -> Vec<NeededPermission> {
    let mut list = PermissionList::default();
    list.require(&["get", "list", "watch", "patch"], "nodes", None, None);
    list.require(&["patch"], "nodes/status", None, None);
    if settings.deletes_nodes {
        list.require(&["delete"], "nodes", None, None);
    }
    let namespace = settings.namespace.as_str();
    // The Leases of the login throttle have other names in the same namespace.
    list.require(&["get", "create", "update"], "leases", Some(namespace), None);
    if let Some(lease) = &settings.lease {
        let consequence = "a standby learns later that the leader has ended";
        list.want(&["watch"], "leases", Some(namespace), Some(lease), consequence);
    }
    let namespaces = BTreeSet::from([namespace, NODE_EVENTS]);
    for namespace in namespaces {
        list.want(&["create", "patch"], "events", Some(namespace), None, "Events are missing");
    }
    for (namespace, name) in secrets(config) {
        list.require(&["get", "watch"], "secrets", Some(&namespace), Some(&name));
    }
    if settings.watches_services && config.load_balancers.used().is_some() {
        list.require(&["list", "watch"], "services", None, None);
        list.require(&["patch"], "services/status", None, None);
        list.want(&["create", "patch"], "events", None, None, "Events about Services are missing");
    }
    if config.nsx.used().is_some() {
        let consequence = "objects in NSX are not tagged with the UID of the cluster";
        list.want(&["get"], "namespaces", Some("kube-system"), Some("kube-system"), consequence);
    }
    list.0
}

/// Returns namespace and name of each Secret with credentials.
fn secrets(config: &Config) -> BTreeSet<(String, String)> {
    let of_vcenters = config
        .vcenters
        .iter()
        .flat_map(|vcenter| std::iter::once(&vcenter.credentials).chain(vcenter.fallback_credentials.as_ref()));
    let of_nsx = config.nsx.used().into_iter().flat_map(|nsx| match &nsx.login {
        NsxLogin::Pair { credentials, fallback } => {
            std::iter::once(credentials).chain(fallback.as_ref()).collect::<Vec<_>>()
        }
        NsxLogin::Certificate { .. } | NsxLogin::VmcToken { .. } => Vec::new(),
    });
    let secret = |credentials: &Credentials| match credentials {
        Credentials::Stored(SourceLocation::Secret { namespace, name }) => Some((namespace.clone(), name.clone())),
        Credentials::Stored(SourceLocation::Directory(_)) | Credentials::Inline { .. } => None,
    };
    of_vcenters.chain(of_nsx).filter_map(secret).collect()
}

#[derive(Default)]
struct PermissionList(Vec<NeededPermission>);

impl PermissionList {
    fn require(&mut self, verbs: &[&str], resource: &str, namespace: Option<&str>, name: Option<&str>) {
        self.add(verbs, [Some(resource), namespace, name], None);
    }

    fn want(
        &mut self,
        verbs: &[&str],
        resource: &str,
        namespace: Option<&str>,
        name: Option<&str>,
        consequence: &'static str,
    ) {
        self.add(verbs, [Some(resource), namespace, name], Some(consequence));
    }

    /// Adds a permission for each verb. `object` is the resource, the namespace and the name.
    fn add(&mut self, verbs: &[&str], object: [Option<&str>; 3], consequence: Option<&'static str>) {
        let [resource, namespace, name] = object.map(|text| text.map(str::to_owned));
        let resource = resource.unwrap_or_default();
        let group = if resource == "leases" { COORDINATION } else { "" };
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
            None => (resource, None),
        };
        self.0.extend(verbs.iter().map(|verb| NeededPermission {
            permission: Permission {
                group: group.to_owned(),
                resource: resource.clone(),
                subresource: subresource.clone(),
                verb: (*verb).to_owned(),
                namespace: namespace.clone(),
                name: name.clone(),
            },
            consequence,
        }));
    }
}

#[cfg(test)]
mod tests;
