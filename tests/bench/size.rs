//! How large the binary is.

use support::report::{Limit, Measure};

use crate::Bench;

/// In MB of 1,000,000 bytes.
const SIZE: f64 = 16.0;

/// Of the file as it is.
pub fn measure(bench: &mut Bench) {
    for subject in bench.subjects() {
        let bytes = std::fs::metadata(subject.binary()).unwrap().len();
        let (name, samples, limit) = ("binary".to_owned(), vec![bytes as f64 / 1e6], Some(Limit::Below(SIZE)));
        bench.report(Measure { chapter: "size", subject: subject.name, name, unit: "MB", samples, limit });
    }
}
