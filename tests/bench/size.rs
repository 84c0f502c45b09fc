//! How large the binary is.

use support::report::Measure;

use crate::Bench;

/// In MB of 1,000,000 bytes.
const LIMIT: f64 = 12.0;

/// Of the file as it is.
pub fn measure(bench: &mut Bench) {
    let bytes = std::fs::metadata(&bench.daemon).unwrap().len();
    let samples = vec![bytes as f64 / 1e6];
    bench.report(Measure { chapter: "size", name: "binary".to_owned(), unit: "MB", samples, limit: Some(LIMIT) });
}
