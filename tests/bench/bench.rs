//! `make bench`: measures the promises about the released daemon, and compares the results with their limits.
//!
//! Usage: `bench DAEMON [CHAPTER…]`, with the daemon's binary and the chapters to measure. The default is all chapters.
//! With `PEER` another binary with the same command line does the same work, once with the flags that it is shipped
//! with and once tuned. A chapter with few samples runs three times; `RUNS` sets another number. The tables go to
//! standard output. With JSON and plots they also go to the folder of the file in `BENCH_JSON`. The benchmark fails if
//! this daemon misses a limit. A chapter is a module with a function that takes a [`Bench`], and a line in `CHAPTERS`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a step that fails ends the benchmark, which prints"
)]

mod cluster;
mod commands;
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
use support::report::{Curve, ENOUGH, Facts, Measure, Row, Run, merged};
use tokio::signal::unix::{SignalKind, signal};

/// The chapters with the number of their repetitions and their functions. A chapter that takes several samples of each
/// quantity runs once, and so does `size`, which reads a file.
const CHAPTERS: [(&str, usize, Chapter); 15] = [
    ("size", 1, |bench| async move { size::measure(bench) }.boxed_local()),
    ("micro", 1, |bench| async move { micro::measure(bench) }.boxed_local()),
    ("idle", ENOUGH, |bench| idle::measure(bench).boxed_local()),
    ("memory", ENOUGH, |bench| memory::measure(bench).boxed_local()),
    ("start-up", 1, |bench| start_up::measure(bench).boxed_local()),
    ("commands", 1, |bench| commands::measure(bench).boxed_local()),
    ("storm-100", ENOUGH, |bench| storm::measure(bench, "storm-100", 100, Kind::Simulator).boxed_local()),
    ("storm-1000", ENOUGH, |bench| storm::measure(bench, "storm-1000", 1_000, Kind::Simulator).boxed_local()),
    ("storm-5000", ENOUGH, |bench| storm::measure(bench, "storm-5000", 5_000, Kind::Fake).boxed_local()),
    ("steady", ENOUGH, |bench| steady::measure(bench).boxed_local()),
    ("latency", ENOUGH, |bench| latency::measure(bench).boxed_local()),
    ("hand-over", 1, |bench| hand_over::measure(bench).boxed_local()),
    ("routes", ENOUGH, |bench| routes::measure(bench).boxed_local()),
    ("load-balancers", ENOUGH, |bench| load_balancers::measure(bench).boxed_local()),
    ("load-balancers-handed-over", ENOUGH, |bench| load_balancers::handed_over::measure(bench).boxed_local()),
];

/// Environment variables that chapters and subjects read.
const SETTINGS: [&str; 6] = ["PEER_FLAGS", "RUNS", "STEADY_SECONDS", "LATENCY_CHANGES", "MOST_NODES", "LOAD_BALANCERS"];

type Chapter = for<'a> fn(&'a mut Bench) -> LocalBoxFuture<'a, ()>;

/// State of a benchmark, for the chapters.
pub struct Bench {
    /// The released daemon.
    pub ours: Subject,
    /// The program for the comparison, if any: as it is shipped, and tuned.
    pub peers: Vec<Subject>,
    run: Run,
}

impl Bench {
    /// Returns this daemon and then the peers. A chapter measures each in turn, on a separate cluster.
    pub fn subjects(&self) -> Vec<Subject> {
        std::iter::once(&self.ours).chain(&self.peers).cloned().collect()
    }

    /// Returns the vCenter for work of both subjects: the simulator if there is a peer, otherwise the fake, which is
    /// more like a real vCenter.
    pub fn vcenter(&self) -> Kind {
        if self.peers.is_empty() { Kind::Fake } else { Kind::Simulator }
    }

    /// Returns the numbers of nodes for the chapters `steady`, `latency`, `hand-over` and `routes`. For trials
    /// `MOST_NODES` limits these numbers.
    pub fn sizes(&self, sizes: &[usize]) -> Vec<usize> {
        let most = std::env::var("MOST_NODES").ok().filter(|text| !text.is_empty()).map(|text| match text.parse() {
            Ok(most @ 1..) => most,
            _ => panic!("MOST_NODES is {text:?}; a number of nodes is expected"),
        });
        let mut sizes: Vec<usize> = sizes.iter().map(|&size| size.min(most.unwrap_or(size))).collect();
        sizes.dedup();
        sizes
    }

    /// Records a measure with at least one sample, and its limit for every sample.
    pub fn report(&mut self, measure: Measure) {
        let Measure { chapter, subject, name, samples, unit, .. } = &measure;
        println!("{chapter}, {subject}, {name}: {samples:.2?} {unit}");
        self.run.rows.push(measure.into());
    }

    /// Records that a measure failed, with the reason, and without its samples. For this daemon it counts as a missed
    /// limit.
    pub fn unmeasured(&mut self, measure: Measure, why: &str) {
        let Measure { chapter, subject, name, .. } = &measure;
        println!("{chapter}, {subject}, {name}: not measured: {why}");
        let note = why.split_whitespace().collect::<Vec<_>>().join(" ");
        self.run.rows.push(Row { samples: Vec::new(), note: Some(note), ..measure.into() });
    }

