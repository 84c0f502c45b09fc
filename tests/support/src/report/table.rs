//! Writes measurements as Markdown tables that are aligned for a terminal. Pure.

use std::fmt::Write;

use super::{ENOUGH, Limit, OURS, PEER, Row, Run, TUNED, unique};

/// Number of samples from which percentiles replace minimum and maximum.
pub(super) const MANY: usize = 20;
/// Ratio up to which two numbers count as equal.
const ALIKE: f64 = 1.05;
/// Amounts by unit that are noise. A ratio of two numbers below it says nothing: the clock of processes counts 10 ms,
/// an allocator takes memory in pieces, and one call more or less depends on the moment.
const NOISE: [(&str, f64); 9] = [
    ("s", 0.1),
    ("MiB", 1.0),
    ("kB", 1.0),
    ("calls", 10.0),
    ("writes", 10.0),
    ("API requests", 10.0),
    ("a minute", 10.0),
    ("kB a minute", 1.0),
    ("% of a core", 0.1),
];

/// Explanation of a table.
pub const LEGEND: &str = "Three numbers are the least, the median and the most; of twenty samples and more, \
    percentiles. Ratios are of medians. There is no ratio of two numbers that are both noise. Every sample of ours has \
    to keep its limit. A limit with fewer than three samples shows their number.";

/// Returns a table for each chapter, below its name.
#[must_use]
pub fn tables(run: &Run) -> String {
    let chapters = run.chapters().into_iter().map(|chapter| format!("## {chapter}\n\n{}", table(run, chapter)));
    format!("{}\n{LEGEND}\n", chapters.collect::<Vec<_>>().join("\n"))
}

/// Returns one chapter: a row for each measured quantity, the subjects in columns.
#[must_use]
pub fn table(run: &Run, chapter: &str) -> String {
    let rows: Vec<&Row> = run.rows.iter().filter(|row| row.chapter == chapter).collect();
    let others = unique(rows.iter().map(|row| row.subject.as_str()).filter(|name| ![OURS, PEER, TUNED].contains(name)));
    let has_limit = rows.iter().any(|row| row.subject == OURS && row.limit.is_some());
    let peers: Vec<&str> =
        [PEER, TUNED].into_iter().filter(|peer| rows.iter().any(|row| row.subject == *peer)).collect();

    let mut heads = vec!["what".to_owned(), "unit".to_owned(), OURS.to_owned()];
    if has_limit {
        heads.push("limit".to_owned());
    }
    for peer in &peers {
        heads.extend([(*peer).to_owned(), format!("{peer} ÷ ours")]);
    }
    for other in &others {
        heads.extend([(*other).to_owned(), format!("ours ÷ {other}")]);
    }
    let mut lines = vec![heads];
    let has_own_line = |row: &&&Row| {
        let is_floor = others.contains(&row.subject.as_str());
        !is_floor || !rows.iter().any(|ours| ours.subject == OURS && ours.unit == row.unit && is_of(row, &ours.name))
    };
    for (name, unit) in unique(rows.iter().filter(has_own_line).map(|row| (row.name.as_str(), row.unit.as_str()))) {
        let of = |subject: &str| {
            let all = || rows.iter().filter(|row| row.subject == subject && row.unit == unit).copied();
            let other = || all().find(|row| others.contains(&subject) && is_of(row, name));
            all().find(|row| row.name == name).or_else(other)
        };
        let ours = of(OURS);
        let mut cells = vec![name.to_owned(), unit.to_owned(), ours.map(numbers).unwrap_or_default()];
        if has_limit {
            cells.push(ours.map(verdict).unwrap_or_default());
        }
        for peer in peers.iter().map(|peer| of(peer)) {
            cells.push(peer.map(numbers).unwrap_or_default());
            cells.push(ours.zip(peer).map(|(ours, peer)| comparison(ours, peer)).unwrap_or_default());
        }
        for other in &others {
            let other = of(other);
            cells.push(other.map(numbers).unwrap_or_default());
            cells.push(ours.zip(other).and_then(|(ours, other)| ratio(ours, other)).map(number).unwrap_or_default());
        }
        lines.push(cells.iter().map(|cell| cell.replace('|', "\\|")).collect());
    }
    aligned(&lines)
}

/// Returns true if a reference row applies to this name. It has the same name, or it covers several cases, as `before
/// the start: last` does for `before the start, 10 ms a call: last`.
fn is_of(row: &Row, name: &str) -> bool {
    let wider = |(case, what): (&str, &str)| {
        let (of, same) = row.name.split_once(": ")?;
        Some(same == what && case.strip_prefix(of)?.starts_with(", "))
    };
    row.name == name || name.split_once(": ").and_then(wider).unwrap_or(false)
}

