//! `make bench`: what is promised of the daemon as it is shipped, measured, and held to the promises.
//!
//! Usage: `bench DAEMON [CHAPTER…]`, the daemon's binary and what to measure; everything unless chapters are named. With
//! `PEER` and `PEER_FLAGS` another binary of the same command line does the same work. The tables go to standard output,
//! and with JSON and plots into the folder of the file that `BENCH_JSON` names. It fails when something of ours misses its
//! limit. A chapter is a module with a function that takes a [`Bench`]; its line in `CHAPTERS` is all it needs.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a step that fails ends the benchmark, which prints"
)]

mod cluster;
mod floor;
mod hand_over;
mod idle;
mod latency;
mod load_balancers;
mod machines;
mod memory;
mod micro;
mod routes;
mod size;
mod start_up;
mod steady;
mod storm;
mod subject;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use futures::future::{FutureExt, LocalBoxFuture};
use machines::Kind;
use subject::Subject;
use support::report::pictures::pictures;
use support::report::table::tables;
use support::report::{Curve, Facts, Measure, Row, Run};
use tokio::signal::unix::{SignalKind, signal};

/// Each chapter and what measures it.
const CHAPTERS: [(&str, Chapter); 14] = [
    ("size", |bench| async move { size::measure(bench) }.boxed_local()),
    ("micro", |bench| async move { micro::measure(bench) }.boxed_local()),
    ("idle", |bench| idle::measure(bench).boxed_local()),
    ("memory", |bench| memory::measure(bench).boxed_local()),
    ("start-up", |bench| start_up::measure(bench).boxed_local()),
    ("storm-100", |bench| storm::measure(bench, "storm-100", 100, Kind::Simulator).boxed_local()),
    ("storm-1000", |bench| storm::measure(bench, "storm-1000", 1_000, Kind::Simulator).boxed_local()),
    ("storm-5000", |bench| storm::measure(bench, "storm-5000", 5_000, Kind::Fake).boxed_local()),
    ("steady", |bench| steady::measure(bench).boxed_local()),
    ("latency", |bench| latency::measure(bench).boxed_local()),
    ("hand-over", |bench| hand_over::measure(bench).boxed_local()),
    ("routes", |bench| routes::measure(bench).boxed_local()),
    ("load-balancers", |bench| load_balancers::measure(bench).boxed_local()),
    ("load-balancers-handed-over", |bench| load_balancers::handed_over::measure(bench).boxed_local()),
];

/// Variables that chapters and subjects read.
const SETTINGS: [&str; 5] = ["PEER_FLAGS", "STEADY_SECONDS", "LATENCY_CHANGES", "MOST_NODES", "LOAD_BALANCERS"];

type Chapter = for<'a> fn(&'a mut Bench) -> LocalBoxFuture<'a, ()>;

/// What a chapter is given.
pub struct Bench {
    /// The daemon as it is shipped.
    pub ours: Subject,
    /// What it is compared with, if anything.
    pub peer: Option<Subject>,
    run: Run,
}

impl Bench {
    /// Ours first. A chapter measures each in turn, on a cluster of its own.
    pub fn subjects(&self) -> Vec<Subject> {
        std::iter::once(&self.ours).chain(&self.peer).cloned().collect()
    }

    /// The vCenter for work that both do: the one that answers a peer, too, or else the one that is most like a real one.
    pub fn vcenter(&self) -> Kind {
        if self.peer.is_some() { Kind::Simulator } else { Kind::Fake }
    }

    /// With how many nodes the chapters `steady`, `latency`, `hand-over` and `routes` are measured: these, and with `MOST_NODES` no
    /// more than that, for trying.
    pub fn sizes(&self, sizes: &[usize]) -> Vec<usize> {
        let most = std::env::var("MOST_NODES").ok().filter(|text| !text.is_empty()).map(|text| match text.parse() {
            Ok(most @ 1..) => most,
            _ => panic!("MOST_NODES is {text:?}; a number of nodes is expected"),
        });
        let mut sizes: Vec<usize> = sizes.iter().map(|&size| size.min(most.unwrap_or(size))).collect();
        sizes.dedup();
        sizes
    }

    /// Takes down what was measured, at least one sample, and what is promised of every sample.
    pub fn report(&mut self, measure: Measure) {
        let Measure { chapter, subject, name, samples, unit, .. } = &measure;
        println!("{chapter}, {subject}, {name}: {samples:.2?} {unit}");
        self.run.rows.push(measure.into());
    }

    /// Takes down that this could not be measured, and why: a row that says so. Of ours it counts as a limit missed. Its
    /// samples are left out.
    pub fn unmeasured(&mut self, measure: Measure, why: &str) {
        let Measure { chapter, subject, name, .. } = &measure;
        println!("{chapter}, {subject}, {name}: not measured: {why}");
        let note = why.split_whitespace().collect::<Vec<_>>().join(" ");
        self.run.rows.push(Row { samples: Vec::new(), note: Some(note), ..measure.into() });
    }

