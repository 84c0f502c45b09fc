//! Errors and warnings of a configuration, each with its location and what is expected.

use std::collections::BTreeMap;

use super::fields::{Dialect, NamedSection, RawSection};
use super::names::{UnknownName, unknown_key, unknown_section};
use super::optional_sections::PartName;

/// Maximum number of errors, and of warnings, that are reported individually.
const MAX_REPORTED: usize = 100;

/// Maximum number of errors, and of warnings, that are kept; further ones are only counted.
const MAX_KEPT: usize = 1000;

/// An error or a warning. It names a location and never repeats a value: values may be passwords.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {expected}", self.place())]
pub struct ConfigProblem {
    /// The file, as given by the caller; `environment` for a variable, whose name is then the key.
    pub file: String,
    /// The line, from 1, if known.
    pub line: Option<usize>,
    /// The section, as written in the dialect of the file, for example `[Global]` or `vcenter.a`.
    pub section: Option<String>,
    /// The key, as written in the dialect of the file.
    pub key: Option<String>,
    /// The expectation, or the warning.
    pub expected: String,
}

impl ConfigProblem {
    /// File, line, section and key, for example `vsphere.conf:4: nodes.internalVmNetworkName`.
    pub fn place(&self) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        let inside = match (&self.section, &self.key) {
            (Some(section), Some(key)) if section.starts_with('[') => format!(": {section} {key}"),
            (Some(section), Some(key)) => format!(": {section}.{key}"),
            (Some(name), None) | (None, Some(name)) => format!(": {name}"),
            (None, None) => String::new(),
        };
        format!("{}{line}{inside}", self.file)
    }
}

/// Why a configuration is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ConfigErrors {
    /// All errors, in line order; at least one.
    pub errors: Vec<ConfigProblem>,
    /// The warnings, in line order: often the cause of an error, such as a mistyped section name.
    pub warnings: Vec<ConfigProblem>,
}

/// Locations of file names, for errors found when these files are read; formatted as [`ConfigProblem::place`].
#[derive(Clone, Debug, Default)]
pub struct FilePlaces {
    vcenters: BTreeMap<String, String>,
    nsx: BTreeMap<&'static str, String>,
}

impl FilePlaces {
    /// The location of the CA files of this vCenter entry: in the entry, or in the section from which it inherits them.
    pub fn ca_file(&self, vcenter: &str) -> Option<&str> {
        self.vcenters.get(vcenter).map(String::as_str)
    }

    /// The location of this key of the section NSXT; the key is in its INI form.
    pub fn nsx(&self, key: &str) -> Option<&str> {
        self.nsx.get(key).map(String::as_str)
    }
}

/// Collects errors and warnings while a file is read.
pub(super) struct ProblemReport {
    file: String,
    problems: GatheredProblems,
    warnings: GatheredProblems,
    /// Whether the whole file could be read, so that absent keys count as missing.
    pub is_readable: bool,
    /// The locations of file names.
    files: FilePlaces,
    /// The parts with errors.
    rejected: Vec<PartName>,
    /// Whether an error invalidates the whole file, including one that is only counted.
    is_refused_as_a_whole: bool,
}

/// Warnings and errors of a file that is valid as a whole.
#[derive(Debug)]
pub(super) struct Findings {
    pub warnings: Vec<ConfigProblem>,
    /// The errors of optional parts.
    pub rejected: Vec<(PartName, ConfigProblem)>,
    /// The locations of file names.
    pub files: FilePlaces,
}

/// The first problems of one kind, and the number of the others.
#[derive(Default)]
struct GatheredProblems {
    problems: Vec<(Option<PartName>, ConfigProblem)>,
    omitted: usize,
}

impl GatheredProblems {
    fn push(&mut self, part: Option<PartName>, problem: ConfigProblem) {
        if self.problems.len() < MAX_KEPT {
            self.problems.push((part, problem));
        } else {
            self.omitted += 1;
        }
    }
}

impl ProblemReport {
    pub fn new(file: &str) -> Self {
        let (problems, warnings) = (GatheredProblems::default(), GatheredProblems::default());
        Self {
            file: file.to_owned(),
            problems,
            warnings,
            is_readable: true,
            files: FilePlaces::default(),
            rejected: Vec::new(),
            is_refused_as_a_whole: false,
        }
    }

    /// Whether a part has errors so far.
    pub fn is_refused(&self, part: PartName) -> bool {
        self.rejected.contains(&part)
    }

