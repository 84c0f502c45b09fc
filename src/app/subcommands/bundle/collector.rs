//! Asks the running process for the parts of a bundle, and writes the archive while the parts arrive. So a command in
//! the container of the process needs little memory of the container.

use super::BundleOptions;
use crate::app::inquiries::protocol::{Answer, Question, version};
use crate::app::reports::Verdict;
use crate::app::reports::bundle::anonymiser::Anonymiser;
use crate::app::reports::bundle::{
    BundleManifest, BundlePart, BundlePartState, PartContent, PartPage, PartSummary, archive,
};
use crate::app::subcommands::arguments::CommonOptions;
use crate::app::subcommands::{CommandOutput, USAGE_ERROR, process_client};
use jiff::{Timestamp, Unit};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Time limit of one page.
const PAGE_LIMIT: Duration = Duration::from_secs(30);

/// Part of the archive that is kept for the manifest and the end, in bytes.
const RESERVE: usize = 16 << 10;

/// Maximum number of pages of a part, in case that the process never sends a last one.
const MAX_PAGES: usize = 1_000;

/// The part of the log that is tried first if the log does not fit, as a divisor of its size.
const LOG_CUT: usize = 2;

/// Smallest part of the log that is worth a file, in bytes.
const LEAST_LOG: usize = 16 << 10;

/// The note of a part that is cut or left out.
const TOO_LARGE: &str = "because of --max-size";

/// Reason why there is no archive, or no complete one.
pub(super) enum BundleFailure {
    /// The process did not answer the first question.
    NoAnswer(CommandOutput),
    /// The archive cannot be written.
    Archive(io::Error),
}

impl BundleFailure {
    /// Returns the output of the command.
    pub(super) fn output(self) -> CommandOutput {
        match self {
            Self::NoAnswer(output) => output,
            Self::Archive(error) => CommandOutput::failure(
                &format!("the archive cannot be written: {error}"),
                Verdict::Incomplete.exit_code(),
            ),
        }
    }
}

/// Collects a bundle.
pub(super) struct BundleCollector<'a> {
    options: &'a BundleOptions,
    /// The end of the time of the whole command.
    end: Instant,
    time: Timestamp,
    anonymiser: Option<Anonymiser>,
}

impl<'a> BundleCollector<'a> {
    /// Creates the collector. With `--anonymise`, asks for the names.
    ///
    /// # Errors
    /// The output of the command if there is no answer.
    pub(super) fn new(options: &'a BundleOptions) -> Result<Self, CommandOutput> {
        let now = Timestamp::now();
        let mut collector = Self {
            options,
            end: Instant::now() + options.common.timeout,
            time: now.round(Unit::Second).unwrap_or(now),
            anonymiser: None,
        };
        if options.is_anonymised {
            let names = collector.ask(&Question::BundleNames, |answer| match answer {
                Answer::BundleNames(names) => Some(names),
                _ => None,
            })?;
            collector.anonymiser = Some(Anonymiser::new(&names));
        }
        Ok(collector)
    }

    /// Returns the name of each token in the bundle.
    pub(super) fn map(&self) -> &BTreeMap<String, String> {
        static EMPTY: BTreeMap<String, String> = BTreeMap::new();
        self.anonymiser.as_ref().map_or(&EMPTY, Anonymiser::map)
    }

    /// Writes the archive with all parts that fit. Returns its manifest, which the archive also has.
    pub(super) fn write(&mut self, output: impl Write) -> Result<BundleManifest, BundleFailure> {
        let limit = self.options.max_size.saturating_sub(RESERVE);
        let mut archive = ArchiveOutput { output, written: 0, limit, time: self.time.as_second() };
        let mut parts = Vec::new();
        for part in BundlePart::ALL {
            parts.push(self.add_part(&mut archive, part)?);
        }
        let manifest = BundleManifest {
            version: version(),
            time: self.time,
            is_anonymised: self.options.is_anonymised,
            max_size: self.options.max_size,
            parts,
        };
        let text: String = manifest.lines().iter().map(|line| format!("{}\n", line.text())).collect();
        archive.limit = self.options.max_size;
        archive.add("manifest.txt", text.as_bytes()).and_then(|_| archive.finish()).map_err(BundleFailure::Archive)?;
        Ok(manifest)
    }

