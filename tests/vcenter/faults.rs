//! The inventory of one vCenter with the fake: its reaction to misbehaviour of vCenter.

mod leftovers;
mod logins;
mod periods;
mod permissions;
mod reads;
mod recovery;
mod refresh;
mod synchronisation;
mod tags;

use std::sync::Arc;
use std::time::Duration;

use ccm::clients::http;
use ccm::clients::vim::{self, Timeouts};
use ccm::kubernetes::login_ledger::Ledger;
use ccm::providers::vsphere::login::credentials::{Credential, CredentialState, Login, Offers, Origin};
use ccm::providers::vsphere::vcenter::reads::{ReadAnswer, SearchRead};
use ccm::providers::vsphere::vcenter::snapshot::{Freshness, Snapshot, VmRecord};
use ccm::providers::vsphere::vcenter::zone_tags::ZoneCategories;
use ccm::providers::vsphere::vcenter::{Session, TagSettings, Vcenter};
use doubles::login_store::MemoryStore;
use secrecy::SecretString;
use support::{FakeVcenter, Model};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Much longer than any recovery, which takes a few retries of a second or two.
const SOON: Duration = Duration::from_secs(20);

/// Time limit of the clients' calls in these tests.
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// A running inventory of one fake vCenter.
struct Watched {
    fake: FakeVcenter,
    vcenter: Arc<Vcenter>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn connect(fake: &FakeVcenter) -> http::Client {
    let trust = http::TlsTrust::Ca { pem: fake.ca_pem().as_bytes().to_vec(), path: "ca.pem".to_owned() };
    let tls = http::TlsSettings { trust, ..http::TlsSettings::default() };
    http::Client::new(http::Settings::new(fake.host(), fake.port(), tls, vim::user_agent(None))).unwrap()
}

fn timeouts() -> Timeouts {
    Timeouts { call: CALL_LIMIT, login: CALL_LIMIT, wait_margin: CALL_LIMIT, ..Timeouts::default() }
}

/// Returns credentials with the configuration file as their origin.
fn pair(password: &str) -> Arc<Credential> {
    let login = Login::Password { user: "ccm@vsphere.local".to_owned(), password: SecretString::from(password) };
    Arc::new(Credential { login, origin: Origin::Config })
}

fn ids(numbers: impl IntoIterator<Item = usize>) -> Vec<Arc<str>> {
    numbers.into_iter().map(|number| format!("vm-{number}").into()).collect()
}

/// Searches for a machine of the model by its UUID.
async fn search(vcenter: &Vcenter, number: usize) -> SearchRead {
    vcenter.search_by_uuid(&Model::uuid(number).parse().unwrap()).await
}

/// Returns the ids of the machines with this UUID.
async fn found(vcenter: &Vcenter, number: usize) -> Vec<Arc<str>> {
    match search(vcenter, number).await {
        ReadAnswer::Found(ids) => ids,
        other => panic!("machine {number}: {other:?}"),
    }
}

fn address(vm: &VmRecord) -> &str {
    vm.nics.first().and_then(|nic| nic.ip_addresses.first()).map_or("", String::as_str)
}

fn is_live(snapshot: &Snapshot) -> bool {
    snapshot.freshness == Freshness::Live
}

/// Whether a snapshot lists every machine that differs from the previous snapshot. Returns true if there was a snapshot
/// between the two.
fn names_its_changes(before: &Snapshot, now: &Snapshot) -> bool {
    let Some(changed) = now.changed.as_ref().filter(|_| now.number == before.number + 1) else { return true };
    let mut ids = before.vms.keys().chain(now.vms.keys());
    ids.all(|id| changed.contains(id) || before.vms.get(id) == now.vms.get(id))
}

/// Returns the parts of a snapshot that help to understand a failure.
fn told(snapshot: &Snapshot) -> String {
    let mut vms: Vec<String> =
        snapshot.vms.iter().take(12).map(|(id, vm)| format!("{id} at {:?}", address(vm))).collect();
    vms.sort();
    format!(
        "{:?}; {} machines, {vms:?}; unresolved {:?}; tags of {} objects, trouble {:?}",
        snapshot.freshness,
        snapshot.vms.len(),
        snapshot.unresolved,
        snapshot.tags.objects.len(),
        snapshot.tags.error
    )
}

impl Watched {
    /// Prepares an inventory with these machines, without a start.
    async fn prepare(
        model: Model,
        wanted: Vec<Arc<str>>,
        categories: Option<ZoneCategories>,
    ) -> (FakeVcenter, Arc<Vcenter>) {
        let offers = watch::Sender::new(Arc::new(CredentialState::Ready(vec![pair("Correct-Horse-7")])));
        Self::prepare_for(model, wanted, categories, offers.subscribe()).await
    }

