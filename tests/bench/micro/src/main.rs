//! Measures single functions of the daemon. `make bench CHAPTERS=micro` builds this program with the settings of the
//! released binary, runs it, and reads Criterion's output.
//!
//! It has Criterion's command line: `micro --bench` measures all functions, `micro --bench decode` only functions with
//! this text in their names. Without `--bench` each function runs once.

mod addresses;
mod answers;
mod change;
mod decoder;
mod lifecycle;
mod plan;
mod queue;

use std::time::Duration;

use criterion::Criterion;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3))
        .without_plots()
        .configure_from_args();
    decoder::measure(&mut criterion);
    addresses::measure(&mut criterion);
    plan::measure(&mut criterion);
    queue::measure(&mut criterion);
    lifecycle::measure(&mut criterion);
    change::measure(&mut criterion);
    criterion.final_summary();
}
