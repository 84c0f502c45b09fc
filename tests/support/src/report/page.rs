//! The pages with measured numbers: text between their marks is generated from the stored runs. Pure.
//!
//! A mark is `<!-- measured: CHAPTER -->` on a line of its own, and ends with `<!-- end -->`. `runs` marks the list of
//! runs, and three marks are for users: `ten rows`, `three plots` and `comparison`. Text outside of marks is written
//! by hand and does not change. One page has every chapter; the others have only what their marks name.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::pictures::{Picture, pictures};
use super::table::{LEGEND, number, table};
use super::{Facts, Run};

/// Folder of the plots, relative to the page of all measurements, and to a page for users.
const FOLDER: &str = "../performance";
const FOLDER_OF_USERS: &str = "performance";
/// The list of runs, relative to a page for users.
const LIST_OF_RUNS: &str = "contribute/measurements.md#the-runs";
const BEGIN: &str = "<!-- measured: ";
const END: &str = "<!-- end -->";
/// Mark of the list of runs.
const RUNS: &str = "runs";

/// The runs that a page shows. Each chapter is in exactly one of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Runs, the oldest first.
    pub runs: Vec<Run>,
}

impl Record {
    /// Adds a run. Its chapters replace those of earlier runs. A run without chapters is removed.
    pub fn add(&mut self, run: Run) {
        let new: Vec<String> = run.chapters().into_iter().map(str::to_owned).collect();
        for old in &mut self.runs {
            old.rows.retain(|row| !new.contains(&row.chapter));
            old.curves.retain(|curve| !new.contains(&curve.chapter));
            old.seconds.retain(|chapter, _| !new.contains(chapter));
        }
        self.runs.push(run);
        self.runs.retain(|run| !run.chapters().is_empty());
    }

    /// Returns the record as JSON, with a line for each measured quantity.
    ///
    /// # Errors
    ///
    /// If a number cannot be written, which is impossible for one that was read.
    pub fn json(&self) -> serde_json::Result<String> {
        let mut runs = Vec::new();
        for run in &self.runs {
            let Run { facts, rows, curves, seconds } = run;
            let (facts, seconds) = (serde_json::to_string(facts)?, serde_json::to_string(seconds)?);
            runs.push(format!(
                "{{\"facts\": {facts},\n\"seconds\": {seconds},\n\"rows\": {},\n\"curves\": {}}}",
                lines(rows)?,
                lines(curves)?
            ));
        }
        Ok(format!("{{\"runs\": [\n{}\n]}}\n", runs.join(",\n")))
    }

    /// Returns all plots.
    #[must_use]
    pub fn pictures(&self) -> Vec<Picture> {
        self.runs.iter().flat_map(pictures).collect()
    }

    /// Returns the page of all measurements with new text between its marks.
    ///
    /// # Errors
    ///
    /// A sentence, if a mark does not end, or a measured chapter has no mark.
    pub fn page(&self, page: &str) -> Result<String, String> {
        let (text, marked) = self.filled(page, FOLDER)?;
        let all = self.runs.iter().flat_map(Run::chapters).chain([RUNS]);
        match all.filter(|chapter| !marked.contains(chapter)).collect::<Vec<_>>().as_slice() {
            [] => Ok(text),
            missing => Err(format!("the page has no mark for {}", missing.join(", "))),
        }
    }

    /// Returns a page for users with new text between its marks.
    ///
    /// # Errors
    ///
    /// A sentence, if a mark does not end, or the page has none.
    pub fn page_for_users(&self, page: &str) -> Result<String, String> {
        let (text, marked) = self.filled(page, FOLDER_OF_USERS)?;
        if marked.is_empty() { Err("the page has no mark".to_owned()) } else { Ok(text) }
    }

    /// Returns the page with new text between its marks, and the names of the marks.
    fn filled<'page>(&self, page: &'page str, folder: &str) -> Result<(String, Vec<&'page str>), String> {
        let (mut text, mut rest, mut marked) = (String::new(), page, Vec::new());
        while let Some((before, after)) = rest.split_once(BEGIN) {
            let (chapter, after) = after.split_once(" -->").ok_or("a mark is not closed")?;
            let (_, after) = after.split_once(END).ok_or_else(|| format!("the mark of {chapter} has no {END}"))?;
            let body = match chapter {
                RUNS => self.named(),
                "ten rows" => self.ten_rows(LIST_OF_RUNS),
                "three plots" => self.three_plots(folder),
                "comparison" => self.comparison_with_upstream(),
                _ => self.chapter(chapter, folder),
            };
            let _ = write!(text, "{before}{BEGIN}{chapter} -->\n\n{body}\n{END}");
            rest = after;
            marked.push(chapter);
        }
        text.push_str(rest);
        Ok((text, marked))
    }

    fn chapter(&self, chapter: &str, folder: &str) -> String {
        let Some((index, run)) = self.runs.iter().enumerate().find(|(_, run)| run.chapters().contains(&chapter)) else {
            return "Not measured yet.\n".to_owned();
        };
        let which = (self.runs.len() > 1).then(|| format!("Run {}.", index + 1));
        let took = run.seconds.get(chapter).map(|seconds| format!("It took {} s.", number(seconds.round())));
        let said = which.into_iter().chain(took).collect::<Vec<_>>().join(" ");
        let mut text = if said.is_empty() { said } else { format!("{said}\n\n") };
        text.push_str(&table(run, chapter));
        for picture in pictures(run).iter().filter(|picture| picture.chapter == chapter) {
            let _ = write!(text, "\n![{}]({folder}/{})\n", picture.title, picture.file);
        }
        text
    }

    fn named(&self) -> String {
        let mut text = String::new();
        for (index, run) in self.runs.iter().enumerate() {
            let _ = writeln!(text, "{}. {}", index + 1, named(&run.facts, &run.chapters()));
        }
        format!("{text}\n{LEGEND}\n")
    }
}

