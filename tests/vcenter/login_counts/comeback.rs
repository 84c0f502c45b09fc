//! A vCenter is used within seconds after the end of an outage, of any kind and any length.

use ccm::clients::http;
use ccm::providers::vsphere::login::credentials::Offers;
use ccm::providers::vsphere::{Connect, config};

use super::memory::Outage;
use super::*;
use crate::world::Running;

const SOON: Duration = Duration::from_secs(5);
const ROUNDS: u64 = 10;

/// Seeds all random values of a test, including the product's pauses. The output has the seed, and `SEED=7` repeats it.
fn seed() {
    let given = std::env::var("SEED").ok().map(|seed| seed.parse().expect("SEED is a number"));
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    fastrand::seed(seed);
}

/// Whether the last poll of tags got an answer. There are no tags, which is reported, too.
fn has_polled_tags(now: &Snapshot) -> bool {
    now.tags.error.as_ref().is_some_and(|trouble| trouble.contains("is not visible"))
}

/// Returns the time from the end of an outage until the inventory is live and its tags are polled.
async fn after_an_outage(outage: Outage, lasts: Duration, is_at_the_start: bool) -> Duration {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let offers = watch::Sender::new(offer(&from_file(RIGHT)));
    let start = || Replica::start(&server, offers.subscribe(), ledger(&store, began, 0));
    let replica = if is_at_the_start {
        server.set_outage(Some(outage));
        start()
    } else {
        let replica = start();
        replica.until_live(MINUTE).await;
        replica.until(MINUTE, has_polled_tags).await;
        // At a random time in a wait for changes.
        pass(Duration::from_millis(fastrand::u64(1_000..30_000))).await;
        server.set_outage(Some(outage));
        replica
    };
    let began = Instant::now();
    pass(lasts.saturating_sub(Duration::from_secs(1)) + Duration::from_millis(fastrand::u64(0..2_000))).await;
    let trouble = replica.vcenter.snapshot().freshness.clone();
    assert_ne!(trouble, Freshness::Live, "{outage:?}, at the start: {is_at_the_start}, {:?}", began.elapsed());
    if outage == Outage::Refused {
        // vCenter was restarted.
        server.kill_soap_sessions();
    }
    let (away, logins) = (began.elapsed(), server.logins().len());
    server.set_outage(None);
    let back = Instant::now();
    replica.until_live(3 * MINUTE).await;
    replica.until(3 * MINUTE, has_polled_tags).await;
    let took = back.elapsed();
    assert_eq!(server.subscriptions(), (1, 1), "{outage:?}: what the outage broke is taken off the session");
    let probes = server.probes();
    assert!(probes <= 2 * away.as_secs() + 10, "{outage:?}: {probes} questions in {away:?}");
    let needed = usize::from(is_at_the_start || outage == Outage::Refused);
    assert_eq!(server.accepted(Interface::Soap), needed + usize::from(!is_at_the_start), "{outage:?}");
    assert!(server.logins().iter().take(logins).all(|login| login.is_accepted), "no login while it was away");
    replica.stop().await;
    took
}

#[tokio::test(start_paused = true)]
async fn a_vcenter_that_comes_back_is_used_within_five_seconds_ten_of_ten_times() {
    seed();
    let mut late = Vec::new();
    for outage in [Outage::Refused, Outage::Silent, Outage::Busy, Outage::Html, Outage::Cut] {
        for lasts in [45, 75].map(Duration::from_secs) {
            for is_at_the_start in [true, false] {
                let mut took = Vec::new();
                for _ in 0..ROUNDS {
                    took.push(after_an_outage(outage, lasts, is_at_the_start).await);
                }
                took.sort();
                let (least, most) = (took[0], took[took.len() - 1]);
                println!("{outage:?} for {lasts:?}, at the start: {is_at_the_start}: {least:?} to {most:?}");
                if most > SOON {
                    late.push((outage, lasts, is_at_the_start, most));
                }
            }
        }
    }
    assert!(late.is_empty(), "{late:#?}");
}

/// vCenter fails in the middle of a subscription, and the session stays valid.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_an_outage_broke_leaves_nothing_behind() {
    seed();
    for (case, made) in [("a view", (1, 0)), ("a view and a collector", (1, 1))] {
        let (store, began) = (MemoryStore::default(), Instant::now());
        let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
        let offers = watch::Sender::new(offer(&from_file(RIGHT)));
        let replica = Replica::start(&server, offers.subscribe(), ledger(&store, began, 0));
        while server.subscriptions() != made {
            pass(Duration::from_millis(1)).await;
            assert!(began.elapsed() < MINUTE, "{case}: {:?}", server.subscriptions());
        }
        server.set_outage(Some(Outage::Silent));
        pass(Duration::from_secs(10)).await;
        server.set_outage(None);
        replica.until_live(SOON).await;
        assert_eq!((server.subscriptions(), server.sessions().0), ((1, 1), 1), "{case}");
        replica.stop().await;
    }
}

