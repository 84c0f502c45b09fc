//! Credentials that change while they are in use, on the simulator.

use std::sync::Arc;
use std::time::Duration;

use ccm::clients::vim::Timeouts;
use ccm::cloud::login_ledger::{LoginThrottle, SecretVersion};
use ccm::kubernetes::login_ledger::Ledger;
use ccm::providers::vsphere::login::credentials::source::SourceLocation;
use ccm::providers::vsphere::login::credentials::{Credential, CredentialState, Login, Origin};
use ccm::providers::vsphere::vcenter::reads::ReadAnswer;
use ccm::providers::vsphere::vcenter::snapshot::{Freshness, Snapshot};
use ccm::providers::vsphere::vcenter::zone_tags::{ObjectTags, ZoneCategories};
use ccm::providers::vsphere::vcenter::{Session, TagSettings, Vcenter as Inventory};
use doubles::login_store::MemoryStore;
use secrecy::SecretString;
use support::vcenter::Vcenter;
use support::{Object, eventually};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{UUID, https, scenario};

const CERTIFICATE: &str = include_str!("../golden/sts/holder.crt");
const KEY: &str = include_str!("../golden/sts/holder.key");

const SOON: Duration = Duration::from_secs(30);

struct Watched {
    inventory: Arc<Inventory>,
    offers: watch::Sender<Arc<CredentialState>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn offer(user: &str, password: &str, number: u32) -> Arc<CredentialState> {
    let location = SourceLocation::Secret { namespace: "kube-system".to_owned(), name: "vc".to_owned() };
    let version = SecretVersion { uid: "u-1".to_owned(), resource_version: number.to_string() };
    let origin = Origin::Source { location, version: Some(version) };
    let login = Login::Password { user: user.to_owned(), password: SecretString::from(password) };
    Arc::new(CredentialState::Ready(vec![Arc::new(Credential { login, origin })]))
}

/// Returns the ids from a search for the machine.
async fn found(inventory: &Inventory) -> Vec<Arc<str>> {
    match inventory.search_by_uuid(&UUID.parse().unwrap()).await {
        ReadAnswer::Found(ids) => ids,
        other => panic!("{other:?}"),
    }
}

fn is_live(now: &Snapshot) -> bool {
    now.freshness == Freshness::Live
}

fn has_zone(now: &Snapshot, zone: &str) -> bool {
    now.tags.objects.values().any(|tags| match tags {
        ObjectTags::Read(tags) => tags.iter().any(|tag| tag.name == zone),
        ObjectTags::Unreadable(_) => false,
    })
}

impl Watched {
    async fn start(vcenter: &Vcenter) -> Self {
        let address = format!("127.0.0.1:{}", vcenter.port());
        let settings = TagSettings {
            categories: Some(ZoneCategories { zone: "k8s-zone".to_owned(), region: "k8s-region".to_owned() }),
            tag_poll: Duration::from_millis(200),
        };
        let offers = watch::Sender::new(offer(vcenter.user(), vcenter.password(), 1));
        let ledger: Arc<dyn LoginThrottle> = Arc::new(Ledger::new(MemoryStore::default()));
        let session = Session::new(https(vcenter), offers.subscribe(), ledger, address, Timeouts::default());
        let inventory = Inventory::new(settings, session);
        let stop = CancellationToken::new();
        let task = tokio::spawn(Arc::clone(&inventory).run(stop.clone()));
        let watched = Self { inventory, offers, stop, task };
        watched.until("live", is_live).await;
        watched.inventory.want(found(&watched.inventory).await);
        watched.until("the machine and its zone", |now| now.vms.len() == 1 && has_zone(now, "zone-a")).await;
        watched
    }

    async fn until(&self, what: &str, fits: impl Fn(&Snapshot) -> bool) {
        let mut changes = self.inventory.changes();
        let found = tokio::time::timeout(SOON, changes.wait_for(|now| fits(now))).await.is_ok();
        assert!(found, "not within {SOON:?}: {what}: {:?}", self.inventory.snapshot());
    }

    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.task).await.expect("it stops in time").unwrap();
    }
}