    /// As [`Watched::prepare`], with credentials that may change.
    async fn prepare_for(
        model: Model,
        wanted: Vec<Arc<str>>,
        categories: Option<ZoneCategories>,
        offers: Offers,
    ) -> (FakeVcenter, Arc<Vcenter>) {
        let fake = FakeVcenter::start(model).await;
        let settings = TagSettings { categories, tag_poll: Duration::from_millis(200) };
        let address = format!("{}:{}", fake.host(), fake.port());
        let ledger = Arc::new(Ledger::new(MemoryStore::default()));
        let session = Session::new(connect(&fake), offers, ledger, address, timeouts());
        let vcenter = Vcenter::new(settings, session);
        vcenter.want(wanted);
        (fake, vcenter)
    }

    fn run(fake: FakeVcenter, vcenter: Arc<Vcenter>) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(Arc::clone(&vcenter).run(stop.clone()));
        Self { fake, vcenter, stop, task }
    }

    async fn start(model: Model, wanted: Vec<Arc<str>>) -> Self {
        let (fake, vcenter) = Self::prepare(model, wanted, None).await;
        Self::run(fake, vcenter)
    }

    /// Starts an inventory, and waits until it has all `count` machines.
    async fn synced(count: usize) -> Self {
        let watched = Self::start(Model::small().vms(count), ids(1..=count)).await;
        watched.until("the first sync", |now| is_live(now) && now.vms.len() == count).await;
        watched
    }

    /// Waits for a snapshot that meets the condition. Every snapshot before it is passed to `always`.
    async fn until_always(
        &self,
        what: &str,
        always: impl Fn(&Snapshot) -> bool,
        fits: impl Fn(&Snapshot) -> bool,
    ) -> Arc<Snapshot> {
        let mut changes = self.vcenter.changes();
        let deadline = tokio::time::Instant::now() + SOON;
        let mut before = Arc::clone(&changes.borrow());
        loop {
            let now = Arc::clone(&changes.borrow_and_update());
            assert!(always(&now), "{what}: on the way there was {}", told(&now));
            assert!(names_its_changes(&before, &now), "{what}: {:?} of {}", now.changed, told(&now));
            before = Arc::clone(&now);
            if fits(&now) {
                return now;
            }
            let change = tokio::time::timeout_at(deadline, changes.changed()).await;
            assert!(change.is_ok(), "not within {SOON:?}: {what}; last seen: {}; {:?}", told(&now), self.fake.counts());
        }
    }

    async fn until(&self, what: &str, fits: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
        self.until_always(what, |_| true, fits).await
    }

    /// Waits for server counts that meet `fits`.
    async fn until_counted(&self, what: &str, fits: impl Fn(&support::fake_vcenter::FakeCounts) -> bool) {
        support::eventually(what, SOON, async || {
            let counts = self.fake.counts();
            if fits(&counts) { Ok(()) } else { Err(format!("{counts:?}; {}", told(&self.vcenter.snapshot()))) }
        })
        .await;
    }

    /// Stops the inventory, and checks that the session ended.
    async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(SOON, self.task).await.expect("it stops in time").unwrap();
        let counts = self.fake.counts();
        assert_eq!((counts.soap_sessions, counts.rest_sessions), (0, 0), "it logged out: {counts:?}");
    }
}
