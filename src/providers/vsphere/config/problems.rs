//! Errors and warnings of a configuration, each with its location and an expectation.

use std::collections::BTreeMap;

use super::fields::{Dialect, RawSection, SectionName};
use super::names::{UnknownName, unknown_key, unknown_section};
use super::optional_sections::PartName;
use super::{Config, ParsedConfig};

/// Maximum number of errors, and of warnings, that are reported individually.
const MAX_REPORTED: usize = 100;

/// Maximum number of errors, and of warnings, that are kept. Further problems are only counted.
const MAX_KEPT: usize = 1000;

/// An error or a warning. It names a location and never repeats a value, because values may be passwords.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {expected}", self.place())]
pub struct ConfigProblem {
    /// The file, as given by the caller. For a variable it is `environment`, and the key is the variable's name.
    pub file: String,
    /// The line, counted from 1; `None` if the problem has no line.
    pub line: Option<usize>,
    /// The section, as written in the dialect of the file, for example `[Global]` or `vcenter.a`.
    pub section: Option<String>,
    /// The key, as written in the dialect of the file.
    pub key: Option<String>,
    /// The expectation, or the warning.
    pub expected: String,
}

impl ConfigProblem {
    /// Returns file, line, section and key, for example `vsphere.conf:4: nodes.internalVmNetworkName`.
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

/// The errors of a rejected configuration, and its warnings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ConfigErrors {
    /// All errors, in line order; at least one.
    pub errors: Vec<ConfigProblem>,
    /// The warnings, in line order. A warning often shows the cause of an error, such as a mistyped section name.
    pub warnings: Vec<ConfigProblem>,
}

/// Locations at which the configuration names other files, for errors in these files. The format is that of
/// [`ConfigProblem::place`].
#[derive(Clone, Debug, Default)]
pub struct FilePlaces {
    vcenters: BTreeMap<String, String>,
    nsx: BTreeMap<&'static str, String>,
}

impl FilePlaces {
    /// Returns the location at which the CA files of a vCenter entry are configured: in the entry, or in a section from
    /// which it inherits.
    pub fn ca_file(&self, vcenter: &str) -> Option<&str> {
        self.vcenters.get(vcenter).map(String::as_str)
    }

    /// Returns the location of this key of the section `NSXT`. The key is in its INI form.
    pub fn nsx(&self, key: &str) -> Option<&str> {
        self.nsx.get(key).map(String::as_str)
    }
}

