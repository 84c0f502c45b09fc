//! The duration of single functions of the daemon. `MICRO` names the separate program in `micro/`, which is built with
//! the settings of the released daemon. Criterion computes its samples and statistics.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use support::report::{Limit, Measure};

use crate::Bench;

const CHAPTER: &str = "micro";

/// Limit in MB of 1,000,000 bytes a second.
const DECODING: f64 = 150.0;
/// Maximum factor in the controller's time for five times as many Nodes.
const GROWTH: f64 = 6.0;
/// Maximum factor in the time for a change of one VM among a hundred times as many.
const CHANGE_GROWTH: f64 = 2.0;

/// Criterion's result for one function.
#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
    throughput: Option<Throughput>,
}

/// Amount of work of one call.
#[derive(Clone, Copy, Deserialize)]
enum Throughput {
    Bytes(f64),
    Elements(f64),
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

/// Time of a call in nanoseconds.
#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
    confidence_interval: Interval,
}

#[derive(Deserialize)]
struct Interval {
    lower_bound: f64,
    upper_bound: f64,
}

/// Reports three samples for each function: the median call, and both ends of its confidence interval.
pub fn measure(bench: &mut Bench) {
    let micro = std::env::var_os("MICRO").map(PathBuf::from).filter(|path| path.is_file());
    let micro = micro.expect("MICRO is to name the program of the micro-benchmarks: start this with `make bench`");
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(micro);
    command.arg("--bench").arg("--noplot").env("CRITERION_HOME", folder.path());
    let status = command.status().unwrap();
    assert!(status.success(), "the micro-benchmarks ended with {status}");
    let mut found = Vec::new();
    find(folder.path(), &mut found);
    found.sort();
    assert!(!found.is_empty(), "Criterion wrote nothing into {}", folder.path().display());
    let measures: Vec<Measure> = found.iter().map(|folder| read(folder)).collect();
    let name = "lifecycle: a pass over 5,000 Nodes, by one over 1,000";
    let pass = growth(&measures, name, "lifecycle/pass", [1_000.0, 5_000.0], GROWTH);
    let name = "inventory: a change of one VM of 5,000, by one of 50";
    let change = growth(&measures, name, "inventory/change", [50.0, 5_000.0], CHANGE_GROWTH);
    measures.into_iter().chain([pass, change]).for_each(|measure| bench.report(measure));
}

/// Returns the growth of a call's time from the smaller to the larger size: of the median calls, and of the most
/// distant ends of both confidence intervals.
fn growth(measures: &[Measure], name: &str, function: &str, sizes: [f64; 2], limit: f64) -> Measure {
    let [[low, small, high], [least, large, most]] = sizes.map(|size| {
        let name = format!("{function}-{size}");
        let found = measures.iter().find(|measure| measure.name == name).expect("a call at each size");
        let [lower, median, upper] = found.samples[..] else { panic!("three samples: {found:?}") };
        let elements = if found.unit == "ns each" { size } else { 1.0 };
        [lower, median, upper].map(|each| each * elements)
    });
    let samples = vec![least / high, large / small, most / low];
    let (name, limit) = (name.to_owned(), Some(Limit::Below(limit)));
    Measure { chapter: CHAPTER, subject: "ours", name, unit: "times", samples, limit }
}

/// Finds the folders with the latest run of each function.
fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.ends_with("new") {
            found.push(path);
        } else if path.is_dir() {
            find(&path, found);
        }
    }
}

fn read(folder: &Path) -> Measure {
    let text = |file: &str| std::fs::read(folder.join(file)).unwrap();
    let benchmark: Benchmark = serde_json::from_slice(&text("benchmark.json")).unwrap();
    let median = serde_json::from_slice::<Estimates>(&text("estimates.json")).unwrap().median;
    let Interval { lower_bound, upper_bound } = median.confidence_interval;
    let times = [lower_bound, median.point_estimate, upper_bound];
    let (unit, samples, limit) = match benchmark.throughput {
        // A byte in a nanosecond is a thousand MB a second.
        Some(Throughput::Bytes(bytes)) => ("MB/s", times.map(|time| bytes / time * 1e3), Some(Limit::Above(DECODING))),
        Some(Throughput::Elements(elements)) => ("ns each", times.map(|time| time / elements), None),
        None => ("ns", times, None),
    };
    let (name, samples) = (benchmark.full_id, samples.to_vec());
    Measure { chapter: CHAPTER, subject: "ours", name, unit, samples, limit }
}
