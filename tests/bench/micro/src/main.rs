//! Times single functions of the daemon. `make bench CHAPTERS=micro` builds this with the settings of the binary that is
//! shipped, runs it, and reads what Criterion writes.
//!
//! Its command line is Criterion's: `micro --bench` measures everything, `micro --bench decode` what has this in its
//! name, and without `--bench` each function runs once.

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