    /// Records a curve. Of repetitions the first curve is kept. Curves with the same chapter and `name` are drawn into one plot, with a line for each subject
    /// (`ours`, `peer`, `floor`). The name therefore describes the work: `bench.curve("join-storm", "floor", "1,000
    /// nodes, 10 ms a call", ["time since the start (s)", "nodes initialized (%)"], points)`. `axes` are the labels of
    /// the horizontal and the vertical axis, with units. The number of points is unlimited; surplus points are dropped.
    pub fn curve(&mut self, chapter: &str, subject: &str, name: &str, axes: [&str; 2], points: Vec<[f64; 2]>) {
        let ([chapter, subject, name], axes) = ([chapter, subject, name].map(str::to_owned), axes.map(str::to_owned));
        let is_known = |known: &Curve| (&known.chapter, &known.subject, &known.name) == (&chapter, &subject, &name);
        if !self.run.curves.iter().any(is_known) {
            self.run.curves.push(Curve { chapter, subject, name, axes, points }.thinned());
        }
    }

    /// Runs a chapter this many times, and merges the rows of its repetitions. Returns true if none failed.
    async fn repeat(&mut self, name: &str, times: usize, measure: Chapter) -> bool {
        let begin = self.run.rows.len();
        let mut repetitions = Vec::new();
        let mut is_whole = true;
        for number in 1..=times {
            if times > 1 {
                println!("{name}: {number} of {times}");
            }
            if let Err(panic) = AssertUnwindSafe(measure(self)).catch_unwind().await {
                eprintln!("{name} failed, what it would have measured is missing: {}", cause(panic.as_ref()));
                is_whole = false;
            }
            repetitions.push(self.run.rows.split_off(begin));
        }
        self.run.rows.extend(merged(repetitions));
        is_whole
    }

    /// Measures one subject. If that fails, for example in a wait that takes too long, a row records the failure, and
    /// the benchmark continues. Earlier reports stay.
    pub async fn attempt(&mut self, chapter: &'static str, subject: &Subject, work: impl AsyncFnOnce(&mut Self)) {
        if let Err(panic) = AssertUnwindSafe(work(self)).catch_unwind().await {
            let (subject, name) = (subject.name, "the rest of this chapter".to_owned());
            let nothing = Measure { chapter, subject, name, unit: "", samples: Vec::new(), limit: None };
            self.unmeasured(nothing, &cause(panic.as_ref()));
        }
    }
}

/// Returns the first line of a panic's message.
fn cause(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.and_then(|text| text.lines().next()).unwrap_or("it failed").to_owned()
}

/// Returns the number of repetitions of a chapter: at most `RUNS`, which is for trials.
fn repetitions(times: usize) -> usize {
    let Some(text) = std::env::var("RUNS").ok().filter(|text| !text.is_empty()) else { return times };
    match text.parse() {
        Ok(runs @ 1..) if times > 1 => runs,
        Ok(1..) => times,
        _ => panic!("RUNS is {text:?}; a number of runs is expected"),
    }
}

/// Returns the parameters that repeat this run.
fn facts(ours: &Subject, peers: &[Subject], chapters: &[String]) -> Facts {
    let mut settings = BTreeMap::new();
    if let Some(peer) = peers.first() {
        settings
            .insert("PEER".to_owned(), peer.binary().file_name().unwrap_or_default().to_string_lossy().into_owned());
        settings.insert("PEER_TUNED_FLAGS".to_owned(), subject::tuned_flags());
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
    programs.extend(peers.first().map(|peer| ("peer", peer.binary())));
    Facts::gather(command, &programs, settings)
}

/// Writes the run as JSON, with its tables and plots beside it. An interrupted write leaves the former file.
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
    // Cargo adds the flag `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let daemon = arguments.next().map(PathBuf::from);
    let asked: Vec<String> = arguments.collect();
    let unknown: Vec<_> = asked.iter().filter(|name| CHAPTERS.iter().all(|(known, ..)| known != name)).collect();
    let Some(daemon) = daemon.filter(|daemon| daemon.is_file() && unknown.is_empty()) else {
        let known = CHAPTERS.map(|(name, ..)| name).join(", ");
        eprintln!("usage: bench DAEMON [CHAPTER…] (or: make bench); chapters: {known}");
        return ExitCode::FAILURE;
    };
    let peers = match Subject::peers() {
        Ok(peers) => peers,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let ours = Subject::ours(daemon);
    let facts = facts(&ours, &peers, &asked);
    let mut bench = Bench { ours, peers, run: Run { facts, ..Run::default() } };
    let path = std::env::var_os("BENCH_JSON").filter(|path| !path.is_empty()).map(PathBuf::from);
    // Otherwise an earlier run could be mistaken for this one.
    path.iter().for_each(|path| drop(std::fs::remove_file(path)));
    let mut ctrl_c = signal(SignalKind::interrupt()).unwrap();
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let mut is_whole = true;
    for (name, times, measure) in CHAPTERS {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            println!("measuring: {name}");
            let begun = Instant::now();
            // A dropped chapter ends its processes.
            let end = tokio::select! {
                biased;
                _ = ctrl_c.recv() => None,
                _ = terminate.recv() => None,
                end = bench.repeat(name, repetitions(times), measure) => Some(end),
            };
            let Some(is_measured) = end else {
                eprintln!("interrupted: {name} and what was to follow is missing; chapters before it are written");
                return ExitCode::FAILURE;
            };
            is_whole &= is_measured;
            let seconds = begun.elapsed().as_secs_f64();
            println!("measured: {name}, in {seconds:.0} s");
            bench.run.seconds.insert(name.to_owned(), (seconds * 10.0).round() / 10.0);
            // Written after each chapter, so that a later crash does not lose the results.
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