/// Returns one sample, a few, or the percentiles of many, and the reason why a number is missing.
pub(super) fn numbers(row: &Row) -> String {
    let show = |share| number(row.quantile(share));
    let shown = match row.samples.len() {
        0 => return format!("not measured: {}", row.note.as_deref().unwrap_or("no sample")),
        1 => show(0.5),
        count if count < MANY => format!("{} / {} / {} of {count}", show(0.0), show(0.5), show(1.0)),
        count => format!("p50 {}, p99 {}, most {} of {count}", show(0.5), show(0.99), show(1.0)),
    };
    row.note.iter().fold(shown, |shown, note| format!("{shown}; once not measured: {note}"))
}

fn verdict(row: &Row) -> String {
    let word = match row.samples.len() {
        _ if row.is_missed() => "**missed**".to_owned(),
        count if count < ENOUGH => format!("met, {count} of {ENOUGH} runs"),
        _ => "met".to_owned(),
    };
    match row.limit {
        None => String::new(),
        Some(Limit::Below(limit)) => format!("< {}: {word}", number(limit)),
        Some(Limit::Above(limit)) => format!("> {}: {word}", number(limit)),
    }
}

/// Returns the peer's median as a multiple of ours, and which of both is better.
fn comparison(ours: &Row, peer: &Row) -> String {
    let Some(ratio) = ratio(peer, ours) else { return String::new() };
    let is_peer_better = if ours.is_more_better() { ratio > 1.0 } else { ratio < 1.0 };
    let who = match () {
        () if ratio < ALIKE && ratio > 1.0 / ALIKE => "alike",
        () if is_peer_better => "peer is better",
        () => "ours is better",
    };
    format!("{}, {who}", number(ratio))
}

/// Returns the ratio of the medians. Returns `None` if it has no meaning: for a negative amount, or for two amounts
/// that are both noise.
pub(super) fn ratio(one: &Row, other: &Row) -> Option<f64> {
    let is_amount = one.median() >= 0.0 && other.median() >= 0.0;
    let noise = NOISE.iter().find(|(unit, _)| *unit == one.unit).map_or(0.0, |(_, most)| *most);
    let is_noise = one.median() < noise && other.median() < noise;
    Some(one.median() / other.median()).filter(|ratio| is_amount && !is_noise && ratio.is_finite())
}

/// Formats a number with its significant digits: `0.013`, `1.20`, `13.4`, `134`, `12,345`. Whole numbers stay whole.
pub(super) fn number(number: f64) -> String {
    let size = number.abs();
    let is_whole = size.fract() == 0.0;
    match size {
        _ if !size.is_finite() => "–".to_owned(),
        _ if is_whole && size < 1000.0 => format!("{number:.0}"),
        _ if size < 0.1 => format!("{number:.3}"),
        _ if size < 10.0 => format!("{number:.2}"),
        _ if size < 100.0 => format!("{number:.1}"),
        _ => grouped(number),
    }
}

fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 { format!("-{text}") } else { text }
}

