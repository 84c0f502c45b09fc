//! The login ledger in real Leases, with only the rights for the leader election.

use std::sync::Arc;
use std::time::Duration;

use ccm::cloud::login_ledger::{LoginClaim, LoginThrottle, Outcome, PlannedLogin, SecretVersion};
use ccm::kubernetes::client::{self, purpose};
use ccm::kubernetes::login_ledger::{LeaseStore, Ledger, LedgerStore, StoreError, record_name};
use ccm::providers::vsphere::login::policy::LOGIN_POLICY;
use futures::future::join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;
use support::rbac::{self, Subject};
use support::{ApiServer, unique};

const NAMESPACE: &str = "kube-system";

/// Returns an attempt with an account that only this test uses.
fn attempt(user: &str) -> PlannedLogin {
    let (server, user) = ("vc.example.com:443".to_owned(), format!("{user}@vsphere.local"));
    PlannedLogin { policy: LOGIN_POLICY, server, user, version: None, was_accepted: false, is_new: true }
}

/// Grants the rights to get, create and update Leases only. The API server applies a role after a short time.
async fn grant(server: &ApiServer, admin: &Client, user: &str) {
    let verbs = ["get", "create", "update"];
    let rule = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs});
    rbac::grant(admin, Some(NAMESPACE), user, Subject::User(user), json!([rule])).await;
    let leases = Api::<Lease>::namespaced(client_of(server, user).await, NAMESPACE);
    support::eventually("the user may get Leases", Duration::from_secs(30), async || {
        leases.get_opt("none").await.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

async fn client_of(server: &ApiServer, user: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig_of(user)).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    client::unguarded(&config, purpose::PROCESS).unwrap()
}

async fn ledger_of(server: &ApiServer, user: &str) -> Ledger {
    let ledger = Ledger::new(LeaseStore::new(client_of(server, user).await, NAMESPACE));
    ledger.register_server(LOGIN_POLICY, "vc.example.com:443");
    ledger
}

async fn text_of(admin: &Client, attempt: &PlannedLogin) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
    let lease = leases.get_opt(&record_name("", &attempt.server, &attempt.user)).await.unwrap()?;
    lease.metadata.annotations.unwrap_or_default().remove("vsphere-ccm.dev/logins")
}

/// Claims a login as a session does: with retries after a short pause.
async fn claim(ledger: &Ledger, attempt: &PlannedLogin) -> LoginClaim {
    support::eventually("the claim is granted", Duration::from_secs(30), async || {
        ledger.claim(attempt).await.map_err(|refused| refused.to_string())
    })
    .await
}

#[tokio::test]
async fn replicas_share_one_budget_through_leases_that_the_elections_rights_suffice_for() {
    let server = ApiServer::shared().await;
    let admin = server.client().await;
    let user = unique("ledger");
    grant(server, &admin, &user).await;
    let (one, other) = (ledger_of(server, &user).await, ledger_of(server, &user).await);
    let attempt = attempt(&user);
    for (number, replica) in [&one, &other, &one].into_iter().enumerate() {
        let claimed = claim(replica, &attempt).await;
        assert!(text_of(&admin, &attempt).await.unwrap().contains("\"state\":\"claimed\""), "before the login");
        replica.record_outcome(claimed, if number == 1 { Outcome::Unanswered } else { Outcome::Rejected }).await;
    }
    let leases: Api<Lease> = Api::namespaced(admin.clone(), NAMESPACE);
    let labelled = leases.list(&ListParams::default().labels("vsphere-ccm.dev/lease=logins")).await.unwrap().items;
    let name = record_name("", &attempt.server, &attempt.user);
    assert!(labelled.iter().any(|lease| lease.metadata.name.as_deref() == Some(&name)), "{labelled:?}");
    let command = format!("kubectl -n {NAMESPACE} delete lease {name}");
    assert_eq!(one.reset_command(LOGIN_POLICY, &attempt.server, &attempt.user), Some(command));
    // The fourth login has to wait in every process, including a process that has just started.
    for replica in [&one, &other, &ledger_of(server, &user).await] {
        let refused = replica.claim(&attempt).await.unwrap_err();
        assert!((100..=250).contains(&refused.pause.as_secs()), "{refused}");
    }
    let text = text_of(&admin, &attempt).await.unwrap();
    assert!(!text.contains(&user), "the user is not stored: {text}");
    assert_eq!((text.matches("rejected").count(), text.matches("unanswered").count()), (2, 1), "{text}");
    // A pair that was accepted before waits for the window, too. A refused claim leaves no entry.
    let known = PlannedLogin { was_accepted: true, is_new: false, ..attempt.clone() };
    let refused = other.claim(&known).await.unwrap_err();
    assert!((100..=250).contains(&refused.pause.as_secs()), "{refused}");
    assert_eq!(text_of(&admin, &attempt).await.unwrap(), text);
}

