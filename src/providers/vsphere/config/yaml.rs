//! The YAML dialect: sections, keys and values as `yaml.v2` reads them.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::fields::{Dialect, RawField, RawFile, RawSection, RawValue, SectionName, SectionsMut, ValueKind};
use super::problems::ProblemReport;
use super::traps::{self, CommentableLines};
use crate::base::yaml::{Aliases, Entry, MAX_DEPTH, MAX_TEXT, MAX_VALUES, Node, Value, YamlError, parse_document};

/// Parses the first document. Errors go into the report; the result contains all valid parts.
pub(super) fn read(text: &str, report: &mut ProblemReport) -> RawFile {
    let mut file = RawFile::new(Dialect::Yaml);
    let document = match parse_document(text, Aliases::Copied) {
        Ok(document) => document,
        Err(error) => {
            let hint = match error {
                YamlError::Syntax(_) | YamlError::Alias(_) => {
                    "expected YAML: check the indentation (no tabs), and quote values with ': ' or ' #' in them"
                        .to_owned()
                }
                YamlError::TooLarge(_) => {
                    format!(
                        "expected at most {MAX_VALUES} values and {MAX_TEXT} bytes of text, with aliases, and {MAX_DEPTH} levels"
                    )
                }
            };
            report.error(Some(error.line()), hint);
            return file;
        }
    };
    let Some(top) = document.entries() else {
        report.error(Some(document.line), "expected a mapping with global, vcenter, labels and nodes, or [Section]");
        return file;
    };
    if let Some(expected) = traps::of_other_files(top) {
        report.error(Some(document.line), expected);
        return file;
    }
    if let Some(line) = traps::second_document(text) {
        report.warn_in(line, None, None, "another document begins here: only the first one counts");
    }
    let commented = CommentableLines::lines_of(text);
    for entry in top {
        let Some(which) = SectionName::ALL.into_iter().find(|which| which.yaml() == entry.key) else {
            report.warn_of_unknown_section(entry.line, &entry.key, Dialect::Yaml);
            continue;
        };
        match file.sections_mut(which) {
            SectionsMut::Single(section) => {
                if let Some(first) = section.line.filter(|_| !entry.is_merged) {
                    let odd =
                        format!("given twice, first in line {first}: the keys of both count, unless this one is null");
                    report.warn_in(entry.line, Some(&section.shown), None, odd);
                }
                read_section(section, entry, &commented, report);
            }
            SectionsMut::Named(sections) => read_named(sections, which, entry, &commented, report),
        }
    }
    file
}

/// Reads the entries of a named section. As in the Go program, a repeated entry replaces the first, and a section that
/// is null removes all its earlier entries. A null class is empty; the Go program crashes on a null class.
fn read_named(
    sections: &mut Vec<RawSection>,
    which: SectionName,
    all: &Entry,
    commented: &CommentableLines<'_>,
    report: &mut ProblemReport,
) {
    if matches!(all.node.value, Value::Null) {
        sections.clear();
    }
    let Some(written) = all.node.entries() else {
        let entries = if which == SectionName::Class { "classes" } else { "vCenters" };
        let expected = format!("expected a mapping of names to {entries}");
        report.error_of_named(which, all.line, Dialect::Yaml, &expected);
        return;
    };
    for entry in written {
        let is_new = sections.iter().all(|known| known.key != entry.key);
        if is_new && sections.len() == SectionName::MAX_SECTIONS {
            report.error_of_named(which, entry.line, Dialect::Yaml, which.too_many());
            return;
        }
        let mut section = RawSection::named(which, entry.key.clone(), Some(entry.line), Dialect::Yaml);
        read_section(&mut section, entry, commented, report);
        match sections.iter_mut().find(|known| known.key == section.key) {
            Some(known) => {
                if let Some(first) = known.line.filter(|_| !entry.is_merged) {
                    let odd = format!("given twice: the entry in line {first} is not used");
                    report.warn_in(entry.line, Some(&section.shown), None, odd);
                }
                *known = section;
            }
            None => sections.push(section),
        }
    }
}

