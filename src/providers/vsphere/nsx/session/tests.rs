//! Tests that a rejected request is counted before the next login.

use super::*;
use crate::clients::http::TlsSettings;
use crate::clients::nsx::{Pace, Timeouts};
use crate::cloud::login_ledger::{LoginClaim, LoginPolicy, LoginRefusal, Outcome, PlannedLogin};
use crate::providers::vsphere::login::credentials::{self, CredentialState, Origin};

/// A ledger that grants no login. Records its calls with the user.
#[derive(Default)]
struct FullLedger {
    calls: Mutex<Vec<String>>,
    /// Whether a count never ends.
    hangs: bool,
}

#[async_trait]
impl LoginThrottle for FullLedger {
    fn register_server(&self, _: LoginPolicy, _: &str) {}

    async fn claim(&self, attempt: &PlannedLogin) -> Result<LoginClaim, LoginRefusal> {
        self.calls.lock().push(format!("claim {}", attempt.user));
        Err(LoginRefusal { pause: Duration::from_secs(1), reason: "full".to_owned(), is_lockout: false })
    }

    async fn count_rejection(&self, attempt: &PlannedLogin) {
        self.calls.lock().push(format!("count {}", attempt.user));
        if self.hangs {
            std::future::pending::<()>().await;
        }
    }

    async fn can_retry(&self, _: &PlannedLogin, _: bool) -> bool {
        false
    }

    fn reset_command(&self, _: LoginPolicy, _: &str, _: &str) -> Option<String> {
        None
    }

    async fn record_outcome(&self, _: LoginClaim, _: Outcome) {}
}

fn credential(user: &str) -> Arc<Credential> {
    let login = credentials::Login::Password { user: user.to_owned(), password: "secret".into() };
    Arc::new(Credential { login, origin: Origin::Config })
}

/// Returns a session with requests of these users that NSX has rejected, and its client.
fn session(ledger: &Arc<FullLedger>, rejected: &[&str]) -> (Arc<NsxSession>, Client) {
    let offers = watch::Sender::new(Arc::new(CredentialState::Ready(vec![credential("next")])));
    let source = LoginSource::Pairs { offers: offers.subscribe(), scheme: Scheme::Basic };
    let session = NsxSession::new("nsx.test:443", source, Arc::clone(ledger) as _, AnyLeader::default());
    session.state.lock().unreported.extend(rejected.iter().map(|user| credential(user)));
    let session = Arc::new(session);
    let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
    let http = http::Client::new(http::Settings::new("nsx.test", 443, tls, "test")).unwrap();
    let pace = Arc::new(Pace::new(80));
    let client = Client::new(http, "", pace, Arc::clone(&session) as _, Timeouts::default());
    (session, client)
}

#[tokio::test]
async fn rejected_requests_count_before_the_next_claim() {
    let ledger = Arc::new(FullLedger::default());
    let (session, client) = session(&ledger, &["one", "two"]);
    for _ in 0..2 {
        assert!(session.try_credential(&client, &credential("next"), Scheme::Basic).await.is_err());
    }
    assert_eq!(*ledger.calls.lock(), ["count one", "count two", "claim next"]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_six_seconds_at_most_for_counts() {
    let ledger = Arc::new(FullLedger { hangs: true, ..FullLedger::default() });
    let (session, client) = session(&ledger, &["one", "two"]);
    session.login_rejected.notify_one();
    let stop = CancellationToken::new();
    let stops = async {
        while ledger.calls.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let began = Instant::now();
    let run = timeout(COUNT * 2, session.run(&client, stop.clone()));
    assert!(tokio::join!(run, stops).0.is_ok(), "it waits without end");
    assert!(began.elapsed() <= COUNT, "{:?}", began.elapsed());
    assert_eq!(*ledger.calls.lock(), ["count one", "count two"], "this process counts both");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_stops_first_counts_what_was_rejected() {
    let ledger = Arc::new(FullLedger::default());
    let (session, client) = session(&ledger, &["one"]);
    let stop = CancellationToken::new();
    stop.cancel();
    session.run(&client, stop).await;
    assert_eq!(*ledger.calls.lock(), ["count one"]);
}
