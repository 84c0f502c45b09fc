//! Counts markers of an indirect style in the texts that users read and in the sentences of the pages. The markers are in
//! `markers.txt`, the counts in `marker-counts.txt`. A count may only fall.

use crate::source::Source;
use std::collections::BTreeMap;

/// The markers and the technical terms that contain one.
pub struct Markers {
    markers: Vec<String>,
    terms: Vec<String>,
}

/// Number of texts with a marker, and of all texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkerCount {
    pub marked: usize,
    pub all: usize,
}

impl Markers {
    /// Parses `markers.txt`.
    pub fn parse(list: &str) -> Self {
        let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (terms, markers): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with('='));
        let padded = |text: &str| format!(" {text} ");
        Self {
            markers: markers.iter().map(|marker| padded(&marker.replace('^', "^ "))).collect(),
            terms: terms.iter().map(|term| padded(term.trim_start_matches('='))).collect(),
        }
    }

    /// Returns the markers in a text.
    pub fn find(&self, text: &str) -> Vec<&str> {
        let mut words = normalized(text);
        for term in &self.terms {
            words = words.replace(term, " ");
        }
        let found = self.markers.iter().filter(|marker| words.contains(*marker));
        found.map(|marker| marker.trim()).collect()
    }

    fn count<'a>(&self, texts: impl Iterator<Item = &'a str>) -> MarkerCount {
        let mut count = MarkerCount::default();
        for text in texts {
            count.all += 1;
            count.marked += usize::from(!self.find(text).is_empty());
        }
        count
    }

    /// Counts the sentences of a page. Code is no sentence.
    pub fn count_page(&self, page: &str) -> MarkerCount {
        let sentences = sentences(page);
        self.count(sentences.iter().map(String::as_str))
    }

    /// Counts the texts of product code: string literals with at least three words.
    pub fn count_literals(&self, source: &Source) -> MarkerCount {
        let literals = source.literals();
        let texts = literals.iter().filter(|literal| !literal.is_test).map(|literal| literal.text.as_str());
        self.count(texts.filter(|text| is_text(text)))
    }

    /// Counts the lines of a manifest, a chart or a dashboard.
    pub fn count_lines(&self, file: &str) -> MarkerCount {
        self.count(file.lines().filter(|line| is_text(line)))
    }
}

/// Returns the words in lower case, each between blanks, after the mark of the beginning.
fn normalized(text: &str) -> String {
    let is_part = |char: char| char.is_alphanumeric() || matches!(char, '-' | '_' | '\'');
    let words: Vec<_> =
        text.split(|char| !is_part(char)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    format!(" ^ {} ", words.join(" "))
}

fn is_text(text: &str) -> bool {
    text.split_whitespace().filter(|word| word.chars().filter(|char| char.is_alphabetic()).count() > 1).count() > 2
}

/// Splits a page into sentences and cells of tables, without code blocks and inline code.
fn sentences(page: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut is_code = false;
    let mut is_open = false;
    for line in page.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let is_prose = !is_code && !line.starts_with("```") && !line.is_empty();
        if !is_prose {
            is_open = false;
            continue;
        }
        let starts_anew = line.starts_with(['|', '#', '-', '>', '*']);
        match texts.last_mut().filter(|_| is_open && !starts_anew) {
            Some(last) => {
                last.push(' ');
                last.push_str(line);
            }
            None => texts.push(line.to_owned()),
        }
        is_open = true;
    }
    let without_code = texts.iter().map(|text| {
        let parts = text.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "x" });
        parts.collect::<String>()
    });
    let ends = |text: &str| text.replace(". ", "\n").replace("? ", "\n").replace(['|', ':', ';'], "\n");
    let split: Vec<String> = without_code.map(|text| ends(&text)).collect();
    let pieces = split.iter().flat_map(|text| text.lines()).map(str::trim).filter(|piece| is_text(piece));
    pieces.map(str::to_owned).collect()
}

/// Formats the counts of all files that have a marker.
pub fn table(counts: &BTreeMap<String, MarkerCount>) -> String {
    let head = "# Texts with a marker of markers.txt, by file. `UPDATE_GOLDEN=1 cargo test --test architecture` lowers the counts.\n";
    let marked = counts.iter().filter(|(_, count)| count.marked > 0);
    let rows: String = marked.map(|(path, count)| format!("{} {path}\n", count.marked)).collect();
    head.to_owned() + &rows
}

/// Returns the number of marked texts by file in a table of counts.
pub fn parse_table(table: &str) -> BTreeMap<&str, usize> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| {
        let (marked, path) = row.split_once(' ')?;
        Some((path, marked.parse().ok()?))
    })
    .collect()
}