/// Many unreachable vCenters share a small number of concurrent probes, and none of them waits for the others.
#[tokio::test(start_paused = true)]
async fn questions_to_many_vcenters_are_bounded_together() {
    let (probes, began) = (Arc::new(Semaphore::new(2)), Instant::now());
    let store = MemoryStore::default();
    let offers = watch::Sender::new(offer(&from_file(RIGHT)));
    let servers: Vec<MemoryVcenter> = (0..6).map(|_| MemoryVcenter::new(RIGHT, "8.0.2.0")).collect();
    let replicas: Vec<Replica> = servers
        .iter()
        .map(|server| {
            server.set_outage(Some(Outage::Silent));
            Replica::with_probes(server, offers.subscribe(), ledger(&store, began, 0), Some(Arc::clone(&probes)))
        })
        .collect();
    for _ in 0..600 {
        pass(Duration::from_millis(100)).await;
        let asked: usize = servers.iter().map(MemoryVcenter::probes_under_way).sum();
        // In addition each vCenter has its own attempt to connect.
        assert!(asked <= 2 + servers.len(), "{asked}");
    }
    assert!(servers.iter().all(|server| server.probes() >= 8), "everyone gets its turn");
    for server in &servers {
        server.set_outage(None);
    }
    for replica in replicas {
        replica.until_live(MINUTE).await;
        replica.stop().await;
    }
}

/// vCenters in memory with one account.
struct InMemory {
    servers: Vec<MemoryVcenter>,
    offers: watch::Sender<Arc<CredentialState>>,
}

impl Connect for InMemory {
    fn http(&self, entry: &config::VcenterConfig) -> Result<http::Client, String> {
        let number: usize = entry.server.trim_start_matches("vc-").parse().unwrap();
        Ok(self.servers[number].client())
    }

    fn offers(&self, _: &config::VcenterConfig) -> Offers {
        self.offers.subscribe()
    }
}

/// Without a limit each vCenter would be probed every 2 s. Each probe takes its full time limit of 1.5 s.
#[tokio::test(start_paused = true)]
async fn a_provider_bounds_its_questions_to_all_its_vcenters() {
    const VCENTERS: usize = 60;
    let servers: Vec<MemoryVcenter> = (0..VCENTERS).map(|_| MemoryVcenter::new(RIGHT, "8.0.2.0")).collect();
    servers.iter().for_each(|server| server.set_outage(Some(Outage::Silent)));
    let text: String = (0..VCENTERS)
        .map(|number| format!("[VirtualCenter \"vc-{number}\"]\nuser = u\npassword = p\ninsecure-flag = true\n"))
        .collect();
    let connect = InMemory { servers: servers.clone(), offers: watch::Sender::new(offer(&from_file(RIGHT))) };
    let running = Running::start_through(Arc::new(connect), &text, Running::options());
    pass(MINUTE).await;
    let before: u64 = servers.iter().map(MemoryVcenter::probes).sum();
    pass(MINUTE).await;
    let asked = servers.iter().map(MemoryVcenter::probes).sum::<u64>() - before;
    // 16 concurrent probes make 640 in a minute. In addition each vCenter has its own attempt to connect, which takes
    // 30 s and is followed by a pause.
    assert!((500..=640 + 2 * VCENTERS as u64).contains(&asked), "{asked}");
    running.stop().await;
}

/// A login that has to wait causes no probes of vCenter.
#[tokio::test(start_paused = true)]
async fn a_vcenter_that_answers_is_not_asked_again_and_again() {
    let (store, began) = (MemoryStore::default(), Instant::now());
    let server = MemoryVcenter::new("another one", "8.0.2.0");
    let offers = watch::Sender::new(offer(&from_file(RIGHT)));
    let replica = Replica::start(&server, offers.subscribe(), ledger(&store, began, 0));
    pass(60 * MINUTE).await;
    let logins = u64::try_from(server.logins().len()).unwrap();
    let probes = server.probes();
    assert!(probes <= 4 * logins + 4, "{probes} questions for {logins} logins");
    replica.stop().await;
    let server = MemoryVcenter::new(RIGHT, "8.0.2.0");
    let replica = Replica::start(&server, offers.subscribe(), ledger(&MemoryStore::default(), began, 0));
    pass(60 * MINUTE).await;
    assert!(server.probes() <= 2, "that of the connection, and one while it was made: {}", server.probes());
    replica.stop().await;
}