    /// Adds all pages of a part that fit.
    fn add_part(
        &mut self,
        archive: &mut ArchiveOutput<impl Write>,
        part: BundlePart,
    ) -> Result<PartSummary, BundleFailure> {
        let mut summary =
            PartSummary { part, files: 0, size: 0, state: BundlePartState::Complete, note: String::new() };
        let mut from = None;
        for number in 1..=MAX_PAGES {
            let PartPage { content, next, gap } = match self.page(part, from.take()) {
                Ok(page) => page,
                // Without a process there is no archive at all.
                Err(output) if output.exit_code == USAGE_ERROR && archive.written == 0 => {
                    return Err(BundleFailure::NoAnswer(output));
                }
                Err(output) => {
                    let reason = output.messages.trim_start_matches("error: ").trim_end().to_owned();
                    PartPage::only(PartContent::Unread(reason))
                }
            };
            let is_added = self.add_page(archive, &mut summary, content, number).map_err(BundleFailure::Archive)?;
            if let Some(reason) = gap.filter(|_| summary.state == BundlePartState::Complete) {
                (summary.state, summary.note) = (BundlePartState::Failed, self.anonymised(reason));
            }
            from = next;
            if !is_added || from.is_none() {
                break;
            }
        }
        if from.is_some() && summary.state == BundlePartState::Complete {
            summary.state = BundlePartState::Failed;
            summary.note = "the process sent too many pages".to_owned();
        }
        Ok(summary)
    }

    /// Adds a page of a part. Returns whether there is room for more.
    fn add_page(
        &mut self,
        archive: &mut ArchiveOutput<impl Write>,
        summary: &mut PartSummary,
        content: PartContent,
        number: usize,
    ) -> io::Result<bool> {
        let content = match content {
            PartContent::Document(document) => {
                let document = match &mut self.anonymiser {
                    Some(anonymiser) => anonymiser.document(document),
                    None => document,
                };
                format!("{document:#}\n")
            }
            PartContent::Lines(text) => self.anonymised(text),
            PartContent::Unavailable(reason) => {
                (summary.state, summary.note) = (BundlePartState::Unavailable, self.anonymised(reason));
                return Ok(false);
            }
            PartContent::Unread(reason) => {
                (summary.state, summary.note) = (BundlePartState::Failed, self.anonymised(reason));
                return Ok(false);
            }
        };
        let (name, extension) = summary.part.file();
        let name = match summary.part.has_pages() {
            true => format!("{name}-{number:03}.{extension}"),
            false => format!("{name}.{extension}"),
        };
        let mut content = content.as_str();
        let mut is_whole = true;
        while !archive.add(&name, content.as_bytes())? {
            is_whole = false;
            // The end of the log is worth more than its beginning.
            content = match summary.part {
                BundlePart::Log if content.len() / LOG_CUT >= LEAST_LOG => end_of(content, content.len() / LOG_CUT),
                _ => {
                    let state = if summary.files > 0 { BundlePartState::Cut } else { BundlePartState::LeftOut };
                    (summary.state, summary.note) = (state, TOO_LARGE.to_owned());
                    return Ok(false);
                }
            };
        }
        if !is_whole {
            (summary.state, summary.note) = (BundlePartState::Cut, TOO_LARGE.to_owned());
        }
        summary.files += 1;
        summary.size += content.len();
        Ok(true)
    }

    fn anonymised(&mut self, text: String) -> String {
        match &mut self.anonymiser {
            Some(anonymiser) => anonymiser.text(&text),
            None => text,
        }
    }

    fn page(&self, part: BundlePart, from: Option<String>) -> Result<PartPage, CommandOutput> {
        self.ask(&Question::BundlePart { part, from }, |answer| match answer {
            Answer::BundlePart(page) => Some(*page),
            _ => None,
        })
    }

    fn ask<T>(&self, question: &Question, read: impl FnOnce(Answer) -> Option<T>) -> Result<T, CommandOutput> {
        let left = self.end.saturating_duration_since(Instant::now());
        let options = CommonOptions { timeout: left.min(PAGE_LIMIT), waits: false, ..self.options.common.clone() };
        process_client::ask(question, &options, read)
    }
}

/// Returns the end of the text, from the beginning of a line.
fn end_of(text: &str, size: usize) -> &str {
    let start = text.ceil_char_boundary(text.len().saturating_sub(size));
    let end = text.get(start..).unwrap_or_default();
    end.split_once('\n').map_or(end, |(_, lines)| lines)
}

/// The archive on its way to the output.
struct ArchiveOutput<W> {
    output: W,
    /// Number of written bytes.
    written: usize,
    /// Maximum number of written bytes, without the end of the archive.
    limit: usize,
    /// Time of the files, in seconds since 1970.
    time: i64,
}