fn read_section(
    section: &mut RawSection,
    written: &Entry,
    commented: &CommentableLines<'_>,
    report: &mut ProblemReport,
) {
    section.line.get_or_insert(written.line);
    if matches!(written.node.value, Value::Null) {
        section.fields.clear();
    }
    let Some(fields) = written.node.entries() else {
        report.error_within(section, written.line, None, "expected a mapping of keys to values");
        return;
    };
    // A key that was merged by `<<` may be given again without a warning.
    let mut lines: BTreeMap<&'static str, Option<usize>> =
        section.fields.iter().map(|field| (field.name, field.line)).collect();
    for entry in fields {
        let Some((name, kind, _)) = section.find_key(&entry.key) else {
            match section_named(&entry.key) {
                Some(name) => {
                    let odd = format!("ignored: `{name}` is inside `{}`: move it to the first column", section.shown);
                    report.warn_in(entry.line, Some(&section.shown), Some(name), odd);
                }
                None => report.warn_of_unknown_key(entry.line, section, Some(&entry.key)),
            }
            continue;
        };
        if !entry.is_merged {
            let first = lines.insert(name, Some(entry.line)).flatten();
            report.warn_of_second(section, entry.line, name, first);
        }
        let written = match &entry.node.value {
            Value::Scalar { text, plain: true } => Some(text.as_str()),
            Value::Null => Some(""),
            _ => None,
        };
        if written.is_some_and(|value| commented.cuts(entry.node.line, name, value)) {
            report.warn_within(section, entry.line, name, traps::CUT_IN_YAML);
        }
        if let Value::Scalar { text, .. } = &entry.node.value
            && traps::ends_with_line_break(name, text)
        {
            report.warn_within(section, entry.line, name, traps::LINE_BREAK);
        }
        let value = parse_value(kind, &entry.node.value).unwrap_or_else(|expected| {
            report.error_within(section, entry.line, Some(name), expected);
            RawValue::Mistake
        });
        section.fields.push(RawField { name, line: Some(entry.line), value });
    }
}

fn section_named(written: &str) -> Option<&'static str> {
    SectionName::ALL.map(SectionName::yaml).into_iter().find(|name| name.eq_ignore_ascii_case(written))
}

fn parse_value(kind: ValueKind, value: &Value) -> Result<RawValue, &'static str> {
    match (kind, value) {
        (_, Value::Null) => Ok(RawValue::Unset),
        (ValueKind::Text, Value::Scalar { text, .. }) => Ok(RawValue::Text(text.clone())),
        (ValueKind::Text, _) => Err("expected text, not a list or a mapping"),
        (ValueKind::Flag, Value::Scalar { text, plain: true }) => {
            parse_flag(text).map(RawValue::Flag).ok_or("expected true or false")
        }
        (ValueKind::Flag, _) => Err("expected true or false without quotes"),
        (ValueKind::Number, Value::Scalar { text, plain: true }) => match parse_number(text) {
            Some(0) => Ok(RawValue::Unset),
            Some(number) => Ok(RawValue::Number(number)),
            None => Err("expected a whole number"),
        },
        (ValueKind::Number, _) => Err("expected a whole number without quotes"),
        (ValueKind::List, Value::List(items)) => items.iter().map(item).collect::<Result<_, _>>().map(RawValue::List),
        (ValueKind::List, _) => Err("expected a list, for example [a, b]"),
        (ValueKind::Map, Value::Map(entries)) => {
            let entries = entries.iter().map(|entry| Some((entry.key.clone(), item(&entry.node).ok()?)));
            entries.collect::<Option<_>>().map(RawValue::Map).ok_or(MAP)
        }
        (ValueKind::Map, _) => Err(MAP),
    }
}

const MAP: &str = "expected a mapping of texts, for example {scope: tag}";

fn item(node: &Node) -> Result<Zeroizing<String>, &'static str> {
    match &node.value {
        Value::Scalar { text, .. } => Ok(text.clone()),
        Value::Null => Ok(Zeroizing::default()),
        Value::List(_) | Value::Map(_) => Err("expected a list of texts"),
    }
}

/// Parses the booleans of YAML 1.1.
fn parse_flag(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Parses decimal, `0x`, `0b`, `0o`, or octal with a leading zero; `_` may separate digits. With a digit 8 or 9, a
/// number with a leading zero is decimal.
fn parse_number(text: &str) -> Option<u64> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let text = unsigned.replace('_', "").to_ascii_lowercase();
    let (digits, radix) = match text.split_at_checked(2) {
        Some(("0x", digits)) => (digits, 16),
        Some(("0b", digits)) => (digits, 2),
        Some(("0o", digits)) => (digits, 8),
        _ if text.len() > 1 && text.starts_with('0') && !text.contains(['8', '9']) => (text.as_str(), 8),
        _ => (text.as_str(), 10),
    };
    // `from_str_radix` would accept a sign.
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, radix).ok() }
}