/// Aligns the lines as a table. The first line is the header.
pub(super) fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!(" {cell:width$} "));
        let _ = writeln!(text, "|{}|", cells.collect::<Vec<_>>().join("|"));
        if index == 0 {
            let bars = widths.iter().map(|width| "-".repeat(width + 2));
            let _ = writeln!(text, "|{}|", bars.collect::<Vec<_>>().join("|"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{measured, row};

    #[test]
    fn a_chapter_has_its_subjects_side_by_side() {
        let run = measured(vec![
            row("ours", "last node", "s", &[3.0, 0.5, 1.25], Some(Limit::Below(2.0))),
            row("ours", "calls", "", &[1045.0], None),
            row("floor", "last node", "s", &[0.5], None),
            row("peer", "last node", "s", &[12.5], None),
            Row { note: Some("it did not end within 300 s".into()), ..row("peer", "calls", "", &[], None) },
        ]);
        let expected = "\
| what      | unit | ours                    | limit           | peer                                      | peer ÷ ours          | floor | ours ÷ floor |
|-----------|------|-------------------------|-----------------|-------------------------------------------|----------------------|-------|--------------|
| last node | s    | 0.50 / 1.25 / 3 of 3    | < 2: **missed** | 12.5                                      | 10, ours is better   | 0.50  | 2.50         |
| calls     |      | 1,045                   |                 | not measured: it did not end within 300 s |                      |       |              |
";
        // The column widths are those of the longest cells, so the test ignores spaces.
        let squeeze =
            |text: &str| text.split_whitespace().filter(|word| !word.contains("--")).collect::<Vec<_>>().join(" ");
        let text = table(&run, "storm");
        assert_eq!(squeeze(&text), squeeze(expected), "\n{text}");
        let widths: Vec<_> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "\n{text}");
        assert_eq!(table(&run, "idle").lines().count(), 2, "another chapter is another table");
    }

    #[test]
    fn a_floor_of_several_cases_stands_beside_each() {
        let run = measured(vec![
            row("floor", "before: last", "s", &[2.0], None),
            row("floor", "before: CPU of etcd", "s", &[5.0], None),
            row("ours", "before, 0 ms: last", "s", &[3.0], None),
            row("ours", "before, 10 ms: last", "s", &[4.0], None),
            row("ours", "while, 10 ms: last", "s", &[4.0], None),
        ]);
        let text = table(&run, "storm");
        let lines: Vec<String> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "| before: CPU of etcd | s | | 5 | |",
            "| before, 0 ms: last | s | 3 | 2 | 1.50 |",
            "| before, 10 ms: last | s | 4 | 2 | 2 |",
            "| while, 10 ms: last | s | 4 | | |",
        ];
        assert_eq!(lines, expected, "\n{text}");
    }

    #[test]
    fn columns_that_nothing_fills_are_left_out() {
        let text = table(&measured(vec![row("ours", "binary", "MB", &[11.23], None)]), "storm");
        assert_eq!(text, "| what   | unit | ours |\n|--------|------|------|\n| binary | MB   | 11.2 |\n");
    }

    #[test]
    fn it_says_who_is_better() {
        let cases = [
            ("s", 1.0, 2.0, "2, ours is better"),
            ("s", 2.0, 1.0, "0.50, peer is better"),
            ("s", 1.0, 1.04, "1.04, alike"),
            ("MB/s", 1.0, 2.0, "2, peer is better"),
            ("MB/s", 2.0, 1.0, "0.50, ours is better"),
            ("s", 0.0, 1.0, ""),
            ("MiB", -0.11, 0.008, ""),
            ("MiB", 0.11, -0.008, ""),
            ("s", 0.02, 0.09, ""),
            ("s", 0.02, 0.5, "25, ours is better"),
            ("calls", 9.0, 3.0, ""),
            ("calls", 9.0, 18.0, "2, ours is better"),
        ];
        for (unit, ours, peer, expected) in cases {
            let (ours, peer) = (row("ours", "x", unit, &[ours], None), row("peer", "x", unit, &[peer], None));
            assert_eq!(comparison(&ours, &peer), expected, "{unit}");
        }
    }

    #[test]
    fn a_limit_counts_as_met_from_three_samples_on() {
        let limit = Some(Limit::Below(2.0));
        let cases = [
            (&[1.0][..], None, "< 2: met, 1 of 3 runs"),
            (&[1.0, 1.5, 1.2], None, "< 2: met"),
            (&[1.0, 2.5, 1.2], None, "< 2: **missed**"),
            (&[1.0, 1.5], Some("it ended"), "< 2: **missed**"),
        ];
        for (samples, note, expected) in cases {
            let row = Row { note: note.map(str::to_owned), ..row("ours", "x", "s", samples, limit) };
            assert_eq!(verdict(&row), expected, "{samples:?}");
        }
    }

    #[test]
    fn both_peers_stand_beside_ours() {
        let of = |subject, value| row(subject, "last", "s", &[value], None);
        let text = table(&measured(vec![of("ours", 2.0), of("peer", 20.0), of("tuned peer", 8.0)]), "storm");
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0], "| what | unit | ours | peer | peer ÷ ours | tuned peer | tuned peer ÷ ours |");
        assert_eq!(lines[2], "| last | s | 2 | 20 | 10, ours is better | 8 | 4, ours is better |");
    }

    #[test]
    fn many_samples_are_percentiles() {
        let samples: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(numbers(&row("ours", "x", "ms", &samples, None)), "p50 101, p99 198, most 200 of 200");
    }

    #[test]
    fn numbers_have_the_digits_that_say_something() {
        let cases = [
            (0.0, "0"),
            (7.0, "7"),
            (0.0129, "0.013"),
            (1.2, "1.20"),
            (13.41, "13.4"),
            (134.6, "135"),
            (12_345.6, "12,346"),
            (-1_000.0, "-1,000"),
            (1_234_567.0, "1,234,567"),
            (f64::NAN, "–"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(value), expected);
        }
    }
}