    pub fn count(&self) -> usize {
        self.problems.problems.len() + self.problems.omitted
    }

    fn push(&mut self, part: Option<PartName>, problem: ConfigProblem) {
        match part {
            None => self.is_refused_as_a_whole = true,
            Some(part) if !self.rejected.contains(&part) => self.rejected.push(part),
            Some(_) => {}
        }
        self.problems.push(part, problem);
    }

    /// An error of the whole file, or one that makes a part of the file unreadable.
    pub fn error(&mut self, line: Option<usize>, expected: impl Into<String>) {
        self.is_readable = false;
        self.push(None, place(&self.file, line, None, None, expected));
    }

    /// An error at a key of a section, or at the section.
    pub fn error_at(&mut self, section: &RawSection, key: Option<&str>, expected: impl Into<String>) {
        self.push(section.part, self.place_at(section, key, expected));
    }

    /// An error in a line that is not yet added to the section.
    pub fn error_within(&mut self, section: &RawSection, line: usize, key: Option<&str>, expected: &str) {
        let key = key.map(|key| section.shown_key(key));
        self.push(section.part, place(&self.file, Some(line), Some(&section.shown), key.as_deref(), expected));
    }

    /// An error of a vCenter without a name.
    pub fn error_in(&mut self, line: usize, section: &str, key: Option<&str>, expected: impl Into<String>) {
        self.push(None, place(&self.file, Some(line), Some(section), key, expected));
    }

    /// An error of all vCenters or classes.
    pub fn error_of_named(&mut self, which: NamedSection, line: usize, dialect: Dialect, expected: &str) {
        let shown = if dialect == Dialect::Ini { format!("[{}]", which.ini()) } else { which.yaml().to_owned() };
        self.push(which.part(), place(&self.file, Some(line), Some(&shown), None, expected));
    }

    pub fn error_of_variable(&mut self, part: Option<PartName>, variable: &str, expected: &str) {
        self.push(part, place_of_variable(variable, expected));
    }

    pub fn warn_of_variable(&mut self, variable: &str, odd: impl Into<String>) {
        self.warnings.push(None, place_of_variable(variable, odd));
    }

    /// A warning about a key of a section, or about the section.
    pub fn warn_at(&mut self, section: &RawSection, key: Option<&str>, odd: impl Into<String>) {
        self.warnings.push(None, self.place_at(section, key, odd));
    }

    /// A warning about a line that is not yet added to the section.
    pub fn warn_within(&mut self, section: &RawSection, line: usize, key: &str, odd: impl Into<String>) {
        let key = section.shown_key(key);
        self.warnings.push(None, place(&self.file, Some(line), Some(&section.shown), Some(&key), odd));
    }

    pub fn warn_of_line(&mut self, line: usize, odd: &str) {
        self.warnings.push(None, place(&self.file, Some(line), None, None, odd));
    }

    /// A warning that the key has an earlier value, in the line `first`, which is ignored.
    pub fn warn_of_second(&mut self, section: &RawSection, line: usize, key: &str, first: Option<usize>) {
        if let Some(first) = first {
            self.warn_within(section, line, key, format!("given twice: the value in line {first} is not used"));
        }
    }

    /// A warning about a section that is not read yet.
    pub fn warn_in(&mut self, line: usize, section: &str, key: Option<&str>, odd: impl Into<String>) {
        self.warnings.push(None, place(&self.file, Some(line), Some(section), key, odd));
    }

    /// A warning about an unknown key; it is named if that discloses nothing. `written` is none for text that is
    /// probably no key.
    pub fn warn_of_unknown_key(&mut self, line: usize, section: &RawSection, written: Option<&str>) {
        // Beyond the limit the name would not be reported, and the comparison takes time.
        let written = written.filter(|_| self.warnings.problems.len() < MAX_REPORTED);
        let found = written.map(|written| unknown_key(section, written)).unwrap_or_default();
        self.warn_in(line, &section.shown, found.found.as_deref(), format!("unknown key, ignored{}", found.hint));
    }

    /// A warning about an unknown section; it is named if that discloses nothing.
    pub fn warn_of_unknown_section(&mut self, line: usize, written: &str, dialect: Dialect) {
        let is_told = self.warnings.problems.len() < MAX_REPORTED;
        let found = if is_told { unknown_section(written, dialect) } else { UnknownName::default() };
        let shown = found.found.map(|name| if dialect == Dialect::Ini { format!("[{name}]") } else { name });
        let odd = format!("unknown section, ignored{}", found.hint);
        self.warnings.push(None, place(&self.file, Some(line), shown.as_deref(), None, odd));
    }

