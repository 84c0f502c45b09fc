//! The permissions that this process needs at the API server, and whether it has them.

mod secure_port;

use crate::app::inquiries::Inquiries;
use crate::app::reports::check::catalogue::CheckId;
use crate::app::reports::check::permissions::{
    PermissionAnswer, PermissionFacts, ReviewedAccount, RuleObjects, permissions,
};
use crate::app::reports::check::{CheckResult, CheckStatus};
use crate::app::settings::Settings;
use crate::app::shared_services::SharedServices;
use crate::controllers::node_lifecycle::DeletionMode;
use crate::kubernetes::permissions::{Permission, is_allowed, user_name};
use crate::providers::vsphere::config::{Config, Credentials, NsxLogin};
use crate::providers::vsphere::login::credentials::source::SourceLocation;
use futures::StreamExt as _;
use futures::stream;
use secure_port::SecurePortPermissions;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of calls at the same time.
pub(in crate::app::inquiries) const CALLS: usize = 2;

/// Time limit of one review.
const LIMIT: Duration = Duration::from_secs(5);

/// Time limit of all calls of one command to one product, including the wait for the calls of other commands.
pub(in crate::app::inquiries) const TOTAL_LIMIT: Duration = Duration::from_secs(20);

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
    /// The questions of the secure port; `None` without the port.
    secure_port: Option<SecurePortPermissions>,
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
            secure_port: SecurePortPermissions::new(settings),
        }
    }
}

/// A permission, and what does not work without it. `None`: the program does not work at all.
#[derive(Clone)]
struct NeededPermission {
    permission: Permission,
    consequence: Option<&'static str>,
    /// The flag with the kubeconfig of the account; `None` for the account of this process.
    kubeconfig_flag: Option<&'static str>,
}

/// The clients of the accounts, by the flags with their kubeconfigs.
type ReviewClients = BTreeMap<Option<&'static str>, kube::Client>;

/// Checks the permissions with a review for each.
pub(super) async fn check(process: &Inquiries) -> Vec<CheckResult> {
    let settings = &process.permissions;
    let mut wanted = match settings.has_own_accounts {
        true => Vec::new(),
        false => needed(settings, &process.vsphere.cloud_config().config),
    };
    let mut clients = ReviewClients::from([(None, process.api_server.clone())]);
    let mut results = Vec::new();
    if let Some(port) = &settings.secure_port {
        match timeout(LIMIT, port.clients(&process.api_server)).await {
            Ok(Ok(of_kubeconfigs)) => {
                clients.extend(of_kubeconfigs);
                wanted.extend(port.needed());
            }
            Ok(Err(reason)) => results.push(CheckResult::incomplete(CheckId::K02, "", reason)),
            Err(_) => {
                let reason = "the kubeconfigs of the secure port were not read in time";
                results.push(CheckResult::incomplete(CheckId::K02, "", reason));
            }
        }
    }
    let facts = review_all(process, &clients, &wanted).await;
    results.extend(permissions(&facts));
    if settings.has_own_accounts {
        results.retain(|result| result.status != CheckStatus::Passed);
        results.push(own_accounts());
    }
    results
}

/// Asks about each permission, and about the users that lack one.
async fn review_all(process: &Inquiries, clients: &ReviewClients, wanted: &[NeededPermission]) -> Vec<PermissionFacts> {
    let mut facts = Vec::new();
    let reviews = async {
        let reviews = stream::iter(wanted.to_vec()).map(|needed| review(process, clients, needed)).buffered(CALLS);
        reviews
            .for_each(|fact| {
                facts.push(fact);
                std::future::ready(())
            })
            .await;
    };
    if timeout(TOTAL_LIMIT, reviews).await.is_err() {
        let reason = format!("the API server did not answer within {} s", TOTAL_LIMIT.as_secs());
        add_unanswered(&mut facts, wanted, &reason);
    }
    let is_denied = |fact: &&PermissionFacts| fact.answer == PermissionAnswer::Denied;
    let lacking: BTreeSet<Option<&str>> =
        facts.iter().filter(is_denied).map(|fact| fact.account.kubeconfig_flag).collect();
    let mut users = BTreeMap::new();
    for (flag, client) in clients.iter().filter(|(flag, _)| lacking.contains(*flag)) {
        // The semaphore is never closed.
        let _turn = process.calls.acquire().await;
        // Without the name, the command of the remedy has a placeholder.
        users.insert(*flag, user_name(client, LIMIT).await.ok());
    }
    for fact in &mut facts {
        fact.account.user = users.get(&fact.account.kubeconfig_flag).cloned().flatten();
    }
    facts
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
            account: ReviewedAccount { kubeconfig_flag: self.kubeconfig_flag, user: None },
            answer,
        }
    }
}

/// Returns the result if each controller has a service account of its own: this process can ask only about its own one.
fn own_accounts() -> CheckResult {
    let reason = "with --use-service-account-credentials each controller has a service account of its own, and this \
                  process can review only its own permissions";
    let list = |account: &str| format!("kubectl auth can-i --list --as=system:serviceaccount:kube-system:{account}");
    let result = CheckResult::incomplete(CheckId::K02, "", reason).with_remedy("an administrator sees them with:");
    let accounts = ["node-controller", "route-controller", "service-controller"];
    accounts.into_iter().fold(result, |result, account| result.with_command(list(account)))
}

async fn review(process: &Inquiries, clients: &ReviewClients, needed: NeededPermission) -> PermissionFacts {
    let client = clients.get(&needed.kubeconfig_flag).unwrap_or(&process.api_server);
    // The semaphore is never closed.
    let _turn = process.calls.acquire().await;
    let answer = match is_allowed(client, &needed.permission, LIMIT).await {
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
        let group = match resource.as_str() {
            "leases" => COORDINATION,
            "tokenreviews" => "authentication.k8s.io",
            "subjectaccessreviews" => "authorization.k8s.io",
            _ => "",
        };
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
            kubeconfig_flag: None,
        }));
    }
}

#[cfg(test)]
mod tests;
