//! `make bench`: what is promised of the daemon as it is shipped, measured, and held to the promises.
//!
//! Usage: `bench DAEMON [CHAPTER…]`, the daemon's binary and what to measure; everything unless chapters are named. The
//! table goes to standard output, the same as JSON into the file that `BENCH_JSON` names. It fails when something is
//! above its limit. A chapter is a module with a function that takes a [`Bench`]; its line in `CHAPTERS` is all it needs.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a step that fails ends the benchmark, which prints"
)]

mod cluster;
mod hand_over;
mod idle;
mod size;

use std::path::PathBuf;
use std::process::ExitCode;

use futures::future::{FutureExt, LocalBoxFuture};
use support::report::{Measure, table};

/// Each chapter and what measures it.
const CHAPTERS: [(&str, Chapter); 3] = [
    ("size", |bench| async move { size::measure(bench) }.boxed_local()),
    ("idle", |bench| idle::measure(bench).boxed_local()),
    ("hand-over", |bench| hand_over::measure(bench).boxed_local()),
];

type Chapter = for<'a> fn(&'a mut Bench) -> LocalBoxFuture<'a, ()>;

/// What a chapter is given.
pub struct Bench {
    /// The daemon's binary.
    pub daemon: PathBuf,
    measures: Vec<Measure>,
}

impl Bench {
    /// Takes down what was measured, at least one sample, and what every sample has to be below.
    pub fn report(&mut self, measure: Measure) {
        println!("{}, {}: {:.2?} {}", measure.chapter, measure.name, measure.samples, measure.unit);
        self.measures.push(measure);
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
    let mut bench = Bench { daemon, measures: Vec::new() };
    for (name, measure) in CHAPTERS {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            println!("measuring: {name}");
            measure(&mut bench).await;
        }
    }
    println!("\n{}", table(&bench.measures));
    if let Some(path) = std::env::var_os("BENCH_JSON").filter(|path| !path.is_empty()).map(PathBuf::from) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, serde_json::to_vec_pretty(&bench.measures).unwrap()).unwrap();
        println!("the same with all samples: {}", path.display());
    }
    match bench.measures.iter().filter(|measure| measure.is_exceeded()).count() {
        0 => ExitCode::SUCCESS,
        count => {
            eprintln!("{count} above the limit");
            ExitCode::FAILURE
        }
    }
}
