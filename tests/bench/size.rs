//! The size of the binary.

use support::report::{Limit, Measure};

use crate::Bench;

/// Limit in MB of 1,000,000 bytes.
const SIZE: f64 = 16.0;

/// Measures the size of the file as it is shipped. A peer is stripped.
pub fn measure(bench: &mut Bench) {
    for subject in bench.subjects() {
        let bytes = std::fs::metadata(subject.binary()).unwrap().len();
        let (name, samples, limit) = ("binary".to_owned(), vec![bytes as f64 / 1e6], Some(Limit::Below(SIZE)));
        bench.report(Measure { chapter: "size", subject: subject.name, name, unit: "MB", samples, limit });
    }
}
