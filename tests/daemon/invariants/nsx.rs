//! Checks the replicas' writes to NSX. Pure: versions of objects, terms, logins and Nodes are parameters.

pub mod leadership;
pub mod load_balancers;
pub mod logins;
pub mod ownership;
pub mod presence;
pub mod routes;

use std::time::{Duration, Instant};

/// Start and end of a period. The end is `None` while the period lasts.
pub type Span = (Instant, Option<Instant>);

/// Returns the part of the time from `begin` to `end` that is outside all of these spans. Spans may overlap.
pub fn outside(begin: Instant, end: Instant, spans: &[Span]) -> Duration {
    let mut sorted: Vec<(Instant, Instant)> =
        spans.iter().map(|(from, to)| (*from.max(&begin), to.unwrap_or(end).min(end))).collect();
    sorted.sort_unstable();
    let (mut left, mut place) = (Duration::ZERO, begin);
    for (from, to) in sorted.into_iter().filter(|(from, to)| from < to) {
        left += from.saturating_duration_since(place);
        place = place.max(to);
    }
    left + end.saturating_duration_since(place)
}

#[test]
fn spans_are_taken_out_once() {
    let start = Instant::now();
    let at = |second| start + Duration::from_secs(second);
    let cases: [(&str, Vec<Span>, u64); 6] = [
        ("none", vec![], 10),
        ("before and after", vec![(at(0), Some(at(9))), (at(21), None)], 10),
        ("within", vec![(at(12), Some(at(15)))], 7),
        ("overlapping, in any order", vec![(at(14), Some(at(18))), (at(12), Some(at(15)))], 4),
        ("one within another", vec![(at(12), Some(at(18))), (at(13), Some(at(14)))], 4),
        ("all of it", vec![(at(5), None)], 0),
    ];
    for (case, spans, expected) in cases {
        assert_eq!(outside(at(10), at(20), &spans), Duration::from_secs(expected), "{case}");
    }
}
