//! What a benchmark measured: tables to read, JSON to compare, plots, and what misses its limit. Pure.
//!
//! A chapter makes [`Measure`]s. A [`Run`] keeps them as [`Row`]s, with its curves and with what is known of the machine
//! and of the programs; [`table`] writes it for people, [`pictures`] draws it, and a [`page::Record`] puts both into the documentation.

pub mod facts;
pub mod page;
pub mod pictures;
pub mod plot;
pub mod table;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub use facts::Facts;

/// The subject whose limits are promises.
pub const OURS: &str = "ours";
/// The subject that ours is compared with.
pub const PEER: &str = "peer";
/// A curve keeps at most so many points: a plot shows no more, and the page's data stay small.
const POINTS: usize = 150;

/// One thing that was measured, maybe several times.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The part of the benchmark that measured it.
    pub chapter: &'static str,
    /// Whose it is: `ours`, `peer`, or what both are compared with, such as `floor`.
    pub subject: &'static str,
    /// What it is, in the same words for each subject.
    pub name: String,
    /// Of the numbers: `s`, `MiB`. More is better of what is counted by a time, such as `MB/s`; less of all else.
    pub unit: &'static str,
    /// In the order in which they were measured; at least one. Six digits behind the point are kept.
    pub samples: Vec<f64>,
    /// What is promised of every sample of ours, if anything is.
    pub limit: Option<Limit>,
}

/// A [`Measure`] as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// As [`Measure::chapter`].
    pub chapter: String,
    /// As [`Measure::subject`].
    pub subject: String,
    /// As [`Measure::name`].
    pub name: String,
    /// As [`Measure::unit`].
    pub unit: String,
    /// As [`Measure::samples`]; none if it could not be measured.
    #[serde(deserialize_with = "numbers")]
    pub samples: Vec<f64>,
    /// As [`Measure::limit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Why there is no number, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A promise about every sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// It is less than this.
    Below(f64),
    /// It is more than this.
    Above(f64),
}

/// A thing that changes with another one, such as the share of the nodes that are done with time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// As [`Measure::chapter`].
    pub chapter: String,
    /// As [`Measure::subject`].
    pub subject: String,
    /// Curves of the same name are drawn into one plot: what they are of, in the same words for each subject.
    pub name: String,
    /// What goes to the right and what goes up, each with its unit.
    pub axes: [String; 2],
    /// In the order in which they are joined.
    pub points: Vec<[f64; 2]>,
}

/// One run of the benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What, where and when.
    pub facts: Facts,
    /// What was measured, in that order.
    pub rows: Vec<Row>,
    /// What was measured over time, or over another thing.
    #[serde(default)]
    pub curves: Vec<Curve>,
    /// How many seconds each chapter took, to its end or to where it failed.
    #[serde(default)]
    pub seconds: BTreeMap<String, f64>,
}

impl Limit {
    /// Not of what is no number.
    fn is_kept_by(self, sample: f64) -> bool {
        match self {
            Self::Below(limit) => sample < limit,
            Self::Above(limit) => sample > limit,
        }
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
    /// The sample that such a share of all is not above, from 0 to 1: the nearest there is, the upper of two. No number
    /// when there is none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        let index = (share * last as f64).round() as usize;
        sorted.get(index.min(last)).copied().unwrap_or(f64::NAN)
    }

    /// See [`Row::quantile`].
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Whether it is one of ours that has a limit and does not keep it, or could not be measured.
    #[must_use]
    pub fn is_missed(&self) -> bool {
        let keeps = |limit: Limit| self.samples.iter().all(|one| limit.is_kept_by(*one));
        self.subject == OURS && (self.samples.is_empty() || self.limit.is_some_and(|limit| !keeps(limit)))
    }

    /// Whether a larger number is a better one.
    #[must_use]
    pub fn is_more_better(&self) -> bool {
        self.unit.ends_with("/s")
    }
}

impl Curve {
    /// The same with fewer points, evenly chosen, with the first and the last one; of four digits behind the point.
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
    /// Each once, in the order in which they were measured.
    #[must_use]
    pub fn chapters(&self) -> Vec<&str> {
        let all = self.rows.iter().map(|row| &row.chapter).chain(self.curves.iter().map(|curve| &curve.chapter));
        unique(all.map(String::as_str))
    }

    /// What of ours misses its limit.
    pub fn missed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_missed())
    }
}

/// Each once, as they come.
pub(crate) fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for one in all {
        if !unique.contains(&one) {
            unique.push(one);
        }
    }
    unique
}

/// So that it is the same after it was written and read.
fn rounded(number: f64, parts: f64) -> f64 {
    (number * parts).round() / parts
}

/// JSON has no other word for what is no number.
fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

#[cfg(test)]
mod tests;