/// Describes one run in some sentences.
fn named(facts: &Facts, chapters: &[&str]) -> String {
    let Facts { command, date, revision, is_clean, cores, cpu, memory, kernel, versions, settings: _ } = facts;
    let or_unknown = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
    let short: String = or_unknown(revision).chars().take(12).collect();
    let state = if *is_clean { "" } else { " with changes" };
    let versions = versions.iter().map(|(name, version)| format!("{name}: {}", or_unknown(version)));
    format!(
        "`{command}` on {date}, revision `{short}`{state}; {cores} cores ({}), {:.1} GiB of memory, {}. {}. Chapters: {}.",
        or_unknown(cpu),
        *memory as f64 / 1024.0,
        or_unknown(kernel),
        versions.collect::<Vec<_>>().join("; "),
        chapters.join(", ")
    )
}

fn lines<T: Serialize>(all: &[T]) -> serde_json::Result<String> {
    let lines = all.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(if lines.is_empty() { "[]".to_owned() } else { format!("[\n{}\n]", lines.join(",\n")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{measured, row};

    const PAGE: &str = "# Title\n\n<!-- measured: runs -->\nold\n<!-- end -->\nProse.\n\n\
                        <!-- measured: storm -->\nold\n<!-- end -->\n\nMore prose.\n\
                        <!-- measured: idle -->\n<!-- end -->\n";

    fn record() -> Record {
        let mut record = Record::default();
        record.add(measured(vec![row("ours", "last", "s", &[1.5], None)]));
        record
    }

    #[test]
    fn what_is_between_marks_is_made_anew_and_the_rest_stays() {
        let page = record().page(PAGE).unwrap();
        for part in
            ["# Title\n", "<!-- end -->\nProse.\n", "\nMore prose.\n", "| last | s    | 1.50 |\n", "Not measured yet."]
        {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("old") && !page.contains("It took"), "{page}");
        assert_eq!(record().page(&page).unwrap(), page, "made twice it is the same");
    }

    #[test]
    fn a_page_without_a_place_for_what_was_measured_is_told() {
        let cases = [
            ("<!-- measured: runs --><!-- end -->", "the page has no mark for storm"),
            ("<!-- measured: storm --><!-- end -->", "the page has no mark for runs"),
            ("<!-- measured: storm -->", "the mark of storm has no <!-- end -->"),
            ("<!-- measured: storm", "a mark is not closed"),
        ];
        for (page, expected) in cases {
            assert_eq!(record().page(page), Err(expected.to_owned()));
        }
    }

    #[test]
    fn a_page_for_users_has_the_rows_that_its_marks_name() {
        let page = "Begin\n<!-- measured: ten rows -->\nold\n<!-- end -->\nEnd\n";
        let text = record().page_for_users(page).unwrap();
        assert!(
            text.starts_with("Begin\n") && text.ends_with("<!-- end -->\nEnd\n") && !text.contains("old"),
            "{text}"
        );
        assert!(text.contains("| this program |"), "{text}");
        assert_eq!(record().page_for_users("no mark"), Err("the page has no mark".to_owned()));
    }

    #[test]
    fn a_later_run_replaces_the_chapters_it_has() {
        let mut record = record();
        let other = |chapter: &str, value| {
            let mut row = row("ours", "last", "s", &[value], None);
            chapter.clone_into(&mut row.chapter);
            row
        };
        record.add(measured(vec![other("idle", 1.0)]));
        assert_eq!(record.runs.iter().map(Run::chapters).collect::<Vec<_>>(), [["storm"], ["idle"]]);
        assert!(record.page(PAGE).unwrap().contains("Run 2.\n"));
        let mut last = measured(vec![other("storm", 7.0), other("idle", 2.0)]);
        last.seconds.insert("idle".into(), 1_234.5);
        record.add(last);
        assert_eq!(record.runs.len(), 1);
        assert_eq!(record.runs[0].rows[0].samples, [7.0]);
        assert!(record.page(PAGE).unwrap().contains("<!-- measured: idle -->\n\nIt took 1,235 s.\n\n"));
        record.add(measured(vec![other("idle", 3.0)]));
        assert!(record.runs[0].seconds.is_empty(), "the time of a run that is replaced is gone");
    }

    #[test]
    fn the_record_is_read_as_it_was_written() {
        let mut record = record();
        record.runs[0].facts.versions.insert("etcd".into(), "1".into());
        record.runs[0].seconds.insert("storm".into(), 187.25);
        let text = record.json().unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        assert_eq!(text.lines().filter(|line| line.contains("\"last\"")).count(), 1);
    }
}
