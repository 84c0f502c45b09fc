//! Tests of the stored runs, and helpers for the other tests of reports.

use super::*;

/// Returns a row of the chapter `storm`.
pub fn row(subject: &str, name: &str, unit: &str, samples: &[f64], limit: Option<Limit>) -> Row {
    let [chapter, subject, name, unit] = ["storm", subject, name, unit].map(str::to_owned);
    Row { chapter, subject, name, unit, samples: samples.to_vec(), limit, note: None }
}

/// Returns a run on an invented machine.
pub fn measured(rows: Vec<Row>) -> Run {
    Run { facts: Facts::default(), rows, curves: Vec::new(), seconds: BTreeMap::new() }
}

#[test]
fn a_limit_is_missed_by_any_sample_that_does_not_keep_it() {
    let (below, above) = (Some(Limit::Below(2.0)), Some(Limit::Above(2.0)));
    let cases = [
        ("below", "ours", &[0.1, 1.9][..], below, false),
        ("one above", "ours", &[0.1, 2.1, 0.1], below, true),
        ("at it", "ours", &[2.0], below, true),
        ("no number", "ours", &[f64::NAN], below, true),
        ("not measured", "ours", &[], below, true),
        ("not measured, though nothing is promised", "ours", &[], None, true),
        ("all above", "ours", &[2.1, 9.0], above, false),
        ("one below", "ours", &[2.1, 1.9], above, true),
        ("no number above", "ours", &[f64::NAN], above, true),
        ("no limit", "ours", &[9.0], None, false),
        ("nothing is promised of a peer", "peer", &[9.0], below, false),
        ("a peer that could not be measured", "peer", &[], below, false),
    ];
    for (case, subject, samples, limit, expected) in cases {
        assert_eq!(row(subject, "x", "s", samples, limit).is_missed(), expected, "{case}");
    }
}

#[test]
fn repetitions_are_samples_of_one_row() {
    let below = |limit| Some(Limit::Below(limit));
    let gone = |name: &str| Row { note: Some("it ended".into()), ..row("ours", name, "s", &[], below(2.0)) };
    let rows = merged(vec![
        vec![row("ours", "last", "s", &[1.0], below(2.0)), row("ours", "first", "s", &[0.5], None)],
        vec![row("ours", "last", "s", &[1.5], below(4.0)), row("peer", "last", "s", &[9.0], None)],
        vec![row("ours", "last", "s", &[2.5], below(3.0)), gone("first")],
    ]);
    let shown: Vec<_> = rows.iter().map(|row| (row.subject.as_str(), row.name.as_str(), row.samples.clone())).collect();
    let expected = [("ours", "last", vec![1.0, 1.5, 2.5]), ("ours", "first", vec![0.5]), ("peer", "last", vec![9.0])];
    assert_eq!(shown, expected);
    assert_eq!(rows[0].limit, below(3.0), "the median of the limits");
    assert!(!rows[0].is_missed() && rows[1].is_missed(), "a repetition without a number misses the limit");
    assert_eq!(merged(Vec::new()), Vec::new());
}

#[test]
fn quantiles_are_samples() {
    let row = |samples: &[f64]| row("ours", "x", "s", samples, None);
    let odd = row(&[3.0, 1.0, 2.0]);
    assert_eq!([0.0, 0.5, 1.0].map(|share| odd.quantile(share)), [1.0, 2.0, 3.0]);
    assert_eq!(row(&[1.0, 2.0]).median(), 2.0, "the upper of two");
    assert!(row(&[]).median().is_nan());
}

#[test]
fn a_run_is_read_as_it_was_written() {
    let mut run = measured(vec![row("ours", "x", "s", &[1.5, 0.1], Some(Limit::Above(1.0)))]);
    run.rows.push(Row { note: Some("gone".into()), ..row("peer", "x", "s", &[], None) });
    let axes = ["time (s)", "nodes (%)"].map(str::to_owned);
    let [chapter, subject, name] = ["storm", "ours", "100 nodes"].map(str::to_owned);
    run.curves.push(Curve { chapter, subject, name, axes, points: vec![[0.0, 1.0], [0.5, 2.25]] });
    let text = serde_json::to_string_pretty(&run).unwrap();
    assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), run);

    run.rows[0].samples = vec![f64::NAN];
    let read: Run = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
    assert!(read.rows[0].samples[0].is_nan() && read.rows[0].is_missed());
}

#[test]
fn a_curve_keeps_its_ends_and_few_points() {
    let points: Vec<[f64; 2]> = (0..5_000).map(|number| [f64::from(number), 0.0]).collect();
    let [chapter, subject, name] = ["storm", "ours", "x"].map(str::to_owned);
    let axes = ["a", "b"].map(str::to_owned);
    let curve = Curve { chapter, subject, name, axes, points: points.clone() };
    let thin = curve.clone().thinned();
    assert_eq!((thin.points.len(), thin.points[0], thin.points[POINTS - 1]), (POINTS, points[0], points[4_999]));
    let few = Curve { points: points[..7].to_vec(), ..curve };
    assert_eq!(few.clone().thinned(), few);
}