impl<W: Write> ArchiveOutput<W> {
    /// Adds a file. Returns whether it fits; otherwise, nothing is written.
    fn add(&mut self, name: &str, content: &[u8]) -> io::Result<bool> {
        let member = archive::member(name, content, self.time)?;
        if self.written + member.len() > self.limit {
            return Ok(false);
        }
        self.write(&member)?;
        Ok(true)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write(&archive::end()?)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)?;
        self.output.flush()?;
        self.written += bytes.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn options(max_size: usize) -> BundleOptions {
        let arguments = crate::app::subcommands::arguments::command("probe", "", "");
        let (common, _) = crate::app::subcommands::arguments::parse(arguments, &[]).unwrap();
        BundleOptions { common, is_anonymised: false, max_size }
    }

    fn collector(options: &BundleOptions, anonymiser: Option<Anonymiser>) -> BundleCollector<'_> {
        BundleCollector { options, end: Instant::now(), time: Timestamp::UNIX_EPOCH, anonymiser }
    }

    fn archive_of(limit: usize) -> ArchiveOutput<Vec<u8>> {
        ArchiveOutput { output: Vec::new(), written: 0, limit, time: 0 }
    }

    fn summary(part: BundlePart) -> PartSummary {
        PartSummary { part, files: 0, size: 0, state: BundlePartState::Complete, note: String::new() }
    }

    /// Returns text that does not become smaller.
    fn noise(size: usize) -> String {
        let mut random = fastrand::Rng::with_seed(7);
        let line = |_| format!("{}\n", std::iter::repeat_with(|| random.alphanumeric()).take(99).collect::<String>());
        (0..size / 100).map(line).collect()
    }

    #[test]
    fn the_log_is_cut_to_its_end_and_other_parts_are_left_out_if_they_do_not_fit() {
        let options = options(1 << 20);
        let mut collector = collector(&options, None);
        let log = noise(400 << 10);
        let mut archive = archive_of(100 << 10);
        let mut of_log = summary(BundlePart::Log);
        assert!(collector.add_page(&mut archive, &mut of_log, PartContent::Lines(log.clone()), 1).unwrap());
        assert_eq!((of_log.state, of_log.files, of_log.note.as_str()), (BundlePartState::Cut, 1, TOO_LARGE));
        assert!((LEAST_LOG..log.len() / 2).contains(&of_log.size), "{}", of_log.size);
        assert!(end_of(&log, of_log.size + 50).len() >= of_log.size, "the end is kept");

        let mut of_metrics = summary(BundlePart::Metrics);
        assert!(!collector.add_page(&mut archive, &mut of_metrics, PartContent::Lines(log), 1).unwrap());
        assert_eq!((of_metrics.state, of_metrics.files), (BundlePartState::LeftOut, 0));
        let mut of_nodes = summary(BundlePart::Nodes);
        let small = PartContent::Document(json!([{"name": "worker-1"}]));
        assert!(collector.add_page(&mut archive, &mut of_nodes, small, 1).unwrap());
        let large = PartContent::Document(json!(noise(200 << 10)));
        assert!(!collector.add_page(&mut archive, &mut of_nodes, large, 2).unwrap());
        assert_eq!((of_nodes.state, of_nodes.files), (BundlePartState::Cut, 1));
        assert!(archive.written <= archive.limit && archive.output.len() == archive.written);
    }

    #[test]
    fn what_the_process_cannot_read_is_a_note_without_names() {
        let options = options(1 << 20);
        let mut collector = collector(&options, Some(Anonymiser::new(&[])));
        for (content, state) in [
            (PartContent::Unavailable("10.0.0.7 forbids it".to_owned()), BundlePartState::Unavailable),
            (PartContent::Unread("10.0.0.7 forbids it".to_owned()), BundlePartState::Failed),
        ] {
            let mut of_events = summary(BundlePart::Events);
            assert!(!collector.add_page(&mut archive_of(1 << 20), &mut of_events, content, 1).unwrap());
            assert_eq!((of_events.state, of_events.note.as_str()), (state, "ip_1 forbids it"));
        }
        assert_eq!(collector.map(), &BTreeMap::from([("ip_1".to_owned(), "10.0.0.7".to_owned())]));
    }

    #[test]
    fn the_end_of_a_text_begins_with_a_line() {
        assert_eq!(end_of("a\nbc\nd\n", 4), "d\n");
        assert_eq!(end_of("é\nd\n", 4), "d\n");
        assert_eq!(end_of("a\n", 9), "");
    }
}