#[tokio::test]
async fn of_claims_that_meet_one_is_allowed_at_a_time_and_never_too_many() {
    let server = ApiServer::shared().await;
    let admin = server.client().await;
    let user = unique("ledger");
    grant(server, &admin, &user).await;
    let attempt = PlannedLogin { was_accepted: true, is_new: false, ..attempt(&user) };
    let ledgers = join_all((0..5).map(|_| async { Arc::new(ledger_of(server, &user).await) })).await;
    let claims = join_all(ledgers.iter().map(|ledger| ledger.claim(&attempt))).await;
    let (granted, refused): (Vec<_>, Vec<_>) = claims.into_iter().zip(&ledgers).partition(|(claim, _)| claim.is_ok());
    assert_eq!(granted.len(), 1, "one login is under way at a time");
    join_all(granted.into_iter().map(|(claim, ledger)| ledger.record_outcome(claim.unwrap(), Outcome::Harmless))).await;
    for (claim, ledger) in refused {
        let pause = claim.unwrap_err().pause;
        assert!(pause < Duration::from_secs(5), "{pause:?}");
        ledger.record_outcome(ledger.claim(&attempt).await.unwrap(), Outcome::Harmless).await;
    }
    // New pairs take turns. Three are rejected, and no process gets a fourth login.
    let attempt = PlannedLogin { was_accepted: false, is_new: true, ..attempt };
    let granted = join_all(ledgers.iter().map(|ledger| async {
        for _ in 0..40 {
            match ledger.claim(&attempt).await {
                Ok(claim) => {
                    ledger.record_outcome(claim, Outcome::Rejected).await;
                    return 1;
                }
                Err(refused) if refused.pause > Duration::from_secs(5) => return 0,
                Err(_) => tokio::task::yield_now().await,
            }
        }
        0
    }))
    .await;
    let granted: u32 = granted.into_iter().sum();
    assert!((1..=3).contains(&granted), "{granted}");
    let refused = ledgers[0].claim(&attempt).await;
    assert_eq!(granted == 3, refused.is_err(), "{granted} rejections, then {refused:?}");
}

#[tokio::test]
async fn a_rejected_version_of_a_secret_is_not_repeated_by_another_replica_and_a_newer_one_is_tried() {
    let server = ApiServer::shared().await;
    let admin = server.client().await;
    let user = unique("ledger");
    grant(server, &admin, &user).await;
    let (one, other) = (ledger_of(server, &user).await, ledger_of(server, &user).await);
    let of = |number: &str| {
        let version = SecretVersion { uid: "u-1".to_owned(), resource_version: number.to_owned() };
        PlannedLogin { version: Some(version), ..attempt(&user) }
    };
    let claimed = one.claim(&of("7")).await.unwrap();
    one.record_outcome(claimed, Outcome::Rejected).await;
    let refused = other.claim(&of("7")).await.unwrap_err();
    assert!((60..=90).contains(&refused.pause.as_secs()), "{refused}");
    let claimed = other.claim(&of("8")).await.unwrap();
    other.record_outcome(claimed, Outcome::Harmless).await;
}

#[tokio::test]
async fn without_the_right_to_leases_a_process_makes_one_attempt_in_200_s() {
    let server = ApiServer::shared().await;
    let user = unique("ledger");
    let ledger = ledger_of(server, &user).await;
    let attempt = attempt(&user);
    let claimed = ledger.claim(&attempt).await.unwrap();
    assert_eq!(claimed.pause_if_rejected, Duration::from_secs(200));
    ledger.record_outcome(claimed, Outcome::Rejected).await;
    let refused = ledger.claim(&attempt).await.unwrap_err();
    assert!((190..=250).contains(&refused.pause.as_secs()), "{refused}");
    assert_eq!(text_of(&server.client().await, &attempt).await, None);
}

#[tokio::test]
async fn in_a_namespace_that_does_not_exist_a_process_makes_one_attempt_in_200_s() {
    let server = ApiServer::shared().await;
    let namespace = unique("missing");
    let store = LeaseStore::new(server.client().await, &namespace);
    let created = store.write("a", None, "{}").await;
    let message = format!("namespaces \"{namespace}\" not found");
    assert!(matches!(&created, Err(StoreError::OutOfReach(text)) if text.contains(&message)), "{created:?}");
    assert_eq!(store.write("a", Some("1"), "{}").await, Err(StoreError::Conflict), "it was there when it was read");
    let (ledger, attempt) = (Ledger::new(store), attempt(&unique("ledger")));
    let claimed = ledger.claim(&attempt).await.unwrap();
    assert_eq!(claimed.pause_if_rejected, Duration::from_secs(200));
    ledger.record_outcome(claimed, Outcome::Rejected).await;
    let refused = ledger.claim(&attempt).await.unwrap_err();
    assert!((190..=250).contains(&refused.pause.as_secs()), "{refused}");
    // After several rejections a refusal is decided without the store, which is still out of reach.
    for number in 2..=4 {
        tokio::time::pause();
        tokio::time::advance(LOGIN_POLICY.window).await;
        tokio::time::resume();
        let claimed = ledger.claim(&attempt).await.unwrap();
        ledger.record_outcome(claimed, Outcome::Rejected).await;
        let refused = ledger.claim(&attempt).await.unwrap_err();
        let command = ledger.reset_command(LOGIN_POLICY, &attempt.server, &attempt.user);
        assert_eq!((command, refused.is_lockout), (None, true), "rejection {number}: {refused}");
    }
}
