//! The fault matrix: every known fault of a vCenter, with the rules during each fault and after it.
//!
//! One function tests every row. The provider has two vCenters, one with the fault and one without. Both change all the
//! time. During the fault no existing machine is reported as absent, no machine is mixed up with another, no resources
//! pile up, and the other vCenter answers as usual. After the fault the state equals that of a new provider within the
//! stated time. Both log out when they are stopped.

mod rows;
mod scene;
mod simulator;
mod style;

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::future::LocalBoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use support::process::Usage;
use support::{FakeVcenter, Heavy, Vcenter};

use scene::Scene;

/// Number of concurrent rows. Rows mostly wait.
const AT_ONCE: usize = 8;
/// Time for a login and a complete read, with many rows on a small machine.
const MARGIN: Duration = Duration::from_secs(12);
/// Memory that the whole matrix may add to this process. It covers growth with every answer, and cannot attribute the
/// growth to a row.
const MEMORY_MIB: usize = 600;

/// Action on the scene.
type Act = Rc<dyn Fn(Rc<Scene>) -> LocalBoxFuture<'static, ()>>;

/// Final check of the fake with the fault.
type Check = fn(&FakeVcenter) -> Result<(), String>;

/// Observation that the fault has reached the daemon.
#[derive(Clone, Copy, Debug)]
enum Felt {
    /// The inventory is stale.
    Stale,
    /// Tags cannot be read.
    Tags,
    /// This operation was called at least this many times since the start of the fault.
    Counted(&'static str, u32),
    /// Changes of the vCenter with the fault are observed during the fault.
    Follows,
}

/// One fault.
struct Step {
    name: String,
    begin: Act,
    end: Act,
    felt: Felt,
    /// Longest stated pause before the next attempt for a fault of this kind and length.
    pause: Duration,
}

/// Faults that one scene has in sequence. Most rows have one.
struct Row {
    /// Number in the list, and description of the fault.
    id: String,
    is_simulator: bool,
    steps: Vec<Step>,
    tag_poll: Duration,
    /// Permitted names of the zone.
    zones: &'static [&'static str],
    /// Final check after all faults.
    check: Option<Check>,
    /// Number of sessions of logins whose answer was lost. A client without the cookie cannot log out.
    lost_sessions: u32,
}

impl Step {
    fn new(name: impl Into<String>, felt: Felt, begin: Act) -> Self {
        Self { name: name.into(), begin, end: fake(FakeVcenter::clear), felt, pause: Duration::from_secs(8) }
    }

    fn end(self, end: Act) -> Self {
        Self { end, ..self }
    }

    fn pause(self, seconds: u64) -> Self {
        Self { pause: Duration::from_secs(seconds), ..self }
    }
}

impl Row {
    fn new(id: impl Into<String>, felt: Felt, begin: Act) -> Self {
        Self::of(id, vec![Step::new("", felt, begin)])
    }

    fn of(id: impl Into<String>, steps: Vec<Step>) -> Self {
        let (tag_poll, zones) = (Duration::from_secs(1), ["zone-a"].as_slice());
        Self { id: id.into(), is_simulator: false, steps, tag_poll, zones, check: None, lost_sessions: 0 }
    }

    fn end(self, end: Act) -> Self {
        let steps = self.steps.into_iter().map(|step| step.end(Rc::clone(&end))).collect();
        Self { steps, ..self }
    }

    fn pause(self, seconds: u64) -> Self {
        let steps = self.steps.into_iter().map(|step| step.pause(seconds)).collect();
        Self { steps, ..self }
    }

    fn check(self, check: Check) -> Self {
        Self { check: Some(check), ..self }
    }

    fn loses_sessions(self, lost_sessions: u32) -> Self {
        Self { lost_sessions, ..self }
    }
}

/// Wraps an action on the fake with the fault.
fn fake(act: impl Fn(&FakeVcenter) + 'static) -> Act {
    Rc::new(move |scene| {
        act(scene.fake());
        Box::pin(std::future::ready(()))
    })
}