    /// Reports too many vCenters or classes once, and not for each further one.
    pub fn error_once(&mut self, which: NamedSection, line: usize, dialect: Dialect) {
        let expected = which.too_many();
        if self.problems.problems.iter().rev().take(MAX_REPORTED).all(|(_, problem)| problem.expected != expected) {
            self.error_of_named(which, line, dialect, expected);
        }
    }

    pub fn place_of(&self, section: &RawSection, key: &str) -> String {
        self.place_at(section, Some(key), "").place()
    }

    /// Stores the location of a vCenter entry's CA files, if it names any.
    pub fn record_ca_file(&mut self, vcenter: &str, place: Option<String>) {
        match place {
            Some(place) => drop(self.files.vcenters.insert(vcenter.to_owned(), place)),
            // This entry replaces another one with the same key.
            None => drop(self.files.vcenters.remove(vcenter)),
        }
    }

    /// An error in the CA files of a vCenter entry, which may be inherited.
    pub fn ca_file_error(&mut self, section: &RawSection, reason: String) {
        let problem = match self.files.ca_file(&section.key) {
            Some(named) => place(named, None, None, None, reason),
            None => self.place_at(section, None, reason),
        };
        self.push(section.part, problem);
    }

    /// Stores the location of a file name in the section NSXT.
    pub fn record_nsx_file(&mut self, section: &RawSection, key: &'static str) {
        let place = self.place_of(section, key);
        self.files.nsx.insert(key, place);
    }

    /// The errors; there must be at least one.
    pub fn into_errors(self) -> ConfigErrors {
        let mistakes = self.problems.problems.into_iter().map(|(_, problem)| problem).collect();
        ConfigErrors { errors: mistakes, warnings: Vec::new() }
    }

    /// Returns the warnings and the errors of optional parts. Fails with all errors if one of them is not of an
    /// optional part.
    pub fn finish(mut self) -> Result<Findings, ConfigErrors> {
        let (problems, warnings) = (std::mem::take(&mut self.problems), std::mem::take(&mut self.warnings));
        let (problems, warnings) = (self.sorted(problems, "mistakes"), self.sorted(warnings, "oddities"));
        let warnings = warnings.into_iter().map(|(_, problem)| problem).collect();
        if self.is_refused_as_a_whole {
            return Err(ConfigErrors { errors: problems.into_iter().map(|(_, problem)| problem).collect(), warnings });
        }
        let refused = problems.into_iter().filter_map(|(part, problem)| Some((part?, problem))).collect();
        Ok(Findings { warnings, rejected: refused, files: self.files })
    }

    /// Sorts by line, and truncates.
    fn sorted(&self, gathered: GatheredProblems, what: &str) -> Vec<(Option<PartName>, ConfigProblem)> {
        let GatheredProblems { mut problems, omitted: more } = gathered;
        problems.sort_by_key(|(_, problem)| problem.line.unwrap_or(usize::MAX));
        let more = more + problems.len().saturating_sub(MAX_REPORTED);
        if more > 0 {
            problems.truncate(MAX_REPORTED);
            let part = problems.last().and_then(|(part, _)| *part);
            problems.push((part, place(&self.file, None, None, None, format!("and {more} more {what}"))));
        }
        problems
    }

    fn place_at(&self, section: &RawSection, key: Option<&str>, expected: impl Into<String>) -> ConfigProblem {
        if section.dialect == Dialect::Environment {
            let variable = key.map_or_else(|| section.shown.clone(), |key| section.shown_key(key));
            return place_of_variable(&variable, expected);
        }
        let line = key.and_then(|key| section.line_of(key)).or(section.line);
        let key = key.map(|key| section.shown_key(key));
        place(&self.file, line, Some(&section.shown), key.as_deref(), expected)
    }
}

fn place_of_variable(variable: &str, expected: impl Into<String>) -> ConfigProblem {
    place("environment", None, None, Some(variable), expected)
}

fn place(
    file: &str,
    line: Option<usize>,
    section: Option<&str>,
    key: Option<&str>,
    expected: impl Into<String>,
) -> ConfigProblem {
    ConfigProblem {
        file: file.to_owned(),
        line,
        section: section.map(str::to_owned),
        key: key.map(str::to_owned),
        expected: expected.into(),
    }
}
