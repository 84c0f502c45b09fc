//! Chooses the plots of a run: its curves, the distributions of rows with many samples, and bars of the rows in `BARS`.
//! Pure.

use super::plot::{Bar, Bars, Line, Lines};
use super::table::MANY;
use super::{Limit, OURS, PEER, Row, Run, TUNED, unique};

/// Chapter, unit, and the suffix of the names of rows that are drawn as bars. The part before the suffix is the group.
const BARS: &[(&str, &str, &str)] = &[
    ("size", "MB", ""),
    ("micro", "MB/s", ""),
    ("micro", "ns", ""),
    ("micro", "ns each", ""),
    ("idle", "MiB", ": resident"),
    ("memory", "MiB", ""),
    ("steady", "a minute", ": vCenter calls"),
    ("steady", "% of a core", ": CPU"),
    ("start-up", "s", ""),
    ("storm-100", "s", ": last initialized"),
    ("storm-1000", "s", ": last initialized"),
    ("storm-5000", "s", ": last initialized"),
    ("hand-over", "s", ""),
];

/// Prefix of the chapters whose names end with their number of nodes, and the rows that are drawn over that number with
/// their labels.
const BY_NODES: &str = "storm-";
const MEMORY: [(&str, &str); 2] = [
    ("nodes registered before the start, 10 ms a call: resident afterwards", "afterwards"),
    ("nodes registered before the start, 10 ms a call: peak", "peak"),
];

/// A plot of one chapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// See [`super::Measure::chapter`].
    pub chapter: String,
    /// Description for readers who cannot see the plot.
    pub title: String,
    /// File name.
    pub file: String,
    /// SVG text.
    pub svg: String,
}

/// Returns all plots of a run, by chapter.
#[must_use]
pub fn pictures(run: &Run) -> Vec<Picture> {
    let of = |chapter| {
        let rows: Vec<&Row> = run.rows.iter().filter(|row| row.chapter == chapter).collect();
        [curves(run, chapter), distributions(&rows, chapter), bars(&rows, chapter)].concat()
    };
    run.chapters().into_iter().flat_map(of).chain(memory(run)).collect()
}

/// Plots memory over the number of nodes, in the chapter with the most nodes.
fn memory(run: &Run) -> Option<Picture> {
    let size = |row: &Row| row.chapter.strip_prefix(BY_NODES)?.parse::<f64>().ok();
    let mut lines = Vec::new();
    for subject in unique(run.rows.iter().map(|row| row.subject.as_str())) {
        for (index, (name, word)) in MEMORY.iter().enumerate() {
            let rows = run.rows.iter().filter(|row| row.subject == subject && row.name == *name);
            let mut points: Vec<_> = rows.filter_map(|row| Some([size(row)?, row.median()])).collect();
            points.sort_by(|one, other| one[0].total_cmp(&other[0]));
            let hue = Some(index);
            let name = if subject == OURS { (*word).to_owned() } else { format!("{subject}, {word}") };
            lines.extend((points.len() > 1).then_some(Line { name, hue, is_dashed: subject != OURS, points }));
        }
    }
    let last = run.chapters().into_iter().rfind(|chapter| chapter.starts_with(BY_NODES))?;
    let axes = ["nodes".to_owned(), "resident memory (MiB)".to_owned()];
    let title = "resident memory by nodes".to_owned();
    (!lines.is_empty()).then(|| picture(last, "memory", Lines { title, axes, lines, limit: None }.svg()))
}

fn curves(run: &Run, chapter: &str) -> Vec<Picture> {
    let all: Vec<_> = run.curves.iter().filter(|curve| curve.chapter == chapter).collect();
    let one = |name: &str| {
        let curves: Vec<_> = all.iter().filter(|curve| curve.name == name).collect();
        let lines = curves.iter().map(|curve| Line {
            name: curve.subject.clone(),
            hue: None,
            is_dashed: ![OURS, PEER, TUNED].contains(&curve.subject.as_str()),
            points: curve.points.clone(),
        });
        let axes = curves.first().map(|curve| curve.axes.clone()).unwrap_or_default();
        let (title, lines) = (format!("{chapter}: {name}"), lines.collect());
        picture(chapter, name, Lines { title, axes, lines, limit: None }.svg())
    };
    unique(all.iter().map(|curve| curve.name.as_str())).into_iter().map(one).collect()
}