#[derive(Default)]
pub(super) struct ProblemReport {
    file: String,
    problems: GatheredProblems,
    warnings: GatheredProblems,
    /// Whether the whole file is readable, so that an absent key counts as missing.
    pub is_readable: bool,
    files: FilePlaces,
    rejected: Vec<PartName>,
    /// Whether an error invalidates the whole file. Errors that are only counted also set this flag.
    is_refused_as_a_whole: bool,
}

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
        Self { file: file.to_owned(), is_readable: true, ..Self::default() }
    }

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

    /// Reports an error of the whole file, or an error that makes a part of the file unreadable.
    pub fn error(&mut self, line: Option<usize>, expected: impl Into<String>) {
        self.is_readable = false;
        self.push(None, place(&self.file, line, None, None, expected));
    }

    /// Reports an error at a key of a section, or at the section.
    pub fn error_at(&mut self, section: &RawSection, key: Option<&str>, expected: impl Into<String>) {
        self.push(section.part, self.place_at(section, key, expected));
    }

    /// Reports an error in a line that is not in `section.fields` yet.
    pub fn error_within(&mut self, section: &RawSection, line: usize, key: Option<&str>, expected: &str) {
        let key = key.map(|key| section.shown_key(key));
        self.push(section.part, place(&self.file, Some(line), Some(&section.shown), key.as_deref(), expected));
    }

    /// Reports an error of all vCenters or of all classes, or of one without a name.
    pub fn error_of_named(&mut self, which: SectionName, line: usize, dialect: Dialect, expected: &str) {
        self.push(which.part(), place(&self.file, Some(line), Some(&which.shown(dialect)), None, expected));
    }

    pub fn error_of_variable(&mut self, part: Option<PartName>, variable: &str, expected: &str) {
        self.push(part, place_of_variable(variable, expected));
    }

    pub fn warn_of_variable(&mut self, variable: &str, odd: impl Into<String>) {
        self.warnings.push(None, place_of_variable(variable, odd));
    }

    /// Warns of a key of a section, or of the section.
    pub fn warn_at(&mut self, section: &RawSection, key: Option<&str>, odd: impl Into<String>) {
        self.warnings.push(None, self.place_at(section, key, odd));
    }

    /// Warns of a line that is not in `section.fields` yet.
    pub fn warn_within(&mut self, section: &RawSection, line: usize, key: &str, odd: impl Into<String>) {
        self.warn_in(line, Some(&section.shown), Some(&section.shown_key(key)), odd);
    }

    /// If the key has an earlier value in line `first`, warns that the earlier value is ignored.
    pub fn warn_of_second(&mut self, section: &RawSection, line: usize, key: &str, first: Option<usize>) {
        if let Some(first) = first {
            self.warn_within(section, line, key, format!("given twice: the value in line {first} is not used"));
        }
    }

    /// Warns of a line, of a section, or of a key in it, given by their names in messages.
    pub fn warn_in(&mut self, line: usize, section: Option<&str>, key: Option<&str>, odd: impl Into<String>) {
        self.warnings.push(None, place(&self.file, Some(line), section, key, odd));
    }

    /// Warns of an unknown key. `written` is `None` for text that is probably not a key.
    pub fn warn_of_unknown_key(&mut self, line: usize, section: &RawSection, written: Option<&str>) {
        // Beyond the limit, the name is not reported, so the comparison would only take time.
        let written = written.filter(|_| self.warnings.problems.len() < MAX_REPORTED);
        let found = written.map(|written| unknown_key(section, written)).unwrap_or_default();
        let odd = format!("unknown key, ignored{}", found.hint);
        self.warn_in(line, Some(&section.shown), found.found.as_deref(), odd);
    }

    pub fn warn_of_unknown_section(&mut self, line: usize, written: &str, dialect: Dialect) {
        let is_told = self.warnings.problems.len() < MAX_REPORTED;
        let found = if is_told { unknown_section(written, dialect) } else { UnknownName::default() };
        let shown = found.found.map(|name| if dialect == Dialect::Ini { format!("[{name}]") } else { name });
        self.warn_in(line, shown.as_deref(), None, format!("unknown section, ignored{}", found.hint));
    }

    /// Reports too many vCenters or classes, but only once.
    pub fn error_once(&mut self, which: SectionName, line: usize, dialect: Dialect) {
        let expected = which.too_many();
        if self.problems.problems.iter().rev().take(MAX_REPORTED).all(|(_, problem)| problem.expected != expected) {
            self.error_of_named(which, line, dialect, expected);
        }
    }

    pub fn place_of(&self, section: &RawSection, key: &str) -> String {
        self.place_at(section, Some(key), "").place()
    }

    pub fn record_ca_file(&mut self, vcenter: &str, place: Option<String>) {
        match place {
            Some(place) => drop(self.files.vcenters.insert(vcenter.to_owned(), place)),
            // This entry has no CA files, but may replace an entry that has the same key and CA files.
            None => drop(self.files.vcenters.remove(vcenter)),
        }
    }

    /// Reports an error in the CA files of a vCenter entry. The entry may have inherited the CA files.
    pub fn ca_file_error(&mut self, section: &RawSection, reason: String) {
        let problem = match self.files.ca_file(&section.key) {
            Some(named) => place(named, None, None, None, reason),
            None => self.place_at(section, None, reason),
        };
        self.push(section.part, problem);
    }

    pub fn record_nsx_file(&mut self, section: &RawSection, key: &'static str) {
        let place = self.place_of(section, key);
        self.files.nsx.insert(key, place);
    }

    /// Returns the errors. There must be at least one error.
    pub fn into_errors(self) -> ConfigErrors {
        let mistakes = self.problems.problems.into_iter().map(|(_, problem)| problem).collect();
        ConfigErrors { errors: mistakes, warnings: Vec::new() }
    }

    /// Returns this configuration with all warnings, and with the errors of optional parts. Fails with all errors if
    /// one of them invalidates the whole file.
    pub fn finish(mut self, config: Config) -> Result<ParsedConfig, ConfigErrors> {
        let (problems, warnings) = (std::mem::take(&mut self.problems), std::mem::take(&mut self.warnings));
        let (problems, warnings) = (self.sorted(problems, "mistakes"), self.sorted(warnings, "oddities"));
        let warnings = warnings.into_iter().map(|(_, problem)| problem).collect();
        if self.is_refused_as_a_whole {
            return Err(ConfigErrors { errors: problems.into_iter().map(|(_, problem)| problem).collect(), warnings });
        }
        let rejected = problems.into_iter().filter_map(|(part, problem)| Some((part?, problem))).collect();
        Ok(ParsedConfig { config, warnings, rejected, files: self.files })
    }

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
