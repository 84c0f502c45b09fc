//! Fuzz targets for Leases that other replicas write: the election record and the records of failed logins.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ccm::cloud::login_ledger::{LoginThrottle, Outcome, PlannedLogin};
use ccm::kubernetes::leader_election::{LeaderElector, LeaseConfig};
use ccm::kubernetes::login_ledger::record::{MAX_ENTRIES, Record};
use ccm::kubernetes::login_ledger::{Ledger, LedgerStore, StoreError, StoreReading, StoredText};
use ccm::providers::vsphere::login::policy::{LOGIN_POLICY, NSX_LOGIN_POLICY};
use k8s_openapi::api::coordination::v1::Lease;

use crate::laws::is_in_proportion;
use crate::memory::{api_server, run};

/// Time of all login attempts, in Unix seconds.
const NOW: i64 = 1_700_000_000;

/// The longest pause between two logins, including its jitter.
const LONGEST_PAUSE: Duration = Duration::from_secs(2 * 30 * 60);

/// A store with the same text under every name.
struct Same(Mutex<String>);

#[async_trait]
impl LedgerStore for Same {
    async fn read(&self, _: &str) -> Result<StoreReading, StoreError> {
        let stored = Some(StoredText { text: self.text(), version: "1".to_owned() });
        Ok(StoreReading { stored, server_time: Some(NOW) })
    }

    async fn write(&self, _: &str, _: Option<&str>, text: &str) -> Result<(), StoreError> {
        *self.0.lock().expect("nobody panics with it") = text.to_owned();
        Ok(())
    }
}

impl Same {
    fn text(&self) -> String {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

/// Reads the login record of an account. It stays small, survives a round trip, and never delays a login by more than
/// the longest pause.
pub fn logins(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let record = Record::from_text(&text);
    assert!(record.entries.len() <= MAX_ENTRIES, "{} entries are kept", record.entries.len());
    assert_eq!(Record::from_text(&record.to_text()), record, "a record is read as another one");
    is_in_proportion(&record, bytes);
    let ledger = Ledger::with_clock(Same(Mutex::new(text.into_owned())), Arc::new(|| NOW));
    let servers = [(LOGIN_POLICY, "vc.example.com:443"), (NSX_LOGIN_POLICY, "nsx.example.com:443")];
    servers.iter().for_each(|(policy, server)| ledger.register_server(*policy, server));
    for ((policy, server), is_known) in servers.into_iter().flat_map(|server| [(server, true), (server, false)]) {
        let (server, user) = (server.to_owned(), "ccm".to_owned());
        let attempt = PlannedLogin { policy, server, user, version: None, was_accepted: is_known, is_new: !is_known };
        match run(ledger.claim(&attempt)) {
            Ok(claim) => run(ledger.record_outcome(claim, Outcome::Rejected)),
            Err(refused) => {
                assert!(refused.pause <= LONGEST_PAUSE, "{refused}");
                assert!(refused.to_string().len() < 1024, "{refused}");
            }
        }
    }
}

/// Reads the Lease of the election. If another holder has it for at least 60 s, this process does not write it within
/// 30 s, whatever its other fields contain.
pub fn election(bytes: &[u8]) {
    const HALF: Duration = Duration::from_secs(30);
    let Ok(lease) = serde_json::from_slice::<Lease>(bytes) else { return };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty() && *holder != "us");
    let is_held = holder.is_some() && spec.lease_duration_seconds >= Some(60);
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&writes);
    let body = serde_json::to_vec(&lease).expect("it was read");
    run(async move {
        let client = api_server(move |method, _, sent| {
            if method == "GET" {
                return (200, body.clone());
            }
            counted.fetch_add(1, Ordering::Relaxed);
            (200, sent)
        });
        let config = LeaseConfig {
            namespace: "kube-system".to_owned(),
            name: "cloud-controller-manager".to_owned(),
            identity: "us".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        };
        let (elector, leadership) = LeaderElector::new(client, config).expect("the times fit");
        let stop = tokio_util::sync::CancellationToken::new();
        let _ = tokio::time::timeout(HALF, elector.run(stop)).await;
        assert!(!is_held || !leadership.is_leader(), "two lead at once");
    });
    assert!(!is_held || writes.load(Ordering::Relaxed) == 0, "the Lease of another is written");
}
