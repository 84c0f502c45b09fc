//! Load balancers on NSX: the time and the calls until Services get them, follow the nodes and lose them, and the cost
//! while nothing changes. The fake NSX has its rate limits enabled, and each call takes 10 ms.
//!
//! The nodes are initialized before. A window without changes is seven minutes; `STEADY_SECONDS` makes it shorter. For
//! trials `LOAD_BALANCERS="20x5 90x100"` sets other numbers of Services and nodes.

pub mod handed_over;
pub mod services;
mod steps;
pub mod world;

use support::report::OURS;

use crate::Bench;
use crate::subject::Subject;
use world::World;

const CHAPTER: &str = "load-balancers";
/// Numbers of Services, each with one port, and of nodes. The last size exceeds the capacity of any load balancer
/// service.
const SIZES: [Size; 3] =
    [Size { services: 1_000, nodes: 9 }, Size { services: 90, nodes: 100 }, Size { services: 500, nodes: 100 }];
/// Capacity of a load balancer service with the size `XLARGE`.
const MOST_SERVERS: usize = 2_000;
const MOST_MEMBERS: usize = 10_000;
/// Numbers of objects and of pools on a page of a list, as this program requests them.
const PAGE: usize = 1_000;
const POOL_PAGE: usize = 100;
/// The default of `--nsx-requests-per-second`.
const RATE: f64 = 80.0;

/// Number of Services, and number of nodes of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub services: usize,
    pub nodes: usize,
}

impl Size {
    /// Whether one load balancer service has sufficient capacity. Otherwise the fake has no capacity limits.
    fn fits(self) -> bool {
        self.services <= MOST_SERVERS && self.services * self.nodes <= MOST_MEMBERS
    }

    /// Returns the number of pages in one inventory: load balancer services, virtual servers, pools, monitors,
    /// allocations.
    fn pages(self) -> usize {
        1 + 3 * self.services.div_ceil(PAGE) + self.pool_pages()
    }

    fn pool_pages(self) -> usize {
        self.services.div_ceil(POOL_PAGE)
    }

    /// Returns the pages of all inventories in this many seconds. One begins every ten seconds.
    fn pages_within(self, seconds: f64) -> f64 {
        ((seconds / 10.0).floor() + 1.0) * self.pages() as f64
    }

    /// Returns the sizes in `LOAD_BALANCERS`, or the sizes of the promises.
    fn all() -> Vec<Self> {
        let Some(text) = std::env::var("LOAD_BALANCERS").ok().filter(|text| !text.is_empty()) else {
            return SIZES.to_vec();
        };
        let size = |word: &str| {
            let (services, nodes) = word.split_once('x')?;
            let size = Self { services: services.parse().ok()?, nodes: nodes.parse().ok()? };
            (size.services > 0 && size.nodes > 3).then_some(size)
        };
        let sizes: Option<Vec<Self>> = text.split_whitespace().map(size).collect();
        sizes.unwrap_or_else(|| panic!("LOAD_BALANCERS is {text:?}; Services and at least 4 nodes are expected: 20x5"))
    }

    fn name(self) -> String {
        format!("{} Services, {} nodes", self.services, self.nodes)
    }

    /// Returns the limits for the additional memory in MiB: resident, and at the peak.
    fn memory(self) -> (f64, f64) {
        (if self.fits() { 12.0 } else { 16.0 }, 24.0)
    }
}

/// Returns the limit in seconds for this many calls at this program's rate limit.
fn seconds_of(calls: f64, more: f64) -> f64 {
    1.3 * calls / RATE + more
}

/// Measures the load balancers for each subject and size.
pub async fn measure(bench: &mut Bench) {
    for subject in bench.subjects() {
        for size in Size::all() {
            bench.attempt(CHAPTER, &subject, async |bench| measure_one(bench, &subject, size).await).await;
        }
    }
}

async fn measure_one(bench: &mut Bench, subject: &Subject, size: Size) {
    let world = World::new(bench, CHAPTER, subject.clone(), size).await;
    let first = world.start_leading(0, &[]).await;
    let without = world.memory(&first).await;
    world.measure_creation(bench).await;
    let mut memory = vec![world.memory(&first).await];
    world.measure_quiet(bench, &first).await;
    let second = world.measure_take_over(bench, first).await;
    let third = world.measure_restart(bench, second).await;
    memory.push(world.memory(&third).await);
    let fourth = world.measure_waiting_write(bench, third).await;
    let left = world.measure_leaving(bench).await;
    memory.push(world.memory(&fourth).await);
    world.report_memory(bench, &without, &memory);
    let last = match subject.name {
        OURS => world.measure_without_batches(bench, fourth, left).await,
        _ => fourth,
    };
    world.measure_deletion(bench).await;
    drop(last);
}