/// Plots the share of samples that do not exceed a value. Rows with the same words before a colon are in one plot, with
/// a colour for each name. Subjects other than ours have dashed lines.
fn distributions(rows: &[&Row], chapter: &str) -> Vec<Picture> {
    let many: Vec<&Row> = rows.iter().filter(|row| row.samples.len() >= MANY).copied().collect();
    let split = |row: &Row| match row.name.split_once(": ") {
        Some((group, name)) => (group.to_owned(), name.to_owned()),
        None => ("distribution".to_owned(), row.name.clone()),
    };
    let one = |(group, unit): (String, String)| {
        let rows: Vec<&Row> = many.iter().filter(|row| split(row).0 == group && row.unit == unit).copied().collect();
        let names = unique(rows.iter().map(|row| split(row).1));
        let lines = rows.iter().map(|row| {
            let (_, name) = split(row);
            let hue = names.iter().position(|known| *known == name);
            let (shown, is_dashed) =
                if row.subject == OURS { (name, false) } else { (format!("{name}, {}", row.subject), true) };
            Line { name: shown, hue, is_dashed, points: distribution(&row.samples) }
        });
        let limits = unique(rows.iter().filter(|row| row.subject == OURS).filter_map(|row| value(row.limit)));
        let limit = limits.first().copied().filter(|_| limits.len() == 1);
        let axes = [format!("at most ({unit})"), "samples (%)".to_owned()];
        let (title, lines) = (format!("{chapter}: {group}"), lines.collect());
        picture(chapter, &group, Lines { title, axes, lines, limit }.svg())
    };
    unique(many.iter().map(|row| (split(row).0, row.unit.clone()))).into_iter().map(one).collect()
}

fn distribution(samples: &[f64]) -> Vec<[f64; 2]> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let share = |number: usize| number as f64 * 100.0 / sorted.len() as f64;
    sorted.iter().enumerate().map(|(index, value)| [*value, share(index + 1)]).collect()
}

fn bars(rows: &[&Row], chapter: &str) -> Vec<Picture> {
    let wanted = || BARS.iter().filter(|(of, ..)| *of == chapter);
    let has_many_units = wanted().filter(|(_, _, end)| end.is_empty()).count() > 1;
    let one = |&(_, unit, end): &(&str, &str, &str)| {
        let group = |row: &Row| row.name.strip_suffix(end).filter(|_| row.unit == unit).map(str::to_owned);
        let of = |name: &str| {
            let rows: Vec<&Row> = rows.iter().filter(|row| group(row).as_deref() == Some(name)).copied().collect();
            let limit = rows.iter().find(|row| row.subject == OURS).and_then(|row| value(row.limit));
            (name.to_owned(), rows.into_iter().map(bar).collect(), limit)
        };
        let groups: Vec<_> = unique(rows.iter().filter_map(|row| group(row))).iter().map(|name| of(name)).collect();
        let what = end.trim_start_matches([':', ' ']);
        let (title, axis, name) = match what {
            "" if has_many_units => (format!("{chapter}: {unit}"), unit.to_owned(), unit),
            "" => (chapter.to_owned(), unit.to_owned(), "bars"),
            what => (format!("{chapter}: {what}"), format!("{what} ({unit})"), what),
        };
        (!groups.is_empty()).then(|| picture(chapter, name, Bars { title, axis, groups }.svg()))
    };
    wanted().filter_map(one).collect()
}

fn bar(row: &Row) -> Bar {
    let median = row.median();
    let value = if median.is_finite() { Ok(median) } else { Err("not measured".to_owned()) };
    let spread = (row.samples.len() > 1).then(|| [row.quantile(0.0), row.quantile(1.0)]);
    Bar { of: row.subject.clone(), value, spread }
}

fn value(limit: Option<Limit>) -> Option<f64> {
    limit.map(Limit::value)
}