    /// Takes down a curve. Those of the same chapter and `name` are drawn into one plot, a line for each subject (`ours`,
    /// `peer`, `floor`), so that the name says what both did: `bench.curve("join-storm", "floor", "1,000 nodes, 10 ms a
    /// call", ["time since the start (s)", "nodes initialised (%)"], points)`. The axes are what goes to the right and
    /// what goes up, with units. All points may be given; it keeps as many as a plot can show.
    pub fn curve(&mut self, chapter: &str, subject: &str, name: &str, axes: [&str; 2], points: Vec<[f64; 2]>) {
        let ([chapter, subject, name], axes) = ([chapter, subject, name].map(str::to_owned), axes.map(str::to_owned));
        self.run.curves.push(Curve { chapter, subject, name, axes, points }.thinned());
    }

    /// Measures one subject. When that fails, such as by a wait that takes too long, a row says so, and the benchmark goes
    /// on. What was reported until then stays.
    pub async fn attempt(&mut self, chapter: &'static str, subject: &Subject, work: impl AsyncFnOnce(&mut Self)) {
        if let Err(panic) = AssertUnwindSafe(work(self)).catch_unwind().await {
            let (subject, name) = (subject.name, "the rest of this chapter".to_owned());
            let nothing = Measure { chapter, subject, name, unit: "", samples: Vec::new(), limit: None };
            self.unmeasured(nothing, &cause(panic.as_ref()));
        }
    }
}

/// The first line of what a panic says.
fn cause(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next()).unwrap_or("it failed").to_owned()
}

/// What repeats this run, and what it was told.
fn facts(ours: &Subject, peer: Option<&Subject>, chapters: &[String]) -> Facts {
    let mut settings = BTreeMap::new();
    if let Some(peer) = peer {
        settings
            .insert("PEER".to_owned(), peer.binary().file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    if !chapters.is_empty() {
        settings.insert("CHAPTERS".to_owned(), chapters.join(" "));
    }
    for name in SETTINGS {
        if let Some(value) = std::env::var(name).ok().filter(|value| !value.is_empty()) {
            settings.insert(name.to_owned(), value);
        }
    }
    let words = settings.iter().map(|(name, value)| format!("{name}=\"{value}\" "));
    let command = format!("{}make bench", words.collect::<String>());
    let mut programs = vec![("ours", ours.binary())];
    programs.extend(peer.map(|peer| ("peer", peer.binary())));
    Facts::gather(command, &programs, settings)
}

/// The run as JSON, and its tables and plots beside it. Whoever ends this half-way leaves the run as it was before.
fn write(run: &Run, path: &Path) {
    let folder = path.parent().unwrap();
    std::fs::create_dir_all(folder).unwrap();
    let new = path.with_extension("new");
    std::fs::write(&new, serde_json::to_vec(run).unwrap()).unwrap();
    std::fs::rename(new, path).unwrap();
    std::fs::write(folder.join("report.md"), tables(run)).unwrap();
    for picture in pictures(run) {
        std::fs::write(folder.join(picture.file), picture.svg).unwrap();
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    // Cargo adds a flag of its own.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let daemon = arguments.next().map(PathBuf::from);
    let asked: Vec<String> = arguments.collect();
    let unknown: Vec<_> = asked.iter().filter(|name| CHAPTERS.iter().all(|(known, _)| known != name)).collect();
    let Some(daemon) = daemon.filter(|daemon| daemon.is_file() && unknown.is_empty()) else {
        let known = CHAPTERS.map(|(name, _)| name).join(", ");
        eprintln!("usage: bench DAEMON [CHAPTER…] (or: make bench); chapters: {known}");
        return ExitCode::FAILURE;
    };
    let peer = match Subject::peer() {
        Ok(peer) => peer,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let ours = Subject::ours(daemon);
    let facts = facts(&ours, peer.as_ref(), &asked);
    let mut bench = Bench { ours, peer, run: Run { facts, ..Run::default() } };
    let path = std::env::var_os("BENCH_JSON").filter(|path| !path.is_empty()).map(PathBuf::from);
    // An earlier run is not to be taken for this one.
    path.iter().for_each(|path| drop(std::fs::remove_file(path)));
    let mut ctrl_c = signal(SignalKind::interrupt()).unwrap();
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let mut is_whole = true;
    for (name, measure) in CHAPTERS {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            println!("measuring: {name}");
            let begun = Instant::now();
            // Dropping a chapter ends what it has started.
            let end = tokio::select! {
                biased;
                _ = ctrl_c.recv() => None,
                _ = terminate.recv() => None,
                end = AssertUnwindSafe(measure(&mut bench)).catch_unwind() => Some(end),
            };
            let Some(end) = end else {
                eprintln!("interrupted: {name} and what was to follow is missing; chapters before it are written");
                return ExitCode::FAILURE;
            };
            if let Err(panic) = end {
                eprintln!("{name} failed, what it would have measured is missing: {}", cause(panic.as_ref()));
                is_whole = false;
            }
            let seconds = begun.elapsed().as_secs_f64();
            println!("measured: {name}, in {seconds:.0} s");
            bench.run.seconds.insert(name.to_owned(), (seconds * 10.0).round() / 10.0);
            // What is measured is not lost when a later chapter ends the process.
            path.iter().for_each(|path| write(&bench.run, path));
        }
    }
    println!("\n{}", tables(&bench.run));
    path.iter().for_each(|path| println!("the same with all samples: {}", path.display()));
    match bench.run.missed().count() {
        0 if is_whole => ExitCode::SUCCESS,
        count => {
            eprintln!("{count} missed the limit");
            ExitCode::FAILURE
        }
    }
}
