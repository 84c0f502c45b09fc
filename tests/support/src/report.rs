//! Benchmark results: tables to read, JSON to compare, plots, and missed limits. Pure.
//!
//! A chapter makes [`Measure`]s. A [`Run`] stores them as [`Row`]s, with its curves and with facts about the machine
//! and the programs. [`table`] writes it for people, [`pictures`] draws it, and a [`page::Record`] puts both into the
//! documentation.

pub mod facts;
pub mod page;
pub mod pictures;
pub mod plot;
pub mod summary;
pub mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub use facts::Facts;

/// The subject whose limits are checked.
pub const OURS: &str = "ours";
/// The subject for comparison, with the flags that it is shipped with.
pub const PEER: &str = "peer";
/// The same program as [`PEER`], with more workers and a higher rate of requests.
pub const TUNED: &str = "tuned peer";
/// Number of samples from which a limit counts as met.
pub const ENOUGH: usize = 3;
/// Upper limit of points in a curve. A plot shows no more, and the page's data stay small.
const POINTS: usize = 150;

/// One measured quantity, with one or more samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// Part of the benchmark that measured it.
    pub chapter: &'static str,
    /// Subject of the measurement: `ours`, `peer`, or a reference for both such as `floor`.
    pub subject: &'static str,
    /// Name of the quantity. It is the same for each subject.
    pub name: String,
    /// Unit of the numbers: `s`, `MiB`. Higher is better for rates, such as `MB/s`; for all others lower is better.
    pub unit: &'static str,
    /// Samples in the order of their measurement, at least one. Six decimal places are stored.
    pub samples: Vec<f64>,
    /// Limit of every sample of ours, if there is one.
    pub limit: Option<Limit>,
}

/// A stored [`Measure`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// See [`Measure::chapter`].
    pub chapter: String,
    /// See [`Measure::subject`].
    pub subject: String,
    /// See [`Measure::name`].
    pub name: String,
    /// See [`Measure::unit`].
    pub unit: String,
    /// See [`Measure::samples`]. Empty if it could not be measured.
    #[serde(deserialize_with = "numbers")]
    pub samples: Vec<f64>,
    /// See [`Measure::limit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Reason why there is no number, or why a repetition has none, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A limit of every sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The sample must be less than this.
    Below(f64),
    /// The sample must be more than this.
    Above(f64),
}

/// A quantity as a function of another one, such as the share of finished nodes over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// See [`Measure::chapter`].
    pub chapter: String,
    /// See [`Measure::subject`].
    pub subject: String,
    /// Name of the quantity. Curves of the same name, which can be of several subjects, are drawn into one plot.
    pub name: String,
    /// Labels of the horizontal and the vertical axis, each with its unit.
    pub axes: [String; 2],
    /// Points in the order in which they are joined.
    pub points: Vec<[f64; 2]>,
}

/// One run of the benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Facts about the run: program, machine and time.
    pub facts: Facts,
    /// Measured rows, in the order of their measurement.
    pub rows: Vec<Row>,
    /// Measured curves.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// Duration of each chapter in seconds, until its end or failure.
    #[serde(default)]
    pub seconds: BTreeMap<String, f64>,
}

impl Limit {
    /// Returns true if the sample is within the limit. NaN never is.
    fn is_kept_by(self, sample: f64) -> bool {
        match self {
            Self::Below(limit) => sample < limit,
            Self::Above(limit) => sample > limit,
        }
    }

    /// Returns the number of the limit.
    #[must_use]
    pub fn value(self) -> f64 {
        let (Self::Below(value) | Self::Above(value)) = self;
        value
    }
}

impl From<Measure> for Row {
    fn from(measure: Measure) -> Self {
        let Measure { chapter, subject, name, unit, samples, limit } = measure;
        let [chapter, subject, unit] = [chapter, subject, unit].map(str::to_owned);
        let samples = samples.into_iter().map(|sample| rounded(sample, 1e6)).collect();
        Self { chapter, subject, name, unit, samples, limit, note: None }
    }
}

impl Row {
    /// Returns the sample that this share of all samples (0 to 1) does not exceed: the nearest sample, the upper of
    /// two. Returns NaN if there are no samples.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let index = (share * last as f64).round() as usize;
        sorted.get(index.min(last)).copied().unwrap_or(f64::NAN)
    }

    /// Returns the median. See [`Row::quantile`].
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Returns true for a row of ours with a limit that was missed or could not be measured.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        let keeps = |limit: Limit| self.samples.iter().all(|one| limit.is_kept_by(*one));
        let is_unmeasured = self.samples.is_empty() || self.note.is_some();
        self.subject == OURS && (is_unmeasured || self.limit.is_some_and(|limit| !keeps(limit)))
    }

    /// Returns true if this is the same quantity of the same subject.
    fn is_same(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.chapter.clone(), row.subject.clone(), row.name.clone(), row.unit.clone());
        key(self) == key(other)
    }

    /// Returns true if a larger number is better.
    #[must_use]
    pub fn is_more_better(&self) -> bool {
        self.unit.ends_with("/s")
    }
}

impl Curve {
    /// Returns the curve with fewer points, evenly chosen, including the first and the last one. Four decimal places
    /// are kept.
    #[must_use]
    pub fn thinned(mut self) -> Self {
        let last = self.points.len().saturating_sub(1);
        if last >= POINTS {
            let index = |number: usize| number * last / (POINTS - 1);
            self.points = (0..POINTS).filter_map(|number| self.points.get(index(number)).copied()).collect();
        }
        self.points.iter_mut().flatten().for_each(|value| *value = rounded(*value, 1e4));
        self
    }
}

impl Run {
    /// Returns each chapter once, in the order of measurement.
    #[must_use]
    pub fn chapters(&self) -> Vec<&str> {
        let all = self.rows.iter().map(|row| &row.chapter).chain(self.curves.iter().map(|curve| &curve.chapter));
        unique(all.map(String::as_str))
    }

    /// Returns the rows of ours that miss their limit.
    pub fn missed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_missed())
    }
}

/// Merges the rows of repetitions: each quantity once, with the samples of all repetitions. A limit that depends on
/// another measurement, such as a multiple of the floor, differs between repetitions. Its median applies.
#[must_use]
pub fn merged(repetitions: Vec<Vec<Row>>) -> Vec<Row> {
    let mut rows: Vec<(Row, Vec<Limit>)> = Vec::new();
    for row in repetitions.into_iter().flatten() {
        match rows.iter_mut().find(|(known, _)| known.is_same(&row)) {
            Some((known, limits)) => {
                known.samples.extend(row.samples);
                known.note = known.note.take().or(row.note);
                limits.extend(row.limit);
            }
            None => {
                let limits = row.limit.into_iter().collect();
                rows.push((row, limits));
            }
        }
    }
    rows.into_iter().map(|(row, limits)| Row { limit: median_limit(limits), ..row }).collect()
}

/// Returns the median, the upper of two. All limits of a quantity are of the same kind.
fn median_limit(mut limits: Vec<Limit>) -> Option<Limit> {
    limits.sort_by(|one, other| one.value().total_cmp(&other.value()));
    limits.get(limits.len() / 2).copied()
}

/// Returns each value once, in the original order.
pub(crate) fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for one in all {
        if !unique.contains(&one) {
            unique.push(one);
        }
    }
    unique
}

/// Rounds a number so that it survives a round trip through JSON.
fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

/// Reads a list of numbers. JSON has no NaN, so `null` is read as NaN.
fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests;