/// Wraps an action on the simulator with the fault.
fn simulated<F>(act: impl Fn(Rc<Scene>) -> F + 'static) -> Act
where
    F: Future<Output = ()> + 'static,
{
    Rc::new(move |scene| Box::pin(act(scene)))
}

/// Tests one row. Returns the longest recovery time.
async fn prove(row: &Row) -> Result<Duration, String> {
    let scene = Scene::start(row.is_simulator, row.zones, row.tag_poll).await;
    let took = tokio::select! {
        took = go_through(row, &scene) => took?,
        wrong = scene.watch() => return Err(wrong),
    };
    scene.stop(row.lost_sessions).await?;
    Ok(took)
}

async fn go_through(row: &Row, scene: &Rc<Scene>) -> Result<Duration, String> {
    scene.take_down();
    let mut longest = Duration::ZERO;
    let mut round = 0;
    for step in &row.steps {
        let proof = async {
            scene.settle().await;
            (step.begin)(Rc::clone(scene)).await;
            scene.change(round + 1).await;
            scene.other_follows(round + 1).await;
            scene.feel(step.felt, round + 1).await;
            scene.change(round + 2).await;
            scene.other_follows(round + 2).await;
            (step.end)(Rc::clone(scene)).await;
            let ended = Instant::now();
            scene.recover(round + 2, step.pause + MARGIN).await;
            ended.elapsed()
        };
        let took = AssertUnwindSafe(proof).catch_unwind().await;
        let took = took.map_err(|panic| format!("{} {}", step.name, panic_text(&*panic)))?;
        longest = longest.max(took);
        round += 2;
    }
    if let Some(check) = row.check {
        check(scene.fake())?;
    }
    scene.equals_one_built_from_scratch().await;
    scene.was_watched()?;
    Ok(longest)
}

async fn prove_all(rows: Vec<Row>) {
    let _alone = Heavy::alone();
    support::api_server::install_crypto();
    let only = std::env::var("CCM_MATRIX").unwrap_or_default();
    let before = resident_mib();
    let began = Instant::now();
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.id.contains(&only)).collect();
    let count = rows.len();
    let proofs = rows.into_iter().map(|row| async move {
        let began = Instant::now();
        let proof = AssertUnwindSafe(prove(&row)).catch_unwind().await;
        let result = proof.unwrap_or_else(|panic| Err(panic_text(&*panic)));
        let whole = began.elapsed().as_secs_f32();
        match result {
            Ok(took) => println!("{:5.1} s of {whole:5.1} s: {}", took.as_secs_f32(), row.id),
            Err(ref why) => println!("fails after {whole:5.1} s: {}: {why}", row.id),
        }
        result.err().map(|why| format!("{}: {why}", row.id))
    });
    let failures: Vec<Option<String>> = futures::stream::iter(proofs).buffer_unordered(AT_ONCE).collect().await;
    let failures: Vec<String> = failures.into_iter().flatten().collect();
    let grown = resident_mib().saturating_sub(before);
    println!("{count} rows in {:.1} s, memory grew by {grown} MiB", began.elapsed().as_secs_f32());
    assert!(failures.is_empty(), "{} of {count} rows fail:\n{}", failures.len(), failures.join("\n"));
    assert!(grown < MEMORY_MIB, "memory grew by {grown} MiB");
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_else(|| "a panic".to_owned())
}

/// Returns the resident memory of this process in MiB.
fn resident_mib() -> usize {
    usize::try_from(Usage::of_this_process().unwrap().resident / 1024).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_trouble_of_the_list_is_survived_and_leaves_nothing_behind() {
    prove_all(rows::all()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn troubles_of_the_list_are_survived_on_the_simulator() {
    prove_all(simulator::all()).await;
}

/// Returns the simulator of a row that has one.
fn simulator_of(scene: &Scene) -> &Vcenter {
    scene.simulator()
}
