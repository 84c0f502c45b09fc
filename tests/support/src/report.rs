//! What a benchmark measured: a table to read, JSON to compare, and what is above its limit. Pure.

use std::fmt::Write;

use serde::Serialize;

/// One thing that was measured, maybe several times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// The part of the benchmark that measured it.
    pub chapter: &'static str,
    /// What it is.
    pub name: String,
    /// Of the numbers: `s`, `MiB`.
    pub unit: &'static str,
    /// In the order in which they were measured; at least one.
    pub samples: Vec<f64>,
    /// What every sample has to stay below, if there is such a promise.
    pub limit: Option<f64>,
}

impl Measure {
    /// The smallest, the middle and the largest sample; of an even number of samples the upper middle.
    #[must_use]
    pub fn spread(&self) -> [f64; 3] {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        [at(0), at(sorted.len() / 2), at(sorted.len().saturating_sub(1))]
    }

    /// Whether it has a limit and is not below it. What was never measured is not.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        let is_below = |limit| !self.samples.is_empty() && self.samples.iter().all(|sample| *sample < limit);
        self.limit.is_some_and(|limit| !is_below(limit))
    }
}

/// All that was measured, as a table in Markdown.
#[must_use]
pub fn table(measures: &[Measure]) -> String {
    let mut rows = vec![["chapter", "what", "unit", "samples", "least", "median", "most", "limit"].map(str::to_owned)];
    for measure in measures {
        let [least, median, most] = measure.spread().map(number);
        let limit = measure.limit.map(number).unwrap_or_default();
        let verdict = if measure.is_exceeded() { " EXCEEDED" } else { "" };
        rows.push([
            measure.chapter.to_owned(),
            measure.name.clone(),
            measure.unit.to_owned(),
            measure.samples.len().to_string(),
            least,
            median,
            most,
            format!("{limit}{verdict}"),
        ]);
    }
    let mut widths = [0; 8];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!(" {cell:width$} ")).collect::<Vec<_>>();
        let _ = writeln!(text, "|{}|", cells.join("|"));
        if index == 0 {
            let lines = widths.map(|width| "-".repeat(width + 2));
            let _ = writeln!(text, "|{}|", lines.join("|"));
        }
    }
    text
}

fn number(number: f64) -> String {
    format!("{number:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(samples: &[f64], limit: Option<f64>) -> Measure {
        Measure { chapter: "hand-over", name: "SIGTERM".to_owned(), unit: "s", samples: samples.to_vec(), limit }
    }

    #[test]
    fn a_limit_is_exceeded_by_any_sample_that_is_not_below_it() {
        let cases = [
            ("below", &[0.1, 1.9][..], Some(2.0), false),
            ("one above", &[0.1, 2.1, 0.1], Some(2.0), true),
            ("at it", &[2.0], Some(2.0), true),
            ("no number", &[f64::NAN], Some(2.0), true),
            ("none", &[], Some(2.0), true),
            ("no limit", &[9.0], None, false),
        ];
        for (case, samples, limit, expected) in cases {
            assert_eq!(measure(samples, limit).is_exceeded(), expected, "{case}");
        }
    }

    #[test]
    fn the_table_has_the_spread_and_the_verdict() {
        let text = table(&[measure(&[3.0, 0.5, 1.25], Some(2.0)), measure(&[1.0, 2.0], None)]);
        let expected = "\
| chapter   | what    | unit | samples | least | median | most | limit         |
|-----------|---------|------|---------|-------|--------|------|---------------|
| hand-over | SIGTERM | s    | 3       | 0.50  | 1.25   | 3.00 | 2.00 EXCEEDED |
| hand-over | SIGTERM | s    | 2       | 1.00  | 2.00   | 2.00 |               |
";
        assert_eq!(text, expected);
    }
}