fn picture(chapter: &str, name: &str, svg: String) -> Picture {
    let words = format!("{chapter} {name}").to_lowercase();
    let words = words.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let file = format!("{}.svg", words.collect::<Vec<_>>().join("-"));
    Picture { chapter: chapter.to_owned(), title: format!("{chapter}: {name}"), file, svg }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Curve;
    use crate::report::tests::{measured, row};

    fn files(run: &Run) -> Vec<String> {
        pictures(run).into_iter().map(|picture| picture.file).collect()
    }

    #[test]
    fn curves_of_one_name_are_one_plot() {
        let mut run = measured(Vec::new());
        for (subject, name) in [("ours", "1,000 nodes, 10 ms"), ("floor", "1,000 nodes, 10 ms"), ("ours", "100 nodes")]
        {
            let [chapter, subject, name] = ["join-storm", subject, name].map(str::to_owned);
            let axes = ["time (s)", "nodes (%)"].map(str::to_owned);
            run.curves.push(Curve { chapter, subject, name, axes, points: vec![[0.0, 0.0], [1.0, 100.0]] });
        }
        assert_eq!(files(&run), ["join-storm-1-000-nodes-10-ms.svg", "join-storm-100-nodes.svg"]);
        let first = &pictures(&run)[0];
        assert_eq!((first.svg.matches("<polyline").count(), first.svg.matches("stroke-dasharray").count()), (2, 2));
    }

    #[test]
    fn many_samples_are_a_distribution() {
        let samples: Vec<f64> = (1..=20).map(f64::from).collect();
        let limit = Some(Limit::Below(30.0));
        let run = measured(vec![
            row("ours", "100 nodes: power", "s", &samples, limit),
            row("ours", "100 nodes: address", "s", &samples, limit),
            row("peer", "100 nodes: power", "s", &samples, None),
            row("ours", "1,000 nodes: power", "s", &samples, None),
            row("ours", "100 nodes: few", "s", &samples[1..], None),
        ]);
        assert_eq!(files(&run), ["storm-100-nodes.svg", "storm-1-000-nodes.svg"]);
        let svg = &pictures(&run)[0].svg;
        for text in [">power<", ">power, peer<", ">address<", ">limit<", "at most (s)"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert_eq!(distribution(&[3.0, 1.0]), [[1.0, 50.0], [3.0, 100.0]]);
    }

    #[test]
    fn memory_is_drawn_over_the_number_of_nodes() {
        let mut run = measured(Vec::new());
        for (chapter, value) in [("storm-100", 20.0), ("storm-1000", 30.0), ("storm-5000", 60.0)] {
            for (name, _) in MEMORY {
                let of = |subject| Row { chapter: chapter.to_owned(), ..row(subject, name, "MiB", &[value], None) };
                run.rows.push(of("ours"));
                run.rows.extend((chapter == "storm-100").then(|| of("peer")));
            }
        }
        let pictures = pictures(&run);
        assert_eq!(pictures.iter().map(|picture| picture.file.as_str()).collect::<Vec<_>>(), ["storm-5000-memory.svg"]);
        let svg = &pictures[0].svg;
        assert!(svg.matches("<polyline").count() == 2 && !svg.contains("peer"), "one point is no line: {svg}");
    }

    #[test]
    fn bars_are_of_what_is_named() {
        let mut rows = vec![
            row("ours", "no nodes: resident", "MiB", &[13.0], Some(Limit::Below(15.0))),
            row("peer", "no nodes: resident", "MiB", &[], None),
            row("ours", "no nodes: of it heap", "MiB", &[5.0], None),
        ];
        rows.iter_mut().for_each(|row| row.chapter = "idle".to_owned());
        let pictures = pictures(&measured(rows));
        assert_eq!(pictures.iter().map(|picture| picture.file.as_str()).collect::<Vec<_>>(), ["idle-resident.svg"]);
        let svg = &pictures[0].svg;
        assert!(svg.contains(">no nodes<") && svg.contains("not measured") && !svg.contains("heap"), "{svg}");
    }

    #[test]
    fn numbers_of_other_units_are_other_bars() {
        let above = Some(Limit::Above(150.0));
        let mut rows = vec![
            row("ours", "decode/one", "MB/s", &[250.0, 260.0, 270.0], above),
            row("ours", "plan/one", "ns", &[2_900.0], None),
            row("ours", "queue/one", "ns each", &[500.0], None),
        ];
        rows.iter_mut().for_each(|row| row.chapter = "micro".to_owned());
        rows.push(Row { chapter: "memory".to_owned(), ..row("ours", "5000 nodes: peak", "MiB", &[51.0], None) });
        rows.push(Row { chapter: "memory".to_owned(), ..row("ours", "each node", "KiB", &[7.6], None) });
        let run = measured(rows);
        assert_eq!(files(&run), ["micro-mb-s.svg", "micro-ns.svg", "micro-ns-each.svg", "memory-bars.svg"]);
        let pictures = pictures(&run);
        let shows = |index: usize, text: &str| pictures[index].svg.contains(text);
        assert!(shows(0, ">decode/one<") && shows(0, ">limit<") && !shows(0, "plan/one"));
        assert!(shows(3, ">5000 nodes: peak<") && !shows(3, "each node"));
    }
}
