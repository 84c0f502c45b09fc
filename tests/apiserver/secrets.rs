//! Watches of single Secrets by users with almost no other rights.

use std::time::Duration;

use ccm::kubernetes::secrets::{SecretState, SecretVersion, watch_secret};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::sync::Arc;
use support::rbac;
use support::{ApiServer, unique};
use tokio::sync::watch::Receiver;

const NAMESPACE: &str = "kube-system";
const LONG: Duration = Duration::from_secs(60);

/// One Secret that only this test uses.
struct Subject {
    admin: Client,
    name: String,
}

impl Subject {
    async fn new(server: &ApiServer) -> Self {
        Self { admin: server.client().await, name: unique("credentials") }
    }

    fn api(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    async fn create(&self, password: &str) {
        let secret =
            json!({"metadata": {"name": self.name}, "stringData": {"vc.username": "u", "vc.password": password}});
        self.api().create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    }

    async fn change(&self, password: &str) {
        let patch = Patch::Merge(json!({"stringData": {"vc.password": password}}));
        self.api().patch(&self.name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete(&self) {
        self.api().delete(&self.name, &DeleteParams::default()).await.unwrap();
    }

    /// Returns a client of a user with only these rights for the one Secret.
    async fn reader(&self, server: &ApiServer, verbs: &[&str]) -> Client {
        let user = unique("reader");
        if !verbs.is_empty() {
            self.permit(&user, verbs).await;
        }
        server.client_of(&user).await
    }

    async fn permit(&self, user: &str, verbs: &[&str]) {
        let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [self.name], "verbs": verbs});
        rbac::grant(&self.admin, Some(NAMESPACE), user, rbac::Subject::User(user), json!([rule])).await;
    }

    fn watch(&self, client: Client) -> Receiver<SecretState> {
        let (state, work) = watch_secret(client, NAMESPACE, &self.name);
        tokio::spawn(work);
        state
    }
}

async fn until(
    what: &str,
    state: &mut Receiver<SecretState>,
    mut check: impl FnMut(&SecretState) -> bool,
) -> SecretState {
    let found =
        tokio::time::timeout(LONG, state.wait_for(|state| check(state))).await.map(|found| found.unwrap().clone());
    found.unwrap_or_else(|_| panic!("{what}: not within a minute; the last state: {:?}", state.borrow()))
}

async fn until_password(state: &mut Receiver<SecretState>, password: &str) -> Arc<SecretVersion> {
    let is_it = |state: &SecretState| match state {
        SecretState::Read(version) => version.entries().any(|entry| entry == ("vc.password", password.as_bytes())),
        _ => false,
    };
    match until(&format!("the password {password}"), state, is_it).await {
        SecretState::Read(version) => version,
        other => panic!("{other:?}"),
    }
}

async fn until_absent(state: &mut Receiver<SecretState>, expected: &str) {
    let is_it = |state: &SecretState| matches!(state, SecretState::Absent(why) if why.starts_with(expected));
    until(&format!("absent: {expected}"), state, is_it).await;
}

#[tokio::test]
async fn a_role_for_one_name_is_enough_to_follow_a_secret_through_its_life() {
    let server = ApiServer::shared().await;
    let subject = Subject::new(server).await;
    let client = subject.reader(server, &["get", "list", "watch"]).await;
    let mut state = subject.watch(client.clone());
    until_absent(&mut state, "it does not exist").await;

    subject.create("first").await;
    let first = until_password(&mut state, "first").await;
    assert_eq!(first.entries().count(), 2);
    subject.change("second").await;
    let second = until_password(&mut state, "second").await;
    assert_eq!(first.uid, second.uid);
    assert_ne!(first.resource_version, second.resource_version);
    subject.delete().await;
    until_absent(&mut state, "it does not exist").await;
    subject.create("third").await;
    assert_ne!(until_password(&mut state, "third").await.uid, first.uid);

    // Checks that the user has no other rights.
    let secrets = Api::<Secret>::namespaced(client, NAMESPACE);
    for refused in [
        secrets.list(&ListParams::default()).await.map(drop),
        secrets.get("another").await.map(drop),
        secrets.delete(&subject.name, &DeleteParams::default()).await.map(drop),
    ] {
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 403), "{refused:?}");
    }
}

#[tokio::test]
async fn one_of_the_two_rights_is_enough() {
    let server = ApiServer::shared().await;
    for verb in ["get", "watch"] {
        let subject = Subject::new(server).await;
        subject.create("first").await;
        let mut state = subject.watch(subject.reader(server, &[verb]).await);
        until_password(&mut state, "first").await;
        subject.change("second").await;
        until_password(&mut state, "second").await;
        subject.delete().await;
        until_absent(&mut state, "it does not exist").await;
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_told_and_noticed_when_it_is_given() {
    let server = ApiServer::shared().await;
    let subject = Subject::new(server).await;
    subject.create("first").await;
    let user = unique("reader");
    let mut state = subject.watch(server.client_of(&user).await);
    until_absent(&mut state, "this process may not read it: it needs the verbs get and watch").await;
    subject.permit(&user, &["get", "watch"]).await;
    until_password(&mut state, "first").await;
}

#[tokio::test]
async fn an_api_server_that_is_away_changes_nothing_and_its_return_is_noticed() {
    let mut server = ApiServer::start().await;
    let subject = Subject::new(&server).await;
    subject.create("first").await;
    let client = subject.reader(&server, &["get", "list", "watch"]).await;
    let mut known = subject.watch(client.clone());
    until_password(&mut known, "first").await;
    server.kill().await;
    let mut late = subject.watch(client);
    let is_failing =
        |state: &SecretState| matches!(state, SecretState::Failing(why) if why.starts_with("get secret kube-system/"));
    until("a failure", &mut late, is_failing).await;
    assert!(matches!(&*known.borrow(), SecretState::Read(_)), "{:?}", known.borrow());
    server.restart().await;
    subject.change("second").await;
    until_password(&mut known, "second").await;
    until_password(&mut late, "second").await;
}