#[tokio::test]
async fn a_new_password_is_taken_over_without_a_failed_call_or_a_stale_moment() {
    let region = scenario().category("k8s-region", "SINGLE").tag("k8s-region", "r", [Object::datacenter("dc-1")]);
    let vcenter = Vcenter::start(&region).await;
    let watched = Watched::start(&vcenter).await;
    let before = vcenter.counts().await;
    assert_eq!((before.soap_logins, before.rest_logins), (1, 1), "{before:?}");
    assert_eq!((before.soap_sessions, before.rest_sessions), (1, 1), "{before:?}");

    // A task searches all the time and checks every snapshot.
    let (inventory, over) = (Arc::clone(&watched.inventory), CancellationToken::new());
    let searching = tokio::spawn({
        let (inventory, over) = (Arc::clone(&inventory), over.clone());
        async move {
            let mut searches = 0;
            while !over.is_cancelled() {
                assert_eq!(found(&inventory).await.len(), 1);
                searches += 1;
            }
            searches
        }
    });
    let looking = tokio::spawn({
        let over = over.clone();
        async move {
            let mut changes = inventory.changes();
            loop {
                let now = Arc::clone(&changes.borrow_and_update());
                assert!(is_live(&now) && now.vms.len() == 1 && now.tags.error.is_none(), "{now:?}");
                tokio::select! {
                    () = over.cancelled() => return,
                    changed = changes.changed() => changed.unwrap(),
                }
            }
        }
    });

    vcenter.set_login(vcenter.user(), "Correct-Horse-8").await;
    watched.offers.send_replace(offer(vcenter.user(), "Correct-Horse-8", 2));
    eventually("one login more over each interface, and the old sessions ended", SOON, async || {
        let counts = vcenter.counts().await;
        let logins = (counts.soap_logins, counts.rest_logins);
        let sessions = (counts.soap_sessions, counts.rest_sessions);
        if logins == (2, 2) && sessions == (1, 1) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    // Changes are still received over the new session.
    vcenter.set_ip("node-1", "10.0.0.99").await;
    let has_address = |now: &Snapshot| {
        now.vms.values().any(|vm| vm.nics.iter().any(|nic| nic.ip_addresses.iter().any(|ip| ip == "10.0.0.99")))
    };
    watched.until("the new address", has_address).await;
    vcenter.attach_tag("k8s-zone", "zone-b", &Object::cluster("cluster-1")).await;
    vcenter.detach_tag("k8s-zone", "zone-a", &Object::cluster("cluster-1")).await;
    watched.until("the new zone", |now| has_zone(now, "zone-b")).await;
    over.cancel();
    let searches = searching.await.unwrap();
    looking.await.unwrap();
    let counts = vcenter.counts().await;
    println!("{searches} searches during the rotation, none failed; {counts:?}");
    assert!(searches > 10);
    assert_eq!((counts.soap_logins, counts.rest_logins), (2, 2), "{counts:?}");
    watched.stop().await;
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "{counts:?}");
}

#[tokio::test]
async fn a_new_source_of_credentials_is_reported_only_if_it_is_not_read_in_time() {
    let vcenter = Vcenter::start(&scenario()).await;
    let watched = Watched::start(&vcenter).await;
    let unread = || Arc::new(CredentialState::Pending { reason: "directory /new has not been read yet".to_owned() });
    let reported = |now: &Snapshot| now.credential_failure.is_some();
    let mut changes = watched.inventory.changes();
    watched.offers.send_replace(unread());
    let report = tokio::time::timeout(Duration::from_secs(1), changes.wait_for(|now| reported(now)));
    assert!(report.await.is_err(), "it is reported at once: {:?}", watched.inventory.snapshot().credential_failure);

    vcenter.set_login(vcenter.user(), "Correct-Horse-10").await;
    watched.offers.send_replace(offer(vcenter.user(), "Correct-Horse-10", 2));
    eventually("a login with the new credentials", SOON, async || {
        let counts = vcenter.counts().await;
        if counts.soap_logins == 2 { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    watched.offers.send_replace(unread());
    watched.until("it is reported", reported).await;
    assert!(is_live(&watched.inventory.snapshot()));
    watched.stop().await;
}

#[tokio::test]
async fn tag_categories_change_without_a_new_session() {
    let vcenter =
        Vcenter::start(&scenario().category("rack", "SINGLE").tag("rack", "r-1", [Object::cluster("cluster-1")])).await;
    let watched = Watched::start(&vcenter).await;
    let settings = watched.inventory.settings();
    let categories = ZoneCategories { zone: "rack".to_owned(), region: "k8s-region".to_owned() };
    watched.inventory.reconfigure(TagSettings { categories: Some(categories), ..TagSettings::clone(&settings) });
    watched.until("the tags of the new category", |now| has_zone(now, "r-1") && !has_zone(now, "zone-a")).await;
    watched.inventory.reconfigure(TagSettings { categories: None, ..TagSettings::clone(&settings) });
    watched.until("no tags", |now| now.tags.objects.is_empty()).await;
    assert!(is_live(&watched.inventory.snapshot()));
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_logins, counts.rest_logins), (1, 1), "{counts:?}");
    watched.stop().await;
}

#[tokio::test]
async fn a_certificate_takes_over_from_a_password_with_a_token_for_each_login() {
    let scenario = scenario().solution_user(CERTIFICATE);
    let vcenter = Vcenter::start(&scenario).await;
    let watched = Watched::start(&vcenter).await;
    let certificate = |certificate: &str, number: u32| {
        let CredentialState::Ready(pairs) = &*offer("", "", number) else { panic!("no pair") };
        let login = Login::Certificate { certificate: certificate.to_owned(), key: SecretString::from(KEY) };
        Arc::new(CredentialState::Ready(vec![Arc::new(Credential { login, origin: pairs[0].origin.clone() })]))
    };
    watched.offers.send_replace(certificate(CERTIFICATE, 2));
    eventually("one login more over each interface", SOON, async || {
        let counts = vcenter.counts().await;
        let logins = (counts.of("STS:Issue"), counts.soap_logins, counts.rest_logins);
        let sessions = (counts.soap_sessions, counts.rest_sessions);
        if logins == (2, 2, 2) && sessions == (1, 1) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    assert!(is_live(&watched.inventory.snapshot()));
    // Unusable credentials are reported without their text.
    watched.offers.send_replace(certificate("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 3));
    watched.until("it is told", |now| is_live(now) && now.credential_failure.is_some()).await;
    assert!(!format!("{:?}", watched.inventory.snapshot()).contains("AAAA"));
    watched.stop().await;
    let counts = vcenter.counts().await;
    assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "{counts:?}");
}
